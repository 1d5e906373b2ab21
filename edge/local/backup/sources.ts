// What is backed up, and what a backup is restored into: each service's database and bucket.

import { existsSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { S3Client } from "@aws-sdk/client-s3";
import type { SQL } from "drizzle-orm";
import type pg from "pg";
import { NAMED_OBJECTS as OF_MARKETS } from "../../markets/store/housekeeping.ts";
import { NAMED_OBJECTS as OF_VISION } from "../../vision/base/discard.ts";
import { createDatabases, NAMES, prepareRoles } from "../databases.ts";
import type { DatabaseName } from "../migrations.ts";
import { startPostgres, superuser } from "../postgres.ts";
import { type Stack, startStack } from "../stack.ts";
import { type Credentials, lockHolder, lockState, prepareState, type State } from "../state.ts";
import { S3Bucket } from "./s3-bucket.ts";

/** A service's database, and the bucket with the objects that it names. */
export interface Source {
  name: DatabaseName;
  /** As the owner of its tables. */
  connection: pg.ClientConfig;
  /** Null of the catalog graph, which names no objects. */
  bucket: { objects: S3Bucket; named: SQL } | null;
}

/** The query of the objects that a service's database names. */
const NAMED = { markets: OF_MARKETS, vision: OF_VISION };
const BUCKETS = { markets: "vantage-markets", vision: "vantage-vision" };

/**
 * The services that the environment names: `MARKETS_MIGRATE_URL` with `MARKETS_S3_URL`, the same of
 * VISION, `GRAPH_MIGRATE_URL`, and `S3_ACCESS_KEY_ID` with `S3_SECRET_ACCESS_KEY`. Empty where it
 * names none; fails naming a key that lacks beside another.
 */
export function deployedSources(environment: NodeJS.ProcessEnv): Source[] {
  const sources: Source[] = [];
  for (const name of ["markets", "vision"] as const) {
    const prefix = name.toUpperCase();
    const connectionString = environment[`${prefix}_MIGRATE_URL`];
    if (!connectionString) continue;
    const keys = [`${prefix}_S3_URL`, "S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY"];
    const [url = "", accessKeyId = "", secretAccessKey = ""] = keys.map(
      (key) => environment[key] || undefined,
    );
    const missing = keys.filter((key) => !environment[key]);
    if (missing.length > 0) {
      throw new Error(`${missing.join(", ")}: required beside ${prefix}_MIGRATE_URL`);
    }
    const { origin, pathname } = new URL(url);
    const bucket = bucketAt(origin, pathname.replace(/^\//, ""), { accessKeyId, secretAccessKey });
    const objects = { objects: bucket, named: NAMED[name] };
    sources.push({ name, connection: { connectionString }, bucket: objects });
  }
  const graph = environment.GRAPH_MIGRATE_URL;
  if (graph) sources.push({ name: "graph", connection: { connectionString: graph }, bucket: null });
  return sources;
}

function bucketAt(
  endpoint: string,
  name: string,
  credentials: { accessKeyId: string; secretAccessKey: string },
): S3Bucket {
  const client = new S3Client({
    endpoint,
    region: "auto",
    forcePathStyle: true,
    credentials,
    requestChecksumCalculation: "WHEN_REQUIRED",
    responseChecksumValidation: "WHEN_REQUIRED",
  });
  return new S3Bucket(client, name);
}

/** Where the parts of a local stack are reached. */
interface LocalParts {
  postgresPort: number;
  s3Url: string;
}

/** The databases and buckets of a stack on this machine. */
export function localSources({ postgresPort, s3Url }: LocalParts, credentials: Credentials) {
  const keys = {
    accessKeyId: credentials.s3AccessKeyId,
    secretAccessKey: credentials.s3SecretAccessKey,
  };
  return (["markets", "vision", "graph"] as const).map((name): Source => {
    const connection = superuser(postgresPort, credentials.superuser, NAMES[name]);
    if (name === "graph") return { name, connection, bucket: null };
    const objects = bucketAt(s3Url, BUCKETS[name], keys);
    return { name, connection, bucket: { objects, named: NAMED[name] } };
  });
}

/**
 * Works with a state folder's stack: the one that runs, or else one that runs for it alone, which
 * brings the databases to this release's schema.
 */
export async function withLocal<Result>(
  state: State,
  work: (sources: Source[]) => Promise<Result>,
): Promise<Result> {
  if (!existsSync(state.postgres)) throw new Error(`${state.dir} holds no stack's data`);
  const { credentials } = prepareState(state);
  if (lockHolder(state) && existsSync(state.running)) {
    const parts = JSON.parse(readFileSync(state.running, "utf8")) as LocalParts;
    return work(localSources(parts, credentials));
  }
  const stack = await startQuietly(state);
  try {
    return await work(localSources(stack, credentials));
  } finally {
    await stack.stop();
  }
}

/**
 * Fills a new state folder: `fillDatabases` works with databases that nothing was migrated into,
 * `fillBuckets` with the stack that then runs on them.
 */
export async function fillLocal(
  state: State,
  fillDatabases: (connectionOf: (name: DatabaseName) => pg.ClientConfig) => Promise<void>,
  fillBuckets: (sources: Source[]) => Promise<void>,
): Promise<void> {
  if (existsSync(state.postgres)) {
    throw new Error(
      `${state.dir} holds a stack's data, and a restore never overwrites any: name a new folder ` +
        "with VANTAGE_STATE=…",
    );
  }
  const unlock = lockState(state);
  const { credentials } = prepareState(state);
  // What was filled in part must not be taken for a store.
  const undo = () => {
    for (const path of [state.postgres, state.workers])
      rmSync(path, { recursive: true, force: true });
  };
  const logFile = join(state.logs, "postgres.log");
  try {
    const postgres = await startPostgres({
      dataDir: state.postgres,
      logFile,
      password: credentials.superuser,
    });
    try {
      await prepareRoles(postgres.port, credentials);
      await createDatabases(postgres.port, credentials);
      await fillDatabases((name) => superuser(postgres.port, credentials.superuser, NAMES[name]));
    } finally {
      await postgres.stop();
    }
  } catch (thrown) {
    undo();
    throw thrown;
  } finally {
    unlock();
  }
  const stack = await startQuietly(state);
  try {
    await fillBuckets(localSources(stack, credentials));
  } catch (thrown) {
    await stack.stop();
    undo();
    throw thrown;
  }
  await stack.stop();
}

/** A stack that does nothing by itself: no cron, no node, ports that nobody knows. */
const startQuietly = (state: State): Promise<Stack> =>
  startStack({
    state,
    host: "127.0.0.1",
    ports: { markets: 0, console: 0, vision: 0 },
    sandbox: false,
    gpuNode: false,
    mayBeDegraded: true,
    environment: {},
    onStep: () => {},
    onTold: () => {},
    onServicesRestarted: () => {},
  });
