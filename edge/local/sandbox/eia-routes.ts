// The routes of EIA's API that the sandbox serves: what each lists over a span of periods, in order
// of period and key. A row is its period, its value, and what all rows of its key have in common.

import { addMonths, DAY, HOUR, iso } from "../../../shared/time.ts";
import { AUTHORITIES, type Authority, HISTORY_FROM } from "./demand.ts";
import { outlookAt, petroleumAt, priceAt, storageAt, type ValueAt } from "./fundamentals.ts";
import { fuelsAt, type RegionType, regionAt } from "./generation.ts";

/** The fields that rows of one key share: those before `value`, and the unit after it. */
export interface RowFields {
  names: Readonly<Record<string, string>>;
  unit: readonly [field: string, unit: string];
}

/** A row of a route. */
export interface RouteRow {
  period: string;
  common: RowFields;
  value: string | null;
}

/** The part of a route that a request asks for. */
export interface Span {
  /** Periods, both included, compared as texts. */
  start: string;
  end: string;
  /** Whether the request's facets leave a value in. */
  wants: (facet: string, value: string) => boolean;
  now: number;
}

/** A route of the API with its rows. */
export interface Route {
  frequency: "hourly" | "daily" | "weekly" | "monthly";
  dateFormat: string;
  facets: readonly string[];
  list: (span: Span) => RouteRow[];
}

/** Forecasts reach this far ahead. */
const AHEAD = 42 * HOUR;

const REGION_TYPES: Readonly<Record<RegionType, string>> = {
  D: "Demand",
  DF: "Day-ahead demand forecast",
  NG: "Net generation",
  TI: "Total interchange",
};
const FUEL_NAMES: Readonly<Record<string, string>> = {
  BAT: "Battery storage",
  COL: "Coal",
  GEO: "Geothermal",
  NG: "Natural gas",
  NUC: "Nuclear",
  OIL: "Petroleum",
  OTH: "Other",
  PS: "Pumped storage",
  SUN: "Solar",
  WAT: "Hydro",
  WND: "Wind",
};

/** What the rows of an authority share, one object for each type or fuel. */
function gridCommon(facet: string, texts: Readonly<Record<string, string>>) {
  const known = new Map<string, RowFields>();
  return ({ code }: Authority, kind: string): RowFields => {
    const key = `${code} ${kind}`;
    const found = known.get(key);
    if (found) return found;
    const common: RowFields = {
      names: {
        respondent: code,
        "respondent-name": `${code} (sandbox)`,
        [facet]: kind,
        "type-name": texts[kind] ?? kind,
      },
      unit: ["value-units", "megawatthours"],
    };
    known.set(key, common);
    return common;
  };
}
const regionCommon = gridCommon("type", REGION_TYPES);
const fuelCommon = gridCommon("fueltype", FUEL_NAMES);

/**
 * Calls back for every authority wanted in every hour of the span; a period names its hour's END.
 */
function eachHour(
  { start, end, wants, now }: Span,
  ahead: number,
  visit: (authority: Authority, datetime: number, period: string) => void,
) {
  const wanted = AUTHORITIES.filter(({ code }) => wants("respondent", code));
  const first = Math.max(Date.parse(`${start}:00Z`), HISTORY_FROM + HOUR);
  const last = Math.min(Date.parse(`${end}:00Z`), now + ahead);
  for (let ending = first; ending <= last; ending += HOUR) {
    const period = iso(ending).slice(0, 13);
    for (const authority of wanted) visit(authority, ending - HOUR, period);
  }
}

function listRegion(span: Span): RouteRow[] {
  const listed: RouteRow[] = [];
  const types = (Object.keys(REGION_TYPES) as RegionType[]).filter((type) =>
    span.wants("type", type),
  );
  eachHour(span, types.includes("DF") ? AHEAD : 0, (authority, datetime, period) => {
    for (const type of types) {
      const value = regionAt(authority, type, datetime, span.now);
      if (value === undefined) continue;
      const text = value === null ? null : String(value);
      listed.push({ period, common: regionCommon(authority, type), value: text });
    }
  });
  return listed;
}

function listFuels(span: Span): RouteRow[] {
  const listed: RouteRow[] = [];
  eachHour(span, 0, (authority, datetime, period) => {
    for (const [fuel, value] of fuelsAt(authority, datetime, span.now)) {
      if (!span.wants("fueltype", fuel)) continue;
      listed.push({ period, common: fuelCommon(authority, fuel), value: String(value) });
    }
  });
  return listed;
}

const GRID = { frequency: "hourly" as const, dateFormat: 'YYYY-MM-DD"T"HH24' };

/** The next period's start, and how it is written. */
interface Calendar {
  frequency: "daily" | "weekly" | "monthly";
  dateFormat: string;
  first: number;
  next: (datetime: number) => number;
  characters: number;
}

