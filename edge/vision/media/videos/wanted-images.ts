// Images of frames that somebody wants: read from the store, or made by a node, each once. One task
// makes those of many frames, and whoever asks for one of them meanwhile waits for that task.

import { sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import type { Parts } from "../../base/parts.ts";
import { offeringNodes } from "../../tasks/nodes/nodes.ts";
import { source, target } from "../../tasks/objects.ts";
import { runNow, submit, waitFor } from "../../tasks/queue/wait.ts";
import { assertReady } from "./frames.ts";
import { objectKeys, type VideoRow } from "./videos.ts";

/** Pixels that an image of a frame may be wide, beside the frame's own width. */
export const IMAGE_WIDTHS = [160, 320, 640] as const;
/** Frames whose images one request has made. */
export const PREPARED_MAX = 64;

/** A node decodes a single frame within it, also the last one of a long clip. */
const FRAME_TIMEOUT_MS = 30_000;
/** Whoever waits for a single frame comes first. */
const PREPARED_PRIORITY = 50;
/** Objects that are looked for at once. */
const LOOKS_AT_ONCE = 6;

/** The width that an image of a video's frames has; undefined for that of the frames. */
const widthOf = (video: VideoRow, wanted: number | undefined): number | undefined =>
  wanted !== undefined && wanted < (video.width ?? 0) ? wanted : undefined;

const subjectOf = (video: VideoRow) => `video:${video.videoId}`;

/** The task that makes the images of some frames. */
const taskOf = (
  video: VideoRow,
  { frames, width }: { frames: number[]; width: number | undefined },
) => {
  const keys = objectKeys(video.workspaceId, video.videoId);
  return {
    kind: "frames" as const,
    workspaceId: video.workspaceId,
    subject: subjectOf(video),
    payload: {
      video: source(video.storageKey, video.bytes),
      video_id: video.videoId,
      frames,
      images: frames.map((index) => target(keys.frame(index, width), "image/jpeg")),
      ...(width !== undefined && { width }),
    },
  };
};

/**
 * A frame's JPEG, of a width where one is wanted and the frame is wider. A node decodes it for the
 * first request; later ones find it in the store.
 */
export async function frameImage(
  parts: Parts,
  video: VideoRow,
  { index, width: wanted }: { index: number; width?: number | undefined },
) {
  assertReady(video);
  if (index >= video.frameCount) throw new Failure("not_found", "the video has no such frame");
  const width = widthOf(video, wanted);
  const key = objectKeys(video.workspaceId, video.videoId).frame(index, width);
  const stored = await parts.bucket.get(key);
  if (stored) return stored;
  const { workspaceId } = video;
  const nodes = await offeringNodes(parts.database, { kind: "frames", workspaceId });
  // Without a node nobody waits: `runNow` refuses.
  const coming = nodes > 0 ? await imageOnItsWay() : null;
  if (coming) return coming;
  const task = taskOf(video, { frames: [index], width });
  await runNow(parts, task, { timeoutMs: FRAME_TIMEOUT_MS });
  const made = await parts.bucket.get(key);
  if (!made) throw new Failure("task_failed", "the GPU node wrote no image of the frame");
  return made;

  async function imageOnItsWay() {
    const { open } = await framesUnderWay(parts, video, width);
    const task = open.find(({ frames }) => frames.includes(index));
    if (!task) return null;
    await waitFor(parts, task.id, parts.clock() + FRAME_TIMEOUT_MS);
    return parts.bucket.get(key);
  }
}

/** Tasks that make images of a width of a video's frames. */
interface FrameTasks extends Record<string, unknown> {
  /** How many there ever were. */
  total: number;
  /** Those that have not ended. */
  open: { id: string; frames: number[] }[];
}

async function framesUnderWay(
  { database }: Pick<Parts, "database">,
  video: VideoRow,
  width: number | undefined,
): Promise<FrameTasks> {
  const { rows } = await database.execute<FrameTasks>(sql`
    SELECT (SELECT count(*) FROM task WHERE subject = ${subjectOf(video)} AND kind = 'frames')::int
        AS total,
      coalesce(json_agg(json_build_object('id', id, 'frames', payload->'frames')), '[]') AS open
      FROM task WHERE subject = ${subjectOf(video)} AND kind = 'frames' AND ended_at IS NULL
       AND (payload->>'width')::int IS NOT DISTINCT FROM ${width ?? null}::int`);
  return rows[0] ?? { total: 0, open: [] };
}

/** Which frames, and how large their images: every `step`th of those before `to`. */
interface FrameRange {
  from: number;
  to: number;
  step: number;
  width?: number | undefined;
}

/** How many frames a range has, how many have their image, and how many are to have it soon. */
interface PreparedImages {
  frames: number;
  ready: number;
  coming: number;
}

/**
 * Has a node make the images that some frames lack, in one task; nothing is asked for while no node
 * is there. Fails with `invalid_request` for frames that the video has not.
 */
export async function prepareImages(
  parts: Parts,
  video: VideoRow,
  { from, to, step, width: wanted }: FrameRange,
): Promise<PreparedImages> {
  assertReady(video);
  const frames = Array.from({ length: Math.ceil((to - from) / step) }, (_, at) => from + at * step);
  if (to > video.frameCount) {
    throw new Failure("invalid_request", `to: the video has ${video.frameCount} frames`);
  }
  const width = widthOf(video, wanted);
  const keys = objectKeys(video.workspaceId, video.videoId);
  const lacking: number[] = [];
  for (let at = 0; at < frames.length; at += LOOKS_AT_ONCE) {
    const some = frames.slice(at, at + LOOKS_AT_ONCE);
    const heads = await Promise.all(some.map((one) => parts.bucket.head(keys.frame(one, width))));
    lacking.push(...some.filter((_, position) => heads[position] === null));
  }
  const ready = frames.length - lacking.length;
  const answer = { frames: frames.length, ready, coming: lacking.length };
  if (lacking.length === 0) return answer;
  const { workspaceId } = video;
  const nodes = await offeringNodes(parts.database, { kind: "frames", workspaceId });
  if (nodes === 0) return { ...answer, coming: 0 };
  const { total, open } = await framesUnderWay(parts, video, width);
  const underWay = new Set(open.flatMap((task) => task.frames));
  const rest = lacking.filter((frame) => !underWay.has(frame));
  if (rest.length === 0) return answer;
  // The key makes several requests at once enqueue one task.
  const range = [video.videoId, width ?? 0, from, to, step, total].join(":");
  await submit(parts, [
    {
      ...taskOf(video, { frames: rest, width }),
      priority: PREPARED_PRIORITY,
      idempotencyKey: `frames:${range}`,
    },
  ]);
  return answer;
}
