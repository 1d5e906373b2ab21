// Asking a segmenter while somebody waits: a preview, a mask from clicks.

import { createRoute, z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { Mask } from "../../../../shared/tasks/tasks.ts";
import { Annotation } from "../../../../shared/wire/labeling.ts";
import { frameId } from "../../../../shared/wire/vision.ts";
import { type App, errorResponses, json, jsonBody } from "../../../http/app.ts";
import { allow, callerOf, guard, workspacesOf } from "../../auth/scope.ts";
import { API, bearer } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { EXEMPLARS_BYTES_MAX, PREVIEW_FRAMES_MAX, PreviewBody, SegmentBody } from "./bodies.ts";
import { framesOf } from "./frame-references.ts";
import { previewFrames, segmentFrame } from "./previews.ts";

const tags = ["Labeling"];
const errors = errorResponses(
  "bad_body",
  "unauthorized",
  "forbidden",
  "not_found",
  "state_conflict",
  "prompt_unknown",
  "invalid_request",
  "task_failed",
  "no_node",
  "store_unavailable",
);
const Preview = z.object({
  previews: z.array(
    z.object({
      frame_id: z.string(),
      image: z.string().meta({ description: "base64 JPEG with what was found drawn on it" }),
      annotations: z.array(Annotation.pick({ class: true, bbox: true, confidence: true })),
    }),
  ),
  segmenter: z.string(),
  warnings: z.array(z.string()),
});

/** Registers the routes at which a segmenter is asked while somebody waits. */
export function addPreviewRoutes(app: App<Parts>) {
  guard(app, "/label/*");
  addPreview(app);
  addSegment(app);
}

function addPreview(app: App<Parts>) {
  const preview = createRoute({
    method: "post",
    path: `${API}/label/preview`,
    operationId: "previewLabels",
    tags,
    summary: "What a segmenter finds on a few frames, before a job",
    description: `For annotators. At most ${PREVIEW_FRAMES_MAX} frames of one video.`,
    security: bearer,
    request: jsonBody(PreviewBody, { bytesMax: EXEMPLARS_BYTES_MAX }),
    responses: { 200: json("frames with what was found", Preview), ...errors },
  });
  app.openapi(preview, async (context) => {
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
  });
}

function addSegment(app: App<Parts>) {
  const segment = createRoute({
    method: "post",
    path: `${API}/label/segment-points`,
    operationId: "segmentPoints",
    tags,
    summary: "A mask from clicks on a frame",
    description:
      "For annotators. Points with label 1 are on the object, with 0 off it; a box may go with them " +
      "or stand alone. `alternatives` are other readings of an unclear click.",
    security: bearer,
    request: jsonBody(SegmentBody),
    responses: {
      200: json(
        "the best mask",
        z.object({ mask: Mask, alternatives: z.array(Mask), segmenter: z.string() }),
      ),
      ...errors,
    },
  });
  app.openapi(segment, async (context) => {
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
    const [mask, ...alternatives] = masks;
    if (!mask) throw new Failure("task_failed", "the segmenter found no object there");
    return context.json({ mask, alternatives, segmenter }, 200);
  });
}
