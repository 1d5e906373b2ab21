// Predictions on an uploaded image or video, with the active model or another one. An image is
// answered at once; a video within the wait that its sender grants, or later under its own id.

import { z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { Failure } from "../../../../shared/errors.ts";
import { decimal, whole } from "../../../../shared/scalars.ts";
import { MaskedPrediction } from "../../../../shared/tasks/predict-task.ts";
import type { MaskForm } from "../../../../shared/tasks/sam.ts";
import {
  CONFIDENCE_DEFAULT,
  PREDICT_FRAMES_MAX,
  PREDICT_WAIT_SECONDS_MAX,
  VideoPrediction,
} from "../../../../shared/wire/serving.ts";
import { headers } from "../../../http/description.ts";
import { json } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { type Caller, callerOf, workspacesOf } from "../../auth/scope.ts";
import { toItsEnd } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { type Route, route } from "../../base/route.ts";
import { type MediaKind, VIDEO_HEAD_BYTES, videoType } from "../../media/uploads/media-types.ts";
import type { ModelRow } from "../../models/registry.ts";
import { countDefault } from "../endpoints/predict.ts";
import { framesQuery, framesWished } from "./clip-frames.ts";
import { answerClip, enqueueClip } from "./clips.ts";
import { type EarlyAnswer, EarlyLook } from "./early-look.ts";
import {
  ATTEMPTS,
  fileBody,
  type ImageAnswer,
  type ImageEnd,
  type ImageEndNews,
  letGo,
  predictOn,
  type ReceivedImage,
  receiveEarly,
  receiveImage,
  requireNode,
  serverFor,
} from "./image-requests.ts";
import { maskQuery, requireMasks } from "./masks.ts";
import { type Choice, chooseModel, modelQuery } from "./model-choice.ts";
import { findPrediction, predictTask, receiveFile } from "./predictions.ts";

export const CLIP_BYTES_MAX = 1024 ** 3;
/** Claimed after images, on each of which somebody waits for less. */
const CLIP_PRIORITY = 90;

const tag = "Serving";
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

/** The model of a request, and a node that is there. */
async function ready(
  context: Context,
  parts: Parts,
  choice: Choice & { mask: MaskForm },
): Promise<ModelRow> {
  const model = await chooseModel(parts, callerOf(context), choice, "annotator");
  requireMasks(model, choice.mask);
  await requireNode(parts, model.workspaceId);
  return model;
}

/** What is wanted of an image, and who hears of it. */
interface ImageAsk {
  caller: Caller;
  choice: Choice;
  confidenceMin: number;
  mask: MaskForm;
  onEnd: ImageEndNews;
}

/**
 * Predicts on the image of a request, and tells how it ended. A small image is taken in while the
 * database is asked for the model, and is looked at by the one of the time before; the answer waits
 * for both, and of two failures is the model's. What is refused holds no memory from then on,
 * however slowly the rest of it comes.
 */
async function predictImage(
  parts: Parts,
  request: Request,
  { caller, choice, mask, confidenceMin, onEnd }: ImageAsk,
): Promise<ImageAnswer> {
  const unwanted = new AbortController();
  const { signal } = request;
  const choosing = chooseModel(parts, caller, choice, "annotator");
  const receiving = receiveEarly(parts, request, unwanted.signal);
  const look = new EarlyLook(parts, receiving, { caller, choice, confidenceMin, mask, signal });
  try {
    const model = await choosing;
    const early = look.by(model);
    requireMasks(model, mask);
    const ask = { model, confidenceMin, mask, onEnd, receiving, early };
    return await predictReceived(parts, request, ask);
  } finally {
    // Also where nobody got as far as to take them.
    look.end();
    unwanted.abort();
    await receiving?.catch(() => {});
  }
}

/** Predicts with the model of a request, and tells how it ended. */
async function predictReceived(
  parts: Parts,
  request: Request,
  {
    model,
    confidenceMin,
    mask,
    onEnd,
    receiving,
    early,
  }: Omit<ImageAsk, "caller" | "choice"> & {
    model: ModelRow;
    receiving: Promise<ReceivedImage> | null;
    early: Promise<EarlyAnswer | null>;
  },
): Promise<ImageAnswer> {
  const { signal } = request;
  const told = (outcome: ImageEnd["outcome"]) => {
    void onEnd(parts, { model, confidenceMin, outcome, hasLeft: signal.aborted });
  };
  let image: ReceivedImage | null = null;
  try {
    // Where a node gave its word, nobody needs to be asked who could.
    const hasWord = await early.then(
      (found) => found !== null,
      () => true,
    );
    const server = hasWord ? "node" : await serverFor(parts, model, { mask });
    image = await (receiving ?? receiveImage(parts, request, { ...model, server }));
    const asked = { confidenceMin, mask, signal, server, early };
    const answer = await predictOn(parts, model, image, asked);
    told({ answer });
    return answer;
  } catch (thrown) {
    told({ thrown });
    throw thrown;
  } finally {
    if (image) letGo(image);
  }
}

/** What every prediction on a clip may be asked with. */
export const clipQuery = z.object({
  ...modelQuery,
  confidence,
  ...framesQuery(PREDICT_FRAMES_MAX),
  wait_seconds: whole(0, PREDICT_WAIT_SECONDS_MAX).default(60).meta({
    description: "the answer is waited for as long, then it is 202 and comes under its id",
  }),
});

const videoQuery = clipQuery.extend({
  mask: maskQuery,
  annotated: z.enum(["true", "false"]).default("false").meta({
    description: "true: the clip is given with its boxes drawn, too, as `annotated_video_url`",
  }),
});

/** Stores a clip and enqueues its prediction; returns its id. */
async function startClip(
  parts: Parts,
  request: Request,
  model: ModelRow,
  query: z.output<typeof videoQuery>,
): Promise<string> {
  const { workspaceId } = model;
  const bytesMax = Math.min(CLIP_BYTES_MAX, parts.limits.uploadBytesMax);
  const received = await receiveFile(parts, request, { workspaceId, kind: CLIP, bytesMax });
  const { mask, confidence: confidenceMin } = query;
  const annotated = query.annotated === "true";
  const wanted = { ...framesWished(query, PREDICT_FRAMES_MAX), mask, confidenceMin, annotated };
  return enqueueClip(parts, received, () => ({
    ...predictTask(model, received, wanted),
    priority: CLIP_PRIORITY,
    attemptsMax: ATTEMPTS,
  }));
}

/** Routes of predictions. */
export const predictionRoutes: readonly Route[] = [
  route(
    {
      call: "POST /predict/image",
      operationId: "predictImage",
      tag,
      summary: "Detections on a picture",
      description:
        "multipart/form-data with `file`: JPEG, PNG or WebP, at most 64 MiB and 100 megapixels. Needs " +
        "the role annotator. Boxes are in pixels of the picture as people see it, turned as its EXIF " +
        "says; surest first. A picture up to 8 MiB goes straight to a node, which `X-Served-By` names, " +
        "and is stored nowhere; a larger one is deleted when the answer is there. Where no node is there, " +
        "in time, or has room, the edge answers (`X-Served-By: edge`) for a model and a picture that are small " +
        "enough (8 MiB, 2,100,000 pixels), looking at fewer pixels than the model was trained for: see " +
        "`edge` of `GET /serve/status`. It looks in `int8` once a node made that file of the model, and " +
        "held it against the model's validation images; `X-Model-Precision` says which. With `mask` " +
        "each object of a segmentation model has one, by a node and never the edge, within 300,000 " +
        "numbers an answer and a second of drawing; `X-Masks-Left-Out` counts those beyond. A model " +
        "that makes no masks is refused.",
      who: user,
      query: z.object({ ...modelQuery, confidence, mask: maskQuery }),
      body: fileBody,
      answers: {
        200: json(
          "detections",
          z.array(MaskedPrediction),
          headers("X-Served-By", "X-Model-Precision", "X-Masks-Left-Out"),
        ),
      },
      errors: [
        "bad_body",
        "not_found",
        "state_conflict",
        "file_too_large",
        "quota_exceeded",
        "unsupported_media",
        "overloaded",
        "task_failed",
        "no_node",
      ],
    },
    async (context) => {
      const parts = context.var.service;
      const { confidence: confidenceMin, mask, ...choice } = context.req.valid("query");
      const heard: ImageEndNews = async (...news) =>
        context.executionCtx.waitUntil(countDefault(...news).catch(() => {}));
      const ask = { caller: callerOf(context), choice, confidenceMin, mask, onEnd: heard };
      const answer = await toItsEnd(context, predictImage(parts, context.req.raw, ask));
      const { servedBy } = answer;
      if (servedBy) context.header("X-Served-By", servedBy);
      context.header("X-Model-Precision", answer.precision);
      if (mask !== "none") context.header("X-Masks-Left-Out", String(answer.masksLeftOut));
      return context.json(answer.predictions, 200);
    },
  ),
  route(
    {
      call: "POST /predict/video",
      operationId: "predictVideo",
      tag,
      summary: "Detections on the frames of a video",
      description:
        "multipart/form-data with `file`: MP4, MOV, MKV, WebM or AVI, at most 1 GiB. Needs the role " +
        "annotator. Looks at every frame, or at those that `fps` names; a clip of more than 3,000 is " +
        "413 `too_many_frames` unless `frames_max` cuts it. A clip that takes longer than " +
        "`wait_seconds` is answered with 202 and its `prediction_id`, for `GET " +
        "/predict/video/{prediction_id}`. The file is deleted when the prediction ended; its result is " +
        "kept for a day. With `mask` each object of a segmentation model has one, within 1,200,000 " +
        "numbers and 50,000 objects of all frames; `masks_left_out` counts those beyond. With " +
        "`annotated=true` it also has `annotated_video_url`: an MP4 of the frames that were looked at, " +
        "at their true times and without sound, with boxes, class names and confidences drawn. It is " +
        "kept for a day, counts towards the storage, and may have 1 GiB.",
      who: user,
      query: videoQuery,
      body: fileBody,
      answers: {
        200: json("the frames with what was found", VideoPrediction),
        202: json("a node is at it, or will be", VideoPrediction, headers("Location")),
      },
      errors: [
        "bad_body",
        "not_found",
        "state_conflict",
        "file_too_large",
        "quota_exceeded",
        "too_many_frames",
        "unsupported_media",
        "task_failed",
        "no_node",
      ],
    },
    async (context) => {
      const parts = context.var.service;
      const query = context.req.valid("query");
      const model = await ready(context, parts, query);
      const { workspaceId } = model;
      const predictionId = await toItsEnd(context, startClip(parts, context.req.raw, model, query));
      return answerClip(context, "/predict/video", {
        predictionId,
        waitSeconds: query.wait_seconds,
        find: () => findPrediction(parts, [workspaceId], predictionId),
      });
    },
  ),
  route(
    {
      call: "GET /predict/video/{prediction_id}",
      operationId: "readPrediction",
      tag,
      summary: "How a prediction on a video stands, and its result",
      description: "Beyond the contract. Kept for a day.",
      who: user,
      params: z.object({ prediction_id: z.uuid() }),
      answers: { 200: json("the prediction", VideoPrediction) },
    },
    async (context) => {
      const { prediction_id } = context.req.valid("param");
      const workspaces = workspacesOf(callerOf(context));
      return context.json(
        await findPrediction(context.var.service, workspaces, prediction_id),
        200,
      );
    },
  ),
];
