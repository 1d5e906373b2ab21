// A segmenter asked about an uploaded image or clip: by the direct line where a node has one, else
// by the queue. What it answers is checked against what was asked before anybody sees it.

import type { ErrorCode } from "../../../../shared/errors.ts";
import { imageHeader } from "../../../../shared/image-header.ts";
import {
  CLIP_BOUNDS,
  IMAGE_BOUNDS,
  type SamBounds,
  type SamFinding,
  type SamRequest,
  SamResult,
} from "../../../../shared/tasks/sam.ts";
import { TASK_KINDS, type TaskPayload } from "../../../../shared/tasks/tasks.ts";
import { SamObject, type SamPrediction } from "../../../../shared/wire/serving.ts";
import type { Parts } from "../../base/parts.ts";
import { IMAGE } from "../../media/uploads/media-types.ts";
import { boxProblem, maskProblem, type Size } from "../../tasks/nodes/detections.ts";
import { listSegmenterNodes } from "../../tasks/nodes/nodes.ts";
import { source } from "../../tasks/objects.ts";
import type { Task } from "../../tasks/queue/queue.ts";
import { runNow } from "../../tasks/queue/wait.ts";
import { cutProblem, type FramesWish, framesOf } from "../predict/clip-frames.ts";
import { askLine, bodyOf, noAnswer } from "../predict/direct.ts";
import { numbersOf } from "../predict/masks.ts";
import { asRefusal, type HeldFile, headOf, type StoredFile } from "../predict/predictions.ts";

/** By when a node that has the segmenter open answers, and one that opens it first. */
const DEADLINES = { warmMs: 60_000, coldMs: 85_000 };
const QUEUE_MS = 85_000;
/** A file that crashes a process takes an attempt of the clicks beside it. */
const ATTEMPTS = 2;
/** What a node says of the request itself, with the service's own codes. */
const REFUSALS: readonly ErrorCode[] = [
  "unsupported_media",
  "too_many_frames",
  "prompt_unknown",
  "invalid_request",
];

/** A request, and whose it is. */
export interface SamAsk {
  workspaceId: string;
  request: SamRequest;
}

/** What a segmenter found, and the node that answered at once; null by the queue. */
export interface SamAnswer {
  result: SamResult;
  servedBy: string | null;
}

/**
 * What a segmenter finds on an image in memory; null where no node has a line, and the queue has to
 * do it. Fails as `askLine` does, and in the words of a node that refuses the request.
 */
export async function lookDirectly(
  parts: Parts,
  { workspaceId, request }: SamAsk,
  { image, signal }: { image: HeldFile; signal: AbortSignal },
): Promise<SamAnswer | null> {
  const { segmenter } = request;
  const answer = await askLine(parts, {
    topic: `sam:${workspaceId}.${segmenter ?? ""}`,
    list: () => listSegmenterNodes(parts.database, { workspaceId, segmenter }),
    head: async () => ({ kind: "sam", ...request }),
    image: image.pieces,
    ...DEADLINES,
    signal,
  });
  if (!answer) return null;
  const result = SamResult.safeParse(bodyOf(answer.said, REFUSALS)).data;
  const size = imageHeader(headOf(image.pieces, IMAGE.headBytes));
  const asked = { request, framesMax: 1, bounds: IMAGE_BOUNDS, partial: false };
  const problem = result ? resultProblem(result, { ...asked, size }) : "another shape";
  if (result && !problem) return { result, servedBy: answer.servedBy };
  parts.log.warning("line_answer_refused", { problem });
  throw noAnswer();
}

/** Has a node that takes tasks look at a stored image. */
export async function lookByQueue(
  parts: Parts,
  ask: SamAsk,
  stored: StoredFile,
): Promise<SamAnswer> {
  try {
    const task = samTask(ask, stored, { fps: null, framesMax: 1, uncut: false });
    const done = await runNow(parts, { kind: "sam", ...task }, { timeoutMs: QUEUE_MS });
    return { result: TASK_KINDS.sam.result.parse(done), servedBy: null };
  } catch (thrown) {
    throw asSamRefusal(thrown);
  }
}

/** A node's words on the request are about it, not about the node. */
export const asSamRefusal = (thrown: unknown): unknown => asRefusal(thrown, REFUSALS);

