// The newest row of every watched instrument, and which instruments operators have retired. The
// read-back check records the rows; silence is judged by them, however old they are.

import { sql } from "drizzle-orm";
import { Failure } from "../../../shared/errors.ts";
import { iso } from "../../../shared/time.ts";
import type { Instrument } from "../../../shared/wire/instruments.ts";
import { type Database, epochMs, wireTime } from "../../http/database.ts";
import { jsonTexts } from "../store/catalog.ts";
import { at } from "./ledger.ts";

/** The newest row of an instrument of a series; `datetime` in epoch milliseconds. */
export interface NewestRow {
  library: string;
  symbol: string;
  instrumentId: string;
  datetime: number;
}

/** An instrument as the checks know it. */
export interface WatchedInstrument extends Record<string, unknown> {
  instrumentId: string;
  library: string;
  symbol: string;
  /** Newest valid time that was ever read back, epoch milliseconds. */
  validMax: number;
  /** When an operator retired it, ISO 8601, and who; null: it is watched. */
  retiredAt: string | null;
  retiredBy: string | null;
}

/** The instruments of some libraries, sorted. */
export async function listInstruments(
  database: Database,
  libraries: readonly string[],
): Promise<WatchedInstrument[]> {
  const { rows } = await database.execute<WatchedInstrument>(sql`
    SELECT i.id AS "instrumentId", s.library, s.symbol, ${epochMs(sql`i.valid_max`)} AS "validMax",
      ${wireTime(sql`i.retired_at`)} AS "retiredAt", i.retired_by AS "retiredBy"
      FROM instrument i JOIN series s ON s.id = i.series_id
     WHERE s.library IN ${jsonTexts(libraries)} ORDER BY i.id COLLATE "C"`);
  return rows;
}

/** An instrument as the operator API shows it. */
export const toWire = (instrument: WatchedInstrument): Instrument => ({
  instrument_id: instrument.instrumentId,
  library: instrument.library,
  symbol: instrument.symbol,
  newest: iso(instrument.validMax),
  retired_at: instrument.retiredAt,
  retired_by: instrument.retiredBy,
});

/**
 * Records the newest rows of instruments. An older row changes nothing; a row newer than any before
 * ends the retirement of its instrument.
 */
export async function recordNewest(
  database: Database,
  newest: readonly NewestRow[],
): Promise<void> {
  if (newest.length === 0) return;
  const rows = newest.map(({ datetime, ...row }) => ({ ...row, datetime: iso(datetime) }));
  await database.execute(sql`
    INSERT INTO instrument AS i (id, series_id, valid_max)
    SELECT x."instrumentId", s.id, x.datetime
      FROM jsonb_to_recordset(${JSON.stringify(rows)}::jsonb)
        AS x(library text, symbol text, "instrumentId" text, datetime timestamptz)
      JOIN series s ON s.library = x.library AND s.symbol = x.symbol
     ORDER BY 1
    ON CONFLICT (id) DO UPDATE SET valid_max = excluded.valid_max, retired_at = NULL,
      retired_by = NULL WHERE i.valid_max < excluded.valid_max`);
}

/** Retires an instrument or watches it again; fails with `unknown_instrument`. */
export async function setRetired(
  database: Database,
  instrumentId: string,
  { retired, by, now }: { retired: boolean; by: string | null; now: number },
): Promise<void> {
  const { rows } = await database.execute(sql`
    UPDATE instrument SET retired_at = ${retired ? at(now) : sql`NULL`},
      retired_by = ${retired ? by : null}::text WHERE id = ${instrumentId} RETURNING id`);
  if (rows.length > 0) return;
  throw new Failure("unknown_instrument", `no check knows ${JSON.stringify(instrumentId)}`);
}
