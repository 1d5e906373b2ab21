// Targets: servers elsewhere that predict, and how they were each time that they were looked at.
// Part of the vision database; the rest is `schema.ts`.

import { sql } from "drizzle-orm";
import {
  boolean,
  check,
  doublePrecision,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  uuid,
} from "drizzle-orm/pg-core";
import { createdAt, id, instant, ownWorkspace } from "./schema.ts";

/** A server elsewhere. */
export const target = pgTable(
  "target",
  {
    id: id(),
    workspaceId: ownWorkspace(),
    name: text("name").notNull(),
    /** The wire's `TargetConfig`. */
    config: jsonb("config").notNull(),
    /** What opens it, sealed; null where nothing is needed. */
    credential: text("credential"),
    enabled: boolean("enabled").notNull().default(true),
    state: text("state").$type<"unknown" | "up" | "down">().notNull().default("unknown"),
    /** Since when it is in this state; null while it is unknown. */
    since: instant("since"),
    problem: text("problem"),
    latencyMs: doublePrecision("latency_ms"),
    checkedAt: instant("checked_at"),
    nextCheckAt: instant("next_check_at").notNull().defaultNow(),
    /** Looks in a row that found it down. */
    failures: integer("failures").notNull().default(0),
    /** Rises with each change: a look at what it was before says nothing of it. */
    revision: integer("revision").notNull().default(1),
    createdBy: uuid("created_by"),
    createdAt: createdAt(),
    updatedAt: instant("updated_at").notNull().defaultNow(),
  },
  (table) => [
    index("target_workspace").on(table.workspaceId, table.name),
    index("target_due").on(table.nextCheckAt).where(sql`enabled`),
    check("target_state", sql`state IN ('unknown', 'up', 'down')`),
  ],
);

/** A look at a target. */
export const targetCheck = pgTable(
  "target_check",
  {
    targetId: uuid("target_id")
      .notNull()
      .references(() => target.id, { onDelete: "cascade" }),
    at: instant("at").notNull(),
    up: boolean("up").notNull(),
    latencyMs: doublePrecision("latency_ms"),
    problem: text("problem"),
  },
  (table) => [
    primaryKey({ columns: [table.targetId, table.at] }),
    index("target_check_at").on(table.at),
  ],
);
