// The statements of the contract of Markets, each with the test that holds it.

import { RECORD_STATEMENTS } from "./markets-data.ts";
import { PIPELINE_STATEMENTS } from "./markets-pipelines.ts";
import { ROUTE_STATEMENTS } from "./markets-routes.ts";
import type { Statement } from "./statement.ts";

/** All statements, in the order of their numbers. */
export const MARKETS: readonly Statement[] = [
  ...PIPELINE_STATEMENTS,
  ...RECORD_STATEMENTS,
  ...ROUTE_STATEMENTS,
];
