// Masks from clicks on one frame. The frame's encoding stays in this process's memory, so that the
// next click on it is answered without reading or encoding it again.

import type { TaskPayload, TaskResult } from "../../shared/tasks/tasks.ts";
import { openFootage } from "../media/footage.ts";
import { maskForms } from "../segmenters/masks.ts";
import type { Segmenter } from "../segmenters/segmenter.ts";
import { asTaskFailure } from "./prompts.ts";
import type { RunnerContext } from "./runner-context.ts";

/** Does a `segment` task. Fails with a TaskFailure, which says whether to try again. */
export async function run(
  payload: TaskPayload<"segment">,
  context: RunnerContext,
): Promise<TaskResult<"segment">> {
  try {
    return await context.useSegmenter(payload.segmenter, (segmenter) =>
      masksOf(payload, context, segmenter),
    );
  } catch (thrown) {
    throw asTaskFailure(thrown);
  }
}

async function masksOf(
  payload: TaskPayload<"segment">,
  context: RunnerContext,
  segmenter: Segmenter,
): Promise<TaskResult<"segment">> {
  const { video, frame_index } = payload;
  const name = JSON.stringify([segmenter.info.name, video.key, frame_index]);
  const encoded = await context.encodings.get(name, async () => {
    const footage = await openFootage(context, video);
    try {
      const [frame] = await Array.fromAsync(footage.read([frame_index]));
      if (!frame) throw new Error(`frame ${frame_index} was not read`);
      return await segmenter.encode(frame.image);
    } finally {
      await footage.close();
    }
  });
  const { points, box } = payload;
  const found = await segmenter.segment(encoded, { points, box });
  const { width, height } = encoded;
  const masks = await Promise.all(
    found.map(({ mask, score }) => maskForms(mask, width, height, score)),
  );
  return { masks: masks.filter((mask) => mask !== null), segmenter: segmenter.info.name };
}
