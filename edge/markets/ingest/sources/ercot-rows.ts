// ERCOT's records → rows at their instants, pure: labels placed, duplicates refused, and of several
// documents about one interval the last.

import type { OperatingDay } from "../../store/operating-day.ts";
import type { Range } from "../../store/plan.ts";
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

export interface ErcotRows<Row> {
  rows: Row[];
  sourceUrl: string;
  /** Of the last document, where documents were read. */
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

export const lastOf = (documents: readonly { publishedAt: number }[]) =>
  documents.length === 0
    ? {}
    : { publishedAt: documents.reduce((last, one) => Math.max(last, one.publishedAt), 0) };

/** The instant of a record. */
export type Place = (record: ErcotRecord) => number;

/** A placer of records that looks each operating day up once. */
function labels(
  place: (day: OperatingDay, record: ErcotRecord) => number,
  field = "deliveryDate",
): Place {
  const days = new Map<string, OperatingDay>();
  return (record) => {
    const label = textOf(record, field);
    const day = days.get(label) ?? dayOfLabel(label);
    days.set(label, day);
    return place(day, record);
  };
}

/** Places records of a quarter of an hour. */
export const placeQuarters = (): Place =>
  labels((day, record) =>
    intervalStart(day, {
      hour: hourOfLabel(numberOf(record, "deliveryHour")),
      interval: numberOf(record, "deliveryInterval"),
      repeated: flagOf(record),
    }),
  );

/** Places records of an hour. */
export const placeHours = (field = "deliveryDate"): Place =>
  labels(
    (day, record) => hourStart(day, hourOfLabel(textOf(record, "hourEnding")), flagOf(record)),
    field,
  );

export interface Placed {
  rows: PriceRow[];
  publishedAt?: number;
}

/** The prices of one answer; two for one interval of a point are refused. */
export function placeOnce(records: readonly ErcotRecord[], place: Place): Placed {
  const seen = new Set<string>();
  const rows = records.map((record) => {
    const point = textOf(record, "settlementPoint");
    const datetime = place(record);
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
export function pricesOf(placed: readonly Placed[], window: Range) {
  const prices = new Map<string, PriceRow>();
  const used = placed
    .map((one) => ({ ...one, rows: inside(one.rows, window) }))
    .filter(({ rows }) => rows.length > 0);
  for (const { rows } of used) {
    for (const row of rows) prices.set(`${row.datetime} ${row.point}`, row);
  }
  const dated = used.flatMap(({ publishedAt }) => (publishedAt ? [{ publishedAt }] : []));
  return { rows: inside([...prices.values()], window), ...lastOf(dated) };
}

/** The hours of load records; two for one hour are refused. */
export function loadRows(records: readonly ErcotRecord[]): LoadRow[] {
  const seen = new Set<number>();
  const place = placeHours("operatingDay");
  return records.map((record) => {
    const datetime = place(record);
    if (seen.has(datetime)) throw drift(`two loads for one hour: ${shown(record)}`);
    seen.add(datetime);
    const zones = LOAD_ZONES.map((zone) => numberOf(record, zone));
    return { datetime, total: numberOf(record, "total"), zones };
  });
}
