// Whether people who were let in once still may be: what outlives a request asks again.

import { type SQL, sql } from "drizzle-orm";
import type { Database } from "../../http/database.ts";

/** Who was let in to something of a workspace. */
export interface Guest {
  accountId: string;
  /** Family of the refresh token of the session that let them in, or the id of an API token. */
  session: string;
  workspaceId: string;
}

/** Whether a session of an account has not ended. */
export const sessionStands = (session: SQL, accountId: SQL): SQL => sql`
  (SELECT bool_and(revoked_at IS NULL) FROM refresh_token
    WHERE family = ${session} AND account_id = ${accountId})`;

/** Those whose session or API token has not ended and who are members of the workspace still. */
export async function stillWelcome<One extends Guest>(
  database: Database,
  guests: readonly One[],
): Promise<One[]> {
  const { rows } = await database.execute<{ index: number }>(sql`
    SELECT (g.n - 1)::int AS index
      FROM jsonb_array_elements(${JSON.stringify(guests)}::jsonb) WITH ORDINALITY AS g(one, n)
      JOIN membership m ON m.account_id = (g.one->>'accountId')::uuid
       AND m.workspace_id = (g.one->>'workspaceId')::uuid
     WHERE ${sessionStands(sql`(g.one->>'session')::uuid`, sql`m.account_id`)}
        OR EXISTS (SELECT FROM api_token t WHERE t.id = (g.one->>'session')::uuid
          AND t.account_id = m.account_id AND t.expires_at > now()
          AND (t.workspace_id IS NULL OR t.workspace_id = m.workspace_id))`);
  return rows.flatMap(({ index }) => guests[index] ?? []);
}
