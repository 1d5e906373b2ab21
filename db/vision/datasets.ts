// Datasets: what is exported and imported of jobs, and jobs that are trained on together.

import { sql } from "drizzle-orm";
import {
  type AnyPgColumn,
  check,
  doublePrecision,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  unique,
  uniqueIndex,
  uuid,
} from "drizzle-orm/pg-core";
import { job } from "./labeling.ts";
import { count, createdAt, id, instant, ownWorkspace, project } from "./schema.ts";

/** An archive of a job's dataset, or of a version of a dataset of jobs. */
export const datasetExport = pgTable(
  "dataset_export",
  {
    id: id(),
    workspaceId: ownWorkspace(),
    jobId: uuid("job_id").references(() => job.id, { onDelete: "cascade" }),
    datasetVersionId: uuid("dataset_version_id").references((): AnyPgColumn => datasetVersion.id, {
      onDelete: "cascade",
    }),
    format: text("format").notNull(),
    state: text("state").$type<"queued" | "completed" | "failed">().notNull().default("queued"),
    failure: text("failure"),
    options: jsonb("options").notNull(),
    storageKey: text("storage_key").notNull(),
    bytes: count("bytes"),
    summary: jsonb("summary"),
    createdBy: uuid("created_by"),
    createdAt: createdAt(),
    endedAt: instant("ended_at"),
  },
  (table) => [
    index("dataset_export_job").on(table.jobId, table.createdAt),
    index("dataset_export_version").on(table.datasetVersionId, table.createdAt),
    check("dataset_export_source", sql`(job_id IS NULL) <> (dataset_version_id IS NULL)`),
  ],
);

/** An import of an archive with its images. Its id is that of the job that it becomes. */
export const datasetImport = pgTable(
  "dataset_import",
  {
    id: id(),
    workspaceId: ownWorkspace(),
    projectId: uuid("project_id")
      .notNull()
      .references(() => project.id, { onDelete: "cascade" }),
    name: text("name").notNull(),
    /** The format that the request names; null: the archive's only one. */
    format: text("format"),
    state: text("state").$type<"running" | "completed" | "failed">().notNull().default("running"),
    failureCode: text("failure_code"),
    failure: text("failure"),
    /** The archive, which is deleted when the import ends. */
    storageKey: text("storage_key").notNull(),
    bytes: count("bytes").notNull(),
    /** Counts of images, those that failed, and what was not stored of the labels. */
    summary: jsonb("summary"),
    /** Processes that took it up since it last got on. */
    attempts: integer("attempts").notNull().default(0),
    /** Until then a process works on it. */
    leasedUntil: instant("leased_until"),
    createdBy: uuid("created_by").notNull(),
    createdAt: createdAt(),
    endedAt: instant("ended_at"),
  },
  (table) => [
    // Two at once would not see each other's images and store each twice.
    uniqueIndex("dataset_import_running").on(table.projectId).where(sql`state = 'running'`),
    check("dataset_import_failure", sql`(state = 'failed') = (failure IS NOT NULL)`),
  ],
);

/** An image of a running import's archive. */
export const datasetImportImage = pgTable(
  "dataset_import_image",
  {
    importId: uuid("import_id")
      .notNull()
      .references(() => datasetImport.id, { onDelete: "cascade" }),
    position: integer("position").notNull(),
    /** Its path in the archive. */
    name: text("name").notNull(),
    state: text("state")
      .$type<"pending" | "stored" | "existing" | "failed">()
      .notNull()
      .default("pending"),
    /** The video that it becomes, or that the project had before. */
    videoId: uuid("video_id").notNull(),
    failureCode: text("failure_code"),
    failure: text("failure"),
  },
  (table) => [primaryKey({ columns: [table.importId, table.position] })],
);

