// Assembling forward curves, pure over a reader. A curve is of one moment: its futures are all of
// one trade date, its day-ahead prices all of one operating day, since a curve stitched from two
// days never existed. The reader decides what was known; everything here passes its `as_of` on.

import { Failure } from "../../shared/errors.ts";
import { addMonths, DAY, HOUR, iso, isoDay } from "../../shared/time.ts";
import type { CurveRecord } from "../../shared/wire/markets.ts";
import { operatingDay } from "./store/operating-day.ts";
import {
  crudeOilExpiry,
  deliveryMonth,
  type Expiry,
  naturalGasExpiry,
  refinedProductExpiry,
} from "./store/trading-days.ts";

/** One row of a series; instants in epoch milliseconds, NaN is the wire's null. */
export interface CurveRow {
  datetime: number;
  instrumentId: string;
  value: number;
  asOf: number;
  reconstructed: boolean;
}

/** Which rows a curve reads; instants in epoch milliseconds. */
export interface CurveWindow {
  /** Knowledge time; the latest vintage when undefined. */
  asOf: number | undefined;
  /** Valid-time bounds, both inclusive. */
  start?: number | undefined;
  end?: number | undefined;
}

/** What a curve needs of the store. */
export interface CurveReader {
  /** Rows in Datetime order; empty when the library has no such symbol. */
  rows(library: string, symbol: string, window: CurveWindow): Promise<CurveRow[]>;
  /** Whether the symbol was ever committed, at whatever `as_of`. */
  exists(library: string, symbol: string): Promise<boolean>;
  /** The newest valid time that holds a row at an `as_of`, or null when none does. */
  newestDatetime(library: string, symbol: string, asOf: number | undefined): Promise<number | null>;
}

interface Commodity {
  unit: CurveRecord["unit"];
  /** Symbols of the futures contracts, the nearest first. */
  contracts: readonly string[];
  expiry: Expiry;
  /** Symbol of the agency's monthly path. */
  forecast: string | null;
}

/** Why a curve has no records. */
export type EmptyReason = "never_ingested" | "not_known_then";

/** The fields that all records of one curve share. */
type CurveHeader = Pick<CurveRecord, "commodity" | "trade_date" | "unit" | "curve_source">;

const FUTURES = "prices.spot";
const FORECASTS = "fundamentals.agency";
const DAY_AHEAD = "power.dalmp";

const fourContracts = (symbol: (contract: number) => string) => [1, 2, 3, 4].map(symbol);
const COMMODITIES: ReadonlyMap<string, Commodity> = new Map([
  [
    "natural_gas",
    {
      unit: "$/MMBtu",
      contracts: fourContracts((contract) => `rngc${contract}`),
      expiry: naturalGasExpiry,
      forecast: "nghhuus",
    },
  ],
  [
    "crude_oil_wti",
    {
      unit: "$/bbl",
      contracts: fourContracts((contract) => `rclc${contract}`),
      expiry: crudeOilExpiry,
      forecast: "wtipuus",
    },
  ],
  [
    "gasoline_rbob",
    {
      unit: "$/gal",
      contracts: fourContracts((contract) => `eer_epmrr_pe${contract}_y35ny_dpg`),
      expiry: refinedProductExpiry,
      forecast: null,
    },
  ],
  [
    "heating_oil",
    {
      unit: "$/gal",
      contracts: fourContracts((contract) => `eer_epd2f_pe${contract}_y35ny_dpg`),
      expiry: refinedProductExpiry,
      forecast: null,
    },
  ],
]);

/** Windows in which a shared trade date is looked for, one after the other; then all history. */
const LOOKBACKS = [14 * DAY, 366 * DAY];
/** Longer than the agency forecasts ahead: so long before its newest month, its path begins. */
const FORECAST_REACH = 3 * 366 * DAY;

/**
 * The curve of a commodity, or of a hub or zone, as it was known at `asOf`; empty when nothing was.
 * Fails with `unknown_commodity`.
 */
export async function curve(
  reader: CurveReader,
  name: string,
  asOf: number | undefined,
): Promise<CurveRecord[]> {
  const commodity = COMMODITIES.get(name);
  if (!commodity) return dayAhead(reader, name, asOf);
  const [traded, forecast] = await Promise.all([
    futures(reader, name, commodity, asOf),
    agencyForecast(reader, name, commodity, asOf),
  ]);
  // The forecast is the curve only when it is of a later day than the market's prices.
  const tradeDate = traded[0]?.trade_date ?? "";
  const forecastDate = forecast[0]?.trade_date ?? "";
  return forecastDate > tradeDate ? forecast : traded;
}

