// Saved workflows over HTTP: made, saved, read and deleted.

import { z } from "@hono/zod-openapi";
import { whole } from "../../../../shared/scalars.ts";
import {
  type PlannedPorts,
  Workflow,
  WorkflowDetail,
  WorkflowVersion,
} from "../../../../shared/wire/workflows.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { callerOf, workspaceFor, workspacesFor, workspacesOf } from "../../auth/scope.ts";
import { pageQuery } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { type Route, route } from "../../base/route.ts";
import { workflowFor } from "../access.ts";
import {
  DEFINITION_BYTES_MAX,
  SaveBody,
  slugOf,
  slugParam,
  slugQuery,
  WorkflowBody,
} from "./bodies.ts";
import { checkFor, judge, portsOf } from "./library.ts";
import { deleteWorkflow } from "./moves.ts";
import { findVersion, listVersions } from "./versions.ts";
import {
  createWorkflow,
  listWorkflows,
  saveWorkflow,
  type WorkflowRow,
  workflowRecord,
} from "./workflows.ts";

const tag = "Workflows";
const VERSIONS_MAX = 1_000;
const bounded = { bytesMax: DEFINITION_BYTES_MAX };

/** A workflow with the definition of a version, and what that comes to now. */
async function detailOf(
  parts: Parts,
  row: WorkflowRow,
  version?: number,
): Promise<z.infer<typeof WorkflowDetail>> {
  const { definition, version: shown } = await findVersion(parts.database, row, version);
  const ports: PlannedPorts = portsOf(definition, await judge(parts, row.workspaceId, definition));
  return { ...workflowRecord(row), shown_version: shown, definition, ...ports };
}

/** Routes of saved workflows. */
export const definitionRoutes: readonly Route[] = [
  route(
    {
      call: "POST /workflows",
      operationId: "makeWorkflow",
      tag,
      summary: "Save a new workflow",
      description:
        "For engineers. The definition is checked first: what is wrong with it is listed in `problems`, " +
        "each with its step, its port and what would make it right. It becomes version 1; nothing is " +
        "served until it is deployed. A slug is one of a kind in its workspace. At most 200 a workspace.",
      who: user,
      body: jsonBody(WorkflowBody, bounded),
      answers: { 201: json("the workflow", WorkflowDetail) },
      errors: ["not_found", "state_conflict", "invalid_workflow"],
      never: ["invalid_request"],
    },
    async (context) => {
      const parts = context.var.service;
      const caller = callerOf(context);
      const { workspace_id, slug, ...body } = context.req.valid("json");
      const workspaceId = workspaceFor(caller, workspace_id, "engineer");
      await checkFor(parts, workspaceId, body.definition);
      const row = await createWorkflow(parts, {
        ...body,
        slug: slug ?? slugOf(body.name),
        workspaceId,
        actorId: caller.accountId,
      });
      return context.json(await detailOf(parts, row), 201);
    },
  ),
  route(
    {
      call: "PUT /workflows/saved/{slug}",
      operationId: "saveWorkflow",
      tag,
      summary: "Save a workflow's next version",
      description:
        "Beyond the contract; for engineers. Another definition is a new version, which is never " +
        "changed; the same one makes none. What is served stays what it is until a version is deployed. " +
        "At most 1,000 versions.",
      who: user,
      params: slugParam,
      query: z.object(slugQuery),
      body: jsonBody(SaveBody, bounded),
      answers: { 200: json("the workflow", WorkflowDetail) },
      errors: ["state_conflict", "revision_conflict", "invalid_workflow"],
      never: ["invalid_request"],
    },
    async (context) => {
      const parts = context.var.service;
      const name = { ...context.req.valid("param"), ...context.req.valid("query") };
      const row = await workflowFor(context, name, "engineer");
      const body = context.req.valid("json");
      await checkFor(parts, row.workspaceId, body.definition, row.slug);
      const actorId = callerOf(context).accountId;
      const saved = await saveWorkflow(parts, row, { ...body, actorId });
      return context.json(await detailOf(parts, saved), 200);
    },
  ),
  route(
    {
      call: "GET /workflows/saved",
      operationId: "listWorkflows",
      tag,
      summary: "Saved workflows, by slug",
      description: "Of all your workspaces, or of one; without their definitions.",
      who: user,
      query: z.object({ workspace_id: z.uuid().optional() }),
      answers: { 200: json("workflows of the caller's workspaces", z.array(Workflow)) },
      errors: ["not_found"],
    },
    async (context) => {
      const { workspace_id } = context.req.valid("query");
      const caller = callerOf(context);
      const workspaces =
        workspace_id === undefined
          ? workspacesOf(caller)
          : workspacesFor(caller, workspace_id, "viewer");
      const rows = await listWorkflows(context.var.service.database, workspaces);
      return context.json(rows.map(workflowRecord), 200);
    },
  ),
  route(
    {
      call: "GET /workflows/saved/{slug}",
      operationId: "readWorkflow",
      tag,
      summary: "One saved workflow, with its definition",
      description:
        "Of its newest version, or of another. `problems` says what keeps it from being run now, such " +
        "as a workflow among its steps that was deleted since.",
      who: user,
      params: slugParam,
      query: z.object({
        ...slugQuery,
        version: whole(1, 2_147_483_647)
          .optional()
          .meta({ description: "of this version; without one of the newest" }),
      }),
      answers: { 200: json("the workflow", WorkflowDetail) },
    },
    async (context) => {
      const { version, workspace_id } = context.req.valid("query");
      const name = { ...context.req.valid("param"), workspace_id };
      const row = await workflowFor(context, name, "viewer");
      return context.json(await detailOf(context.var.service, row, version), 200);
    },
  ),
  route(
    {
      call: "GET /workflows/saved/{slug}/versions",
      operationId: "listWorkflowVersions",
      tag,
      summary: "Versions of a saved workflow, newest first",
      description: "Beyond the contract.",
      who: user,
      params: slugParam,
      query: z.object({
        ...slugQuery,
        ...pageQuery(VERSIONS_MAX),
      }),
      answers: { 200: json("versions", z.array(WorkflowVersion)) },
    },
    async (context) => {
      const { workspace_id, ...page } = context.req.valid("query");
      const name = { ...context.req.valid("param"), workspace_id };
      const row = await workflowFor(context, name, "viewer");
      const versions = await listVersions(context.var.service.database, row, page);
      return context.json(versions, 200);
    },
  ),
  route(
    {
      call: "DELETE /workflows/saved/{slug}",
      operationId: "deleteWorkflow",
      tag,
      summary: "Delete a saved workflow",
      description:
        "For engineers. It is served no more, and its slug is free. A rollback of the slug brings it " +
        "back with its versions, served as it was.",
      who: user,
      params: slugParam,
      query: z.object(slugQuery),
      answers: { 204: { description: "the workflow is gone" } },
      errors: ["revision_conflict"],
    },
    async (context) => {
      const name = { ...context.req.valid("param"), ...context.req.valid("query") };
      const row = await workflowFor(context, name, "engineer");
      await deleteWorkflow(context.var.service, row, callerOf(context).accountId);
      return context.body(null, 204);
    },
  ),
];
