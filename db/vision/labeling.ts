// Tables of labeling: jobs, their frames, annotations and changes.

import { sql } from "drizzle-orm";
import {
  boolean,
  check,
  doublePrecision,
  foreignKey,
  index,
  integer,
  jsonb,
  pgSequence,
  pgTable,
  primaryKey,
  real,
  smallint,
  text,
  unique,
  uuid,
} from "drizzle-orm/pg-core";
import { count, createdAt, id, instant, ownWorkspace, project, video } from "./schema.ts";

/**
 * Numbers of what happens to annotations. Whatever changes a job's annotations holds the lock of
 * the job first (`inJob`), so that the numbers of a job rise in the order of its commits.
 */
export const editSeq = pgSequence("edit_seq");

/** A labeling job. Moves of `state` are those of the table in `labeling/states.ts`. */
export const job = pgTable(
  "job",
  {
    id: id(),
    workspaceId: ownWorkspace(),
    projectId: uuid("project_id")
      .notNull()
      .references(() => project.id),
    name: text("name").notNull(),
    description: text("description").notNull().default(""),
    kind: text("kind").$type<"text" | "exemplar" | "import" | "manual">().notNull(),
    state: text("state")
      .$type<"queued" | "running" | "completed" | "failed" | "stopped">()
      .notNull()
      .default("queued"),
    failure: text("failure"),
    /** Shown are the annotations at or above it; more are stored. */
    threshold: real("threshold").notNull(),
    /** Longest side in pixels at which frames are labeled; null is the segmenter's own. */
    resolution: integer("resolution"),
    /** Frames a second to label; null is every frame. */
    fps: doublePrecision("fps"),
    /** Exemplars, and which segmenter of which bundle labels it. */
    settings: jsonb("settings").notNull().default({}),
    framesTotal: integer("frames_total").notNull().default(0),
    createdBy: uuid("created_by"),
    createdAt: createdAt(),
    startedAt: instant("started_at"),
    endedAt: instant("ended_at"),
  },
  (table) => [
    index("job_project").on(table.projectId, table.createdAt),
    index("job_workspace").on(table.workspaceId, table.createdAt),
  ],
);

/** A video of a job, with the indexes of the frames that the job labels. */
export const jobVideo = pgTable(
  "job_video",
  {
    jobId: uuid("job_id")
      .notNull()
      .references(() => job.id, { onDelete: "cascade" }),
    videoId: uuid("video_id")
      .notNull()
      .references(() => video.id),
    position: integer("position").notNull(),
    frames: integer("frames").array().notNull(),
    /**
     * Whether a segmenter or an imported file told what is on each frame. Where none did, a frame
     * without annotations is background only once a person marked it.
     */
    searched: boolean("searched").notNull().default(true),
  },
  (table) => [
    primaryKey({ columns: [table.jobId, table.videoId] }),
    // The jobs of a video, for the search of frames, and before a video is deleted.
    index("job_video_video").on(table.videoId),
  ],
);

/** A class of a job. Its number is its place in exports and never changes. */
export const jobClass = pgTable(
  "job_class",
  {
    jobId: uuid("job_id")
      .notNull()
      .references(() => job.id, { onDelete: "cascade" }),
    number: integer("number").notNull(),
    name: text("name").notNull(),
    /** The text that the segmenter is asked for; null for a class drawn by hand. */
    prompt: text("prompt"),
  },
  (table) => [
    primaryKey({ columns: [table.jobId, table.number] }),
    unique("job_class_name").on(table.jobId, table.name),
  ],
);

