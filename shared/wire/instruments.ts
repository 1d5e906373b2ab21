// What the operator API tells of single instruments and of the flags of stored rows.

import { z } from "zod";
import { instant } from "./markets.ts";

/** Rows of a series that are flagged as true vintages but were learned too late for it. */
export const LateRows = z
  .object({
    job: z.string().meta({ description: "pipeline" }),
    library: z.string().meta({ description: "library of the series" }),
    symbol: z.string().meta({ description: "symbol of the series" }),
    first: instant.meta({ description: "first valid time of such a row" }),
    last: instant.meta({ description: "last valid time of such a row" }),
    rows: z.number().int().meta({ description: "number of such rows" }),
  })
  .meta({ id: "LateRows" });
export type LateRows = z.output<typeof LateRows>;

/** An instrument as the read-back checks know it. */
export const Instrument = z
  .object({
    instrument_id: z.string().meta({ description: "dotted identifier" }),
    library: z.string().meta({ description: "its library" }),
    symbol: z.string().meta({ description: "its series" }),
    newest: instant.meta({ description: "newest valid time that a check read back" }),
    retired_at: instant.nullable().meta({
      description: "when an operator retired it; null: its silence is reported",
    }),
    retired_by: z.string().nullable().meta({ description: "the operator who retired it" }),
  })
  .meta({ id: "Instrument" });
export type Instrument = z.output<typeof Instrument>;
