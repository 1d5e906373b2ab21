// Crops of boxes that no label task has cut, in a pack for each video.

import type { TaskPayload, TaskResult } from "../../shared/tasks/tasks.ts";
import { TaskFailure } from "../base/failure.ts";
import { openFootage } from "../media/footage.ts";
import { upload } from "../objects/transfer.ts";
import { CropPacker } from "./crop-packer.ts";
import type { RunnerContext } from "./runner-context.ts";

/** Does a `crops` task. Fails with a TaskFailure, which says whether to try again. */
export async function run(
  { videos }: TaskPayload<"crops">,
  context: RunnerContext,
): Promise<TaskResult<"crops">> {
  const result: TaskResult<"crops"> = { packed: [], left_out: 0 };
  const total = videos.reduce((sum, { boxes }) => sum + boxes.length, 0);
  let done = 0;
  for (const wanted of videos) {
    const packer = new CropPacker();
    try {
      for await (const boxes of cutVideo(wanted, context, packer)) {
        done += boxes;
        context.progress({ done, total, detail: {} });
        context.cancel.throwIfAborted();
      }
    } catch (thrown) {
      // Whether it is the video's fault: the others are not lost by one.
      if (!(thrown instanceof TaskFailure) || thrown.retryable) throw thrown;
      context.log.info("video_unreadable", { video: wanted.video_id, detail: thrown.message });
      result.left_out += wanted.boxes.length;
      continue;
    }
    result.left_out += packer.leftOut;
    await upload(context, wanted.pack, packer.pack(), context.cancel);
    result.packed.push(wanted.video_id);
  }
  return result;
}

/** Cuts the boxes of a video, frame by frame; tells how many boxes each frame has. */
async function* cutVideo(
  { video, boxes }: TaskPayload<"crops">["videos"][number],
  context: RunnerContext,
  packer: CropPacker,
): AsyncGenerator<number> {
  const byFrame = Map.groupBy(boxes, ({ frame_index }) => frame_index);
  const footage = await openFootage(context, video);
  try {
    for await (const { index, image } of footage.read([...byFrame.keys()])) {
      const own = byFrame.get(index) ?? [];
      const corners = own.map(({ bbox }) => bbox);
      await packer.add(index, image, corners);
      yield own.length;
    }
  } finally {
    await footage.close();
  }
}
