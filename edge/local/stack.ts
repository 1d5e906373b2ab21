// The embedded stack: Postgres, its Neon-compatible endpoint, the sandbox upstream and the Workers,
// started in order, watched, and stopped in reverse. A part that ends by itself is started again.

import { readFileSync, rmSync } from "node:fs";
import { join, resolve } from "node:path";
import { Secret } from "../../shared/secret.ts";
import { iso, MINUTE, systemClock } from "../../shared/time.ts";
import { openDatabase } from "../http/database.ts";
import { corsProblem } from "../markets/config.ts";
import { PROVIDER_SETTINGS } from "../markets/ingest/providers.ts";
import { createCode } from "../vision/tasks/nodes/nodes.ts";
import {
  type DatabaseUrls,
  databaseUrls,
  heldData,
  prepareDatabases,
  prepareRoles,
  releaseRuns,
} from "./databases.ts";
import { assertRoom, sayChange, watchDisk } from "./disk.ts";
import { type GpuNode, startGpuNode } from "./gpu-node.ts";
import { openLogFile } from "./log-file.ts";
import { startNeonEndpoint } from "./neon.ts";
import { listenOnce } from "./ports.ts";
import { keepPostgres } from "./postgres.ts";
import { startSandbox } from "./sandbox/server.ts";
import { type Credentials, lockState, prepareState, type State, writePrivate } from "./state.ts";
import { SERVICES, type ServiceName, startWorkers, WORKERS, type Workers } from "./workers.ts";

/** How the stack is started. */
interface StackOptions {
  state: State;
  host: string;
  ports: Readonly<Record<ServiceName, number>>;
  /** Serve the sandbox upstream to providers without a credential. */
  sandbox: boolean;
  /** Start a GPU node beside the services. */
  gpuNode: boolean;
  /** Start also where a service says that it cannot work, so that somebody can mend it. */
  mayBeDegraded?: boolean;
  /** Environment variables handed to the services that read them. */
  environment: Readonly<Record<string, string | undefined>>;
  /** One line at the start of each step. */
  onStep: (step: string) => void;
  /**
   * The disk of the state folder got low, full, or has room again, or Postgres ended or runs again:
   * a sentence for people.
   */
  onTold: (sentence: string) => void;
  /** The services' process died and was replaced; runs it held are queued again. */
  onServicesRestarted: () => void;
}

/** Where the providers' data comes from; with `none`, those that need a credential fail. */
type Feed = "real" | "sandbox" | "none";

/** A running stack. */
export interface Stack {
  feed: Feed;
  urls: Workers["urls"];
  s3Url: string;
  postgresPort: number;
  /** Resolves when the GPU node works; null without one. */
  gpuNode: Promise<void> | null;
  /** Starts delivering the cron event now and at every full minute. */
  startTicking(): void;
  stop(): Promise<void>;
}

/** Keys of an environment that select real providers: with any set, these alone feed the store. */
export const providerKeys = (environment: Readonly<Record<string, string | undefined>>) =>
  Object.keys(PROVIDER_SETTINGS).filter(
    (name) => environment[name] && environment[name] !== "false",
  );

