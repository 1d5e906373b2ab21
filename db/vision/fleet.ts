// Edge devices: what they are, what opens the service to them, what they report and log. Part of
// the vision database; the rest is `schema.ts`.

import { sql } from "drizzle-orm";
import {
  bigint,
  bigserial,
  boolean,
  check,
  customType,
  doublePrecision,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  real,
  text,
  uniqueIndex,
  uuid,
} from "drizzle-orm/pg-core";
import {
  bytes,
  count,
  createdAt,
  id,
  instant,
  ownWorkspace,
  project,
  workspace,
} from "./schema.ts";

/** Disjoint ranges of whole numbers, which Postgres keeps sorted and joined. */
const ranges = customType<{ data: string }>({ dataType: () => "int8multirange" });
/** 64 bits, as Postgres counts and compares them. */
const bits = customType<{ data: string }>({ dataType: () => "bit(64)" });

/** An edge device, as people know it. One that was deleted goes once its logs have. */
export const device = pgTable(
  "device",
  {
    id: id(),
    workspaceId: ownWorkspace(),
    name: text("name").notNull(),
    /** Rollouts go to groups; null is none. */
    groupName: text("group_name"),
    tags: text("tags").array().notNull().default(sql`'{}'`),
    /** Where images that it sends along land; null takes none. */
    projectId: uuid("project_id").references(() => project.id, { onDelete: "set null" }),
    intervalSeconds: integer("interval_seconds").notNull().default(60),
    /** What it said of itself when it enrolled. */
    platform: text("platform"),
    runtime: text("runtime"),
    enrolledAt: instant("enrolled_at"),
    revokedAt: instant("revoked_at"),
    deletedAt: instant("deleted_at"),
    createdBy: uuid("created_by"),
    createdAt: createdAt(),
    updatedAt: instant("updated_at").notNull().defaultNow(),
  },
  (table) => [
    index("device_workspace").on(table.workspaceId, table.createdAt, table.id),
    index("device_deleted").on(table.deletedAt).where(sql`deleted_at IS NOT NULL`),
  ],
);

/** A code with which one device enrols, once. */
export const deviceCode = pgTable(
  "device_code",
  {
    /** SHA-256 of the code. */
    hash: bytes("hash").primaryKey(),
    deviceId: uuid("device_id")
      .notNull()
      .references(() => device.id, { onDelete: "cascade" }),
    createdBy: uuid("created_by"),
    createdAt: createdAt(),
    expiresAt: instant("expires_at").notNull(),
    usedAt: instant("used_at"),
  },
  (table) => [index("device_code_device").on(table.deviceId)],
);

/** A device's token. A new one ends those before it a while after it was used first. */
export const deviceToken = pgTable(
  "device_token",
  {
    /** SHA-256 of the token. */
    hash: bytes("hash").primaryKey(),
    deviceId: uuid("device_id")
      .notNull()
      .references(() => device.id, { onDelete: "cascade" }),
    createdAt: createdAt(),
    /** Null until its device came with it. */
    usedAt: instant("used_at"),
    /** Null while no newer one was used. */
    expiresAt: instant("expires_at"),
  },
  (table) => [index("device_token_device").on(table.deviceId)],
);

/** What a device's last heartbeat said: the one row that every beat writes over. */
export const deviceState = pgTable("device_state", {
  deviceId: uuid("device_id")
    .primaryKey()
    .references(() => device.id, { onDelete: "cascade" }),
  beatAt: instant("beat_at").notNull(),
  battery: real("battery"),
  temperature: real("temperature"),
  uptimeSeconds: doublePrecision("uptime_seconds"),
  freeBytes: count("free_bytes"),
  inferenceRate: real("inference_rate"),
  agentVersion: text("agent_version"),
  bootId: text("boot_id"),
  clockSkewSeconds: doublePrecision("clock_skew_seconds"),
  /** The wire's `ReportedModel`. */
  model: jsonb("model"),
  /** Members of the heartbeat that have no column. */
  extra: jsonb("extra").notNull().default({}),
});

