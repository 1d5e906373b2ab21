// `npm run bench [-- name …]`: runs one benchmark; the markets' without a name.

import { readdirSync } from "node:fs";
import { meant, runCommand, UsageError } from "../../edge/local/command-line.ts";

/** Files that are no benchmark of their own. */
const PARTS = [
  "main",
  "baseline",
  "duckdb-baseline",
  "far-server",
  "soak-samples",
  "soak-world",
  "vision-world",
  "worst-cost",
  "worst-inputs",
  "worst-pages",
  "worst-requests",
  "worst-target",
  "worst-workflows",
  "worst-world",
  "image-sets",
  "frame-suggestions",
  "plain-training",
  "training-cell",
  "training-cells",
  "training-process",
  "training-tables",
];
const NAMES = readdirSync(import.meta.dirname)
  .filter((file) => file.endsWith(".ts"))
  .map((file) => file.replace(/\.ts$/, ""))
  .filter((name) => !PARTS.includes(name));

await runCommand("npm run bench", async () => {
  const [name = "markets", ...rest] = process.argv.slice(2);
  if (!NAMES.includes(name))
    throw new UsageError(`there is no benchmark ${name}${meant(name, NAMES)}`);
  process.argv.splice(2, process.argv.length, ...rest);
  await import(`./${name}.ts`);
});
