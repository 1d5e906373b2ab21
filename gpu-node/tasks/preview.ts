// Labels a few frames and draws what was found at or above the threshold, as base64 JPEGs.

import type { Detection, TaskPayload, TaskResult } from "../../shared/tasks/tasks.ts";
import { openFootage } from "../media/footage.ts";
import { drawOver } from "../media/overlay.ts";
import type { Segmenter } from "../segmenters/segmenter.ts";
import { detectAll, type PromptDetection } from "./detect.ts";
import { asTaskFailure, readyPrompts } from "./prompts.ts";
import type { RunnerContext } from "./runner-context.ts";

/** Does a `preview` task. Fails with a TaskFailure, which says whether to try again. */
export async function run(
  payload: TaskPayload<"preview">,
  context: RunnerContext,
): Promise<TaskResult<"preview">> {
  try {
    return await context.useSegmenter(payload.segmenter, (segmenter) =>
      previewsOf(payload, context, segmenter),
    );
  } catch (thrown) {
    throw asTaskFailure(thrown);
  }
}

async function previewsOf(
  payload: TaskPayload<"preview">,
  context: RunnerContext,
  segmenter: Segmenter,
): Promise<TaskResult<"preview">> {
  const { ready, warnings } = await readyPrompts(context, segmenter, payload.prompts);
  const classes = [...new Set(ready.map(({ className }) => className))];
  const footage = await openFootage(context, payload.video);
  const frames: TaskResult<"preview">["frames"] = [];
  try {
    for await (const { index, image } of footage.read(payload.frames)) {
      const found = await detectAll(segmenter, image, ready, payload.resolution);
      const detections = atOrAbove(found, payload.threshold);
      const jpeg = await drawOver(image, detections, classes);
      frames.push({ frame_index: index, detections, image: jpeg.toString("base64") });
      context.progress({ done: frames.length, total: payload.frames.length, detail: {} });
    }
  } finally {
    await footage.close();
  }
  return { frames, segmenter: segmenter.info.name, warnings };
}

/** What is at or above a confidence; a duplicate stays one of what is left. */
function atOrAbove(found: readonly PromptDetection[], threshold: number): Detection[] {
  const shown = found.flatMap(({ detection }, index) =>
    detection.confidence >= threshold ? [index] : [],
  );
  return shown.flatMap((index) => {
    const detection = found[index]?.detection;
    if (!detection) return [];
    const of = shown.indexOf(detection.duplicate_of ?? -1);
    return [{ ...detection, duplicate_of: of < 0 ? null : of }];
  });
}