export const annotation = pgTable(
  "annotation",
  {
    id: id(),
    workspaceId: ownWorkspace(),
    jobId: uuid("job_id")
      .notNull()
      .references(() => job.id, { onDelete: "cascade" }),
    videoId: uuid("video_id").notNull(),
    frameIndex: integer("frame_index").notNull(),
    classNumber: integer("class_number").notNull(),
    /** Corners in pixels of the source frame. */
    x1: real("x1").notNull(),
    y1: real("y1").notNull(),
    x2: real("x2").notNull(),
    y2: real("y2").notNull(),
    /** Null for what a person drew. */
    confidence: real("confidence"),
    review: text("review")
      .$type<"pending" | "accepted" | "rejected">()
      .notNull()
      .default("pending"),
    source: text("source").$type<"model" | "person" | "import" | "interpolated">().notNull(),
    /** Name of the segmenter, or id of the model, that detected it; null for other sources. */
    foundBy: text("found_by"),
    /** A person drew the box, or set it: what lies between two of a track can be interpolated. */
    keyframe: boolean("keyframe").notNull().default(false),
    /** The same object across the frames of a video; null when it was not tracked. */
    trackId: integer("track_id"),
    /** Another class's annotation that covers the same object. */
    duplicateOf: uuid("duplicate_of"),
    /**
     * At thresholds up to this the annotation that it repeats is shown: that one's confidence,
     * Infinity where it has none. Null where it was rejected or is not there. Kept by the trigger
     * `count_annotations`.
     */
    repeatsTo: real("repeats_to"),
    /** Outer ring of the mask, `[x, y, …]` in pixels of the source frame. */
    polygon: jsonb("polygon"),
    /** Rises with each edit; a PATCH may name the one it saw. */
    revision: integer("revision").notNull().default(1),
    /**
     * Number of the newest write of the row, given by the trigger `number_annotation`; 0 in rows
     * that are older than the trigger.
     */
    seq: count("seq").notNull().default(0),
    updatedBy: uuid("updated_by"),
    createdAt: createdAt(),
    updatedAt: instant("updated_at").notNull().defaultNow(),
  },
  (table) => [
    index("annotation_place").on(table.jobId, table.videoId, table.frameIndex, table.id),
    index("annotation_class").on(
      ...([table.jobId, table.classNumber, table.review, table.source] as const),
    ),
    index("annotation_confidence").on(table.jobId, table.confidence, table.id),
    index("annotation_track")
      .on(table.jobId, table.videoId, table.trackId, table.frameIndex)
      .where(sql`track_id IS NOT NULL`),
    index("annotation_better").on(table.duplicateOf).where(sql`duplicate_of IS NOT NULL`),
    // For reads that say "seq > 0" alone: without statistics, all others by job would take it.
    index("annotation_seq").on(table.jobId, table.seq).where(sql`seq > 0`),
    foreignKey({
      name: "annotation_of_class",
      columns: [table.jobId, table.classNumber],
      foreignColumns: [jobClass.jobId, jobClass.number],
    }),
    check("annotation_box", sql`x2 > x1 AND y2 > y1`),
  ],
);

/**
 * An annotation that was deleted, noted by the trigger `note_deletions`. Undoing may bring the
 * annotation back: its own number is greater then.
 */
export const annotationDeletion = pgTable(
  "annotation_deletion",
  {
    jobId: uuid("job_id")
      .notNull()
      .references(() => job.id, { onDelete: "cascade" }),
    seq: count("seq").notNull(),
    annotationId: uuid("annotation_id").notNull(),
  },
  (table) => [primaryKey({ columns: [table.jobId, table.seq] })],
);

// How many annotations there are, so that nobody has to count a million of them. The trigger
// `count_annotations` keeps the three tables in step with each statement that changes annotations
// or a job's threshold.

/** A job's annotations by class, review, source and confidence. */
export const annotationCount = pgTable(
  "annotation_count",
  {
    jobId: uuid("job_id")
      .notNull()
      .references(() => job.id, { onDelete: "cascade" }),
    classNumber: integer("class_number").notNull(),
    review: text("review").notNull(),
    source: text("source").notNull(),
    /** Whether the job's threshold shows them. */
    shown: boolean("shown").notNull(),
    /** Whether they are shown and repeat one that is shown too, and nobody judged them. */
    repeated: boolean("repeated").notNull(),
    /** Hundredths of the confidence, the last to 1; 100 is of those without one. */
    bin: smallint("bin").notNull(),
    annotations: integer("annotations").notNull(),
  },
  (table) => [
    primaryKey({
      name: "annotation_count_pk",
      columns: [
        ...([table.jobId, table.classNumber, table.review, table.source] as const),
        ...([table.shown, table.repeated, table.bin] as const),
      ],
    }),
  ],
);

