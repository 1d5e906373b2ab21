// Asking a segmenter while somebody waits: a preview, a mask from clicks.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { Prediction } from "../../../../shared/shapes.ts";
import { Mask } from "../../../../shared/tasks/tasks.ts";
import { Annotation } from "../../../../shared/wire/labeling.ts";
import { frameId } from "../../../../shared/wire/vision.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { allow, callerOf, workspacesOf } from "../../auth/scope.ts";
import { type Route, route } from "../../base/route.ts";
import { EXEMPLARS_BYTES_MAX, PREVIEW_FRAMES_MAX, PreviewBody, SegmentBody } from "./bodies.ts";
import { framesOf } from "./frame-references.ts";
import { previewFrames, segmentFrame } from "./previews.ts";

const tag = "Labeling";
/** A mask as users are told of it: how sure it is has the name that it has of every object. */
const ClickedMask = Mask.omit({ score: true })
  .extend({ confidence: Prediction.shape.confidence })
  .meta({ id: "Mask" });
const Preview = z.object({
  previews: z.array(
    z.object({
      frame_id: z.string(),
      image: z.string().meta({ description: "base64 JPEG with what was found drawn on it" }),
      annotations: z.array(Annotation.pick({ class: true, bbox: true, confidence: true })),
    }),
  ),
  segmenter: z.string().meta({ description: "the segmenter that looked, or the model's id" }),
  warnings: z.array(z.string()),
});

/** Routes at which a segmenter is asked while somebody waits. */
export const previewRoutes: readonly Route[] = [
  route(
    {
      call: "POST /label/preview",
      operationId: "previewLabels",
      tag,
      summary: "What a segmenter finds on a few frames, before a job",
      description: `For annotators. At most ${PREVIEW_FRAMES_MAX} frames of one video.`,
      who: user,
      body: jsonBody(PreviewBody, { bytesMax: EXEMPLARS_BYTES_MAX }),
      answers: { 200: json("frames with what was found", Preview) },
      errors: ["not_found", "state_conflict", "prompt_unknown", "task_failed", "no_node"],
    },
    async (context) => {
      const parts = context.var.service;
      const body = context.req.valid("json");
      const caller = callerOf(context);
      const named = await framesOf(parts, workspacesOf(caller), body.frame_ids);
      const { video } = named;
      allow(caller, video.workspaceId, "annotator");
      const { frames, segmenter, warnings } = await previewFrames(parts, named, body);
      const previews = frames.map(({ frame_index, image, detections }) => ({
        frame_id: frameId(video.videoId, frame_index),
        image,
        annotations: detections.map(({ class_name, bbox, confidence }) => ({
          class: class_name,
          bbox,
          confidence,
        })),
      }));
      return context.json({ previews, segmenter, warnings }, 200);
    },
  ),
  route(
    {
      call: "POST /label/segment-points",
      operationId: "segmentPoints",
      tag,
      summary: "A mask from clicks on a frame",
      description:
        "For annotators. Points with label 1 are on the object, with 0 off it; a box may go with them " +
        "or stand alone. `alternatives` are other readings of an unclear click.",
      who: user,
      body: jsonBody(SegmentBody),
      answers: {
        200: json(
          "the best mask",
          z.object({
            mask: ClickedMask,
            alternatives: z.array(ClickedMask),
            segmenter: z.string(),
          }),
        ),
      },
      errors: ["not_found", "state_conflict", "prompt_unknown", "task_failed", "no_node"],
    },
    async (context) => {
      const parts = context.var.service;
      const body = context.req.valid("json");
      if (body.points.length === 0 && !body.bbox) {
        throw new Failure("invalid_request", "points: at least one point, or a bbox");
      }
      const caller = callerOf(context);
      const { video, frames } = await framesOf(parts, workspacesOf(caller), [body.frame_id]);
      allow(caller, video.workspaceId, "annotator");
      const named = { video, frame: frames[0] as number };
      const { masks, segmenter } = await segmentFrame(parts, named, body);
      const told = masks.map(({ score, ...mask }) => ({ ...mask, confidence: score }));
      const [mask, ...alternatives] = told;
      if (!mask) throw new Failure("task_failed", "the segmenter found no object there");
      return context.json({ mask, alternatives, segmenter }, 200);
    },
  ),
];
