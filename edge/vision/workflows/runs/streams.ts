// What a version's steps remember of a stream, as JSON. A run saves what it made of the state that
// it read, or learns that another run of the stream came before. A workflow remembers as many
// streams as it may; a new one then takes the room of the one that was unused longest.

import { type SQL, sql } from "drizzle-orm";
import { workflowStream } from "../../../../db/vision/workflows.ts";
import { Failure } from "../../../../shared/errors.ts";
import type { Database } from "../../../http/database.ts";
import { jsonb } from "../../../http/storable.ts";
import type { Parts } from "../../base/parts.ts";
import { keep } from "../../base/retention.ts";
import { instant } from "../../base/sql.ts";

/** Bytes of a stream's state as JSON. */
const STATE_BYTES_MAX = 1024 * 1024;
/** Streams of a workflow. */
const STREAMS_MAX = 1_000;
/** A stream is kept for 30 days after its last use. */
export const KEPT_STREAMS = keep(workflowStream, "usedAt", { days: 30 });

/** What is remembered of a stream; of one that is new nothing, at revision 0. */
export interface StreamState {
  revision: number;
  /** By step. */
  state: Record<string, unknown>;
}

/** Reads what a version remembers of a stream. */
export async function readStream(
  database: Database,
  { versionId, stream }: { versionId: string; stream: string },
): Promise<StreamState> {
  const { rows } = await database.execute<StreamState & Record<string, unknown>>(sql`
    SELECT revision, state FROM workflow_stream
     WHERE version_id = ${versionId}::uuid AND stream = ${stream}`);
  return rows[0] ?? { revision: 0, state: {} };
}

/** A state to be saved, by a run that read the stream at this `revision`. */
export interface StreamSave extends StreamState {
  versionId: string;
  stream: string;
}

/** What a run is told that another one of its stream has overtaken. */
export const overtaken = ({ stream }: StreamSave): Failure => {
  const detail = `another run of the stream ${stream} ended in between: send one after another`;
  return new Failure("revision_conflict", detail);
};

/**
 * Saves the state that a run of the stream's `revision` left. False: another run has saved since,
 * and nothing was written. Fails with `invalid_request` for more than 1 MiB.
 */
export async function saveStream(
  { database, clock }: Pick<Parts, "database" | "clock">,
  save: StreamSave,
): Promise<boolean> {
  const { rows } = await database.execute(
    sql`WITH ${savingStream(save, clock())} SELECT FROM saved`,
  );
  return rows.length > 0;
}

/**
 * The parts of a statement that saves a state; the last one is `saved`, which is empty where
 * another run has saved since. Fails with `invalid_request` for more than 1 MiB.
 */
export function savingStream(
  { versionId, stream, revision, state }: StreamSave,
  milliseconds: number,
): SQL {
  const bytes = new TextEncoder().encode(JSON.stringify(state)).length;
  if (bytes > STATE_BYTES_MAX) {
    throw new Failure("invalid_request", "stream: its steps remember more than a stream may", {
      data: { bytes, bytes_max: STATE_BYTES_MAX },
    });
  }
  const now = instant(milliseconds);
  const written = jsonb(state);
  const own = sql`version_id = ${versionId}::uuid AND stream = ${stream}`;
  if (revision > 0) {
    return sql`saved AS (
      UPDATE workflow_stream SET state = ${written}, revision = revision + 1, used_at = ${now}
       WHERE ${own} AND revision = ${revision}::int RETURNING 1)`;
  }
  return sql`
    v AS (SELECT id, workflow_id FROM workflow_version WHERE id = ${versionId}::uuid),
    oldest AS (
      DELETE FROM workflow_stream s USING v WHERE s.workflow_id = v.workflow_id
        AND NOT (${own}) AND (s.version_id, s.stream) IN (
        SELECT version_id, stream FROM workflow_stream o WHERE o.workflow_id = v.workflow_id
         ORDER BY used_at DESC OFFSET ${STREAMS_MAX - 1}::int)),
    saved AS (
      INSERT INTO workflow_stream (version_id, stream, workflow_id, state, used_at)
      SELECT v.id, ${stream}, v.workflow_id, ${written}, ${now} FROM v
      ON CONFLICT (version_id, stream) DO NOTHING RETURNING 1)`;
}
