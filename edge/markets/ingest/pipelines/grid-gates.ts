// The rules of the grid's libraries. Bounds come from published screening rules for EIA-930
// (Ruggles et al. 2020) and from recorded data. Zero is no floor of generation: plants that run on
// station power and pumped storage report less.

import { DAY, HOUR } from "../../../../shared/time.ts";
import type { Row } from "../../store/rows.ts";
import { BALANCING_AUTHORITIES } from "../authorities.ts";
import {
  acceptSound,
  counted,
  type FetchedSeries,
  type Finding,
  finding,
  type GateContext,
  type GateReport,
  holesOf,
  judgeStructure,
  nothingSent,
  offending,
  type Structure,
} from "../gate.ts";
import type { Rule } from "../rules.ts";
import { judgeRelations } from "./grid-relations.ts";

const DEMAND_MWH_MAX = 200_000;
const GENERATION_MWH_MAX = 200_000;
const INTERCHANGE_MWH_MAX = 100_000;
const IMPLAUSIBLE_SHARE_MAX = 0.2;
const HOLES_SHARE_MAX = 0.1;
/** Late hours are normal: so many holes never reject a series, however short the window. */
const HOLES_MIN = 6;
/** So long after the start of a day, every authority has reported it. */
const COMPLETE_AFTER = 36 * HOUR;
const ROWS_SHARE_MIN = 0.5;
const SPIKE_MEDIANS = 10;
const FLAT_HOURS = 3;
/** Demand is compared with the median of this many hours around it. */
const LOCAL_HOURS = 48;
const LOCAL_SPREADS = { up: 3.5, down: 2.5 };
const FORECAST_HORIZON = 4 * DAY;
const GENERATION_LOW = -500;
/** Lower bounds by fuel: pumped storage may be reported as water or as what charges it. */
const FUEL_LOWS: ReadonlyMap<string, number> = new Map(
  ["wat", "ps", "bat", "snb", "wnb", "oes", "ues"].map((fuel) => [fuel, -3_000]),
);
const FUELS: ReadonlySet<string> = new Set(
  "col ng nuc oil wat sun wnd oth unk geo bat ps snb wnb oes ues".split(" "),
);

const HOURLY: Structure = {
  stepMs: HOUR,
  horizonMs: 0,
  isKnown: (symbol) => BALANCING_AUTHORITIES.has(symbol.toUpperCase()),
};

interface Rules {
  /** How far ahead of now it may lie. */
  horizonMs: number;
  /** Whether a value can be true. */
  holds: (value: number) => boolean;
  /** The rule's name when a value cannot be true. */
  implausible: Rule;
  /** Further rules, for the series without its implausible values. */
  judge: (series: FetchedSeries) => Finding[];
}

const within = (max: number) => (value: number) => Math.abs(value) <= max;
const isDemand = (value: number) => value > 0 && value <= DEMAND_MWH_MAX;

const RULES: Readonly<Record<string, Rules>> = {
  "power.demand": {
    horizonMs: 0,
    holds: isDemand,
    implausible: "implausible_demand",
    judge: judgeDemand,
  },
  "power.demand_forecast": {
    horizonMs: FORECAST_HORIZON,
    holds: isDemand,
    implausible: "implausible_demand",
    judge: () => [],
  },
  "power.generation": {
    horizonMs: 0,
    holds: within(GENERATION_MWH_MAX),
    implausible: "implausible_generation",
    judge: (series) => judgeLows(series, () => GENERATION_LOW),
  },
  "power.interchange": {
    horizonMs: 0,
    holds: within(INTERCHANGE_MWH_MAX),
    implausible: "implausible_interchange",
    judge: () => [],
  },
  "power.generation_by_fuel": {
    horizonMs: 0,
    holds: within(GENERATION_MWH_MAX),
    implausible: "implausible_generation",
    judge: (series) => [
      ...judgeLows(series, (row) => FUEL_LOWS.get(fuelOf(row)) ?? GENERATION_LOW),
      ...judgeFuels(series),
    ],
  },
};
const NO_RULES: Rules = {
  horizonMs: 0,
  holds: () => true,
  implausible: "out_of_bounds",
  judge: () => [],
};
const rulesOf = ({ library }: FetchedSeries) => RULES[library] ?? NO_RULES;

/**
 * Hourly demand, its forecast, generation and interchange, MWh. Where the series of one authority
 * contradict each other, that is a warning.
 */
export function gateRegion(fetched: readonly FetchedSeries[], context: GateContext): GateReport {
  const { accepted, findings } = gateHourly(fetched, context);
  return { accepted, findings: [...findings, ...counted(judgeRelations(accepted))] };
}

/**
 * Hourly series, MWh. Each is judged by itself and left out when it has an error. An implausible
 * value becomes null and is counted: authorities report one now and then, and a series without it
 * is worth more than none. A fuel that is not known yet is accepted with a warning.
 */
export function gateHourly(fetched: readonly FetchedSeries[], context: GateContext): GateReport {
  const { accepted, findings } = acceptSound(fetched, (series) => {
    const { horizonMs, judge } = rulesOf(series);
    return counted([
      ...judgeStructure(series, context, { ...HOURLY, horizonMs }),
      ...judgePlausible(series),
      ...judgeHoles(series),
      ...judge(plausible(series)),
    ]);
  });
  return {
    accepted: accepted.map(plausible),
    findings: [...nothingSent(fetched), ...findings, ...counted(judgeCounts(fetched, context))],
  };
}

