// Several series side by side: one row an instant, one column an instrument. Pure.

import { iso } from "../../shared/time.ts";
import { type Batch, usedEntries } from "./store/columns.ts";

/** One series of a panel, its batches in order. */
export interface PanelSeries {
  batches: readonly Batch[];
  /** The value column shown. */
  column: number;
}

/** What every instrument shows at one instant. */
export interface PanelRow {
  /** Epoch milliseconds. */
  datetime: number;
  /** One value per instrument; NaN where it has none. */
  values: Float64Array;
}

/** The instruments that have a row, in the series' order and then by name. */
export const instrumentsOf = (series: readonly PanelSeries[]): string[] => [
  ...new Set(
    series.flatMap(({ batches }) =>
      [
        ...new Set(
          batches.flatMap((batch) => usedEntries(batch.instrument, batch.instruments).entries),
        ),
      ].sort(),
    ),
  ),
];

/** The rows of every instant at which any series has one, in order; `values` is reused. */
export function* panelRows(
  series: readonly PanelSeries[],
  instruments: readonly string[],
): Generator<PanelRow> {
  const indexOf = new Map(instruments.map((id, index) => [id, index]));
  const cursors = series.flatMap(({ batches, column }) => {
    const first = batches[0];
    return first ? [{ batches, column, index: 0, batch: first, at: 0 }] : [];
  });
  const row: PanelRow = { datetime: NaN, values: new Float64Array(instruments.length) };
  for (;;) {
    const open = cursors.filter(({ at, batch }) => at < batch.length);
    if (open.length === 0) return;
    row.datetime = Math.min(...open.map(({ batch, at }) => batch.datetime[at] as number));
    row.values.fill(NaN);
    for (const cursor of open) {
      while (cursor.batch.datetime[cursor.at] === row.datetime) {
        const { batch, at, column } = cursor;
        const id = batch.instruments[batch.instrument[at] as number] as string;
        row.values[indexOf.get(id) as number] = batch.values[column]?.[at] ?? NaN;
        cursor.at++;
        if (cursor.at < batch.length) continue;
        const next = cursor.batches[++cursor.index];
        if (!next) break;
        cursor.batch = next;
        cursor.at = 0;
      }
    }
    yield row;
  }
}

/**
 * Writes instants as a zone's clocks show them, with the offset that tells repeated hours apart.
 */
export function localClock(timeZone: string): (instant: number) => string {
  const format = new Intl.DateTimeFormat("en-CA", { timeZone, timeZoneName: "longOffset" });
  const offsets = new Map<number, { text: string; ms: number }>();
  // Zones change their offset at quarters of an hour at the finest.
  const QUARTER = 900_000;
  const CACHED_MAX = 10_000;
  return (instant) => {
    const quarter = Math.floor(instant / QUARTER);
    let offset = offsets.get(quarter);
    if (!offset) {
      const parts = format.formatToParts(instant);
      const name = parts.find(({ type }) => type === "timeZoneName")?.value ?? "GMT";
      const [, sign = "+", hours = "00", minutes = "00"] =
        /GMT([+-])(\d\d):(\d\d)/.exec(name) ?? [];
      const ms = (Number(hours) * 60 + Number(minutes)) * 60_000 * (sign === "-" ? -1 : 1);
      offset = { text: `${sign}${hours}:${minutes}`, ms };
      if (offsets.size === CACHED_MAX) offsets.clear();
      offsets.set(quarter, offset);
    }
    return iso(instant + offset.ms).slice(0, 19) + offset.text;
  };
}

/** The formats of a panel. */
export type PanelFormat = "json" | "ndjson" | "csv";

const CHUNK_CHARACTERS = 128 * 1024;

/** The rows of a panel as text, in chunks; `local` adds a column of a zone's clock times. */
export function* encodePanel(
  rows: Iterable<PanelRow>,
  instruments: readonly string[],
  { format, local }: { format: PanelFormat; local: ((instant: number) => string) | null },
): Generator<Uint8Array> {
  const encoder = new TextEncoder();
  const names = ["Datetime", ...(local ? ["local"] : []), ...instruments];
  const keys = instruments.map((id) => `,${JSON.stringify(id)}:`);
  const number = (value: number) => (value === value ? String(value + 0) : "");
  const write = ({ datetime, values }: PanelRow): string => {
    if (format === "csv") {
      const cells = [iso(datetime), ...(local ? [local(datetime)] : [])];
      return `${[...cells, ...Array.from(values, number)].join()}\n`;
    }
    const clock = local ? `,"local":"${local(datetime)}"` : "";
    const cells = keys.map((key, index) => key + (number(values[index] as number) || "null"));
    return `{"Datetime":"${iso(datetime)}"${clock}${cells.join("")}}`;
  };
  const separator = format === "json" ? "," : format === "ndjson" ? "\n" : "";
  let text = format === "json" ? "[" : format === "csv" ? `${names.map(csvName).join()}\n` : "";
  let count = 0;
  for (const row of rows) {
    text += (count > 0 ? separator : "") + write(row);
    count++;
    if (text.length < CHUNK_CHARACTERS) continue;
    yield encoder.encode(text);
    text = "";
  }
  yield encoder.encode(
    text + (format === "json" ? "]" : format === "ndjson" && count > 0 ? "\n" : ""),
  );
}

const csvName = (name: string) =>
  /[",\r\n]/.test(name) ? `"${name.replaceAll('"', '""')}"` : name;
