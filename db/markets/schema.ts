// The markets database: the store's catalog and the ingest ledger. Every mutable truth of the
// service is a row here; R2 holds only immutable bytes. Migrations are generated from this file,
// append-only.

import { sql } from "drizzle-orm";
import {
  bigint,
  boolean,
  check,
  customType,
  date,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  smallint,
  text,
  timestamp,
  unique,
  uniqueIndex,
  uuid,
} from "drizzle-orm/pg-core";

const instant = (name: string) =>
  timestamp(name, { withTimezone: true, precision: 3, mode: "string" });
const bytes = customType<{ data: Uint8Array }>({ dataType: () => "bytea" });
const xid8 = customType<{ data: string }>({ dataType: () => "xid8" });
const count = (name: string) => bigint(name, { mode: "number" });

/** A symbol of a library. `head_seq` is the compare-and-set token of commits. */
export const series = pgTable(
  "series",
  {
    id: integer("id").primaryKey().generatedAlwaysAsIdentity(),
    library: text("library").notNull(),
    symbol: text("symbol").notNull(),
    valueColumns: text("value_columns").array().notNull(),
    /** Sandbox and real data never share a series. */
    sandbox: boolean("sandbox").notNull(),
    headSeq: count("head_seq").notNull(),
    /** The newest `as_of` handed out; the next one is strictly later. */
    headAsOf: instant("head_as_of").notNull(),
    /** Compare-and-set token of compactions; a new generation never changes an answer. */
    generation: count("generation").notNull().default(0),
    /** Newest valid time ever committed, for freshness. */
    validMax: instant("valid_max").notNull(),
    /** What commits added since the last compaction: the policy's trigger. */
    pendingVintages: integer("pending_vintages").notNull().default(0),
    pendingRows: count("pending_rows").notNull().default(0),
    pendingObjects: integer("pending_objects").notNull().default(0),
    compactedAt: instant("compacted_at"),
    /** When a compaction last began; null once one ended well. */
    compactionTriedAt: instant("compaction_tried_at"),
    /** Vintages up to this one are in archived objects, no longer rows of `vintage`. */
    archivedSeq: count("archived_seq").notNull().default(0),
  },
  (table) => [
    unique("series_library_symbol").on(table.library, table.symbol),
    index("series_pending").on(table.id).where(sql`pending_vintages > 0`),
    index("series_sandbox").on(table.id).where(sql`sandbox`),
  ],
);

/** What one commit added, at one knowledge time: the spec's `__vintages` sidecar. */
export const vintage = pgTable(
  "vintage",
  {
    seriesId: integer("series_id")
      .notNull()
      .references(() => series.id),
    /** 1, 2, 3 … without gaps; `as_of` rises strictly with it. */
    seq: count("seq").notNull(),
    asOf: instant("as_of").notNull(),
    reconstructed: boolean("reconstructed").notNull(),
    runId: text("run_id").notNull(),
    partition: text("partition").notNull(),
    sourceUrl: text("source_url").notNull(),
    sourcePublishedAt: instant("source_published_at"),
    /** The valid-time range the source was asked for: absence inside it is a retraction. */
    coveredFrom: instant("covered_from").notNull(),
    coveredTo: instant("covered_to").notNull(),
    validMin: instant("valid_min").notNull(),
    validMax: instant("valid_max").notNull(),
    inserted: integer("inserted").notNull(),
    revised: integer("revised").notNull(),
    retracted: integer("retracted").notNull(),
    /** Rows a full read at this vintage returns; the row cap is decided from it. */
    liveRows: count("live_rows").notNull(),
    contentSha256: bytes("content_sha256").notNull(),
    /** The changed rows while they are few; null when a segment holds them. */
    inline: jsonb("inline"),
    /** The transaction that committed it: the change feed's order, free of gaps. */
    xact: xid8("xact").notNull().default(sql`pg_current_xact_id()`),
  },
  (table) => [
    primaryKey({ columns: [table.seriesId, table.seq] }),
    index("vintage_as_of").on(table.seriesId, table.asOf),
    index("vintage_newest").on(table.asOf),
    index("vintage_run").on(table.runId),
    index("vintage_xact").on(table.xact, table.seriesId, table.seq),
    index("vintage_published")
      .on(table.seriesId, table.sourcePublishedAt)
      .where(sql`source_published_at IS NOT NULL`),
    index("vintage_inline").on(table.seriesId, table.validMax).where(sql`inline IS NOT NULL`),
    check("vintage_changes", sql`inserted + revised + retracted > 0`),
  ],
);

