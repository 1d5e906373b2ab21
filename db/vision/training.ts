// Training runs, the models that they registered, and which model is called what. Part of the
// vision database; the rest is `schema.ts`.

import { sql } from "drizzle-orm";
import {
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
  unique,
  uniqueIndex,
  uuid,
} from "drizzle-orm/pg-core";
import { datasetVersion } from "./datasets.ts";
import { job } from "./labeling.ts";
import { count, createdAt, id, instant, ownWorkspace, project } from "./schema.ts";

/** A training run. Moves of `state` are those of the table in `training/states.ts`. */
export const trainingRun = pgTable(
  "training_run",
  {
    id: id(),
    workspaceId: ownWorkspace(),
    projectId: uuid("project_id")
      .notNull()
      .references(() => project.id),
    /** Null once the job was deleted; the dataset that was made of it stays. */
    jobId: uuid("job_id").references(() => job.id, { onDelete: "set null" }),
    /** The version that it was made of, in place of a job; null once that was deleted. */
    datasetVersionId: uuid("dataset_version_id").references(() => datasetVersion.id, {
      onDelete: "set null",
    }),
    name: text("name").notNull(),
    notes: text("notes").notNull().default(""),
    state: text("state")
      .$type<"queued" | "running" | "completed" | "failed" | "stopped">()
      .notNull()
      .default("queued"),
    failure: text("failure"),
    settings: jsonb("settings").notNull(),
    resolved: jsonb("resolved"),
    /** In index order. */
    classes: text("classes").array().notNull().default([]),
    /** The manifest of its dataset, its size and hash, and the keys of its videos. */
    dataset: jsonb("dataset").notNull(),
    /** Rises with each resume; names the task and the model of one stretch. */
    round: integer("round").notNull().default(1),
    checkpoint: jsonb("checkpoint"),
    /** How far it is, for whoever asks: see the wire shape. */
    live: jsonb("live").notNull().default({}),
    bestMetrics: jsonb("best_metrics"),
    bestEpoch: integer("best_epoch"),
    /** On the test frames, of the model that it registered last. */
    testMetrics: jsonb("test_metrics"),
    artifacts: jsonb("artifacts").notNull().default([]),
    stopRequestedAt: instant("stop_requested_at"),
    createdBy: uuid("created_by"),
    createdAt: createdAt(),
    startedAt: instant("started_at"),
    endedAt: instant("ended_at"),
  },
  (table) => [
    index("training_run_workspace").on(table.workspaceId, table.createdAt),
    index("training_run_job").on(table.jobId),
    index("training_run_dataset_version").on(table.datasetVersionId),
    check("training_run_failure", sql`(state = 'failed') = (failure IS NOT NULL)`),
    check("training_run_ended", sql`(state IN ('queued', 'running')) = (ended_at IS NULL)`),
  ],
);

/** One epoch of a run, as its node reported it. */
export const trainingEpoch = pgTable(
  "training_epoch",
  {
    runId: uuid("run_id")
      .notNull()
      .references(() => trainingRun.id, { onDelete: "cascade" }),
    epoch: integer("epoch").notNull(),
    record: jsonb("record").notNull(),
  },
  (table) => [primaryKey({ columns: [table.runId, table.epoch] })],
);

/** Weights that an operator brought along, to start runs from. */
export const weightsFile = pgTable(
  "weights_file",
  {
    id: id(),
    workspaceId: ownWorkspace(),
    name: text("name").notNull(),
    /** What they were trained on, in the operator's words. */
    dataset: text("dataset").notNull().default(""),
    format: text("format").$type<"safetensors" | "onnx">().notNull(),
    storageKey: text("storage_key").notNull(),
    bytes: count("bytes").notNull(),
    createdBy: uuid("created_by"),
    createdAt: createdAt(),
  },
  (table) => [index("weights_file_workspace").on(table.workspaceId, table.createdAt)],
);

