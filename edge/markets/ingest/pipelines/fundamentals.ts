// The agency's reports: weekly gas storage, weekly petroleum status, and the monthly short-term
// outlook. The outlook is our addition: curves are made of it where no market's prices are free.

import { addMonths, DAY, HOUR, MINUTE } from "../../../../shared/time.ts";
import type { Range } from "../../store/rows.ts";
import type { FetchedSeries } from "../gate.ts";
import type { FetchRequest, Pipeline } from "../pipeline.ts";
import type { Upstreams } from "../providers.ts";
import { gasStorageRelease, petroleumRelease } from "../releases.ts";
import { aboutCommodity } from "../topics.ts";
import { asReport, asSymbols, fetchAgency } from "./agency-series.ts";
import { gateOutlook, gatePetroleum, gateStorage } from "./fundamentals-gates.ts";
import { OUTLOOK, PETROLEUM, STORAGE } from "./fundamentals-series.ts";

const NEW_YORK = "America/New_York";
const LIBRARY = "fundamentals.agency";
const OUTLOOK_MONTHS_BACK = 24;
const OUTLOOK_DAYS_AHEAD = 26 * 31;

/** A weekly report is out at 10:30 in New York, in summer 14:30Z: milliseconds of a UTC day. */
const RELEASED = 14.5 * HOUR;

const AGENCY = {
  provider: "eia",
  libraries: [LIBRARY],
  topicsOf: aboutCommodity,
  timeZone: NEW_YORK,
  valueColumns: ["value"],
} satisfies Partial<Pipeline>;
const WEEKLY = {
  ...AGENCY,
  lookbackMs: 52 * 7 * DAY,
  // The newest report is of a Friday at most 13 days ago.
  freshness: { warningMs: 8 * DAY, errorMs: 14 * DAY },
  // Out five or six days after the Friday; a holiday moves it by a few days, never by a week.
  publishedWithinMs: 10 * DAY,
};
/** Half-hourly from a day before its time, then every ten minutes: at most 120 requests a day. */
const RELEASE = { everyMs: 10 * MINUTE, windowMs: 3 * HOUR };

/** Weekly working gas in underground storage, Bcf. */
export const gasStorage: Pipeline = {
  ...WEEKLY,
  job: "gas_storage",
  title: "Gas storage",
  owns: (symbol) => symbol === "gas_storage",
  // The week dated Friday comes out on the Thursday after.
  partitions: { unit: "week", first: "2010-01-01", lagMs: 6 * DAY + RELEASED, earlyMs: DAY },
  schedules: [
    { name: "gas_storage", cron: "35 10 * * 4", timeZone: NEW_YORK, aim: "latest" },
    { name: "gas_storage_repair", cron: "14,34,54 * * * *", timeZone: NEW_YORK, aim: "unfinished" },
  ],
  release: { ...RELEASE, expectedAt: gasStorageRelease },
  fetch: (upstreams, { window }) =>
    fetchAgency(upstreams, [STORAGE], window, (rows) =>
      asReport(rows, LIBRARY, "gas_storage", "fundamentals.gas_storage"),
    ),
  gate: gateStorage,
};

/** Weekly petroleum stocks and flows. */
export const petroleumStatus: Pipeline = {
  ...WEEKLY,
  job: "petroleum_status",
  title: "Petroleum status",
  owns: (symbol) => symbol === "petroleum_status",
  // The week dated Friday comes out on the Wednesday after.
  partitions: { unit: "week", first: "2004-04-09", lagMs: 5 * DAY + RELEASED, earlyMs: DAY },
  schedules: [
    { name: "petroleum_status", cron: "35 10 * * 3", timeZone: NEW_YORK, aim: "latest" },
    {
      name: "petroleum_status_repair",
      cron: "16,36,56 * * * *",
      timeZone: NEW_YORK,
      aim: "unfinished",
    },
  ],
  release: { ...RELEASE, expectedAt: petroleumRelease },
  fetch: (upstreams, { window }) =>
    fetchAgency(upstreams, PETROLEUM, window, (rows) =>
      asReport(rows, LIBRARY, "petroleum_status", "fundamentals.petroleum_status"),
    ),
  complete: isWholeReport,
  gate: gatePetroleum,
};

/** Stocks and refineries are two routes, and one may be out before the other. */
function isWholeReport(accepted: readonly FetchedSeries[], partition: Range): boolean {
  const expected = PETROLEUM.reduce((total, { series }) => total + series.length, 0);
  const inside = accepted.flatMap(({ rows }) =>
    rows.filter(({ datetime }) => datetime >= partition.from && datetime < partition.to),
  );
  return new Set(inside.map(({ instrumentId }) => instrumentId)).size === expected;
}

/** The agency's monthly price outlook. */
export const agencyForecast: Pipeline = {
  ...AGENCY,
  job: "agency_forecast",
  title: "Agency price outlook",
  owns: (symbol) => OUTLOOK.series.some(({ name }) => name === symbol),
  partitions: { unit: "month", first: "1997-01-01" },
  // It comes on a Tuesday early in the month, which one is the agency's to say.
  schedules: [
    { name: "agency_forecast", cron: "30 12 * * 1-5", timeZone: NEW_YORK, aim: "latest" },
    { name: "agency_forecast_repair", cron: "48 */3 * * *", timeZone: NEW_YORK, aim: "unfinished" },
  ],
  lookbackMs: OUTLOOK_MONTHS_BACK * 31 * DAY,
  lookaheadMs: OUTLOOK_DAYS_AHEAD * DAY,
  freshness: { warningMs: 45 * DAY, errorMs: 75 * DAY },
  // Each month is forecast for the first time more than a year before it begins.
  publishedWithinMs: 0,
  release: null,
  fetch: fetchOutlook,
  gate: gateOutlook,
};

function fetchOutlook(upstreams: Upstreams, { window }: FetchRequest) {
  // Whole months only: the path has a row at the start of each.
  const whole = { from: addMonths(window.from - 1, 1), to: window.to };
  return fetchAgency(upstreams, [OUTLOOK], whole, (rows) =>
    asSymbols(rows, LIBRARY, "fundamentals.agency_forecast"),
  );
}
