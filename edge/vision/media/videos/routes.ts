// Videos and their frames: read, delete, images.

import type { R2ObjectBody } from "@cloudflare/workers-types";
import { z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { frameForThumbnail } from "../../../../shared/detector/sampling.ts";
import { Failure } from "../../../../shared/errors.ts";
import { type Frame, FramePage, frameId, Video } from "../../../../shared/wire/vision.ts";
import { binary, headers } from "../../../http/description.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { allow, callerOf, workspacesOf } from "../../auth/scope.ts";
import { pageQuery } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { type Route, route } from "../../base/route.ts";
import { assertReady, frameImagePath, readPtsRange } from "./frames.ts";
import { deleteVideo, findVideo, videoRecord } from "./videos.ts";
import { frameImage, IMAGE_WIDTHS, PREPARED_MAX, prepareImages } from "./wanted-images.ts";

const tag = "Videos";
const FRAMES_MAX = 1_000;

const videoId = z.object({ video_id: z.uuid() });

const WIDTH = "pixels of the image's width; the frame's own where it has no more, or when omitted";
const widthQuery = z.object({
  width: z
    .enum(IMAGE_WIDTHS.map(String) as [string, ...string[]])
    .optional()
    .meta({ description: WIDTH, example: "320" }),
});
/** The width that a query asks for. */
const widthOf = ({ width }: z.infer<typeof widthQuery>) =>
  width === undefined ? undefined : Number(width);

const index = () => z.int().min(0).max(999_999_999);
const PreparedFrames = z
  .strictObject({
    from: index().default(0).meta({ description: "index of the first frame", example: 0 }),
    to: index().meta({ description: "index that the frames end before" }),
    step: index().min(1).default(1).meta({ description: "1: every frame; 2: every other one" }),
    width: z.literal(IMAGE_WIDTHS).optional().meta({ description: WIDTH }),
  })
  .refine(({ from, to }) => to > from, { path: ["to"], message: "must be greater than from" })
  .refine(({ from, to, step }) => Math.ceil((to - from) / step) <= PREPARED_MAX, {
    path: ["step"],
    message: `must be larger: at most ${PREPARED_MAX} frames are prepared at once`,
  });
const jpeg = (description: string) => ({
  200: { description, headers: headers("ETag"), content: { "image/jpeg": binary } },
  304: { description: "the image that If-None-Match names", headers: headers("ETag") },
});

type RouteContext = Pick<Context, "get"> & { var: { service: Parts } };

/** The video of the path within the caller's workspaces. */
const videoOf = (context: RouteContext, id: string) =>
  findVideo(context.var.service.database, workspacesOf(callerOf(context)), id);

/** An image never changes under its address; only its owner's browser may keep it. */
function sendImage(context: Context, object: R2ObjectBody): Response {
  const named = {
    ETag: object.httpEtag,
    "Cache-Control": "private, max-age=31536000, immutable",
    "Content-Type": "image/jpeg",
  };
  if (context.req.header("If-None-Match")?.includes(object.httpEtag)) {
    return new Response(null, { status: 304, headers: named });
  }
  // The platform types its streams apart from the DOM's.
  const body = object.body as unknown as ReadableStream<Uint8Array>;
  return new Response(body, {
    headers: { ...named, "Content-Length": String(object.size) },
  });
}

/** Routes of videos and their frames. */
export const videoRoutes: readonly Route[] = [
  route(
    {
      call: "GET /videos/{video_id}",
      operationId: "readVideo",
      tag,
      summary: "One video",
      description: "Beyond the contract. `status` is `probing` until a GPU node has read it.",
      who: user,
      params: videoId,
      answers: { 200: json("the video", Video) },
    },
    async (context) => {
      const row = await videoOf(context, context.req.valid("param").video_id);
      return context.json(videoRecord(row), 200);
    },
  ),
  route(
    {
      call: "DELETE /videos/{video_id}",
      operationId: "deleteVideo",
      tag,
      summary: "Delete a video and its images",
      description:
        "Beyond the contract. Needs the role engineer. 409 while a labeling job uses it. The file of a " +
        "linked video stays.",
      who: user,
      params: videoId,
      answers: { 204: { description: "deleted" } },
      errors: ["state_conflict"],
    },
    async (context) => {
      const row = await videoOf(context, context.req.valid("param").video_id);
      allow(callerOf(context), row.workspaceId, "engineer");
      await deleteVideo(context.var.service, row);
      return context.body(null, 204);
    },
  ),
  route(
    {
      call: "GET /videos/{video_id}/frames",
      operationId: "listFrames",
      tag,
      summary: "Frames of a video with their true times",
      description:
        "Beyond the contract. In display order. `pts_seconds` is as decoded: frames of a video of " +
        "variable rate are not evenly spaced.",
      who: user,
      params: videoId,
      query: z.object({
        ...pageQuery(FRAMES_MAX),
      }),
      answers: { 200: json("a page of frames", FramePage) },
      errors: ["state_conflict"],
    },
    async (context) => {
      const row = await videoOf(context, context.req.valid("param").video_id);
      const { offset, limit } = context.req.valid("query");
      assertReady(row);
      const pts = await readPtsRange(context.var.service, row, { offset, limit });
      const [numerator, denominator] = row.timeBase;
      const items = Array.from(pts, (ticks, position): Frame => {
        const index = offset + position;
        return {
          frame_id: frameId(row.videoId, index),
          video_id: row.videoId,
          index,
          pts_seconds: (ticks * numerator) / denominator,
          image_url: frameImagePath(row.videoId, index),
        };
      });
      return context.json({ items, total: row.frameCount, offset, limit }, 200);
    },
  ),
  route(
    {
      call: "GET /videos/{video_id}/frames/{image}",
      operationId: "readFrame",
      tag,
      summary: "A frame as JPEG, such as `frames/137.jpg`",
      description:
        "Beyond the contract. A GPU node decodes it for the first who asks: 503 while none is there.",
      who: user,
      query: widthQuery,
      params: videoId.extend({
        image: z
          .string()
          .regex(/^\d{1,9}\.jpg$/, "must be <index>.jpg")
          .meta({ example: "0.jpg" }),
      }),
      answers: { ...jpeg("the frame") },
      errors: ["state_conflict", "task_failed", "no_node"],
      never: ["store_unavailable"],
    },
    async (context) => {
      const { video_id, image } = context.req.valid("param");
      const row = await videoOf(context, video_id);
      const object = await frameImage(context.var.service, row, {
        index: Number.parseInt(image, 10),
        width: widthOf(context.req.valid("query")),
      });
      // A route's declaration has no word for bytes.
      return sendImage(context, object) as never;
    },
  ),
  route(
    {
      call: "POST /videos/{video_id}/frames/prepare",
      operationId: "prepareFrames",
      tag,
      summary: "Have images of up to 64 frames made in one go",
      description:
        "Beyond the contract. For a contact sheet, or the frames around one: a GPU node makes the " +
        "images that lack in one pass over the video. The frames' own addresses give them, and wait " +
        "for this task where it is to make them.",
      who: user,
      params: videoId,
      body: jsonBody(PreparedFrames),
      answers: {
        202: json(
          "how many frames those are",
          z.object({
            frames: z.int().meta({ description: "frames of the range" }),
            ready: z.int().meta({ description: "those whose image is in the store" }),
            coming: z.int().meta({
              description: "those whose image is being made; 0 while no node is there",
            }),
          }),
        ),
      },
      errors: ["state_conflict"],
      never: ["forbidden"],
    },
    async (context) => {
      const row = await videoOf(context, context.req.valid("param").video_id);
      const range = context.req.valid("json");
      return context.json(await prepareImages(context.var.service, row, range), 202);
    },
  ),
  route(
    {
      call: "GET /videos/{video_id}/thumbnail.jpg",
      operationId: "readThumbnail",
      tag,
      summary: "A small image of a video",
      description:
        "Beyond the contract. 320 pixels on its longest side; of another `width` a GPU node makes it " +
        "for the first who asks.",
      who: user,
      params: videoId,
      query: widthQuery,
      answers: { ...jpeg("the thumbnail") },
      errors: ["state_conflict", "task_failed", "no_node"],
    },
    async (context) => {
      const row = await videoOf(context, context.req.valid("param").video_id);
      const width = widthOf(context.req.valid("query"));
      assertReady(row);
      if (width !== undefined) {
        const wanted = { index: frameForThumbnail(row.frameCount), width };
        // A route's declaration has no word for bytes.
        return sendImage(context, await frameImage(context.var.service, row, wanted)) as never;
      }
      const object = row.thumbnailKey && (await context.var.service.bucket.get(row.thumbnailKey));
      if (!object) throw new Failure("not_found", "the video has no thumbnail");
      // A route's declaration has no word for bytes.
      return sendImage(context, object) as never;
    },
  ),
];
