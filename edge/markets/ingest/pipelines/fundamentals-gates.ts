// The rules of the agency's reports. A week of storage is one report: if one of its series is
// missing, its identifier was changed, and nothing is taken.

import { addMonths, DAY } from "../../../../shared/time.ts";
import type { Row } from "../../store/rows.ts";
import {
  acceptSound,
  counted,
  type FetchedSeries,
  type Finding,
  finding,
  type GateContext,
  type GateReport,
  judgeStructure,
  nothingSent,
  offending,
  type Structure,
} from "../gate.ts";
import type { Rule } from "../rules.ts";
import { OUTLOOK, PETROLEUM, STORAGE } from "./fundamentals-series.ts";

const FRIDAY = 5;
const WEEK = 7 * DAY;
const STORAGE_BCF = { min: 500, max: 4_500 };
/** Change of the Lower 48's storage in one week, Bcf. */
const STORAGE_CHANGE = { min: -400, max: 150 };
/** Bcf by which a sum may differ from its parts, since each is rounded by itself. */
const REGIONS_APART_MAX = 2;
const SALT_APART_MAX = 1;
/** Beyond so many Bcf, the agency itself releases a correction out of turn. */
const SUMS_APART_MAX = 10;
const PETROLEUM_MOVE_MAX = 0.15;
const OUTLOOK_HORIZON = 3 * 366 * DAY;
const OUTLOOK_PRICES = { min: 0.5, max: 500 };

const weeklyReport = (name: string): Structure => ({
  stepMs: DAY,
  horizonMs: 0,
  isKnown: (symbol) => symbol === name,
});
const STORAGE_REPORT = weeklyReport("gas_storage");
const PETROLEUM_REPORT = weeklyReport("petroleum_status");
const OUTLOOK_PATH: Structure = {
  stepMs: DAY,
  horizonMs: OUTLOOK_HORIZON,
  isKnown: (symbol) => OUTLOOK.series.some(({ name }) => name === symbol),
};

const nameOf = ({ instrumentId }: Row) => instrumentId.slice(instrumentId.lastIndexOf(".") + 1);
const valueIn = ({ values }: Row) => values[0] ?? NaN;
const isFriday = ({ datetime }: Row) => new Date(datetime).getUTCDay() === FRIDAY;
const beyond = (value: number, { min, max }: { min: number; max: number }) =>
  value < min || value > max;

/**
 * Weekly working gas, Bcf: eight series a Friday or nothing, and sums that hold. A week that lacks
 * a row which could not be read is left out.
 */
export function gateStorage(fetched: readonly FetchedSeries[], context: GateContext): GateReport {
  const whole = context.hasLeftOut ? fetched.map(withoutBrokenWeeks) : fetched;
  const gap = context.hasLeftOut ? "warning" : "error";
  const { accepted, findings } = acceptSound(whole, (series) =>
    counted([
      ...judgeStructure(series, context, STORAGE_REPORT),
      ...judgeWeeks(series, gap),
      ...judgeStorage(series),
    ]),
  );
  return { accepted, findings: [...nothingSent(fetched), ...findings] };
}

/** More weeks than these without one of their series are a changed report. */
const BROKEN_WEEKS_MAX = 3;

function withoutBrokenWeeks(series: FetchedSeries): FetchedSeries {
  const broken = weeksOf(series.rows).filter((week) => !isWholeWeek(week));
  if (broken.length > BROKEN_WEEKS_MAX) return series;
  const days = new Set(broken.map(({ datetime }) => datetime));
  return { ...series, rows: series.rows.filter(({ datetime }) => !days.has(datetime)) };
}

/** One report: its Friday, and its values by series. */
interface Week {
  datetime: number;
  rows: Row[];
  values: ReadonlyMap<string, number>;
}

function weeksOf(rows: readonly Row[]): Week[] {
  const weeks = [...Map.groupBy(rows, ({ datetime }) => datetime)].map(([datetime, own]) => ({
    datetime,
    rows: own,
    values: new Map(own.map((row) => [nameOf(row), valueIn(row)])),
  }));
  return weeks.sort((left, right) => left.datetime - right.datetime);
}

/** Fridays, one after the other; `gap` is how bad it is when one is left out. */
function judgeWeeks({ rows, symbol }: FetchedSeries, gap: Finding["severity"]): Finding[] {
  const weeks = weeksOf(rows);
  const first = weeks[0]?.datetime ?? 0;
  const last = weeks.at(-1)?.datetime ?? 0;
  const missing = Math.floor((last - first) / WEEK) + 1 - weeks.length;
  const strays = rows.filter((row) => !isFriday(row));
  return [
    offending("error", "not_a_friday", strays, symbol),
    finding(gap, "missing_weeks", rows.length === 0 ? 0 : Math.max(0, missing), symbol),
  ];
}

