// Embeddings of frames, and suggestions of what to label next.

import { sql } from "drizzle-orm";
import {
  boolean,
  check,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  real,
  text,
  uuid,
} from "drizzle-orm/pg-core";
import { bytes, createdAt, id, instant, ownWorkspace, project, video } from "./schema.ts";

/** What a segmenter's encoder makes of a frame: frames that look alike have near vectors. */
export const frameEmbedding = pgTable(
  "frame_embedding",
  {
    videoId: uuid("video_id")
      .notNull()
      .references(() => video.id, { onDelete: "cascade" }),
    frameIndex: integer("frame_index").notNull(),
    segmenter: text("segmenter").notNull(),
    /** A signed byte for each dimension, in proportion to the largest, which is ±127. */
    vector: bytes("vector").notNull(),
    createdAt: createdAt(),
  },
  (table) => [primaryKey({ columns: [table.videoId, table.segmenter, table.frameIndex] })],
);

/** A ranking of unlabeled frames by what labeling them would teach a model. */
export const suggestion = pgTable(
  "suggestion",
  {
    id: id(),
    workspaceId: ownWorkspace(),
    projectId: uuid("project_id")
      .notNull()
      .references(() => project.id, { onDelete: "cascade" }),
    state: text("state").$type<"running" | "completed" | "failed">().notNull().default("running"),
    failure: text("failure"),
    /** Frames to choose. */
    budget: integer("budget").notNull(),
    /** The model whose uncertainty counts; null: only diversity does. */
    modelId: uuid("model_id"),
    segmenter: text("segmenter").notNull(),
    /** Unlabeled frames when it began. */
    unlabeled: integer("unlabeled").notNull(),
    /** How many of those are ranked, and how many labeled ones they are held against. */
    candidates: integer("candidates").notNull(),
    labeled: integer("labeled").notNull(),
    /** Frames that no node could look at, counted at the end. */
    unreadable: integer("unreadable").notNull().default(0),
    /** Whether all of its tasks were enqueued. */
    planned: boolean("planned").notNull().default(false),
    createdBy: uuid("created_by"),
    createdAt: createdAt(),
    endedAt: instant("ended_at"),
  },
  (table) => [
    index("suggestion_project").on(table.projectId, table.createdAt),
    check("suggestion_failure", sql`(state = 'failed') = (failure IS NOT NULL)`),
  ],
);

/** A frame of a suggestion: until the end all that are looked at, then those that were chosen. */
export const suggestionFrame = pgTable(
  "suggestion_frame",
  {
    suggestionId: uuid("suggestion_id")
      .notNull()
      .references(() => suggestion.id, { onDelete: "cascade" }),
    videoId: uuid("video_id").notNull(),
    frameIndex: integer("frame_index").notNull(),
    /** The order in which frames are looked at. */
    position: integer("position").notNull(),
    /** People labeled it: it is no candidate, others are to differ from it. */
    labeled: boolean("labeled").notNull(),
    /** Whether a node is to make its embedding; the others have one. */
    embed: boolean("embed").notNull(),
    /** A node looked at it. */
    done: boolean("done").notNull().default(false),
    /** Bits by class of the model. */
    entropies: jsonb("entropies").$type<Record<string, number>>(),
    /** From 0, best first, of a frame that was chosen. */
    rank: integer("rank"),
    uncertainty: real("uncertainty"),
    distance: real("distance"),
  },
  (table) => [primaryKey({ columns: [table.suggestionId, table.videoId, table.frameIndex] })],
);
