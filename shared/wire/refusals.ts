// What the operator API tells of changes that the gate refused for the rows they would withdraw.

import { z } from "zod";
import { instant } from "./markets.ts";

const fields = {
  refusal_id: z.string().meta({ description: "id" }),
  job: z.string().meta({ description: "pipeline", example: "grid_region" }),
  library: z.string().meta({ description: "library of the series" }),
  symbol: z.string().meta({ description: "symbol of the series" }),
  run_id: z.string().meta({ description: "the newest run that was refused this change" }),
  partition: z.string().meta({ description: "partition of that run" }),
  vintage_reconstructed: z.boolean().meta({
    description: "true: a reconstruction was refused; false: a true forward vintage",
  }),
  state: z.enum(["open", "accepted", "ended"]).meta({
    description:
      "accepted: the next run that withdraws none but these rows commits; ended: a run committed " +
      "the series, or was refused other rows",
  }),
  stored: z.int().meta({ description: "rows stored in the range that the source was asked for" }),
  withdrawn: z.int().meta({ description: "rows that would be retracted, or become null" }),
  revised: z.int().meta({ description: "rows that would have other values" }),
  inserted: z.int().meta({ description: "rows that would be new" }),
  refused_at: instant.meta({ description: "when that run was refused" }),
  accepted_at: instant.nullable().meta({ description: "when an operator accepted it" }),
  accepted_by: z.string().nullable().meta({ description: "name of the operator" }),
  ended_at: instant.nullable().meta({ description: "when it ended" }),
};

/** A change of a series that was refused, counted. */
export const Refusal = z.object(fields).meta({ id: "Refusal" });
export type Refusal = z.infer<typeof Refusal>;

const values = z.array(z.number().nullable()).nullable();

/** A row of a refused change. */
export const RefusedRow = z
  .object({
    Datetime: instant.meta({ description: "valid time" }),
    instrument_id: z.string().meta({ description: "what the values are of" }),
    before: values.meta({ description: "one a value column, as stored; null: no such row" }),
    after: values.meta({ description: "as the source sent them; null: it sent no such row" }),
  })
  .meta({ id: "RefusedRow" });
export type RefusedRow = z.infer<typeof RefusedRow>;

/** A change that was refused, row by row. */
export const RefusedChange = z
  .object({
    ...fields,
    value_columns: z.array(z.string()).meta({ description: "names of the values, in order" }),
    changes: z.array(RefusedRow).meta({ description: "its rows by Datetime and instrument_id" }),
  })
  .meta({ id: "RefusedChange" });
export type RefusedChange = z.infer<typeof RefusedChange>;

/** What was accepted, and the runs that commit it. */
export const AcceptedRefusals = z.object({
  refusals: z.array(Refusal).meta({ description: "each accepted, now or before" }),
  run_ids: z.array(z.string()).meta({ description: "runs that were queued, one a partition" }),
});
export type AcceptedRefusals = z.infer<typeof AcceptedRefusals>;
