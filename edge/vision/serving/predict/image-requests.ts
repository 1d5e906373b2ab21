// A prediction on the image of a request, whatever route it came by: taken in, handed to a node by
// the direct line or the queue, and told to whoever keeps count.

import type { ExportPrecision } from "../../../../shared/detector/export-formats.ts";
import { assert, type ErrorCode, Failure } from "../../../../shared/errors.ts";
import type { MaskedPrediction } from "../../../../shared/tasks/predict-task.ts";
import type { MaskForm } from "../../../../shared/tasks/sam.ts";
import { TASK_KINDS } from "../../../../shared/tasks/tasks.ts";
import { EDGE_IMAGE_BYTES_MAX, WEIGHTS_PRECISION } from "../../../../shared/wire/edge-inference.ts";
import type { Parts } from "../../base/parts.ts";
import { IMAGE } from "../../media/uploads/media-types.ts";
import type { ModelRow } from "../../models/registry.ts";
import { offeringNodes } from "../../tasks/nodes/nodes.ts";
import { runNow } from "../../tasks/queue/wait.ts";
import { type DirectRequest, hasLine, isModelFailure, predictDirectly } from "./direct.ts";
import type { EarlyAnswer } from "./early-look.ts";
import { EDGE, edgeProblem, predictAtEdge } from "./edge.ts";
import {
  asRefusal,
  type HeldFile,
  holdFile,
  predictTask,
  type StoredFile,
  storeFile,
} from "./predictions.ts";

export const IMAGE_BYTES_MAX = 64 * 1024 * 1024;
/** Larger images are stored, and claimed from the queue: requests share an isolate's memory. */
export const DIRECT_BYTES_MAX = 8 * 1024 * 1024;
/** By when a node has taken an image from the queue that the edge can look at, too. */
const TAKEN_MS = 3_000;
/** A file that crashes a process takes an attempt of all predictions beside it. */
export const ATTEMPTS = 2;

/** Read by hand, as uploads are: a zod schema would have the body taken into memory whole. */
export const fileBody = {
  required: true,
  content: {
    "multipart/form-data": {
      schema: {
        type: "object" as const,
        properties: { file: { type: "string" as const, format: "binary" } },
        required: ["file"],
      },
    },
  },
};

/** An image as a request brought it: in memory, or in the store where it is large. */
export type ReceivedImage = HeldFile | StoredFile;

/** Lets go of the memory that an image takes, once nobody looks at it any more. */
export function letGo(image: ReceivedImage): void {
  if ("pieces" in image) image.free();
}

/** What a node found on an image. */
export interface ImageAnswer {
  predictions: MaskedPrediction[];
  /** Masks of these that are left out, where masks were asked for. */
  masksLeftOut: number;
  /** Who answered, as `X-Served-By` says it: `node/<name>` or `edge`; null: a node of the queue. */
  servedBy: string | null;
  /** Precision of the weights that looked, as `X-Model-Precision` says it. */
  precision: ExportPrecision;
  /** Milliseconds from the image's last byte to the answer. */
  ms: number;
  /** Images that the node looked at together; null of an answer by no direct line. */
  batch: number | null;
  /** Whether the node had to open the model first. */
  cold: boolean;
  /** The model failed on the image at a node, before the edge answered. */
  failedBefore: boolean;
}

/** How a request for a prediction on an image ended, once it had a model. */
export interface ImageEnd {
  model: ModelRow;
  /** The lowest confidence that was asked of the node. */
  confidenceMin: number;
  /** What it was answered with, or what was thrown in place of that. */
  outcome: { answer: ImageAnswer } | { thrown: unknown };
  /** Whoever asked had gone before. */
  hasLeft: boolean;
}

/** Who hears of it; what it throws is nobody's. */
export type ImageEndNews = (parts: Parts, end: ImageEnd) => Promise<unknown>;

/** Who looks at an image: a node, or the edge where none is there. */
export type ImageServer = "node" | "edge";

/** How many live nodes predict for a workspace. */
export const predictingNodes = (parts: Parts, workspaceId: string): Promise<number> =>
  offeringNodes(parts.database, { kind: "predict", workspaceId });

const NO_NODE = "no GPU node that predicts is there";

/** Fails with `no_node` where no live node predicts for a workspace. */
export async function requireNode(parts: Parts, workspaceId: string): Promise<void> {
  if ((await predictingNodes(parts, workspaceId)) === 0) throw new Failure("no_node", NO_NODE);
}

