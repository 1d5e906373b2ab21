// Rollouts: which file devices are to run, whom it was given to, what they made of it, and every
// move. Part of the vision database; the rest is `schema.ts`.

import { sql } from "drizzle-orm";
import {
  bigint,
  bigserial,
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
import { device } from "./fleet.ts";
import { count, createdAt, id, instant, ownWorkspace } from "./schema.ts";
import { model, modelExport } from "./training.ts";

/** A file on its way to devices. */
export const rollout = pgTable(
  "rollout",
  {
    id: id(),
    workspaceId: ownWorkspace(),
    /** Null: devices of any group. */
    groupName: text("group_name"),
    /** A device of it has all of them. */
    tags: text("tags").array().notNull().default(sql`'{}'`),
    modelId: uuid("model_id").notNull(),
    exportId: uuid("export_id").notNull(),
    /** The wire's `RolloutFile`. */
    file: jsonb("file").notNull(),
    storageKey: text("storage_key").notNull(),
    /** The wire's `RolloutGates`, `Confirmation` and bounds of what devices are told. */
    gates: jsonb("gates").notNull(),
    confirm: jsonb("confirm").notNull(),
    confidence: doublePrecision("confidence").notNull(),
    minAgent: text("min_agent").notNull(),
    /** Percent of the devices, rising to 100. */
    stages: doublePrecision("stages").array().notNull(),
    /** Index of the current one. */
    stage: integer("stage").notNull().default(0),
    stageSince: instant("stage_since").notNull().defaultNow(),
    state: text("state").notNull().default("rolling"),
    reason: text("reason"),
    createdBy: uuid("created_by"),
    createdAt: createdAt(),
    updatedAt: instant("updated_at").notNull().defaultNow(),
  },
  (table) => [
    index("rollout_workspace").on(table.workspaceId, table.createdAt, table.id),
    index("rollout_live")
      .on(table.workspaceId, table.createdAt)
      .where(sql`state IN ('rolling', 'paused', 'completed')`),
    check(
      "rollout_state",
      sql`state IN ('rolling', 'paused', 'completed', 'superseded', 'rolled_back', 'aborted')`,
    ),
    check("rollout_stage", sql`stage >= 0 AND stage < cardinality(stages)`),
  ],
);

/** While a rollout may still be wanted of a device, its model and export cannot be deleted. */
export const rolloutHold = pgTable(
  "rollout_hold",
  {
    rolloutId: uuid("rollout_id")
      .primaryKey()
      .references(() => rollout.id, { onDelete: "cascade" }),
    modelId: uuid("model_id")
      .notNull()
      .references(() => model.id),
    exportId: uuid("export_id")
      .notNull()
      .references(() => modelExport.id),
  },
  (table) => [
    index("rollout_hold_model").on(table.modelId),
    index("rollout_hold_export").on(table.exportId),
  ],
);

/** A device that a rollout was given to, and what it made of it. */
export const rolloutDevice = pgTable(
  "rollout_device",
  {
    rolloutId: uuid("rollout_id")
      .notNull()
      .references(() => rollout.id, { onDelete: "cascade" }),
    deviceId: uuid("device_id")
      .notNull()
      .references(() => device.id, { onDelete: "cascade" }),
    bucket: integer("bucket").notNull(),
    /** Version of the manifest by which the device was last asked for it. */
    version: bigint("version", { mode: "number" }).notNull(),
    /** What the device had confirmed before: where it goes back to. */
    formerId: uuid("former_id"),
    state: text("state").notNull().default("pending"),
    failure: text("failure"),
    crashes: integer("crashes").notNull().default(0),
    inferences: count("inferences").notNull().default(0),
    inferenceFailures: count("inference_failures").notNull().default(0),
    latencyMs: doublePrecision("latency_ms"),
    /** Detections by score, as the wire's `ReportedModel` has them. */
    scores: count("scores").array(),
    assignedAt: instant("assigned_at").notNull().defaultNow(),
    reportedAt: instant("reported_at"),
  },
  (table) => [
    primaryKey({ columns: [table.rolloutId, table.deviceId] }),
    index("rollout_device_device").on(table.deviceId),
    check(
      "rollout_device_state",
      sql`state IN ('pending', 'downloading', 'verifying', 'staged', 'active', 'confirmed',
        'rolled_back', 'failed')`,
    ),
  ],
);

/** What is wanted of a device now; one row a device, found by every heartbeat. */
export const deviceDesired = pgTable("device_desired", {
  deviceId: uuid("device_id")
    .primaryKey()
    .references(() => device.id, { onDelete: "cascade" }),
  /** Null: nothing is wanted any more; the device keeps what it has. */
  rolloutId: uuid("rollout_id").references(() => rollout.id, { onDelete: "cascade" }),
  /** Rises with each change over all devices, and is the manifest's. */
  version: bigserial("version", { mode: "number" }).notNull(),
  /** Whether the device confirmed it. */
  confirmed: boolean("confirmed").notNull().default(false),
  /** What the device confirmed before. */
  formerId: uuid("former_id"),
  setAt: instant("set_at").notNull().defaultNow(),
});

/** Each time that a rollout was made or moved; kept for ever. */
export const rolloutMove = pgTable(
  "rollout_move",
  {
    id: bigserial("id", { mode: "number" }).primaryKey(),
    workspaceId: ownWorkspace(),
    rolloutId: uuid("rollout_id").notNull(),
    kind: text("kind").notNull(),
    stage: integer("stage").notNull(),
    reason: text("reason"),
    /** The wire's `RolloutFigures`. */
    figures: jsonb("figures"),
    actorId: uuid("actor_id"),
    at: instant("at").notNull().defaultNow(),
  },
  (table) => [index("rollout_move_rollout").on(table.rolloutId, table.id)],
);
