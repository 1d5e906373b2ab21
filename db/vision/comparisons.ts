// Comparisons of two models, and what came of running them. Part of the vision database; the rest
// is `schema.ts`. The frames of a session lie in the store, in a folder of the session's own.

import { sql } from "drizzle-orm";
import { check, index, jsonb, pgTable, text, uuid } from "drizzle-orm/pg-core";
import { count, createdAt, id, instant, ownWorkspace } from "./schema.ts";

/** A stored configuration: two models side by side. */
export const comparison = pgTable(
  "comparison",
  {
    id: id(),
    workspaceId: ownWorkspace(),
    name: text("name").notNull(),
    /** The wire's `ComparisonSettings`. */
    settings: jsonb("settings").notNull(),
    createdBy: uuid("created_by"),
    createdAt: createdAt(),
  },
  (table) => [index("comparison_workspace").on(table.workspaceId, table.createdAt)],
);

/** A run of a comparison. Its folder goes first, the row after it. */
export const comparisonSession = pgTable(
  "comparison_session",
  {
    id: id(),
    workspaceId: ownWorkspace(),
    /** Null where the configuration came with the request. */
    comparisonId: uuid("comparison_id"),
    /** The wire's `ComparisonSettings`, as they were. */
    settings: jsonb("settings").notNull(),
    /** The two models as they were, A first: the wire's `SessionModel`. */
    models: jsonb("models").notNull(),
    /** The wire's `SessionInput`. */
    input: jsonb("input").notNull(),
    /** `queued` until its task ended. */
    state: text("state").$type<"queued" | "completed" | "failed">().notNull().default("queued"),
    failure: text("failure"),
    /** What the node said of it. */
    outcome: jsonb("outcome"),
    /** Key of the frames' report; the overlays' keys are in the frames' order. */
    reportKey: text("report_key"),
    overlayKeys: text("overlay_keys").array(),
    /** Bytes of all its objects together. */
    bytes: count("bytes"),
    createdBy: uuid("created_by"),
    createdAt: createdAt(),
    endedAt: instant("ended_at"),
    /** Since when nobody finds it any more: its folder is to go. */
    forgottenAt: instant("forgotten_at"),
  },
  (table) => [
    index("comparison_session_workspace").on(table.workspaceId),
    index("comparison_session_comparison").on(table.comparisonId),
    index("comparison_session_queued").on(table.createdAt).where(sql`state = 'queued'`),
    index("comparison_session_ended").on(table.endedAt),
    check("comparison_session_failure", sql`(state = 'failed') = (failure IS NOT NULL)`),
    check("comparison_session_report", sql`(state = 'completed') = (report_key IS NOT NULL)`),
  ],
);
