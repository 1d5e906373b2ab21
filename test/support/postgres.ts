// One Postgres with its Neon-compatible endpoint for a whole run of tests or benchmarks; whoever
// uses it makes databases of their own in it.

import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { prepareDatabases, prepareRoles } from "../../edge/local/databases.ts";
import { limitStatements } from "../../edge/local/migrations.ts";
import { startNeonEndpoint } from "../../edge/local/neon.ts";
import { startPostgres, superuser } from "../../edge/local/postgres.ts";
import type { DatabaseNames } from "../../edge/local/rights.ts";
import { type Credentials, prepareState, stateAt } from "../../edge/local/state.ts";

export interface SharedPostgres {
  port: number;
  endpointPort: number;
  credentials: Credentials;
}

/** A new folder that the database's own user may pass through, which it must where root runs it. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "vantage-test-"));
  chmodSync(folder, 0o711);
  return folder;
}

/** Starts it in a folder of its own; `stop` leaves nothing behind. */
export async function startSharedPostgres(settings: readonly string[] = []) {
  const state = stateAt(temporaryFolder());
  const { credentials } = prepareState(state);
  const postgres = await startPostgres({
    dataDir: state.postgres,
    logFile: join(state.logs, "postgres.log"),
    password: credentials.superuser,
    settings,
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

const TEMPLATES: DatabaseNames = {
  markets: "template_markets",
  vision: "template_vision",
  graph: "template_graph",
};

/** Migrates a database of each service, for `copyDatabases` to copy. */
export const prepareTemplates = ({ port, credentials }: SharedPostgres) =>
  prepareDatabases(port, credentials, TEMPLATES);

/** New databases of these names: migrated, empty, with the rights of the services' roles. */
export async function copyDatabases({ port, credentials }: SharedPostgres, names: DatabaseNames) {
  const client = new pg.Client(superuser(port, credentials.superuser));
  await client.connect();
  try {
    for (const [service, template] of Object.entries(TEMPLATES)) {
      const name = names[service as keyof DatabaseNames];
      await client.query(`CREATE DATABASE ${name} TEMPLATE ${template}`);
      // Settings of a database are not copied with it.
      await limitStatements(client, name);
    }
  } finally {
    await client.end();
  }
}
