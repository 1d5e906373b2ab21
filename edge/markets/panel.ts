// Several series side by side: one row an instant, one column an instrument. Pure.

import { DAY, iso, MINUTE } from "../../shared/time.ts";
import { type Batch, usedEntries } from "./store/columns.ts";
import { encodeArrow } from "./wire/arrow.ts";
import { type Format, GROUP_ROWS } from "./wire/formats.ts";
import { encodeParquet } from "./wire/parquet.ts";
import type { AnswerColumn, Table } from "./wire/record.ts";
import type { TextFormat } from "./wire/text.ts";

/** Cells of a row group: a panel of many columns has shorter ones. */
const GROUP_CELLS = 32 * GROUP_ROWS;

/** One series of a panel, its batches in order. */
export interface PanelSeries {
  library: string;
  symbol: string;
  batches: readonly Batch[];
  /** The value column shown. */
  column: number;
}

/** An instrument of a series, and the name of its column. */
export interface PanelColumn {
  name: string;
  /** Index of its series. */
  series: number;
  instrument: string;
}

/** What every column shows at one instant. */
export interface PanelRow {
  /** Epoch milliseconds. */
  datetime: number;
  /** One value per column; NaN where it has none. */
  values: Float64Array;
}

/** Names that the columns of time have. */
const TIME_COLUMNS = ["Datetime", "local"];

/**
 * A column for each instrument that has a row, in the series' order and then by name. Its name is
 * the `instrument_id`, or `library/symbol/instrument_id` where several series have that one.
 */
export function panelColumns(series: readonly PanelSeries[]): PanelColumn[] {
  const columns = series.flatMap(({ batches }, index) => {
    const used = batches.flatMap(
      (batch) => usedEntries(batch.instrument, batch.instruments).entries,
    );
    return [...new Set(used)].sort().map((instrument) => ({ series: index, instrument }));
  });
  const counts = new Map(TIME_COLUMNS.map((name) => [name, 1]));
  for (const { instrument } of columns) counts.set(instrument, (counts.get(instrument) ?? 0) + 1);
  return columns.map((column) => {
    const { library, symbol } = series[column.series] as PanelSeries;
    const isShared = counts.get(column.instrument) !== 1;
    const name = isShared ? `${library}/${symbol}/${column.instrument}` : column.instrument;
    return { ...column, name };
  });
}

