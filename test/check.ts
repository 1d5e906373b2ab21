// `npm run check`: what can be told of a change without running it, in seconds: tidy, types, lint.
// What lint can mend is written first.

import { runCommand, UsageError } from "../edge/local/command-line.ts";
import { conclude, openScratch, staticChecks } from "./support/checks.ts";
import { countsOfRun, vitest } from "./support/vitest-runs.ts";

await runCommand("npm run check", async () => {
  if (process.argv.length > 2) throw new UsageError("it takes no arguments");
  const reports = openScratch();
  const checked = await staticChecks({ repair: true });
  conclude([...checked, countsOfRun(await vitest(reports, ["test/tidy.test.ts"]))]);
});
