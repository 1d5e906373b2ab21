// Whether a deployed vision service has its first administrator. Until then each deployment makes a
// token that registers one, so that a public address gives the role to no first caller.

import type pg from "pg";

/** Whether vision's default workspace has an admin; false before its tables are there. */
export async function hasAdmin(client: Pick<pg.Client, "query">): Promise<boolean> {
  const { rows } = await client.query("SELECT to_regclass('membership') IS NOT NULL AS migrated");
  if (!rows[0].migrated) return false;
  const { rowCount } = await client.query(`
    SELECT FROM membership JOIN workspace ON workspace.id = workspace_id
     WHERE is_default AND role = 'admin' LIMIT 1`);
  return rowCount !== 0;
}