/** Libraries whose newest complete day has less than half the rows of the day before it. */
function judgeCounts(fetched: readonly FetchedSeries[], { window, now }: GateContext): Finding[] {
  const day = Math.floor((Math.min(now, window.to) - COMPLETE_AFTER) / DAY) * DAY;
  if (day - DAY < window.from) return [];
  const libraries = [...Map.groupBy(fetched, ({ library }) => library)];
  return libraries.map(([library, series]) => {
    const rowsOn = (from: number) =>
      series.reduce(
        (total, { rows }) =>
          total + rows.filter(({ datetime }) => datetime >= from && datetime < from + DAY).length,
        0,
      );
    const [newest, before] = [rowsOn(day), rowsOn(day - DAY)];
    const lost = newest < before * ROWS_SHARE_MIN ? before - newest : 0;
    return finding("warning", "fewer_rows", lost, library);
  });
}

const fuelOf = ({ instrumentId }: Row) => instrumentId.slice(instrumentId.lastIndexOf(".") + 1);

function judgeFuels({ rows, symbol }: FetchedSeries): Finding[] {
  const fuels = new Set(rows.map(fuelOf));
  const strange = [...fuels].filter((fuel) => !FUELS.has(fuel));
  return [finding("warning", "unknown_fuel", strange.length, `${symbol} ${strange.join(" ")}`)];
}

const valueIn = ({ values }: Row) => values[0] ?? NaN;

const isPlausible = ({ values }: Row, { holds }: Rules) =>
  values.every((value) => Number.isNaN(value) || holds(value));

function judgePlausible(series: FetchedSeries): Finding[] {
  const { rows, symbol } = series;
  const rules = rulesOf(series);
  const strange = rows.filter((row) => !isPlausible(row, rules));
  const tooMany = strange.length > rows.length * IMPLAUSIBLE_SHARE_MAX;
  return [offending(tooMany ? "error" : "warning", rules.implausible, strange, symbol)];
}

/** The series with null where a value cannot be true; its rows are the same where all can. */
function plausible(series: FetchedSeries): FetchedSeries {
  const rules = rulesOf(series);
  if (series.rows.every((row) => isPlausible(row, rules))) return series;
  const blanked = (row: Row) =>
    isPlausible(row, rules)
      ? row
      : { ...row, values: row.values.map((value) => (rules.holds(value) ? value : NaN)) };
  return { ...series, rows: series.rows.map(blanked) };
}

function judgeLows({ rows, symbol }: FetchedSeries, lowOf: (row: Row) => number): Finding[] {
  const low = rows.filter((row) => valueIn(row) < lowOf(row));
  return [offending("warning", "negative_generation", low, symbol)];
}

/** Missing hours inside a series, instrument by instrument. */
function judgeHoles({ rows, symbol }: FetchedSeries): Finding[] {
  const instruments = [...Map.groupBy(rows, ({ instrumentId }) => instrumentId).values()];
  const holes = instruments.reduce((total, own) => total + holesOf(own), 0);
  const holesMax = Math.max(HOLES_MIN, (rows.length + holes) * HOLES_SHARE_MAX);
  return [finding(holes > holesMax ? "error" : "warning", "holes", holes, symbol)];
}

function judgeDemand({ rows, symbol }: FetchedSeries): Finding[] {
  return [
    finding("warning", "spike", spikesOf(rows), symbol),
    finding("warning", "flat", flatStretchesOf(rows), symbol),
    offending("warning", "local_outlier", localOutliers(rows), symbol),
  ];
}

const ascending = (left: number, right: number) => left - right;

function spikesOf(rows: readonly Row[]): number {
  const values = rows.map(valueIn).filter((value) => !Number.isNaN(value));
  const median = values.toSorted(ascending)[values.length >> 1] ?? 0;
  return values.filter((value) => value > median * SPIKE_MEDIANS).length;
}

/** Stretches of three identical hours or more. */
function flatStretchesOf(rows: readonly Row[]): number {
  let stretches = 0;
  let length = 1;
  for (let index = 1; index < rows.length; index++) {
    length = rows[index]?.values[0] === rows[index - 1]?.values[0] ? length + 1 : 1;
    if (length === FLAT_HOURS) stretches++;
  }
  return stretches;
}

/**
 * Hours far from the median of the two days around them, in units of how far hours usually are: the
 * middle half of all such distances. Needs a few days to say anything.
 */
function localOutliers(rows: readonly Row[]): Row[] {
  const known = rows.filter((row) => !Number.isNaN(valueIn(row)));
  if (known.length < 2 * LOCAL_HOURS) return [];
  const medians = movingMedians(known.map(valueIn), LOCAL_HOURS);
  const distances = known.map((row, index) => valueIn(row) - (medians[index] ?? 0));
  const ranked = distances.toSorted(ascending);
  const quarter = ranked.length >> 2;
  const spread = (ranked[3 * quarter] ?? 0) - (ranked[quarter] ?? 0);
  // A flat series has no spread, and every hour of it would be far from its median.
  if (spread === 0) return [];
  const { up, down } = LOCAL_SPREADS;
  return known.filter((_, index) => {
    const distance = (distances[index] ?? 0) / spread;
    return distance > up || distance < -down;
  });
}

/** The median of the `width` values around each, fewer at the ends of the list. */
function movingMedians(values: readonly number[], width: number): number[] {
  const half = width >> 1;
  const sorted = values.slice(0, half).sort(ascending);
  return values.map((_, index) => {
    const entering = values[index + half];
    const leaving = values[index - half - 1];
    if (entering !== undefined) sorted.splice(positionOf(sorted, entering), 0, entering);
    if (leaving !== undefined) sorted.splice(positionOf(sorted, leaving), 1);
    return sorted[sorted.length >> 1] ?? NaN;
  });
}

/** The position of a value in a rising list, or the one at which it would be inserted. */
function positionOf(sorted: readonly number[], value: number): number {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] ?? 0) < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
