// Statements 75 to 125 of the contract of Markets: checks, backfills, credentials and records.

import type { Statement } from "./statement.ts";

const CONSOLE_INGEST_ERCOT = "test/console/ingest-ercot.test.ts";
const CONSOLE_INGEST = "test/console/ingest.test.ts";
const CONSOLE_PAGES = "test/console/pages.long.test.ts";
const INGEST_PROVIDERS = "test/ingest/providers.test.ts";
const INGEST_CONFORMANCE = "test/ingest/conformance.test.ts";
const INGEST_READ_BACK = "test/ingest/read-back.test.ts";
const INGEST_SPEC_TABLES = "test/ingest/spec-tables.test.ts";
const LOCAL_JOB = "test/local/job.test.ts";
const LOCAL_STACK = "test/local/stack.long.test.ts";
const MARKETS_ANSWERS = "test/markets/answers.test.ts";
const MARKETS_CONTRACT = "test/markets/contract.test.ts";
const MARKETS_CURVE = "test/markets/curve.test.ts";
const MARKETS_DEFAULTS = "test/markets/defaults.test.ts";
const MARKETS_GRAPH = "test/markets/graph.test.ts";
const MARKETS_SPEC_PAIRS = "test/markets/spec-pairs.test.ts";

/** Statements 75 to 125. */
export const RECORD_STATEMENTS: readonly Statement[] = [
  {
    number: 75,
    text: "each pipeline has a check after the write, from the store",
    file: INGEST_READ_BACK,
    test: "gives the committed rows to the gate of its pipeline a second time",
  },
  {
    number: 76,
    text: "the check runs the pipeline's own validation again",
    file: INGEST_READ_BACK,
    test: "gives the committed rows to the gate of its pipeline a second time",
  },
  {
    number: 77,
    text: "the freshness bound uses the newest as_of that was read back",
    file: INGEST_READ_BACK,
    test: "measures freshness by the newest knowledge time that it read, not by the clock",
  },
  {
    number: 78,
    text: "the freshness bound does not use the wall clock",
    file: INGEST_READ_BACK,
    test: "measures freshness by the newest knowledge time that it read, not by the clock",
  },
  {
    number: 79,
    text: "operating-day freshness ends with the partition: old backfills do not trip it",
    file: INGEST_READ_BACK,
    test: "measures freshness to the end of an old partition, which a backfill may fill late",
  },
  {
    number: 80,
    text: "power checks compute the newest valid time per instrument_id",
    file: "test/ingest/instruments.test.ts",
    test: "an instrument stays on the list long after its last row left the window",
  },
  {
    number: 81,
    text: "symbols more than 3 days behind are listed in stale_symbols",
    file: "test/ingest/instruments.test.ts",
    test: "an instrument stays on the list long after its last row left the window",
  },
  {
    number: 82,
    text: "a check with stale symbols still passes",
    file: INGEST_READ_BACK,
    test: "lists symbols more than three days behind the freshest, and passes",
  },
  {
    number: 83,
    text: "a failing check names its schema and the count of failures",
    file: INGEST_READ_BACK,
    test: "names its schema and counts its failures",
  },
  {
    number: 84,
    text: "or gives a reason where nothing was read back",
    file: INGEST_READ_BACK,
    test: "gives a reason where nothing was read back",
  },
  {
    number: 85,
    text: "a materialization records rows written",
    file: CONSOLE_INGEST,
    test: "records what it materialised, as the spec lists it",
  },
  {
    number: 86,
    text: "a materialization records instrument_ids",
    file: "test/ingest/records.test.ts",
    test: "an execution that changes nothing records what is in force",
  },
  {
    number: 87,
    text: "a materialization records the committed as_of",
    file: "test/ingest/records.test.ts",
    test: "an execution that changes nothing records what is in force",
  },
  {
    number: 88,
    text: "a materialization records the store version",
    file: "test/ingest/records.test.ts",
    test: "an execution that changes nothing records what is in force",
  },
  {
    number: 89,
    text: "a materialization records source_url",
    file: CONSOLE_INGEST,
    test: "records what it materialised, as the spec lists it",
  },
  {
    number: 90,
    text: "a materialization records vintage_reconstructed",
    file: CONSOLE_INGEST,
    test: "records what it materialised, as the spec lists it",
  },
  {
    number: 91,
    text: "the check of grid region series reads back its libraries",
    file: INGEST_SPEC_TABLES,
    test: "the check of %s reads back %j",
  },
  {
    number: 92,
    text: "the check of generation by fuel reads back its libraries",
    file: INGEST_SPEC_TABLES,
    test: "the check of %s reads back %j",
  },
  {
    number: 93,
    text: "the check of real-time prices reads back its libraries",
    file: INGEST_SPEC_TABLES,
    test: "the check of %s reads back %j",
  },
  {
    number: 94,
    text: "the check of day-ahead prices reads back its libraries",
    file: INGEST_SPEC_TABLES,
    test: "the check of %s reads back %j",
  },
  {
    number: 95,
    text: "the check of load reads back its libraries",
    file: INGEST_SPEC_TABLES,
    test: "the check of %s reads back %j",
  },
  {
    number: 96,
    text: "the check of gas storage and petroleum status reads back its libraries",
    file: INGEST_SPEC_TABLES,
    test: "the check of %s reads back %j",
  },
  {
    number: 97,
    text: "the check of spot prices reads back its libraries",
    file: INGEST_SPEC_TABLES,
    test: "the check of %s reads back %j",
  },
  {
    number: 98,
    text: "the check of degree days reads back its libraries",
    file: INGEST_SPEC_TABLES,
    test: "the check of %s reads back %j",
  },
  {
    number: 99,
    text: "a partition range can be rebuilt from the console",
    file: CONSOLE_PAGES,
    test: "backfills a range, with progress that moves without a reload",
  },
  {
    number: 100,
    text: "command line: job backfill <job> --partition-range <first>:<last>",
    file: LOCAL_JOB,
    test: "backfills in the spec's form, with a line for each partition",
  },
  {
    number: 101,
    text: "backfilled rows are flagged",
    file: CONSOLE_INGEST_ERCOT,
    test: "fills days of 23 and 25 hours from the archive, with its posting times",
  },
  {
    number: 102,
    text: "connectors read their credentials from the environment",
    file: INGEST_PROVIDERS,
    test: "is the real one when that is set, whatever else is",
  },
  {
    number: 103,
    text: "a missing credential fails the pipeline's runs at once",
    file: "test/console/credentials.test.ts",
    test: "%s fails at once, and names %s",
    note: "npm start uses its sandbox instead.",
  },
  {
    number: 104,
    text: "a wrong credential fails the pipeline's runs at once",
    file: CONSOLE_INGEST,
    test: "fails the run at once on HTTP %i %j",
  },
  {
    number: 105,
    text: "the store's credentials have no defaults",
    file: MARKETS_DEFAULTS,
    test: "has no default for %s, and names it",
  },
  {
    number: 106,
    text: "a missing store credential fails the whole stack",
    file: LOCAL_STACK,
    test: "starts over with --reset when the credentials are lost, as it advises",
  },
  {
    number: 107,
    text: "the connection string is never logged",
    file: CONSOLE_INGEST,
    test: "never reach a log or a stored row",
  },
  {
    number: 108,
    text: "Datetime is an ISO 8601 string",
    file: MARKETS_CONTRACT,
    test: "answers the latest state with null for NaN and a flag per row",
  },
  {
    number: 109,
    text: "instrument_id is a dotted identifier",
    file: INGEST_CONFORMANCE,
    test: "is fetched as rows of known libraries, unique, inside the window, and passes its gate",
  },
  {
    number: 110,
    text: "value is a number or null",
    file: MARKETS_SPEC_PAIRS,
    test: "%s answers 200 in the shape of its records",
  },
  {
    number: 111,
    text: "NaN is serialized as null",
    file: MARKETS_CONTRACT,
    test: "answers the latest state with null for NaN and a flag per row",
  },
  {
    number: 112,
    text: "other value columns depend on the library",
    file: INGEST_SPEC_TABLES,
    test: "library %s has the value columns %j",
  },
  {
    number: 113,
    text: "vintage_reconstructed is a boolean",
    file: MARKETS_SPEC_PAIRS,
    test: "%s answers 200 in the shape of its records",
  },
  {
    number: 114,
    text: "the flag is per row: one series may mix both",
    file: MARKETS_CONTRACT,
    test: "answers the latest state with null for NaN and a flag per row",
  },
  {
    number: 115,
    text: "false marks a true vintage",
    file: "test/markets/late-rows.test.ts",
    test: "flags the look-back of a first commit, and not what it learns in time or ahead",
  },
  {
    number: 116,
    text: "/curve is an array of records with the boolean",
    file: MARKETS_CURVE,
    test: "is of the newest trade date that has all contracts, and never mixes two",
  },
  {
    number: 117,
    text: "health: status is a string",
    file: MARKETS_SPEC_PAIRS,
    test: "%s answers 200 in the shape of its records",
  },
  {
    number: 118,
    text: "health: libraries is an array of strings",
    file: MARKETS_CONTRACT,
    test: "tells libraries and the newest knowledge time, from the vintage index",
  },
  {
    number: 119,
    text: "health: latest_as_of over all symbols, or null",
    file: MARKETS_CONTRACT,
    test: "has a null latest_as_of while nothing is committed",
  },
  {
    number: 120,
    text: "latest_as_of is computed from the sidecars only",
    file: MARKETS_ANSWERS,
    test: "is no matter to the health, which reads the catalog of vintages and no object",
  },
  {
    number: 121,
    text: "health: graph is the state of the cached connection",
    file: MARKETS_GRAPH,
    test: "is renewed behind a request at most every ten seconds, and by every answer",
    note: "connected, unavailable or not_configured.",
  },
  {
    number: 122,
    text: "a graph entity has its label",
    file: MARKETS_GRAPH,
    test: "lists entities by label and key, with what they are and when they were seen",
  },
  {
    number: 123,
    text: "a graph entity has its key",
    file: MARKETS_GRAPH,
    test: "lists entities by label and key, with what they are and when they were seen",
  },
  {
    number: 124,
    text: "a graph entity has its properties",
    file: MARKETS_GRAPH,
    test: "lists entities by label and key, with what they are and when they were seen",
  },
  {
    number: 125,
    text: "/graph/related answers connected entities and sibling instruments",
    file: MARKETS_GRAPH,
    test: "relates an instrument to its neighbours at depth 1, the default",
  },
];
