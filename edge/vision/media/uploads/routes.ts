// Files through the Worker: a video, several, still images; and videos that are in the store
// already. Bodies are streamed, so their size costs no memory.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { whole } from "../../../../shared/scalars.ts";
import { type RefusedFile, Video, VideoBatch } from "../../../../shared/wire/vision.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { name, text } from "../../../http/texts.ts";
import { user } from "../../auth/audience.ts";
import { answerOnce, IdempotencyKey } from "../../auth/idempotency.ts";
import { callerOf, workspaceFor } from "../../auth/scope.ts";
import { toItsEnd } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { type Route, route } from "../../base/route.ts";
import { findProjectFor } from "../projects/projects.ts";
import { type VideoRow, videoRecord } from "../videos/videos.ts";
import { FILENAME_CHARACTERS_MAX, FORM_FILES_MAX, plainName } from "./form.ts";
import { linkPrefixesOf, linkVideo, listLinkable } from "./link.ts";
import { IMAGE, IMAGE_BYTES_MAX, VIDEO } from "./media-types.ts";
import { type FormRules, receiveMany, receiveOne } from "./receive.ts";

const tag = "Uploads";
const LINKED_MAX = 100;
const LINKABLE_MAX = 1_000;
/** Characters of a key in a request: more than a key may have, which is told by its own code. */
const KEY_CHARACTERS_MAX = 4_096;

const file = { type: "string", format: "binary" } as const;
const files = { type: "array", items: file, minItems: 1, maxItems: FORM_FILES_MAX } as const;

/**
 * The form is read by hand. Described without a zod schema: one would have the chassis take the
 * whole body into memory to validate it.
 */
const multipart = (fields: Record<string, typeof file | typeof files>) => ({
  required: true,
  content: {
    "multipart/form-data": {
      schema: {
        type: "object" as const,
        properties: { project_id: { type: "string" as const, format: "uuid" }, ...fields },
        required: ["project_id", ...Object.keys(fields)],
      },
    },
  },
});

const oneVideo = ({ limits }: Parts): FormRules => ({
  kind: VIDEO,
  bytesMax: limits.uploadBytesMax,
  fields: ["file"],
  single: true,
});

const manyVideos = (parts: Parts): FormRules => ({
  ...oneVideo(parts),
  fields: ["files", "files[]", "file"],
  single: false,
});

const batchResponses = {
  201: json("the new videos, and the files that were not taken", VideoBatch),
};

const LinkableObject = z
  .object({
    storage_key: z.string(),
    filename: z.string().meta({ description: "the last part of the key" }),
    bytes: z.number().int(),
    uploaded_at: z.iso.datetime().meta({ description: "when it was last written" }),
  })
  .meta({ id: "LinkableObject" });

