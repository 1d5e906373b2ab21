// What a segmenter answers while somebody waits: detections on a few frames, a mask from clicks.

import type { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import {
  type ModelSource,
  type Prompt,
  TASK_KINDS,
  type TaskPayload,
  type TaskResult,
} from "../../../../shared/tasks/tasks.ts";
import type { Parts } from "../../base/parts.ts";
import { findVideos, type VideoRow } from "../../media/videos/videos.ts";
import { modelSource } from "../../models/registry.ts";
import {
  boxProblem,
  framesProblem,
  imageProblem,
  maskProblem,
  outlineProblem,
} from "../../tasks/nodes/detections.ts";
import { source } from "../../tasks/objects.ts";
import type { Task } from "../../tasks/queue/queue.ts";
import { runNow } from "../../tasks/queue/wait.ts";
import type { PreviewBody, SegmentBody } from "./bodies.ts";
import { insideFrame } from "./boxes.ts";
import { resolveExemplars, sizeOf } from "./frame-references.ts";
import { offeredSegmenters, searchOf } from "./grounding.ts";

const PREVIEW_MS = 120_000;
const SEGMENT_MS = 60_000;

/** Who looks in a preview and for what, as its task carries it. */
async function searchedIn(
  parts: Parts,
  workspaceId: string,
  body: z.output<typeof PreviewBody>,
): Promise<{ prompts: Prompt[]; model: ModelSource | null }> {
  if (body.model && body.exemplars) {
    throw new Failure("invalid_request", "exemplars: not with a model, which finds its classes");
  }
  const { words, model } =
    body.model || body.prompts
      ? await searchOf(parts.database, workspaceId, body)
      : { words: [], model: null };
  const prompts: Prompt[] = words.map((prompt) => ({
    kind: "text",
    class_name: prompt,
    text: prompt,
  }));
  if (body.exemplars) {
    await offeredSegmenters(parts.database, { workspaceId, segmenter: body.segmenter });
    const exemplars = await resolveExemplars(parts, workspaceId, body.exemplars);
    prompts.push({ kind: "exemplar", class_name: "exemplar", exemplars });
  }
  if (prompts.length === 0) throw new Failure("invalid_request", "prompts or exemplars: required");
  return { prompts, model: model && modelSource(model) };
}

/** What a segmenter finds on these frames of a video. */
export async function previewFrames(
  parts: Parts,
  { video, frames }: { video: VideoRow; frames: number[] },
  body: z.output<typeof PreviewBody>,
): Promise<TaskResult<"preview">> {
  const payload = {
    video_id: video.videoId,
    video: source(video.storageKey, video.bytes),
    ...(await searchedIn(parts, video.workspaceId, body)),
    frames,
    threshold: body.threshold,
    resolution: body.resolution ?? null,
    segmenter: body.segmenter ?? null,
  };
  const { workspaceId, videoId } = video;
  const result = await runNow(
    parts,
    { kind: "preview", workspaceId, subject: `video:${videoId}`, payload },
    { timeoutMs: PREVIEW_MS },
  );
  return TASK_KINDS.preview.result.parse(result);
}

/**
 * Masks of the object that clicks on a frame, or a box, mean; the best one first, none where the
 * segmenter found no object. Fails with `invalid_request` for clicks outside of the frame.
 */
export async function segmentFrame(
  parts: Parts,
  { video, frame }: { video: VideoRow; frame: number },
  body: z.output<typeof SegmentBody>,
): Promise<TaskResult<"segment">> {
  const { width, height } = sizeOf(video);
  const box = body.bbox ? insideFrame(body.bbox, { width, height }) : null;
  const outside = body.points.some(({ x, y }) => x < 0 || y < 0 || x > width || y > height);
  if (outside || (body.bbox && !box)) {
    const what = outside ? "points" : "bbox";
    throw new Failure("invalid_request", `${what}: the frame is ${width} × ${height} pixels`);
  }
  const { workspaceId, videoId } = video;
  await offeredSegmenters(parts.database, { workspaceId, segmenter: body.segmenter });
  const payload = {
    video_id: videoId,
    video: source(video.storageKey, video.bytes),
    frame_index: frame,
    points: body.points,
    box,
    segmenter: body.segmenter ?? null,
  };
  const result = await runNow(
    parts,
    { kind: "segment", workspaceId, subject: `video:${videoId}`, payload },
    { timeoutMs: SEGMENT_MS },
  );
  return TASK_KINDS.segment.result.parse(result);
}

/** What a preview or a mask's task is over; null where its video was deleted meanwhile. */
async function sizeOfTask({ database }: Parts, { workspaceId, payload }: Task) {
  const { video_id: videoId } = payload as { video_id: string };
  const [video] = await findVideos(database, [workspaceId], [videoId]);
  return video ? sizeOf(video) : null;
}

/** Checks what a preview detected, and its images; see `TaskHandlers.seal`. */
export async function sealPreview(
  parts: Parts,
  task: Task,
  { result, partial }: { result: unknown; partial: boolean },
): Promise<string | null> {
  const size = await sizeOfTask(parts, task);
  if (!size) return null;
  const { frames, prompts } = task.payload as TaskPayload<"preview">;
  const classes = prompts.map(({ class_name }) => class_name);
  const answered = (result as TaskResult<"preview">).frames;
  const problem = framesProblem(answered, { frames, classes, size, partial });
  if (problem) return problem;
  for (const { frame_index, image } of answered) {
    const of = imageProblem(image, { type: "image/jpeg", ...size });
    if (of) return `frame ${frame_index}: ${of}`;
  }
  return null;
}

/** Checks the masks of clicks on a frame; see `TaskHandlers.seal`. */
export async function sealSegment(
  parts: Parts,
  task: Task,
  { result }: { result: unknown },
): Promise<string | null> {
  const size = await sizeOfTask(parts, task);
  if (!size) return null;
  for (const { png, rle, polygon, bbox } of (result as TaskResult<"segment">).masks) {
    const problem =
      boxProblem(bbox, size) ??
      outlineProblem(polygon, size) ??
      maskProblem({ rle }, "rle", size) ??
      imageProblem(png, { type: "image/png", ...size });
    if (problem) return problem;
  }
  return null;
}
