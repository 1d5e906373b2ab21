// What the embedded Postgres holds: three databases, a role per service with no more rights than it
// needs, and the migrations. Everything here may run again at every start.

import pg from "pg";
import { migrateDatabase } from "./migrations.ts";
import { superuser } from "./postgres.ts";
import { type DatabaseNames, grantRights } from "./rights.ts";
import type { Credentials } from "./state.ts";

/** Database URLs of the services, pointing at a Neon-compatible endpoint. */
export interface DatabaseUrls {
  marketsReader: string;
  marketsWriter: string;
  visionWriter: string;
  graphReader: string;
  graphWriter: string;
}

/** What the databases of a stack are called. */
export const NAMES: DatabaseNames = { markets: "markets", vision: "vision", graph: "graph" };
const ROLES = {
  marketsReader: "markets_reader",
  marketsWriter: "markets_writer",
  visionWriter: "vision_writer",
  graphReader: "graph_reader",
  graphWriter: "graph_writer",
};

/** Creates the roles, or gives them the saved passwords again. */
export async function prepareRoles(postgresPort: number, credentials: Credentials) {
  await withClient(superuser(postgresPort, credentials.superuser), async (client) => {
    for (const [key, role] of Object.entries(ROLES) as [keyof typeof ROLES, string][]) {
      const { rowCount } = await client.query("SELECT FROM pg_roles WHERE rolname = $1", [role]);
      const password = pg.escapeLiteral(credentials[key]);
      await client.query(
        `${rowCount ? "ALTER" : "CREATE"} ROLE ${role} LOGIN PASSWORD ${password}`,
      );
    }
  });
}

/** Creates the databases that are not there. */
export async function createDatabases(
  postgresPort: number,
  { superuser: password }: Credentials,
  names = NAMES,
) {
  await withClient(superuser(postgresPort, password), async (client) => {
    await createDatabase(client, names.markets);
    await createDatabase(client, names.vision);
    await createDatabase(client, names.graph);
  });
}

/** Creates the databases and applies the migrations. */
export async function prepareDatabases(
  postgresPort: number,
  credentials: Credentials,
  names = NAMES,
) {
  const connect = (database?: string) => superuser(postgresPort, credentials.superuser, database);
  await createDatabases(postgresPort, credentials, names);
  const { marketsReader, marketsWriter, visionWriter, graphReader, graphWriter } = ROLES;
  await migrateDatabase("markets", connect(names.markets));
  const ofMarkets = { reader: marketsReader, writer: marketsWriter };
  await grantRights(connect(names.markets), "markets", ofMarkets);
  await migrateDatabase("vision", connect(names.vision));
  await grantRights(connect(names.vision), "vision", { writer: visionWriter });
  await migrateDatabase("graph", connect(names.graph));
  const ofGraph = { reader: graphReader, writer: graphWriter };
  await grantRights(connect(names.graph), "graph", ofGraph);
}

async function createDatabase(client: pg.Client, name: string) {
  const { rowCount } = await client.query("SELECT FROM pg_database WHERE datname = $1", [name]);
  if (!rowCount) await client.query(`CREATE DATABASE ${pg.escapeIdentifier(name)}`);
}

/** The services' connection strings through an endpoint. */
export function databaseUrls(
  endpointPort: number,
  credentials: Credentials,
  names = NAMES,
): DatabaseUrls {
  const url = (key: keyof typeof ROLES, database: string) =>
    `postgresql://${ROLES[key]}:${credentials[key]}@127.0.0.1:${endpointPort}/${database}`;
  return {
    marketsReader: url("marketsReader", names.markets),
    marketsWriter: url("marketsWriter", names.markets),
    visionWriter: url("visionWriter", names.vision),
    graphReader: url("graphReader", names.graph),
    graphWriter: url("graphWriter", names.graph),
  };
}

/**
 * Frees every running run and makes queued ones due, but for those that a provider asked to wait
 * long. Only the stack that holds the state folder's lock may do so, when no other process can be
 * executing them. A stop of the stack is no failed attempt; a run whose process died under it is
 * one, or a run that kills its process would be tried for ever.
 */
export async function releaseRuns(
  postgresPort: number,
  credentials: Credentials,
  { countAttempt }: { countAttempt: boolean },
) {
  await withClient(
    superuser(postgresPort, credentials.superuser, NAMES.markets),
    async (client) => {
      await client.query(
        `UPDATE run SET lease_until = '-infinity', attempts_max = attempts_max + $1::int
        WHERE state = 'running'`,
        [countAttempt ? 0 : 1],
      );
      await client.query(`UPDATE run SET available_at = '-infinity'
      WHERE state = 'queued' AND available_at < now() + interval '5 minutes'`);
    },
  );
}

/** What kind of data the store holds; the two never mix in one series. */
export async function heldData(
  postgresPort: number,
  credentials: Credentials,
): Promise<"none" | "sandbox" | "real"> {
  const connection = superuser(postgresPort, credentials.superuser, NAMES.markets);
  return withClient(connection, async (client) => {
    const { rows } = await client.query<{ sandbox: boolean }>("SELECT sandbox FROM series LIMIT 1");
    if (!rows[0]) return "none";
    return rows[0].sandbox ? "sandbox" : "real";
  });
}

async function withClient<Result>(
  config: pg.ClientConfig,
  use: (client: pg.Client) => Promise<Result>,
): Promise<Result> {
  const client = new pg.Client(config);
  await client.connect();
  try {
    return await use(client);
  } finally {
    await client.end();
  }
}
