// A segmenter asked about an uploaded image or clip, by words, examples, clicks or boxes. An image
// is answered at once; a clip within the wait that its sender grants, or later under its own id.

import { z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { Failure } from "../../../../shared/errors.ts";
import {
  SAM_FRAMES_MAX,
  SamPrediction,
  SamVideoPrediction,
} from "../../../../shared/wire/serving.ts";
import { headers } from "../../../http/description.ts";
import { json } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { callerOf, workspacesFor, workspacesOf } from "../../auth/scope.ts";
import { toItsEnd } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { type Route, route } from "../../base/route.ts";
import { groundAll } from "../../labeling/jobs/grounding.ts";
import { IMAGE } from "../../media/uploads/media-types.ts";
import { offeringNodes } from "../../tasks/nodes/nodes.ts";
import { framesQuery, framesWished } from "../predict/clip-frames.ts";
import { answerClip, enqueueClip } from "../predict/clips.ts";
import {
  DIRECT_BYTES_MAX,
  each,
  IMAGE_BYTES_MAX,
  letGo,
  type ReceivedImage,
} from "../predict/image-requests.ts";
import { holdFile, receiveFile, type StoredFile, storeFile } from "../predict/predictions.ts";
import { CLIP, CLIP_BYTES_MAX, clipQuery } from "../predict/routes.ts";
import { clipForm, imageForm, SamForm } from "./form.ts";
import { findSamPrediction } from "./predictions.ts";
import {
  asSamRefusal,
  imageRecord,
  lookByQueue,
  lookDirectly,
  type SamAnswer,
  type SamAsk,
  samTask,
} from "./sam.ts";

const tag = "Serving";
const workspaceQuery = {
  workspace_id: z.uuid().optional().meta({
    description: "whose nodes look; the first where you have the role when omitted",
  }),
};
/** The workspace of a request, where a node is there for it. */
async function ready(
  context: Context,
  parts: Parts,
  { named, kind }: { named: string | undefined; kind: "sam" | "sam_video" },
): Promise<string> {
  const [workspaceId = ""] = workspacesFor(callerOf(context), named, "annotator");
  if ((await offeringNodes(parts.database, { kind, workspaceId })) > 0) return workspaceId;
  throw new Failure("no_node", "no GPU node with a segmenter is there");
}

/** Fails where a word is unknown to the segmenters that are there, before any of them looks. */
async function checkPrompts({ database }: Parts, { workspaceId, request }: SamAsk): Promise<void> {
  const texts = request.prompts.flatMap((prompt) => (prompt.kind === "text" ? [prompt.text] : []));
  const segmenter = request.segmenter ?? undefined;
  await groundAll(database, texts, { workspaceId, segmenter });
}

/** Has a node look at a request's image, which is stored only where the queue has to do it. */
async function lookAtImage(
  parts: Parts,
  request: Request,
  workspaceId: string,
): Promise<SamAnswer & { ask: SamAsk }> {
  const started = parts.clock();
  const bytesMax = Math.min(IMAGE_BYTES_MAX, parts.limits.uploadBytesMax);
  const rules = { workspaceId, kind: IMAGE, bytesMax };
  const form = new SamForm(parts);
  let held: ReceivedImage | null = null;
  let stored: StoredFile | null = null;
  try {
    held = await holdFile(parts, request, {
      ...rules,
      others: form.others,
      heldMax: Math.min(DIRECT_BYTES_MAX, bytesMax),
    });
    if ("key" in held) stored = held;
    const ask = { workspaceId, request: form.request("image") };
    await checkPrompts(parts, ask);
    const { signal } = request;
    let answer = "pieces" in held ? await lookDirectly(parts, ask, { image: held, signal }) : null;
    if (!answer) {
      stored ??= await storeFile(parts, each("pieces" in held ? held.pieces : []), rules);
      answer = await lookByQueue(parts, ask, stored);
    }
    const objects = answer.result.frames[0]?.findings.length ?? 0;
    const { segmenter } = answer.result;
    parts.log.info("sam_predicted", { segmenter, ms: parts.clock() - started, objects });
    return { ...answer, ask };
  } finally {
    form.free();
    if (held) letGo(held);
    // Whether it ended or was given up: nobody takes its result any more.
    if (stored) await parts.bucket.delete(stored.key);
  }
}

const samClipQuery = z.object({
  ...workspaceQuery,
  ...framesQuery(SAM_FRAMES_MAX),
  wait_seconds: clipQuery.shape.wait_seconds,
});

/** Stores a clip and enqueues its prediction; returns its id. */
async function startClip(
  parts: Parts,
  request: Request,
  workspaceId: string,
  query: z.output<typeof samClipQuery>,
): Promise<string> {
  const bytesMax = Math.min(CLIP_BYTES_MAX, parts.limits.uploadBytesMax);
  const form = new SamForm(parts);
  const rules = { workspaceId, kind: CLIP, bytesMax, others: form.others };
  try {
    const received = await receiveFile(parts, request, rules);
    return await enqueueClip(parts, received, async () => {
      const ask = { workspaceId, request: form.request("clip") };
      await checkPrompts(parts, ask);
      const wanted = framesWished(query, SAM_FRAMES_MAX);
      return { kind: "sam_video", ...samTask(ask, received, wanted) };
    });
  } finally {
    form.free();
  }
}

/** Routes at which a segmenter is asked about an uploaded file. */
export const samRoutes: readonly Route[] = [
  route(
    {
      call: "POST /predict/sam",
      operationId: "predictSam",
      tag,
      summary: "Objects on a picture, by words, examples, clicks or boxes",
      description:
        "multipart/form-data with `file`: JPEG, PNG or WebP, at most 64 MiB and 100 megapixels; and at " +
        "least one of `prompts`, `exemplars`, `crop`, `points`, `bbox` and `boxes`, in any order. Needs " +
        "the role annotator. Words are grounded as by `POST /label`: an unknown one is refused with the " +
        "nearest, and `warnings` tell what is read in part. Clicks, and each box, give the one object " +
        "that they mean, whatever the threshold. Boxes, clicks and masks are in pixels of the picture " +
        "as people see it, turned as its EXIF says. As `rle` or `polygon` a mask is the same to the " +
        "pixel. At most 1,000 objects are told, and masks of 300,000 numbers in all: `left_out` counts " +
        "the rest. A picture up to 8 MiB goes straight to a node, which `X-Served-By` names, and is " +
        "stored nowhere; a larger one is deleted when the answer is there.",
      who: user,
      query: z.object(workspaceQuery),
      body: imageForm,
      answers: { 200: json("the objects", SamPrediction, headers("X-Served-By")) },
      errors: [
        "bad_body",
        "not_found",
        "file_too_large",
        "quota_exceeded",
        "unsupported_media",
        "prompt_unknown",
        "overloaded",
        "task_failed",
        "no_node",
      ],
    },
    async (context) => {
      const parts = context.var.service;
      const { workspace_id: named } = context.req.valid("query");
      const workspaceId = await ready(context, parts, { named, kind: "sam" });
      const work = lookAtImage(parts, context.req.raw, workspaceId);
      const { ask, result, servedBy } = await toItsEnd(context, work);
      if (servedBy) context.header("X-Served-By", `node/${encodeURIComponent(servedBy)}`);
      return context.json(imageRecord(result, ask.request), 200);
    },
  ),
  route(
    {
      call: "POST /predict/sam/video",
      operationId: "predictSamVideo",
      tag,
      summary: "Objects on the frames of a clip, by words or examples",
      description:
        "multipart/form-data with `file`: MP4, MOV, MKV, WebM or AVI, at most 1 GiB; and `prompts`, " +
        "`exemplars` (boxes on its frames) or `crop`, as by `POST /predict/sam`. Needs the role " +
        "annotator. Looks at every frame, or at those that `fps` names, each by itself; a clip of more " +
        "than 600 is 413 `too_many_frames` unless `frames_max` cuts it. A clip that takes longer than `wait_seconds` is answered with 202 and its `prediction_id`, for " +
        "`GET /predict/sam/video/{prediction_id}`. At most 20,000 objects are told, and masks of " +
        "1,200,000 numbers in all: `left_out` counts the rest. The file is deleted when the prediction " +
        "ended; its result is kept for a day.",
      who: user,
      query: samClipQuery,
      body: clipForm,
      answers: {
        200: json("the frames with their objects", SamVideoPrediction),
        202: json("a node is at it, or will be", SamVideoPrediction, headers("Location")),
      },
      errors: [
        "bad_body",
        "not_found",
        "file_too_large",
        "quota_exceeded",
        "too_many_frames",
        "unsupported_media",
        "prompt_unknown",
        "task_failed",
        "no_node",
      ],
    },
    async (context) => {
      const parts = context.var.service;
      const query = context.req.valid("query");
      const named = query.workspace_id;
      const workspaceId = await ready(context, parts, { named, kind: "sam_video" });
      const work = startClip(parts, context.req.raw, workspaceId, query);
      const predictionId = await toItsEnd(context, work);
      return answerClip(context, "/predict/sam/video", {
        predictionId,
        waitSeconds: query.wait_seconds,
        find: () => findSamPrediction(parts, [workspaceId], predictionId),
        refusal: asSamRefusal,
      });
    },
  ),
  route(
    {
      call: "GET /predict/sam/video/{prediction_id}",
      operationId: "readSamPrediction",
      tag,
      summary: "How a segmenter's prediction on a clip stands, and its result",
      description: "Beyond the contract. Kept for a day.",
      who: user,
      params: z.object({ prediction_id: z.uuid() }),
      answers: { 200: json("the prediction", SamVideoPrediction) },
    },
    async (context) => {
      const { prediction_id } = context.req.valid("param");
      const workspaces = workspacesOf(callerOf(context));
      const found = await findSamPrediction(context.var.service, workspaces, prediction_id);
      return context.json(found, 200);
    },
  ),
];