/** A job's annotations that are shown, by their share of the frame's area. */
export const areaCount = pgTable(
  "area_count",
  {
    jobId: uuid("job_id")
      .notNull()
      .references(() => job.id, { onDelete: "cascade" }),
    review: text("review").notNull(),
    repeated: boolean("repeated").notNull(),
    /** Tenths of a decade, from 10⁻⁵ on. */
    bin: smallint("bin").notNull(),
    annotations: integer("annotations").notNull(),
  },
  (table) => [primaryKey({ columns: [table.jobId, table.review, table.repeated, table.bin] })],
);

/** The annotations of each frame of a job that has, or had, any. */
export const frameCount = pgTable(
  "frame_count",
  {
    jobId: uuid("job_id")
      .notNull()
      .references(() => job.id, { onDelete: "cascade" }),
    videoId: uuid("video_id").notNull(),
    frameIndex: integer("frame_index").notNull(),
    /** All there are; those that follow are of those that are shown. */
    stored: integer("stored").notNull(),
    pending: integer("pending").notNull(),
    accepted: integer("accepted").notNull(),
    rejected: integer("rejected").notNull(),
    /** How many of those pending repeat another. */
    repeated: integer("repeated").notNull(),
    /** Numbers of the classes of those that are neither rejected nor repeat another. */
    classes: integer("classes").array().notNull(),
  },
  (table) => [primaryKey({ columns: [table.jobId, table.videoId, table.frameIndex] })],
);

/** A frame of a job that a person looked at and called right as it was, also where it is empty. */
export const frameReview = pgTable(
  "frame_review",
  {
    jobId: uuid("job_id")
      .notNull()
      .references(() => job.id, { onDelete: "cascade" }),
    videoId: uuid("video_id").notNull(),
    frameIndex: integer("frame_index").notNull(),
    reviewedBy: uuid("reviewed_by"),
    reviewedAt: instant("reviewed_at").notNull().defaultNow(),
  },
  (table) => [primaryKey({ columns: [table.jobId, table.videoId, table.frameIndex] })],
);

/**
 * Who labels and who reviews a frame of a job, and whether its labeler handed it to review. Without
 * a row a frame is in stage `label` and nobody's. Accounts are named without a reference: rows stay
 * when a member leaves.
 */
export const frameAssignment = pgTable(
  "frame_assignment",
  {
    jobId: uuid("job_id")
      .notNull()
      .references(() => job.id, { onDelete: "cascade" }),
    videoId: uuid("video_id").notNull(),
    frameIndex: integer("frame_index").notNull(),
    labelerId: uuid("labeler_id"),
    reviewerId: uuid("reviewer_id"),
    stage: text("stage").$type<"label" | "review">().notNull().default("label"),
  },
  (table) => [
    primaryKey({ columns: [table.jobId, table.videoId, table.frameIndex] }),
    check("frame_assignment_stage", sql`stage IN ('label', 'review')`),
  ],
);

/**
 * A word that people put on a frame of a video, whichever jobs label the frame. In a workspace each
 * key has one spelling.
 */
export const frameTag = pgTable(
  "frame_tag",
  {
    workspaceId: ownWorkspace(),
    videoId: uuid("video_id")
      .notNull()
      .references(() => video.id, { onDelete: "cascade" }),
    frameIndex: integer("frame_index").notNull(),
    /** The tag as `foldedName` folds it: tags of one key are one tag. */
    key: text("key").notNull(),
    /** The tag as it was first spelled in the workspace. */
    tag: text("tag").notNull(),
    createdBy: uuid("created_by"),
    createdAt: createdAt(),
  },
  (table) => [
    primaryKey({ columns: [table.videoId, table.frameIndex, table.key] }),
    index("frame_tag_key").on(table.workspaceId, table.key, table.videoId, table.frameIndex),
  ],
);

