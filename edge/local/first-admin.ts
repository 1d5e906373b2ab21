// How a deployed vision service gets its first administrator: by a token that is shown once, so
// that nobody on a public address becomes it by coming first.

import { randomBytes } from "node:crypto";
import pg from "pg";

/**
 * The token with which the first admin registers, after `keep` made it a secret of the service;
 * null where there is an admin of the default workspace.
 */
export async function firstAdminToken(
  connection: pg.ClientConfig,
  keep: (token: string) => void,
): Promise<string | null> {
  const client = new pg.Client(connection);
  await client.connect();
  try {
    const { rowCount } = await client.query(`
      SELECT FROM membership JOIN workspace ON workspace.id = workspace_id
       WHERE is_default AND role = 'admin' LIMIT 1`);
    if (rowCount) return null;
  } finally {
    await client.end();
  }
  const token = randomBytes(24).toString("base64url");
  keep(token);
  return token;
}
