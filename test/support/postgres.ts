// One Postgres with its Neon-compatible endpoint for a whole run of tests or benchmarks; whoever
// uses it makes databases of their own in it.

import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { prepareRoles } from "../../edge/local/databases.ts";
import { startNeonEndpoint } from "../../edge/local/neon.ts";
import { startPostgres } from "../../edge/local/postgres.ts";
import { type Credentials, prepareState, stateAt } from "../../edge/local/state.ts";

export interface SharedPostgres {
  port: number;
  endpointPort: number;
  credentials: Credentials;
}

declare module "vitest" {
  interface ProvidedContext {
    postgres: SharedPostgres;
  }
}

/** A new folder that the database's own user may pass through, which it must where root runs it. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "vantage-test-"));
  chmodSync(folder, 0o711);
  return folder;
}

/** Starts it in a folder of its own; `stop` leaves nothing behind. */
export async function startSharedPostgres() {
  const state = stateAt(temporaryFolder());
  const { credentials } = prepareState(state);
  const postgres = await startPostgres({
    dataDir: state.postgres,
    logFile: join(state.logs, "postgres.log"),
    password: credentials.superuser,
  });
  await prepareRoles(postgres.port, credentials);
  const endpoint = await startNeonEndpoint(postgres.port);
  const shared: SharedPostgres = {
    port: postgres.port,
    endpointPort: endpoint.port,
    credentials,
  };
  const stop = async () => {
    await endpoint.close();
    await postgres.stop();
    rmSync(state.dir, { recursive: true, force: true });
  };
  return { shared, state, stop };
}

export default async function setup(project: TestProject) {
  const { shared, stop } = await startSharedPostgres();
  project.provide("postgres", shared);
  return stop;
}
