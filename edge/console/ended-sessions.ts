// Sessions that ended by logout: their cookie would hold on, wherever a copy of it is.

import { sql } from "drizzle-orm";
import type { Database } from "../http/database.ts";
import type { Session } from "./session.ts";

/** Ends a session for good. */
export async function endSession(database: Database, { id }: Session): Promise<void> {
  await database.execute(sql`
    INSERT INTO ended_session (id) VALUES (${id}::uuid) ON CONFLICT (id) DO NOTHING`);
}

/** Whether a session was ended. */
export async function hasEnded(database: Database, { id }: Session): Promise<boolean> {
  const { rows } = await database.execute(sql`SELECT id FROM ended_session WHERE id = ${id}::uuid`);
  return rows.length > 0;
}
