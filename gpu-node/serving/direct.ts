// A request of the direct line: images in, objects in pixels of them or a workflow's outputs out,
// or why not.

import { placementOf } from "../../shared/detector/letterbox.ts";
import {
  decodeAsk,
  LINE_STATUS,
  type LineAnswer,
  type LineHead,
  type LineHeadOf,
  type LineProblem,
} from "../../shared/tasks/line.ts";
import type { SamResult } from "../../shared/tasks/sam.ts";
import type { ModelSource } from "../../shared/tasks/tasks.ts";
import type { WorkflowAnswer } from "../../shared/tasks/workflow-task.ts";
import { BrokenMedia, TaskFailure } from "../base/failure.ts";
import type { Log } from "../base/log.ts";
import type { RgbImage } from "../media/image.ts";
import { readStill, readStillAt, type SizedStill } from "../media/stills.ts";
import type { Predictors } from "./predictors.ts";
import { IMAGE_MASKS } from "./prototype-masks.ts";

/** The status and the body of an answer. */
export interface LineReply {
  status: number;
  body: LineAnswer | SamResult | WorkflowAnswer | LineProblem;
  /** What it needed had to be opened first. */
  cold?: boolean;
}

/** The same with its body as JSON: whoever passes it on reads none of it. */
export interface EncodedReply extends Omit<LineReply, "body"> {
  body: Uint8Array;
}

/** An answer as it goes over the line. */
export const encodeReply = ({ body, ...reply }: LineReply): EncodedReply => ({
  ...reply,
  body: Buffer.from(JSON.stringify(body)),
});

/** Who answers what. */
export interface LineWork {
  predictors: Predictors;
  /** Has a segmenter look; it decodes the image when it is its turn. */
  sam(
    readImage: () => Promise<RgbImage>,
    head: LineHeadOf<"sam">,
    signal: AbortSignal,
  ): Promise<SamResult>;
  /** Whether a segmenter is open. */
  isSegmenterOpen(name: string | null): boolean;
  /** Runs a workflow; the files of its images are one after another. */
  workflow(
    files: Uint8Array,
    head: LineHeadOf<"workflow">,
    signal: AbortSignal,
  ): Promise<WorkflowAnswer>;
  log: Log;
}

/** The answer where other models would have to leave for one that nobody waits for. */
const NO_ROOM: LineReply = {
  status: LINE_STATUS.full,
  body: { code: "overloaded", detail: "other models are in use here" },
  cold: true,
};

/**
 * Answers a request whose time ends with the signal: what is over then costs nothing more. Null
 * where it is over: nobody waits for an answer.
 */
export async function answerDirectly(
  bytes: Uint8Array,
  work: LineWork,
  signal: AbortSignal,
): Promise<LineReply | null> {
  try {
    const { head, image } = readAsk(bytes);
    signal.throwIfAborted();
    const file = Buffer.from(image.buffer, image.byteOffset, image.length);
    const readImage = () => readStill(file);
    if (head.kind === "predict" && !head.may_evict) {
      if (!work.predictors.hasRoomFor(head.model)) return NO_ROOM;
    }
    const cold = isCold(head, work);
    const body =
      head.kind === "predict"
        ? await predict(await readFor(head.model, file), head, { ...work, cold }, signal)
        : head.kind === "sam"
          ? await work.sam(readImage, head, signal)
          : await work.workflow(image, head, signal);
    signal.throwIfAborted();
    return { status: LINE_STATUS.done, body, cold };
  } catch (thrown) {
    if (signal.aborted) return null;
    return replyOf(thrown, work.log);
  }
}

/** Whether something that a request names is not open yet. */
function isCold(head: LineHead, { predictors, isSegmenterOpen }: LineWork): boolean {
  if (head.kind === "predict") return !predictors.isOpen(head.model);
  if (head.kind === "sam") return !isSegmenterOpen(head.segmenter);
  const models = Object.values(head.models).map(({ source }) => predictors.isOpen(source));
  const segmenters = head.definition.steps
    .filter(({ type }) => type === "segmenter@1")
    .map(({ parameters: { segmenter: name } }) =>
      isSegmenterOpen(typeof name === "string" ? name : null),
    );
  return [...models, ...segmenters].includes(false);
}

/** An image at the size at which a model reads it. */
function readFor({ image_size: side }: ModelSource, file: Buffer): Promise<SizedStill> {
  return readStillAt(file, (own) => placementOf(own, { width: side, height: side }).laid);
}

async function predict(
  { image: still, of }: SizedStill,
  { confidence, model, mask = "none" }: LineHeadOf<"predict">,
  { predictors, cold }: LineWork & { cold: boolean },
  signal: AbortSignal,
): Promise<LineAnswer> {
  signal.throwIfAborted();
  let batch = 1;
  const onBatch = (images: number) => {
    batch = images;
  };
  const { width, height } = of;
  const options = { confidence, signal, onBatch, of };
  return predictors.use(model, signal, async (predictor): Promise<LineAnswer> => {
    if (mask === "none") {
      const predictions = await predictor.predict(still, options);
      return { predictions, width, height, batch, cold };
    }
    const outlined = await predictor.outline(still, options);
    signal.throwIfAborted();
    const { predictions, leftOut } = await predictor.masked(outlined, mask, IMAGE_MASKS);
    return { predictions, width, height, batch, cold, masks_left_out: leftOut };
  });
}

function readAsk(bytes: Uint8Array): { head: LineHead; image: Uint8Array } {
  try {
    return decodeAsk(bytes);
  } catch (cause) {
    throw new TaskFailure("invalid_request", "the request is none that this node reads", { cause });
  }
}

function replyOf(thrown: unknown, log: Log): LineReply {
  const { refused, failed } = LINE_STATUS;
  if (thrown instanceof BrokenMedia) {
    return { status: refused, body: { code: "unsupported_media", detail: thrown.message } };
  }
  if (thrown instanceof TaskFailure) {
    const { code, message: detail, retryable } = thrown;
    return { status: retryable ? failed : refused, body: { code, detail } };
  }
  log.error("line_request_failed", { error: thrown });
  const detail = thrown instanceof Error ? thrown.message : String(thrown);
  return { status: failed, body: { code: "internal", detail } };
}
