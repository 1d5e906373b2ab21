// Objects that a node asks for while it works: a training runs for days, and the addresses in its
// payload were signed once. Only the task's own folder is written and only what its payload names
// is read, and only while the task is the node's.

import { createRoute, z } from "@hono/zod-openapi";
import { Failure } from "../../../shared/errors.ts";
import { SourceRequest, TargetRequest } from "../../../shared/node-protocol.ts";
import { ObjectSource, ObjectTarget } from "../../../shared/tasks.ts";
import { type App, errorResponses, json, jsonBody } from "../../http/app.ts";
import type { Database } from "../../http/database.ts";
import { API } from "../base/api.ts";
import type { Parts } from "../base/parts.ts";
import { authenticateNode } from "./nodes.ts";
import { freshTarget, signReferences, sourceIn } from "./objects.ts";
import { findTask, type Report, refusal, type Task } from "./queue.ts";

const tags = ["Nodes"];
const guarded = { middleware: authenticateNode(), security: [{ nodeToken: [] }] };
const params = z.object({ task_id: z.uuid() });

/** Registers the routes at which a node asks for addresses. */
export function addNodeObjects(app: App<Parts>) {
  addTarget(app);
  addSource(app);
}

function addTarget(app: App<Parts>) {
  const route = createRoute({
    method: "post",
    path: `${API}/node/tasks/{task_id}/target`,
    operationId: "makeTarget",
    tags,
    summary: "A place for an object that the task writes",
    description:
      "A new key in the folder of the task's subject each time, and an address to write it at, " +
      "valid for 12 hours.",
    ...guarded,
    request: { params, ...jsonBody(TargetRequest) },
    responses: {
      200: json("where to write it", ObjectTarget),
      ...errorResponses("bad_body", "unauthorized", "lease_stale"),
      ...errorResponses("invalid_request", "store_unavailable"),
    },
  });
  app.openapi(route, async (context) => {
    const { service, node } = context.var;
    const { task_id: taskId } = context.req.valid("param");
    const { fence, name, content_type } = context.req.valid("json");
    const task = await heldTask(service.database, { nodeId: node.nodeId, taskId, fence });
    const target = freshTarget(task, name, content_type);
    return context.json((await signReferences(service, target)) as ObjectTarget, 200);
  });
}

function addSource(app: App<Parts>) {
  const route = createRoute({
    method: "post",
    path: `${API}/node/tasks/{task_id}/source`,
    operationId: "renewSource",
    tags,
    summary: "Another address of an object that the task's payload names",
    description: "`not_found` for a key that the payload does not let the node read.",
    ...guarded,
    request: { params, ...jsonBody(SourceRequest) },
    responses: {
      200: json("where to read it, for 12 hours", ObjectSource),
      ...errorResponses("bad_body", "unauthorized", "not_found", "lease_stale"),
      ...errorResponses("invalid_request", "store_unavailable"),
    },
  });
  app.openapi(route, async (context) => {
    const { service, node } = context.var;
    const { task_id: taskId } = context.req.valid("param");
    const { fence, key } = context.req.valid("json");
    const { payload } = await heldTask(service.database, { nodeId: node.nodeId, taskId, fence });
    const source = sourceIn(payload, key);
    if (!source) throw new Failure("not_found", "the task's payload names no such object");
    return context.json((await signReferences(service, source)) as ObjectSource, 200);
  });
}

/** A task that is the node's right now. Fails with `lease_stale` when it is not. */
async function heldTask(database: Database, report: Report): Promise<Task> {
  const task = await findTask(database, report.taskId);
  const { nodeId, fence } = report;
  const held = task?.state === "running" && task.nodeId === nodeId && task.fence === fence;
  if (!held) throw await refusal(database, report);
  return task;
}
