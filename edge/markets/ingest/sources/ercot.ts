// ERCOT: a window of valid time → prices of the settlement points, and load. With credentials from
// the public API, without them from the public document lists; the current day's load is on a
// display page. No store, no clock, no environment.
//
// Facts it relies on: documents say when they were posted, rows do not, so days that are final are
// read from the archive; a day's final load is posted at 05:50 of the next day and not before.

import { DAY, HOUR } from "../../../../shared/time.ts";
import type { OperatingDay } from "../../store/operating-day.ts";
import type { Range } from "../../store/rows.ts";
import { finding } from "../gate.ts";
import {
  type PriceLibrary,
  pointsAt,
  SETTLEMENT_POINT_TYPES,
  SETTLEMENT_POINTS,
} from "../settlement-points.ts";
import {
  type ErcotApi,
  type ErcotDocument,
  type FetchContext,
  fetchArchive,
  fetchRows,
} from "./ercot-api.ts";
import { recordsOfPage } from "./ercot-cdr.ts";
import { fetchCorrections } from "./ercot-corrections.ts";
import { dayOfLabel, daysOf, QUARTER } from "./ercot-hours.ts";
import { type ErcotSite, fetchDocuments, fetchPage } from "./ercot-mis.ts";
import {
  DAY_AHEAD_CORRECTIONS,
  DAY_AHEAD_PRICES,
  drift,
  type ErcotRecord,
  type Product,
  REALTIME_CORRECTIONS,
  REALTIME_PRICES,
  SYSTEM_LOAD,
  textOf,
} from "./ercot-products.ts";
import {
  type ErcotRows,
  hourInstants,
  type InstantOf,
  inside,
  type LoadRow,
  lastOf,
  loadRows,
  mergePrices,
  type PriceRow,
  pricesIn,
  quarterInstants,
} from "./ercot-rows.ts";
import { LeftOut } from "./left-out.ts";

/** The ways to ERCOT. */
export interface ErcotAccess {
  /** Null: nobody has credentials, and the public document lists serve. */
  api: ErcotApi | null;
  site: ErcotSite;
}

/** A window that ended this long ago is read from the archive. */
const FINAL_MS = 3 * DAY;
/** Documents are posted minutes after their interval; hours at most. */
const POSTED_LATE_MS = 3 * HOUR;
/** How long ERCOT keeps the display pages of a day. */
const PAGES_SHOWN_MS = 14 * DAY;

/** How prices of a market are asked for and read. */
interface Market {
  product: Product;
  corrections: Product;
  /** Filters of the row endpoint, one request for each. */
  filters: readonly Readonly<Record<string, string>>[];
  kept: (record: ErcotRecord) => boolean;
  instants: () => InstantOf;
  /** When the documents about a window are posted. */
  posted: (window: Range) => Range;
  /** Length of an interval that is over when its document is posted; 0 for a market ahead. */
  elapsedMs: number;
  stepMs: number;
  library: PriceLibrary;
}

const isPoint = (record: ErcotRecord) => SETTLEMENT_POINTS.has(textOf(record, "settlementPoint"));

const REALTIME: Market = {
  product: REALTIME_PRICES,
  corrections: REALTIME_CORRECTIONS,
  filters: SETTLEMENT_POINT_TYPES.map((settlementPointType) => ({ settlementPointType })),
  kept: (record) =>
    SETTLEMENT_POINTS.get(textOf(record, "settlementPoint")) ===
    textOf(record, "settlementPointType"),
  instants: quarterInstants,
  posted: ({ from, to }) => ({ from, to: to + POSTED_LATE_MS }),
  elapsedMs: QUARTER,
  stepMs: QUARTER,
  library: "power.lmp",
};

const DAY_AHEAD: Market = {
  product: DAY_AHEAD_PRICES,
  corrections: DAY_AHEAD_CORRECTIONS,
  // The report has no type to filter by; all points in one answer are cheaper than one by one.
  filters: [{}],
  kept: isPoint,
  instants: () => hourInstants(),
  // On the day before, in the afternoon.
  posted: ({ from, to }) => ({ from: from - DAY, to: to - DAY / 2 }),
  elapsedMs: 0,
  stepMs: HOUR,
  library: "power.dalmp",
};

type PriceSource = (
  access: ErcotAccess,
  context: FetchContext,
  window: Range,
) => Promise<ErcotRows<PriceRow>>;

