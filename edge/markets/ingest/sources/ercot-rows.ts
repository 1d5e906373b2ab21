// ERCOT's records → rows at their instants, pure: labels become instants, duplicates are refused,
// and of several documents about one interval the last one holds.

import type { OperatingDay } from "../../store/operating-day.ts";
import type { Range } from "../../store/rows.ts";
import type { Finding } from "../gate.ts";
import { dayOfLabel, hourOfLabel, hourStart, intervalStart } from "./ercot-hours.ts";
import { drift, type ErcotRecord, flagOf, LOAD_ZONES, numberOf, textOf } from "./ercot-products.ts";

/** The price of a settlement point over an interval. */
export interface PriceRow {
  /** The interval's start. */
  datetime: number;
  /** `HB_NORTH`. */
  point: string;
  value: number;
}

/** System load over an hour, with the weather zones that sum to it. */
export interface LoadRow {
  datetime: number;
  total: number;
  zones: readonly number[];
}

/** Rows with their origin. */
export interface ErcotRows<Row> {
  rows: Row[];
  sourceUrl: string;
  /** When the last document was published, where documents were read. */
  publishedAt?: number;
  findings?: Finding[];
}

/** The rows inside a window, oldest first. */
export const inside = <R extends { datetime: number }>(
  rows: readonly R[],
  { from, to }: Range,
): R[] =>
  rows
    .filter(({ datetime }) => datetime >= from && datetime < to)
    .sort((left, right) => left.datetime - right.datetime);

/** When the last of some documents was published; nothing for no documents. */
export const lastOf = (documents: readonly { publishedAt: number }[]) =>
  documents.length === 0
    ? {}
    : { publishedAt: documents.reduce((last, one) => Math.max(last, one.publishedAt), 0) };

/** The instant, epoch milliseconds, that a record's labels name. */
export type InstantOf = (record: ErcotRecord) => number;

/** Reads records' labels; each operating day is looked up once. */
function labels(
  instantIn: (day: OperatingDay, record: ErcotRecord) => number,
  field = "deliveryDate",
): InstantOf {
  const days = new Map<string, OperatingDay>();
  return (record) => {
    const label = textOf(record, field);
    const day = days.get(label) ?? dayOfLabel(label);
    days.set(label, day);
    return instantIn(day, record);
  };
}

/** Reads the labels of quarters of an hour. */
export const quarterInstants = (): InstantOf =>
  labels((day, record) =>
    intervalStart(day, {
      hour: hourOfLabel(numberOf(record, "deliveryHour")),
      interval: numberOf(record, "deliveryInterval"),
      repeated: flagOf(record),
    }),
  );

/** Reads the labels of hours. */
export const hourInstants = (field = "deliveryDate"): InstantOf =>
  labels(
    (day, record) => hourStart(day, hourOfLabel(textOf(record, "hourEnding")), flagOf(record)),
    field,
  );

/** The prices of one document, or of one answer of the row endpoint. */
export interface PriceDocument {
  rows: PriceRow[];
  publishedAt?: number;
}

/** The prices of one answer; two for one interval of a point are refused. */
export function pricesIn(records: readonly ErcotRecord[], instantOf: InstantOf): PriceDocument {
  const seen = new Set<string>();
  const rows = records.map((record) => {
    const point = textOf(record, "settlementPoint");
    const datetime = instantOf(record);
    const key = `${datetime} ${point}`;
    if (seen.has(key)) throw drift(`two prices for one interval of ${point}: ${shown(record)}`);
    seen.add(key);
    return { datetime, point, value: numberOf(record, "settlementPointPrice") };
  });
  return { rows };
}

/** The record's labels, for the operator to look it up. */
const shown = ({ deliveryDate, operatingDay, deliveryHour, hourEnding, DSTFlag }: ErcotRecord) =>
  `${deliveryDate ?? operatingDay} ${deliveryHour ?? hourEnding} ${DSTFlag}`;

/** The prices inside a window; of two documents about one interval the later one holds. */
export function mergePrices(documents: readonly PriceDocument[], window: Range) {
  const prices = new Map<string, PriceRow>();
  const relevant = documents
    .map((one) => ({ ...one, rows: inside(one.rows, window) }))
    .filter(({ rows }) => rows.length > 0);
  for (const { rows } of relevant) {
    for (const row of rows) prices.set(`${row.datetime} ${row.point}`, row);
  }
  const dated = relevant.flatMap(({ publishedAt }) => (publishedAt ? [{ publishedAt }] : []));
  return { rows: inside([...prices.values()], window), ...lastOf(dated) };
}

/** The hours of load records; two for one hour are refused. */
export function loadRows(records: readonly ErcotRecord[]): LoadRow[] {
  const seen = new Set<number>();
  const instantOf = hourInstants("operatingDay");
  return records.map((record) => {
    const datetime = instantOf(record);
    if (seen.has(datetime)) throw drift(`two loads for one hour: ${shown(record)}`);
    seen.add(datetime);
    const zones = LOAD_ZONES.map((zone) => numberOf(record, zone));
    return { datetime, total: numberOf(record, "total"), zones };
  });
}
