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
} from "../http/config.ts";

const ORIGIN = /^https?:\/\/[^/\s,]+$/;

const Environment = z.object({
  /** Postgres connection string of a role that may only read. Required, no default. */
  DATABASE_URL: databaseUrl(),
  /** The bucket of immutable segments. Required binding. */
  STORE: binding<R2Bucket>(),
  /** The catalog graph's database, a role that may only read. Unset: graph routes answer 503. */
  GRAPH_DATABASE_URL: optionalDatabaseUrl(),
  /** When set, every data endpoint requires it in X-API-Key. Unset: the API is open. */
  SERVICE_READ_API_KEY: optionalSecret(),
  /** Comma-separated origins allowed to GET. Unset or empty: no cross-origin access. */
  SERVICE_CORS_ORIGINS: z
    .string()
    .default("")
    .transform((list) =>
      list
        .split(",")
        .map((origin) => origin.trim().replace(/\/$/, ""))
        .filter(Boolean),
    )
    .refine((origins) => !origins.includes("*"), {
      error: "* is not taken: name each origin, such as https://app.example.com",
      abort: true,
    })
    .refine((origins) => origins.every((origin) => ORIGIN.test(origin)), {
      error: "must be a comma-separated list of origins such as https://app.example.com",
    }),
  /** Row cap of an unbounded /series read. */
  SERVICE_SERIES_MAX_ROWS: whole(1).default(500_000),
});

export type Config = z.output<typeof Environment>;

/** Fails with `bad_configuration` naming every bad key. */
export const parseConfig = (environment: object): Config =>
  parseEnvironment(Environment, environment);
