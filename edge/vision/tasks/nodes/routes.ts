// The node protocol over HTTP: register, claim, heartbeat, progress, finish, and the socket that
// wakes. A node is known by its token and sees tasks only by claiming them.

import { z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { Failure } from "../../../../shared/errors.ts";
import {
  ClaimedTask,
  ClaimRequest,
  FinishRequest,
  HeartbeatReply,
  HeartbeatRequest,
  NODE_PROTOCOL,
  type Outcome,
  ProgressReport,
  RegisteredNode,
  RegisterNode,
  Verdict,
} from "../../../../shared/tasks/node-protocol.ts";
import { taskKind } from "../../../../shared/tasks/tasks.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { toItsEnd } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { anybody, type Route, route } from "../../base/route.ts";
import { signReferences } from "../objects.ts";
import { deliverEnded, type HandlersByKind, tellProgress } from "../queue/delivery.ts";
import {
  type Claimant,
  type ClaimRow,
  claim,
  findTask,
  finish,
  heartbeat,
  type Report,
  reportProgress,
  type Task,
} from "../queue/queue.ts";
import { TASK_STATES } from "../queue/states.ts";
import { doorbellOf, INTEREST_HEADER, lineOf, type NodeInterest, nextRing } from "./bell.ts";
import { gpuNode, nodeFor, noteHeartbeat, registerNode } from "./nodes.ts";
import { nodeObjectRoutes } from "./objects.ts";

const tag = "Nodes";
const POLL_MS = 100;
const POLL_MS_MAX = 1_000;

/**
 * A label task's 32 frames of 100 objects each, with outlines of 150 points, are 6 MB. More than
 * this is not held in a Worker's 128 MB as text, as objects and on its way to the database.
 */
const RESULT_BYTES_MAX = 16 * 1024 * 1024;
const KINDS_CHARACTERS_MAX = 2_000;
/** Twenty epochs of a run with a thousand classes, and 50 lines of its log, are 5 MB. */
const PROGRESS_BYTES_MAX = 8 * 1024 * 1024;

const taskId = z.object({ task_id: z.uuid() });

/** Claims, waiting for a task at most this long: a ring cuts a pause between looks short. */
async function claimWithin(
  parts: Parts,
  claimant: Claimant,
  waitMs: number,
): Promise<ClaimRow | null> {
  const until = parts.clock() + waitMs;
  for (let pause = POLL_MS; ; pause = Math.min(pause * 2, POLL_MS_MAX)) {
    const claimed = await claim(parts.database, claimant);
    const left = until - parts.clock();
    if (claimed || left <= 0) return claimed;
    const { workspaceId, kinds: offered } = claimant;
    await nextRing(parts, Math.min(pause, left), { workspaceId, kinds: offered });
  }
}

const refused = (problem: string): Outcome => ({
  outcome: "failed",
  code: "bad_result",
  detail: `the GPU node's answer was refused: ${problem}`,
  retryable: true,
});

/** A result against its task: what it holds, where the task is the node's, and what is wrong. */
interface CheckedResult {
  task: Task;
  /** Null of a task that is not the node's any more: what it says is refused as such. */
  held: Record<string, unknown> | null;
  problem: string | null;
}

async function check(
  parts: Parts,
  handlers: HandlersByKind,
  { nodeId, taskId, fence }: Report,
  { result, partial }: { result: Record<string, unknown>; partial: boolean },
): Promise<CheckedResult> {
  const task = await findTask(parts.database, taskId);
  if (!task) throw new Failure("not_found", "no task has this id");
  const holds = task.state === "running" && task.nodeId === nodeId && task.fence === fence;
  const shape = taskKind(task.kind)?.result;
  if (!holds || !shape) return { task, held: null, problem: null };
  const parsed = shape.safeParse(result);
  if (parsed.success) {
    const held = parsed.data as Record<string, unknown>;
    const problem = await handlers[task.kind]?.seal?.(parts, task, { result: held, partial });
    return { task, held, problem: problem ?? null };
  }
  const [issue] = parsed.error.issues;
  const problem = `${["result", ...(issue?.path ?? [])].join(".")}: ${issue?.message}`;
  return { task, held: null, problem };
}

/** Has a part of a result stored; one that its task's room does not take is refused. */
async function takePart(
  parts: Parts,
  handlers: HandlersByKind,
  report: Report & Pick<Task, "kind">,
  result: Record<string, unknown>,
): Promise<void> {
  const partDone = handlers[report.kind]?.partDone;
  if (!partDone) throw new Failure("invalid_request", "partial: tasks of this kind have no parts");
  const { task, held, problem } = await check(parts, handlers, report, { result, partial: true });
  if (problem !== null) throw new Failure("invalid_request", `partial: ${problem}`);
  if (held) await partDone(parts, task, held);
}

/** The request of a WebSocket, as an object takes it. */
function upgradeOf(context: Context, headers: Record<string, string> = {}): Request {
  if (context.req.header("Upgrade")?.toLowerCase() !== "websocket") {
    throw new Failure("invalid_request", "Upgrade: must be websocket");
  }
  const own = new Headers(headers);
  own.set("Upgrade", "websocket");
  return new Request(context.req.url, { headers: own });
}

const progressRoute = (handlers: HandlersByKind): Route =>
  route(
    {
      call: "POST /node/tasks/{task_id}/progress",
      operationId: "reportProgress",
      tag,
      summary: "Say how far a task is",
      description:
        "`partial` is checked like a result: a label task's frames are stored at once, each as it was " +
        "reported first, also by an attempt that was lost since. A part that is refused stores " +
        "nothing. The result holds everything all the same.",
      who: gpuNode,
      params: taskId,
      body: jsonBody(ProgressReport, { bytesMax: PROGRESS_BYTES_MAX }),
      answers: { 200: json("what is wanted of the task", z.object({ verdict: Verdict })) },
      errors: ["lease_stale"],
      never: ["not_found"],
    },
    async (context) => {
      const { service } = context.var;
      const node = nodeFor(context);
      const { fence, partial, ...progress } = context.req.valid("json");
      const report = { nodeId: node.nodeId, taskId: context.req.valid("param").task_id, fence };
      const { task, verdict } = await reportProgress(service.database, report, progress);
      if (partial) await takePart(service, handlers, { ...report, kind: task.kind }, partial);
      await tellProgress(service, handlers, task, progress);
      return context.json({ verdict }, 200);
    },
  );

const finishRoute = (handlers: HandlersByKind): Route =>
  route(
    {
      call: "POST /node/tasks/{task_id}/finish",
      operationId: "finishTask",
      tag,
      summary: "Report how an attempt ended",
      description:
        "Reporting the same again changes nothing. A `lease_stale` carries `verdict`: `lost`, or " +
        "`revoke` when the process's exit is still to be reported. A result is checked against its " +
        "task: its shape, frames, boxes and numbers, and the objects that it names. One that is " +
        "refused fails the attempt with the code `bad_result`; `problem` says why.",
      who: gpuNode,
      params: taskId,
      body: jsonBody(FinishRequest, { bytesMax: RESULT_BYTES_MAX }),
      answers: {
        200: json(
          "the task's status now",
          z.object({
            status: z.enum(TASK_STATES),
            repeated: z.boolean(),
            problem: z.string().optional(),
          }),
        ),
      },
      errors: ["lease_stale", "state_conflict"],
    },
    async (context) => {
      const { service } = context.var;
      const node = nodeFor(context);
      const { task_id } = context.req.valid("param");
      const { fence, outcome } = context.req.valid("json");
      const report = { nodeId: node.nodeId, taskId: task_id, fence };
      const result = "result" in outcome ? outcome.result : null;
      const canceled = outcome.outcome === "cancelled";
      const checked =
        result && (await check(service, handlers, report, { result, partial: canceled }));
      const problem = checked?.problem ?? null;
      if (problem !== null) service.log.warning("result_refused", { ...report, problem });
      // Members that its kind does not name are not stored.
      const said = checked?.held ? ({ ...outcome, result: checked.held } as Outcome) : outcome;
      const taken = problem === null ? said : refused(problem);
      const { task, repeated } = await finish(service.database, report, taken);
      // A node that waits no longer reports again, and that is a repeated report.
      if (!repeated) await toItsEnd(context, deliverEnded(service, handlers, [task]));
      const reply = { status: task.state, repeated };
      return context.json(problem === null ? reply : { ...reply, problem }, 200);
    },
  );

const workRoutes: readonly Route[] = [
  route(
    {
      call: "POST /node/register",
      operationId: "registerNode",
      tag,
      summary: "Introduce a GPU node by a one-time code",
      description: "Open: the code of `POST /admin/nodes/codes` is the credential, once.",
      who: anybody,
      body: jsonBody(RegisterNode),
      open: ["body.capabilities"],
      answers: { 201: json("the node's identity; the token is shown only here", RegisteredNode) },
      errors: ["unauthorized"],
    },
    async (context) => {
      const { service, requestId } = context.var;
      const { code, name, capabilities } = context.req.valid("json");
      const made = await registerNode(service, { code, name, capabilities, requestId });
      return context.json({ node_id: made.nodeId, node_token: made.nodeToken }, 201);
    },
  ),
  route(
    {
      call: "POST /node/claim",
      operationId: "claimTask",
      tag,
      summary: "Take the next task",
      description:
        "The task is the node's while its lease lasts; heartbeats renew it. The objects in `payload` " +
        "have addresses that are valid for ten minutes; `source` gives others, `target` those to write.",
      who: gpuNode,
      body: jsonBody(ClaimRequest),
      answers: {
        200: json("a task, or null when none came in time", z.union([ClaimedTask, z.null()])),
      },
    },
    async (context) => {
      const { kinds, wait_seconds } = context.req.valid("json");
      const { service } = context.var;
      const { nodeId, workspaceId, protocol } = nodeFor(context);
      if (protocol !== NODE_PROTOCOL) {
        const detail =
          `this node speaks protocol ${protocol}, the service ${NODE_PROTOCOL}: ` +
          "install the node program of the service's release";
        throw new Failure("invalid_request", detail);
      }
      const claimant = { nodeId, workspaceId, kinds };
      const claimed = await claimWithin(service, claimant, wait_seconds * 1_000);
      if (!claimed) return context.json(null, 200);
      const payload = await signReferences(service, claimed.payload);
      return context.json(
        {
          task_id: claimed.taskId,
          kind: claimed.kind,
          fence: claimed.fence,
          attempt: claimed.attempt,
          lease_until: claimed.leaseUntil,
          payload: payload as Record<string, unknown>,
          more: claimed.more,
        },
        200,
      );
    },
  ),
  route(
    {
      call: "POST /node/heartbeat",
      operationId: "sendHeartbeat",
      tag,
      summary: "Renew the leases of the node's tasks, and hear what is wanted of each",
      who: gpuNode,
      body: jsonBody(HeartbeatRequest),
      open: ["body"],
      answers: { 200: json("a verdict per task that was named", HeartbeatReply) },
    },
    async (context) => {
      const { tasks, ...own } = context.req.valid("json");
      const { database } = context.var.service;
      const { nodeId } = nodeFor(context);
      await noteHeartbeat(database, nodeId, own);
      const held = tasks.map(({ task_id, fence }) => ({ taskId: task_id, fence }));
      const verdicts = await heartbeat(database, nodeId, held);
      const reply = verdicts.map(({ taskId, verdict }) => ({ task_id: taskId, verdict }));
      return context.json({ tasks: reply }, 200);
    },
  ),
];

const socketRoutes: readonly Route[] = [
  route(
    {
      call: "GET /node/socket",
      operationId: "openDoorbell",
      tag,
      summary: "A WebSocket that says when there is work",
      description:
        "It sends a `WorkCall` when a task was enqueued that the node takes, to as many nodes as " +
        "there are tasks; the node sends a `WorkAnswer` back, and where it says `busy`, or nothing " +
        "for a second, further nodes are woken. Text `ping` is answered `pong`. It only saves " +
        "waiting: a node that missed a message finds the task at its next claim.",
      who: gpuNode,
      query: z.object({
        kinds: z.string().max(KINDS_CHARACTERS_MAX).optional().meta({
          description: "the kinds of tasks that the node takes, between commas; others do not ring",
          example: "frames,label",
        }),
      }),
      answers: { 101: { description: "the socket" } },
    },
    async (context) => {
      const { service } = context.var;
      const node = nodeFor(context);
      const named = context.req.valid("query").kinds?.split(",") ?? node.kinds;
      const kinds = named.filter((kind) => taskKind(kind) !== undefined);
      const interest: NodeInterest = { workspaceId: node.workspaceId, kinds };
      const request = upgradeOf(context, {
        "X-Node-Id": node.nodeId,
        [INTEREST_HEADER]: JSON.stringify(interest),
      });
      // A route's declaration has no word for a socket.
      return (await doorbellOf(service).fetch(request)) as never;
    },
  ),
  route(
    {
      call: "GET /node/line",
      operationId: "openLine",
      tag,
      summary: "A WebSocket on which predictions go to the node and come back",
      description:
        "Binary frames, as `shared/tasks/line.ts` writes them down. The service says hello, the node grants " +
        "places, and each request ends by an answer or by its place being given back. Text `ping` is " +
        "answered `pong`; a node that does not ping is taken for gone. A second socket ends the first.",
      who: gpuNode,
      answers: { 101: { description: "the socket" } },
      errors: ["invalid_request"],
    },
    async (context) => {
      const { service } = context.var;
      const node = nodeFor(context);
      // A route's declaration has no word for a socket.
      return (await lineOf(service, node.nodeId).fetch(upgradeOf(context))) as never;
    },
  ),
];

/** The node protocol, whose outcomes these handlers take. */
export const nodeRoutes = (handlers: HandlersByKind): readonly Route[] => [
  ...workRoutes,
  progressRoute(handlers),
  finishRoute(handlers),
  ...nodeObjectRoutes,
  ...socketRoutes,
];
