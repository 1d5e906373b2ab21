// The readings behind a panel: several series of the store at one knowledge time, under one cap.

import { Failure } from "../../shared/errors.ts";
import type { PanelSeries } from "./panel.ts";
import { columnOf } from "./parameters.ts";
import type { Batch } from "./store/columns.ts";
import type { Reading, SeriesName, Store } from "./store/store.ts";
import { PANEL_ENCODING } from "./wire/encodings.ts";

/** What a panel shows. */
export interface PanelRequest {
  names: readonly SeriesName[];
  /** Valid-time bounds, epoch milliseconds, both inclusive. */
  start: number | undefined;
  end: number | undefined;
  /** Knowledge time, epoch milliseconds. */
  asOf: number;
  /** Value column of every series; each series' first when undefined. */
  column: string | undefined;
  /** As `as_of_offset` in milliseconds and `vintage=true_only` have them. */
  knownBy: number | undefined;
  trueOnly: boolean;
  /** Cap on the rows of all series together, bounded or not. */
  rowsMax: number;
}

/** A panel that is planned: only the catalog was read so far. */
export interface PanelReading {
  /** Null where nothing was known yet. */
  asOf: number | null;
  /** Whether no later commit can change any of its series, whatever the database's clock does. */
  immutable: boolean;
  sandbox: boolean;
  /** About how many versions the read works through. */
  versionCount: number;
  /** Names the answer: its bytes follow from the series' identities and from how they are shown. */
  tag: (shown: object) => Promise<string>;
  /** Reads every series; fails with `row_cap_exceeded`. */
  series: () => Promise<PanelSeries[]>;
  /** Only reading tells whether `series` fails: within bounds the catalog counts no rows. */
  mayExceedCap: boolean;
}

const READS_AT_ONCE = 6;

/**
 * Plans the reads of a panel. Fails as `Store.read` does, and with `invalid_request` for a column
 * that a series lacks.
 */
export async function readPanel(store: Store, request: PanelRequest): Promise<PanelReading> {
  const { names, asOf, start, end, rowsMax, knownBy, trueOnly } = request;
  const readings: Reading[] = [];
  for (let index = 0; index < names.length; index += READS_AT_ONCE) {
    const batch = names.slice(index, index + READS_AT_ONCE);
    const reads = batch.map((series) =>
      store.read({ ...series, asOf, start, end, rowsMax, knownBy, trueOnly }),
    );
    readings.push(...(await Promise.all(reads)));
  }
  const columns = readings.map(({ valueColumns }) => columnOf(valueColumns, request.column));
  const rowCount = readings.reduce((sum, reading) => sum + reading.rowCount, 0);
  const bounded = start !== undefined || end !== undefined;
  if (!bounded && rowCount > rowsMax) throw overCap(rowCount, rowsMax);
  return {
    asOf: readings.every((reading) => reading.asOf === null) ? null : asOf,
    immutable: readings.every((reading) => reading.immutable),
    sandbox: readings.some((reading) => reading.sandbox),
    versionCount: readings.reduce((sum, reading) => sum + reading.versionCount, 0),
    tag: (shown) => panelTag(readings, shown),
    series: () => collectAll(names, readings, columns, rowsMax),
    mayExceedCap: rowCount > rowsMax,
  };
}

async function panelTag(readings: readonly Reading[], shown: object): Promise<string> {
  const text = JSON.stringify([PANEL_ENCODING, readings.map(({ identity }) => identity), shown]);
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return Array.from(new Uint8Array(digest, 0, 16), (b) => b.toString(16).padStart(2, "0")).join("");
}

const overCap = (rows: number, cap: number) =>
  new Failure(
    "row_cap_exceeded",
    `the panel has ${rows} rows or more over all its series, over the cap of ${cap}; ` +
      "ask for fewer symbols, or a narrower start and end",
    { data: { rows, cap } },
  );

/** The rows of every series, within the cap of them all. */
async function collectAll(
  names: readonly SeriesName[],
  readings: readonly Reading[],
  columns: readonly number[],
  rowsMax: number,
): Promise<PanelSeries[]> {
  const series: PanelSeries[] = [];
  let rows = 0;
  for (const [index, reading] of readings.entries()) {
    const batches: Batch[] = [];
    for await (const batch of reading.batches()) {
      rows += batch.length;
      if (rows > rowsMax) throw overCap(rows, rowsMax);
      batches.push(batch);
    }
    const { library, symbol } = names[index] as SeriesName;
    series.push({ library, symbol, batches, column: columns[index] ?? 0 });
  }
  return series;
}
