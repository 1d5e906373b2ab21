// Search of a project's frames over HTTP.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { flag, whole } from "../../../../shared/scalars.ts";
import { FoundFramePage } from "../../../../shared/wire/frame-search.ts";
import { json } from "../../../http/route.ts";
import { title } from "../../../http/texts.ts";
import { user } from "../../auth/audience.ts";
import { callerOf } from "../../auth/scope.ts";
import { type Route, route } from "../../base/route.ts";
import { findProjectFor } from "../../media/projects/projects.ts";
import { findJob } from "../jobs/jobs.ts";
import { acceptedOf, Filter } from "../review/filters.ts";
import { searchFrames } from "./frame-search.ts";
import { TagList, tagKeys } from "./tags.ts";

const PAGE = 100;
const PAGE_MAX = 500;

const Query = z.object({
  class_name: Filter.shape.class_name,
  accepted: Filter.shape.accepted,
  min_confidence: Filter.shape.min_confidence.meta({
    description: "at least this confidence; a job's threshold hides what is below it all the same",
  }),
  max_confidence: Filter.shape.max_confidence,
  tag: TagList.optional(),
  name: title()
    .optional()
    .meta({ description: "part of the name of the file, in letters of either case" }),
  job_id: z.uuid().optional().meta({ description: "only frames and annotations of this job" }),
  annotated: flag().optional().meta({
    type: "boolean",
    description: "true: only frames with annotations; false: only those without",
  }),
  cursor: z
    .string()
    .max(500)
    .optional()
    .meta({ description: "`next` of the page before, of the same search" }),
  limit: whole(1, PAGE_MAX).default(PAGE),
});

/** The route of the search. */
export const searchRoutes: readonly Route[] = [
  route(
    {
      call: "GET /projects/{project_id}/frames",
      operationId: "searchFrames",
      tag: "Review",
      summary: "Frames of a project by class, review, confidence, tag and name",
      description:
        "Beyond the contract. Newest video first, then by frame. Searched are frames that jobs label " +
        "or people added to them, frames with tags, and images. `class_name`, `accepted` and the " +
        "confidences hold for one annotation, which its job's threshold shows. A class is found in " +
        "letters of either case.",
      who: user,
      params: z.object({ project_id: z.uuid() }),
      query: Query,
      answers: { 200: json("a page of frames", FoundFramePage) },
    },
    async (context) => {
      const { database } = context.var.service;
      const { project_id } = context.req.valid("param");
      const project = await findProjectFor(context.var.service, callerOf(context), project_id);
      const { projectId, workspaceId } = project;
      const query = context.req.valid("query");
      const { job_id: jobId } = query;
      const job = jobId === undefined ? undefined : await findJob(database, [workspaceId], jobId);
      if (job && job.projectId !== projectId) {
        throw new Failure("not_found", "job_id: the project has no such job");
      }
      const search = {
        projectId,
        workspaceId,
        job,
        className: query.class_name,
        accepted: acceptedOf(query.accepted),
        confidenceMin: query.min_confidence,
        confidenceMax: query.max_confidence,
        annotated: query.annotated,
        tagKeys: tagKeys(query.tag),
        name: query.name,
      };
      const { cursor, limit } = query;
      return context.json(await searchFrames(database, search, { cursor, limit }), 200);
    },
  ),
];