/** What of an image makes one server able to look at it and another one not. */
interface ServerWish {
  /** The side, in pixels, that the edge has to look at where it is asked; default 0. */
  sideMin?: number;
  /** The form of masks, which the edge makes none of; `none` when omitted. */
  mask?: MaskForm;
}

/**
 * Who looks at images with a model, at a side of at least so many pixels; fails with `no_node`
 * where nobody can.
 */
export function serverOf(
  parts: Parts,
  model: ModelRow,
  { nodes, sideMin = 0, mask = "none" }: ServerWish & { nodes: number },
): ImageServer {
  if (nodes > 0) return "node";
  if (mask !== "none") throw new Failure("no_node", `${NO_NODE}, and the edge makes no masks`);
  const problem = edgeProblem(parts, model, sideMin);
  if (problem === null) return "edge";
  throw new Failure("no_node", `${NO_NODE}, and the edge cannot do it: ${problem}`);
}

/**
 * Who looks at images with a model, at a side of at least so many pixels; fails with `no_node`
 * where nobody can. The database is asked who takes tasks only where no node is known to answer at
 * once.
 */
export async function serverFor(
  parts: Parts,
  model: ModelRow,
  wish: ServerWish = {},
): Promise<ImageServer> {
  if (await hasLine(parts, model)) return "node";
  const nodes = await predictingNodes(parts, model.workspaceId);
  return serverOf(parts, model, { nodes, ...wish });
}

const rulesOf = (parts: Parts, workspaceId: string, bytesMax = IMAGE_BYTES_MAX) => ({
  workspaceId,
  kind: IMAGE,
  bytesMax: Math.min(bytesMax, parts.limits.uploadBytesMax),
});

/** Takes in the image of a request's form. What is stored of it is `predictOn`'s to delete. */
export function receiveImage(
  parts: Parts,
  request: Request,
  { workspaceId, server }: { workspaceId: string; server: ImageServer },
): Promise<ReceivedImage> {
  const takenMax = server === "edge" ? EDGE_IMAGE_BYTES_MAX : IMAGE_BYTES_MAX;
  const rules = rulesOf(parts, workspaceId, takenMax);
  const heldMax = Math.min(DIRECT_BYTES_MAX, rules.bytesMax);
  return holdFile(parts, request, { ...rules, heldMax });
}

/** Larger images wait until it is known who looks at them. */
const EARLY_BYTES_MAX = 1024 * 1024;

/**
 * Takes in the image of a request's form before it is known whose model looks at it; null where it
 * may be too large to be held in memory whoever that is. A signal lets go of it, also midway.
 */
export function receiveEarly(
  parts: Parts,
  request: Request,
  unwanted: AbortSignal,
): Promise<HeldFile> | null {
  const announced = Number(request.headers.get("Content-Length") ?? 0);
  const heldMax = Math.min(EARLY_BYTES_MAX, parts.limits.uploadBytesMax, EDGE_IMAGE_BYTES_MAX);
  if (!(announced > 0 && announced <= heldMax)) return null;
  const rules = { ...rulesOf(parts, ""), heldMax, unwanted };
  const received = withoutStore(holdFile(parts, request, rules));
  // Whoever awaits it hears of its failure; nobody may where the model fails.
  received.catch(() => {});
  return received;
}

/** A file that is in memory: none of a request smaller than what is held is stored. */
async function withoutStore(receiving: Promise<HeldFile | StoredFile>): Promise<HeldFile> {
  const received = await receiving;
  assert(!("key" in received), "a file within its request's length is held");
  return received;
}

/** What is wanted of an image, and of whom. */
export interface ImageWish extends ServerWish, Pick<DirectRequest, "confidenceMin" | "signal"> {
  server: ImageServer;
  /** What a node made of it that was asked before; none when omitted. */
  early?: Promise<EarlyAnswer | null>;
}

/**
 * Has an image looked at, within a minute: by the direct line where a node has one, else by the
 * queue where one takes it, else by the edge.
 */
export async function predictOn(
  parts: Parts,
  model: ModelRow,
  image: ReceivedImage,
  wish: ImageWish,
): Promise<ImageAnswer> {
  const started = parts.clock();
  // Whoever looks next has what the one before left of the time.
  const until = started + parts.limits.imageMsMax;
  const answer = await lookAt(parts, model, image, { ...wish, until });
  return { ms: parts.clock() - started, ...answer };
}

/** An answer that was timed by itself where it began before. */
type UntimedAnswer = Omit<ImageAnswer, "ms"> & { ms?: number };

/** An image in memory, and by when it is answered. */
interface HeldRequest extends DirectRequest {
  until: number;
}

