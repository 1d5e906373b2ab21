// Configuration of the read API. Spec names are law: SERVICE_READ_API_KEY, SERVICE_CORS_ORIGINS,
// SERVICE_SERIES_MAX_ROWS.

import type { R2Bucket } from "@cloudflare/workers-types";
import { z } from "zod";
import { whole } from "../../shared/scalars.ts";
import {
  binding,
  databaseUrl,
  optionalDatabaseUrl,
  optionalSecret,
  parseEnvironment,
  truth,
} from "../http/config.ts";

/** The entries of `SERVICE_CORS_ORIGINS`, each with its origin, or null where it is none. */
function* entriesOf(list: string): Generator<[entry: string, origin: string | null]> {
  for (const text of list.split(",")) {
    const entry = text.trim();
    const url = URL.parse(entry);
    const isOrigin =
      url !== null &&
      /^https?:$/.test(url.protocol) &&
      !url.hostname.includes("*") &&
      url.href === `${url.origin}/`;
    if (entry !== "") yield [entry, isOrigin ? url.origin : null];
  }
}

/** What is wrong with `SERVICE_CORS_ORIGINS`, and what to write instead; null: nothing is. */
export function corsProblem(list: string): string | null {
  const refused = [...entriesOf(list)].flatMap(([, origin], index) => (origin ? [] : [index + 1]));
  if (refused.length === 0) return null;
  // An entry may be an address with a password in it: it is named by its place.
  return (
    `SERVICE_CORS_ORIGINS: no origin at place ${refused.join(" and ")} of the list. Write each ` +
    "origin in full, such as https://app.example.com,http://localhost:5173; * is not taken"
  );
}

/** Every key that the service reads. */
export const Environment = z.object({
  /** Postgres connection string of a role that may only read. Required, no default. */
  DATABASE_URL: databaseUrl(),
  /** The bucket of immutable segments. Required binding. */
  STORE: binding<R2Bucket>(),
  /** The catalog graph's database, a role that may only read. Unset: graph routes answer 503. */
  GRAPH_DATABASE_URL: optionalDatabaseUrl(),
  /** When set, every data endpoint requires it in X-API-Key. Unset: the API is open. */
  SERVICE_READ_API_KEY: optionalSecret(),
  /**
   * Comma-separated origins allowed to GET. Unset: no cross-origin access. An entry that is not an
   * origin is ignored; `corsProblem` gives its place in the list.
   */
  SERVICE_CORS_ORIGINS: z
    .string()
    .default("")
    .transform((list) => [...entriesOf(list)].flatMap(([, origin]) => origin ?? [])),
  /** `true`: requests that succeed are logged too. Default: those that fail alone. */
  LOG_REQUESTS: truth(),
  /**
   * Host name under which the edge cache keeps answers: the service's own domain, since Cloudflare
   * advises against others. Default: a name that no host has, for where there is no domain.
   */
  CACHE_HOST: z
    .string()
    .regex(/^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/, "must be a host name")
    .default("cache.invalid"),
  /**
   * Seconds after which an `as_of` is settled: nothing can become known at it any more, and answers
   * as of it are immutable. More than a statement may take, which is 10, and than clocks differ.
   */
  SERVICE_SETTLED_AFTER_SECONDS: whole(30, 86_400).default(120),
  /** Row cap of an unbounded /series read. */
  SERVICE_SERIES_MAX_ROWS: whole(1).default(500_000),
});

export type Config = z.output<typeof Environment>;

/** Fails with `bad_configuration` naming every bad key. */
export const parseConfig = (environment: object): Config =>
  parseEnvironment(Environment, environment);
