// `npm run deploy`: from nothing to services that answer at Cloudflare, by one command that may run
// again. It looks at everything before it changes anything, changes what is missing, and stops at
// what is different. With `--check` it only looks; with `--dry-run` wrangler bundles and stops.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseEnv } from "node:util";
import { Secret } from "../../shared/secret.ts";
import { meant, paint, readArguments, runCommand, UsageError, usageOf } from "./command-line.ts";
import {
  changeAccount,
  keepSettings,
  makeSecrets,
  prepareDatabase,
  uploadWorkers,
} from "./deploy/apply.ts";
import {
  checkAccount,
  checkBucket,
  checkDomain,
  checkQueues,
  checkWorker,
  type Upload,
  uploadOrigins,
} from "./deploy/checks.ts";
import { Cloudflare } from "./deploy/cloudflare.ts";
import { checkDatabase } from "./deploy/database-checks.ts";
import { type Check, isBlocking, linesOf } from "./deploy/findings.ts";
import { addressOf, checkHealth } from "./deploy/health.ts";
import {
  type DeployEnvironment,
  hasAddress,
  keysOf,
  type WantedWorker,
  wantedWorker,
} from "./deploy/requirements.ts";
import type { DatabaseName } from "./migrations.ts";
import { ROOT } from "./state.ts";
import { WORKERS, type WorkerName } from "./workers.ts";

const USAGE = usageOf("deploy");
const HEALTH_SECONDS = 120;
/** Variables of a vision service that has no administrator yet, where they are not set. */
const FIRST_VARIABLES = { TEAM_WORKSPACE: "Team", DEFAULT_WORKSPACE_PROJECTS: "false" };

interface Options {
  services: readonly WorkerName[];
  environment: DeployEnvironment;
  /** Where settings are kept that a deployment makes. */
  file: string;
  /** Names of secrets that are put again. */
  replaced: readonly string[];
  healthSeconds: number;
}

