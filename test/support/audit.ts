// The audit log as tests read it, and a way to the database that no role of ours has.

import { sql } from "drizzle-orm";
import pg from "pg";
import { inject } from "vitest";
import { superuser } from "../../edge/local/postgres.ts";
import type { AuditEntry } from "../../edge/vision/auth/audit.ts";
import type { World } from "./world.ts";

/** A page of `GET /admin/audit`. */
export interface AuditPage {
  items: AuditEntry[];
  next: number | null;
}

/** A connection to a world's vision database as its superuser; to be ended. */
export async function rootOf({
  visionDatabase,
}: Pick<World, "visionDatabase">): Promise<pg.Client> {
  const { rows } = await visionDatabase.execute<{ database: string }>(
    sql`SELECT current_database() AS database`,
  );
  const { port, credentials } = inject("postgres");
  const database = rows[0]?.database;
  const root = new pg.Client({ ...superuser(port, credentials.superuser), database });
  await root.connect();
  return root;
}
