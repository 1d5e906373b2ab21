// Predictions on an uploaded image or video, with the active model or another one. An image is
// answered at once; a video within the wait that its sender grants, or later under its own id.

import { createRoute, z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { Failure } from "../../../shared/errors.ts";
import { decimal, whole } from "../../../shared/scalars.ts";
import {
  CONFIDENCE_DEFAULT,
  PREDICT_FRAMES_DEFAULT,
  PREDICT_FRAMES_MAX,
  PREDICT_WAIT_SECONDS_MAX,
  VideoPrediction,
} from "../../../shared/serving.ts";
import { Prediction } from "../../../shared/tasks.ts";
import { type App, errorResponses, json } from "../../http/app.ts";
import { isSilent } from "../../http/database.ts";
import { headers } from "../../http/description.ts";
import { callerOf, guard, workspacesOf } from "../auth/scope.ts";
import { API, bearer } from "../base/api.ts";
import type { Parts } from "../base/parts.ts";
import type { ModelRow } from "../registry/models.ts";
import { resultOf, submit, waitFor } from "../tasks/wait.ts";
import { letPass } from "../uploads/form.ts";
import { type MediaKind, VIDEO_HEAD_BYTES, videoType } from "../uploads/media-types.ts";
import { toItsEnd } from "../uploads/upload-routes.ts";
import {
  ATTEMPTS,
  fileBody,
  type ImageAnswer,
  type ImageEnd,
  type ImageEndNews,
  letRefusedPass,
  predictErrors,
  predictingNodes,
  predictOn,
  receiveImage,
  requireNode,
  serverOf,
} from "./image-requests.ts";
import { type Choice, chooseModel, modelQuery } from "./model-choice.ts";
import { asRefusal, findPrediction, predictTask, receiveFile } from "./predictions.ts";

export const CLIP_BYTES_MAX = 1024 ** 3;
/** Claimed after images, on each of which somebody waits for less. */
const CLIP_PRIORITY = 90;

const tags = ["Serving"];
const confidence = decimal((number) => number.min(0).max(1))
  .default(CONFIDENCE_DEFAULT)
  .meta({
    description: "detections of at least this confidence",
  });

/** A clip, by its first bytes. */
export const CLIP: MediaKind = {
  source: "upload",
  headBytes: VIDEO_HEAD_BYTES,
  typeOf: (head) => {
    const type = videoType(head);
    if (type) return type;
    throw new Failure("unsupported_media", "the file is no MP4, MOV, MKV, WebM or AVI");
  },
};

/** Registers the routes of predictions; `onEnd` hears of those on images. */
export function addPredictionRoutes(app: App<Parts>, onEnd: ImageEndNews) {
  guard(app, "/predict/*");
  app.use(`${API}/predict/*`, letRefusedPass);
  addImage(app, onEnd);
  addVideo(app);
  addOne(app);
}

/** The model of a request, and a node that is there; a body that is refused is let pass first. */
async function ready(context: Context, parts: Parts, choice: Choice): Promise<ModelRow> {
  try {
    const model = await chooseModel(parts, callerOf(context), choice, "annotator");
    await requireNode(parts, model.workspaceId);
    return model;
  } catch (thrown) {
    await letPass(context.req.raw);
    throw thrown;
  }
}

function addImage(app: App<Parts>, onEnd: ImageEndNews) {
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
    request: { query: z.object({ ...modelQuery, confidence }), body: fileBody },
    responses: {
      200: json("detections", z.array(Prediction), headers("X-Served-By")),
      ...predictErrors,
      ...errorResponses("overloaded"),
    },
  });
  app.openapi(route, async (context) => {
    const parts = context.var.service;
    const { confidence: confidenceMin, ...choice } = context.req.valid("query");
    const model = await chooseModel(parts, callerOf(context), choice, "annotator");
    const heard: ImageEndNews = async (...news) =>
      context.executionCtx.waitUntil(onEnd(...news).catch(() => {}));
    const work = predictImage(parts, context.req.raw, { model, confidenceMin, onEnd: heard });
    const answer = await toItsEnd(context, work);
    const { servedBy } = answer;
    if (servedBy) context.header("X-Served-By", servedBy);
    return context.json(answer.predictions, 200);
  });
}

/** Predicts on the image of a request, and tells how it ended. */
async function predictImage(
  parts: Parts,
  request: Request,
  { model, confidenceMin, onEnd }: { model: ModelRow; confidenceMin: number; onEnd: ImageEndNews },
): Promise<ImageAnswer> {
  const { signal } = request;
  const told = (outcome: ImageEnd["outcome"]) => {
    void onEnd(parts, { model, confidenceMin, outcome, hasLeft: signal.aborted });
  };
  try {
    const nodes = await predictingNodes(parts, model.workspaceId);
    const server = serverOf(parts, model, { nodes });
    const image = await receiveImage(parts, request, { ...model, server });
    const answer = await predictOn(parts, model, image, { confidenceMin, signal, server });
    told({ answer });
    return answer;
  } catch (thrown) {
    told({ thrown });
    throw thrown;
  }
}

/** What every prediction on a clip may be asked with. */
export const clipQuery = z.object({
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
    request: { query: clipQuery, body: fileBody },
    responses: {
      200: json("the frames with what was found", VideoPrediction),
      202: json("a node is at it, or will be", VideoPrediction, headers("Location")),
      ...predictErrors,
    },
  });
  app.openapi(route, async (context) => {
    const parts = context.var.service;
    const query = context.req.valid("query");
    const model = await ready(context, parts, query);
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
