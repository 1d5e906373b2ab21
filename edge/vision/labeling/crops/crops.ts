// Crops of annotations, for grids of hundreds: read from the job's packs, and asked of a node where
// there are none yet. No answer waits for a node.

import { sql } from "drizzle-orm";
import type { AnsweredCrop, CropAnswer } from "../../../../shared/crop-answer.ts";
import type { Parts } from "../../base/parts.ts";
import { idList } from "../../base/sql.ts";
import type { JobRow } from "../jobs/jobs.ts";
import { BOX, boxesWithPacks, boxKey, locate, readCrops, type WantedBox } from "./located-crops.ts";
import { expectedCrops } from "./missing-crops.ts";

/**
 * The crops of a job's annotations in the order of their ids, as far as there are any. Others are
 * asked for.
 */
export async function cropsOf(
  parts: Parts,
  job: JobRow,
  ids: readonly string[],
): Promise<CropAnswer> {
  const { boxes, packs } = await boxesWithPacks<WantedBox & { id: string }>(
    parts.database,
    job.id,
    sql`SELECT a.id, ${BOX} FROM annotation a
     WHERE a.job_id = ${job.id}::uuid AND a.id IN ${idList(ids)}`,
  );
  const located = await locate(parts.bucket, packs, boxes);
  const jpegs = await readCrops(parts.bucket, [...located.values()]);
  const names = new Map(boxes.map((box) => [box.id, boxKey(box)]));
  const crops = ids.map((id): AnsweredCrop => {
    const name = names.get(id.toLowerCase());
    return name === undefined ? undefined : (jpegs.get(name) ?? null);
  });
  const lacking = boxes.filter((box) => !jpegs.has(boxKey(box)));
  const missing = lacking.length === 0 ? 0 : await expectedCrops(parts, job, lacking);
  return { crops, missing };
}
