// Comments on annotations over HTTP.

import { z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { Failure } from "../../../../shared/errors.ts";
import { flag } from "../../../../shared/scalars.ts";
import {
  AnnotationComment,
  AnnotationCommentPage,
  COMMENT_CHARACTERS_MAX,
} from "../../../../shared/wire/collaboration.ts";
import { FrameId, parseFrameId } from "../../../../shared/wire/vision.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { name, trimmed } from "../../../http/texts.ts";
import { user } from "../../auth/audience.ts";
import { allow, callerOf, workspacesOf } from "../../auth/scope.ts";
import { pageQuery } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { type Route, route } from "../../base/route.ts";
import { jobFor, jobId } from "../jobs/access.ts";
import { annotationFor, annotationId } from "../review/annotation-access.ts";
import { addComment, deleteComment, editComment, findComment, listComments } from "./comments.ts";

const PAGE_MAX = 500;
const tag = "Review";

const commentId = z.object({ comment_id: z.uuid() });
const CommentText = z
  .string()
  .trim()
  .max(COMMENT_CHARACTERS_MAX)
  .pipe(name())
  .meta(trimmed(COMMENT_CHARACTERS_MAX));

/** The comment of a path, if the caller is at least an annotator in its workspace. */
async function commentFor(context: Pick<Context, "get"> & { var: { service: Parts } }, id: string) {
  const caller = callerOf(context);
  const found = await findComment(context.var.service.database, workspacesOf(caller), id);
  allow(caller, found.workspaceId, "annotator");
  return found;
}

/** Routes of comments. */
export const commentRoutes: readonly Route[] = [
  route(
    {
      call: "POST /annotations/{annotation_id}/comments",
      operationId: "addComment",
      tag,
      summary: "Comment on an annotation",
      description: "Beyond the contract; for annotators. Blanks around the text are removed.",
      who: user,
      params: annotationId,
      body: jsonBody(z.strictObject({ text: CommentText })),
      answers: { 201: json("the comment", AnnotationComment) },
    },
    async (context) => {
      const { database } = context.var.service;
      const caller = callerOf(context);
      const { annotation_id: id } = context.req.valid("param");
      await annotationFor(database, caller, id, "annotator");
      const { text } = context.req.valid("json");
      const comment = { annotationId: id, text, authorId: caller.accountId };
      return context.json(await addComment(database, comment), 201);
    },
  ),
  route(
    {
      call: "GET /jobs/{job_id}/comments",
      operationId: "listComments",
      tag,
      summary: "Comments on a job's annotations, oldest first",
      description:
        "Beyond the contract. Comments outlive their annotation; a copy of the job has none of them.",
      who: user,
      params: jobId,
      query: z.object({
        annotation_id: z.uuid().optional(),
        frame_id: FrameId.optional(),
        resolved: flag().optional().meta({ type: "boolean", description: "false: only open ones" }),
        ...pageQuery(PAGE_MAX),
      }),
      answers: { 200: json("a page of comments", AnnotationCommentPage) },
    },
    async (context) => {
      const { database } = context.var.service;
      const job = await jobFor(context, context.req.valid("param").job_id, "viewer");
      const { annotation_id, frame_id, resolved, offset, limit } = context.req.valid("query");
      const frame = frame_id === undefined ? undefined : parseFrameId(frame_id);
      if (frame === null) throw new Failure("invalid_request", "frame_id: is none");
      const filter = { annotationId: annotation_id, frame, resolved, offset, limit };
      const page = await listComments(database, job.id, filter);
      return context.json({ ...page, offset, limit }, 200);
    },
  ),
  route(
    {
      call: "PATCH /comments/{comment_id}",
      operationId: "editComment",
      tag,
      summary: "Edit a comment, resolve it, or open it again",
      description:
        "Beyond the contract; for annotators. Only its author changes the text of a comment.",
      who: user,
      params: commentId,
      body: jsonBody(
        z
          .strictObject({
            text: CommentText.optional(),
            resolved: z.boolean().optional().meta({ description: "false opens it again" }),
          })
          .meta({ minProperties: 1 }),
      ),
      answers: { 200: json("the comment", AnnotationComment) },
    },
    async (context) => {
      const { database } = context.var.service;
      const { comment_id: id } = context.req.valid("param");
      const { authorId } = await commentFor(context, id);
      const { accountId: actorId } = callerOf(context);
      const change = context.req.valid("json");
      if (change.text !== undefined && authorId !== actorId) {
        const detail = "text: only the comment's author changes it; add a comment of your own";
        throw new Failure("forbidden", detail);
      }
      return context.json(await editComment(database, id, { ...change, actorId }), 200);
    },
  ),
  route(
    {
      call: "DELETE /comments/{comment_id}",
      operationId: "deleteComment",
      tag,
      summary: "Delete a comment",
      description: "Beyond the contract; for annotators their own, for admins any.",
      who: user,
      params: commentId,
      answers: { 204: { description: "the comment is gone" } },
    },
    async (context) => {
      const { database } = context.var.service;
      const caller = callerOf(context);
      const { comment_id: id } = context.req.valid("param");
      const { authorId, workspaceId } = await commentFor(context, id);
      if (authorId !== caller.accountId) allow(caller, workspaceId, "admin");
      await deleteComment(database, id);
      return context.body(null, 204);
    },
  ),
];
