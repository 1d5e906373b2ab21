// Whether a deployed vision service has its first administrator. Until then each deployment makes a
// token that registers one, so that a public address gives the role to no first caller.

import pg from "pg";

/** Whether vision's default workspace has an admin. */
export async function hasAdmin(connection: pg.ClientConfig): Promise<boolean> {
  const client = new pg.Client(connection);
  await client.connect();
  try {
    const { rowCount } = await client.query(`
      SELECT FROM membership JOIN workspace ON workspace.id = workspace_id
       WHERE is_default AND role = 'admin' LIMIT 1`);
    return rowCount !== 0;
  } finally {
    await client.end();
  }
}
