// A test file's own world: fresh databases, its own Workers in workerd, its own object store, and
// where wanted a sandbox whose answers and clock the test decides.

import { appendFileSync, mkdtempSync, rmSync } from "node:fs";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, inject } from "vitest";
import { adoptBucket } from "../../edge/http/bucket-identity.ts";
import { type Database, openDatabase, PATIENT_MS_MAX } from "../../edge/http/database.ts";
import { type DatabaseUrls, databaseUrls } from "../../edge/local/databases.ts";
import { type Operator, operatorAt } from "../../edge/local/operator.ts";
import { superuser } from "../../edge/local/postgres.ts";
import {
  type Bucket,
  type BuiltService,
  SERVICES,
  type ServiceName,
  startWorkers,
  type WorkerName,
  type Workers,
} from "../../edge/local/workers.ts";
import { schedulesOf } from "../../edge/markets/ingest/pipeline.ts";
import { PIPELINES } from "../../edge/markets/ingest/pipelines.ts";
import { switchSchedule } from "../../edge/markets/ingest/ticks.ts";
import { type CommitRequest, commit } from "../../edge/markets/store/commit.ts";
import type { WriterParts } from "../../edge/markets/store/objects.ts";
import { openStore, type Store } from "../../edge/markets/store/store.ts";
import type { Parts } from "../../edge/vision/base/parts.ts";
import { Secret } from "../../shared/secret.ts";
import { systemClock } from "../../shared/time.ts";
import { callerWorker, objectsOf, type TestedBinding } from "./objects.ts";
import { copyDatabases } from "./postgres.ts";

/** On a busy machine a statement may take longer than a request would wait for it. */
const PATIENT = { timeoutMs: PATIENT_MS_MAX };

/** A bucket that takes bytes of Node's types too, which those of Workers do not cover. */
export type MediaBucket = Bucket & {
  put(key: string, value: string | Uint8Array | ArrayBufferLike): Promise<unknown>;
};

export interface World {
  urls: Workers["urls"];
  tick: Workers["tick"];
  /** Namespaces of the vision service's Durable Objects. */
  objects(binding: TestedBinding): Parts["topics"];
  evict: Workers["evict"];
  operator: Operator;
  operatorToken: string;
  /** Name of the markets database, for a connection of the test's own. */
  databaseName: string;
  database: Database;
  /** The markets database by its owner, for changes that no service has the right to make. */
  owner: Database;
  /** The catalog graph's own database, whatever the services were pointed at. */
  graph: Database;
  bucket: Bucket;
  /** The object store's S3 endpoint; key id and secret are both `test`. */
  s3Url: string;
  store: Store;
  writer: WriterParts;
  /** The vision service's own database and bucket. */
  visionDatabase: Database;
  media: MediaBucket;
  /** Every line the Workers logged. */
  logs: string[];
}

export interface WorldOptions {
  /** All that have an address, where none are named. */
  services?: readonly WorkerName[];
  environment?: Partial<Record<ServiceName, Record<string, string>>>;
  /** In place of the services as they are built. */
  bundles?: readonly BuiltService[];
  /** The Neon endpoint of the read API, when the test has one of its own. */
  endpointPort?: number;
  /** The Neon endpoint of the console, likewise. */
  writerPort?: number;
  /** The Neon endpoint of the vision service, likewise. */
  visionPort?: number;
  /**
   * Databases that are there already, in place of new ones. They and the buckets know of each other
   * what they knew before, where new ones have one identity from the first.
   */
  databases?: DatabaseUrls;
  /** Points the services at another catalog graph; null at none. */
  graphUrl?: string | null;
}

/** What vision services of tests sign with. */
export const VISION_TOKEN_SECRET = "a secret of the tests, of 32 characters";
/** What vision services of tests seal with. */
export const VISION_SEALING_KEY = "a sealing key of the tests with 40 letters";

/** A database URL whose port refuses connections. */
export const REFUSING_URL = "postgresql://reader:hunter2@127.0.0.1:1/nowhere";

/** A database URL whose server accepts connections and never answers; it ends with the file. */
export async function silentUrl(): Promise<string> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => sockets.add(socket.on("error", () => {})));
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  takeDown.push(async () => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  const { port } = server.address() as AddressInfo;
  return `postgresql://reader:hunter2@127.0.0.1:${port}/silent`;
}

// Registered while the file is collected: a hook added inside another hook would never run.
const takeDown: (() => Promise<void>)[] = [];
afterAll(async () => {
  await Promise.all(takeDown.map((end) => end()));
});

/** The same database through the same endpoint, by its owner. */
function byOwner(url: string): string {
  const owned = new URL(url);
  const { user, password } = superuser(0, inject("postgres").credentials.superuser);
  Object.assign(owned, { username: user, password });
  return owned.href;
}

function atPort(url: string, port: number | undefined): string {
  const moved = new URL(url);
  if (port !== undefined) moved.port = String(port);
  return moved.href;
}

/** New databases of every service, migrated and empty. */
export async function createDatabases(): Promise<DatabaseUrls> {
  const postgres = inject("postgres");
  const id = crypto.randomUUID().slice(0, 8);
  const names = { markets: `markets_${id}`, vision: `vision_${id}`, graph: `graph_${id}` };
  await copyDatabases(postgres, names);
  return databaseUrls(postgres.endpointPort, postgres.credentials, names);
}

