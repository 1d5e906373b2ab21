// What a file is: decoded once from end to end, its frames' times stored, a thumbnail made. A file
// that we do not take is an answer, not a failure.

import { frameForThumbnail } from "../../shared/detector/sampling.ts";
import type { TaskPayload, TaskResult } from "../../shared/tasks/tasks.ts";
import { BrokenMedia, TaskFailure } from "../base/failure.ts";
import { NO_FFMPEG } from "../media/footage.ts";
import { readFrames } from "../media/frame-reader.ts";
import { type ImageHashes, imageHashes } from "../media/image-hash.ts";
import { readStill, toThumbnail } from "../media/stills.ts";
import { probeVideo, typeOf, type VideoProbe } from "../media/video.ts";
import { encodeIndex, INDEX_NAME, ptsTable } from "../media/video-index.ts";
import { upload } from "../objects/transfer.ts";
import type { RunnerContext } from "./runner-context.ts";

const THUMBNAIL_SIDE = 320;

/** Does a `probe` task; a file that is not taken is a result with its reason. */
export async function run(
  payload: TaskPayload<"probe">,
  context: RunnerContext,
): Promise<TaskResult<"probe">> {
  const held = await context.cache.open(payload.video, context.cancel);
  try {
    const type = await typeOf(held.path);
    if (type.kind === "still")
      return await probeStill(payload, held.path, type.contentType, context);
    if (payload.still) throw new BrokenMedia("the file is a video, not an image");
    return await probeFootage(payload, held.path, context);
  } catch (thrown) {
    if (thrown instanceof BrokenMedia) return { broken: thrown.message };
    throw thrown;
  } finally {
    await held.release();
  }
}

async function probeStill(
  payload: TaskPayload<"probe">,
  path: string,
  contentType: string,
  context: RunnerContext,
): Promise<TaskResult<"probe">> {
  const { cancel } = context;
  const image = await readStill(path);
  await upload(context, payload.pts, Buffer.alloc(4), cancel);
  await upload(context, payload.thumbnail, await toThumbnail(image, THUMBNAIL_SIDE), cancel);
  return {
    broken: null,
    content_type: contentType,
    width: image.width,
    height: image.height,
    fps: 1,
    duration_seconds: 0,
    frame_count: 1,
    time_base: [1, 1],
    probe: { still: true, ...(await imageHashes(image)) },
  };
}

async function probeFootage(
  payload: TaskPayload<"probe">,
  path: string,
  context: RunnerContext,
): Promise<TaskResult<"probe">> {
  const { tools, cache, cancel } = context;
  if (!tools) throw new TaskFailure("unsupported_media", NO_FFMPEG, { retryable: true });
  const probed = await probeVideo(tools, path, {
    signal: cancel,
    onFrames: (done) => context.progress({ done, total: 0, detail: {} }),
  });
  const { index } = probed;
  const count = index.pts.length;
  const at = frameForThumbnail(count);
  const table = ptsTable(index);
  await upload(context, payload.pts, table.bytes, cancel);
  let hashes: Partial<ImageHashes> = {};
  for await (const { image } of readFrames(tools, { path, index }, [at], { signal: cancel })) {
    await upload(context, payload.thumbnail, await toThumbnail(image, THUMBNAIL_SIDE), cancel);
    hashes = await imageHashes(image);
  }
  await cache.writeDerived(payload.video.key, INDEX_NAME, encodeIndex(index));
  const timing = { frame_count: count, time_base: table.timeBase };
  return { broken: null, ...described(probed, hashes), ...timing };
}

const described = (
  { index, fps, durationSeconds, contentType, facts }: VideoProbe,
  hashes: Partial<ImageHashes>,
) => ({
  content_type: contentType,
  width: index.width,
  height: index.height,
  fps,
  duration_seconds: durationSeconds,
  probe: { ...facts, ...hashes },
});
