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

/** Frames by their ids; fails with `invalid_request` for an id that is none. */
const parsedFrames = (ids: readonly string[]) =>
  ids.map((id) => {
    const parsed = parseFrameId(id);
    if (parsed) return parsed;
    const form = "write the video's id, a dot and the frame's index";
    const given = JSON.stringify(id.slice(0, 80));
    throw new Failure("invalid_request", `frame_id: ${given} is none; ${form}`);
  });

/**
 * Frames of any videos by their ids, in order. Fails with `invalid_request` for an id that is none,
 * with `not_found` for a frame that no video of the workspaces has, and with `state_conflict` where
 * a video is not ready in time.
 */
export async function framesOfVideos(
  parts: LookUp,
  workspaces: readonly string[],
  ids: readonly string[],
): Promise<{ video: VideoRow; index: number }[]> {
  const named = parsedFrames(ids);
  const videos = await readyVideos(parts, workspaces, unique(named.map(({ videoId }) => videoId)));
  const byId = new Map(videos.map((video) => [video.videoId, video]));
  return named.map(({ videoId, index }) => {
    const video = byId.get(videoId);
    if (!video) throw new Failure("not_found", `no video ${videoId} in your workspaces`);
    const count = video.frameCount ?? 0;
    if (index < count) return { video, index };
    throw new Failure("not_found", `video ${videoId} has ${count} frames`);
  });
}

/** `framesOfVideos` of one video; fails with `invalid_request` for frames of several. */
export async function framesOf(
  parts: LookUp,
  workspaces: readonly string[],
  ids: readonly string[],
) {
  const videoIds = unique(parsedFrames(ids).map(({ videoId }) => videoId));
  if (videoIds.length > 1) throw new Failure("invalid_request", "frame_ids: of one video, please");
  const named = await framesOfVideos(parts, workspaces, ids);
  const [first] = named;
  if (!first) throw new Failure("invalid_request", "frame_ids: none is given");
  return { video: first.video, frames: [...new Set(named.map(({ index }) => index))] };
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
