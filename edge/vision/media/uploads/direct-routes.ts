// Direct uploads: parts go straight into the object store, at signed addresses.

import { z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { Video } from "../../../../shared/wire/vision.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { name } from "../../../http/texts.ts";
import { user } from "../../auth/audience.ts";
import { answerOnce, IdempotencyKey } from "../../auth/idempotency.ts";
import { allow, callerOf, workspacesOf } from "../../auth/scope.ts";
import type { Parts } from "../../base/parts.ts";
import { type Route, route } from "../../base/route.ts";
import { presignPart } from "../../tasks/objects.ts";
import { findProjectFor } from "../projects/projects.ts";
import { videoRecord } from "../videos/videos.ts";
import { FILENAME_CHARACTERS_MAX, relativeName } from "./form.ts";
import {
  abortUpload,
  beginUpload,
  completeArchive,
  completeVideo,
  findUpload,
  partCount,
  rememberParts,
  type UploadRow,
} from "./uploads.ts";

const tag = "Uploads";

/** Addresses signed in one answer; the sender asks for more when these are used. */
const SIGNED_MAX = 200;
/** What S3 and R2 hold as one object, at most; what a service takes is in its configuration. */
const OBJECT_BYTES_MAX = 5 * 1024 ** 4;

const NamedPart = z.strictObject({
  part_number: z.number().int().min(1).max(10_000),
  etag: z
    .string()
    .regex(/^[\x21-\x7e]{1,500}$/, "must be an ETag")
    .meta({ description: "as the store answered it to the PUT of the part" }),
});

const Kind = z.enum(["video", "archive"]).meta({
  description: "what it becomes: a video, or a zip for `POST /import/archive`",
});

const Upload = z
  .object({
    upload_id: z.uuid(),
    project_id: z.uuid(),
    kind: Kind,
    filename: z.string(),
    bytes: z.number().int(),
    status: z.enum(["open", "completed", "aborted"]),
    part_bytes: z.number().int().meta({ description: "size of each part but the last" }),
    part_count: z.number().int(),
    parts: z.array(NamedPart).meta({ description: "those that have arrived, as told" }),
    urls: z.array(z.object({ part_number: z.number().int(), url: z.string() })).meta({
      description:
        `where to PUT the next missing parts, at most ${SIGNED_MAX}; for an hour, each for exactly ` +
        "as many bytes as the part has",
    }),
    video_id: z.uuid().nullable(),
    expires_at: z.iso.datetime(),
  })
  .meta({ id: "Upload" });

const uploadId = { params: z.object({ upload_id: z.uuid() }) };
async function uploadRecord(parts: Parts, row: UploadRow) {
  const status = row.aborted ? "aborted" : row.completed ? "completed" : "open";
  const missing: number[] = [];
  for (let number = 1; number <= partCount(row) && missing.length < SIGNED_MAX; number += 1) {
    if (status === "open" && row.parts[number] === undefined) missing.push(number);
  }
  const urls = missing.map(async (number) => ({
    part_number: number,
    url: await presignPart(parts, row.storageKey, {
      uploadId: row.multipartId,
      partNumber: number,
      bytes: Math.min(row.partBytes, row.bytes - (number - 1) * row.partBytes),
    }),
  }));
  return {
    upload_id: row.uploadId,
    project_id: row.projectId,
    kind: row.kind,
    filename: row.filename,
    bytes: row.bytes,
    status,
    part_bytes: row.partBytes,
    part_count: partCount(row),
    parts: Object.entries(row.parts).map(([number, etag]) => ({
      part_number: Number(number),
      etag,
    })),
    urls: await Promise.all(urls),
    video_id: row.videoId,
    expires_at: row.expiresAt,
  } satisfies z.infer<typeof Upload>;
}

/** An upload that the caller may go on with. */
async function uploadOf(
  context: Pick<Context, "get"> & { var: { service: Parts } },
  id: string,
): Promise<UploadRow> {
  const caller = callerOf(context);
  const row = await findUpload(context.var.service, workspacesOf(caller), id);
  allow(caller, row.workspaceId, "engineer");
  return row;
}

/** Routes of direct uploads. */
export const directRoutes: readonly Route[] = [
  route(
    {
      call: "POST /uploads",
      operationId: "beginUpload",
      tag,
      summary: "Begin a direct upload",
      description:
        "Beyond the contract. Needs the role engineer. PUT each part to its address, tell the ETag it " +
        "answers, then complete. An upload that is not completed is dropped after 7 days.",
      who: user,
      headers: IdempotencyKey,
      body: jsonBody(
        z.strictObject({
          project_id: z.uuid(),
          kind: Kind.default("video"),
          filename: name().max(FILENAME_CHARACTERS_MAX),
          bytes: z.int().min(1).max(OBJECT_BYTES_MAX),
        }),
      ),
      answers: { 201: json("the upload, with addresses for its first parts", Upload) },
      errors: ["not_found", "idempotency_conflict", "file_too_large", "quota_exceeded"],
    },
    async (context) => {
      const parts = context.var.service;
      const caller = callerOf(context);
      const body = context.req.valid("json");
      const project = await findProjectFor(parts, caller, body.project_id, "engineer");
      const once = {
        workspaceId: project.workspaceId,
        route: "POST /uploads",
        body,
        key: context.req.valid("header")["idempotency-key"],
      };
      const answer = await answerOnce(parts, once, async () => {
        const filename = relativeName(body.filename);
        const { kind, bytes } = body;
        const upload = { kind, filename, bytes, createdBy: caller.accountId };
        return { status: 201, body: (await beginUpload(parts, project, upload)).uploadId };
      });
      // Its addresses are made anew: none is kept, and those of the first answer may be over.
      const row = await findUpload(parts, [project.workspaceId], answer.body);
      return context.json(await uploadRecord(parts, row), 201);
    },
  ),
  route(
    {
      call: "GET /uploads/{upload_id}",
      operationId: "readUpload",
      tag,
      summary: "What of an upload has arrived, and fresh addresses for what has not",
      description:
        "Beyond the contract. Needs the role engineer. This is how an upload goes on after a break.",
      who: user,
      ...uploadId,
      answers: { 200: json("the upload", Upload) },
      errors: ["forbidden"],
    },
    async (context) => {
      const parts = context.var.service;
      const row = await uploadOf(context, context.req.valid("param").upload_id);
      return context.json(await uploadRecord(parts, row), 200);
    },
  ),
  route(
    {
      call: "POST /uploads/{upload_id}/parts",
      operationId: "reportParts",
      tag,
      summary: "Tell which parts have arrived; fresh addresses for the next ones",
      description:
        "Beyond the contract. Needs the role engineer. What was told survives the sender: after a break, `GET` says where to go " +
        "on.",
      who: user,
      ...uploadId,
      body: jsonBody(z.strictObject({ parts: z.array(NamedPart).min(1).max(1_000) })),
      answers: { 200: json("the upload", Upload) },
      errors: ["state_conflict"],
    },
    async (context) => {
      const parts = context.var.service;
      const row = await uploadOf(context, context.req.valid("param").upload_id);
      const told = await rememberParts(parts, row, context.req.valid("json").parts);
      return context.json(await uploadRecord(parts, told), 200);
    },
  ),
  route(
    {
      call: "POST /uploads/{upload_id}/complete",
      operationId: "completeUpload",
      tag,
      summary: "Complete an upload whose parts have all arrived",
      description:
        "Beyond the contract. Needs the role engineer. `parts` may leave out what was told before. May be repeated: one video " +
        "comes of it. An archive waits for `POST /import/archive` until the upload expires. 409 while " +
        "parts are missing; 415, and the upload is dropped, when the file is of no type that is taken.",
      who: user,
      ...uploadId,
      body: jsonBody(z.strictObject({ parts: z.array(NamedPart).max(10_000).default([]) })),
      answers: {
        201: json("the new video, `probing`", Video),
        202: json("the upload of an archive, `completed`, which waits for its import", Upload),
      },
      errors: ["state_conflict", "unsupported_media"],
    },
    async (context) => {
      const parts = context.var.service;
      const row = await uploadOf(context, context.req.valid("param").upload_id);
      const { parts: named } = context.req.valid("json");
      if (row.kind === "video") {
        return context.json(videoRecord(await completeVideo(parts, row, named)), 201);
      }
      return context.json(await uploadRecord(parts, await completeArchive(parts, row, named)), 202);
    },
  ),
  route(
    {
      call: "DELETE /uploads/{upload_id}",
      operationId: "dropUpload",
      tag,
      summary: "Drop an upload and the parts that have arrived",
      description: "Beyond the contract. Needs the role engineer. 409 once it is a video.",
      who: user,
      ...uploadId,
      answers: { 204: { description: "dropped" } },
      errors: ["state_conflict"],
    },
    async (context) => {
      const row = await uploadOf(context, context.req.valid("param").upload_id);
      await abortUpload(context.var.service, row);
      return context.body(null, 204);
    },
  ),
];
