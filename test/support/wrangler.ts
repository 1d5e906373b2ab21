// Stands in for the wrangler executable: tells the simulated account what it would have uploaded.
// The real one takes the same arguments in a dry run (test/local/deploy.long.test.ts).

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { ROOT } from "../../edge/local/state.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    env: { type: "string" },
    config: { type: "string", default: "wrangler.toml" },
    var: { type: "string", multiple: true, default: [] },
    domain: { type: "string" },
    "secrets-file": { type: "string" },
  },
});
const config = readFileSync(join(ROOT, values.config), "utf8");
// Without that setting, wrangler would delete variables that it is not given.
if (positionals[0] !== "deploy" || !/^keep_vars = true$/m.test(config)) process.exit(2);

/** The texts of a table of the service; wrangler itself takes seconds to be loaded. */
function tableOf(name: string): Record<string, string> {
  const [, table = ""] = config.split(`\n[env.${values.env}.${name}]\n`);
  const lines = table.split(/\n\n|\n\[/)[0] ?? "";
  const entries = [...lines.matchAll(/^(\w+) = "(.*)"$/gm)];
  return Object.fromEntries(entries.map(([, key = "", value = ""]) => [key, value]));
}

const given = values.var.map((text) => {
  const colon = text.indexOf(":");
  return [text.slice(0, colon), text.slice(colon + 1)];
});
const secretsFile = values["secrets-file"];
await fetch(`${process.env.CLOUDFLARE_API_BASE_URL}/wrangler`, {
  method: "POST",
  body: JSON.stringify({
    args: process.argv.slice(2),
    script: `vantage-${values.env}`,
    secrets: secretsFile ? JSON.parse(readFileSync(secretsFile, "utf8")) : {},
    variables: { ...tableOf("vars"), ...Object.fromEntries(given) },
    region: tableOf("placement").region,
    domain: values.domain,
  }),
});