/** An immutable Parquet object. Level 0 holds one vintage; level 1, compacted, many. */
export const segment = pgTable(
  "segment",
  {
    objectKey: text("object_key").primaryKey(),
    seriesId: integer("series_id")
      .notNull()
      .references(() => series.id),
    level: smallint("level").notNull(),
    seqMin: count("seq_min").notNull(),
    seqMax: count("seq_max").notNull(),
    validMin: instant("valid_min").notNull(),
    validMax: instant("valid_max").notNull(),
    rows: integer("rows").notNull(),
    bytes: integer("bytes").notNull(),
    sha256: bytes("sha256").notNull(),
    /** Where its row groups lie and which valid time each holds. */
    index: jsonb("index").notNull(),
    retiredAt: instant("retired_at"),
  },
  (table) => [
    index("segment_live").on(table.seriesId, table.validMax).where(sql`retired_at IS NULL`),
  ],
);

/** An object that holds a stretch of a series' older vintages, which `vintage` no longer has. */
export const vintageArchive = pgTable(
  "vintage_archive",
  {
    objectKey: text("object_key").primaryKey(),
    seriesId: integer("series_id")
      .notNull()
      .references(() => series.id),
    /** Both inclusive; the next object goes on from `seq_max` without a gap. */
    seqMin: count("seq_min").notNull(),
    seqMax: count("seq_max").notNull(),
    asOfMin: instant("as_of_min").notNull(),
    asOfMax: instant("as_of_max").notNull(),
    validMin: instant("valid_min").notNull(),
    validMax: instant("valid_max").notNull(),
    /** Rows that its vintages inserted and revised. */
    versions: count("versions").notNull(),
    /** The newest dated publication among its sources, and where that came from. */
    publishedAt: instant("published_at"),
    publishedUrl: text("published_url"),
    bytes: integer("bytes").notNull(),
    sha256: bytes("sha256").notNull(),
  },
  (table) => [unique("vintage_archive_series").on(table.seriesId, table.seqMax)],
);

/** An object that holds a stretch of the change feed; a vintage is in one before it is archived. */
export const feedArchive = pgTable(
  "feed_archive",
  {
    /** 1, 2, 3 … in the order of the feed. */
    id: integer("id").primaryKey(),
    objectKey: text("object_key").notNull().unique(),
    rows: integer("rows").notNull(),
    libraries: text("libraries").array().notNull(),
    asOfMax: instant("as_of_max").notNull(),
    /** The feed's position of its last vintage. */
    xact: xid8("xact").notNull(),
    seriesId: integer("series_id").notNull(),
    seq: count("seq").notNull(),
    bytes: integer("bytes").notNull(),
    sha256: bytes("sha256").notNull(),
  },
  (table) => [
    index("feed_archive_position").on(table.xact, table.seriesId, table.seq),
    index("feed_archive_newest").on(table.asOfMax),
  ],
);

/** The last payload of each partition: one that comes again need not be compared row by row. */
export const ingestMemo = pgTable(
  "ingest_memo",
  {
    seriesId: integer("series_id")
      .notNull()
      .references(() => series.id),
    partition: text("partition").notNull(),
    /** Digest of the covered range and the rows in canonical form. */
    payloadSha256: bytes("payload_sha256").notNull(),
    /** The series' head when store and payload were known to agree. */
    seq: count("seq").notNull(),
  },
  (table) => [primaryKey({ columns: [table.seriesId, table.partition] })],
);

/** A named knowledge time, for reads that must give the same answer for ever. */
export const snapshot = pgTable("snapshot", {
  name: text("name").primaryKey(),
  asOf: instant("as_of").notNull(),
  note: text("note").notNull(),
  createdAt: instant("created_at").notNull(),
});

/** An instrument of a watched series, as the read-back checks know it. */
export const instrument = pgTable(
  "instrument",
  {
    /** Dotted, such as `power.generation_by_fuel.erco.wnd`. */
    id: text("id").primaryKey(),
    seriesId: integer("series_id")
      .notNull()
      .references(() => series.id),
    /** Newest valid time that was ever read back. */
    validMax: instant("valid_max").notNull(),
    /** Set by an operator: its silence is expected. A newer row clears it. */
    retiredAt: instant("retired_at"),
    retiredBy: text("retired_by"),
  },
  (table) => [index("instrument_series").on(table.seriesId)],
);

/** Chores of the store, each done by one process at a time. */
export const housekeeping = pgTable("housekeeping", {
  chore: text("chore").primaryKey(),
  lastAt: instant("last_at").notNull(),
});

/**
 * One row a schedule; `last_tick` only ever moves forward, so a tick delivered twice fires once.
 */
