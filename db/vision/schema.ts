// The vision database: every mutable truth of the service. Rows of a tenant carry their workspace;
// what is large and never changes lies in the object store under keys named here.

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
  smallint,
  text,
  timestamp,
  uniqueIndex,
  uuid,
} from "drizzle-orm/pg-core";

export const instant = (name: string) => timestamp(name, { withTimezone: true, precision: 3 });
export const count = (name: string) => bigint(name, { mode: "number" });
export const bytes = customType<{ data: Uint8Array }>({ dataType: () => "bytea" });
export const id = () => uuid("id").primaryKey();
export const createdAt = () => instant("created_at").notNull().defaultNow();
export const ownWorkspace = () =>
  uuid("workspace_id")
    .notNull()
    .references(() => workspace.id);

/* Accounts */

export const workspace = pgTable(
  "workspace",
  {
    id: id(),
    name: text("name").notNull(),
    /** The one that new users join; the first migration makes it. */
    isDefault: boolean("is_default").notNull().default(false),
    /**
     * The account that made it; what it stores counts for that account too. The id refers to no
     * row: it outlives the account, else a deletion would lift that limit.
     */
    madeBy: uuid("made_by"),
    createdAt: createdAt(),
  },
  (table) => [
    uniqueIndex("workspace_default").on(table.isDefault).where(sql`is_default`),
    index("workspace_made_by").on(table.madeBy),
  ],
);

export const account = pgTable("account", {
  id: id(),
  /** As given, lowercased and trimmed. */
  email: text("email").notNull().unique(),
  displayName: text("display_name").notNull(),
  /** `scrypt$N$r$p$salt$hash`, base64url. */
  passwordHash: text("password_hash").notNull(),
  /** Raised by whatever must end every access token at once: role change, password, logout. */
  sessionVersion: integer("session_version").notNull().default(1),
  createdAt: createdAt(),
});

export const membership = pgTable(
  "membership",
  {
    workspaceId: ownWorkspace(),
    accountId: uuid("account_id")
      .notNull()
      .references(() => account.id, { onDelete: "cascade" }),
    role: text("role").$type<"viewer" | "annotator" | "engineer" | "admin">().notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.workspaceId, table.accountId] }),
    index("membership_account").on(table.accountId),
    check("membership_role", sql`role IN ('viewer', 'annotator', 'engineer', 'admin')`),
  ],
);

/**
 * A refresh token, or the secret of a browser's cookie, which is hashed otherwise. `used_at` is
 * when the next token of its family replaced it.
 */
export const refreshToken = pgTable(
  "refresh_token",
  {
    /** SHA-256 of the token, or of the cookie's value with a word before it. */
    hash: bytes("hash").primaryKey(),
    family: uuid("family").notNull(),
    accountId: uuid("account_id")
      .notNull()
      .references(() => account.id, { onDelete: "cascade" }),
    createdAt: createdAt(),
    expiresAt: instant("expires_at").notNull(),
    usedAt: instant("used_at"),
    revokedAt: instant("revoked_at"),
  },
  (table) => [
    index("refresh_token_family").on(table.family),
    index("refresh_token_expires").on(table.expiresAt),
  ],
);

/**
 * A personal API token. `role` is a ceiling: in each workspace the token has the lower of this role
 * and of its owner's. A revoked token has no row.
 */
export const apiToken = pgTable(
  "api_token",
  {
    id: id(),
    /** SHA-256 of the token. */
    hash: bytes("hash").notNull().unique(),
    accountId: uuid("account_id")
      .notNull()
      .references(() => account.id, { onDelete: "cascade" }),
    /** The only workspace that the token sees; null: all of its owner's. */
    workspaceId: uuid("workspace_id").references(() => workspace.id),
    name: text("name").notNull(),
    /** First characters of the token, by which its owner recognises it. */
    prefix: text("prefix").notNull(),
    role: text("role").$type<"viewer" | "annotator" | "engineer" | "admin">().notNull(),
    createdAt: createdAt(),
    expiresAt: instant("expires_at").notNull(),
    /** At most an hour older than the last use; null before the first. */
    lastUsedAt: instant("last_used_at"),
  },
  (table) => [
    index("api_token_account").on(table.accountId),
    index("api_token_expires").on(table.expiresAt),
    check("api_token_role", sql`role IN ('viewer', 'annotator', 'engineer', 'admin')`),
  ],
);

/** The code with which the password of an account is set anew; a newer code takes its place. */
export const passwordReset = pgTable(
  "password_reset",
  {
    accountId: uuid("account_id")
      .primaryKey()
      .references(() => account.id, { onDelete: "cascade" }),
    /** SHA-256 of the code. */
    hash: bytes("hash").notNull().unique(),
    /** The operator who made it. */
    createdBy: uuid("created_by").notNull(),
    createdAt: createdAt(),
    expiresAt: instant("expires_at").notNull(),
  },
  (table) => [index("password_reset_expires").on(table.expiresAt)],
);