const daily: Calendar = {
  frequency: "daily",
  dateFormat: "YYYY-MM-DD",
  characters: 10,
  first: HISTORY_FROM,
  next: (day) => day + DAY,
};
const weekly: Calendar = {
  frequency: "weekly",
  dateFormat: "YYYY-MM-DD",
  characters: 10,
  // The first Friday.
  first: HISTORY_FROM + 5 * DAY,
  next: (friday) => friday + 7 * DAY,
};
const monthly: Calendar = {
  frequency: "monthly",
  dateFormat: "YYYY-MM",
  characters: 7,
  first: HISTORY_FROM,
  next: (month) => addMonths(month, 1),
};
/** No report reaches further ahead. */
const AHEAD_DAYS = 760;

/** A route of dated series; ids in alphabetical order, each with its unit. */
function dated(
  { first, next, characters, ...calendar }: Calendar,
  shown: ValueAt,
  series: Readonly<Record<string, string>>,
  facet: "series" | "seriesId" = "series",
): Route {
  const commons = Object.keys(series)
    .sort()
    .map((id) => {
      const description = `${id} (sandbox)`;
      const names =
        facet === "series"
          ? { series: id, "series-description": description }
          : { seriesId: id, seriesDescription: description };
      const unit = [facet === "series" ? "units" : "unit", series[id] ?? ""] as const;
      return { id, common: { names, unit } };
    });
  const list = ({ start, end, wants, now }: Span) => {
    const wanted = commons.filter(({ id }) => wants(facet, id));
    const listed: RouteRow[] = [];
    for (let at = first; at <= now + AHEAD_DAYS * DAY; at = next(at)) {
      const period = iso(at).slice(0, characters);
      if (period < start) continue;
      if (period > end) break;
      for (const { id, common } of wanted) {
        const value = shown(id, at, now);
        if (value !== undefined) listed.push({ period, common, value });
      }
    }
    return listed;
  };
  return { ...calendar, facets: [facet], list };
}

const units = (unit: string, ids: string) =>
  Object.fromEntries(ids.split(" ").map((id) => [id, unit]));

/** The routes that are served, by path. */
export const ROUTES: ReadonlyMap<string, Route> = new Map<string, Route>([
  ["electricity/rto/region-data", { ...GRID, facets: ["respondent", "type"], list: listRegion }],
  [
    "electricity/rto/fuel-type-data",
    { ...GRID, facets: ["respondent", "fueltype"], list: listFuels },
  ],
  [
    "natural-gas/stor/wkly",
    dated(
      weekly,
      storageAt,
      units(
        "BCF",
        "NW2_EPG0_SWO_R48_BCF NW2_EPG0_SWO_R31_BCF NW2_EPG0_SWO_R32_BCF NW2_EPG0_SWO_R33_BCF " +
          "NW2_EPG0_SSO_R33_BCF NW2_EPG0_SNO_R33_BCF NW2_EPG0_SWO_R34_BCF NW2_EPG0_SWO_R35_BCF",
      ),
    ),
  ],
  [
    "petroleum/sum/sndw",
    dated(weekly, petroleumAt, {
      ...units("MBBL", "WCESTUS1 WCSSTUS1 WCRSTUS1 W_EPC0_SAX_YCUOK_MBBL WGTSTUS1 WDISTUS1"),
      ...units("MBBL/D", "WCRFPUS2 WRPUPUS2"),
    }),
  ],
  ["petroleum/pnp/wiup", dated(weekly, petroleumAt, units("%", "WPULEUS3"))],
  [
    "natural-gas/pri/fut",
    dated(daily, priceAt, units("$/MMBTU", "RNGWHHD RNGC1 RNGC2 RNGC3 RNGC4")),
  ],
  [
    "petroleum/pri/spt",
    dated(daily, priceAt, {
      ...units("$/BBL", "RWTC RBRTE"),
      ...units("$/GAL", "EER_EPMRU_PF4_Y35NY_DPG EER_EPD2F_PF4_Y35NY_DPG EER_EPLLPA_PF4_Y44MB_DPG"),
    }),
  ],
  [
    "petroleum/pri/fut",
    dated(daily, priceAt, {
      ...units("$/BBL", "RCLC1 RCLC2 RCLC3 RCLC4"),
      ...units(
        "$/GAL",
        [1, 2, 3, 4]
          .flatMap((n) => [`EER_EPMRR_PE${n}_Y35NY_DPG`, `EER_EPD2F_PE${n}_Y35NY_DPG`])
          .join(" "),
      ),
    }),
  ],
  [
    "steo",
    dated(
      monthly,
      outlookAt,
      {
        ...units("dollars per million Btu", "NGHHUUS"),
        ...units("dollars per barrel", "WTIPUUS BREPUUS"),
      },
      "seriesId",
    ),
  ],
]);
