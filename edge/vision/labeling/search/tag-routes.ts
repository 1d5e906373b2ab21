// Tags of frames over HTTP: put on frames, taken off them, and listed.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { ProjectTagPage } from "../../../../shared/wire/frame-search.ts";
import { FrameId } from "../../../../shared/wire/vision.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { allow, callerOf, workspacesOf } from "../../auth/scope.ts";
import { pageQuery } from "../../base/api.ts";
import { foldedName } from "../../base/lists.ts";
import { type Route, route } from "../../base/route.ts";
import { findProjectFor } from "../../media/projects/projects.ts";
import { framesOfVideos } from "../jobs/frame-references.ts";
import { changeTags, listTags, Tags } from "./tags.ts";

/** Frames that one request tags. */
const FRAMES_MAX = 1_000;
/** Tags of one page. */
const PAGE_MAX = 1_000;
const tag = "Review";

const TagBody = z
  .strictObject({
    frame_ids: z.array(FrameId).min(1).max(FRAMES_MAX),
    add: Tags.default([]),
    remove: Tags.default([]),
  })
  .refine(({ add, remove }) => add.length + remove.length > 0, "give add or remove");

/** Routes of tags. */
export const tagRoutes: readonly Route[] = [
  route(
    {
      call: "POST /frames/tags",
      operationId: "tagFrames",
      tag,
      summary: "Put tags on frames, or take them off",
      description:
        "Beyond the contract; for annotators. Frames of several videos may be named. A tag belongs to " +
        "the frame, whichever jobs label it, and stays when a job is deleted. Tags that differ only " +
        "in case are one tag, spelled as on the first frame of the workspace that got it. A frame has " +
        "at most 50 tags: where one would have more, nothing is changed.",
      who: user,
      body: jsonBody(TagBody),
      answers: {
        200: json("how many frames that changed", z.object({ changed: z.number().int() })),
      },
      errors: ["not_found", "state_conflict"],
    },
    async (context) => {
      const parts = context.var.service;
      const caller = callerOf(context);
      const { frame_ids: ids, add, remove } = context.req.valid("json");
      const removed = new Set(remove.map(foldedName));
      const both = add.find((one) => removed.has(foldedName(one)));
      if (both !== undefined) {
        const detail = `${JSON.stringify(both)} is in \`add\` too; name it in one of them`;
        throw new Failure("invalid_request", `remove: ${detail}`);
      }
      const named = await framesOfVideos(parts, workspacesOf(caller), ids);
      const workspaces = new Set(named.map(({ video }) => video.workspaceId));
      for (const workspaceId of workspaces) allow(caller, workspaceId, "annotator");
      const frames = named.map(({ video: { workspaceId, videoId }, index }) => ({
        workspaceId,
        videoId,
        index,
      }));
      const change = { add, remove, actorId: caller.accountId };
      return context.json({ changed: await changeTags(parts.database, frames, change) }, 200);
    },
  ),
  route(
    {
      call: "GET /projects/{project_id}/tags",
      operationId: "listTags",
      tag,
      summary: "Tags of a project's frames, with the number of frames of each",
      description: "Beyond the contract. In the order of their letters.",
      who: user,
      params: z.object({ project_id: z.uuid() }),
      query: z.object({ ...pageQuery(PAGE_MAX) }),
      answers: { 200: json("a page of tags", ProjectTagPage) },
    },
    async (context) => {
      const parts = context.var.service;
      const { project_id } = context.req.valid("param");
      const project = await findProjectFor(parts, callerOf(context), project_id);
      const page = context.req.valid("query");
      return context.json(await listTags(parts.database, project, page), 200);
    },
  ),
];
