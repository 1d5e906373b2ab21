// `npm run golden`: writes every golden file anew. Each step reads what the one before it wrote.

import { runCommand, UsageError } from "../edge/local/command-line.ts";
import { conclude, openScratch } from "./support/checks.ts";
import { type Counts, countsOfRun, vitest } from "./support/vitest-runs.ts";

const STEPS: readonly (readonly string[])[] = [
  // Answers that the descriptions show, which the services read.
  ["test/markets/examples", "test/console/examples", "test/vision/examples", "--update"],
  [
    ...["test/markets/contract", "test/console/contract", "test/vision/auth/accounts"],
    ...["--testNamePattern=golden copy", "--update"],
  ],
  // Tables of READMEs are made of descriptions, which tools have rules for.
  ["test/vision/auth/roles", "test/local/costs", "test/http/documents", "test/http/bounds"],
];

await runCommand("npm run golden", async () => {
  if (process.argv.length > 2) throw new UsageError("it takes no arguments");
  const reports = openScratch();
  // Tests of tables write them then.
  process.env.GOLDEN = "1";
  const results: Counts[] = [];
  for (const step of STEPS) results.push(countsOfRun(await vitest(reports, step)));
  conclude(results);
});