/** A code with which somebody makes an account, or joins a workspace with the one they have. */
export const invitation = pgTable(
  "invitation",
  {
    id: id(),
    /** SHA-256 of the code. */
    hash: bytes("hash").notNull().unique(),
    workspaceId: ownWorkspace(),
    role: text("role").$type<"viewer" | "annotator" | "engineer" | "admin">().notNull(),
    /** Whose account may use it; null: whoever has the code. */
    email: text("email"),
    createdBy: uuid("created_by"),
    createdAt: createdAt(),
    expiresAt: instant("expires_at").notNull(),
    usedAt: instant("used_at"),
    usedBy: uuid("used_by"),
    revokedAt: instant("revoked_at"),
  },
  (table) => [
    index("invitation_workspace").on(table.workspaceId, table.createdAt),
    check("invitation_role", sql`role IN ('viewer', 'annotator', 'engineer', 'admin')`),
  ],
);

/**
 * What slows guessing down, until `window_ends_at`: attempts in a window; a line that guesses at an
 * account wait in, and when all of it is checked; a mark that a password was right at an address.
 */
export const throttle = pgTable("throttle", {
  key: text("key").primaryKey(),
  attempts: integer("attempts").notNull(),
  windowEndsAt: instant("window_ends_at").notNull(),
});

/** An answer given once under an Idempotency-Key. */
export const idempotentAnswer = pgTable(
  "idempotent_answer",
  {
    workspaceId: ownWorkspace(),
    key: text("key").notNull(),
    route: text("route").notNull(),
    bodySha256: bytes("body_sha256").notNull(),
    status: smallint("status").notNull(),
    body: jsonb("body").notNull(),
    createdAt: createdAt(),
  },
  (table) => [
    primaryKey({ columns: [table.workspaceId, table.route, table.key] }),
    index("idempotent_answer_created").on(table.createdAt),
  ],
);

/* Tasks and nodes */

/** One-time code with which a GPU node introduces itself. */
export const nodeCode = pgTable("node_code", {
  hash: bytes("hash").primaryKey(),
  /** Whose the node will be; null is the operators', for all. */
  workspaceId: uuid("workspace_id").references(() => workspace.id),
  createdBy: uuid("created_by"),
  createdAt: createdAt(),
  expiresAt: instant("expires_at").notNull(),
  usedAt: instant("used_at"),
});

/** A GPU node: a process on somebody's machine that claims tasks. */
export const node = pgTable("node", {
  id: id(),
  /** The one workspace whose tasks it claims; null is the operators', which serves all. */
  workspaceId: uuid("workspace_id").references(() => workspace.id),
  name: text("name").notNull(),
  tokenHash: bytes("token_hash").notNull().unique(),
  capabilities: jsonb("capabilities").notNull(),
  lastHeartbeatAt: instant("last_heartbeat_at").notNull().defaultNow(),
  draining: boolean("draining").notNull().default(false),
  revokedAt: instant("revoked_at"),
  createdAt: createdAt(),
});

