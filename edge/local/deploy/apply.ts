// What a deployment changes: what its checks found missing, and nothing else. Each change may be
// made again, so that a deployment that broke off is taken up by the next.

import { spawnSync } from "node:child_process";
import {
  appendFileSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { stop as stopEsbuild } from "esbuild";
import { type DatabaseName, migrateDatabase } from "../migrations.ts";
import { grantRights } from "../rights.ts";
import { ROOT, randomSecret } from "../state.ts";
import { studioFolder } from "../studio-build.ts";
import { STUDIO_WORKER } from "../workers.ts";
import type { Upload } from "./checks.ts";
import type { Cloudflare } from "./cloudflare.ts";
import { migrateVariable, rolesOf } from "./database-checks.ts";
import type { Change } from "./findings.ts";
import type { DeployEnvironment, WantedWorker } from "./requirements.ts";

const say = (text: string) => process.stdout.write(`${text}\n`);

/** Makes what is missing in the account, in the order of the checks. */
export async function changeAccount(cloudflare: Cloudflare, changes: readonly Change[]) {
  for (const change of changes) {
    if (change.kind === "bucket") {
      await cloudflare.createBucket(change.name);
      say(`bucket ${change.name} made`);
    } else if (change.kind === "queue") {
      await cloudflare.createQueue(change.name);
      say(`queue ${change.name} made`);
    } else if (change.kind === "cors") {
      await cloudflare.putCorsRules(change.bucket, change.rules);
      say(`CORS of ${change.bucket} set`);
    } else if (change.kind === "lifecycle") {
      await cloudflare.putLifecycleRules(change.bucket, change.rules);
      say(`lifecycle of ${change.bucket} set`);
    }
  }
}

/**
 * Appends settings to the deployment's file, readable by its owner alone, before they are used: a
 * deployment that breaks off finds them there.
 */
export function keepSettings(file: string, settings: Readonly<Record<string, string>>) {
  const entries = Object.entries(settings);
  if (entries.length === 0) return;
  const before = existsSync(file) ? readFileSync(file, "utf8") : "";
  const gap = before === "" || before.endsWith("\n") ? "" : "\n";
  const lines = entries.map(([name, value]) => `${name}=${value}\n`).join("");
  appendFileSync(file, gap + lines, { mode: 0o600 });
  say(`${entries.map(([name]) => name).join(", ")} written to ${file}: keep that file`);
}

/** New values for the secrets that are to be made; one name has one value in all services. */
export function makeSecrets(uploads: readonly Upload[]): Record<string, string> {
  const names = new Set(uploads.flatMap(({ random }) => random));
  return Object.fromEntries([...names].map((name) => [name, randomSecret()]));
}

/** Applies a database's migrations as its owner, and gives the services' roles their rights. */
export async function prepareDatabase(database: DatabaseName, environment: DeployEnvironment) {
  const connectionString = environment[migrateVariable(database)] ?? "";
  const { reader, writer = "" } = rolesOf(environment, database);
  await migrateDatabase(database, { connectionString });
  await grantRights({ connectionString }, database, { reader, writer });
  const roles = [reader, writer].filter(Boolean).join(" and ");
  say(`database ${database} migrated, rights given to ${roles}`);
}

/** wrangler.toml with the placement of each Worker, which no option of wrangler's sets. */
const PLACED_CONFIG = `wrangler.deploy.${process.pid}.toml`;

function writePlacedConfig(workers: readonly WantedWorker[]): string | null {
  const placed = workers.filter(({ region }) => region !== undefined);
  if (placed.length === 0) return null;
  const tables = placed.map(
    ({ service, region }) => `\n[env.${service}.placement]\nregion = "${region}"\n`,
  );
  const text = readFileSync(join(ROOT, "wrangler.toml"), "utf8");
  writeFileSync(join(ROOT, PLACED_CONFIG), text + tables.join(""));
  return PLACED_CONFIG;
}

/** Uploads Workers by wrangler, in order: code, secrets, variables, domain and placement. */
export async function uploadWorkers(
  uploads: readonly Upload[],
  { environment, dryRun }: { environment: DeployEnvironment; dryRun: boolean },
) {
  const folder = mkdtempSync(join(tmpdir(), "vantage-deploy-"));
  const placed = writePlacedConfig(uploads.map(({ worker }) => worker));
  try {
    const hasStudio = uploads.some(({ worker: { service } }) => service === STUDIO_WORKER);
    const studio = hasStudio ? await studioFolder() : "";
    await stopEsbuild();
    for (const { worker, secrets } of uploads) {
      const { service, domain, variables } = worker;
      const secretsFile = join(folder, `${service}.json`);
      const hasSecrets = Object.keys(secrets).length > 0;
      if (hasSecrets) writeFileSync(secretsFile, JSON.stringify(secrets), { mode: 0o600 });
      const settings = Object.entries(variables).flatMap(([name, value]) => [
        "--var",
        `${name}:${value}`,
      ]);
      wrangler(environment, [
        "deploy",
        ...["--env", service],
        ...(service === STUDIO_WORKER ? ["--assets", studio] : []),
        ...(placed ? ["--config", placed] : []),
        ...settings,
        ...(domain === undefined ? [] : ["--domain", domain]),
        ...(hasSecrets ? ["--secrets-file", secretsFile] : []),
        ...(dryRun ? ["--dry-run", "--outdir", join(folder, service)] : []),
      ]);
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
    if (placed) rmSync(join(ROOT, placed), { force: true });
  }
}

/** Variables of a deployment that wrangler reads itself. */
const WRANGLER_VARIABLES = [
  "CLOUDFLARE_API_TOKEN",
  "CLOUDFLARE_ACCOUNT_ID",
  "CLOUDFLARE_API_BASE_URL",
];

function wrangler(environment: DeployEnvironment, args: readonly string[]) {
  const program = environment.VANTAGE_WRANGLER || join(ROOT, "node_modules/.bin/wrangler");
  const own = WRANGLER_VARIABLES.map((name) => [name, environment[name]]);
  const { status } = spawnSync(program, args, {
    cwd: ROOT,
    stdio: "inherit",
    env: {
      ...process.env,
      ...Object.fromEntries(own.filter(([, value]) => value)),
      WRANGLER_SEND_METRICS: "false",
      DO_NOT_TRACK: "1",
    },
  });
  // The arguments hold no secret: those are in a file.
  if (status !== 0) throw new Error(`wrangler could not do: ${args.join(" ")}`);
}
