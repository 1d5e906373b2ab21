// The log of what administrators did. Part of the vision database; the rest is `schema.ts`.

import { sql } from "drizzle-orm";
import { bigserial, check, index, jsonb, pgTable, text, uuid } from "drizzle-orm/pg-core";
import { instant } from "./schema.ts";

/**
 * Who did what to whom, written with the change itself. A trigger of the migrations refuses every
 * UPDATE, and the deletion of what is younger than 30 days. Ids refer to nothing: entries outlive
 * what they tell of.
 */
export const auditEntry = pgTable(
  "audit_entry",
  {
    id: bigserial("id", { mode: "number" }).primaryKey(),
    at: instant("at").notNull().defaultNow(),
    /** The account; null where the service itself did it. */
    actorId: uuid("actor_id"),
    /** What the actor was at that time: an operator is an admin of the default workspace. */
    actorKind: text("actor_kind").$type<"member" | "operator" | "service">().notNull(),
    /** The API token that sent the request; null: a session, or no request. */
    tokenId: uuid("token_id"),
    /** The operation's id in the description of the API. */
    action: text("action").notNull(),
    /** What it was done to, such as `account:<id>`. */
    subject: text("subject").notNull(),
    /** Whose entry it is; null is the installation's. */
    workspaceId: uuid("workspace_id"),
    /** The fields that changed, as they were; null where there was nothing. */
    before: jsonb("before"),
    after: jsonb("after"),
    /** The request's `X-Request-Id`, as its log line has it; null of what no request did. */
    requestId: text("request_id"),
  },
  (table) => [
    index("audit_entry_at").on(table.at),
    // Newest first, by what they are looked for.
    index("audit_entry_workspace").on(table.workspaceId, table.id),
    index("audit_entry_actor").on(table.actorId, table.id),
    index("audit_entry_action").on(table.action, table.id),
    index("audit_entry_subject").on(table.subject, table.id),
    check("audit_entry_actor_kind", sql`actor_kind IN ('member', 'operator', 'service')`),
  ],
);
