// Named endpoints: what each serves, every move of that, and the keys that open it. Part of the
// vision database; the rest is `schema.ts`. What came of requests is kept by each endpoint's meter.

import { sql } from "drizzle-orm";
import {
  bigserial,
  check,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  uniqueIndex,
  uuid,
} from "drizzle-orm/pg-core";
import { bytes, count, createdAt, id, instant, ownWorkspace } from "./schema.ts";
import { model } from "./training.ts";

/** A named endpoint. A deleted one stays, so that the deletion can be taken back. */
export const endpoint = pgTable(
  "endpoint",
  {
    id: id(),
    workspaceId: ownWorkspace(),
    slug: text("slug").notNull(),
    /** The wire's `EndpointSettings`. */
    settings: jsonb("settings").notNull(),
    /** Rises with each move; an edit is of the one that it saw. */
    revision: integer("revision").notNull().default(1),
    createdBy: uuid("created_by"),
    createdAt: createdAt(),
    updatedAt: instant("updated_at").notNull().defaultNow(),
    deletedAt: instant("deleted_at"),
  },
  (table) => [
    uniqueIndex("endpoint_slug").on(table.workspaceId, table.slug).where(sql`deleted_at IS NULL`),
    index("endpoint_former").on(table.workspaceId, table.slug, table.createdAt),
  ],
);

/** A model that an endpoint names by its id: while it does, the model cannot be deleted. */
export const endpointModel = pgTable(
  "endpoint_model",
  {
    endpointId: uuid("endpoint_id")
      .notNull()
      .references(() => endpoint.id, { onDelete: "cascade" }),
    modelId: uuid("model_id")
      .notNull()
      .references(() => model.id),
  },
  (table) => [
    primaryKey({ columns: [table.endpointId, table.modelId] }),
    index("endpoint_model_model").on(table.modelId),
  ],
);

/** Each time that an endpoint was made, changed, rolled back or deleted; kept for ever. */
export const endpointMove = pgTable(
  "endpoint_move",
  {
    id: bigserial("id", { mode: "number" }).primaryKey(),
    workspaceId: ownWorkspace(),
    endpointId: uuid("endpoint_id").notNull(),
    slug: text("slug").notNull(),
    kind: text("kind").$type<"create" | "change" | "rollback" | "delete">().notNull(),
    before: jsonb("before"),
    after: jsonb("after"),
    /** The oldest of the moves that this one took back. */
    rollbackOf: count("rollback_of"),
    actorId: uuid("actor_id"),
    at: instant("at").notNull().defaultNow(),
  },
  (table) => [
    index("endpoint_move_endpoint").on(table.endpointId, table.id),
    index("endpoint_move_slug").on(table.workspaceId, table.slug, table.id),
    check("endpoint_move_kind", sql`kind IN ('create', 'change', 'rollback', 'delete')`),
  ],
);

/** A key that opens one endpoint's predictions and status. */
export const endpointKey = pgTable(
  "endpoint_key",
  {
    id: id(),
    endpointId: uuid("endpoint_id")
      .notNull()
      .references(() => endpoint.id, { onDelete: "cascade" }),
    name: text("name").notNull(),
    /** The first characters of the key, for people. */
    prefix: text("prefix").notNull(),
    /** SHA-256 of the key. */
    hash: bytes("hash").notNull().unique(),
    /** Null: no limit. */
    requestsPerMinute: integer("requests_per_minute"),
    burst: integer("burst"),
    createdBy: uuid("created_by"),
    createdAt: createdAt(),
    revokedAt: instant("revoked_at"),
  },
  (table) => [
    index("endpoint_key_endpoint").on(table.endpointId, table.createdAt),
    check("endpoint_key_limit", sql`(requests_per_minute IS NULL) = (burst IS NULL)`),
  ],
);

/**
 * What an endpoint's meter told last of requests that failed by a fault of the service. It tells
 * only while they are many, and for an hour after.
 */
export const endpointFaults = pgTable("endpoint_faults", {
  endpointId: uuid("endpoint_id")
    .primaryKey()
    .references(() => endpoint.id, { onDelete: "cascade" }),
  /** Requests of the quarter of an hour before, and those of them that failed so. */
  requests: integer("requests").notNull(),
  faults: integer("faults").notNull(),
  at: instant("at").notNull(),
});
