// A prediction on the image of a request, whatever route it came by: taken in, handed to a node by
// the direct line or the queue, and told to whoever keeps count.

import type { MiddlewareHandler } from "hono";
import { EDGE_IMAGE_BYTES_MAX } from "../../../shared/edge-inference.ts";
import { Failure } from "../../../shared/errors.ts";
import { type Prediction, TASK_KINDS } from "../../../shared/tasks.ts";
import { errorResponses } from "../../http/app.ts";
import type { Parts } from "../base/parts.ts";
import type { ModelRow } from "../registry/models.ts";
import { offeringNodes } from "../tasks/nodes.ts";
import { runNow } from "../tasks/wait.ts";
import { letPass } from "../uploads/form.ts";
import { IMAGE } from "../uploads/media-types.ts";
import { type DirectRequest, predictDirectly } from "./direct.ts";
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
const IMAGE_MS = 60_000;
/** A file that crashes a process takes an attempt of all predictions beside it. */
export const ATTEMPTS = 2;

/** Errors of a route that predicts on a file. */
export const predictErrors = {
  ...errorResponses("bad_body", "unauthorized", "forbidden", "not_found", "state_conflict"),
  ...errorResponses("file_too_large", "quota_exceeded", "unsupported_media", "invalid_request"),
  ...errorResponses("task_failed", "no_node", "store_unavailable"),
};

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

/** Lets the body of a refused request pass: left unread, its sender would not see why. */
export const letRefusedPass: MiddlewareHandler = async (context, next) => {
  await next();
  const { raw } = context.req;
  if (context.error && !raw.bodyUsed) await letPass(raw);
};

/** An image as a request brought it: in memory, or in the store where it is large. */
export type ReceivedImage = HeldFile | StoredFile;

/** What a node found on an image. */
export interface ImageAnswer {
  predictions: Prediction[];
  /** Who answered, as `X-Served-By` says it: `node/<name>` or `edge`; null: a node of the queue. */
  servedBy: string | null;
  /** Milliseconds from the image's last byte to the answer. */
  ms: number;
  /** Images that the node looked at together; null where it does not tell. */
  batch: number | null;
  /** Whether the node had to open the model first. */
  cold: boolean;
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

/**
 * Who looks at images with a model, at a side of at least so many pixels; fails with `no_node`
 * where nobody can.
 */
export function serverOf(
  parts: Parts,
  model: ModelRow,
  { nodes, sideMin = 0 }: { nodes: number; sideMin?: number },
): ImageServer {
  if (nodes > 0) return "node";
  const problem = edgeProblem(parts, model, sideMin);
  if (problem === null) return "edge";
  throw new Failure("no_node", `${NO_NODE}, and the edge cannot do it: ${problem}`);
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

/** What is wanted of an image, and of whom. */
export interface ImageWish extends Pick<DirectRequest, "confidenceMin" | "signal"> {
  server: ImageServer;
  /** The side, in pixels, that the edge has to look at where it is asked; default 0. */
  sideMin?: number;
}

/** Has an image looked at: by the direct line where it can go, by the edge, else by the queue. */
export async function predictOn(
  parts: Parts,
  model: ModelRow,
  image: ReceivedImage,
  wish: ImageWish,
): Promise<ImageAnswer> {
  const started = parts.clock();
  const answer = await lookAt(parts, model, image, wish);
  return { ...answer, ms: parts.clock() - started };
}

type UntimedAnswer = Omit<ImageAnswer, "ms">;

async function lookAt(
  parts: Parts,
  model: ModelRow,
  image: ReceivedImage,
  { confidenceMin, signal, server, sideMin = 0 }: ImageWish,
): Promise<UntimedAnswer> {
  if ("key" in image) return predictStored(parts, model, image, confidenceMin);
  const { pieces } = image;
  const asked = { image: pieces, confidenceMin, signal };
  if (server === "edge") return atEdge(parts, model, asked);
  const answer = await predictHeld(parts, model, { ...asked, sideMin });
  if (answer) return answer;
  const stored = await storeFile(parts, each(pieces), rulesOf(parts, model.workspaceId));
  return predictStored(parts, model, stored, confidenceMin);
}

/** What a node with a line finds, or else the edge; null where it is the queue's. */
async function predictHeld(
  parts: Parts,
  model: ModelRow,
  { sideMin, ...asked }: DirectRequest & { sideMin: number },
): Promise<UntimedAnswer | null> {
  let full: Failure | null = null;
  try {
    const direct = await predictDirectly(parts, model, asked);
    if (direct) {
      const servedBy = `node/${encodeURIComponent(direct.servedBy)}`;
      return { ...direct, servedBy };
    }
  } catch (thrown) {
    if (!(thrown instanceof Failure && ["overloaded", "no_node"].includes(thrown.code)))
      throw thrown;
    full = thrown;
  }
  if (!edgeProblem(parts, model, sideMin) && !asked.signal.aborted) {
    try {
      return await atEdge(parts, model, asked);
    } catch (error) {
      // What it cannot do is answered as if it were not there.
      parts.log.info("edge_unanswered", { model_id: model.modelId, error });
    }
  }
  if (full) throw full;
  return null;
}

async function atEdge(parts: Parts, model: ModelRow, asked: DirectRequest): Promise<UntimedAnswer> {
  const predictions = await predictAtEdge(parts, model, asked);
  return { predictions, servedBy: EDGE, batch: null, cold: false };
}

/** Pieces that are in memory, as a file that is read. */
export async function* each(pieces: readonly Uint8Array[]) {
  yield* pieces;
}

/** Has a node that takes tasks predict on a stored image, and deletes it. */
async function predictStored(
  parts: Parts,
  model: ModelRow,
  received: StoredFile,
  confidenceMin: number,
): Promise<UntimedAnswer> {
  const { modelId } = model;
  const started = parts.clock();
  try {
    const task = predictTask(model, received, {
      fps: null,
      framesMax: 1,
      confidenceMin,
    });
    const twice = { ...task, attemptsMax: ATTEMPTS };
    const done = await runNow<"predict">(parts, twice, { timeoutMs: IMAGE_MS });
    const found = TASK_KINDS.predict.result.parse(done).frames[0]?.predictions ?? [];
    const ms = parts.clock() - started;
    parts.log.info("predicted", { model_id: modelId, ms, objects: found.length });
    return { predictions: found, servedBy: null, batch: null, cold: false };
  } catch (thrown) {
    throw asRefusal(thrown);
  } finally {
    // Whether it ended or was given up: nobody takes its result any more.
    await parts.bucket.delete(received.key);
  }
}