async function main() {
  const { values, positionals } = readArguments({
    allowPositionals: true,
    options: {
      check: { type: "boolean", default: false },
      "dry-run": { type: "boolean", default: false },
      settings: { type: "string", default: join(ROOT, "deploy.env") },
      put: { type: "string", multiple: true, default: [] },
      "health-seconds": { type: "string", default: String(HEALTH_SECONDS) },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return void process.stdout.write(USAGE);
  const healthSeconds = Number(values["health-seconds"]);
  if (!Number.isInteger(healthSeconds) || healthSeconds < 0) {
    throw new UsageError("--health-seconds must be a whole number");
  }
  const services = chosenServices(positionals);
  const options: Options = {
    services,
    environment: readEnvironment(values.settings),
    file: values.settings,
    replaced: chosenSecrets(values.put, services),
    healthSeconds,
  };
  if (values["dry-run"]) await bundleOnly(options);
  else if (values.check) await check(options);
  else await deploy(options);
}

function chosenServices(given: readonly string[]): WorkerName[] {
  const unknown = given.find((name) => !WORKERS.some((service) => service === name));
  if (unknown !== undefined)
    throw new UsageError(`no service is named ${unknown}${meant(unknown, WORKERS)}`);
  return WORKERS.filter((service) => given.length === 0 || given.includes(service));
}

/** Names of secrets that the chosen services read. */
function chosenSecrets(given: readonly string[], services: readonly WorkerName[]): string[] {
  const known = services.flatMap((service) => keysOf(service, "secret"));
  const unknown = given.find((name) => !known.includes(name));
  if (unknown === undefined) return [...given];
  throw new UsageError(`no secret is named ${unknown}${meant(unknown, [...new Set(known)])}`);
}

/** What is set when the command starts comes before what its file holds; empty is unset. */
function readEnvironment(file: string): DeployEnvironment {
  const kept = existsSync(file) ? parseEnv(readFileSync(file, "utf8")) : {};
  const given = Object.entries(process.env).filter(([, value]) => value !== "");
  return { ...kept, ...Object.fromEntries(given) };
}

async function bundleOnly({ services, environment }: Options) {
  const workers = await wantedWorkers(services, environment);
  const uploads = workers.map((worker) => ({ worker, secrets: {}, random: [] }));
  await uploadWorkers(uploads, { environment, dryRun: true });
}

async function wantedWorkers(services: readonly WorkerName[], environment: DeployEnvironment) {
  const workers: WantedWorker[] = [];
  for (const service of services) workers.push(await wantedWorker(service, environment));
  return workers;
}

/** What was looked at, and what a deployment would upload. */
interface Survey {
  checks: Check[];
  uploads: Upload[];
  cloudflare: Cloudflare | null;
  databases: DatabaseName[];
  hasAdmin: boolean;
  /** Settings that a first deployment makes and keeps. */
  settings: Record<string, string>;
}

/** Looks at everything that the chosen services need; changes nothing. */
async function survey({ services, environment: given, replaced }: Options): Promise<Survey> {
  const databases = databasesOf(services, given);
  const checks: Check[] = [];
  let hasAdmin = false;
  for (const database of databases) {
    const found = await checkDatabase(database, given);
    checks.push(...found.checks);
    hasAdmin ||= found.hasAdmin;
  }
  const isFirst = services.includes("vision") && !hasAdmin;
  const settings = Object.fromEntries(
    Object.entries(FIRST_VARIABLES).filter(([name]) => isFirst && given[name] === undefined),
  );
  const environment = { ...settings, ...given };
  const workers = await wantedWorkers(services, environment);
  const { cloudflare, check: account } = await openAccount(environment);
  checks.unshift(account);
  const uploads: Upload[] = [];
  if (cloudflare) {
    checks.push(...(await checkResources(cloudflare, workers, environment)));
    for (const worker of workers) {
      const found = await checkWorker(cloudflare, worker, { environment, replaced, hasAdmin });
      checks.push(...found.checks);
      if (hasAddress(worker.service)) checks.push(await checkDomain(cloudflare, worker));
      uploads.push(found.upload);
    }
  }
  return { checks, uploads, cloudflare, databases, hasAdmin, settings };
}

function databasesOf(services: readonly WorkerName[], environment: DeployEnvironment) {
  const ofMarkets = services.some((service) => service === "markets" || service === "console");
  const databases: DatabaseName[] = ofMarkets ? ["markets"] : [];
  if (ofMarkets && environment.GRAPH_MIGRATE_URL) databases.push("graph");
  return services.includes("vision") ? [...databases, "vision" as const] : databases;
}

/** The account, where it is named and its token is good. */
async function openAccount(
  environment: DeployEnvironment,
): Promise<{ cloudflare: Cloudflare | null; check: Check }> {
  const { CLOUDFLARE_API_TOKEN: token, CLOUDFLARE_ACCOUNT_ID: accountId } = environment;
  if (!token || !accountId) {
    const missing = [!accountId && "CLOUDFLARE_ACCOUNT_ID", !token && "CLOUDFLARE_API_TOKEN"];
    const detail = `not set: ${missing.filter(Boolean).join(", ")}`;
    const remedy = "in deploy.env; edge/local/README.md says what the token may do";
    return {
      cloudflare: null,
      check: { subject: "account", finding: "missing", detail, remedy },
    };
  }
  const cloudflare = new Cloudflare({
    token: new Secret(token),
    accountId,
    apiUrl: environment.CLOUDFLARE_API_BASE_URL,
  });
  const check = await checkAccount(cloudflare);
  return { cloudflare: check.finding === "right" ? cloudflare : null, check };
}

/** Buckets and queues of the Workers, each once. */
async function checkResources(
  cloudflare: Cloudflare,
  workers: readonly WantedWorker[],
  environment: DeployEnvironment,
): Promise<Check[]> {
  const vision = workers.find(({ service }) => service === "vision");
  // A page is what its public address says, by whatever other address this machine reaches it.
  const own = vision && (await addressOf({}, vision, cloudflare));
  const checks: Check[] = [];
  for (const bucket of new Set(workers.flatMap(({ buckets }) => buckets))) {
    const origins = vision?.buckets.includes(bucket) ? uploadOrigins(environment, own) : null;
    checks.push(...(await checkBucket(cloudflare, bucket, origins)));
  }
  checks.push(
    ...(await checkQueues(
      cloudflare,
      workers.flatMap(({ queues }) => queues),
    )),
  );
  return checks;
}

function show(checks: readonly Check[]) {
  for (const one of checks) process.stdout.write(linesOf(one));
}

async function healthChecks(options: Options, { cloudflare, uploads }: Survey, seconds: number) {
  const checks: Check[] = [];
  for (const { worker } of uploads) {
    if (!hasAddress(worker.service)) continue;
    const address = await addressOf(options.environment, worker, cloudflare);
    checks.push(await checkHealth(worker.service, address, seconds));
  }
  return checks;
}

async function check(options: Options) {
  const found = await survey(options);
  show(found.checks);
  const isDeployed =
    found.uploads.length > 0 && found.checks.every(({ finding }) => finding === "right");
  const health = isDeployed ? await healthChecks(options, found, 0) : [];
  show(health);
  const open = [...found.checks, ...health].filter(({ finding }) => finding !== "right");
  if (open.length === 0) return;
  const yours = open.filter(isBlocking).length;
  const ours = open.length - yours;
  throw new Error(`${yours} to be done by you, ${ours} by npm run deploy; nothing was changed`);
}

async function deploy(options: Options) {
  const { environment, file, healthSeconds } = options;
  const found = await survey(options);
  const blocking = found.checks.filter(isBlocking);
  show(blocking.length > 0 ? blocking : found.checks.filter(({ finding }) => finding !== "right"));
  const { cloudflare, uploads, databases } = found;
  if (blocking.length > 0 || !cloudflare) {
    throw new Error(`${blocking.length} to be done by you first; nothing was changed`);
  }
  const made = makeSecrets(uploads);
  keepSettings(file, { ...found.settings, ...made });
  for (const { secrets, random } of uploads) {
    for (const name of random) secrets[name] = made[name] ?? "";
  }
  await changeAccount(
    cloudflare,
    found.checks.flatMap(({ change }) => change ?? []),
  );
  for (const database of databases) await prepareDatabase(database, environment);
  await uploadWorkers(uploads, { environment, dryRun: false });
  const health = await healthChecks(options, found, healthSeconds);
  show(health);
  if (options.services.includes("vision") && !found.hasAdmin) tellFirstAdmin(file);
  const ill = health.filter(({ finding }) => finding !== "right");
  if (ill.length > 0) throw new Error("deployed, but not every service is well");
  process.stdout.write(`${paint("green", "All is deployed and well.")}\n`);
}

/** Says how the first administrator registers; the token stays in the deployment's file. */
function tellFirstAdmin(file: string) {
  const body = `{"email": …, "password": …, "display_name": …, "invitation": BOOTSTRAP_TOKEN}`;
  process.stdout.write(
    `vision has no administrator yet. Make yours, once: POST /api/v1/auth/register ${body}, ` +
      `with the token that ${file} holds\n`,
  );
}

await runCommand("npm run deploy", main);
