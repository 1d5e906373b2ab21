// ERCOT: a window of valid time → prices of the settlement points, and load. With credentials from
// the public API, without them from the public document lists; the current day's load is on a
// display page. No store, no clock, no environment.
//
// Facts it relies on: documents say when they were posted, rows do not, so days that are final are
// read from the archive; a day's final load is posted at 05:50 of the next day and not before.

import { DAY, HOUR } from "../../../../shared/time.ts";
import type { OperatingDay } from "../../store/operating-day.ts";
import type { Range } from "../../store/rows.ts";
import { SETTLEMENT_POINT_TYPES, SETTLEMENT_POINTS } from "../settlement-points.ts";
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
  if (!api) {
    const wanted = { product, window, posted: posted(window), kept };
    return pricesOfDocuments(await fetchDocuments(site, context, wanted), query);
  }
  const archived = isFinal(window, context.now)
    ? pricesOfDocuments(
        await fetchArchive(api, context, { product, posted: posted(window), kept }),
        query,
      )
    : null;
  // The archive may not go back that far.
  const priced = archived?.rows.length ? archived : await pricesOfRows(api, context, query);
  const corrected = { product: corrections, window, instantOf: instants(), priced };
  return fetchCorrections(api, context, corrected);
}

async function pricesOfRows(
  api: ErcotApi,
  context: FetchContext,
  { market, window }: PriceQuery,
): Promise<ErcotRows<PriceRow>> {
  const records: ErcotRecord[] = [];
  let firstUrl = "";
  for (const filters of market.filters) {
    const { product, kept } = market;
    const answer = await fetchRows(api, context, { product, window, filters, kept });
    records.push(...answer.records);
    firstUrl ||= answer.sourceUrl;
  }
  const document = pricesIn(records, market.instants());
  return { ...mergePrices([document], window), sourceUrl: firstUrl };
}

function pricesOfDocuments(
  { documents, sourceUrl }: { documents: readonly ErcotDocument[]; sourceUrl: string },
  { market, window }: PriceQuery,
): ErcotRows<PriceRow> {
  const instantOf = market.instants();
  const dated = documents.map(({ records, publishedAt }) => {
    if (market === DAY_AHEAD) assertOneDay(records);
    const { rows } = pricesIn(records.filter(market.kept), instantOf);
    // In the repeated hour the lists date documents an hour early, before their own interval.
    const elapsed = rows.map(({ datetime }) => datetime + market.elapsedMs);
    const earliest = market.elapsedMs > 0 ? elapsed : [];
    return { rows, publishedAt: earliest.reduce((last, one) => Math.max(last, one), publishedAt) };
  });
  return { ...mergePrices(dated, window), sourceUrl };
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
    const records = recordsOfPage(page);
    assertDay(records, day);
    for (const row of loadRows(records)) rows.set(row.datetime, row);
    shownPage = `${site.shownAs}${path}`;
  }
  const all = inside([...rows.values()], window);
  // A page does not say when each of its hours was posted.
  return shownPage ? { rows: all, sourceUrl: shownPage } : { ...reported, rows: all };
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
    const { documents, sourceUrl } = api
      ? await fetchArchive(api, context, query)
      : await fetchDocuments(site, context, query);
    const rows = new Map<number, LoadRow>();
    for (const { records } of documents) {
      for (const row of loadRows(records)) rows.set(row.datetime, row);
    }
    const used = documents.filter(({ records }) => inside(loadRows(records), window).length > 0);
    if (!api || used.length > 0) {
      const publishedAt = lastOf(used);
      return { rows: inside([...rows.values()], window), sourceUrl, ...publishedAt };
    }
  }
  const { records, sourceUrl } = await fetchRows(api, context, query);
  return { rows: inside(loadRows(records), window), sourceUrl };
}

const isFinal = (window: Range, now: number) => now - window.to >= FINAL_MS;

/** A day-ahead document is about one delivery date. */
function assertOneDay(records: readonly ErcotRecord[]) {
  const dates = new Set(records.map((record) => textOf(record, "deliveryDate")));
  if (dates.size > 1) throw drift(`one document of ${dates.size} delivery dates`);
}

/** A display page is about the day it is named by. */
function assertDay(records: readonly ErcotRecord[], day: OperatingDay) {
  const other = records.map((record) => textOf(record, "operatingDay"));
  const strange = other.find((label) => dayOfLabel(label).key !== day.key);
  if (strange) throw drift(`the page of ${day.key} holds ${strange.slice(0, 20)}`);
}
