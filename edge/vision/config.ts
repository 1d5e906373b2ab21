// Configuration of the vision service.

import { z } from "zod";
import { databaseUrl, parseEnvironment } from "../http/config.ts";

const Environment = z.object({
  /** Postgres connection string of the vision database. Required, no default. */
  DATABASE_URL: databaseUrl(),
});

export type Config = z.output<typeof Environment>;

/** Fails with `bad_configuration` naming every bad key. */
export const parseConfig = (environment: object): Config =>
  parseEnvironment(Environment, environment);
