// JPEGs of single frames, each written where it is wanted.

import type { TaskPayload, TaskResult } from "../../shared/tasks/tasks.ts";
import { TaskFailure } from "../base/failure.ts";
import { openFootage } from "../media/footage.ts";
import { toJpeg, toJpegOfWidth } from "../media/stills.ts";
import { upload } from "../objects/transfer.ts";
import type { RunnerContext } from "./runner-context.ts";

/** Does a `frames` task. Fails with `invalid_request` unless each frame has its target. */
export async function run(
  payload: TaskPayload<"frames">,
  context: RunnerContext,
): Promise<TaskResult<"frames">> {
  if (payload.images.length !== payload.frames.length) {
    throw new TaskFailure("invalid_request", "there must be one target for each frame");
  }
  const footage = await openFootage(context, payload.video);
  const total = payload.frames.length;
  let done = 0;
  try {
    for await (const { index, image } of footage.read(payload.frames)) {
      const { width } = payload;
      const jpeg = await (width === undefined ? toJpeg(image) : toJpegOfWidth(image, width));
      for (const [position, frame] of payload.frames.entries()) {
        const target = payload.images[position];
        if (frame !== index || !target) continue;
        await upload(context, target, jpeg, context.cancel);
        done += 1;
        context.progress({ done, total, detail: {} });
      }
    }
  } finally {
    await footage.close();
  }
  return {};
}
