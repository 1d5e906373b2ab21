// Statements 1 to 74 of the contract of Markets: the service, its libraries and its schedules.

import type { Statement } from "./statement.ts";

const CONSOLE_CONTRACT = "test/console/contract.test.ts";
const CONSOLE_INGEST_ERCOT = "test/console/ingest-ercot.test.ts";
const CONSOLE_INGEST = "test/console/ingest.test.ts";
const CONSOLE_LONELY = "test/console/lonely.test.ts";
const CONSOLE_WEATHER_AND_BARS = "test/console/weather-and-bars.test.ts";
const INGEST_CONFORMANCE = "test/ingest/conformance.test.ts";
const INGEST_PARTITION = "test/ingest/partition.test.ts";
const INGEST_RUNS = "test/ingest/runs.test.ts";
const INGEST_SCHEDULE = "test/ingest/schedule.test.ts";
const INGEST_SPEC_TABLES = "test/ingest/spec-tables.test.ts";
const LOCAL_CONTAINER = "test/local/container.test.ts";
const LOCAL_STACK = "test/local/stack.long.test.ts";
const MARKETS_CLIENT = "test/markets/client.test.ts";
const MARKETS_CONTRACT = "test/markets/contract.test.ts";
const MARKETS_GRAPH = "test/markets/graph.test.ts";
const MARKETS_SPEC_PAIRS = "test/markets/spec-pairs.test.ts";
const MARKETS_TRAPS = "test/markets/traps.test.ts";
const SUPPORT_COMMON_ROUTES = "test/support/common-routes.ts";