function judgeStorage({ rows, symbol }: FetchedSeries): Finding[] {
  const weeks = weeksOf(rows);
  const rowsOf = (holds: (week: Week) => boolean) =>
    weeks.filter((week) => !holds(week)).flatMap((week) => week.rows);
  const apart = ({ values }: Week, whole: string, parts: readonly string[]) =>
    Math.abs(
      parts.reduce((sum, part) => sum + (values.get(part) ?? NaN), -(values.get(whole) ?? 0)),
    );
  const regions = (week: Week) => apart(week, "r48", ["r31", "r32", "r33", "r34", "r35"]);
  const salt = (week: Week) => apart(week, "r33", ["r33_salt", "r33_nonsalt"]);
  const whole = rows.filter((row) => nameOf(row) === "r48");
  const outOfBounds = whole.filter((row) => beyond(valueIn(row), STORAGE_BCF));
  return [
    offending("error", "missing_instruments", rowsOf(isWholeWeek), symbol),
    offending("error", "implausible_storage", outOfBounds, symbol),
    offending("warning", "storage_change", leaps(weeks), symbol),
    ...judgeSums("regions_apart", { weeks, apart: regions, allowed: REGIONS_APART_MAX }, symbol),
    ...judgeSums("salt_apart", { weeks, apart: salt, allowed: SALT_APART_MAX }, symbol),
  ];
}

const isWholeWeek = ({ values }: Week) =>
  STORAGE.series.every(({ name }) => !Number.isNaN(values.get(name) ?? NaN));

/** A sum that does not hold is a warning; one that is far off means that series were mixed up. */
function judgeSums(
  rule: Rule,
  sums: { weeks: readonly Week[]; apart: (week: Week) => number; allowed: number },
  symbol: string,
): Finding[] {
  const broken = (above: number, max: number) =>
    sums.weeks.filter((week) => sums.apart(week) > above && sums.apart(week) <= max);
  const rowsOf = (weeks: readonly Week[]) => weeks.flatMap(({ rows }) => rows);
  return [
    offending("warning", rule, rowsOf(broken(sums.allowed, SUMS_APART_MAX)), symbol),
    offending("error", rule, rowsOf(broken(SUMS_APART_MAX, Infinity)), symbol),
  ];
}

/** Weeks in which the Lower 48 moved further than it ever does. */
function leaps(weeks: readonly Week[]): Row[] {
  return weeks.flatMap((week, index) => {
    const before = weeks[index - 1];
    if (!before || week.datetime - before.datetime !== WEEK) return [];
    const change = (week.values.get("r48") ?? NaN) - (before.values.get("r48") ?? NaN);
    return beyond(change, STORAGE_CHANGE) ? week.rows.filter((row) => nameOf(row) === "r48") : [];
  });
}

const PETROLEUM_NAMES = PETROLEUM.flatMap(({ series }) => series.map(({ name }) => name));

/** Weekly stocks and flows: every series there, above zero, and without leaps. */
export function gatePetroleum(fetched: readonly FetchedSeries[], context: GateContext): GateReport {
  const { accepted, findings } = acceptSound(fetched, (series) => {
    const { rows, symbol } = series;
    const byName = Map.groupBy(rows, nameOf);
    const absent = PETROLEUM_NAMES.filter((name) => !byName.has(name));
    const jumps = [...byName.values()].flatMap((own) => jumpsOf(own));
    return counted([
      ...judgeStructure(series, context, PETROLEUM_REPORT),
      ...judgeWeeks(series, "warning"),
      finding("error", "missing_instruments", absent.length, absent.join(" ")),
      offending("warning", "missing_values", incomplete(rows), symbol),
      offending(
        "error",
        "not_positive",
        rows.filter((row) => valueIn(row) <= 0),
        symbol,
      ),
      offending("warning", "weekly_move", jumps, symbol),
    ]);
  });
  return { accepted, findings: [...nothingSent(fetched), ...findings] };
}

/** Rows of the weeks that lack one of their series. */
const incomplete = (rows: readonly Row[]): Row[] =>
  weeksOf(rows)
    .filter(({ values }) => PETROLEUM_NAMES.some((name) => Number.isNaN(values.get(name) ?? NaN)))
    .flatMap((week) => week.rows);

function jumpsOf(rows: readonly Row[]): Row[] {
  const rising = rows.toSorted((left, right) => left.datetime - right.datetime);
  return rising.filter((row, index) => {
    const before = rising[index - 1];
    if (!before || row.datetime - before.datetime !== WEEK) return false;
    return Math.abs(valueIn(row) / valueIn(before) - 1) > PETROLEUM_MOVE_MAX;
  });
}

/** The monthly path of a price: the start of each month, none left out. */
export function gateOutlook(fetched: readonly FetchedSeries[], context: GateContext): GateReport {
  const { accepted, findings } = acceptSound(fetched, (series) => {
    const { rows, symbol } = series;
    const strays = rows.filter(({ datetime }) => addMonths(datetime, 0) !== datetime);
    const strange = rows.filter((row) => beyond(valueIn(row), OUTLOOK_PRICES));
    return counted([
      ...judgeStructure(series, context, OUTLOOK_PATH),
      offending("error", "not_a_month", strays, symbol),
      offending("warning", "implausible_price", strange, symbol),
      finding(
        context.hasLeftOut ? "warning" : "error",
        "missing_months",
        missingMonths(rows),
        symbol,
      ),
    ]);
  });
  return { accepted, findings: [...nothingSent(fetched), ...findings] };
}

function missingMonths(rows: readonly Row[]): number {
  const months = new Set(rows.map(({ datetime }) => addMonths(datetime, 0)));
  let missing = 0;
  const last = Math.max(...months);
  for (let month = Math.min(...months); month < last; month = addMonths(month, 1)) {
    if (!months.has(month)) missing++;
  }
  return missing;
}
