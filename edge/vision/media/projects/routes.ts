// Projects: list, make, read, edit, delete, and their videos.

import { createRoute, z } from "@hono/zod-openapi";
import { Project, Video } from "../../../../shared/wire/vision.ts";
import { type App, errorResponses, json, jsonBody, text, title } from "../../../http/app.ts";
import { answerOnce, IdempotencyKey } from "../../auth/idempotency.ts";
import { callerOf, guard, workspacesFor, workspacesOf } from "../../auth/scope.ts";
import { API, bearer } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { listVideos, videoRecord } from "../videos/videos.ts";
import {
  createProject,
  deleteProject,
  findProjectFor,
  listProjects,
  projectRecord,
  updateProject,
} from "./projects.ts";

const tags = ["Projects"];
const projectId = { params: z.object({ project_id: z.uuid() }) };
const projectDescription = text().max(10_000);

const errors = errorResponses("unauthorized", "not_found", "invalid_request", "store_unavailable");
const writeErrors = errorResponses(
  ...(["bad_body", "unauthorized", "forbidden", "not_found", "invalid_request"] as const),
  "store_unavailable",
);

/** Registers the routes of projects. */
export function addProjectRoutes(app: App<Parts>) {
  guard(app, "/projects/*");
  addList(app);
  addCreate(app);
  addOne(app);
  addEdits(app);
  addVideos(app);
}

function addList(app: App<Parts>) {
  const route = createRoute({
    method: "get",
    path: `${API}/projects`,
    operationId: "listProjects",
    tags,
    summary: "Projects in your workspaces, newest first",
    security: bearer,
    responses: {
      200: json("projects", z.array(Project)),
      ...errorResponses("unauthorized", "store_unavailable"),
    },
  });
  app.openapi(route, async (context) => {
    const rows = await listProjects(context.var.service, workspacesOf(callerOf(context)));
    return context.json(rows.map(projectRecord), 200);
  });
}

function addCreate(app: App<Parts>) {
  const route = createRoute({
    method: "post",
    path: `${API}/projects`,
    operationId: "makeProject",
    tags,
    summary: "Make a project",
    description:
      "Needs the role engineer. Without `workspace_id`, in the first workspace where you have it.",
    security: bearer,
    request: {
      headers: IdempotencyKey,
      ...jsonBody(
        z.strictObject({
          name: title(),
          description: projectDescription.default(""),
          workspace_id: z.uuid().optional(),
        }),
      ),
    },
    responses: {
      201: json("the project", Project),
      ...writeErrors,
      ...errorResponses("idempotency_conflict", "state_conflict"),
    },
  });
  app.openapi(route, async (context) => {
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
  });
}

function addOne(app: App<Parts>) {
  const route = createRoute({
    method: "get",
    path: `${API}/projects/{project_id}`,
    operationId: "readProject",
    tags,
    summary: "One project",
    description: "Beyond the contract.",
    security: bearer,
    request: projectId,
    responses: { 200: json("the project", Project), ...errors },
  });
  app.openapi(route, async (context) => {
    const { project_id } = context.req.valid("param");
    const row = await findProjectFor(context.var.service, callerOf(context), project_id);
    return context.json(projectRecord(row), 200);
  });
}

function addEdits(app: App<Parts>) {
  const edit = createRoute({
    method: "patch",
    path: `${API}/projects/{project_id}`,
    operationId: "editProject",
    tags,
    summary: "Rename or describe a project",
    description: "Beyond the contract. Needs the role engineer.",
    security: bearer,
    request: {
      ...projectId,
      ...jsonBody(
        z.strictObject({
          name: title().optional(),
          description: projectDescription.optional(),
        }),
      ),
    },
    responses: { 200: json("the project", Project), ...writeErrors },
  });
  app.openapi(edit, async (context) => {
    const parts = context.var.service;
    const { project_id } = context.req.valid("param");
    await findProjectFor(parts, callerOf(context), project_id, "engineer");
    const row = await updateProject(parts, project_id, context.req.valid("json"));
    return context.json(projectRecord(row), 200);
  });

  const remove = createRoute({
    method: "delete",
    path: `${API}/projects/{project_id}`,
    operationId: "deleteProject",
    tags,
    summary: "Delete an empty project",
    description: "Beyond the contract. Needs the role engineer. 409 while it holds anything.",
    security: bearer,
    request: projectId,
    responses: {
      204: { description: "deleted" },
      ...errors,
      ...errorResponses("forbidden", "state_conflict"),
    },
  });
  app.openapi(remove, async (context) => {
    const parts = context.var.service;
    const { project_id } = context.req.valid("param");
    await findProjectFor(parts, callerOf(context), project_id, "engineer");
    await deleteProject(parts, project_id);
    return context.body(null, 204);
  });
}

function addVideos(app: App<Parts>) {
  const route = createRoute({
    method: "get",
    path: `${API}/projects/{project_id}/videos`,
    operationId: "listVideos",
    tags,
    summary: "All videos of a project, oldest first",
    security: bearer,
    request: projectId,
    responses: { 200: json("videos", z.array(Video)), ...errors },
  });
  app.openapi(route, async (context) => {
    const parts = context.var.service;
    const { project_id } = context.req.valid("param");
    const { projectId } = await findProjectFor(parts, callerOf(context), project_id);
    const rows = await listVideos(parts.database, projectId);
    return context.json(rows.map(videoRecord), 200);
  });
}
