// Projects: list, make, read, edit, delete, and their videos.

import { z } from "@hono/zod-openapi";
import { Project, Video } from "../../../../shared/wire/vision.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { text, title } from "../../../http/texts.ts";
import { user } from "../../auth/audience.ts";
import { answerOnce, IdempotencyKey } from "../../auth/idempotency.ts";
import { callerOf, workspacesFor, workspacesOf } from "../../auth/scope.ts";
import { listAnswer, listQuery, statusQuery, tellTotal } from "../../base/lists.ts";
import { type Route, route } from "../../base/route.ts";
import { listVideos, videoRecord } from "../videos/videos.ts";
import {
  createProject,
  deleteProject,
  findProjectFor,
  listProjects,
  projectRecord,
  updateProject,
} from "./projects.ts";

const tag = "Projects";
const projectId = { params: z.object({ project_id: z.uuid() }) };
const projectDescription = text().max(10_000);

/** Routes of projects. */
export const projectRoutes: readonly Route[] = [
  route(
    {
      call: "GET /projects",
      operationId: "listProjects",
      tag,
      summary: "Projects in your workspaces, newest first",
      who: user,
      query: z.object(listQuery),
      answers: { 200: listAnswer("projects", Project) },
    },
    async (context) => {
      const query = context.req.valid("query");
      const page = await listProjects(context.var.service, workspacesOf(callerOf(context)), query);
      tellTotal(context, page);
      return context.json(page.rows.map(projectRecord), 200);
    },
  ),
  route(
    {
      call: "POST /projects",
      operationId: "makeProject",
      tag,
      summary: "Make a project",
      description:
        "Needs the role engineer. Without `workspace_id`, in the first workspace where you have it.",
      who: user,
      headers: IdempotencyKey,
      body: jsonBody(
        z.strictObject({
          name: title(),
          description: projectDescription.default(""),
          workspace_id: z.uuid().optional(),
        }),
      ),
      answers: { 201: json("the project", Project) },
      errors: ["not_found", "idempotency_conflict", "state_conflict"],
    },
    async (context) => {
      const caller = callerOf(context);
      const parts = context.var.service;
      const body = context.req.valid("json");
      const [workspaceId = ""] = workspacesFor(caller, body.workspace_id, "engineer");
      const key = context.req.valid("header")["idempotency-key"];
      const answer = await answerOnce(
        parts,
        { workspaceId, route: "POST /projects", key, body },
        async () => {
          const { name, description } = body;
          const createdBy = caller.accountId;
          const row = await createProject(parts, { workspaceId, name, description, createdBy });
          return { status: 201, body: projectRecord(row) };
        },
      );
      return context.json(answer.body, 201);
    },
  ),
  route(
    {
      call: "GET /projects/{project_id}",
      operationId: "readProject",
      tag,
      summary: "One project",
      description: "Beyond the contract.",
      who: user,
      ...projectId,
      answers: { 200: json("the project", Project) },
    },
    async (context) => {
      const { project_id } = context.req.valid("param");
      const row = await findProjectFor(context.var.service, callerOf(context), project_id);
      return context.json(projectRecord(row), 200);
    },
  ),
  route(
    {
      call: "PATCH /projects/{project_id}",
      operationId: "editProject",
      tag,
      summary: "Rename or describe a project",
      description: "Beyond the contract. Needs the role engineer.",
      who: user,
      ...projectId,
      body: jsonBody(
        z.strictObject({
          name: title().optional(),
          description: projectDescription.optional(),
        }),
      ),
      answers: { 200: json("the project", Project) },
    },
    async (context) => {
      const parts = context.var.service;
      const { project_id } = context.req.valid("param");
      await findProjectFor(parts, callerOf(context), project_id, "engineer");
      const row = await updateProject(parts, project_id, context.req.valid("json"));
      return context.json(projectRecord(row), 200);
    },
  ),
  route(
    {
      call: "DELETE /projects/{project_id}",
      operationId: "deleteProject",
      tag,
      summary: "Delete an empty project",
      description: "Beyond the contract. Needs the role engineer. 409 while it holds anything.",
      who: user,
      ...projectId,
      answers: { 204: { description: "deleted" } },
      errors: ["state_conflict"],
    },
    async (context) => {
      const parts = context.var.service;
      const { project_id } = context.req.valid("param");
      await findProjectFor(parts, callerOf(context), project_id, "engineer");
      await deleteProject(parts, project_id);
      return context.body(null, 204);
    },
  ),
  route(
    {
      call: "GET /projects/{project_id}/videos",
      operationId: "listVideos",
      tag,
      summary: "All videos of a project, oldest first",
      who: user,
      ...projectId,
      query: z.object({ ...listQuery, status: statusQuery(Video.shape.status.options) }),
      answers: { 200: listAnswer("videos", Video) },
    },
    async (context) => {
      const parts = context.var.service;
      const { project_id } = context.req.valid("param");
      const { projectId } = await findProjectFor(parts, callerOf(context), project_id);
      const page = await listVideos(parts.database, projectId, context.req.valid("query"));
      tellTotal(context, page);
      return context.json(page.rows.map(videoRecord), 200);
    },
  ),
];
