// The rules that gates and checks judge by: each name once, and what it means in a clause, for the
// one who reads how often it was broken and where. Pure.

/** What things that break a rule are, one and several of them; or what is told without a count. */
type Clause = string | readonly [one: string, several: string];

const CLAUSES = {
  aging: "the newest data is older than usual",
  areas_missing: ["month without all of its areas", "months without all of their areas"],
  contradicting_rows: ["row with two values left out", "rows with two values left out"],
  corrections_unread: ["correction could not be read", "corrections could not be read"],
  archive_incomplete: ["row lacking in the archive", "rows lacking in the archive"],
  demand_balance: [
    "hour whose demand, generation and interchange do not balance",
    "hours whose demand, generation and interchange do not balance",
  ],
  demand_forecast_error: [
    "day far from its demand forecast",
    "days far from their demand forecasts",
  ],
  duplicate_key: ["row sent twice", "rows sent twice"],
  fewer_rows: ["row fewer than the day before", "rows fewer than the day before"],
  flat: ["stretch of one unchanging value", "stretches of one unchanging value"],
  from_the_future: ["row from the future", "rows from the future"],
  gap: ["value missing before the newest", "values missing before the newest"],
  holes: ["hour missing", "hours missing"],
  implausible_demand: ["implausible value of demand", "implausible values of demand"],
  implausible_generation: ["implausible value of generation", "implausible values of generation"],
  implausible_interchange: [
    "implausible value of interchange",
    "implausible values of interchange",
  ],
  implausible_price: ["implausible price", "implausible prices"],
  implausible_storage: ["implausible storage", "implausible storages"],
  impossible_load: ["impossible load", "impossible loads"],
  impossible_price: ["impossible price", "impossible prices"],
  incoherent_bar: ["bar outside its own range", "bars outside their own range"],
  incomplete_day: ["value of the day missing", "values of the day missing"],
  infinite: ["infinite value", "infinite values"],
  lagging: "data that lags behind the clock",
  local_outlier: ["value far from its neighbours", "values far from their neighbours"],
  mass_retraction: ["row would be withdrawn", "rows would be withdrawn"],
  missing_bars: ["bar missing", "bars missing"],
  missing_instruments: "incomplete reports",
  missing_months: ["month missing", "months missing"],
  missing_points: ["settlement point missing", "settlement points missing"],
  missing_series: ["series missing from the answer", "series missing from the answer"],
  missing_weeks: ["week missing", "weeks missing"],
  missing_values: ["value missing", "values missing"],
  negative_generation: ["strongly negative generation", "strongly negative generations"],
  negative_volume: ["negative volume", "negative volumes"],
  no_rows: "no rows at all",
  not_a_friday: ["row not dated to a Friday", "rows not dated to a Friday"],
  not_a_month: ["row not dated to a month", "rows not dated to a month"],
  not_positive: ["value that is not positive", "values that are not positive"],
  off_grid: ["row between two valid times", "rows between two valid times"],
  older_than_last: "the file is older than the last one",
  out_of_bounds: ["value out of bounds", "values out of bounds"],
  outside_window: ["row nobody asked for", "rows nobody asked for"],
  price_beyond_cap: ["price beyond the cap", "prices beyond the cap"],
  price_not_positive: ["price that is not positive", "prices that are not positive"],
  published_ahead: "a publication dated in the future",
  regions_apart: [
    "row of a week whose regions do not sum up",
    "rows of weeks whose regions do not sum up",
  ],
  salt_apart: [
    "row of a week whose salt and other storage do not sum up",
    "rows of weeks whose salt and other storage do not sum up",
  ],
  settled_months_changed: ["settled month changed", "settled months changed"],
  spike: ["spike", "spikes"],
  stale: "the newest data is stale",
  storage_change: ["unusual change of storage", "unusual changes of storage"],
  unexpected_unit: ["row in an unexpected unit", "rows in an unexpected unit"],
  unknown_fuel: ["unknown fuel", "unknown fuels"],
  unknown_symbol: ["unknown symbol", "unknown symbols"],
  unreadable_documents: ["document could not be read", "documents could not be read"],
  unreadable_rows: ["row could not be read", "rows could not be read"],
  weekend: ["price of a weekend", "prices of a weekend"],
  weekly_move: ["unusual move in a week", "unusual moves in a week"],
  zones_do_not_sum: ["row whose zones do not sum up", "rows whose zones do not sum up"],
  zones_round_badly: [
    "row whose zones sum up but for more than rounding",
    "rows whose zones sum up but for more than rounding",
  ],
} as const satisfies Record<string, Clause>;

/** The name of a rule. */
export type Rule = keyof typeof CLAUSES;

/** Rules that do not tell in which series they were broken, but how. */
const TELLING: ReadonlySet<string> = new Set<Rule>([
  "archive_incomplete",
  "contradicting_rows",
  "corrections_unread",
  "gap",
  "incomplete_day",
  "lagging",
  "missing_weeks",
  "fewer_rows",
  "missing_instruments",
  "no_rows",
  "older_than_last",
  "published_ahead",
  "settled_months_changed",
  "unexpected_unit",
  "unknown_fuel",
  "unreadable_documents",
  "unreadable_rows",
]);

/** What is told of a broken rule. */
interface Broken {
  rule: string;
  count: number;
  where: string;
}

const LISTED_MAX = 3;

/** What a rule means where so many things break it; a name that no rule has, in words. */
export function clauseOf(rule: string, count: number): string {
  const clauses: Readonly<Record<string, Clause>> = CLAUSES;
  const clause = clauses[rule] ?? rule.replaceAll("_", " ");
  if (typeof clause === "string") return clause;
  const [one, several] = clause;
  return `${count.toLocaleString("en-US")} ${count === 1 ? one : several}`;
}

/** What was found, a sentence a rule: `3 hours missing in CISO`. */
export function sentencesOf(findings: readonly Broken[]): string[] {
  const byRule = Map.groupBy(findings, ({ rule }) => rule);
  return [...byRule].map(([rule, broken]) => {
    const clause = clauseOf(
      rule,
      broken.reduce((total, { count }) => total + count, 0),
    );
    const told = [...new Set(broken.map(({ where }) => where))].filter(Boolean);
    if (told.length === 0) return clause;
    if (TELLING.has(rule)) return `${clause}: ${listed(told)}`;
    const symbols = [...new Set(told.flatMap((where) => where.split(" ")))];
    return `${clause} in ${listed(symbols.map((symbol) => symbol.toUpperCase()))}`;
  });
}

/** The first names, and how many more there are. */
export const listed = (names: readonly string[]): string =>
  names.length > LISTED_MAX
    ? `${names.slice(0, LISTED_MAX).join(", ")} and ${names.length - LISTED_MAX} more`
    : names.join(", ");
