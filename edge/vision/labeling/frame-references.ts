// Frames as a request names them: found within the caller's workspaces, of videos that are ready.

import type { z } from "@hono/zod-openapi";
import { Failure } from "../../../shared/errors.ts";
import type { Prompt } from "../../../shared/tasks.ts";
import { parseFrameId } from "../../../shared/vision.ts";
import type { Database } from "../../http/database.ts";
import { findVideos, type VideoRow } from "../projects/videos.ts";
import { source } from "../tasks/objects.ts";
import type { exemplars } from "./bodies.ts";
import { type FrameSize, insideFrame } from "./boxes.ts";

/** Examples of a class as a node may read them. */
export type Exemplars = Extract<Prompt, { kind: "exemplar" }>["exemplars"];

/** Values without their repetitions, in order. */
export const unique = (texts: readonly string[]): string[] => [...new Set(texts)];

/** The frames' size of a video, in pixels; zero for one that was not probed. */
export const sizeOf = ({ width, height }: VideoRow): FrameSize => ({
  width: width ?? 0,
  height: height ?? 0,
});

/**
 * The video and the indexes of frames by their ids. Fails with `invalid_request` where they are of
 * several videos or none, with `not_found`, and with `state_conflict` while the video is not ready.
 */
export async function framesOf(
  database: Database,
  workspaces: readonly string[],
  ids: readonly string[],
) {
  const frames = ids.map((id) => {
    const parsed = parseFrameId(id);
    if (parsed) return parsed;
    throw new Failure("invalid_request", `frame_id: ${JSON.stringify(id.slice(0, 80))} is none`);
  });
  const videoIds = unique(frames.map(({ videoId }) => videoId));
  if (videoIds.length > 1) throw new Failure("invalid_request", "frame_ids: of one video, please");
  const [video] = await findVideos(database, workspaces, videoIds);
  if (!video) throw new Failure("not_found", "no such video");
  const count = video.frameCount ?? 0;
  if (video.state !== "ready") throw new Failure("state_conflict", `the video is ${video.state}`);
  const indexes = [...new Set(frames.map(({ index }) => index))];
  if (indexes.some((index) => index >= count)) {
    throw new Failure("not_found", `the video has ${count} frames`);
  }
  return { video, frames: indexes };
}

/** Examples as tasks of the workspace may read them: its own frames, or crops. */
export async function resolveExemplars(
  database: Database,
  workspaceId: string,
  examples: z.output<typeof exemplars>,
): Promise<Exemplars> {
  const resolved = [];
  for (const one of examples) {
    if ("crop" in one) resolved.push(one);
    else {
      const { video, frames } = await framesOf(database, [workspaceId], [one.frame_id]);
      const bbox = insideFrame(one.bbox, sizeOf(video));
      if (!bbox) throw new Failure("invalid_request", "exemplars.bbox: lies outside of the frame");
      resolved.push({
        video: source(video.storageKey, video.bytes),
        frame_index: frames[0] as number,
        bbox,
      });
    }
  }
  return resolved;
}
