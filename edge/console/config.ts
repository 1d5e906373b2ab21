// Configuration of the console: the Worker that owns everything that writes to the markets store.

import type { Fetcher, Queue, R2Bucket } from "@cloudflare/workers-types";
import { z } from "zod";
import {
  binding,
  databaseUrl,
  optionalDatabaseUrl,
  optionalSecret,
  parseEnvironment,
  secret,
} from "../http/config.ts";

/** A message of an ingest queue: the run to execute. */
export interface RunMessage {
  run_id: string;
}

const seconds = (fallback: number) =>
  z.coerce
    .number({ error: "must be a number of seconds" })
    .int("must be whole seconds")
    .min(1, "must be at least 1")
    .default(fallback);

const Environment = z.object({
  /** Postgres connection string of the role that writes the catalog and the ledger. Required. */
  DATABASE_URL: databaseUrl(),
  /** The bucket of immutable segments. Required binding. */
  STORE: binding<R2Bucket>(),
  /** The catalog graph's database, a role that writes it. Unset: runs record nothing there. */
  GRAPH_DATABASE_URL: optionalDatabaseUrl(),
  /**
   * Runs of each provider; a queue for each, so that its concurrency is our politeness. Required
   * bindings.
   */
  INGEST_EIA: binding<Queue<RunMessage>>(),
  INGEST_ERCOT: binding<Queue<RunMessage>>(),
  INGEST_NOAA: binding<Queue<RunMessage>>(),
  INGEST_TWELVE_DATA: binding<Queue<RunMessage>>(),
  /** Bearer token of the operator API. Required, no default. */
  OPERATOR_TOKEN: secret(),
  /** The read API's service, which the console shows series from. Unset: it shows none. */
  MARKETS: binding<Fetcher>().optional(),
  /** The read API's key, where it asks for one. */
  SERVICE_READ_API_KEY: optionalSecret(),
  /** Where consumers reach the read API: the address in the snippets that the console shows. */
  READ_API_URL: z.url("must be a URL").default("http://localhost:8000"),
  /** EIA API key. With it the real EIA answers; without it and without a sandbox, EIA runs fail. */
  EIA_API_KEY: optionalSecret(),
  /** Twelve Data API key. With it the real one answers; else as with EIA's. */
  TWELVE_DATA_API_KEY: optionalSecret(),
  /**
   * Login and subscription key of ERCOT's public API: all three, or none. Without them the sandbox
   * answers, and without a sandbox ERCOT's public document lists, which need no login.
   */
  ERCOT_USERNAME: optionalSecret(),
  ERCOT_PASSWORD: optionalSecret(),
  ERCOT_SUBSCRIPTION_KEY: optionalSecret(),
  /** Base URL of the sandbox upstream, for providers whose credential is not set. Unset: none. */
  SANDBOX_URL: z.url("must be a URL").optional(),
  /** How long a silent run stays its process's own before the minute cron frees it. */
  INGEST_LEASE_SECONDS: seconds(60),
});

/** The console's configuration, parsed. */
export type Config = z.output<typeof Environment>;

/** Fails with `bad_configuration` naming every bad key. */
export const parseConfig = (environment: object): Config =>
  parseEnvironment(Environment, environment);
