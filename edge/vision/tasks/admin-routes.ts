// What admins see and do about nodes, queues and tasks. Each change is written to the audit log.

import { z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { Failure } from "../../../shared/errors.ts";
import { Capabilities } from "../../../shared/tasks/node-protocol.ts";
import { isTaskKind, TASK_KIND_NAMES } from "../../../shared/tasks/tasks.ts";
import { json } from "../../http/route.ts";
import { name } from "../../http/texts.ts";
import { user } from "../auth/audience.ts";
import { actOf } from "../auth/audit.ts";
import { allow, callerOf, type Realm, realmOf, workspacesOf } from "../auth/scope.ts";
import { type Route, route } from "../base/route.ts";
import { doorbellOf, lineOf } from "./nodes/bell.ts";
import { createCode, listNodes, type NodeRecord, revokeNode } from "./nodes/nodes.ts";
import { listQueues } from "./overview.ts";
import type { HandlersByKind } from "./queue/delivery.ts";
import { deliverEnded } from "./queue/delivery.ts";
import { purge, requestRevoke } from "./queue/interventions.ts";
import { findTask } from "./queue/queue.ts";
import { TASK_STATES } from "./queue/states.ts";

const tag = "Administration";

/** The caller and what they rule; fails with `forbidden` for who is admin of nothing. */
function adminOf(context: Pick<Context, "get">): { accountId: string; realm: Realm } {
  const caller = callerOf(context);
  return { accountId: caller.accountId, realm: realmOf(caller) };
}

/** Whose nodes and tasks an admin route speaks of, as its description says it. */
const RULED =
  "Of the workspaces that you are admin of; an admin of the default workspace is an operator, who " +
  "sees all.";

const CurrentTask = z.object({
  task_id: z.uuid(),
  kind: z.string(),
  subject: z.string(),
  started_at: z.iso.datetime(),
  lease_expired: z.boolean(),
});
const NodeWorkspace = z
  .uuid()
  .nullable()
  .meta({ description: "whose tasks it claims; null: the operators' node, which serves all" });
const Worker = z
  .object({
    node_id: z.uuid(),
    workspace_id: NodeWorkspace,
    name: z.string(),
    live: z.boolean().meta({ description: "heard of within 60 s" }),
    draining: z.boolean(),
    last_heartbeat_at: z.iso.datetime(),
    kinds: z.array(z.string()),
    device: z.string(),
    version: z.string(),
    slots: z.number().int(),
    tasks: z.array(CurrentTask),
  })
  .meta({ id: "Worker" });
const Node = z
  .object({
    node_id: z.uuid(),
    workspace_id: NodeWorkspace,
    name: z.string(),
    live: z.boolean(),
    draining: z.boolean(),
    last_heartbeat_at: z.iso.datetime(),
    created_at: z.iso.datetime(),
    revoked_at: z.iso.datetime().nullable(),
    capabilities: Capabilities,
    tasks: z.array(CurrentTask),
  })
  .meta({ id: "Node" });
const Queue = z
  .object({
    name: z.string().meta({ description: "the kind of its tasks" }),
    depth: z.number().int().meta({ description: "tasks that wait" }),
    delayed: z.number().int().meta({ description: "of those, due only later" }),
    running: z.number().int(),
    consumers: z.number().int().meta({ description: "live nodes that take its tasks" }),
    oldest_queued_at: z.iso.datetime().nullable(),
  })
  .meta({ id: "Queue" });

const CodeRequest = z.strictObject({ workspace_id: z.uuid().nullable().optional() });

/** Whose a new node will be, as its code's request says; null is the operators', for all. */
function nodeWorkspace(
  context: Pick<Context, "get">,
  wanted: string | null | undefined,
): string | null {
  const caller = callerOf(context);
  if (wanted) allow(caller, wanted, "admin");
  if (wanted || caller.operator) return wanted ?? null;
  if (wanted === null) {
    throw new Failure("forbidden", "a node that serves all is the operators'", {
      data: { role_needed: "admin" },
    });
  }
  const [only, ...others] = workspacesOf(caller, "admin");
  if (only && others.length === 0) return only;
  throw new Failure("invalid_request", "workspace_id: required, as you are admin of several");
}

const workerOf = ({ capabilities, ...node }: NodeRecord): z.infer<typeof Worker> => ({
  node_id: node.node_id,
  workspace_id: node.workspace_id,
  name: node.name,
  live: node.live,
  draining: node.draining,
  last_heartbeat_at: node.last_heartbeat_at,
  kinds: capabilities.kinds,
  device: capabilities.device.name,
  version: capabilities.version,
  slots: capabilities.slots,
  tasks: node.tasks,
});

const revokeRoute = (handlers: HandlersByKind): Route =>
  route(
    {
      call: "POST /admin/tasks/{task_id}/revoke",
      operationId: "revokeTask",
      tag,
      summary: "Revoke a task, ending the process that works on it",
      description:
        "Needs the role admin of the task's workspace, or to be an operator. A queued task is " +
        "`revoked` at once. A running one stays `running` " +
        "until its node reports that the process is gone, or has been silent for two minutes; " +
        "nothing else that it reports is taken. Asking again changes nothing.",
      who: user,
      params: z.object({ task_id: z.uuid() }),
      answers: {
        202: json("the task", z.object({ task_id: z.uuid(), status: z.enum(TASK_STATES) })),
      },
      errors: ["state_conflict"],
    },
    async (context) => {
      const { realm } = adminOf(context);
      const { service } = context.var;
      const { task_id } = context.req.valid("param");
      const act = actOf(context, "revokeTask");
      const [task] = await requestRevoke(service.database, { taskIds: [task_id], realm, act });
      if (!task) {
        const ended = await findTask(service.database, task_id);
        const seen = ended && (realm === "installation" || realm.includes(ended.workspaceId));
        if (!seen) throw new Failure("not_found", "no task of yours has this id");
        throw new Failure("state_conflict", `the task has ended: it is ${ended.state}`);
      }
      await deliverEnded(service, handlers, [task]);
      return context.json({ task_id, status: task.state }, 202);
    },
  );

const purgeRoute = (handlers: HandlersByKind): Route =>
  route(
    {
      call: "POST /admin/queue/{queue_name}/purge",
      operationId: "purgeQueue",
      tag,
      summary: "Drop all pending tasks of a queue",
      description:
        "Needs the role admin. Pending tasks become `cancelled`. Running ones are left alone: revoke " +
        `them one by one. ${RULED}`,
      who: user,
      params: z.object({ queue_name: name().meta({ enum: TASK_KIND_NAMES }) }),
      answers: {
        200: json(
          "what was dropped, and how many tasks run on",
          z.object({
            purged: z.number().int(),
            task_ids: z.array(z.uuid()),
            running: z.number().int(),
          }),
        ),
      },
    },
    async (context) => {
      const { realm } = adminOf(context);
      const { service } = context.var;
      const { queue_name } = context.req.valid("param");
      if (!isTaskKind(queue_name)) {
        const known = TASK_KIND_NAMES.join(", ");
        throw new Failure("not_found", `no queue has this name; there are: ${known}`);
      }
      const wanted = { kind: queue_name, realm, act: actOf(context, "purgeQueue") };
      const { purged, running } = await purge(service.database, wanted);
      const ids = purged.map(({ taskId }) => taskId);
      await deliverEnded(service, handlers, purged);
      return context.json({ purged: ids.length, task_ids: ids, running }, 200);
    },
  );

const nodeAndQueueRoutes: readonly Route[] = [
  route(
    {
      call: "POST /admin/nodes/codes",
      operationId: "makeNodeCode",
      tag,
      summary: "A one-time code for a new GPU node",
      description:
        "Beyond the contract. Needs the role admin. Valid for an hour, for one node. The node claims " +
        "the tasks of `workspace_id` and no others. Null, which only an operator may give (an admin " +
        "of the default workspace) and which is an operator's default, makes one that serves all; " +
        "everybody else's default is the one workspace that they are admin of.",
      who: user,
      body: { content: { "application/json": { schema: CodeRequest } }, required: false },
      answers: {
        201: json(
          "the code",
          z.object({
            code: z.string(),
            workspace_id: NodeWorkspace,
            expires_at: z.iso.datetime(),
          }),
        ),
      },
      errors: ["not_found"],
    },
    async (context) => {
      const { accountId } = adminOf(context);
      const { service } = context.var;
      // Without a body nothing was validated.
      const workspaceId = nodeWorkspace(context, context.req.valid("json")?.workspace_id);
      const act = actOf(context, "makeNodeCode");
      const made = await createCode(service, { createdBy: accountId, workspaceId, act });
      const answer = { code: made.code, workspace_id: workspaceId, expires_at: made.expiresAt };
      return context.json(answer, 201);
    },
  ),
  route(
    {
      call: "GET /admin/nodes",
      operationId: "listNodes",
      tag,
      summary: "GPU nodes, revoked ones too",
      description: `Beyond the contract. Needs the role admin. ${RULED}`,
      who: user,
      answers: { 200: json("nodes, live ones first", z.array(Node)) },
      errors: ["forbidden"],
    },
    async (context) => {
      const { realm } = adminOf(context);
      return context.json(await listNodes(context.var.service.database, realm), 200);
    },
  ),
  route(
    {
      call: "DELETE /admin/nodes/{node_id}",
      operationId: "revokeNode",
      tag,
      summary: "Revoke a GPU node's token",
      description:
        "Beyond the contract. Needs the role admin of the node's workspace, or to be an operator. " +
        "What the node works on goes to others as its leases expire.",
      who: user,
      params: z.object({ node_id: z.uuid() }),
      answers: { 204: { description: "it is revoked" } },
    },
    async (context) => {
      const { realm } = adminOf(context);
      const { service } = context.var;
      const { node_id } = context.req.valid("param");
      const act = actOf(context, "revokeNode");
      const revoked = await revokeNode(service.database, { realm, nodeId: node_id, act });
      if (!revoked) throw new Failure("not_found", "no node of yours that works has this id");
      await doorbellOf(service)
        .hangUp(node_id)
        .catch((error: unknown) => service.log.warning("doorbell", { error }));
      await lineOf(service, node_id)
        .hangUp()
        .catch((error: unknown) => service.log.warning("line", { error }));
      return context.body(null, 204);
    },
  ),
  route(
    {
      call: "GET /admin/workers",
      operationId: "listWorkers",
      tag,
      summary: "Workers, what they work on, when they were last heard of",
      description: `Needs the role admin. A worker is a GPU node that was not revoked. ${RULED}`,
      who: user,
      answers: { 200: json("workers, live ones first", z.array(Worker)) },
      errors: ["forbidden"],
    },
    async (context) => {
      const { realm } = adminOf(context);
      const nodes = await listNodes(context.var.service.database, realm);
      return context.json(nodes.filter(({ revoked_at }) => revoked_at === null).map(workerOf), 200);
    },
  ),
  route(
    {
      call: "GET /admin/queue",
      operationId: "listQueues",
      tag,
      summary: "Queues with depth and consumers",
      description: `Needs the role admin. A queue holds the tasks of one kind. ${RULED}`,
      who: user,
      answers: { 200: json("queues by name", z.array(Queue)) },
      errors: ["forbidden"],
    },
    async (context) => {
      const { realm } = adminOf(context);
      return context.json(await listQueues(context.var.service.database, realm), 200);
    },
  ),
];

/** Routes of nodes, queues and tasks for admins. */
export const taskAdministrationRoutes = (handlers: HandlersByKind): readonly Route[] => [
  ...nodeAndQueueRoutes,
  revokeRoute(handlers),
  purgeRoute(handlers),
];
