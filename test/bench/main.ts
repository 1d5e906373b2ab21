// `npm run bench [-- name …]`: runs one benchmark; the markets' without a name.

import { readdirSync } from "node:fs";

const NAMES = readdirSync(import.meta.dirname)
  .filter((file) => file.endsWith(".ts"))
  .map((file) => file.replace(/\.ts$/, ""))
  .filter((name) => !["main", "baseline", "vision-world"].includes(name));

const [name = "markets", ...rest] = process.argv.slice(2);
if (!NAMES.includes(name)) {
  process.stderr.write(`no benchmark ${name}; there are: ${NAMES.join(", ")}\n`);
  process.exit(1);
}
process.argv.splice(2, process.argv.length, ...rest);
await import(`./${name}.ts`);