/** Variables a user may set that reach a service. */
const PASSED: Readonly<Record<ServiceName, readonly string[]>> = {
  markets: [
    "SERVICE_READ_API_KEY",
    "SERVICE_CORS_ORIGINS",
    "SERVICE_SERIES_MAX_ROWS",
    "SERVICE_SETTLED_AFTER_SECONDS",
  ],
  console: [
    ...Object.keys(PROVIDER_SETTINGS),
    "INGEST_LEASE_SECONDS",
    "OBJECT_GRACE_DAYS",
    "SERVICE_READ_API_KEY",
    "OPERATOR_TOKENS",
    "METRICS_TOKEN",
    "ALERT_WEBHOOK_URL",
    "ALERT_WEBHOOK_SECRET",
    "ALERT_WEBHOOK_PRIVATE",
    "BEHIND_CLOUDFLARE",
  ],
  vision: [
    "BEHIND_CLOUDFLARE",
    "UPLOAD_BYTES_MAX",
    "WORKSPACE_BYTES_MAX",
    "ACCOUNT_BYTES_MAX",
    "ACCOUNT_WORKSPACES_MAX",
    "LISTENERS_MAX",
    "IMAGE_SECONDS_MAX",
    "NODE_LIST_SECONDS",
    "REGISTRATION",
    "BOOTSTRAP_TOKEN",
    "TEAM_WORKSPACE",
    "DEFAULT_WORKSPACE_PROJECTS",
    "AUDIT_DAYS",
    "DEVICE_LOG_DAYS",
    "OBJECT_GRACE_DAYS",
    "OUTBOUND_HOSTS",
    "LINK_PREFIXES",
    "DNS_URL",
    "METRICS_TOKEN",
    "ALERT_WEBHOOK_URL",
    "ALERT_WEBHOOK_SECRET",
    "ALERT_WEBHOOK_PRIVATE",
    "BACKUP_HOURS_MAX",
    "EDGE_IMAGE_SIZE",
  ],
};
const WATCH_MS = 1_000;
const RELEASE_TRIES_MAX = 300;
/** After the full minute, so that a timer that fires early is still within it. */
const TICK_DELAY_MS = 50;

/** What stops the parts that have started, in the order of their start. */
type Stops = (() => unknown)[];

/** Logs an event of the stack's own, and tells people. */
type Tell = (
  event: string,
  level: "info" | "warning" | "error",
  detail: string,
  more?: Record<string, unknown>,
) => void;

/** Starts everything; on failure, what had started is stopped again. */
export async function startStack(options: StackOptions): Promise<Stack> {
  const stops: Stops = [];
  const stop = async () => {
    for (const stopOne of stops.splice(0).reverse()) await stopOne();
  };
  const problem = corsProblem(options.environment.SERVICE_CORS_ORIGINS ?? "");
  if (problem) throw new Error(problem);
  try {
    await assertRoom(options.state.dir);
    stops.push(lockState(options.state));
    // What a killed stack left behind names ports that may be anybody's by now.
    rmSync(options.state.running, { force: true });
    return await startParts(options, stops, stop);
  } catch (thrown) {
    await stop();
    throw thrown;
  }
}

async function startParts(
  options: StackOptions,
  stops: Stops,
  stop: () => Promise<void>,
): Promise<Stack> {
  const { state } = options;
  for (const service of SERVICES) await assertFree(service, options.host, options.ports[service]);
  const prepared = prepareState(state);
  const { credentials } = prepared;

  options.onStep("database");
  const log = openLog(state, "services.log");
  stops.push(() => log.close());
  const tell: Tell = (event, level, detail, more = {}) => {
    const entry = { at: iso(systemClock()), level, service: "stack", event, detail, ...more };
    log.write(JSON.stringify(entry));
    options.onTold(detail);
  };
  const { postgres, endpoint, urls } = await startDatabase(state, credentials, { stops, tell });
  const feed = chooseFeed(options, await heldData(postgres.port, credentials));
  const sandbox = feed === "sandbox" ? await startSandbox() : null;
  if (sandbox) stops.push(() => sandbox.close());

  options.onStep("services");
  const workers = await startWorkers({
    services: WORKERS,
    host: options.host,
    ports: options.ports,
    persistTo: state.workers,
    s3: { accessKeyId: credentials.s3AccessKeyId, secretAccessKey: credentials.s3SecretAccessKey },
    bindings: bindingsOf(options, { ...prepared, urls, sandboxUrl: sandbox?.url }),
    onLog: log.write,
  });
  stops.push(() => workers.stop());
  if (!options.mayBeDegraded) await assertHealthy(workers.urls);
  const { urls: addresses, s3Url } = workers;
  const running = { urls: addresses, s3Url, postgresPort: postgres.port };
  writePrivate(state.running, JSON.stringify(running));
  stops.push(() => rmSync(state.running, { force: true }));

  const node = options.gpuNode ? startNode(options, workers.urls.vision, urls) : null;
  if (node) stops.push(() => node.stop());

  const unwatchDisk = watchDisk(state.dir, (change) => {
    endpoint.readOnly(change.state === "full");
    const level = ({ ample: "info", low: "warning", full: "error" } as const)[change.state];
    tell("disk", level, sayChange(state.dir, change), { free_bytes: change.freeBytes });
  });
  const ticker = minuteTicker(workers, log.write);
  const watch = watchWorkerd(async () => {
    await whilePostgresRestarts(() =>
      releaseRuns(postgres.port, credentials, { countAttempt: true }),
    );
    ticker.repeat();
    options.onServicesRestarted();
  });
  return {
    feed,
    urls: workers.urls,
    s3Url,
    postgresPort: postgres.port,
    gpuNode: node?.ready ?? null,
    startTicking: ticker.start,
    stop: async () => {
      clearInterval(watch);
      unwatchDisk();
      ticker.stop();
      await stop();
    },
  };
}