/** A person's remark on an annotation. It outlives the annotation, whose deletion can be undone. */
export const annotationComment = pgTable(
  "annotation_comment",
  {
    id: id(),
    jobId: uuid("job_id")
      .notNull()
      .references(() => job.id, { onDelete: "cascade" }),
    annotationId: uuid("annotation_id").notNull(),
    videoId: uuid("video_id").notNull(),
    frameIndex: integer("frame_index").notNull(),
    text: text("text").notNull(),
    authorId: uuid("author_id").notNull(),
    createdAt: createdAt(),
    /** The newest change of the text. */
    updatedAt: instant("updated_at").notNull().defaultNow(),
    resolvedAt: instant("resolved_at"),
    resolvedBy: uuid("resolved_by"),
  },
  (table) => [index("annotation_comment_job").on(table.jobId, table.createdAt, table.id)],
);

/**
 * An object of the store that holds crops of boxes on a stretch of a video's frames, in the format
 * of `shared/crop-pack.ts`. A box may have crops in several packs.
 */
export const cropPack = pgTable(
  "crop_pack",
  {
    id: id(),
    workspaceId: ownWorkspace(),
    jobId: uuid("job_id")
      .notNull()
      .references(() => job.id, { onDelete: "cascade" }),
    videoId: uuid("video_id").notNull(),
    key: text("key").notNull().unique(),
    /** Indexes of the frames that have crops in it. */
    frames: integer("frames").array().notNull(),
    entries: integer("entries").notNull(),
    bytes: integer("bytes").notNull(),
    createdAt: createdAt(),
  },
  (table) => [index("crop_pack_video").on(table.jobId, table.videoId)],
);

/** An edit of a job, of one annotation or of thousands; one that was not undone can be. */
export const change = pgTable(
  "change",
  {
    id: id(),
    jobId: uuid("job_id")
      .notNull()
      .references(() => job.id, { onDelete: "cascade" }),
    actorId: uuid("actor_id"),
    kind: text("kind").notNull(),
    summary: jsonb("summary").notNull(),
    /** Drawn anew when the edit goes on, and when it is undone. */
    seq: count("seq")
      .notNull()
      .default(sql.raw(`nextval('${editSeq.seqName}')`)),
    at: instant("at").notNull().defaultNow(),
    /** Since when it is being undone: it takes no more annotations then. */
    undoingAt: instant("undoing_at"),
    undoneAt: instant("undone_at"),
  },
  (table) => [
    index("change_job").on(table.jobId, table.at),
    index("change_seq").on(table.jobId, table.seq),
  ],
);

/** What one edit did to one annotation; null where there was, or is, none. */
export const changeItem = pgTable(
  "change_item",
  {
    changeId: uuid("change_id")
      .notNull()
      .references(() => change.id, { onDelete: "cascade" }),
    annotationId: uuid("annotation_id").notNull(),
    before: jsonb("before"),
    after: jsonb("after"),
  },
  (table) => [primaryKey({ columns: [table.changeId, table.annotationId] })],
);

/** An edit of a batch that was applied, by its client's id: a repeat changes nothing. */
export const appliedEdit = pgTable(
  "applied_edit",
  {
    jobId: uuid("job_id")
      .notNull()
      .references(() => job.id, { onDelete: "cascade" }),
    editId: uuid("edit_id").notNull(),
    annotationId: uuid("annotation_id").notNull(),
    /** That of the annotation after the edit; of a deletion, its last. */
    revision: integer("revision").notNull(),
    changeId: uuid("change_id").notNull(),
    createdAt: createdAt(),
  },
  (table) => [
    primaryKey({ columns: [table.jobId, table.editId] }),
    index("applied_edit_created").on(table.createdAt),
  ],
);
