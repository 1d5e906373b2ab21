// What all test files with a world share, made once a run: a Postgres with a migrated template of
// each database, and the bundles of the services.

import type { TestProject } from "vitest/node";
import { type BuiltService, buildServices, WORKERS } from "../../edge/local/workers.ts";
import { prepareTemplates, type SharedPostgres, startSharedPostgres } from "./postgres.ts";

declare module "vitest" {
  interface ProvidedContext {
    postgres: SharedPostgres;
    services: readonly BuiltService[];
  }
}

/** Nothing in this Postgres outlives the run, so no write waits for the disk. */
const NOT_DURABLE = [
  "fsync=off",
  "synchronous_commit=off",
  "full_page_writes=off",
  "wal_level=minimal",
  "max_wal_senders=0",
  "max_wal_size=4GB",
  "checkpoint_timeout=1h",
  // Of three worlds at once and more, each with a pool for every role.
  "max_connections=200",
];

export default async function setup(project: TestProject) {
  const [postgres, services] = await Promise.all([
    startSharedPostgres(NOT_DURABLE).then(async (started) => {
      await prepareTemplates(started.shared);
      return started;
    }),
    buildServices(WORKERS),
  ]);
  project.provide("postgres", postgres.shared);
  project.provide("services", JSON.parse(JSON.stringify(services)));
  return () => postgres.stop();
}