/** Statements 1 to 74. */
export const PIPELINE_STATEMENTS: readonly Statement[] = [
  {
    number: 1,
    text: "scheduled pipelines ingest power, commodity and weather series",
    file: INGEST_SPEC_TABLES,
    test: "the pipelines fill the twelve libraries of the contract",
  },
  {
    number: 2,
    text: "a pipeline unit is fetch, quality gate, commit as a new vintage",
    file: INGEST_CONFORMANCE,
    test: "is fetched as rows of known libraries, unique, inside the window, and passes its gate",
  },
  {
    number: 3,
    text: "two times: Datetime is valid time, as_of is knowledge time",
    file: MARKETS_CONTRACT,
    test: "answers the latest state with null for NaN and a flag per row",
  },
  {
    number: 4,
    text: "as_of is when the service learned the value",
    file: MARKETS_TRAPS,
    test: "stamps at commit, whatever time the source claims, and rises strictly",
  },
  {
    number: 5,
    text: "the read API is read-only",
    file: MARKETS_SPEC_PAIRS,
    test: "%s answers OPTIONS with what it allows, and no write",
  },
  {
    number: 6,
    text: "the read API is the single read path; consumers never read the store",
    file: CONSOLE_LONELY,
    test: "shows everything but series, and says what is missing",
  },
  {
    number: 7,
    text: "every data endpoint takes an optional as_of",
    file: MARKETS_CLIENT,
    test: "names the served endpoints and their query parameters, neither more nor fewer",
    note: "As in the contract's endpoint table, /libraries, /symbols and /graph take no as_of: 422.",
  },
  {
    number: 8,
    text: "without as_of the latest committed vintage answers",
    file: MARKETS_CONTRACT,
    test: "answers the latest state with null for NaN and a flag per row",
  },
  {
    number: 9,
    text: "an as_of before the first vintage answers an empty series",
    file: MARKETS_CONTRACT,
    test: "answers [] for an as_of before the first vintage, and the latest for one in the future",
  },
  {
    number: 10,
    text: "data learned after as_of is never returned",
    file: MARKETS_CONTRACT,
    test: "never answers data learned after as_of",
  },
  {
    number: 11,
    text: "commits are content-idempotent: unchanged data writes no vintage",
    file: CONSOLE_INGEST,
    test: "writes nothing when the provider's data is unchanged",
  },
  {
    number: 12,
    text: "backfills are safe to repeat",
    file: CONSOLE_INGEST,
    test: "is safe to repeat",
  },
  {
    number: 13,
    text: "rows of a backfill carry vintage_reconstructed=true",
    file: CONSOLE_INGEST,
    test: "flags every row it writes, stamps it now, and moves nothing else",
  },
  {
    number: 14,
    text: "true point-in-time history accrues only going forward",
    file: "test/markets/late-rows.test.ts",
    test: "flags the look-back of a first commit, and not what it learns in time or ahead",
  },
  {
    number: 15,
    text: "the graph is served in its current state, without as_of",
    file: MARKETS_CLIENT,
    test: "names the served endpoints and their query parameters, neither more nor fewer",
  },
  {
    number: 16,
    text: "entities have first_seen and last_seen",
    file: CONSOLE_INGEST,
    test: "is filled by a run, and a later run only moves last_seen",
  },
  {
    number: 17,
    text: "the graph is optional: series work without it",
    file: MARKETS_GRAPH,
    test: "that %s gives 503 soon, and the series go on",
  },
  {
    number: 18,
    text: "a single worker process",
    file: LOCAL_STACK,
    test: "survives the kill of any single process during an ingest: nothing lost, doubled or half",
    note: "One workerd process serves the read API, the console and Vision.",
  },
  {
    number: 19,
    text: "published on port 8000 of the host",
    file: LOCAL_CONTAINER,
    test: "serves the operator console on 3000, inside and on the host",
    note: "npm start binds 127.0.0.1 unless VANTAGE_HOST says otherwise.",
  },
  {
    number: 20,
    text: "listens on port 8001 inside the container network",
    file: LOCAL_CONTAINER,
    test: "listens on 8001 inside and is published on 8000, as the spec says",
  },
  {
    number: 21,
    text: "a frontend container receives SERVICE_API_URL",
    file: LOCAL_CONTAINER,
    test: "listens on 8001 inside and is published on 8000, as the spec says",
    note: "compose.yaml names the value for a frontend that is added to it; it ships none.",
  },
  {
    number: 22,
    text: "the operator console is served on port 3000",
    file: LOCAL_CONTAINER,
    test: "serves the operator console on 3000, inside and on the host",
  },
  {
    number: 23,
    text: "the console is not part of the consumer interface",
    file: SUPPORT_COMMON_ROUTES,
    test: "refuses every guarded route without a valid credential, with 401 and nothing else",
  },
  {
    number: 24,
    text: "power.demand: hourly demand per balancing authority",
    file: INGEST_SPEC_TABLES,
    test: "library %s, symbol %s: %s a step of %s, %s",
  },
  {
    number: 25,
    text: "power.demand_forecast: day-ahead demand forecast per balancing authority",
    file: INGEST_SPEC_TABLES,
    test: "library %s, symbol %s: %s a step of %s, %s",
  },
  {
    number: 26,
    text: "power.generation: net generation per balancing authority",
    file: INGEST_SPEC_TABLES,
    test: "library %s, symbol %s: %s a step of %s, %s",
  },
  {
    number: 27,
    text: "power.interchange: interchange per balancing authority",
    file: INGEST_SPEC_TABLES,
    test: "library %s, symbol %s: %s a step of %s, %s",
  },
  {
    number: 28,
    text: "power.generation_by_fuel: net generation by fuel type",
    file: INGEST_SPEC_TABLES,
    test: "library %s, symbol %s: %s a step of %s, %s",
  },
  {
    number: 29,
    text: "power.lmp: real-time 15-minute settlement-point prices",
    file: INGEST_SPEC_TABLES,
    test: "library %s, symbol %s: %s a step of %s, %s",
  },
  {
    number: 30,
    text: "power.dalmp: day-ahead hourly settlement-point prices",
    file: INGEST_SPEC_TABLES,
    test: "library %s, symbol %s: %s a step of %s, %s",
  },
  {
    number: 31,
    text: "power.load: system-wide actual load",
    file: INGEST_SPEC_TABLES,
    test: "library %s, symbol %s: %s a step of %s, %s",
  },
  {
    number: 32,
    text: "prices.spot: spot prices",
    file: INGEST_SPEC_TABLES,
    test: "library %s, symbol %s: %s a step of %s, %s",
  },
  {
    number: 33,
    text: "prices.intraday: intraday bars (open, high, low, close, volume)",
    file: CONSOLE_WEATHER_AND_BARS,
    test: "come by hand only, with their prices and volumes",
  },
  {
    number: 34,
    text: "fundamentals.agency: weekly gas storage and petroleum status",
    file: INGEST_SPEC_TABLES,
    test: "library %s, symbol %s: %s a step of %s, %s",
    note: "It also holds the agency's monthly price forecast.",
  },
  {
    number: 35,
    text: "weather: heating and cooling degree days",
    file: INGEST_SPEC_TABLES,
    test: "library %s, symbol %s: %s a step of %s, %s",
  },
  {
    number: 36,
    text: "GET /libraries lists these libraries",
    file: INGEST_SPEC_TABLES,
    test: "the pipelines fill the twelve libraries of the contract",
  },
  {
    number: 37,
    text: "balancing-authority codes are lowercased",
    file: INGEST_CONFORMANCE,
    test: "is fetched as rows of known libraries, unique, inside the window, and passes its gate",
  },
  {
    number: 38,
    text: "settlement-point codes are lowercased",
    file: CONSOLE_INGEST_ERCOT,
    test: "of %s is committed, checked and served",
    note: "power.load has the symbol ercot, the code of the market operator.",
  },
  {
    number: 39,
    text: "__vintages sidecars exist and are hidden from /symbols",
    file: MARKETS_CONTRACT,
    test: "answers 404 for an unknown library, symbol or sidecar",
    note: "The vintage index is a table of the catalog, not a symbol.",
  },
  {
    number: 40,
    text: "every schedule runs by default from the start",
    file: CONSOLE_CONTRACT,
    test: "has every schedule on from the start",
  },
  {
    number: 41,
    text: "a tick takes the most recent partition at its scheduled time",
    file: INGEST_RUNS,
    test: "takes each partition that an outage missed once, and says what became of every instant",
  },
  {
    number: 42,
    text: "cron expressions are evaluated in their time zone, daylight saving included",
    file: INGEST_SCHEDULE,
    test: "fires once every real hour across the %s change",
  },
  {
    number: 43,
    text: "market-operator partitions are keyed by the Central operating day",
    file: INGEST_PARTITION,
    test: "of an operating day is 23, 24 or 25 hours long, and holds every instant in it",
  },
  {
    number: 44,
    text: "real-time prices and load target the current operating day",
    file: INGEST_SPEC_TABLES,
    test: "%s fires at %s in %s: the tick of %s takes %s",
  },
  {
    number: 45,
    text: "real-time prices and load are re-materialized hourly",
    file: INGEST_SPEC_TABLES,
    test: "%s fires at %s in %s: the tick of %s takes %s",
  },
  {
    number: 46,
    text: "day-ahead prices target the next operating day",
    file: INGEST_SPEC_TABLES,
    test: "%s fires at %s in %s: the tick of %s takes %s",
  },
  {
    number: 47,
    text: "the 14:00 Central tick fetches the day-ahead curve",
    file: INGEST_SPEC_TABLES,
    test: "%s fires at %s in %s: the tick of %s takes %s",
  },
  {
    number: 48,
    text: "a partition that is not in range is a skip reason, not a failed run",
    file: INGEST_RUNS,
    test: "skips a partition that is not in range, with the reason",
  },
  {
    number: 49,
    text: "other schedules take the latest available partition",
    file: INGEST_SPEC_TABLES,
    test: "%s fires at %s in %s: the tick of %s takes %s",
  },
  {
    number: 50,
    text: "intraday bars are unscheduled and materialized by hand",
    file: CONSOLE_WEATHER_AND_BARS,
    test: "come by hand only, with their prices and volumes",
  },
  {
    number: 51,
    text: "cron of grid region series and generation by fuel: 20 * * * *",
    file: INGEST_SPEC_TABLES,
    test: "%s fires at %s in %s: the tick of %s takes %s",
  },
  {
    number: 52,
    text: "cron of real-time prices: 25 * * * *",
    file: INGEST_SPEC_TABLES,
    test: "%s fires at %s in %s: the tick of %s takes %s",
  },
  {
    number: 53,
    text: "cron of system load: 35 * * * *",
    file: INGEST_SPEC_TABLES,
    test: "%s fires at %s in %s: the tick of %s takes %s",
  },
  {
    number: 54,
    text: "cron of day-ahead prices: 0 14 * * *",
    file: INGEST_SPEC_TABLES,
    test: "%s fires at %s in %s: the tick of %s takes %s",
  },
  {
    number: 55,
    text: "cron of spot prices: 30 9 * * 1-5",
    file: INGEST_SPEC_TABLES,
    test: "%s fires at %s in %s: the tick of %s takes %s",
  },
  {
    number: 56,
    text: "cron of gas storage: 35 10 * * 4",
    file: INGEST_SPEC_TABLES,
    test: "%s fires at %s in %s: the tick of %s takes %s",
  },
  {
    number: 57,
    text: "cron of petroleum status: 35 10 * * 3",
    file: INGEST_SPEC_TABLES,
    test: "%s fires at %s in %s: the tick of %s takes %s",
  },
  {
    number: 58,
    text: "cron of degree days: 0 12 6 * *",
    file: INGEST_SPEC_TABLES,
    test: "%s fires at %s in %s: the tick of %s takes %s",
  },
  {
    number: 59,
    text: "time zone of grid region series and generation by fuel: America/New_York",
    file: INGEST_SPEC_TABLES,
    test: "%s fires at %s in %s: the tick of %s takes %s",
  },
  {
    number: 60,
    text: "time zone of real-time prices: America/Chicago",
    file: INGEST_SPEC_TABLES,
    test: "%s fires at %s in %s: the tick of %s takes %s",
  },
  {
    number: 61,
    text: "time zone of system load: America/Chicago",
    file: INGEST_SPEC_TABLES,
    test: "%s fires at %s in %s: the tick of %s takes %s",
  },
  {
    number: 62,
    text: "time zone of day-ahead prices: America/Chicago",
    file: INGEST_SPEC_TABLES,
    test: "%s fires at %s in %s: the tick of %s takes %s",
  },
  {
    number: 63,
    text: "time zone of spot prices: America/New_York",
    file: INGEST_SPEC_TABLES,
    test: "%s fires at %s in %s: the tick of %s takes %s",
  },
  {
    number: 64,
    text: "time zone of gas storage: America/New_York",
    file: INGEST_SPEC_TABLES,
    test: "%s fires at %s in %s: the tick of %s takes %s",
  },
  {
    number: 65,
    text: "time zone of petroleum status: America/New_York",
    file: INGEST_SPEC_TABLES,
    test: "%s fires at %s in %s: the tick of %s takes %s",
  },
  {
    number: 66,
    text: "time zone of degree days: America/New_York",
    file: INGEST_SPEC_TABLES,
    test: "%s fires at %s in %s: the tick of %s takes %s",
  },
  {
    number: 67,
    text: "cadence of grid region series and generation by fuel: hourly",
    file: INGEST_SPEC_TABLES,
    test: "%s fires at %s in %s: the tick of %s takes %s",
  },
  {
    number: 68,
    text: "cadence of real-time prices: hourly, current operating day",
    file: INGEST_SPEC_TABLES,
    test: "%s fires at %s in %s: the tick of %s takes %s",
  },
  {
    number: 69,
    text: "cadence of system load: hourly, current operating day",
    file: INGEST_SPEC_TABLES,
    test: "%s fires at %s in %s: the tick of %s takes %s",
  },
  {
    number: 70,
    text: "cadence of day-ahead prices: daily, next operating day",
    file: INGEST_SPEC_TABLES,
    test: "%s fires at %s in %s: the tick of %s takes %s",
  },
  {
    number: 71,
    text: "cadence of spot prices: weekday mornings",
    file: INGEST_SPEC_TABLES,
    test: "%s fires at %s in %s: the tick of %s takes %s",
  },
  {
    number: 72,
    text: "cadence of gas storage: Thursday",
    file: INGEST_SPEC_TABLES,
    test: "%s fires at %s in %s: the tick of %s takes %s",
  },
  {
    number: 73,
    text: "cadence of petroleum status: Wednesday",
    file: INGEST_SPEC_TABLES,
    test: "%s fires at %s in %s: the tick of %s takes %s",
  },
  {
    number: 74,
    text: "cadence of degree days: 6th of each month",
    file: INGEST_SPEC_TABLES,
    test: "%s fires at %s in %s: the tick of %s takes %s",
  },
];