/** 15-minute prices of the settlement points. */
export const fetchRealtimePrices: PriceSource = (access, context, window) =>
  fetchPrices(access, context, { market: REALTIME, window });

/** Hourly day-ahead prices of the settlement points. */
export const fetchDayAheadPrices: PriceSource = (access, context, window) =>
  fetchPrices(access, context, { market: DAY_AHEAD, window });

interface PriceQuery {
  market: Market;
  window: Range;
}

async function fetchPrices(
  { api, site }: ErcotAccess,
  context: FetchContext,
  query: PriceQuery,
): Promise<ErcotRows<PriceRow>> {
  const { market, window } = query;
  const { product, corrections, kept, instants, posted } = market;
  const { now } = context;
  const wanted = { product, window, posted: posted(window), kept };
  if (!api) {
    const listed = await pricesOfDocuments(await fetchDocuments(site, context, wanted), query, now);
    return { ...listed, isPartial: holesOf(listed.rows, query, context.now) > 0 };
  }
  const archived = isFinal(window, context.now)
    ? await pricesOfDocuments(await fetchArchive(api, context, wanted), query, now)
    : null;
  const priced = await completed(archived, query, { api, context });
  const corrected = { product: corrections, window, instantOf: instants(), priced };
  return fetchCorrections(api, context, corrected);
}

/**
 * The prices of the archive, with those of the row endpoint where the archive has none: it may not
 * go back that far, and documents may be posted late, or not be there.
 */
async function completed(
  archived: ErcotRows<PriceRow> | null,
  query: PriceQuery,
  { api, context }: { api: ErcotApi; context: FetchContext },
): Promise<ErcotRows<PriceRow>> {
  const holes = (rows: readonly PriceRow[]) => holesOf(rows, query, context.now);
  if (archived && holes(archived.rows) === 0) return archived;
  const sent = await pricesOfRows(api, context, query);
  if (archived) sent.leftOut.join(archived.leftOut);
  if (!archived || archived.rows.length === 0) return { ...sent, isPartial: holes(sent.rows) > 0 };
  const held = new Set(archived.rows.map(keyOf));
  const added = sent.rows.filter((row) => !held.has(keyOf(row)));
  const rows = inside([...archived.rows, ...added], query.window);
  const filled = finding("warning", "archive_incomplete", added.length, "filled from the rows");
  return {
    ...archived,
    rows,
    leftOut: sent.leftOut,
    isPartial: holes(rows) > 0,
    findings: added.length > 0 ? [filled] : [],
  };
}

const keyOf = ({ datetime, point }: PriceRow) => `${datetime} ${point}`;

/** How many prices a window lacks: of each point, for its intervals that have one by now. */
function holesOf(
  rows: readonly PriceRow[],
  { market: { library, stepMs, elapsedMs }, window }: PriceQuery,
  now: number,
): number {
  const to = elapsedMs > 0 ? Math.min(window.to, now) : window.to;
  const held = new Set(rows.map(keyOf));
  let holes = 0;
  for (let datetime = window.from; datetime + elapsedMs <= to; datetime += stepMs) {
    for (const point of pointsAt(library, datetime)) {
      if (!held.has(keyOf({ datetime, point, value: 0 }))) holes++;
    }
  }
  return holes;
}

async function pricesOfRows(
  api: ErcotApi,
  context: FetchContext,
  { market, window }: PriceQuery,
): Promise<ErcotRows<PriceRow>> {
  const records: ErcotRecord[] = [];
  const leftOut = new LeftOut();
  let firstUrl = "";
  for (const filters of market.filters) {
    const { product, kept } = market;
    const answer = await fetchRows(api, context, { product, window, filters, kept });
    records.push(...answer.records);
    leftOut.join(answer.leftOut);
    firstUrl ||= answer.sourceUrl;
  }
  const document = pricesIn(records, market.instants(), leftOut);
  return { ...mergePrices([document], window), sourceUrl: firstUrl, leftOut };
}

