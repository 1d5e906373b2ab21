// Ingest on Node's side, for tests of the machinery: the real ledger and store on a database of its
// own, pipelines that the test decides, a clock it moves and a queue it empties.

import { drizzle } from "drizzle-orm/node-postgres";
import pg from "pg";
import { inject } from "vitest";
import { IDENTITY_KEY } from "../../edge/http/bucket-identity.ts";
import type { Database } from "../../edge/http/database.ts";
import { createLog } from "../../edge/http/log.ts";
import { superuser } from "../../edge/local/postgres.ts";
import { executeQueued } from "../../edge/markets/ingest/execute.ts";
import type { IngestParts } from "../../edge/markets/ingest/parts.ts";
import type { Pipeline } from "../../edge/markets/ingest/pipeline.ts";
import { openStore } from "../../edge/markets/store/store.ts";
import { createDatabases } from "./world.ts";

export interface Message {
  at: number;
  runId: string;
}

export interface ScriptedIngest {
  parts: IngestParts;
  /** Epoch milliseconds; the test moves it. */
  now: number;
  queue: Message[];
  client: pg.Pool;
  /** Executes what is due; returns how many messages there were. */
  consume(): Promise<number>;
  /** Deletes what checks know of instruments, as where no check came to its end. */
  forgetInstruments(): Promise<void>;
  /** Empties the database. */
  reset(): Promise<void>;
  close(): Promise<void>;
}

export async function scriptedIngest(options: {
  pipelines: readonly Pipeline[];
  now: number;
  leaseMs?: number;
}): Promise<ScriptedIngest> {
  const urls = await createDatabases();
  const { port, credentials } = inject("postgres");
  const url = new URL(urls.marketsWriter);
  url.port = String(port);
  // Straight to Postgres: thousands of statements go through here, and none needs Neon's batches.
  const client = new pg.Pool({
    connectionString: url.href,
    max: 4,
    // Nothing here outlives the test: no statement waits for the disk.
    options: "-c synchronous_commit=off",
  });
  const owner = new pg.Pool(superuser(port, credentials.superuser, url.pathname.slice(1)));
  // Drizzle's driver for pg answers as Neon's does, but for batches, which nothing here uses.
  const database = drizzle({ client }) as unknown as Database;
  const refuse = () => Promise.reject(new Error("no object here"));
  const verbs = {
    get: async () => null,
    list: async () => ({ objects: [], truncated: false }),
    put: (key: string) => (key === IDENTITY_KEY ? Promise.resolve() : refuse()),
    delete: refuse,
  };
  // No test here keeps rows in objects, so that no more of a bucket is asked for.
  const bucket = verbs as unknown as IngestParts["bucket"];
  const log = { ...createLog("test"), info() {}, warning() {}, error() {} };
  const ingest: ScriptedIngest = {
    now: options.now,
    queue: [],
    client,
    parts: {
      pipelines: options.pipelines,
      database,
      bucket,
      graph: null,
      log,
      store: openStore({ database, bucket }),
      // Scripted pipelines ask the fetcher for its pauses, and no provider for its access.
      upstreams: { fetcher: { pause: async () => {} } } as unknown as IngestParts["upstreams"],
      clock: () => ingest.now,
      leaseMs: options.leaseMs ?? 60_000,
      pause: async () => {},
      send: async (_job, runIds, delaySeconds = 0) => {
        for (const runId of runIds) {
          ingest.queue.push({ at: ingest.now + delaySeconds * 1_000, runId });
        }
      },
    },
    consume: async () => {
      const due = ingest.queue.filter(({ at }) => at <= ingest.now);
      ingest.queue = ingest.queue.filter(({ at }) => at > ingest.now);
      for (const { runId } of due) await executeQueued(ingest.parts, runId);
      return due.length;
    },
    forgetInstruments: async () => {
      await owner.query("TRUNCATE instrument");
    },
    reset: async () => {
      ingest.queue = [];
      await owner.query(`TRUNCATE alert, housekeeping, run_event, tick, schedule, refusal, run, backfill, vintage,
        ingest_memo, segment, series CASCADE`);
    },
    close: async () => {
      await client.end();
      await owner.end();
    },
  };
  return ingest;
}
