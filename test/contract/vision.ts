// The statements of Vision's contract, each with the test that holds it.

import type { Statement } from "./statement.ts";
import { DATA_STATEMENTS } from "./vision-data.ts";
import { RULE_STATEMENTS } from "./vision-rules.ts";
import { SERVICE_STATEMENTS } from "./vision-service.ts";
import { SERVING_STATEMENTS } from "./vision-serving.ts";

/** All statements, in the order of their numbers. */
export const VISION: readonly Statement[] = [
  ...SERVICE_STATEMENTS,
  ...DATA_STATEMENTS,
  ...SERVING_STATEMENTS,
  ...RULE_STATEMENTS,
];
