// Labels a few frames and draws what was found at or above the threshold, as base64 JPEGs.

import type { Detection, TaskPayload, TaskResult } from "../../shared/tasks/tasks.ts";
import { openFootage } from "../media/footage.ts";
import { drawOver } from "../media/overlay.ts";
import { type Finder, withFinder } from "./finder.ts";
import type { RunnerContext } from "./runner-context.ts";

/** Does a `preview` task. Fails with a TaskFailure, which says whether to try again. */
export const run = (
  payload: TaskPayload<"preview">,
  context: RunnerContext,
): Promise<TaskResult<"preview">> =>
  withFinder(payload, context, (finder) => previewsOf(payload, context, finder));

async function previewsOf(
  payload: TaskPayload<"preview">,
  context: RunnerContext,
  finder: Finder,
): Promise<TaskResult<"preview">> {
  const classes = [...new Set(payload.prompts.map(({ class_name }) => class_name))];
  const footage = await openFootage(context, payload.video);
  const frames: TaskResult<"preview">["frames"] = [];
  try {
    for await (const { index, image } of footage.read(payload.frames)) {
      const detections = atOrAbove(await finder.find(image), payload.threshold);
      const jpeg = await drawOver(image, detections, classes);
      frames.push({ frame_index: index, detections, image: jpeg.toString("base64") });
      context.progress({ done: frames.length, total: payload.frames.length, detail: {} });
    }
  } finally {
    await footage.close();
  }
  return { frames, segmenter: finder.name, warnings: finder.warnings };
}

/** What is at or above a confidence; a duplicate stays one of what is left. */
function atOrAbove(found: readonly Detection[], threshold: number): Detection[] {
  const shown = found.flatMap(({ confidence }, index) => (confidence >= threshold ? [index] : []));
  return shown.flatMap((index) => {
    const detection = found[index];
    if (!detection) return [];
    const of = shown.indexOf(detection.duplicate_of ?? -1);
    return [{ ...detection, duplicate_of: of < 0 ? null : of }];
  });
}