/** Heartbeats of the last day, as they came. */
export const deviceBeat = pgTable(
  "device_beat",
  {
    deviceId: uuid("device_id")
      .notNull()
      .references(() => device.id, { onDelete: "cascade" }),
    at: instant("at").notNull(),
    battery: real("battery"),
    temperature: real("temperature"),
    uptimeSeconds: doublePrecision("uptime_seconds"),
    freeBytes: count("free_bytes"),
    inferenceRate: real("inference_rate"),
  },
  (table) => [
    primaryKey({ columns: [table.deviceId, table.at] }),
    index("device_beat_at").on(table.at),
  ],
);

/** Means of older heartbeats by quarters of an hour, with how many each is the mean of. */
export const deviceMean = pgTable(
  "device_mean",
  {
    deviceId: uuid("device_id")
      .notNull()
      .references(() => device.id, { onDelete: "cascade" }),
    /** The quarter's beginning. */
    at: instant("at").notNull(),
    beats: integer("beats").notNull(),
    battery: real("battery"),
    temperature: real("temperature"),
    uptimeSeconds: doublePrecision("uptime_seconds"),
    freeBytes: doublePrecision("free_bytes"),
    inferenceRate: real("inference_rate"),
  },
  (table) => [
    primaryKey({ columns: [table.deviceId, table.at] }),
    index("device_mean_at").on(table.at),
  ],
);

/** A boot of a device, and which lines of its log are known. */
export const deviceBoot = pgTable(
  "device_boot",
  {
    id: bigserial("id", { mode: "number" }).primaryKey(),
    deviceId: uuid("device_id")
      .notNull()
      .references(() => device.id, { onDelete: "cascade" }),
    bootId: text("boot_id").notNull(),
    /**
     * Numbers of the lines that came or were dropped; it outlives the lines, so that one that comes
     * again after it was forgotten is known still.
     */
    received: ranges("received").notNull().default(sql`'{}'`),
    /** Lines that the device says it had to let go of. */
    dropped: count("dropped").notNull().default(0),
    /** Lines that are stored. */
    lines: count("lines").notNull().default(0),
    /** Bytes of all stored lines together. */
    bytes: count("bytes").notNull().default(0),
    createdAt: createdAt(),
    seenAt: instant("seen_at").notNull().defaultNow(),
  },
  (table) => [
    uniqueIndex("device_boot_device").on(table.deviceId, table.bootId),
    // Each minute sums what is stored, and looks for what may be forgotten: of the few boots that
    // have lines, and of those without any.
    index("device_boot_lines").on(table.deviceId).where(sql`lines > 0`),
    index("device_boot_empty").on(table.seenAt).where(sql`lines = 0`),
  ],
);

/** A line of a device's log. */
export const deviceLog = pgTable(
  "device_log",
  {
    boot: bigint("boot", { mode: "number" })
      .notNull()
      .references(() => deviceBoot.id, { onDelete: "cascade" }),
    seq: count("seq").notNull(),
    deviceId: uuid("device_id").notNull(),
    /** By the device's clock. */
    time: instant("time").notNull(),
    receivedAt: instant("received_at").notNull().defaultNow(),
    kind: text("kind").notNull(),
    modelId: uuid("model_id"),
    latencyMs: real("latency_ms"),
    /** The largest confidence of its objects; null without any. */
    confidence: real("confidence"),
    /** The wire's `LogLine`, without what has a column. */
    line: jsonb("line").notNull(),
    /** Bytes of `line` before it is compressed. */
    bytes: integer("bytes").notNull().default(0),
  },
  (table) => [
    primaryKey({ columns: [table.boot, table.seq] }),
    index("device_log_time").on(table.deviceId, table.time, table.boot, table.seq),
    index("device_log_received").on(table.receivedAt),
  ],
);

