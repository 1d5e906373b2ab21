// The opened read API: what its routes ask, built once per environment.

import { systemClock } from "../../shared/time.ts";
import { assertReader, HEALTH_MS_MAX, openDatabase } from "../http/database.ts";
import type { Log } from "../http/log.ts";
import { type Config, corsProblem, parseConfig } from "./config.ts";
import { type CatalogGraph, openGraph } from "./graph.ts";
import { Slots } from "./slots.ts";
import { HeldRowGroups } from "./store/held-row-groups.ts";
import { overview } from "./store/listings.ts";
import { openStore, type Store } from "./store/store.ts";

/** What the routes need, opened once per environment. */
export interface ReadApi {
  config: Config;
  store: Store;
  /** The store's overview over a connection that gives up early, for the health route. */
  overview: Store["overview"];
  graph: CatalogGraph;
  /** Fails where the database's role may write; asked once while it holds. */
  assertReader(): Promise<void>;
  /** Bounds how many large reads the isolate works on at once. */
  largeReads: Slots;
  /** Tells this database's answers from another's in the edge cache. */
  cacheScope: string;
}

/** Large reads at once per isolate, and how long one may wait or be silent, milliseconds. */
const LARGE_READS = {
  slotsMax: 2,
  largeRows: 100_000,
  waitMs: 10_000,
  leaseMs: 30_000,
  clock: systemClock,
};

/** Bytes of decoded row groups an isolate keeps for short reads: about 100 of one value column. */
const HELD_BYTES_MAX = 8 * 1024 * 1024;

/** Does a check until it passes, for whoever asks; those who ask meanwhile wait for the same. */
function onceItHolds(check: () => Promise<void>): () => Promise<void> {
  let asked: Promise<void> | null = null;
  return () => {
    asked ??= check().catch((thrown: unknown) => {
      asked = null;
      throw thrown;
    });
    return asked;
  };
}

/** Opens the read API from its environment; fails with `bad_configuration`. */
export function openReadApi(environment: object, log: Log): ReadApi {
  const config = parseConfig(environment);
  if (!config.SERVICE_READ_API_KEY) {
    log.warning("open_api", { detail: "SERVICE_READ_API_KEY is unset: the read API is open" });
  }
  const { SERVICE_CORS_ORIGINS } = environment as { SERVICE_CORS_ORIGINS?: string };
  const refused = corsProblem(SERVICE_CORS_ORIGINS ?? "");
  if (refused) log.warning("cors_origin_refused", { detail: refused });
  const database = openDatabase(config.DATABASE_URL);
  const healthDatabase = openDatabase(config.DATABASE_URL, { timeoutMs: HEALTH_MS_MAX });
  const { host, pathname } = new URL(config.DATABASE_URL.reveal());
  return {
    config,
    graph: openGraph(config.GRAPH_DATABASE_URL),
    store: openStore(
      { database, bucket: config.STORE, held: new HeldRowGroups(HELD_BYTES_MAX) },
      { settledAfterMs: config.SERVICE_SETTLED_AFTER_SECONDS * 1_000 },
    ),
    overview: () => overview(healthDatabase),
    assertReader: onceItHolds(() => assertReader(healthDatabase)),
    largeReads: new Slots(LARGE_READS),
    cacheScope: `${host}${pathname}`,
  };
}