/** All contracts of the newest trade date on which each of them has a price. */
async function futures(
  reader: CurveReader,
  commodity: string,
  { contracts, expiry, unit }: Commodity,
  asOf: number | undefined,
): Promise<CurveRecord[]> {
  const newest = await Promise.all(
    contracts.map((symbol) => reader.newestDatetime(FUTURES, symbol, asOf)),
  );
  const known = newest.filter((datetime) => datetime !== null);
  if (known.length < contracts.length) return [];
  const end = Math.min(...known);
  for (const start of [...LOOKBACKS.map((lookback) => end - lookback), undefined]) {
    const series = await Promise.all(
      contracts.map((symbol) => reader.rows(FUTURES, symbol, { asOf, start, end })),
    );
    const prices = newestShared(series);
    const tradeDate = prices[0]?.datetime;
    if (tradeDate === undefined) continue;
    const day = isoDay(tradeDate);
    const header: CurveHeader = { commodity, trade_date: day, unit, curve_source: "futures" };
    return prices.map((price, index) => {
      const tenor = index + 1;
      return record(header, price, { tenor, delivery: deliveryMonth(expiry, tradeDate, tenor) });
    });
  }
  return [];
}

/** One row a series, all of the newest Datetime at which every series has a value. */
function newestShared(series: readonly (readonly CurveRow[])[]): CurveRow[] {
  const byDatetime = series.map(
    (rows) =>
      new Map(rows.filter(({ value }) => !Number.isNaN(value)).map((row) => [row.datetime, row])),
  );
  const datetimes = [...(byDatetime[0]?.keys() ?? [])];
  const newest = datetimes.findLast((datetime) => byDatetime.every((rows) => rows.has(datetime)));
  return byDatetime.flatMap((rows) => rows.get(newest ?? NaN) ?? []);
}

/** The agency's path from the month on in which its newest knowledge was learned. */
async function agencyForecast(
  reader: CurveReader,
  commodity: string,
  { forecast, unit }: Commodity,
  asOf: number | undefined,
): Promise<CurveRecord[]> {
  if (forecast === null) return [];
  const end = await reader.newestDatetime(FORECASTS, forecast, asOf);
  if (end === null) return [];
  const start = end - FORECAST_REACH;
  const rows = await reader.rows(FORECASTS, forecast, { asOf, start, end });
  const learned = rows.reduce((newest, row) => Math.max(newest, row.asOf), 0);
  const first = addMonths(learned, 0);
  const source = "agency_forecast";
  const header: CurveHeader = {
    commodity,
    trade_date: isoDay(learned),
    unit,
    curve_source: source,
  };
  return rows
    .filter(({ datetime }) => datetime >= first)
    .map((row) => {
      const tenor = monthNumber(row.datetime) - monthNumber(first) + 1;
      return record(header, row, { tenor, delivery: row.datetime });
    });
}

/** The hours of the newest operating day that holds any. */
async function dayAhead(
  reader: CurveReader,
  hub: string,
  asOf: number | undefined,
): Promise<CurveRecord[]> {
  if (!(await reader.exists(DAY_AHEAD, hub))) throw unknownCommodity(hub);
  const newest = await reader.newestDatetime(DAY_AHEAD, hub, asOf);
  if (newest === null) return [];
  const { key, from, to } = operatingDay(newest);
  const rows = await reader.rows(DAY_AHEAD, hub, { asOf, start: from, end: to - 1 });
  const header: CurveHeader = {
    commodity: hub,
    trade_date: key,
    unit: "$/MWh",
    curve_source: "day_ahead",
  };
  return rows.map((row) => {
    const tenor = Math.floor((row.datetime - from) / HOUR) + 1;
    return record(header, row, { tenor, delivery: row.datetime });
  });
}

/** A record's position on its curve; `delivery` is the instant at which delivery begins. */
interface CurvePosition {
  tenor: number;
  delivery: number;
}

const record = (
  header: CurveHeader,
  row: CurveRow,
  { tenor, delivery }: CurvePosition,
): CurveRecord => ({
  ...header,
  tenor,
  contract_month: header.curve_source === "day_ahead" ? null : iso(delivery).slice(0, 7),
  Datetime: iso(delivery),
  price: Number.isNaN(row.value) ? null : row.value,
  instrument_id: row.instrumentId,
  as_of: iso(row.asOf),
  vintage_reconstructed: row.reconstructed,
});

const monthNumber = (instant: number) =>
  new Date(instant).getUTCFullYear() * 12 + new Date(instant).getUTCMonth();

/** Why the curve of a known commodity, hub or zone is empty at some `as_of`. */
export async function emptyReason(reader: CurveReader, name: string): Promise<EmptyReason> {
  const commodity = COMMODITIES.get(name);
  // A hub or zone is known by its series alone.
  if (!commodity) return "not_known_then";
  const series = commodity.contracts.map((symbol) => reader.exists(FUTURES, symbol));
  if (commodity.forecast) series.push(reader.exists(FORECASTS, commodity.forecast));
  return (await Promise.all(series)).includes(true) ? "not_known_then" : "never_ingested";
}

const unknownCommodity = (name: string) =>
  new Failure(
    "unknown_commodity",
    `unknown commodity ${JSON.stringify(name)}; known are ${[...COMMODITIES.keys()].join(", ")} ` +
      `and the hubs and zones that GET /symbols?library=${DAY_AHEAD} lists`,
  );