/** An image that a device sent along, and the video that it became. */
export const deviceImage = pgTable(
  "device_image",
  {
    id: id(),
    workspaceId: ownWorkspace(),
    deviceId: uuid("device_id")
      .notNull()
      .references(() => device.id, { onDelete: "cascade" }),
    projectId: uuid("project_id")
      .notNull()
      .references(() => project.id, { onDelete: "cascade" }),
    /** No reference, since the id is drawn before its video is made. */
    videoId: uuid("video_id").notNull(),
    /** Whether the video was made; one that was not is made as the image comes again. */
    landed: boolean("landed").notNull().default(false),
    bootId: text("boot_id").notNull(),
    seq: count("seq").notNull(),
    /** A difference hash, of which images that look alike differ in few bits; null: not made. */
    hash: bits("hash"),
    /** Digest of the file: images that are the same to the byte have the same. */
    sha256: bytes("sha256").notNull(),
    createdAt: createdAt(),
  },
  (table) => [
    uniqueIndex("device_image_line").on(table.deviceId, table.bootId, table.seq),
    index("device_image_project").on(table.projectId, table.createdAt),
    index("device_image_device").on(table.deviceId, table.createdAt),
  ],
);

/** What is or was wrong with a device, and whether the workspace's webhook was told. */
export const deviceAlert = pgTable(
  "device_alert",
  {
    id: id(),
    workspaceId: ownWorkspace(),
    deviceId: uuid("device_id")
      .notNull()
      .references(() => device.id, { onDelete: "cascade" }),
    kind: text("kind").$type<"lost" | "hot" | "low_battery">().notNull(),
    /** The reading that raised it; null of a lost device. */
    value: real("value"),
    raisedAt: instant("raised_at").notNull(),
    recoveredAt: instant("recovered_at"),
  },
  (table) => [
    uniqueIndex("device_alert_open")
      .on(table.deviceId, table.kind)
      .where(sql`recovered_at IS NULL`),
    index("device_alert_workspace").on(table.workspaceId, table.raisedAt),
    index("device_alert_recovered").on(table.recoveredAt).where(sql`recovered_at IS NOT NULL`),
    check("device_alert_kind", sql`kind IN ('lost', 'hot', 'low_battery')`),
  ],
);

/**
 * Since when devices are watched without a gap, in one row: those that were not heard while nobody
 * watched are not lost by that.
 */
export const fleetWatch = pgTable(
  "fleet_watch",
  {
    id: boolean("id").primaryKey().default(true),
    since: instant("since").notNull(),
    seenAt: instant("seen_at").notNull(),
  },
  () => [check("fleet_watch_one", sql`id`)],
);

/** What a workspace wants to be told of its devices, and where. */
export const fleetSetting = pgTable("fleet_setting", {
  workspaceId: uuid("workspace_id")
    .primaryKey()
    .references(() => workspace.id),
  /** Degrees Celsius from which a device is hot; null: none is. */
  hotCelsius: real("hot_celsius"),
  /** Percent up to which a battery is low; null: none is. */
  lowBattery: real("low_battery"),
  /** The webhook's address and signing secret, sealed as one; null: nobody is told. */
  webhook: text("webhook"),
  updatedAt: instant("updated_at").notNull().defaultNow(),
});

/** A message of an alert, and what became of it. */
export const deviceNotice = pgTable(
  "device_notice",
  {
    id: id(),
    workspaceId: ownWorkspace(),
    alertId: uuid("alert_id")
      .notNull()
      .references(() => deviceAlert.id, { onDelete: "cascade" }),
    kind: text("kind").$type<"raised" | "recovered">().notNull(),
    delivery: text("delivery").$type<"pending" | "delivered" | "given_up" | "unsent">().notNull(),
    attempts: integer("attempts").notNull().default(0),
    nextAt: instant("next_at").notNull(),
    lastError: text("last_error"),
    createdAt: createdAt(),
  },
  (table) => [
    index("device_notice_due").on(table.nextAt).where(sql`delivery = 'pending'`),
    index("device_notice_alert").on(table.alertId),
    check("device_notice_kind", sql`kind IN ('raised', 'recovered')`),
  ],
);
