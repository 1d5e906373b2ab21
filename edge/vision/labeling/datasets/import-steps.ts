// The work of an import with images, in steps that any process goes on with: store the images, wait
// for their probes, store the job. One process at a time has an import to itself; two that believe
// so store nothing twice, as all ids are given.

import { sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import { DAY, iso } from "../../../../shared/time.ts";
import { batch, type Database } from "../../../http/database.ts";
import { discardObjects } from "../../base/discard.ts";
import type { Parts } from "../../base/parts.ts";
import { objectKeys } from "../../media/videos/videos.ts";
import { answerOf } from "../../tasks/queue/wait.ts";
import { readArchive } from "./archive.ts";
import { LEASE_MS, storeImages, TURN_IMAGES_MAX } from "./archive-images.ts";
import { archiveLabels } from "./archive-labels.ts";
import {
  archiveFinder,
  type ImportRow,
  importOf,
  type LabelsSummary,
  summaryOf,
} from "./image-imports.ts";
import type { FoundFrame, ProjectVideo } from "./image-names.ts";
import { matchLabels, readyVideos, storeLabels } from "./imports.ts";
import { counted } from "./labels.ts";

/** Processes that may die at an import one after another, before it fails. */
const ATTEMPTS_MAX = 15;
/** An import that no node probes the images of fails after this. */
const IMPORT_MS_MAX = 7 * DAY;
/** How long a minute's cron works on imports; what is left is the next one's. */
const ROUND_MS = 15_000;
const ROUND_IMPORTS_MAX = 20;
const PROBE_PAUSE_MS = 500;
const NAMED_MAX = 5;

const AGAIN =
  "what is stored stays in the project, and another import of the archive goes on from it";

/**
 * Works on an import until it ends, an instant comes (epoch milliseconds), or as many images were
 * stored as one turn may; returns how many it took. `waits`: also for the probes. Returns at once
 * while another process works on it. What the import itself is at fault for ends it as failed;
 * other failures, such as those of the store, are thrown, and the next process goes on.
 */
export async function advanceImport(
  parts: Parts,
  importId: string,
  until: number,
  { waits }: { waits: boolean },
): Promise<number> {
  const row = await lease(parts, importId);
  if (!row) return 0;
  try {
    if (row.attempts > ATTEMPTS_MAX) {
      throw new Failure("internal", `the import was broken off ${ATTEMPTS_MAX} times; ${AGAIN}`);
    }
    if (Date.parse(row.createdAt) < parts.clock() - IMPORT_MS_MAX) {
      throw new Failure("no_node", `no GPU node decoded the images within 7 days; ${AGAIN}`);
    }
    const { taken, isLast } = await storeImages(parts, row, until);
    const isReady = isLast && (await areProbed(parts, row.id, waits ? until : 0));
    if (isReady) await finish(parts, row);
    else await release(parts.database, row.id);
    return taken;
  } catch (thrown) {
    if (!(thrown instanceof Failure)) {
      // It is no process that died: a store that is away for long fails no import.
      await takeBack(parts.database, row.id).catch(() => {});
      throw thrown;
    }
    await fail(parts, row, thrown);
    return 0;
  }
}

/** Takes an import that runs and that no other process has; null otherwise. */
async function lease({ database, clock }: Parts, importId: string): Promise<ImportRow | null> {
  const now = clock();
  const { rows } = await database.execute<{ workspaceId: string }>(sql`
    UPDATE dataset_import SET attempts = attempts + 1,
      leased_until = ${iso(now + LEASE_MS)}::timestamptz
     WHERE id = ${importId}::uuid AND state = 'running'
       AND (leased_until IS NULL OR leased_until <= ${iso(now)}::timestamptz)
    RETURNING workspace_id AS "workspaceId"`);
  return rows[0] ? importOf(database, [rows[0].workspaceId], importId) : null;
}

/** Lets the next process have an import, which got on as far as it could by now. */
const release = (database: Database, importId: string) =>
  database.execute(sql`
    UPDATE dataset_import SET leased_until = NULL, attempts = 0
     WHERE id = ${importId}::uuid AND state = 'running'`);

/** Lets the next process have an import, as if this one had not tried. */
const takeBack = (database: Database, importId: string) =>
  database.execute(sql`
    UPDATE dataset_import SET leased_until = NULL, attempts = greatest(attempts - 1, 0)
     WHERE id = ${importId}::uuid AND state = 'running'`);

/** Whether the videos of an import's images were all probed, by an instant. */
async function areProbed({ database, clock }: Parts, importId: string, until: number) {
  const probed = await answerOf(
    async () => {
      const { rows } = await database.execute(sql`
        SELECT FROM dataset_import_image i JOIN video v ON v.id = i.video_id
         WHERE i.import_id = ${importId}::uuid AND v.state = 'probing' LIMIT 1`);
      return rows.length === 0 ? true : null;
    },
    { clock, until, pauseMsMax: PROBE_PAUSE_MS },
  );
  return probed ?? false;
}

interface StoredImage extends ProjectVideo {
  name: string;
  /** It is stored, and its frame was decoded. */
  isReady: boolean;
}

/** The images of an import by their paths in the archive, as videos that labels are of. */
async function imagesOf(database: Database, importId: string): Promise<StoredImage[]> {
  const { rows } = await database.execute<StoredImage>(sql`
    SELECT i.video_id AS id, i.name, i.name AS filename, 1 AS frame_count,
      coalesce(v.width, 0) AS width, coalesce(v.height, 0) AS height,
      i.state <> 'failed' AND coalesce(v.state = 'ready', false) AS "isReady"
      FROM dataset_import_image i LEFT JOIN video v ON v.id = i.video_id
     WHERE i.import_id = ${importId}::uuid ORDER BY i.position`);
  return rows;
}

/** Stores the job of an import whose images are all there, and ends it, in one transaction. */
async function finish(parts: Parts, row: ImportRow): Promise<void> {
  const { database, bucket } = parts;
  const images = await imagesOf(database, row.id);
  const failed = new Map(images.filter(({ isReady }) => !isReady).map((one) => [one.id, one.name]));
  const find = archiveFinder(images, await readyVideos(database, row.projectId));
  const content = await readArchive(bucket, { key: row.storageKey, bytes: row.bytes });
  const labels = archiveLabels(
    { ...content, images: 0 },
    { format: row.format ?? undefined, isKnown: (image) => find(image) !== null },
  );
  // Labels of an image that failed are of none: another image of its name is not meant.
  const findReady = (image: string, frameId?: string): FoundFrame => {
    const found = find(image, frameId);
    return found && "video" in found && failed.has(found.video.id) ? null : found;
  };
  const matched = matchLabels(labels, findReady);
  await storeLabels(database, matched, {
    id: row.id,
    workspaceId: row.workspaceId,
    projectId: row.projectId,
    name: row.name,
    createdBy: row.createdBy,
    after: ({ jobId: _, notes, ...summary }) =>
      endOf(parts, row.id, { ...summary, notes: [...notes, ...failedNotes([...failed.values()])] }),
  });
  await bucket.delete(row.storageKey);
}

function failedNotes(names: readonly string[]): string[] {
  if (names.length === 0) return [];
  const more = names.length > NAMED_MAX ? ", …" : "";
  return [
    `${counted(names.length, "image")} not taken: ${names.slice(0, NAMED_MAX).join(", ")}${more}`,
  ];
}

/** The statements that end an import: completed with what came of its labels, or failed. */
function endOf({ clock }: Parts, importId: string, end: LabelsSummary | Failure) {
  const failure = end instanceof Failure ? end : null;
  const labels = end instanceof Failure ? null : end;
  return [
    sql`UPDATE dataset_import SET state = ${failure ? "failed" : "completed"},
        failure_code = ${failure?.code ?? null}::text, failure = ${failure?.message ?? null}::text,
        summary = ${summaryOf(importId, labels)}, leased_until = NULL,
        ended_at = ${iso(clock())}::timestamptz
       WHERE id = ${importId}::uuid AND state = 'running'`,
    sql`DELETE FROM dataset_import_image WHERE import_id = ${importId}::uuid`,
  ];
}

async function fail(parts: Parts, row: ImportRow, failure: Failure): Promise<void> {
  const { rows } = await parts.database.execute<{ videoId: string }>(sql`
    SELECT video_id AS "videoId" FROM dataset_import_image
     WHERE import_id = ${row.id}::uuid AND state = 'pending'`);
  await batch(parts.database, endOf(parts, row.id, failure));
  await parts.bucket.delete(row.storageKey);
  // Files of a turn that was broken off before their videos were made; what a video has stays.
  const folders = rows.map(({ videoId }) => objectKeys(row.workspaceId, videoId).folder);
  await discardObjects(parts, folders);
}

/** Works on imports that their first process left, for some seconds. The minute cron calls it. */
export async function advanceImports(parts: Parts): Promise<void> {
  const until = parts.clock() + ROUND_MS;
  const { rows } = await parts.database.execute<{ id: string }>(sql`
    SELECT id FROM dataset_import WHERE state = 'running'
       AND (leased_until IS NULL OR leased_until <= ${iso(parts.clock())}::timestamptz)
     ORDER BY random() LIMIT ${ROUND_IMPORTS_MAX}::int`);
  let taken = 0;
  for (const { id } of rows) {
    if (parts.clock() >= until || taken >= TURN_IMAGES_MAX) return;
    try {
      taken += await advanceImport(parts, id, until, { waits: false });
    } catch (error) {
      parts.log.error("import_not_advanced", { import_id: id, error });
    }
  }
}
