// `npm run deploy`: the Workers to Cloudflare, one service after the other, database first.
// With `--dry-run` everything up to the upload happens: config, bundles and bindings are checked.

import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { migrateDatabase } from "./databases.ts";
import { ROOT } from "./state.ts";
import { SERVICES, type ServiceName } from "./workers.ts";

const USAGE = `npm run deploy [-- --dry-run] [service …]

Applies the markets migrations to MARKETS_MIGRATE_URL (a Postgres URL of the schema's owner), those
of the catalog graph to GRAPH_MIGRATE_URL when it is set, those of vision to VISION_MIGRATE_URL, then
deploys each service with wrangler, which needs CLOUDFLARE_API_TOKEN or a wrangler login.
Before the first deploy, create what the README's deployment table lists.
`;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    "dry-run": { type: "boolean", default: false },
    help: { type: "boolean", default: false },
  },
});
if (values.help) process.stdout.write(USAGE);
else await deploy(positionals.length > 0 ? positionals : [...SERVICES], values["dry-run"]);

async function deploy(services: readonly string[], dryRun: boolean) {
  const unknown = services.filter((service) => !SERVICES.includes(service as ServiceName));
  if (unknown.length > 0)
    fail(`no service is named ${unknown.join(", ")}; there are: ${SERVICES.join(", ")}`);
  if (!dryRun && services.some((service) => service !== "vision")) await migrate();
  if (!dryRun && services.includes("vision")) {
    await migrateOwned("vision", "VISION_MIGRATE_URL");
  }
  for (const service of services) wrangler(service, dryRun);
}

async function migrate() {
  await migrateOwned("markets", "MARKETS_MIGRATE_URL");
  const graph = process.env.GRAPH_MIGRATE_URL;
  if (!graph) return;
  await migrateDatabase("graph", { connectionString: graph });
  process.stdout.write("graph database migrated\n");
}

async function migrateOwned(database: "markets" | "vision", variable: string) {
  const connectionString = process.env[variable];
  if (!connectionString) fail(`${variable} is not set: the schema's owner must migrate first`);
  await migrateDatabase(database, { connectionString });
  process.stdout.write(`${database} database migrated\n`);
}

function wrangler(service: string, dryRun: boolean) {
  const out = mkdtempSync(join(tmpdir(), "vantage-deploy-"));
  const args = ["deploy", "--env", service, ...(dryRun ? ["--dry-run", "--outdir", out] : [])];
  const result = spawnSync(join(ROOT, "node_modules/.bin/wrangler"), args, {
    cwd: ROOT,
    stdio: "inherit",
    env: { ...process.env, WRANGLER_SEND_METRICS: "false", DO_NOT_TRACK: "1" },
  });
  rmSync(out, { recursive: true, force: true });
  if (result.status !== 0) fail(`wrangler could not deploy ${service}`);
}

function fail(reason: string): never {
  process.stderr.write(`${reason}\n`);
  process.exit(1);
}