/** Builds a world; it is taken down after the test file. */
export async function createWorld(options: WorldOptions = {}): Promise<World> {
  const urls = options.databases ?? (await createDatabases());
  const graph = (own: string): Record<string, string> =>
    options.graphUrl === null ? {} : { GRAPH_DATABASE_URL: options.graphUrl ?? own };
  const folder = mkdtempSync(join(tmpdir(), "vantage-world-"));
  const operatorToken = crypto.randomUUID();
  const logs: string[] = [];
  const workers = await startWorkers({
    services: options.services ?? SERVICES,
    host: "127.0.0.1",
    ports: { markets: 0, console: 0, vision: 0 },
    persistTo: join(folder, "workers"),
    bundles: options.bundles ?? inject("services"),
    s3: { accessKeyId: "test", secretAccessKey: "test" },
    bindings: {
      markets: {
        LOG_REQUESTS: "true",
        DATABASE_URL: atPort(urls.marketsReader, options.endpointPort),
        ...graph(urls.graphReader),
        ...options.environment?.markets,
      },
      console: {
        LOG_REQUESTS: "true",
        DATABASE_URL: atPort(urls.marketsWriter, options.writerPort),
        ...graph(urls.graphWriter),
        OPERATOR_TOKEN: operatorToken,
        BEHIND_CLOUDFLARE: "true",
        ...options.environment?.console,
      },
      vision: {
        LOG_REQUESTS: "true",
        DATABASE_URL: atPort(urls.visionWriter, options.visionPort),
        TOKEN_SECRET: VISION_TOKEN_SECRET,
        DEVICE_SIGNING_KEY: "a signing key of the tests that has no comma",
        SEALING_KEY: VISION_SEALING_KEY,
        // People of tests have an address each.
        BEHIND_CLOUDFLARE: "true",
        // Nodes of tests come and go: each prediction reads which are connected.
        NODE_LIST_SECONDS: "0",
        // What is deleted is gone at once, so that tests can look.
        OBJECT_GRACE_DAYS: "0",
        // Targets and webhooks of tests are on this machine.
        OUTBOUND_HOSTS: "127.0.0.1",
        S3_ACCESS_KEY_ID: "test",
        S3_SECRET_ACCESS_KEY: "test",
        ...options.environment?.vision,
      },
    },
    onLog: (line) => {
      logs.push(line);
      // For whoever looks for a test's fault: TEST_LOG=file.
      if (process.env.TEST_LOG) appendFileSync(process.env.TEST_LOG, `${line}\n`);
    },
    further: (options.services ?? SERVICES).includes("vision") ? [callerWorker] : [],
  });
  takeDown.push(async () => {
    await workers.stop();
    rmSync(folder, { recursive: true, force: true });
  });
  const database = openDatabase(new Secret(urls.marketsWriter), PATIENT);
  // A bucket is reached through a service that is bound to it.
  const runs = (service: ServiceName) => (options.services ?? SERVICES).includes(service);
  const bucket = (runs("console") ? await workers.bucket() : undefined) as Bucket;
  const media = (runs("vision") ? await workers.media() : undefined) as MediaBucket;
  const visionDatabase = openDatabase(new Secret(urls.visionWriter), PATIENT);
  if (!options.databases) {
    if (bucket) await adoptBucket({ database, bucket });
    if (media) await adoptBucket({ database: visionDatabase, bucket: media });
  }
  const pause = (milliseconds: number) =>
    new Promise<void>((done) => setTimeout(done, milliseconds));
  return {
    urls: workers.urls,
    tick: workers.tick,
    objects: (binding) => objectsOf(workers.ask, binding),
    evict: workers.evict,
    operator: operatorAt(workers.urls.console, operatorToken),
    operatorToken,
    databaseName: new URL(urls.marketsWriter).pathname.slice(1),
    database,
    owner: openDatabase(new Secret(byOwner(urls.marketsWriter))),
    graph: openDatabase(new Secret(urls.graphWriter)),
    bucket,
    s3Url: workers.s3Url,
    store: openStore({ database, bucket }),
    writer: { database, bucket, pause },
    visionDatabase,
    media,
    logs,
  };
}

/** Leaves only these schedules on, as if the others had been switched off before the first tick. */
export async function onlySchedules({ database }: Pick<World, "database">, names: string[]) {
  for (const { schedule } of schedulesOf(PIPELINES)) {
    if (names.includes(schedule.name)) continue;
    await switchSchedule(database, schedule.name, { enabled: false, lastTick: 0 });
  }
}

export const HOUR = 3_600_000;
export const DAY = 24 * HOUR;

/** More than files take that count days from now, and less than a hook may. */
const DAYS_REST = HOUR / 12;

/** Resolves once a day of UTC has that much time left: no file's days change in its middle. */
export async function dayWithTime(): Promise<void> {
  const rest = DAY - (systemClock() % DAY);
  if (rest < DAYS_REST) await new Promise((done) => setTimeout(done, rest));
}

/** Commits hourly values from `from` on as one vintage of `power.demand`; null is NaN. */
export function commitHours(
  world: Pick<World, "writer">,
  symbol: string,
  from: number,
  values: readonly (number | null)[],
  more: Partial<CommitRequest> = {},
) {
  return commit(world.writer, {
    library: "power.demand",
    symbol,
    valueColumns: ["value"],
    rows: values.map((value, index) => ({
      datetime: from + index * HOUR,
      instrumentId: `power.demand.${symbol}`,
      values: [value ?? NaN],
    })),
    covered: { from, to: from + values.length * HOUR },
    reconstructed: false,
    sandbox: false,
    runId: crypto.randomUUID(),
    partition: "2026-01-01",
    sourceUrl: "https://api.eia.gov/v2/",
    ...more,
  });
}
