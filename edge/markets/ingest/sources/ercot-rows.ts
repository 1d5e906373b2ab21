// ERCOT's records → rows at their instants, pure: labels become instants, rows that cannot be read
// or contradict each other are left out, and of several documents about one interval the last one
// holds.

import { iso } from "../../../../shared/time.ts";
import type { OperatingDay } from "../../store/operating-day.ts";
import type { Range } from "../../store/rows.ts";
import type { Finding } from "../gate.ts";
import { dayOfLabel, hourOfLabel, hourStart, intervalStart } from "./ercot-hours.ts";
import { type ErcotRecord, flagOf, LOAD_ZONES, numberOf, textOf } from "./ercot-products.ts";
import type { LeftOut } from "./left-out.ts";

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
  leftOut: LeftOut;
  /** Intervals are missing that are over, or that the market has cleared perhaps. */
  isPartial?: boolean;
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

/** The prices of one answer. */
export function pricesIn(
  records: readonly ErcotRecord[],
  instantOf: InstantOf,
  leftOut: LeftOut,
): PriceDocument {
  const rows = leftOut.rows(records, (record) => ({
    datetime: instantOf(record),
    point: textOf(record, "settlementPoint"),
    value: numberOf(record, "settlementPointPrice"),
  }));
  return {
    rows: leftOut.distinct(rows, {
      keyOf: ({ datetime, point }) => `${datetime} ${point}`,
      isAlike: (one, other) => one.value === other.value,
      named: ({ datetime, point }) => `${point} at ${iso(datetime)}`,
    }),
  };
}

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

/** The hours of load records. */
export function loadRows(records: readonly ErcotRecord[], leftOut: LeftOut): LoadRow[] {
  const instantOf = hourInstants("operatingDay");
  const rows = leftOut.rows(records, (record) => ({
    datetime: instantOf(record),
    total: numberOf(record, "total"),
    zones: LOAD_ZONES.map((zone) => numberOf(record, zone)),
  }));
  return leftOut.distinct(rows, {
    keyOf: ({ datetime }) => datetime,
    isAlike: (one, other) => one.total === other.total && `${one.zones}` === `${other.zones}`,
    named: ({ datetime }) => `the hour from ${iso(datetime)}`,
  });
}