/** What the task of a request is, but for its kind. */
export const samTask = (
  { workspaceId, request }: SamAsk,
  { key, bytes }: StoredFile,
  frames: FramesWish,
) => ({
  workspaceId,
  subject: `segmenter:${request.segmenter ?? "default"}`,
  attemptsMax: ATTEMPTS,
  payload: { ...request, video: source(key, bytes), ...framesOf(frames) },
});

/** What a result has to be an answer to. */
interface AskedLook {
  request: SamRequest;
  framesMax: number;
  bounds: SamBounds;
  /** Size in the file's header, before it is turned as its EXIF says; null: not known. */
  size: Size | null;
  /** The task was canceled: not every frame has to be there. */
  partial: boolean;
}

/** Checks what a segmenter found; see `TaskHandlers.seal`. */
export async function sealSam(
  _parts: Parts,
  task: Task,
  { result, partial }: { result: unknown; partial: boolean },
): Promise<string | null> {
  const { frames_max: framesMax, uncut, ...request } = task.payload as TaskPayload<"sam">;
  const cut = cutProblem({ uncut }, (result as SamResult).left_out.frames);
  if (cut) return cut;
  const bounds = task.kind === "sam" ? IMAGE_BOUNDS : CLIP_BOUNDS;
  return resultProblem(result as SamResult, { request, framesMax, bounds, size: null, partial });
}

/** What is wrong with a result, in words for people, or null. */
function resultProblem(result: SamResult, asked: AskedLook): string | null {
  const { request, framesMax, bounds, size, partial } = asked;
  const { frames, width, height, segmenter } = result;
  if (request.segmenter !== null && segmenter !== request.segmenter) return "another segmenter";
  const sides = [size?.width ?? width, size?.height ?? height];
  const isSize = sides.includes(width) && sides.includes(height);
  if (!isSize) return `the image is not ${width} × ${height} pixels`;
  if (frames.length > framesMax) return `over ${framesMax} frames are answered`;
  if (frames.length === 0 && !partial) return "no frame is answered";
  let before = -1;
  for (const { frame_index: index, findings } of frames) {
    if (index <= before) return `frame ${index} is not in its order`;
    before = index;
    for (const finding of findings) {
      const problem = findingProblem(finding, request, result);
      if (problem) return `frame ${index}: ${problem}`;
    }
  }
  const all = frames.flatMap(({ findings }) => findings);
  const numbers = all.reduce((sum, { mask }) => sum + numbersOf(mask), 0);
  if (all.length > bounds.objects) return `over ${bounds.objects} objects are told`;
  return numbers > bounds.maskNumbers ? "the masks take too many numbers" : null;
}

function findingProblem(
  { prompt, bbox, confidence, mask }: SamFinding,
  { prompts, threshold, mask: form }: SamRequest,
  size: Size,
): string | null {
  const asked = prompts[prompt];
  if (!asked) return "a prompt that was not asked";
  const isSearched = asked.kind === "text" || asked.kind === "exemplar";
  // Told to four places.
  if (isSearched && confidence < threshold - 1e-4) return "an object below the threshold";
  const problem = boxProblem(bbox, size);
  return problem || !mask ? problem : maskProblem(mask, form, size);
}

/** What was found, as it is told: each object with its prompt and class. */
export function objectsOf(findings: readonly SamFinding[], { prompts }: SamRequest): SamObject[] {
  const references = prompts.map(({ kind, class_name }, position) => {
    const index = prompts.slice(0, position).filter((one) => one.kind === kind).length;
    return { class: class_name, prompt: { kind, index } };
  });
  return findings.map(({ prompt, confidence, bbox, mask }) =>
    SamObject.parse({ ...references[prompt], confidence, bbox, mask }),
  );
}

/** The answer of an image. */
export function imageRecord(result: SamResult, request: SamRequest): SamPrediction {
  const { width, height, segmenter, warnings, left_out, seconds } = result;
  return {
    objects: objectsOf(result.frames[0]?.findings ?? [], request),
    width,
    height,
    segmenter,
    warnings,
    left_out: { objects: left_out.objects, masks: left_out.masks },
    seconds,
  };
}
