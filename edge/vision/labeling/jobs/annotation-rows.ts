// Annotations on their way into the database: the one statement that stores what a model found, or
// what was made elsewhere.

import { type SQL, sql } from "drizzle-orm";
import type { JobRow } from "./jobs.ts";

/** An annotation to store, its class by name. */
export interface NewAnnotation {
  id: string;
  /** Id of its video. */
  video: string;
  frame: number;
  class: string;
  /** x1, y1, x2, y2 in pixels. */
  bbox: readonly number[];
  confidence: number | null;
  track: number | null;
  /** Id of a better annotation of the same object. */
  duplicate: string | null;
  polygon: readonly number[] | null;
}

/** How annotations came about: a model or segmenter detected them, or a file had them. */
export type Origin = { source: "model"; foundBy: string | null } | { source: "import" };

/**
 * Inserts annotations of a job's classes, after `from` in the FROM clause; one that is there stays
 * as it is.
 */
export const insertAnnotations = (
  job: Pick<JobRow, "id" | "workspaceId">,
  from: SQL,
  rows: readonly NewAnnotation[],
  origin: Origin,
): SQL => sql`
  INSERT INTO annotation (id, workspace_id, job_id, video_id, frame_index, class_number,
    x1, y1, x2, y2, confidence, source, found_by, track_id, duplicate_of, polygon)
  SELECT (r->>'id')::uuid, ${job.workspaceId}::uuid, ${job.id}::uuid, (r->>'video')::uuid,
    (r->>'frame')::int, c.number, (r->'bbox'->>0)::real, (r->'bbox'->>1)::real,
    (r->'bbox'->>2)::real, (r->'bbox'->>3)::real, (r->>'confidence')::real, ${origin.source},
    ${origin.source === "model" ? origin.foundBy : null}::text, (r->>'track')::int, (r->>'duplicate')::uuid, nullif(r->'polygon', 'null')
    ${from} jsonb_array_elements(${JSON.stringify(rows)}::jsonb) r
    JOIN job_class c ON c.job_id = ${job.id}::uuid AND c.name = r->>'class'
  ON CONFLICT (id) DO NOTHING`;