/** A unit of work on a queue. Moves of `state` are those of the table in `tasks/states.ts`. */
export const task = pgTable(
  "task",
  {
    id: id(),
    /** In the order of enqueueing: what is due alike is claimed first come, first served. */
    place: bigserial("place", { mode: "number" }).notNull(),
    /** What a node must be able to do: probe, label, preview, segment, export … */
    kind: text("kind").notNull(),
    workspaceId: ownWorkspace(),
    /** What the task is part of, such as `job:<id>` or `video:<id>`. */
    subject: text("subject").notNull(),
    payload: jsonb("payload").notNull(),
    /** Higher is claimed first; somebody waits for interactive ones. */
    priority: smallint("priority").notNull().default(0),
    state: text("state")
      .$type<"queued" | "running" | "finished" | "failed" | "cancelled" | "revoked">()
      .notNull()
      .default("queued"),
    attempt: integer("attempt").notNull().default(0),
    attemptsMax: integer("attempts_max").notNull().default(3),
    /** Rises at each claim and each revocation; a write that carries an older one is refused. */
    fence: count("fence").notNull().default(0),
    nodeId: uuid("node_id").references(() => node.id),
    leaseUntil: instant("lease_until"),
    availableAt: instant("available_at").notNull().defaultNow(),
    cancelRequestedAt: instant("cancel_requested_at"),
    revokeRequestedAt: instant("revoke_requested_at"),
    progress: jsonb("progress"),
    progressAt: instant("progress_at"),
    /** Seconds between the attempt's newest reports that went further, the newest first. */
    stepSeconds: real("step_seconds").array().notNull().default([]),
    /** What each failed attempt said, and who revoked or purged the task; oldest first. */
    errors: jsonb("errors").notNull().default([]),
    result: jsonb("result"),
    /** Frames of a label task that were stored before its end; no attempt stores them again. */
    framesDone: jsonb("frames_done").notNull().default([]),
    /** Unique among all tasks: a second enqueue of the same work finds the first. */
    idempotencyKey: text("idempotency_key").unique(),
    createdAt: createdAt(),
    startedAt: instant("started_at"),
    /** When the newest attempt began; null before. */
    claimedAt: instant("claimed_at"),
    endedAt: instant("ended_at"),
    /** Its subject's room has taken the outcome. */
    settledAt: instant("settled_at"),
  },
  (table) => [
    index("task_claim")
      .on(table.priority.desc(), table.availableAt, table.place)
      .where(sql`state = 'queued'`),
    // For a node of one workspace: it must not look through the others' queue.
    index("task_claim_own")
      .on(table.workspaceId, table.priority.desc(), table.availableAt, table.place)
      .where(sql`state = 'queued'`),
    index("task_lease").on(table.leaseUntil).where(sql`state = 'running'`),
    // Predictions and runs of workflows whose annotated clips lie in the store.
    index("task_annotated")
      .on(table.workspaceId)
      .where(sql`state = 'finished' AND payload ? 'annotated'`),
    index("task_subject").on(table.subject, table.kind),
    // Whether a queue moves is asked of each kind whose first in line waits for long.
    index("task_claimed").on(table.kind, table.claimedAt).where(sql`claimed_at IS NOT NULL`),
    index("task_unsettled")
      .on(table.endedAt)
      .where(sql`ended_at IS NOT NULL AND settled_at IS NULL`),
    index("task_settled").on(table.settledAt).where(sql`settled_at IS NOT NULL`),
    check("task_ended", sql`(state IN ('queued', 'running')) = (ended_at IS NULL)`),
    check("task_running", sql`(state = 'running') = (lease_until IS NOT NULL)`),
  ],
);

/* Projects and media */

export const project = pgTable(
  "project",
  {
    id: id(),
    workspaceId: ownWorkspace(),
    name: text("name").notNull(),
    description: text("description").notNull().default(""),
    createdBy: uuid("created_by"),
    createdAt: createdAt(),
  },
  (table) => [index("project_workspace").on(table.workspaceId, table.createdAt)],
);

/** A video, or a still image as a video of one frame. */
export const video = pgTable(
  "video",
  {
    id: id(),
    workspaceId: ownWorkspace(),
    projectId: uuid("project_id")
      .notNull()
      .references(() => project.id),
    /** What the user called it; never part of a key. */
    filename: text("filename").notNull(),
    storageKey: text("storage_key").notNull(),
    source: text("source").$type<"upload" | "image" | "link">().notNull(),
    state: text("state").$type<"probing" | "ready" | "failed">().notNull().default("probing"),
    failure: text("failure"),
    bytes: count("bytes").notNull(),
    contentType: text("content_type").notNull(),
    width: integer("width"),
    height: integer("height"),
    /** Average frames a second. */
    fps: doublePrecision("fps"),
    durationSeconds: doublePrecision("duration_seconds"),
    frameCount: integer("frame_count"),
    /** Seconds of one tick of the pts table, as a fraction. */
    timeBase: integer("time_base").array(),
    /** Object of the frames' pts in display order: little-endian int32, ticks from the first. */
    ptsKey: text("pts_key"),
    thumbnailKey: text("thumbnail_key"),
    /** Container, codec, pixel format, rotation: as probed. */
    probe: jsonb("probe"),
    createdBy: uuid("created_by"),
    createdAt: createdAt(),
  },
  (table) => [
    index("video_project").on(table.projectId, table.createdAt),
    check("video_failure", sql`(state = 'failed') = (failure IS NOT NULL)`),
    check("video_ready", sql`state <> 'ready' OR frame_count IS NOT NULL`),
  ],
);

/** A direct multipart upload of a video, or of an archive until it is imported. */
export const upload = pgTable("upload", {
  id: id(),
  workspaceId: ownWorkspace(),
  projectId: uuid("project_id")
    .notNull()
    .references(() => project.id),
  kind: text("kind").$type<"video" | "archive">().notNull().default("video"),
  filename: text("filename").notNull(),
  storageKey: text("storage_key").notNull(),
  multipartId: text("multipart_id").notNull(),
  bytes: count("bytes").notNull(),
  partBytes: integer("part_bytes").notNull(),
  /** ETags of the parts that the sender says have arrived, by part number. */
  parts: jsonb("parts").notNull().default({}),
  videoId: uuid("video_id").references(() => video.id),
  /** When an archive was whole in the store; a video's upload has its video instead. */
  completedAt: instant("completed_at"),
  abortedAt: instant("aborted_at"),
  createdBy: uuid("created_by"),
  createdAt: createdAt(),
  expiresAt: instant("expires_at").notNull(),
});