/** Postgres with roles, databases and migrations in place, behind the Neon-compatible endpoint. */
async function startDatabase(
  state: State,
  credentials: Credentials,
  { stops, tell }: { stops: Stops; tell: Tell },
) {
  const logFile = join(state.logs, "postgres.log");
  const password = credentials.superuser;
  const postgres = await keepPostgres({
    dataDir: state.postgres,
    logFile,
    password,
    onTold: (sentence) => tell("postgres", "warning", sentence),
  });
  stops.push(() => postgres.stop());
  await prepareRoles(postgres.port, credentials);
  await prepareDatabases(postgres.port, credentials);
  await releaseRuns(postgres.port, credentials, { countAttempt: false });
  const endpoint = await startNeonEndpoint(postgres.port);
  stops.push(() => endpoint.close());
  return { postgres, endpoint, urls: databaseUrls(endpoint.port, credentials) };
}

/** The environment of each service: what the user may set, and what this stack decides. */
function bindingsOf(
  { environment, ports }: StackOptions,
  parts: {
    credentials: Credentials;
    operatorToken: string;
    metricsToken: string;
    urls: DatabaseUrls;
    sandboxUrl: string | undefined;
  },
): Record<ServiceName, Record<string, string>> {
  const { credentials, urls, sandboxUrl } = parts;
  const passed = (service: ServiceName) => ({
    // On one's own machine every request is worth its line, and logs that are old make room.
    LOG_REQUESTS: environment.LOG_REQUESTS || "true",
    ...Object.fromEntries(
      PASSED[service].flatMap((name) => {
        const value = environment[name];
        return value ? [[name, value]] : [];
      }),
    ),
  });
  return {
    markets: {
      ...passed("markets"),
      DATABASE_URL: urls.marketsReader,
      GRAPH_DATABASE_URL: urls.graphReader,
    },
    console: {
      METRICS_TOKEN: parts.metricsToken,
      ...passed("console"),
      DATABASE_URL: urls.marketsWriter,
      GRAPH_DATABASE_URL: urls.graphWriter,
      OPERATOR_TOKEN: parts.operatorToken,
      SERVICE_API_URL: environment.SERVICE_API_URL || `http://localhost:${ports.markets}`,
      ...(sandboxUrl ? { SANDBOX_URL: sandboxUrl } : {}),
    },
    vision: {
      METRICS_TOKEN: parts.metricsToken,
      ...passed("vision"),
      DATABASE_URL: urls.visionWriter,
      TOKEN_SECRET: credentials.tokenSecret,
      DEVICE_SIGNING_KEY: credentials.deviceSigningKey,
      SEALING_KEY: credentials.sealingKey,
      S3_ACCESS_KEY_ID: credentials.s3AccessKeyId,
      S3_SECRET_ACCESS_KEY: credentials.s3SecretAccessKey,
    },
  };
}

/** Delivers the cron event at every full minute from `start` on; a failed one is logged. */
function minuteTicker(workers: Workers, writeLine: (line: string) => void) {
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;
  const tick = () => {
    clearTimeout(timer);
    const now = systemClock();
    timer = setTimeout(tick, MINUTE - (now % MINUTE) + TICK_DELAY_MS);
    workers.tick(now).catch((thrown: unknown) => {
      const entry = { at: iso(now), level: "error", service: "stack", event: "tick" };
      if (!stopped) writeLine(JSON.stringify({ ...entry, error: String(thrown) }));
    });
  };
  return {
    /** Begins with an event now; a further call changes nothing. */
    start: () => {
      if (!timer && !stopped) tick();
    },
    /** One more event now, where they have begun. */
    repeat: () => {
      if (timer && !stopped) tick();
    },
    stop: () => {
      stopped = true;
      clearTimeout(timer);
    },
  };
}