export const schedule = pgTable("schedule", {
  name: text("name").primaryKey(),
  enabled: boolean("enabled").notNull().default(true),
  lastTick: instant("last_tick").notNull(),
  /** The operator who last switched it, and when; null: nobody has. */
  switchedBy: text("switched_by"),
  switchedAt: instant("switched_at"),
});

/** A firing of a schedule: the run it started, or the reason it started none. */
export const tick = pgTable(
  "tick",
  {
    schedule: text("schedule").notNull(),
    scheduledAt: instant("scheduled_at").notNull(),
    runId: uuid("run_id"),
    skipReason: text("skip_reason"),
  },
  (table) => [
    primaryKey({ columns: [table.schedule, table.scheduledAt] }),
    check("tick_outcome", sql`(run_id IS NULL) <> (skip_reason IS NULL)`),
  ],
);

export const backfill = pgTable("backfill", {
  id: uuid("id").primaryKey(),
  job: text("job").notNull(),
  first: date("first", { mode: "string" }).notNull(),
  last: date("last", { mode: "string" }).notNull(),
  idempotencyKey: text("idempotency_key").unique(),
  createdAt: instant("created_at").notNull(),
  /** Name of the operator who started it. */
  launchedBy: text("launched_by"),
  /** Set when an operator ended it: what had not begun is canceled. */
  canceledAt: instant("canceled_at"),
  canceledBy: text("canceled_by"),
});

/**
 * One execution of a pipeline over one partition. `queued` and `running` are left by the run's own
 * process, or by the minute cron when `available_at` or `lease_until` passed; the others are final.
 * `partial`: it committed what was sound, and left some of its series as they were. `late`: the
 * provider had not published the partition when the time to wait for it was over.
 */
export const run = pgTable(
  "run",
  {
    id: uuid("id").primaryKey(),
    job: text("job").notNull(),
    partition: date("partition", { mode: "string" }).notNull(),
    trigger: text("trigger", { enum: ["schedule", "manual", "backfill"] }).notNull(),
    /** The instant of the tick that started it; null for runs started by hand. */
    scheduledAt: instant("scheduled_at"),
    backfillId: uuid("backfill_id").references(() => backfill.id),
    /** Name of the operator who started it; null for a schedule's. */
    launchedBy: text("launched_by"),
    /** True: its rows are a best-effort baseline, not a forward vintage. */
    reconstructed: boolean("reconstructed").notNull(),
    state: text("state", {
      enum: ["queued", "running", "succeeded", "partial", "failed", "late", "canceled"],
    }).notNull(),
    /** Rises with every claim and never falls: it is the fence of the run's writes. */
    attempt: integer("attempt").notNull().default(0),
    /** The attempt after which a failure is final; running it again on purpose raises it. */
    attemptsMax: integer("attempts_max").notNull(),
    createdAt: instant("created_at").notNull(),
    /** A queued run may be claimed from here on; the cron re-sends it some time after. */
    availableAt: instant("available_at").notNull(),
    leaseUntil: instant("lease_until"),
    startedAt: instant("started_at"),
    finishedAt: instant("finished_at"),
    errorCode: text("error_code"),
    errorDetail: text("error_detail"),
    metadata: jsonb("metadata"),
    /** The valid time it committed; set when it ends with every row it needed. */
    coveredFrom: instant("covered_from"),
    coveredTo: instant("covered_to"),
    /** Rows it revised or retracted, by the partition they belong to. */
    revised: jsonb("revised"),
  },
  (table) => [
    index("run_open").on(table.state, table.availableAt).where(sql`state IN ('queued', 'running')`),
    index("run_newest").on(table.createdAt),
    index("run_backfill").on(table.backfillId),
    index("run_partition").on(table.job, table.partition),
    index("run_job_newest").on(table.job, table.createdAt),
    index("run_ended").on(table.finishedAt).where(sql`finished_at IS NOT NULL`),
    index("run_succeeded").on(table.job, table.finishedAt).where(sql`state = 'succeeded'`),
    check("run_finished", sql`(state IN ('queued', 'running')) = (finished_at IS NULL)`),
    check("run_leased", sql`(state = 'running') = (lease_until IS NOT NULL)`),
  ],
);

/**
 * A change of a series that a run did not commit, since it would withdraw too many of the rows
 * stored. An operator may accept it; the next run that finds nothing else withdrawn commits it.
 */
