// What ingest works with, opened once per environment by the console and by tests.

import type { Database } from "../../http/database.ts";
import type { Log } from "../../http/log.ts";
import type { WriterParts } from "../store/objects.ts";
import type { Store } from "../store/store.ts";
import type { Pipeline } from "./pipeline.ts";
import type { Upstreams } from "./providers.ts";

/** The store with its writer's parts, the pipelines, their providers and their queues. */
export interface IngestParts extends WriterParts {
  pipelines: readonly Pipeline[];
  store: Store;
  /** The catalog graph, where there is one. */
  graph: Database | null;
  upstreams: Upstreams;
  log: Log;
  /** Epoch milliseconds. */
  clock: () => number;
  /** How long a process may be silent before its execution is rescued. */
  leaseMs: number;
  /** Puts executions on their job's queue, to be delivered after the delay. */
  send: (job: string, runIds: readonly string[], delaySeconds?: number) => Promise<void>;
}