/** The stack's own GPU node; the codes that it registers with come straight from the database. */
function startNode({ state, environment }: StackOptions, url: string, urls: DatabaseUrls): GpuNode {
  const log = openLog(state, "gpu-node.log");
  const database = openDatabase(new Secret(urls.visionWriter));
  const node = startGpuNode({
    url,
    environment,
    dir: join(state.dir, "gpu-node"),
    modelsDir: resolve(environment.VANTAGE_MODELS || join(state.dir, "models")),
    code: async () =>
      (await createCode({ database, clock: systemClock }, { createdBy: null, workspaceId: null }))
        .code,
    onLine: log.write,
  });
  const stop = async () => {
    await node.stop();
    await log.close();
  };
  return { ...node, stop };
}

/** What may feed this store. Sandbox and real data never share one. */
function chooseFeed(
  { sandbox, environment, state }: StackOptions,
  held: "none" | "sandbox" | "real",
): Feed {
  const [key] = providerKeys(environment);
  const wanted: Feed = key ? "real" : sandbox ? "sandbox" : "none";
  if (wanted === "real" && held === "sandbox") {
    throw new Error(
      `${state.dir} holds sandbox data and ${key} selects a real provider; they may not mix. ` +
        "Start over with npm start -- --reset, or use another folder: VANTAGE_STATE=…",
    );
  }
  return wanted === "sandbox" && held === "real" ? "none" : wanted;
}

/** A log of the stack, by line. */
function openLog({ logs }: State, name: string) {
  const file = openLogFile(join(logs, name));
  return { write: (line: string) => file.write(`${line}\n`), close: file.close.bind(file) };
}

/** Miniflare replaces a workerd that died; whatever ran in the old one has to be taken up again. */
function watchWorkerd(onReplaced: () => Promise<void>): NodeJS.Timeout {
  let known = workerdPids();
  return setInterval(() => {
    const current = workerdPids();
    const replaced = current.some((pid) => !known.includes(pid));
    if (current.length > 0) known = current;
    if (replaced) onReplaced().catch(() => {});
  }, WATCH_MS);
}

/** Process ids of this process's workerd children. */
function workerdPids(): string[] {
  const children = readFileSync(`/proc/self/task/${process.pid}/children`, "utf8")
    .trim()
    .split(" ");
  return children.filter((pid) => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("workerd\0serve");
    } catch {
      return false;
    }
  });
}

/** Tries again for some minutes: Postgres may be down at the moment. */
async function whilePostgresRestarts(work: () => Promise<unknown>): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      await work();
      return;
    } catch (thrown) {
      if (tries === RELEASE_TRIES_MAX) throw thrown;
      await new Promise((done) => setTimeout(done, WATCH_MS).unref());
    }
  }
}

/** Fails with the service's own words when it does not start healthy, such as a missing key. */
async function assertHealthy(urls: Workers["urls"]) {
  for (const [service, url] of Object.entries(urls)) {
    const response = await fetch(`${url}/healthz`);
    const body = (await response.json()) as { status?: string; detail?: string };
    if (body.status !== "ok")
      throw new Error(`${service} is not healthy: ${body.detail ?? body.status}`);
  }
}

/** A port nobody listens on; the names of the flag and variable that move it are in the error. */
async function assertFree(service: ServiceName, host: string, port: number) {
  if (port === 0) return;
  await listenOnce(host, port).catch((thrown: { code?: string }) => {
    if (thrown.code !== "EADDRINUSE") throw thrown;
    const upper = service.toUpperCase();
    throw new Error(
      `port ${port} for ${service} is taken. See who has it: ss -ltnp 'sport = :${port}'. ` +
        `Another port: npm start -- --${service}-port=…, or VANTAGE_${upper}_PORT=…`,
    );
  });
}