/** A trained model. Its weights never change. */
export const model = pgTable(
  "model",
  {
    id: id(),
    workspaceId: ownWorkspace(),
    projectId: uuid("project_id").references(() => project.id),
    runId: uuid("run_id").references(() => trainingRun.id, { onDelete: "set null" }),
    /** Round of the run that made it: a round registers one model, however often it is reported. */
    round: integer("round"),
    name: text("name").notNull(),
    version: integer("version").notNull(),
    variant: text("variant").notNull(),
    task: text("task").$type<"detection" | "segmentation">().notNull(),
    classes: text("classes").array().notNull(),
    imageSize: integer("image_size").notNull(),
    parameters: count("parameters").notNull(),
    storageKey: text("storage_key").notNull(),
    bytes: count("bytes").notNull(),
    sha256: text("sha256").notNull(),
    metrics: jsonb("metrics").notNull().default({}),
    /** On the test frames of its run's dataset; null where they were not measured. */
    testMetrics: jsonb("test_metrics"),
    /** Its detections on the validation split, by confidence; null where they were not measured. */
    confidenceBins: jsonb("confidence_bins").$type<number[]>(),
    active: boolean("active").notNull().default(false),
    createdBy: uuid("created_by"),
    createdAt: createdAt(),
  },
  (table) => [
    uniqueIndex("model_active").on(table.workspaceId).where(sql`active`),
    unique("model_of_round").on(table.runId, table.round),
    unique("model_version").on(table.workspaceId, table.name, table.version),
    index("model_workspace").on(table.workspaceId, table.createdAt),
  ],
);

/** A model as a file that leaves: one of each kind a model, however often it is asked for. */
export const modelExport = pgTable(
  "model_export",
  {
    id: id(),
    workspaceId: ownWorkspace(),
    modelId: uuid("model_id")
      .notNull()
      .references(() => model.id, { onDelete: "cascade" }),
    /** Format and options in words, such as `onnx file int8 of 32 end_to_end 640x640 batch 1`. */
    fingerprint: text("fingerprint").notNull(),
    format: text("format").notNull(),
    artifact: text("artifact").notNull(),
    precision: text("precision").notNull(),
    output: text("output").notNull(),
    /** Pixels of the input. */
    height: integer("height").notNull(),
    width: integer("width").notNull(),
    /** Images of one run; null is any number. */
    batch: integer("batch"),
    /** `queued` until its task ended. */
    state: text("state").$type<"queued" | "completed" | "failed">().notNull().default("queued"),
    failure: text("failure"),
    /** Rises each time that a failed one is asked for again; names its task. */
    round: integer("round").notNull().default(1),
    /** What its file takes once it is there; it counts until then. */
    bytesExpected: count("bytes_expected").notNull(),
    storageKey: text("storage_key"),
    bytes: count("bytes"),
    sha256: text("sha256"),
    opset: integer("opset"),
    verification: jsonb("verification"),
    recommendedConfidence: doublePrecision("recommended_confidence"),
    /** Images that int8 is to be calibrated on; null for other precisions. */
    calibrationImages: integer("calibration_images"),
    /** What int8 was made by: images, and the ranges of all maps. */
    calibration: jsonb("calibration"),
    /** What its node did not look at, sentences. */
    notVerified: text("not_verified").array().notNull().default([]),
    createdBy: uuid("created_by"),
    createdAt: createdAt(),
    endedAt: instant("ended_at"),
  },
  (table) => [
    unique("model_export_once").on(table.modelId, table.fingerprint),
    index("model_export_workspace").on(table.workspaceId),
    index("model_export_queued").on(table.createdAt).where(sql`state = 'queued'`),
    check("model_export_failure", sql`(state = 'failed') = (failure IS NOT NULL)`),
    check("model_export_file", sql`(state = 'completed') = (storage_key IS NOT NULL)`),
  ],
);

/** Which model an alias names. */
export const modelAlias = pgTable(
  "model_alias",
  {
    workspaceId: ownWorkspace(),
    alias: text("alias").$type<"production" | "staging" | "canary">().notNull(),
    modelId: uuid("model_id")
      .notNull()
      .references(() => model.id),
  },
  (table) => [
    primaryKey({ columns: [table.workspaceId, table.alias] }),
    check("model_alias_name", sql`alias IN ('production', 'staging', 'canary')`),
  ],
);

/** Each time that an alias, or the active model, came to name another model; kept for ever. */
export const modelMove = pgTable(
  "model_move",
  {
    id: bigserial("id", { mode: "number" }).primaryKey(),
    workspaceId: ownWorkspace(),
    /** An alias, or `active`. */
    name: text("name").notNull(),
    fromModelId: uuid("from_model_id"),
    toModelId: uuid("to_model_id"),
    /** The move that this one took back. */
    rollbackOf: count("rollback_of"),
    actorId: uuid("actor_id"),
    at: instant("at").notNull().defaultNow(),
  },
  (table) => [index("model_move_name").on(table.workspaceId, table.name, table.id)],
);
