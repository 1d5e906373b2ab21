// Experiments: two models held against each other over a campaign, and the frames that those over a
// reviewed set have looked at. Part of the vision database; the rest is `schema.ts`. What the
// requests of an endpoint came to is kept by its meter.

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
  text,
  unique,
  uuid,
} from "drizzle-orm/pg-core";
import { createdAt, id, instant, ownWorkspace } from "./schema.ts";

/**
 * An experiment. Moves of `state` are those of the table in `experiments/experiment-states.ts`.
 * What it is about may be deleted meanwhile, so it refers to nothing: its record stays.
 */
export const experiment = pgTable(
  "experiment",
  {
    id: id(),
    workspaceId: ownWorkspace(),
    name: text("name").notNull(),
    hypothesis: text("hypothesis").notNull().default(""),
    source: text("source").$type<"split" | "shadow" | "reviewed">().notNull(),
    endpointId: uuid("endpoint_id"),
    /** The endpoint's name when it began. */
    slug: text("slug"),
    jobId: uuid("job_id"),
    baselineModelId: uuid("baseline_model_id").notNull(),
    candidateModelId: uuid("candidate_model_id").notNull(),
    metric: text("metric").notNull(),
    /** How it is judged, as it was asked for: see `ExperimentRules`. */
    rules: jsonb("rules").notNull(),
    /** The estimate of the samples that it needs, made when it began. */
    plan: jsonb("plan").notNull(),
    state: text("state")
      .$type<"running" | "paused" | "completed" | "stopped">()
      .notNull()
      .default("running"),
    /** Why it is not running. */
    reason: text("reason"),
    /** What its endpoint's meter had counted when the stretch under way began; else null. */
    mark: jsonb("mark"),
    /** What the stretches before came to. */
    counted: jsonb("counted"),
    /** What the last look came to. */
    results: jsonb("results").notNull(),
    /** Rises with each look and move: of two at once one is refused. */
    revision: integer("revision").notNull().default(1),
    /** What was moved to its winner, and whether it was taken back. */
    promotion: jsonb("promotion"),
    createdBy: uuid("created_by"),
    createdAt: createdAt(),
    lookedAt: instant("looked_at").notNull().defaultNow(),
    endedAt: instant("ended_at"),
  },
  (table) => [
    index("experiment_workspace").on(table.workspaceId, table.createdAt),
    index("experiment_live").on(table.lookedAt).where(sql`state IN ('running', 'paused')`),
    check("experiment_source", sql`(source = 'reviewed') = (job_id IS NOT NULL)`),
    check("experiment_endpoint", sql`(endpoint_id IS NULL) = (job_id IS NOT NULL)`),
    check("experiment_ended", sql`(state IN ('running', 'paused')) = (ended_at IS NULL)`),
    check("experiment_reason", sql`(state = 'running') = (reason IS NULL)`),
  ],
);

/** A reviewed frame that both models of an experiment look at, once. */
export const experimentFrame = pgTable(
  "experiment_frame",
  {
    /** In the order in which they were chosen. */
    number: bigserial("number", { mode: "number" }).primaryKey(),
    experimentId: uuid("experiment_id")
      .notNull()
      .references(() => experiment.id, { onDelete: "cascade" }),
    videoId: uuid("video_id").notNull(),
    frameIndex: integer("frame_index").notNull(),
    /** What each model's detections are worth on it, 0 to 1; null until then, or of a failure. */
    baselineScore: doublePrecision("baseline_score"),
    candidateScore: doublePrecision("candidate_score"),
    baselineFailed: boolean("baseline_failed").notNull().default(false),
    candidateFailed: boolean("candidate_failed").notNull().default(false),
    createdAt: createdAt(),
    /** When both were known: the order in which the frames count. */
    scoredAt: instant("scored_at"),
  },
  (table) => [
    unique("experiment_frame_once").on(table.experimentId, table.videoId, table.frameIndex),
    index("experiment_frame_scored").on(table.experimentId, table.scoredAt, table.number),
  ],
);
