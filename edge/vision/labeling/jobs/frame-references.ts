// Frames as a request names them: found within the caller's workspaces, of videos that are ready.
// A request that comes right after the upload waits some seconds for the probe of its videos.

import type { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import type { Prompt } from "../../../../shared/tasks/tasks.ts";
import { parseFrameId } from "../../../../shared/wire/vision.ts";
import type { Parts } from "../../base/parts.ts";
import { findVideos, type VideoRow } from "../../media/videos/videos.ts";
import { source } from "../../tasks/objects.ts";
import { answerOf } from "../../tasks/queue/wait.ts";
import type { exemplars } from "./bodies.ts";
import { type FrameSize, insideFrame } from "./boxes.ts";

/** Examples of a class as a node may read them. */
export type Exemplars = Extract<Prompt, { kind: "exemplar" }>["exemplars"];

type LookUp = Pick<Parts, "database" | "clock">;

/** Longest wait of a request for the probe of its videos: a node takes a second for a short one. */
const PROBE_WAIT_MS = 10_000;
/** Longest pause between two looks at a probe. No database connection is held in between. */
const PROBE_PAUSE_MS = 1_000;

/** Values without their repetitions, in order. */
export const unique = (texts: readonly string[]): string[] => [...new Set(texts)];

/** The frames' size of a video, in pixels; zero for one that was not probed. */
export const sizeOf = ({ width, height }: VideoRow): FrameSize => ({
  width: width ?? 0,
  height: height ?? 0,
});

/**
 * Videos of the workspaces by their ids, after their probes ended or the wait for these did. Fails
 * with `state_conflict` where one of them is not ready then.
 */
export async function readyVideos(
  { database, clock }: LookUp,
  workspaces: readonly string[],
  ids: readonly string[],
): Promise<VideoRow[]> {
  const find = () => findVideos(database, workspaces, ids);
  const probed = await answerOf(
    async () => {
      const videos = await find();
      return videos.some(({ state }) => state === "probing") ? null : videos;
    },
    { clock, until: clock() + PROBE_WAIT_MS, pauseMsMax: PROBE_PAUSE_MS },
  );
  const videos = probed ?? (await find());
  const unready = videos.find(({ state }) => state !== "ready");
  if (!unready) return videos;
  const { videoId, state, failure } = unready;
  const why = failure ?? "its frames are still being counted; try again in some seconds";
  throw new Failure("state_conflict", `video ${videoId} is ${state}: ${why}`);
}

/**
 * The video and the indexes of frames by their ids. Fails with `invalid_request` where they are of
 * several videos or none, with `not_found`, and with `state_conflict` where the video is not ready
 * in time.
 */
export async function framesOf(
  parts: LookUp,
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
  const [video] = await readyVideos(parts, workspaces, videoIds);
  if (!video) throw new Failure("not_found", "no such video");
  const count = video.frameCount ?? 0;
  const indexes = [...new Set(frames.map(({ index }) => index))];
  if (indexes.some((index) => index >= count)) {
    throw new Failure("not_found", `the video has ${count} frames`);
  }
  return { video, frames: indexes };
}

/** Examples as tasks of the workspace may read them: its own frames, or crops. */
export async function resolveExemplars(
  parts: LookUp,
  workspaceId: string,
  examples: z.output<typeof exemplars>,
): Promise<Exemplars> {
  const resolved = [];
  for (const one of examples) {
    if ("crop" in one) resolved.push(one);
    else {
      const { video, frames } = await framesOf(parts, [workspaceId], [one.frame_id]);
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
