// What workflows are made of over HTTP: the catalogue of blocks, the check of a definition, and
// definitions that come from another service.

import { z } from "@hono/zod-openapi";
import { WorkflowBlock, WorkflowCheck } from "../../../../shared/wire/workflows.ts";
import { catalogue } from "../../../../shared/workflow/blocks.ts";
import {
  Json,
  WorkflowDefinition,
  WorkflowProblem,
} from "../../../../shared/workflow/definition.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { callerOf, workspaceFor } from "../../auth/scope.ts";
import { type Route, route } from "../../base/route.ts";
import { importRoboflow } from "../roboflow/import.ts";
import { CheckBody, DEFINITION_BYTES_MAX } from "./bodies.ts";
import { judge, portsOf } from "./library.ts";

const tag = "Workflows";
const bounded = { bytesMax: DEFINITION_BYTES_MAX };

const ImportedWorkflow = z
  .object({
    definition: z
      .union([WorkflowDefinition, z.null()])
      .meta({ description: "in our blocks; null where a step has none" }),
    unsupported: z
      .array(
        z.object({
          step: z.string(),
          type: z.string().meta({ description: "its type there" }),
          reason: z.string().meta({ description: "why no block of ours stands in for it" }),
        }),
      )
      .meta({ description: "steps that cannot be taken over" }),
    warnings: z.array(z.string()).meta({ description: "what behaves otherwise than there" }),
    problems: z
      .array(WorkflowProblem)
      .meta({ description: "what the check finds in the definition, to be put right first" }),
  })
  .meta({ id: "ImportedWorkflow" });

/** Routes of blocks, checks and imports. */
export const checkRoutes: readonly Route[] = [
  route(
    {
      call: "GET /workflows/blocks",
      operationId: "listWorkflowBlocks",
      tag,
      summary: "The catalogue of blocks",
      description:
        "Each with what it takes and makes, the JSON schema of its parameters, what it costs, where it " +
        "runs, and a worked example: what comes of these inputs and parameters.",
      who: user,
      answers: { 200: json("blocks", z.array(WorkflowBlock)) },
      errors: ["invalid_request"],
    },
    (context) => context.json(z.array(WorkflowBlock).parse(catalogue()), 200),
  ),
  route(
    {
      call: "POST /workflows/check",
      operationId: "checkWorkflow",
      tag,
      summary: "What is wrong with a definition, and what it takes and gives",
      description:
        "Beyond the contract. The check that stands before each save, deployment and run; nothing is " +
        "saved. All problems are listed, each with its step, its port and what would make it right.",
      who: user,
      body: jsonBody(CheckBody, bounded),
      answers: { 200: json("what the check says", WorkflowCheck) },
      errors: ["not_found"],
      never: ["forbidden"],
    },
    async (context) => {
      const { workspace_id, definition } = context.req.valid("json");
      const workspaceId = workspaceFor(callerOf(context), workspace_id, "viewer");
      const verdict = await judge(context.var.service, workspaceId, definition);
      const ports = portsOf(definition, verdict);
      return context.json({ ok: verdict.problems.length === 0, ...ports }, 200);
    },
  ),
  route(
    {
      call: "POST /workflows/import/roboflow",
      operationId: "importRoboflowWorkflow",
      tag,
      summary: "A definition of Roboflow Workflows in our blocks",
      description:
        "Beyond the contract. The body has `definition`: their JSON, `version`, `inputs`, `steps` and " +
        "`outputs`. What comes of it is checked, and nothing is saved: look at `warnings` and " +
        "`problems`, and send the definition to `POST /workflows`.",
      who: user,
      body: jsonBody(
        z.strictObject({
          definition: z.record(z.string(), Json).meta({ description: "theirs" }),
        }),
        bounded,
      ),
      answers: { 200: json("what of it was taken over", ImportedWorkflow) },
      never: ["forbidden"],
    },
    (context) => {
      callerOf(context);
      return context.json(importRoboflow(context.req.valid("json").definition), 200);
    },
  ),
];
