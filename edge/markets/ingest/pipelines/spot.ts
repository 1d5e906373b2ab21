// Spot prices of fuels, one a trade date, and the futures that the agency carried until April
// 2024. It prints about five days at a time, revises, and takes back what it printed for holidays.

import { DAY } from "../../../../shared/time.ts";
import type { Row } from "../../store/rows.ts";
import { isTradingDay } from "../../store/trading-days.ts";
import {
  acceptSound,
  counted,
  type FetchedSeries,
  type Finding,
  type GateContext,
  type GateReport,
  judgeStructure,
  nothingSent,
  offending,
  type Structure,
} from "../gate.ts";
import type { FetchRequest, Pipeline } from "../pipeline.ts";
import type { Upstreams } from "../providers.ts";
import { aboutCommodity } from "../topics.ts";
import {
  type AgencyRoute,
  type AgencyRow,
  type AgencySeries,
  agencySeries,
  asSymbols,
  fetchAgency,
} from "./agency-series.ts";

/** A day that is not printed by then is a holiday of the agency. */
const UNPRINTED_MS = 16 * DAY;
const NEW_YORK = "America/New_York";
const LIBRARY = "prices.spot";
/** The last trade date of the agency's futures. */
const FUTURES_LAST = Date.UTC(2024, 3, 5);
/** A shorter window may hold nothing but a holiday. */
const EMPTY_MS_MAX = 10 * DAY;

const contracts = (name: (contract: number) => string, unit: string): AgencySeries[] =>
  [1, 2, 3, 4].map((contract) => agencySeries(name(contract), unit));

const GAS: AgencyRoute = {
  route: "natural-gas/pri/fut",
  frequency: "daily",
  facet: "series",
  series: [
    agencySeries("RNGWHHD", "$/mmbtu"),
    ...contracts((contract) => `RNGC${contract}`, "$/mmbtu"),
  ],
};
const PETROLEUM_SPOT: AgencyRoute = {
  route: "petroleum/pri/spt",
  frequency: "daily",
  facet: "series",
  series: [
    agencySeries("RWTC", "$/bbl"),
    agencySeries("RBRTE", "$/bbl"),
    agencySeries("EER_EPMRU_PF4_Y35NY_DPG", "$/gal"),
    agencySeries("EER_EPD2F_PF4_Y35NY_DPG", "$/gal"),
    agencySeries("EER_EPLLPA_PF4_Y44MB_DPG", "$/gal"),
  ],
};
const PETROLEUM_FUTURES: AgencyRoute = {
  route: "petroleum/pri/fut",
  frequency: "daily",
  facet: "series",
  series: [
    ...contracts((contract) => `RCLC${contract}`, "$/bbl"),
    ...contracts((contract) => `EER_EPMRR_PE${contract}_Y35NY_DPG`, "$/gal"),
    ...contracts((contract) => `EER_EPD2F_PE${contract}_Y35NY_DPG`, "$/gal"),
  ],
};
/** The agency's unit of each symbol. */
export const SPOT_UNITS: ReadonlyMap<string, string> = new Map(
  [GAS, PETROLEUM_SPOT, PETROLEUM_FUTURES].flatMap(({ series }) =>
    series.map(({ name, unit }) => [name, unit] as const),
  ),
);

/** Daily spot prices of fuels, and futures until April 2024. */
export const spotPrices: Pipeline = {
  job: "spot_prices",
  title: "Spot prices",
  provider: "eia",
  libraries: [LIBRARY],
  topicsOf: aboutCommodity,
  partitions: { unit: "weekday", first: "1986-01-02", offset: -1 },
  schedules: [
    { name: "spot_prices", cron: "30 9 * * 1-5", timeZone: NEW_YORK, aim: "latest" },
    { name: "spot_prices_repair", cron: "41 */3 * * *", timeZone: NEW_YORK, aim: "unfinished" },
  ],
  timeZone: NEW_YORK,
  valueColumns: ["value"],
  // What was printed for a holiday has been taken back after as long as a month.
  lookbackMs: 44 * DAY,
  freshness: { warningMs: 9 * DAY, errorMs: UNPRINTED_MS },
  // About five days are printed at a time; later than this none is, holidays included.
  publishedWithinMs: UNPRINTED_MS,
  release: null,
  fetch: fetchSpot,
  gate: gateSpot,
  mayBeEmpty: ({ from }, now) => {
    if (!isTradingDay(from)) return "the exchange is closed on this day";
    return now < from + UNPRINTED_MS ? null : "the agency printed no price for this day";
  },
};

function fetchSpot(upstreams: Upstreams, { window }: FetchRequest) {
  const routes = [GAS, PETROLEUM_SPOT];
  if (window.from <= FUTURES_LAST) routes.push(PETROLEUM_FUTURES);
  return fetchAgency(upstreams, routes, window, spotSeries);
}

const spotSeries = (rows: readonly AgencyRow[]): FetchedSeries[] => asSymbols(rows, LIBRARY);

/** Prices beyond these bounds are a warning only: oil has been sold for less than nothing. */
const BOUNDS: ReadonlyMap<string, { min: number; max: number }> = new Map([
  ["$/mmbtu", { min: 0.5, max: 100 }],
  ["$/bbl", { min: 0, max: 300 }],
  ["$/gal", { min: 0, max: 15 }],
]);
const PRICE_MIN = -100;

const DAILY: Structure = { stepMs: DAY, horizonMs: 0, isKnown: (symbol) => SPOT_UNITS.has(symbol) };

/** Daily prices; a short window without any is a holiday, or not printed yet. */
function gateSpot(fetched: readonly FetchedSeries[], context: GateContext): GateReport {
  const { accepted, findings } = acceptSound(fetched, (series) =>
    counted([...judgeStructure(series, context, DAILY), ...judgePrices(series)]),
  );
  const { from, to } = context.window;
  const mayBeEmpty = to - from <= EMPTY_MS_MAX;
  return { accepted, findings: [...(mayBeEmpty ? [] : nothingSent(fetched)), ...findings] };
}

function judgePrices({ rows, symbol }: FetchedSeries): Finding[] {
  const bounds = BOUNDS.get(SPOT_UNITS.get(symbol) ?? "") ?? { min: -Infinity, max: Infinity };
  const price = ({ values }: Row) => values[0] ?? NaN;
  const strange = rows.filter((row) => price(row) < bounds.min || price(row) > bounds.max);
  const impossible = rows.filter((row) => price(row) < PRICE_MIN);
  return [
    offending("error", "impossible_price", impossible, symbol),
    offending("warning", "implausible_price", strange, symbol),
    offending("warning", "weekend", rows.filter(isWeekend), symbol),
  ];
}

const isWeekend = ({ datetime }: Row) => [0, 6].includes(new Date(datetime).getUTCDay());
