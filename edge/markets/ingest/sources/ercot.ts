// ERCOT: a window of valid time → prices of the settlement points, and load. With credentials from
// the public API, without them from the public document lists; the current day's load is on a
// display page. No store, no clock, no environment.
//
// Facts it relies on: documents say when they were posted, rows do not, so settled days are read
// from the archive; a day's settled load is posted at 05:50 of the next day and not before.

import { DAY, HOUR } from "../../../../shared/time.ts";
import type { OperatingDay } from "../../store/operating-day.ts";
import type { Range } from "../../store/plan.ts";
import { SETTLEMENT_POINT_TYPES, SETTLEMENT_POINTS } from "../settlement-points.ts";
import {
  type Asking,
  type ErcotApi,
  type ErcotDocument,
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
  inside,
  type LoadRow,
  lastOf,
  loadRows,
  type Place,
  type PriceRow,
  placeHours,
  placeOnce,
  placeQuarters,
  pricesOf,
} from "./ercot-rows.ts";

export interface ErcotAccess {
  /** Null: nobody has credentials, and the public document lists serve. */
  api: ErcotApi | null;
  site: ErcotSite;
}

/** A window that ended this long ago is read from the archive. */
const SETTLED_MS = 3 * DAY;
/** Documents are posted minutes after their interval; hours at most. */
const POSTED_LATE_MS = 3 * HOUR;
/** The display pages of this many days are kept. */
const PAGES_KEPT_MS = 14 * DAY;

/** How prices of a market are asked for and read. */
interface Market {
  product: Product;
  corrections: Product;
  /** Filters of the row endpoint, one request for each. */
  filters: readonly Readonly<Record<string, string>>[];
  kept: (record: ErcotRecord) => boolean;
  place: () => Place;
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
  place: placeQuarters,
  posted: ({ from, to }) => ({ from, to: to + POSTED_LATE_MS }),
  elapsedMs: QUARTER,
};

const DAY_AHEAD: Market = {
  product: DAY_AHEAD_PRICES,
  corrections: DAY_AHEAD_CORRECTIONS,
  // The report has no type to filter by; all points in one answer are cheaper than one by one.
  filters: [{}],
  kept: isPoint,
  place: () => placeHours(),
  // On the day before, in the afternoon.
  posted: ({ from, to }) => ({ from: from - DAY, to: to - DAY / 2 }),
  elapsedMs: 0,
};

type PriceSource = (
  access: ErcotAccess,
  asking: Asking,
  window: Range,
) => Promise<ErcotRows<PriceRow>>;

/** 15-minute prices of the settlement points. */
export const fetchRealtimePrices: PriceSource = (access, asking, window) =>
  fetchPrices(access, asking, { market: REALTIME, window });

/** Hourly day-ahead prices of the settlement points. */
export const fetchDayAheadPrices: PriceSource = (access, asking, window) =>
  fetchPrices(access, asking, { market: DAY_AHEAD, window });

interface PriceQuery {
  market: Market;
  window: Range;
}

async function fetchPrices(
  { api, site }: ErcotAccess,
  asking: Asking,
  query: PriceQuery,
): Promise<ErcotRows<PriceRow>> {
  const { market, window } = query;
  const { product, corrections, kept, place, posted } = market;
  if (!api) {
    const wanted = { product, window, posted: posted(window), kept };
    return pricesOfDocuments(await fetchDocuments(site, asking, wanted), query);
  }
  const archived = isSettled(window, asking.now)
    ? pricesOfDocuments(
        await fetchArchive(api, asking, { product, posted: posted(window), kept }),
        query,
      )
    : null;
  // The archive may not go back that far.
  const found = archived?.rows.length ? archived : await pricesOfRows(api, asking, query);
  const wanted = { product: corrections, window, place: place() };
  return fetchCorrections(api, asking, { ...wanted, priced: found });
}

async function pricesOfRows(
  api: ErcotApi,
  asking: Asking,
  { market, window }: PriceQuery,
): Promise<ErcotRows<PriceRow>> {
  const records: ErcotRecord[] = [];
  let firstUrl = "";
  for (const filters of market.filters) {
    const { product, kept } = market;
    const answer = await fetchRows(api, asking, { product, window, filters, kept });
    records.push(...answer.records);
    firstUrl ||= answer.sourceUrl;
  }
  return { ...pricesOf([placeOnce(records, market.place())], window), sourceUrl: firstUrl };
}

function pricesOfDocuments(
  { documents, sourceUrl }: { documents: readonly ErcotDocument[]; sourceUrl: string },
  { market, window }: PriceQuery,
): ErcotRows<PriceRow> {
  const place = market.place();
  const placed = documents.map(({ records, publishedAt }) => {
    if (market === DAY_AHEAD) assertOneDay(records);
    const { rows } = placeOnce(records.filter(market.kept), place);
    // In the repeated hour the lists date documents an hour early, before their own interval.
    const elapsed = rows.map(({ datetime }) => datetime + market.elapsedMs);
    const least = market.elapsedMs > 0 ? elapsed : [];
    return { rows, publishedAt: least.reduce((last, one) => Math.max(last, one), publishedAt) };
  });
  return { ...pricesOf(placed, window), sourceUrl };
}

/** Hourly load: the settled report of the days that have one, display pages of the others. */
export async function fetchSystemLoad(
  { api, site }: ErcotAccess,
  asking: Asking,
  window: Range,
): Promise<ErcotRows<LoadRow>> {
  const reported = await reportedLoad({ api, site }, asking, window);
  const rows = new Map(reported.rows.map((row) => [row.datetime, row]));
  const isReported = ({ from, to }: OperatingDay) =>
    reported.rows.some(({ datetime }) => datetime >= from && datetime < to);
  let shownPage: string | null = null;
  for (const day of daysOf(window)) {
    const hasPage = day.from <= asking.now && asking.now - day.to < PAGES_KEPT_MS;
    if (!hasPage || isReported(day)) continue;
    const path = `content/cdr/html/${day.key.replaceAll("-", "")}_actual_loads_of_weather_zones.html`;
    const page = await fetchPage(site, asking, path);
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
  asking: Asking,
  window: Range,
): Promise<ErcotRows<LoadRow>> {
  // A day's report is posted in the morning of the next.
  const posted = { from: window.from + DAY - 2 * HOUR, to: window.to + DAY };
  const query = { product: SYSTEM_LOAD, window, posted, kept: () => true };
  if (!api || isSettled(window, asking.now)) {
    const { documents, sourceUrl } = api
      ? await fetchArchive(api, asking, query)
      : await fetchDocuments(site, asking, query);
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
  const { records, sourceUrl } = await fetchRows(api, asking, query);
  return { rows: inside(loadRows(records), window), sourceUrl };
}

const isSettled = (window: Range, now: number) => now - window.to >= SETTLED_MS;

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
