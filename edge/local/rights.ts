// What the services' database roles may do. None owns a table: what must not change, they have no
// right to change, whatever trigger stands before it besides.

import pg from "pg";

/** The names of the databases; each test world has its own. */
export interface DatabaseNames {
  markets: string;
  vision: string;
  graph: string;
}

/** The roles of a database; `reader` only reads. */
export interface Roles {
  reader?: string | undefined;
  writer: string;
}

/** Tables whose rows a writer may delete: collected objects, archived vintages, old journals. */
const DELETABLE = {
  markets: ["segment", "vintage", "run_event", "refusal", "alert", "discarded_object"],
  graph: [],
};

/**
 * Gives the roles their rights to the tables that are there, and to those of later migrations of
 * the same owner, and takes those away that an earlier release gave. The connection is the owner's.
 */
export async function grantRights(
  connection: pg.ClientConfig,
  database: keyof DatabaseNames,
  { reader, writer }: Roles,
): Promise<void> {
  const client = new pg.Client(connection);
  await client.connect();
  try {
    const names = {
      reader: reader && pg.escapeIdentifier(reader),
      writer: pg.escapeIdentifier(writer),
    };
    // One request, and so one transaction: no right is missing in between.
    await client.query(statementsOf(database, names).join(";\n"));
  } finally {
    await client.end();
  }
}

function statementsOf(database: keyof DatabaseNames, { reader, writer }: Roles): string[] {
  const readers = [reader, writer].filter(Boolean).join(", ");
  const common = [
    `GRANT USAGE ON SCHEMA public TO ${readers}`,
    `GRANT SELECT ON ALL TABLES IN SCHEMA public TO ${readers}`,
    `ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO ${readers}`,
  ];
  if (database === "vision") {
    return [
      ...common,
      `GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO ${writer}`,
      `ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT INSERT, UPDATE, DELETE ON TABLES TO ${writer}`,
      `GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO ${writer}`,
      `ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE ON SEQUENCES TO ${writer}`,
      // The log is added to; what is old enough goes by this function alone.
      `REVOKE UPDATE, DELETE, TRUNCATE ON audit_entry FROM ${writer}`,
      `GRANT EXECUTE ON FUNCTION forget_audit_entries TO ${writer}`,
      // Whoever makes backups says when: the service only looks whether they are made.
      `REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON database_backup FROM ${writer}`,
    ];
  }
  const deletable = DELETABLE[database];
  return [
    ...common,
    `GRANT INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO ${writer}`,
    `ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT INSERT, UPDATE ON TABLES TO ${writer}`,
    ...(deletable.length > 0 ? [`GRANT DELETE ON ${deletable.join(", ")} TO ${writer}`] : []),
    // Nothing changes of a vintage but where its rows lie: its knowledge time never does.
    ...(database === "markets"
      ? [`REVOKE UPDATE ON vintage FROM ${writer}`, `GRANT UPDATE (inline) ON vintage TO ${writer}`]
      : []),
  ];
}
