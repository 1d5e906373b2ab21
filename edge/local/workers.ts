// The Workers, bundled from source and run in one workerd, each on its own port, with R2, its S3
// endpoint and queues. What they are comes from wrangler.toml, the file production is deployed
// from.

import { readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { stop as stopEsbuild } from "esbuild";
import type { Miniflare } from "miniflare";
import { bundle } from "./bundles.ts";
import { freePorts } from "./ports.ts";
import { ROOT } from "./state.ts";
import { studioFolder } from "./studio-build.ts";

/** The Workers, by their environment in wrangler.toml. */
export const SERVICES = ["markets", "console", "vision"] as const;
/** The name of one of them. */
export type ServiceName = (typeof SERVICES)[number];
/** These and those that they alone reach, without an address; what others bind to comes first. */
export const WORKERS = ["markets", "console", "infer", "vision"] as const;
export type WorkerName = (typeof WORKERS)[number];
/** The Worker that serves the Studio's files. */
export const STUDIO_WORKER: WorkerName = "vision";
const hasAddress = (name: WorkerName): name is ServiceName =>
  SERVICES.some((service) => service === name);

/** How the Workers are run. */
interface WorkersOptions {
  services: readonly WorkerName[];
  /** Environment of each service; the vision service is told its object store's address too. */
  bindings: Readonly<Record<ServiceName, Readonly<Record<string, string>>>>;
  /** Ports; 0 takes a free one, which stays the service's own when workerd is replaced. */
  ports: Readonly<Record<ServiceName, number>>;
  host: string;
  /** Where R2 and queues keep their state. */
  persistTo: string;
  /** What `buildServices` made of them before, or nothing. */
  bundles?: readonly BuiltService[];
  s3: { accessKeyId: string; secretAccessKey: string };
  /** Every line a Worker logs. */
  onLog: (line: string) => void;
  /** Further Workers beside the services, as Miniflare takes them. */
  further?: readonly Record<string, unknown>[];
}

/** What is read of a service's entry in wrangler.toml; the rest goes to Miniflare as it is. */
interface ServiceEntry {
  [option: string]: unknown;
  modulesRules: { type: string; include: string[] }[];
  r2Buckets?: unknown;
  serviceBindings?: Record<string, { name: string }>;
}

/** A service ready to be started any number of times; survives being passed on as JSON. */
export interface BuiltService {
  service: WorkerName;
  /** Its entry in wrangler.toml, as wrangler reads it for Miniflare. */
  entry: ServiceEntry;
  /** Holds its modules: `main.js`, and what it imports of WebAssembly. */
  folder: string;
}

/** The Node side of the object store, for tests and tools. */
export type Bucket = Pick<R2Bucket, "get" | "put" | "list" | "delete">;
type R2Bucket = import("@cloudflare/workers-types").R2Bucket;

/** The running Workers. */
export interface Workers {
  urls: Readonly<Record<ServiceName, string>>;
  s3Url: string;
  /** Delivers one cron event to every started service that has a cron. */
  tick(scheduledTime: number): Promise<void>;
  bucket(): Promise<Bucket>;
  media(): Promise<Bucket>;
  /** Asks one of the further Workers. */
  ask(name: string, body: unknown): Promise<unknown>;
  /** Ends an object's life in memory as the platform may at any time; its sockets hibernate. */
  evict(className: string, name: string): Promise<void>;
  stop(): Promise<void>;
}

const S3_PATH = "/cdn-cgi/local/r2/s3";
/** The vision bucket over S3. */
const mediaS3Url = (port: number) => `http://127.0.0.1:${port}${S3_PATH}/vantage-vision`;

const CONFIG_FILE = join(ROOT, "wrangler.toml");
const STARTS_MAX = 5;

/** Keeps wrangler and Miniflare from the network and from printing. */
const TOOLS_ENVIRONMENT = {
  CLOUDFLARE_CF_FETCH_ENABLED: "false",
  DO_NOT_TRACK: "1",
  WRANGLER_HIDE_BANNER: "true",
  WRANGLER_LOG: "error",
  WRANGLER_SEND_METRICS: "false",
};

const CRON = "* * * * *";
/** The services that have it. */
const TICKED: readonly ServiceName[] = ["console", "vision"];

/** Bundles services, where what was bundled before is out of date. */
export async function buildServices(services: readonly WorkerName[]): Promise<BuiltService[]> {
  Object.assign(process.env, TOOLS_ENVIRONMENT);
  const { unstable_getMiniflareWorkerOptions: readConfig } = await import("wrangler");
  const built = await Promise.all(
    services.map(async (service) => {
      const directory = service === STUDIO_WORKER ? await studioFolder() : undefined;
      const overrides = directory === undefined ? {} : { assets: { directory } };
      const { workerOptions } = readConfig(CONFIG_FILE, service, { overrides });
      // Wrangler types the options for Miniflare's own input, which differs from what it reads.
      const entry = workerOptions as unknown as ServiceEntry;
      const main = join(ROOT, "edge", service, "main.ts");
      const folder = await bundle({ name: service, main, rules: entry.modulesRules });
      return { service, entry, folder };
    }),
  );
  // Its process would stay as long as this one, with a third of a gigabyte.
  await stopEsbuild();
  return built;
}

/** Starts the Workers, bundled first where they are not; resolves when every one answers. */
export async function startWorkers(options: WorkersOptions): Promise<Workers> {
  Object.assign(process.env, TOOLS_ENVIRONMENT, {
    VANTAGE_WORKERD: workerdPath(),
    MINIFLARE_WORKERD_PATH: join(ROOT, "edge/local/workerd.sh"),
  });
  const { services, bundles } = options;
  const built = bundles
    ? services.flatMap((name) => bundles.filter(({ service }) => service === name))
    : await buildServices(services);
  const miniflare = await import("miniflare");
  const { Miniflare, convertV4MiniflareOptions, Log, LogLevel } = miniflare;
  const forgetHandlers = rememberSignals();
  const { runtime, entry } = await onFreePorts(options, async (ports) => {
    const runtime = new Miniflare(
      convertV4MiniflareOptions({
        host: "127.0.0.1",
        port: ports.s3,
        cf: false,
        telemetry: { enabled: false },
        log: new Log(LogLevel.NONE),
        handleStructuredLogs: ({ message }: { message: string }) => options.onLog(message),
        resourcePersistencePath: options.persistTo,
        unsafeLocalExplorer: false,
        unsafeObservability: false,
        workers: [
          ...built.map((one) => workerOptionsOf(one, options, ports)),
          ...(options.further ?? []),
        ],
        // Entries of wrangler.toml pass through unread, so their shape is not known here.
      } as never),
    );
    const entry = await runtime.ready.catch(async (thrown: unknown) => {
      await runtime.dispose().catch(() => {});
      throw thrown;
    });
    return { runtime, entry };
  });
  forgetHandlers();
  const urls = await Promise.all(
    options.services.filter(hasAddress).map(async (service) => {
      const { port } = await runtime.unsafeGetDirectURL(service);
      return [service, `http://${reachable(options.host)}:${port}`] as const;
    }),
  );
  return {
    urls: Object.fromEntries(urls) as Workers["urls"],
    s3Url: new URL(S3_PATH, entry).href,
    ...verbsOf(runtime, options.services),
  };
}

/** What is done with running Workers. */
function verbsOf(
  runtime: Miniflare,
  services: readonly WorkerName[],
): Omit<Workers, "urls" | "s3Url"> {
  return {
    tick: async (scheduledTime) => {
      const ticked = TICKED.filter((service) => services.includes(service));
      const deliver = async (service: ServiceName) => {
        const worker = await runtime.getWorker(service);
        const event = { cron: CRON, scheduledTime: new Date(scheduledTime) };
        const { outcome } = await worker.scheduled(event);
        if (outcome !== "ok") throw new Error(`the cron event of ${service} ended with ${outcome}`);
      };
      // One service's failure keeps no other from its event.
      const delivered = await Promise.allSettled(ticked.map(deliver));
      for (const one of delivered) if (one.status === "rejected") throw one.reason;
    },
    bucket: () => bucketOf(runtime, "STORE", "console"),
    media: () => bucketOf(runtime, "MEDIA", "vision"),
    ask: async (name, body) => {
      const worker = await runtime.getWorker(name);
      const init = { method: "POST", body: JSON.stringify(body) };
      return (await worker.fetch("http://worker/", init)).json();
    },
    evict: (className, name) =>
      runtime.unsafeEvictDurableObject("vision", className, { name, webSockets: "hibernate" }),
    stop: () => runtime.dispose(),
  };
}

async function bucketOf(
  runtime: Miniflare,
  binding: string,
  service: ServiceName,
): Promise<Bucket> {
  const bucket: unknown = await runtime.getR2Bucket(binding, service);
  // Miniflare's type is that of the Worker's side, whose streams Node's do not match.
  return bucket as Bucket;
}

/** A service as Miniflare runs it: its entry in wrangler.toml with this stack's ports and keys. */
function workerOptionsOf(
  { service, folder, entry: { modulesRules: _, ...entry } }: BuiltService,
  options: WorkersOptions,
  { services, s3 }: Ports,
) {
  const own = hasAddress(service) ? options.bindings[service] : {};
  const address = (name: ServiceName) => ({
    host: options.host,
    port: services[name],
    proxy: false,
  });
  const compiled = readdirSync(folder).filter((file) => file.endsWith(".wasm"));
  return {
    ...entry,
    ...buckets(entry.r2Buckets, options.s3),
    serviceBindings: siblings(entry.serviceBindings, options.services),
    name: service,
    rootPath: ROOT,
    bindings: service === "vision" ? { S3_URL: mediaS3Url(s3), ...own } : own,
    modulesRoot: folder,
    modules: [
      { type: "ESModule", path: join(folder, "main.js") },
      ...compiled.map((file) => ({ type: "CompiledWasm", path: join(folder, file) })),
    ],
    unsafeDirectSockets: hasAddress(service) ? [address(service)] : [],
  };
}

/** The port of each service, and of the object store. */
interface Ports {
  services: Record<ServiceName, number>;
  s3: number;
}

/**
 * The vision service is told its object store's port before either runs, so ports are looked up
 * beforehand; where another program took one meanwhile, others are tried.
 */
async function onFreePorts<Started>(
  { ports: wanted }: WorkersOptions,
  start: (ports: Ports) => Promise<Started>,
): Promise<Started> {
  for (let starts = 1; ; starts++) {
    const free = await freePorts(SERVICES.length + 1);
    const chosen = SERVICES.map(
      (service, index) => [service, wanted[service] || free[index]] as const,
    );
    try {
      return await start({
        services: Object.fromEntries(chosen) as Ports["services"],
        s3: free.at(-1) as number,
      });
    } catch (thrown) {
      const inUse = (thrown as { code?: string }).code === "ERR_ADDRESS_IN_USE";
      if (!inUse || starts >= STARTS_MAX) throw thrown;
    }
  }
}

/**
 * Miniflare ends the whole process at a signal, before Postgres and the lock are put away. Returns
 * the way to take off the handlers that were added since; stopping in order is the stack's own
 * duty.
 */
function rememberSignals(): () => void {
  const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
  const before = new Set(signals.flatMap((signal) => process.listeners(signal)));
  return () => {
    for (const signal of signals) {
      const added = process.listeners(signal).filter((listener) => !before.has(listener));
      for (const listener of added) process.off(signal, listener);
    }
  };
}

/** Where a listener on `host` is reached from this machine. */
export const reachable = (host: string) =>
  host === "0.0.0.0" ? "127.0.0.1" : host.includes(":") ? `[${host}]` : host;

function workerdPath(): string {
  const miniflare = createRequire(import.meta.url).resolve("miniflare");
  return createRequire(miniflare).resolve(`@cloudflare/workerd-${process.platform}-64/bin/workerd`);
}

/** Local buckets get an S3 endpoint with this stack's own credentials. */
function buckets(declared: unknown, s3Credentials: WorkersOptions["s3"]) {
  const entries = Object.entries((declared ?? {}) as Record<string, object>);
  return {
    r2Buckets: Object.fromEntries(entries.map(([name, one]) => [name, { ...one, s3Credentials }])),
  };
}

/** Bindings to the services that run here, by the names they have here. */
function siblings(declared: ServiceEntry["serviceBindings"], services: readonly WorkerName[]) {
  const entries = Object.entries(declared ?? {}).map(([binding, { name }]) => [
    binding,
    name.replace(/^vantage-/, ""),
  ]);
  return Object.fromEntries(entries.filter(([, name]) => services.some((one) => one === name)));
}
