// Statements 126 to 167 of the contract of Markets: routes, access, errors and limits.

import type { Statement } from "./statement.ts";

const HTTP_KEYS = "test/http/keys.test.ts";
const INGEST_READ_BACK = "test/ingest/read-back.test.ts";
const MARKETS_ANSWERS = "test/markets/answers.test.ts";
const MARKETS_CLIENT = "test/markets/client.test.ts";
const MARKETS_CONTRACT = "test/markets/contract.test.ts";
const MARKETS_CURVE = "test/markets/curve.test.ts";
const MARKETS_DEFAULTS = "test/markets/defaults.test.ts";
const MARKETS_GRAPH = "test/markets/graph.test.ts";
const MARKETS_SPEC_PAIRS = "test/markets/spec-pairs.test.ts";

/** Statements 126 to 167. */
export const ROUTE_STATEMENTS: readonly Statement[] = [
  {
    number: 126,
    text: "endpoints have no path prefix",
    file: MARKETS_SPEC_PAIRS,
    test: "%s answers 200 in the shape of its records",
  },
  {
    number: 127,
    text: "all endpoints are GET",
    file: MARKETS_SPEC_PAIRS,
    test: "%s answers OPTIONS with what it allows, and no write",
    note: "HEAD answers as GET does, without a body.",
  },
  {
    number: 128,
    text: "the key rule is for data endpoints, not for /healthz",
    file: MARKETS_SPEC_PAIRS,
    test: "is open where a key is set, also to a wrong one",
  },
  {
    number: 129,
    text: "/healthz has no parameters and no errors",
    file: "test/markets/contract.test.ts",
    test: "passes over parameters that it does not know",
    note: "It answers 200 also where the store is silent, with the status degraded.",
  },
  {
    number: 130,
    text: "/libraries is an array of strings; 401",
    file: MARKETS_SPEC_PAIRS,
    test: "%s answers 200 in the shape of its records",
  },
  {
    number: 131,
    text: "/symbols requires library and answers an array of strings",
    file: MARKETS_CONTRACT,
    test: "list what the store holds",
  },
  {
    number: 132,
    text: "/symbols: 404 for an unknown library; 401",
    file: MARKETS_SPEC_PAIRS,
    test: "%s answers %i %s for %s",
  },
  {
    number: 133,
    text: "/series takes library, symbol, as_of, start, end",
    file: MARKETS_CLIENT,
    test: "names the served endpoints and their query parameters, neither more nor fewer",
    note: "It takes more parameters, listed in edge/markets/README.md.",
  },
  {
    number: 134,
    text: "/series is an array of records",
    file: MARKETS_SPEC_PAIRS,
    test: "%s answers 200 in the shape of its records",
  },
  {
    number: 135,
    text: "/series: 404 for an unknown library or symbol",
    file: MARKETS_SPEC_PAIRS,
    test: "%s answers %i %s for %s",
  },
  {
    number: 136,
    text: "/series: 400 for an unparseable datetime",
    file: MARKETS_SPEC_PAIRS,
    test: "%s answers %i %s for %s",
  },
  {
    number: 137,
    text: "/series: 413 for an unbounded read over the cap",
    file: MARKETS_SPEC_PAIRS,
    test: "%s answers %i %s for %s",
  },
  {
    number: 138,
    text: "/series: 401",
    file: MARKETS_SPEC_PAIRS,
    test: "%s answers 401 without the key, or with another",
  },
  {
    number: 139,
    text: "/curve takes commodity and as_of and answers an array",
    file: MARKETS_CURVE,
    test: "is what was known: no later revision, no curve before its last contract, [] before all",
  },
  {
    number: 140,
    text: "/curve: 404 for an unknown commodity; 401",
    file: MARKETS_SPEC_PAIRS,
    test: "%s answers %i %s for %s",
  },
  {
    number: 141,
    text: "/graph/entities takes an optional label",
    file: MARKETS_GRAPH,
    test: "lists the entities of one label, and none of a label that nothing has",
  },
  {
    number: 142,
    text: "/graph/entities: 503 without the graph; 401",
    file: MARKETS_SPEC_PAIRS,
    test: "%s answers %i %s for %s",
  },
  {
    number: 143,
    text: "/graph/related takes instrument_id and an optional depth",
    file: MARKETS_GRAPH,
    test: "reaches one hop further with each depth, in either direction, nearest first",
  },
  {
    number: 144,
    text: "/graph/related: 503 without the graph; 401",
    file: MARKETS_SPEC_PAIRS,
    test: "%s answers %i %s for %s",
  },
  {
    number: 145,
    text: "start, end or both make a read bounded and exempt from the cap",
    file: MARKETS_SPEC_PAIRS,
    test: "exempts a read bounded by %s from the cap",
  },
  {
    number: 146,
    text: "dates alone and datetimes with Z are accepted",
    file: MARKETS_SPEC_PAIRS,
    test: "takes start and end as %s, both inclusive",
  },
  {
    number: 147,
    text: "/healthz is cheap and never reads the series data",
    file: MARKETS_ANSWERS,
    test: "is no matter to the health, which reads the catalog of vintages and no object",
  },
  {
    number: 148,
    text: "graph endpoints take no as_of and are independent of the series",
    file: MARKETS_GRAPH,
    test: "answers while the series' database is down",
  },
  {
    number: 149,
    text: "response where a required parameter is missing",
    file: MARKETS_SPEC_PAIRS,
    test: "%s answers %i %s for %s",
    note: "The contract does not show it: 422 invalid_request.",
  },
  {
    number: 150,
    text: "authentication is opt-in by SERVICE_READ_API_KEY",
    file: MARKETS_DEFAULTS,
    test: "is open and grants no origin where neither a key nor origins are set",
  },
  {
    number: 151,
    text: "where it is set, all six data endpoints require X-API-Key",
    file: MARKETS_SPEC_PAIRS,
    test: "%s answers 401 without the key, or with another",
  },
  {
    number: 152,
    text: "the comparison is constant-time",
    file: HTTP_KEYS,
    test: "hashes both sides of the comparison whatever was sent: %j is %s",
  },
  {
    number: 153,
    text: "/healthz is always open",
    file: MARKETS_SPEC_PAIRS,
    test: "is open where a key is set, also to a wrong one",
  },
  {
    number: 154,
    text: "a missing or invalid key is 401",
    file: MARKETS_SPEC_PAIRS,
    test: "%s answers 401 without the key, or with another",
  },
  {
    number: 155,
    text: "without a key the API is open and warns at startup",
    file: MARKETS_CONTRACT,
    test: "lets the right key in, and warns once at start when none is set",
  },
  {
    number: 156,
    text: "SERVICE_CORS_ORIGINS is a comma-separated allow-list",
    file: MARKETS_CONTRACT,
    test: "lets listed origins GET, others not, and nobody when unset",
  },
  {
    number: 157,
    text: "only GET is allowed cross-origin",
    file: MARKETS_CONTRACT,
    test: "answers a preflight with GET only, even where a key is needed for the request itself",
  },
  {
    number: 158,
    text: "unset: no cross-origin access",
    file: MARKETS_CONTRACT,
    test: "lets listed origins GET, others not, and nobody when unset",
  },
  {
    number: 159,
    text: "400: a datetime of /series cannot be parsed",
    file: MARKETS_SPEC_PAIRS,
    test: "%s answers %i %s for %s",
  },
  {
    number: 160,
    text: "401: the key is required and missing or invalid",
    file: MARKETS_SPEC_PAIRS,
    test: "%s answers 401 without the key, or with another",
  },
  {
    number: 161,
    text: "404: unknown library, symbol, commodity",
    file: MARKETS_SPEC_PAIRS,
    test: "%s answers %i %s for %s",
  },
  {
    number: 162,
    text: "413: body with detail that states count, cap and advice",
    file: MARKETS_CONTRACT,
    test: "answers 413 for an unbounded read over the cap, stating count, cap and advice",
  },
  {
    number: 163,
    text: "503: the graph database is not running",
    file: MARKETS_SPEC_PAIRS,
    test: "%s answers %i %s for %s",
  },
  {
    number: 164,
    text: "the row cap is 500000 by default, SERVICE_SERIES_MAX_ROWS sets it",
    file: MARKETS_DEFAULTS,
    test: "caps an unbounded read at 500,000 rows, and at another number where one is set",
  },
  {
    number: 165,
    text: "the stale-symbol threshold is 3 days",
    file: INGEST_READ_BACK,
    test: "lists symbols more than three days behind the freshest, and passes",
  },
  {
    number: 166,
    text: "depth is 1 to 3",
    file: MARKETS_GRAPH,
    test: "refuses depth %j with 422",
    note: "The default is 1.",
  },
  {
    number: 167,
    text: "vintages are identified by as_of; the store version is in the metadata",
    file: "test/ingest/records.test.ts",
    test: "an execution that changes nothing records what is in force",
  },
];