/** The rows of every instant at which any series has one, in order; `values` is reused. */
export function* panelRows(
  series: readonly PanelSeries[],
  columns: readonly PanelColumn[],
): Generator<PanelRow> {
  const cursors = series.flatMap(({ batches, column }, index) => {
    const own = columns.flatMap((one, at) =>
      one.series === index ? [[one.instrument, at] as const] : [],
    );
    const first = batches[0];
    if (!first) return [];
    return [{ batches, column, indexOf: new Map(own), index: 0, batch: first, at: 0 }];
  });
  const row: PanelRow = { datetime: NaN, values: new Float64Array(columns.length) };
  for (;;) {
    const open = cursors.filter(({ at, batch }) => at < batch.length);
    if (open.length === 0) return;
    row.datetime = Math.min(...open.map(({ batch, at }) => batch.datetime[at] as number));
    row.values.fill(NaN);
    for (const cursor of open) {
      while (cursor.batch.datetime[cursor.at] === row.datetime) {
        const { batch, at, column, indexOf } = cursor;
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

/** What a zone's clocks show, less UTC. */
interface ClockOffset {
  /** `-06:00`. */
  text: string;
  ms: number;
}

/** Days, and minutes of days with a change, whose offsets are remembered. */
const OFFSETS_MAX = 10_000;

/**
 * Writes instants as a zone's clocks show them, with the offset that tells repeated hours apart. On
 * most days it is one; where it changes, it does so at any minute: St John's did at 00:01 until
 * 2011.
 */
export function localClock(timeZone: string): (instant: number) => string {
  const format = new Intl.DateTimeFormat("en-CA", { timeZone, timeZoneName: "longOffset" });
  const offsetAt = (instant: number): ClockOffset => {
    const parts = format.formatToParts(instant);
    const name = parts.find(({ type }) => type === "timeZoneName")?.value ?? "GMT";
    const [, sign = "+", hours = "00", minutes = "00"] = /GMT([+-])(\d\d):(\d\d)/.exec(name) ?? [];
    const ms = (Number(hours) * 60 + Number(minutes)) * MINUTE * (sign === "-" ? -1 : 1);
    return { text: `${sign}${hours}:${minutes}`, ms };
  };
  const byDay = new Map<number, ClockOffset | null>();
  const byMinute = new Map<number, ClockOffset>();
  const offsetOfDay = (day: number) => {
    const [first, last] = [offsetAt(day * DAY), offsetAt((day + 1) * DAY - MINUTE)];
    return first.ms === last.ms ? first : null;
  };
  return (instant) => {
    const ofDay = remembered(byDay, Math.floor(instant / DAY), offsetOfDay);
    const minuteOffset = (minute: number) => offsetAt(minute * MINUTE);
    const offset = ofDay ?? remembered(byMinute, Math.floor(instant / MINUTE), minuteOffset);
    return iso(instant + offset.ms).slice(0, 19) + offset.text;
  };
}

function remembered<Value>(
  known: Map<number, Value>,
  key: number,
  compute: (key: number) => Value,
): Value {
  const held = known.get(key);
  if (held !== undefined) return held;
  const value = compute(key);
  if (known.size === OFFSETS_MAX) known.clear();
  known.set(key, value);
  return value;
}

/** How a panel is shown. */
export interface PanelShape {
  columns: readonly PanelColumn[];
  /** Adds a column of a zone's clock times; null: none. */
  local: ((instant: number) => string) | null;
}

const CHUNK_CHARACTERS = 128 * 1024;

/** The rows of a panel in a format, in parts. */
export function encodePanel(
  format: Format,
  rows: Iterable<PanelRow>,
  shape: PanelShape,
): AsyncIterable<Uint8Array> | Iterable<Uint8Array> {
  if (format === "parquet") return encodeParquet(tables(rows, shape), header(shape));
  if (format === "arrow") return encodeArrow(tables(rows, shape), header(shape));
  return encodeText(format, rows, shape);
}

function* encodeText(
  format: TextFormat,
  rows: Iterable<PanelRow>,
  { columns, local }: PanelShape,
): Generator<Uint8Array> {
  const encoder = new TextEncoder();
  const names = ["Datetime", ...(local ? ["local"] : []), ...columns.map(({ name }) => name)];
  const keys = columns.map(({ name }) => `,${JSON.stringify(name)}:`);
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

/** The rows as typed columns, a group at a time. */
async function* tables(rows: Iterable<PanelRow>, shape: PanelShape): AsyncGenerator<Table> {
  const size = Math.max(1, Math.floor(GROUP_CELLS / Math.max(shape.columns.length, 1)));
  const datetime = new Float64Array(Math.min(size, GROUP_ROWS));
  const values = shape.columns.map(() => new Float64Array(datetime.length));
  let length = 0;
  for (const row of rows) {
    datetime[length] = row.datetime;
    for (const [index, column] of values.entries()) column[length] = row.values[index] as number;
    if (++length < datetime.length) continue;
    yield tableOf(shape, datetime, values);
    length = 0;
  }
  const rest = (column: Float64Array) => column.subarray(0, length);
  if (length > 0) yield tableOf(shape, rest(datetime), values.map(rest));
}

const header = (shape: PanelShape) =>
  tableOf(
    shape,
    new Float64Array(0),
    shape.columns.map(() => new Float64Array(0)),
  ).columns;

function tableOf(
  { columns, local }: PanelShape,
  datetime: Float64Array,
  values: readonly Float64Array[],
): Table {
  const clock: AnswerColumn[] = local
    ? [
        {
          name: "local",
          kind: "text",
          optional: false,
          codes: Uint32Array.from(datetime, (_, row) => row),
          dictionary: Array.from(datetime, local),
        },
      ]
    : [];
  return {
    length: datetime.length,
    columns: [
      { name: "Datetime", kind: "instant", optional: false, values: datetime },
      ...clock,
      ...columns.map(
        ({ name }, index): AnswerColumn => ({
          name,
          kind: "number",
          optional: true,
          values: values[index] as Float64Array,
        }),
      ),
    ],
  };
}