async function pricesOfDocuments(
  {
    documents,
    sourceUrl,
    leftOut,
  }: { documents: readonly ErcotDocument[]; sourceUrl: string; leftOut: LeftOut },
  { market, window }: PriceQuery,
  now: number,
): Promise<ErcotRows<PriceRow>> {
  const instantOf = market.instants();
  const dated = await leftOut.documents(documents, now, async ({ records, publishedAt }) => {
    if (market === DAY_AHEAD) assertOneDay(records);
    const { rows } = pricesIn(records, instantOf, leftOut);
    // In the repeated hour the lists date documents an hour early, before their own interval.
    const elapsed = rows.map(({ datetime }) => datetime + market.elapsedMs);
    const earliest = market.elapsedMs > 0 ? elapsed : [];
    return { rows, publishedAt: earliest.reduce((last, one) => Math.max(last, one), publishedAt) };
  });
  return { ...mergePrices(dated, window), sourceUrl, leftOut };
}

/** Hourly load: the final report of the days that have one, display pages of the others. */
export async function fetchSystemLoad(
  { api, site }: ErcotAccess,
  context: FetchContext,
  window: Range,
): Promise<ErcotRows<LoadRow>> {
  const reported = await reportedLoad({ api, site }, context, window);
  const rows = new Map(reported.rows.map((row) => [row.datetime, row]));
  const isReported = ({ from, to }: OperatingDay) =>
    reported.rows.some(({ datetime }) => datetime >= from && datetime < to);
  let shownPage: string | null = null;
  for (const day of daysOf(window)) {
    const hasPage = day.from <= context.now && context.now - day.to < PAGES_SHOWN_MS;
    if (!hasPage || isReported(day)) continue;
    const path = `content/cdr/html/${day.key.replaceAll("-", "")}_actual_loads_of_weather_zones.html`;
    const page = await fetchPage(site, context, path);
    if (page === null) continue;
    const records = recordsOfPage(page, reported.leftOut);
    assertDay(records, day);
    for (const row of loadRows(records, reported.leftOut)) rows.set(row.datetime, row);
    shownPage = `${site.shownAs}${path}`;
  }
  const all = inside([...rows.values()], window);
  const { leftOut } = reported;
  const isPartial =
    all.length < Math.floor((Math.min(window.to, context.now) - window.from) / HOUR);
  // A page does not say when each of its hours was posted.
  return shownPage
    ? { rows: all, sourceUrl: shownPage, leftOut, isPartial }
    : { ...reported, rows: all, isPartial };
}

async function reportedLoad(
  { api, site }: ErcotAccess,
  context: FetchContext,
  window: Range,
): Promise<ErcotRows<LoadRow>> {
  // A day's report is posted in the morning of the next.
  const posted = { from: window.from + DAY - 2 * HOUR, to: window.to + DAY };
  const query = { product: SYSTEM_LOAD, window, posted, kept: () => true };
  if (!api || isFinal(window, context.now)) {
    const { documents, sourceUrl, leftOut } = api
      ? await fetchArchive(api, context, query)
      : await fetchDocuments(site, context, query);
    const read = await leftOut.documents(documents, context.now, async (document) => ({
      publishedAt: document.publishedAt,
      rows: inside(loadRows(document.records, leftOut), window),
    }));
    const rows = new Map(read.flatMap((one) => one.rows.map((row) => [row.datetime, row])));
    const used = read.filter((one) => one.rows.length > 0);
    if (!api || used.length > 0) {
      return { rows: inside([...rows.values()], window), sourceUrl, leftOut, ...lastOf(used) };
    }
  }
  const { records, sourceUrl, leftOut } = await fetchRows(api, context, query);
  return { rows: inside(loadRows(records, leftOut), window), sourceUrl, leftOut };
}

const isFinal = (window: Range, now: number) => now - window.to >= FINAL_MS;

/** A day-ahead document is about one delivery date. */
function assertOneDay(records: readonly ErcotRecord[]) {
  const dates = new Set(labelsIn(records, "deliveryDate"));
  if (dates.size > 1) throw drift(`one document of ${dates.size} delivery dates`);
}

/** A display page is about the day it is named by. */
function assertDay(records: readonly ErcotRecord[], day: OperatingDay) {
  const strange = labelsIn(records, "operatingDay").find(
    (label) => dayOfLabel(label).key !== day.key,
  );
  if (strange) throw drift(`the page of ${day.key} holds ${strange}`);
}

/** The days that records name; a label that is none is left out with its record. */
const labelsIn = (records: readonly ErcotRecord[], field: string): string[] =>
  records.flatMap(({ [field]: label }) =>
    typeof label === "string" && /^(\d\d\/\d\d\/\d{4}|\d{4}-\d\d-\d\d)$/.test(label) ? [label] : [],
  );