/** Jobs that are trained on together, with one list of classes and one split. */
export const dataset = pgTable(
  "dataset",
  {
    id: id(),
    workspaceId: ownWorkspace(),
    projectId: uuid("project_id")
      .notNull()
      .references(() => project.id),
    name: text("name").notNull(),
    description: text("description").notNull().default(""),
    /** In index order; a version appends the classes that it brings in. */
    classes: text("classes").array().notNull().default([]),
    include: text("include").$type<"not_rejected" | "accepted">().notNull(),
    /** Shares of the frames that are drawn for validation and for test, 0 to 1. */
    valShare: doublePrecision("val_share").notNull(),
    testShare: doublePrecision("test_share").notNull(),
    createdBy: uuid("created_by"),
    createdAt: createdAt(),
  },
  (table) => [index("dataset_workspace").on(table.workspaceId, table.createdAt)],
);

/** A job of a dataset. */
export const datasetJob = pgTable(
  "dataset_job",
  {
    datasetId: uuid("dataset_id")
      .notNull()
      .references(() => dataset.id, { onDelete: "cascade" }),
    jobId: uuid("job_id")
      .notNull()
      .references(() => job.id, { onDelete: "cascade" }),
    /** The dataset's class of a class of the job, where they are called differently. */
    classes: jsonb("classes").$type<Record<string, string>>().notNull().default({}),
    /** Classes of the job that are no part of the dataset. */
    without: text("without").array().notNull().default([]),
    addedAt: instant("added_at").notNull().defaultNow(),
  },
  (table) => [
    primaryKey({ columns: [table.datasetId, table.jobId] }),
    index("dataset_job_job").on(table.jobId),
  ],
);

/** The side of the split of a video's frames in a dataset, from one frame to the next row's. */
export const datasetSide = pgTable(
  "dataset_side",
  {
    datasetId: uuid("dataset_id")
      .notNull()
      .references(() => dataset.id, { onDelete: "cascade" }),
    videoId: uuid("video_id").notNull(),
    fromIndex: integer("from_index").notNull(),
    side: text("side").$type<"train" | "val" | "test">().notNull(),
    /** Whether a person set it, an import told it, or it was drawn. */
    origin: text("origin").$type<"person" | "import" | "drawn">().notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.datasetId, table.videoId, table.fromIndex] }),
    check("dataset_side_side", sql`side IN ('train', 'val', 'test')`),
  ],
);

/** The side of the split that an import told for a frame of its job. */
export const jobSide = pgTable(
  "job_side",
  {
    jobId: uuid("job_id")
      .notNull()
      .references(() => job.id, { onDelete: "cascade" }),
    videoId: uuid("video_id").notNull(),
    frameIndex: integer("frame_index").notNull(),
    side: text("side").$type<"train" | "val" | "test">().notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.jobId, table.videoId, table.frameIndex] }),
    check("job_side_side", sql`side IN ('train', 'val', 'test')`),
  ],
);

/** What a dataset was at an instant; it never changes. */
export const datasetVersion = pgTable(
  "dataset_version",
  {
    id: id(),
    workspaceId: ownWorkspace(),
    datasetId: uuid("dataset_id")
      .notNull()
      .references(() => dataset.id, { onDelete: "cascade" }),
    /** 1, 2, 3 … */
    number: integer("number").notNull(),
    note: text("note").notNull().default(""),
    /** How its frames were chosen and split. */
    settings: jsonb("settings").notNull(),
    classes: text("classes").array().notNull(),
    /** Frames and annotations by side, and what changed since the version before. */
    counts: jsonb("counts").notNull(),
    changes: jsonb("changes").notNull(),
    /** The manifest, and the videos that it names with their objects. */
    storageKey: text("storage_key").notNull(),
    bytes: count("bytes").notNull(),
    sha256: text("sha256").notNull(),
    sources: jsonb("sources").notNull(),
    videos: jsonb("videos").$type<string[]>().notNull(),
    createdBy: uuid("created_by"),
    createdAt: createdAt(),
  },
  (table) => [unique("dataset_version_number").on(table.datasetId, table.number)],
);
