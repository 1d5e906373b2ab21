// Frames of a video by their true times: the pts that the probe decoded, never index over fps.

import { assert, Failure } from "../../../../shared/errors.ts";
import { API } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import type { VideoRow } from "./videos.ts";

const LITTLE_ENDIAN = true;
const PTS_BYTES = 4;
/** The path of a frame's image. */
export const frameImagePath = (videoId: string, index: number): string =>
  `${API}/videos/${videoId}/frames/${index}.jpg`;

/** Fails with `state_conflict` for a video that was not probed, or could not be. */
export function assertReady(video: VideoRow): asserts video is VideoRow & {
  frameCount: number;
  timeBase: [number, number];
  ptsKey: string;
} {
  if (video.state === "probing") {
    throw new Failure("state_conflict", "the video is still being probed", {
      data: { video_id: video.videoId, status: video.state },
    });
  }
  if (video.state === "failed") {
    throw new Failure("state_conflict", `the video cannot be read: ${video.failure}`, {
      data: { video_id: video.videoId, status: video.state },
    });
  }
  assert(video.frameCount !== null && video.timeBase && video.ptsKey, "a ready video was probed");
}

/** The numbers of an object of 32-bit integers: little-endian, whatever the machine is. */
function int32s(bytes: ArrayBuffer): Int32Array {
  const view = new DataView(bytes);
  const values = new Int32Array(bytes.byteLength / PTS_BYTES);
  for (let index = 0; index < values.length; index += 1) {
    values[index] = view.getInt32(index * PTS_BYTES, LITTLE_ENDIAN);
  }
  return values;
}

/** Ticks of all frames from the first, in display order. */
export async function readPts(parts: Pick<Parts, "bucket">, video: VideoRow): Promise<Int32Array> {
  assertReady(video);
  return readPtsRange(parts, video, { offset: 0, limit: video.frameCount });
}

/** Ticks of the frames from `offset` on, as many as there are, up to `limit`. */
export async function readPtsRange(
  { bucket }: Pick<Parts, "bucket">,
  video: VideoRow,
  { offset, limit }: { offset: number; limit: number },
): Promise<Int32Array> {
  assertReady(video);
  const count = Math.min(limit, video.frameCount - offset);
  if (count <= 0) return new Int32Array();
  const range = { offset: offset * PTS_BYTES, length: count * PTS_BYTES };
  const object = await bucket.get(video.ptsKey, { range });
  assert(object, "a ready video has its pts in the store");
  const pts = int32s(await object.arrayBuffer());
  assert(pts.length === count, "the pts object has a number for each frame");
  return pts;
}