/** Routes of files through the Worker, and of links. */
export const uploadRoutes: readonly Route[] = [
  route(
    {
      call: "POST /upload",
      operationId: "uploadVideo",
      tag,
      summary: "Upload a video",
      description:
        "multipart/form-data with `project_id` and `file`, in any order. Needs the role engineer. MP4, " +
        "MOV, MKV, WebM or AVI, told by its first bytes. Where a body may be no larger than about " +
        "100 MB, and to resume after a break, use `POST /uploads`.",
      who: user,
      body: multipart({ file }),
      answers: { 201: json("the new video, `probing`", Video) },
      errors: ["bad_body", "not_found", "file_too_large", "quota_exceeded", "unsupported_media"],
    },
    async (context) => {
      const parts = context.var.service;
      const rules = oneVideo(parts);
      const work = receiveOne(parts, callerOf(context), context.req.raw, rules);
      return context.json(videoRecord(await toItsEnd(context, work)), 201);
    },
  ),
  route(
    {
      call: "POST /upload/batch",
      operationId: "uploadVideos",
      tag,
      summary: "Upload several videos",
      description:
        "As `POST /upload`, with `files` several times. Needs the role engineer. Good files are kept and bad ones listed; 422 " +
        "when none can be taken.",
      who: user,
      body: multipart({ files }),
      answers: batchResponses,
      errors: ["bad_body", "not_found"],
    },
    async (context) => {
      const parts = context.var.service;
      const rules = manyVideos(parts);
      const work = receiveMany(parts, callerOf(context), context.req.raw, rules);
      return context.json(await toItsEnd(context, work), 201);
    },
  ),
  route(
    {
      call: "POST /upload/images",
      operationId: "uploadImages",
      tag,
      summary: "Upload still images; each becomes a video of one frame",
      description:
        "multipart/form-data with `project_id` and `files`. Needs the role engineer. JPEG, PNG or WebP, at most 64 MiB and 100 " +
        "megapixels each. Good files are kept and bad ones listed; 422 when none can be taken.",
      who: user,
      body: multipart({ files }),
      answers: batchResponses,
      errors: ["bad_body", "not_found"],
    },
    async (context) => {
      const parts = context.var.service;
      const work = receiveMany(parts, callerOf(context), context.req.raw, {
        kind: IMAGE,
        bytesMax: Math.min(IMAGE_BYTES_MAX, parts.limits.uploadBytesMax),
        fields: ["files", "files[]", "file", "images"],
        single: false,
      });
      return context.json(await toItsEnd(context, work), 201);
    },
  ),
  route(
    {
      call: "GET /link-videos",
      operationId: "listLinkableObjects",
      tag,
      summary: "Objects of the store that may be linked as videos",
      description:
        "Beyond the contract. Needs the role engineer. Objects under the workspace's `prefixes`, by key: " +
        "its own, `ws/<workspace_id>/`, without the folders that the service itself writes there, and " +
        "those that the operator maps to it (`LINK_PREFIXES`). Each can be sent to `POST /link-videos` " +
        "as it is, which looks whether it is a video.",
      who: user,
      query: z.object({
        workspace_id: z.uuid().optional().meta({
          description: "whose; required where you are an engineer of several workspaces",
        }),
        prefix: text().max(KEY_CHARACTERS_MAX).default("").meta({
          description: "only objects whose keys begin with it",
          example: "footage/north/",
        }),
        cursor: name().max(KEY_CHARACTERS_MAX).optional().meta({
          description: "`next` of the page before",
          example: "footage/north/crossing.mp4",
        }),
        limit: whole(1, LINKABLE_MAX).default(100),
      }),
      answers: {
        200: json(
          "a page of objects",
          z.object({
            prefixes: z.array(z.string()).meta({
              description: "prefixes of the keys that the workspace may link",
            }),
            items: z.array(LinkableObject),
            next: z.string().nullable().meta({
              description: "`cursor` of the page that follows; null: there is none",
            }),
          }),
        ),
      },
      errors: ["forbidden", "not_found"],
    },
    async (context) => {
      const parts = context.var.service;
      const { workspace_id, prefix, cursor: after, limit } = context.req.valid("query");
      const workspaceId = workspaceFor(callerOf(context), workspace_id, "engineer");
      const prefixes = linkPrefixesOf(parts, workspaceId);
      const page = await listLinkable(parts, workspaceId, { prefix, after, limit });
      return context.json({ prefixes, ...page }, 200);
    },
  ),
  route(
    {
      call: "POST /link-videos",
      operationId: "linkVideos",
      tag,
      summary: "Register videos that are in the object store already",
      description:
        "Needs the role engineer. `GET /link-videos` lists the objects that may be linked: those under " +
        "the workspace's own prefix, `ws/<workspace_id>/`, and under prefixes that the operator maps to " +
        "it. Nothing is copied. Good objects are kept and bad ones listed; when none can be taken, the " +
        "first one's error is the answer.",
      who: user,
      headers: IdempotencyKey,
      body: jsonBody(
        z.strictObject({
          project_id: z.uuid(),
          objects: z
            .array(
              z.object({
                storage_key: z.string().max(KEY_CHARACTERS_MAX),
                filename: z.string().max(FILENAME_CHARACTERS_MAX),
              }),
            )
            .min(1)
            .max(LINKED_MAX),
        }),
      ),
      // Objects may be sent as they are listed, with their sizes.
      open: ["body.objects[]"],
      answers: { 201: json("the new videos, and the objects that were not taken", VideoBatch) },
      errors: [
        "not_found",
        "idempotency_conflict",
        "file_too_large",
        "quota_exceeded",
        "unsupported_media",
        "storage_key_refused",
      ],
    },
    async (context) => {
      const parts = context.var.service;
      const caller = callerOf(context);
      const body = context.req.valid("json");
      const project = await findProjectFor(parts, caller, body.project_id, "engineer");
      const once = {
        workspaceId: project.workspaceId,
        route: "POST /link-videos",
        body,
        key: context.req.valid("header")["idempotency-key"],
      };
      const answer = await answerOnce(parts, once, async () => {
        const linked: VideoRow[] = [];
        const failures: Failure[] = [];
        const failed: RefusedFile[] = [];
        for (const object of body.objects) {
          try {
            linked.push(await linkVideo(parts, caller, project, object));
          } catch (thrown) {
            if (!(thrown instanceof Failure) || thrown.status >= 500) throw thrown;
            failures.push(thrown);
            const filename = plainName(object.filename);
            failed.push({ filename, code: thrown.code, detail: thrown.message });
          }
        }
        if (linked.length === 0 && failures[0]) {
          const { code, message, data } = failures[0];
          throw new Failure(code, message, { data: { ...data, failed } });
        }
        return { status: 201, body: { videos: linked.map(videoRecord), failed } };
      });
      return context.json(answer.body, 201);
    },
  ),
];
