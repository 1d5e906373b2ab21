// What is served of workflows over HTTP: deployed, brought back, and how it is used.

import { z } from "@hono/zod-openapi";
import {
  USAGE_WINDOWS,
  Workflow,
  WorkflowMove,
  WorkflowUsage,
} from "../../../../shared/wire/workflows.ts";
import { BLOCKS } from "../../../../shared/workflow/blocks.ts";
import { InlinedDefinition } from "../../../../shared/workflow/definition.ts";
import { inlineWorkflows } from "../../../../shared/workflow/inline.ts";
import { json } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { callerOf } from "../../auth/scope.ts";
import { pageQuery } from "../../base/api.ts";
import { type Route, route } from "../../base/route.ts";
import { workflowFor } from "../access.ts";
import { workflowUsage } from "../usage.ts";
import { DeployBody, slugParam, slugQuery } from "./bodies.ts";
import { checkFor } from "./library.ts";
import { deployWorkflow, listWorkflowMoves, rollBackWorkflow } from "./moves.ts";
import { findVersion } from "./versions.ts";
import { workflowRecord } from "./workflows.ts";

const tag = "Workflows";
const MOVES_MAX = 1_000;
const UsageQuery = z
  .enum(USAGE_WINDOWS)
  .default("24h")
  .meta({ description: "how far back, from a full hour" });

const RolledBackWorkflow = z.object({ workflow: Workflow, move: WorkflowMove });

/** Routes of what is served. */
export const deployRoutes: readonly Route[] = [
  route(
    {
      call: "POST /workflows/saved/{slug}/deploy",
      operationId: "deployWorkflow",
      tag,
      summary: "Serve a version of a saved workflow",
      description:
        "For engineers. The version is checked again, and its sub-workflows become a part of it as " +
        "they are now: what is served does not change until the next move. Runs that are under way end " +
        "as they began. The deployment is a move in the log.",
      who: user,
      params: slugParam,
      query: z.object(slugQuery),
      body: { content: { "application/json": { schema: DeployBody } }, required: false },
      answers: { 200: json("the workflow", Workflow) },
      errors: ["revision_conflict", "invalid_workflow"],
      never: ["invalid_request"],
    },
    async (context) => {
      const parts = context.var.service;
      const name = { ...context.req.valid("param"), ...context.req.valid("query") };
      const row = await workflowFor(context, name, "engineer");
      const { version: wanted, revision } = context.req.valid("json") ?? {};
      const { versionId, version, definition } = await findVersion(parts.database, row, wanted);
      const { library } = await checkFor(parts, row.workspaceId, definition);
      const inlined = inlineWorkflows(definition, {
        blocks: BLOCKS,
        workflows: library,
      }).definition;
      const deployed = await deployWorkflow(parts, row, {
        versionId,
        version,
        // What every serve reads it as.
        definition: InlinedDefinition.parse(inlined),
        actorId: callerOf(context).accountId,
        revision,
      });
      return context.json(workflowRecord(deployed), 200);
    },
  ),
  route(
    {
      call: "POST /workflows/saved/{slug}/rollback",
      operationId: "rollBackWorkflow",
      tag,
      summary: "Serve what a workflow served before its newest move",
      description:
        "Beyond the contract; for engineers. It takes back the newest move that stands; a second call " +
        "takes back the one before it. Of a slug that was deleted it brings back the workflow. The " +
        "rollback is a move in the log.",
      who: user,
      params: slugParam,
      query: z.object(slugQuery),
      answers: { 200: json("the workflow, as it was", RolledBackWorkflow) },
      errors: ["state_conflict"],
    },
    async (context) => {
      const name = { ...context.req.valid("param"), ...context.req.valid("query") };
      const row = await workflowFor(context, { ...name, orFormer: true }, "engineer");
      const actorId = callerOf(context).accountId;
      const { workflow, move } = await rollBackWorkflow(context.var.service, row, actorId);
      return context.json({ workflow: workflowRecord(workflow), move }, 200);
    },
  ),
  route(
    {
      call: "GET /workflows/saved/{slug}/moves",
      operationId: "listWorkflowMoves",
      tag,
      summary: "Each time that a workflow was deployed, rolled back or deleted",
      description:
        "Beyond the contract. Newest first, each with the version that was served before and after. The " +
        "log is kept for ever, also of workflows that were deleted.",
      who: user,
      params: slugParam,
      query: z.object({
        ...slugQuery,
        ...pageQuery(MOVES_MAX),
      }),
      answers: { 200: json("moves", z.array(WorkflowMove)) },
    },
    async (context) => {
      const { workspace_id, ...page } = context.req.valid("query");
      const name = { ...context.req.valid("param"), workspace_id, orFormer: true };
      const row = await workflowFor(context, name, "viewer");
      return context.json(await listWorkflowMoves(context.var.service.database, row, page), 200);
    },
  ),
  route(
    {
      call: "GET /workflows/saved/{slug}/usage",
      operationId: "readWorkflowUsage",
      tag,
      summary: "How often a deployed workflow ran, how it ended, and how long it took",
      description: "Beyond the contract. Kept for 90 days.",
      who: user,
      params: slugParam,
      query: z.object({ ...slugQuery, window: UsageQuery }),
      answers: { 200: json("its use", WorkflowUsage) },
    },
    async (context) => {
      const { workspace_id, window } = context.req.valid("query");
      const name = { ...context.req.valid("param"), workspace_id };
      const { workflowId } = await workflowFor(context, name, "viewer");
      return context.json(await workflowUsage(context.var.service, workflowId, window), 200);
    },
  ),
];
