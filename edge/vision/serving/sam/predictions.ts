// What segmenters find on clips, under an id: the task's row is the record, and keeps its result
// for a day, as that of a prediction on a video does.

import type { SamVideoPrediction } from "../../../../shared/wire/serving.ts";
import type { Parts } from "../../base/parts.ts";
import { clipRecord, findClip } from "../predict/predictions.ts";
import { objectsOf } from "./sam.ts";

/** A prediction of the workspaces; fails as `findClip` does. */
export async function findSamPrediction(
  parts: Pick<Parts, "database">,
  workspaces: readonly string[],
  predictionId: string,
): Promise<SamVideoPrediction> {
  const row = await findClip(parts, "sam_video", { workspaces, predictionId });
  const { head, progress, tail, result } = clipRecord(row);
  return {
    ...head,
    ...progress,
    frames:
      result?.frames.map(({ frame_index, time, findings }) => ({
        frame_index,
        time,
        objects: objectsOf(findings, row.payload),
      })) ?? null,
    segmenter: result?.segmenter ?? null,
    warnings: result?.warnings ?? [],
    left_out: result
      ? {
          frames: result.left_out.frames,
          objects: result.left_out.objects,
          masks: result.left_out.masks,
        }
      : null,
    ...tail,
  };
}