async function lookAt(
  parts: Parts,
  model: ModelRow,
  image: ReceivedImage,
  {
    confidenceMin,
    mask = "none",
    signal,
    server,
    sideMin = 0,
    early = Promise.resolve(null),
    until,
  }: ImageWish & {
    until: number;
  },
): Promise<UntimedAnswer> {
  if ("key" in image) return predictStored(parts, model, image, { confidenceMin, mask, until });
  const asked = { image: image.pieces, confidenceMin, mask, signal, until };
  if (server === "edge") return atEdge(parts, model, asked);
  // Boxes alone would pass for an answer to whoever asked for masks.
  const isEdgeAble = mask === "none" && edgeProblem(parts, model, sideMin) === null;
  try {
    const takenMs = isEdgeAble ? TAKEN_MS : undefined;
    return await byNodes(parts, model, asked, { takenMs, early });
  } catch (thrown) {
    const isNobodys = thrown instanceof Failure && NOBODYS.includes(thrown.code);
    if (!isNobodys || !isEdgeAble || signal.aborted || parts.clock() >= until) throw thrown;
    try {
      const answer = await atEdge(parts, model, asked);
      return { ...answer, failedBefore: isModelFailure(thrown) };
    } catch (error) {
      // What it cannot do is answered as if it were not there.
      parts.log.info("edge_unanswered", { model_id: model.modelId, error });
      throw thrown;
    }
  }
}

/** No node answered an image: none is there, has room, or is in time. */
const NOBODYS: readonly ErrorCode[] = ["overloaded", "no_node"];

/** What a node finds: by its line, or by the queue where no node has one. */
async function byNodes(
  parts: Parts,
  model: ModelRow,
  { image, confidenceMin, mask = "none", signal, until }: HeldRequest,
  { takenMs, early }: { takenMs: number | undefined; early: Promise<EarlyAnswer | null> },
): Promise<UntimedAnswer> {
  const asked = { image, confidenceMin, mask, signal };
  const before = await early;
  const direct =
    before && "predictions" in before
      ? before
      : await predictDirectly(parts, model, { ...asked, tried: before });
  if (direct) {
    const servedBy = `node/${encodeURIComponent(direct.servedBy)}`;
    return { ...direct, servedBy, precision: WEIGHTS_PRECISION, failedBefore: false };
  }
  const stored = await storeFile(parts, each(image), rulesOf(parts, model.workspaceId));
  return predictStored(parts, model, stored, { confidenceMin, mask, until, takenMs });
}

async function atEdge(parts: Parts, model: ModelRow, asked: HeldRequest): Promise<UntimedAnswer> {
  const found = await predictAtEdge(parts, model, asked);
  const about = { masksLeftOut: 0, batch: null, cold: false, failedBefore: false };
  return { ...found, ...about, servedBy: EDGE };
}

/** Pieces that are in memory, as a file that is read. */
export async function* each(pieces: readonly Uint8Array[]) {
  yield* pieces;
}

/** What is wanted of a stored image. */
interface StoredWish {
  confidenceMin: number;
  mask: MaskForm;
  /** By when it is answered. */
  until: number;
  /** Within how many milliseconds a node has to take it; any time when omitted. */
  takenMs?: number | undefined;
}

/** Has a node that takes tasks predict on a stored image, and deletes it. */
async function predictStored(
  parts: Parts,
  model: ModelRow,
  received: StoredFile,
  { confidenceMin, mask, until, takenMs }: StoredWish,
): Promise<UntimedAnswer> {
  const { modelId } = model;
  const started = parts.clock();
  try {
    const task = predictTask(model, received, {
      fps: null,
      framesMax: 1,
      uncut: false,
      confidenceMin,
      mask,
    });
    const twice = { ...task, attemptsMax: ATTEMPTS };
    const done = await runNow<"predict">(parts, twice, { timeoutMs: until - started, takenMs });
    const { frames, masks_left_out: masksLeftOut = 0 } = TASK_KINDS.predict.result.parse(done);
    const found = frames[0]?.predictions ?? [];
    const ms = parts.clock() - started;
    parts.log.info("predicted", { model_id: modelId, ms, objects: found.length });
    const precision = WEIGHTS_PRECISION;
    const about = { servedBy: null, precision, batch: null, cold: false, failedBefore: false };
    return { predictions: found, masksLeftOut, ...about };
  } catch (thrown) {
    throw asRefusal(thrown);
  } finally {
    // Whether it ended or was given up: nobody takes its result any more.
    await parts.bucket.delete(received.key);
  }
}
