// How a deployed vision service gets its first administrator: by a token that is shown once, so
// that nobody on a public address becomes it by coming first.

import { randomBytes } from "node:crypto";
import pg from "pg";

/** A token with which the first admin registers. */
export const newToken = (): string => randomBytes(24).toString("base64url");

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