export const refusal = pgTable(
  "refusal",
  {
    id: uuid("id").primaryKey(),
    seriesId: integer("series_id")
      .notNull()
      .references(() => series.id),
    job: text("job").notNull(),
    /** The newest run that was refused it. */
    runId: uuid("run_id")
      .notNull()
      .references(() => run.id),
    partition: date("partition", { mode: "string" }).notNull(),
    reconstructed: boolean("reconstructed").notNull(),
    /** Rows stored in the range that the source was asked for. */
    stored: integer("stored").notNull(),
    inserted: integer("inserted").notNull(),
    revised: integer("revised").notNull(),
    /** Rows that would be retracted, or become null. */
    withdrawn: integer("withdrawn").notNull(),
    /** Rows as `[valid time, instrument, values stored, values sent]`, in the store's order. */
    changes: jsonb("changes").notNull(),
    refusedAt: instant("refused_at").notNull(),
    acceptedAt: instant("accepted_at"),
    acceptedBy: text("accepted_by"),
    /** When a commit of the series got through, or another change was refused instead. */
    endedAt: instant("ended_at"),
  },
  (table) => [
    index("refusal_open").on(table.job, table.seriesId).where(sql`ended_at IS NULL`),
    index("refusal_newest").on(table.refusedAt),
    index("refusal_run").on(table.runId),
  ],
);

/** What a run did, step by step: its log. Kept for some months. */
export const runEvent = pgTable(
  "run_event",
  {
    id: bigint("id", { mode: "number" }).primaryKey().generatedAlwaysAsIdentity(),
    runId: uuid("run_id")
      .notNull()
      .references(() => run.id),
    attempt: integer("attempt").notNull(),
    at: instant("at").notNull(),
    level: text("level", { enum: ["info", "warning", "error"] }).notNull(),
    /** Such as `fetched` or `committed`. */
    event: text("event").notNull(),
    detail: jsonb("detail").notNull(),
  },
  (table) => [index("run_event_run").on(table.runId, table.id), index("run_event_at").on(table.at)],
);

/**
 * What operators are told of, and the outbox of the webhook. `failed`, `late` and `stale` begin an
 * incident of a subject: a partition, a series or a pipeline's check. While `ended_at` is null the
 * subject has no other one. `recovered` tells of its end.
 */
export const alert = pgTable(
  "alert",
  {
    /** The webhook's message id too: a receiver drops what comes twice. */
    id: uuid("id").primaryKey(),
    kind: text("kind", { enum: ["failed", "late", "stale", "recovered", "test"] }).notNull(),
    /** The alert that began the incident: its own id, but for `recovered`. */
    incidentId: uuid("incident_id").notNull(),
    /** Empty for a test. */
    job: text("job").notNull(),
    /** Such as `partition 2026-01-31`, `series erco` or `check`. */
    subject: text("subject").notNull(),
    /** The run that began the incident. */
    runId: uuid("run_id"),
    errorCode: text("error_code"),
    detail: text("detail").notNull(),
    createdAt: instant("created_at").notNull(),
    endedAt: instant("ended_at"),
    /** `unsent`: there was no webhook. `given_up`: no attempt got through for a day. */
    delivery: text("delivery", {
      enum: ["pending", "delivered", "given_up", "unsent"],
    }).notNull(),
    /** Rises with every claim: it is the fence of what a slow process says of an attempt. */
    attempts: integer("attempts").notNull().default(0),
    /** When the next attempt is due; while one is under way, when it counts as lost. */
    nextAt: instant("next_at").notNull(),
    deliveredAt: instant("delivered_at"),
    lastError: text("last_error"),
  },
  (table) => [
    uniqueIndex("alert_open").on(table.job, table.subject).where(sql`ended_at IS NULL`),
    // A run begins an incident once, however late the process that noticed it is.
    unique("alert_cause").on(table.job, table.subject, table.runId),
    index("alert_newest").on(table.createdAt, table.id),
    index("alert_due").on(table.nextAt).where(sql`delivery = 'pending'`),
    check("alert_begins", sql`(kind IN ('recovered', 'test')) <= (ended_at IS NOT NULL)`),
  ],
);

/**
 * What slows the guessing of operator tokens down, by a bucket of the caller's address or device:
 * wrong ones of the current minute, a mark that one was right, the line that guesses wait in. There
 * are few thousand buckets, so nothing has to be forgotten.
 */
export const wrongToken = pgTable("wrong_token", {
  bucket: integer("bucket").primaryKey(),
  attempts: integer("attempts").notNull(),
  windowEndsAt: instant("window_ends_at").notNull(),
});

/** Sessions of the console that their operators ended: a row a logout, kept for good. */
export const endedSession = pgTable("ended_session", {
  id: uuid("id").primaryKey(),
  endedAt: instant("ended_at").notNull().defaultNow(),
});
