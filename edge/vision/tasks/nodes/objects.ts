// Objects that a node asks for while it works. Only what its payload names is read, and written are
// only its payload's targets and its task's own folder, each key once: all that only while the task
// is the node's, by addresses of minutes.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import {
  SourceRequest,
  TargetRequest,
  WriteAddress,
} from "../../../../shared/tasks/node-protocol.ts";
import { ObjectSource } from "../../../../shared/tasks/tasks.ts";
import type { Database } from "../../../http/database.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { type Route, route } from "../../base/route.ts";
import {
  addressToWrite,
  attemptKey,
  freshKey,
  signReferences,
  sourceIn,
  targetIn,
} from "../objects.ts";
import { findTask, type Report, refusal, type Task } from "../queue/queue.ts";
import { gpuNode, nodeFor } from "./nodes.ts";

const tag = "Nodes";
const params = z.object({ task_id: z.uuid() });

const newObject = (task: Task, { name, content_type }: { name: string; content_type: string }) => ({
  key: freshKey(task, name),
  contentType: content_type,
});

/** Where the task writes a target of its payload; fails with `not_found` for another key. */
function targetOf(task: Task, key: string) {
  const target = targetIn(task.payload, key);
  if (!target) throw new Failure("not_found", "the task's payload names no such target");
  return { key: attemptKey(key, task), contentType: target.content_type };
}

/** A task that is the node's right now. Fails with `lease_stale` when it is not. */
async function heldTask(database: Database, report: Report): Promise<Task> {
  const task = await findTask(database, report.taskId);
  const { nodeId, fence } = report;
  const held = task?.state === "running" && task.nodeId === nodeId && task.fence === fence;
  if (!held) throw await refusal(database, report);
  return task;
}

/** Routes at which a node asks for addresses. */
export const nodeObjectRoutes: readonly Route[] = [
  route(
    {
      call: "POST /node/tasks/{task_id}/target",
      operationId: "makeTarget",
      tag,
      summary: "A place for an object that the task writes",
      description:
        "By `key` for a target of the task's payload, by `name` for a new object in the folder of " +
        "the task's subject. The address is valid for ten minutes, for exactly these bytes, and once: " +
        "412 says that they are there. No other attempt writes under the key.",
      who: gpuNode,
      params,
      body: jsonBody(TargetRequest),
      answers: { 200: json("where to write it", WriteAddress) },
      errors: ["lease_stale"],
    },
    async (context) => {
      const { service } = context.var;
      const node = nodeFor(context);
      const { task_id: taskId } = context.req.valid("param");
      const asked = context.req.valid("json");
      const { fence, bytes, md5 } = asked;
      const task = await heldTask(service.database, { nodeId: node.nodeId, taskId, fence });
      const written = "name" in asked ? newObject(task, asked) : targetOf(task, asked.key);
      return context.json(await addressToWrite(service, { ...written, bytes, md5 }), 200);
    },
  ),
  route(
    {
      call: "POST /node/tasks/{task_id}/source",
      operationId: "renewSource",
      tag,
      summary: "Another address of an object that the task's payload names",
      description: "`not_found` for a key that the payload does not let the node read.",
      who: gpuNode,
      params,
      body: jsonBody(SourceRequest),
      answers: { 200: json("where to read it, for ten minutes", ObjectSource) },
      errors: ["lease_stale"],
    },
    async (context) => {
      const { service } = context.var;
      const node = nodeFor(context);
      const { task_id: taskId } = context.req.valid("param");
      const { fence, key } = context.req.valid("json");
      const { payload } = await heldTask(service.database, { nodeId: node.nodeId, taskId, fence });
      const source = sourceIn(payload, key);
      if (!source) throw new Failure("not_found", "the task's payload names no such object");
      return context.json((await signReferences(service, source)) as ObjectSource, 200);
    },
  ),
];
