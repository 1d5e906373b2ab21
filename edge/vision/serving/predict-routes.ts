// Predictions on an uploaded image or video, with the active model or another one. An image is
// answered at once; a video within the wait that its sender grants, or later under its own id.

import { createRoute, z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { EDGE_IMAGE_BYTES_MAX } from "../../../shared/edge-inference.ts";
import { Failure } from "../../../shared/errors.ts";
import { decimal, whole } from "../../../shared/scalars.ts";
import {
  CONFIDENCE_DEFAULT,
  PREDICT_FRAMES_DEFAULT,
  PREDICT_FRAMES_MAX,
  PREDICT_WAIT_SECONDS_MAX,
  VideoPrediction,
} from "../../../shared/serving.ts";
import { Prediction, TASK_KINDS } from "../../../shared/tasks.ts";
import { type App, errorResponses, json } from "../../http/app.ts";
import { isSilent } from "../../http/database.ts";
import { headers } from "../../http/description.ts";
import { callerOf, guard, workspacesOf } from "../auth/scope.ts";
import { API, bearer } from "../base/api.ts";
import type { Parts } from "../base/parts.ts";
import type { ModelRow } from "../registry/models.ts";
import { offeringNodes } from "../tasks/nodes.ts";
import { resultOf, runNow, submit, waitFor } from "../tasks/wait.ts";
import { letPass } from "../uploads/form.ts";
import { IMAGE, type MediaKind, VIDEO_HEAD_BYTES, videoType } from "../uploads/media-types.ts";
import { toItsEnd } from "../uploads/upload-routes.ts";
import { type DirectRequest, predictDirectly } from "./direct.ts";
import { edgeProblem, predictAtEdge } from "./edge.ts";
import { type Choice, chooseModel, modelQuery } from "./model-choice.ts";
import {
  asRefusal,
  findPrediction,
  holdFile,
  predictTask,
  receiveFile,
  type StoredFile,
  storeFile,
} from "./predictions.ts";

const IMAGE_BYTES_MAX = 64 * 1024 * 1024;
const CLIP_BYTES_MAX = 1024 ** 3;
/** Larger images are stored, and claimed from the queue: requests share an isolate's memory. */
const DIRECT_BYTES_MAX = 8 * 1024 * 1024;
const IMAGE_MS = 60_000;
/** Claimed after images, on each of which somebody waits for less. */
const CLIP_PRIORITY = 90;
/** A file that crashes a process takes an attempt of all predictions beside it. */
const ATTEMPTS = 2;

/** Who answered, where no node did. */
const EDGE = "edge";

const tags = ["Serving"];
const confidence = decimal((number) => number.min(0).max(1))
  .default(CONFIDENCE_DEFAULT)
  .meta({
    description: "detections of at least this confidence",
  });

const errors = {
  ...errorResponses("bad_body", "unauthorized", "forbidden", "not_found", "state_conflict"),
  ...errorResponses("file_too_large", "quota_exceeded", "unsupported_media", "invalid_request"),
  ...errorResponses("task_failed", "no_node", "store_unavailable"),
};

/** Read by hand, as uploads are: a zod schema would have the body taken into memory whole. */
const body = {
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

const CLIP: MediaKind = {
  source: "upload",
  headBytes: VIDEO_HEAD_BYTES,
  typeOf: (head) => {
    const type = videoType(head);
    if (type) return type;
    throw new Failure("unsupported_media", "the file is no MP4, MOV, MKV, WebM or AVI");
  },
};

/** Registers the routes of predictions. */
export function addPredictionRoutes(app: App<Parts>) {
  guard(app, "/predict/*");
  // A query that is refused leaves its body unread, and its sender would not see why.
  app.use(`${API}/predict/*`, async (context, next) => {
    await next();
    const { raw } = context.req;
    if (context.error && !raw.bodyUsed) await letPass(raw);
  });
  addImage(app);
  addVideo(app);
  addOne(app);
}

/** The model of a request, and whether a node is there for it. */
interface Ready {
  model: ModelRow;
  hasNode: boolean;
}

/**
 * The model of a request, and who could predict: a node, or for an image the edge. Fails with
 * `no_node` where nobody could; a body that is refused is let pass first.
 */
async function ready(
  context: Context,
  parts: Parts,
  { of, ...choice }: Choice & { of: "image" | "video" },
): Promise<Ready> {
  try {
    const model = await chooseModel(parts, callerOf(context), choice, "annotator");
    const wanted = { kind: "predict", workspaceId: model.workspaceId };
    const hasNode = (await offeringNodes(parts.database, wanted)) > 0;
    if (hasNode) return { model, hasNode };
    const none = "no GPU node that predicts is there";
    if (of === "video") throw new Failure("no_node", none);
    const problem = edgeProblem(parts, model);
    if (problem) throw new Failure("no_node", `${none}, and the edge cannot do it: ${problem}`);
    return { model, hasNode };
  } catch (thrown) {
    await letPass(context.req.raw);
    throw thrown;
  }
}

function addImage(app: App<Parts>) {
  const route = createRoute({
    method: "post",
    path: `${API}/predict/image`,
    operationId: "predictImage",
    tags,
    summary: "Detections on a picture",
    description:
      "multipart/form-data with `file`: JPEG, PNG or WebP, at most 64 MiB and 100 megapixels. Needs " +
      "the role annotator. Boxes are in pixels of the picture as people see it, turned as its EXIF " +
      "says; surest first. A picture up to 8 MiB goes straight to a node, which `X-Served-By` names, " +
      "and is stored nowhere; a larger one is deleted when the answer is there. Where no node is there " +
      "or has room, the edge answers (`X-Served-By: edge`) for a model and a picture that are small " +
      "enough (8 MiB, 2,100,000 pixels), looking at fewer pixels than the model was trained for: see " +
      "`edge` of `GET /serve/status`.",
    security: bearer,
    request: { query: z.object({ ...modelQuery, confidence }), body },
    responses: {
      200: json("detections", z.array(Prediction), headers("X-Served-By")),
      ...errors,
      ...errorResponses("overloaded"),
    },
  });
  app.openapi(route, async (context) => {
    const parts = context.var.service;
    const { confidence: confidenceMin, ...choice } = context.req.valid("query");
    const able = await ready(context, parts, { of: "image", ...choice });
    const work = predictImage(parts, context.req.raw, able, confidenceMin);
    const { predictions, servedBy } = await toItsEnd(context, work);
    if (servedBy) context.header("X-Served-By", servedBy);
    return context.json(predictions, 200);
  });
}

/** What was found, and who found it as `X-Served-By` says it; null for a node of the queue. */
interface ImageAnswer {
  predictions: Prediction[];
  servedBy: string | null;
}

async function predictImage(
  parts: Parts,
  request: Request,
  { model, hasNode }: Ready,
  confidenceMin: number,
): Promise<ImageAnswer> {
  const { workspaceId } = model;
  const takenMax = hasNode ? IMAGE_BYTES_MAX : EDGE_IMAGE_BYTES_MAX;
  const bytesMax = Math.min(takenMax, parts.limits.uploadBytesMax);
  const rules = { workspaceId, kind: IMAGE, bytesMax };
  const received = await holdFile(parts, request, {
    ...rules,
    heldMax: Math.min(DIRECT_BYTES_MAX, bytesMax),
  });
  if ("key" in received) return predictStored(parts, model, received, confidenceMin);
  const { signal } = request;
  const { pieces } = received;
  const asked = { image: pieces, confidenceMin, signal };
  const answer = hasNode
    ? await predictHeld(parts, model, asked)
    : { predictions: await predictAtEdge(parts, model, asked), servedBy: EDGE };
  if (answer) return answer;
  const stored = await storeFile(parts, each(pieces), rules);
  return predictStored(parts, model, stored, confidenceMin);
}

/** What a node with a line finds, or else the edge; null where it is the queue's. */
async function predictHeld(
  parts: Parts,
  model: ModelRow,
  asked: DirectRequest,
): Promise<ImageAnswer | null> {
  let full: unknown = null;
  try {
    const direct = await predictDirectly(parts, model, asked);
    if (direct) {
      const { predictions, servedBy } = direct;
      return { predictions, servedBy: `node/${encodeURIComponent(servedBy)}` };
    }
  } catch (thrown) {
    if (!(thrown instanceof Failure && ["overloaded", "no_node"].includes(thrown.code)))
      throw thrown;
    full = thrown;
  }
  if (!edgeProblem(parts, model) && !asked.signal.aborted) {
    try {
      return { predictions: await predictAtEdge(parts, model, asked), servedBy: EDGE };
    } catch (error) {
      // What it cannot do is answered as if it were not there.
      parts.log.info("edge_unanswered", { model_id: model.modelId, error });
    }
  }
  if (full) throw full;
  return null;
}

async function* each(pieces: readonly Uint8Array[]) {
  yield* pieces;
}

/** Has a node that takes tasks predict on a stored image, and deletes it. */
async function predictStored(
  parts: Parts,
  model: ModelRow,
  received: StoredFile,
  confidenceMin: number,
): Promise<ImageAnswer> {
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
    return { predictions: found, servedBy: null };
  } catch (thrown) {
    throw asRefusal(thrown);
  } finally {
    // Whether it ended or was given up: nobody takes its result any more.
    await parts.bucket.delete(received.key);
  }
}

const clipQuery = z.object({
  ...modelQuery,
  confidence,
  fps: decimal((number) => number.positive().max(1_000))
    .optional()
    .meta({
      description:
        "frames a second to look at, by the frames' true times; every frame when omitted",
    }),
  frames_max: whole(1, PREDICT_FRAMES_MAX).default(PREDICT_FRAMES_DEFAULT),
  wait_seconds: whole(0, PREDICT_WAIT_SECONDS_MAX).default(60).meta({
    description: "the answer is waited for as long, then it is 202 and comes under its id",
  }),
});

function addVideo(app: App<Parts>) {
  const route = createRoute({
    method: "post",
    path: `${API}/predict/video`,
    operationId: "predictVideo",
    tags,
    summary: "Detections on the frames of a video",
    description:
      "multipart/form-data with `file`: MP4, MOV, MKV, WebM or AVI, at most 1 GiB. Needs the role " +
      "annotator. Looks at the first `frames_max` of the frames that `fps` names. A clip that takes " +
      "longer than `wait_seconds` is answered with 202 and its `prediction_id`, for `GET " +
      "/predict/video/{prediction_id}`. The file is deleted when the prediction ended; its result is " +
      "kept for a day.",
    security: bearer,
    request: { query: clipQuery, body },
    responses: {
      200: json("the frames with what was found", VideoPrediction),
      202: json("a node is at it, or will be", VideoPrediction, headers("Location")),
      ...errors,
    },
  });
  app.openapi(route, async (context) => {
    const parts = context.var.service;
    const query = context.req.valid("query");
    const { model } = await ready(context, parts, { of: "video", ...query });
    const { workspaceId } = model;
    const predictionId = await toItsEnd(context, startClip(parts, context.req.raw, model, query));
    const ended = await waitFor(parts, predictionId, parts.clock() + query.wait_seconds * 1_000);
    if (ended && ended.state !== "finished") {
      try {
        resultOf<"predict">(ended);
      } catch (thrown) {
        throw asRefusal(thrown);
      }
    }
    const found = await findPrediction(parts, [workspaceId], predictionId);
    if (found.status === "completed") return context.json(found, 200);
    context.header("Location", `${API}/predict/video/${predictionId}`);
    return context.json(found, 202);
  });
}

/** Stores a clip and enqueues its prediction; returns its id. */
async function startClip(
  parts: Parts,
  request: Request,
  model: ModelRow,
  query: z.output<typeof clipQuery>,
): Promise<string> {
  const { workspaceId } = model;
  const bytesMax = Math.min(CLIP_BYTES_MAX, parts.limits.uploadBytesMax);
  const received = await receiveFile(parts, request, { workspaceId, kind: CLIP, bytesMax });
  const wanted = { fps: query.fps ?? null, framesMax: query.frames_max };
  const task = predictTask(model, received, { ...wanted, confidenceMin: query.confidence });
  try {
    const urgency = { priority: CLIP_PRIORITY, attemptsMax: ATTEMPTS };
    const [enqueued] = await submit(parts, [{ ...task, ...urgency }]);
    return enqueued?.taskId as string;
  } catch (thrown) {
    // A task that may have been enqueued keeps its clip; what nobody asks for goes with it.
    if (!isSilent(thrown)) await parts.bucket.delete(received.key);
    throw thrown;
  }
}

function addOne(app: App<Parts>) {
  const route = createRoute({
    method: "get",
    path: `${API}/predict/video/{prediction_id}`,
    operationId: "readPrediction",
    tags,
    summary: "How a prediction on a video stands, and its result",
    description: "Beyond the contract. Kept for a day.",
    security: bearer,
    request: { params: z.object({ prediction_id: z.uuid() }) },
    responses: {
      200: json("the prediction", VideoPrediction),
      ...errorResponses("unauthorized", "not_found", "invalid_request", "store_unavailable"),
    },
  });
  app.openapi(route, async (context) => {
    const { prediction_id } = context.req.valid("param");
    const workspaces = workspacesOf(callerOf(context));
    return context.json(await findPrediction(context.var.service, workspaces, prediction_id), 200);
  });
}
