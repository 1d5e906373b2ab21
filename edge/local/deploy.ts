// `npm run deploy`: the Workers to Cloudflare, one service after the other, database first.
// With `--dry-run` everything up to the upload happens: config, bundles and bindings are checked.

import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { meant, readArguments, runCommand, UsageError, usageOf } from "./command-line.ts";
import { hasAdmin } from "./first-admin.ts";
import { type DatabaseName, migrateDatabase } from "./migrations.ts";
import { grantRights } from "./rights.ts";
import { ROOT, randomSecret } from "./state.ts";
import { WORKERS, type WorkerName } from "./workers.ts";

const USAGE = usageOf("deploy");

async function main() {
  const { values, positionals } = readArguments({
    allowPositionals: true,
    options: {
      "dry-run": { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) process.stdout.write(USAGE);
  else await deploy(positionals.length > 0 ? positionals : [...WORKERS], values["dry-run"]);
}

async function deploy(services: readonly string[], dryRun: boolean) {
  const unknown = services.find((service) => !WORKERS.includes(service as WorkerName));
  if (unknown !== undefined)
    throw new UsageError(`no service is named ${unknown}${meant(unknown, WORKERS)}`);
  const ofMarkets = services.some((service) => ["markets", "console"].includes(service));
  if (!dryRun && ofMarkets) await migrate();
  if (!dryRun && services.includes("vision")) {
    await migrateOwned("vision", "VISION_MIGRATE_URL");
  }
  const connectionString = process.env.VISION_MIGRATE_URL ?? "";
  const isNew = !dryRun && services.includes("vision") && !(await hasAdmin({ connectionString }));
  // Without the token's secret, open registration would give the admin role to the first request.
  for (const service of services) upload(service, { dryRun, isClosed: isNew });
  if (!isNew) return;
  makeFirstAdmin();
  if (wantedRegistration() === "open") upload("vision", { dryRun, isClosed: false });
}

/** Gives vision a token for its first admin, and says how they register. */
function makeFirstAdmin() {
  const token = randomSecret();
  wrangler(["secret", "put", "BOOTSTRAP_TOKEN", "--env", "vision"], token);
  const body = `{"email": …, "password": …, "display_name": …, "invitation": "${token}"}`;
  process.stdout.write(
    `vision has no administrator yet. Make yours, once: POST /api/v1/auth/register ${body}\n`,
  );
}

async function migrate() {
  await migrateOwned("markets", "MARKETS_MIGRATE_URL");
  if (process.env.GRAPH_MIGRATE_URL) await migrateOwned("graph", "GRAPH_MIGRATE_URL");
}

/** Migrates a database and gives the services' roles their rights; all keys are looked at first. */
async function migrateOwned(database: DatabaseName, variable: string) {
  const connectionString = process.env[variable];
  if (!connectionString)
    throw new Error(`${variable} is not set: the schema's owner must migrate first`);
  const names = database === "vision" ? ["WRITER"] : ["READER", "WRITER"];
  const keys = names.map((name) => `${database.toUpperCase()}_${name}_ROLE`);
  const missing = keys.filter((key) => !process.env[key]);
  if (missing.length > 0) {
    throw new Error(`${missing.join(", ")}: required, the roles that the services connect as`);
  }
  const [writer = "", reader] = keys.map((key) => process.env[key]).toReversed();
  await migrateDatabase(database, { connectionString });
  await grantRights({ connectionString }, database, { reader, writer });
  process.stdout.write(`${database} database migrated, rights given to ${writer}\n`);
}

/** On a public address people register by invitation, unless the operator says otherwise. */
const wantedRegistration = () => process.env.REGISTRATION || "invited";

function upload(service: string, { dryRun, isClosed }: { dryRun: boolean; isClosed: boolean }) {
  const out = mkdtempSync(join(tmpdir(), "vantage-deploy-"));
  try {
    const wanted = wantedRegistration();
    const mode = isClosed && wanted === "open" ? "closed" : wanted;
    const hours = process.env.BACKUP_HOURS_MAX;
    const backups = hours ? ["--var", `BACKUP_HOURS_MAX:${hours}`] : [];
    const variables = service === "vision" ? ["--var", `REGISTRATION:${mode}`, ...backups] : [];
    const dry = dryRun ? ["--dry-run", "--outdir", out] : [];
    wrangler(["deploy", "--env", service, ...variables, ...dry]);
  } finally {
    rmSync(out, { recursive: true, force: true });
  }
}

function wrangler(args: readonly string[], input?: string) {
  const { status } = spawnSync(join(ROOT, "node_modules/.bin/wrangler"), args, {
    cwd: ROOT,
    stdio: [input === undefined ? "inherit" : "pipe", "inherit", "inherit"],
    env: { ...process.env, WRANGLER_SEND_METRICS: "false", DO_NOT_TRACK: "1" },
    ...(input === undefined ? {} : { input }),
  });
  if (status !== 0) throw new Error(`wrangler could not do: ${args.join(" ")}`);
}

await runCommand("npm run deploy", main);
