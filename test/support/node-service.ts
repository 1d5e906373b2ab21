// A service that speaks the node protocol, for tests of the node: a queue in memory with fences and
// leases, an object store, a socket that wakes, and faults on demand.

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type WebSocket, WebSocketServer } from "ws";
import type { z } from "zod";
import {
  Capabilities,
  ClaimRequest,
  FinishRequest,
  HeartbeatRequest,
  type Outcome,
  ProgressReport,
  RegisterNode,
  SourceRequest,
  TargetRequest,
  type TaskProgress,
  type Verdict,
  type WriteAddress,
} from "../../shared/tasks/node-protocol.ts";
import {
  type ObjectSource,
  type ObjectTarget,
  TASK_KINDS,
  type TaskKind,
} from "../../shared/tasks/tasks.ts";

/**
 * What a request meets in place of an answer. `drop_after`: it takes effect, its answer is lost.
 * `page`: something on the way answers for the service, as if all were well. `stall`: it is never
 * answered.
 */
export type Fault = "drop" | "drop_after" | "page" | "stall" | 500 | 429 | 401 | 403;

export interface ServedTask {
  id: string;
  kind: TaskKind;
  payload: Record<string, unknown>;
  fence: number;
  state: "queued" | "running" | "ended";
  verdict: Verdict;
  progress: TaskProgress[];
  /** Every outcome that was taken. */
  outcomes: Outcome[];
  /** Finishes that repeated the one that was taken. */
  duplicates: number;
}

export interface NodeService {
  url: string;
  code: string;
  token: string;
  objects: Map<string, Buffer>;
  /** Reads of each object. */
  reads: Map<string, number>;
  tasks: Map<string, ServedTask>;
  heartbeats: Pick<z.infer<typeof HeartbeatRequest>, "tasks" | "draining" | "loaded">[];
  capabilities: Capabilities | null;
  registrations: number;
  /** Requests that were never answered. */
  stalled: number;
  /** Whether sockets are refused. */
  deaf: boolean;
  /** Takes a node's end of the direct line. */
  onLine: (socket: WebSocket) => void;
  enqueue<Kind extends TaskKind>(kind: Kind, payload: unknown): ServedTask;
  source(key: string, bytes: Buffer): ObjectSource;
  target(key: string, contentType?: string): ObjectTarget;
  /** Where an object is written: under its target's key, or a new one of its name. */
  address(asked: { key: string } | { name: string }): WriteAddress;
  /** The next requests whose path matches meet these faults, one each. */
  fault(path: RegExp, ...faults: Fault[]): void;
  /** Takes a running task away, as a rescue does. */
  requeue(task: ServedTask): void;
  close(): Promise<void>;
}

const answer = (response: ServerResponse, status: number, body: unknown) =>
  response
    .writeHead(status, { "content-type": "application/json" })
    .end(body === undefined ? undefined : JSON.stringify(body));

async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

export async function startNodeService(): Promise<NodeService> {
  const faults: { path: RegExp; left: Fault[] }[] = [];
  const sockets = new WebSocketServer({ noServer: true });
  const server = createServer((request, response) => {
    serve(request, response).catch((thrown: unknown) => answer(response, 500, String(thrown)));
  });
  const unauthorized = (request: IncomingMessage) =>
    request.headers.authorization !== `Bearer ${service.token}`;

  async function serve(request: IncomingMessage, response: ServerResponse) {
    const path = new URL(request.url ?? "", "http://x").pathname;
    const body = await bodyOf(request);
    const fault = faults.find((one) => one.path.test(path) && one.left.length > 0)?.left.shift();
    if (fault === "drop") return void request.socket.destroy();
    if (fault === "stall") {
      service.stalled += 1;
      return;
    }
    if (fault === "page") return void response.writeHead(200).end("<html>Sign in</html>");
    if (typeof fault === "number") {
      return void answer(response, fault, { code: "busy", detail: "come again" });
    }
    if (path.startsWith("/objects/")) return void object(request, response, path, body);
    const said = reply(path, request, JSON.parse(body.toString() || "null"));
    if (fault === "drop_after") return void request.socket.destroy();
    answer(response, said.status, said.body);
  }

  function object(request: IncomingMessage, response: ServerResponse, path: string, body: Buffer) {
    const key = decodeURIComponent(path.slice("/objects/".length));
    if (request.method === "PUT") {
      if (request.headers["content-length"] === undefined) return answer(response, 411, {});
      service.objects.set(key, body);
      return answer(response, 200, {});
    }
    service.reads.set(key, (service.reads.get(key) ?? 0) + 1);
    const bytes = service.objects.get(key);
    return bytes ? response.writeHead(200).end(bytes) : answer(response, 404, {});
  }

  function reply(path: string, request: IncomingMessage, body: unknown) {
    const ok = (value: unknown) => ({ status: 200, body: value });
    const no = (status: number, code: string, more = {}) => ({
      status,
      body: { code, detail: code, request_id: "t", ...more },
    });
    if (path === "/api/v1/node/register") {
      const { code, capabilities } = RegisterNode.parse(body);
      if (code !== service.code || service.registrations > 0) return no(401, "unauthorized");
      service.registrations += 1;
      service.capabilities = capabilities;
      return { status: 201, body: { node_id: crypto.randomUUID(), node_token: service.token } };
    }
    if (unauthorized(request)) return no(401, "unauthorized");
    if (path === "/api/v1/node/claim") {
      const { kinds } = ClaimRequest.parse(body);
      const [task, next] = [...service.tasks.values()].filter(
        ({ state, kind }) => state === "queued" && kinds.includes(kind),
      );
      if (!task) return ok(null);
      task.state = "running";
      task.fence += 1;
      const { id: task_id, kind, fence, payload } = task;
      const lease_until = "2100-01-01T00:00:00.000Z";
      const claim = { task_id, kind, fence, attempt: fence, lease_until, payload };
      return ok({ ...claim, more: next !== undefined });
    }
    if (path === "/api/v1/node/heartbeat") {
      const beat = HeartbeatRequest.parse(body);
      service.heartbeats.push(beat);
      if (beat.capabilities) service.capabilities = Capabilities.parse(beat.capabilities);
      const verdict = ({ task_id, fence }: { task_id: string; fence: number }): Verdict => {
        const task = service.tasks.get(task_id);
        return task?.state === "running" && task.fence === fence ? task.verdict : "lost";
      };
      return ok({
        tasks: beat.tasks.map((one) => ({ task_id: one.task_id, verdict: verdict(one) })),
      });
    }
    const [, id = "", verb] =
      /^\/api\/v1\/node\/tasks\/([^/]+)\/(progress|finish|target|source)$/.exec(path) ?? [];
    const task = service.tasks.get(id);
    if (!task || !verb) return no(404, "not_found");
    if (verb === "target") return target(task, body);
    if (verb === "source") return source(task, body);
    return verb === "progress" ? report(task, body) : finish(task, body);

    function target(of: ServedTask, said: unknown) {
      const asked = TargetRequest.parse(said);
      if (of.state !== "running" || asked.fence !== of.fence) {
        return no(409, "lease_stale", { verdict: "lost" });
      }
      return ok(service.address(asked));
    }

    function source(of: ServedTask, said: unknown) {
      const { fence, key } = SourceRequest.parse(said);
      if (of.state !== "running" || fence !== of.fence) {
        return no(409, "lease_stale", { verdict: "lost" });
      }
      const bytes = service.objects.get(key);
      return bytes ? ok(service.source(key, bytes)) : no(404, "not_found");
    }

    function report(of: ServedTask, said: unknown) {
      const { fence, ...progress } = ProgressReport.parse(said);
      if (of.state !== "running" || fence !== of.fence) {
        return no(409, "lease_stale", { verdict: "lost" });
      }
      of.progress.push(progress);
      return ok({ verdict: of.verdict });
    }

    function finish(of: ServedTask, said: unknown) {
      const { fence, outcome } = FinishRequest.parse(said);
      if (fence !== of.fence) return no(409, "lease_stale", { verdict: "lost" });
      if (of.state === "ended") {
        of.duplicates += 1;
        return ok({ status: of.state, repeated: true });
      }
      if (outcome.outcome === "finished") TASK_KINDS[of.kind].result.parse(outcome.result);
      of.outcomes.push(outcome);
      of.state = outcome.outcome === "snoozed" ? "queued" : "ended";
      return ok({ status: of.state, repeated: false });
    }
  }

  server.on("upgrade", (request, socket, head) => {
    if (service.deaf || unauthorized(request)) return void socket.destroy();
    sockets.handleUpgrade(request, socket, head, (client) => {
      if (request.url === "/api/v1/node/line") return service.onLine(client);
      client.on("message", () => client.send("pong"));
    });
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const at = (key: string) => `${url}/objects/${encodeURIComponent(key)}?X-Amz-Signature=hidden`;
  const service: NodeService = {
    url,
    code: crypto.randomUUID(),
    token: crypto.randomUUID(),
    objects: new Map(),
    reads: new Map(),
    tasks: new Map(),
    heartbeats: [],
    capabilities: null,
    registrations: 0,
    stalled: 0,
    deaf: false,
    onLine: () => {},
    enqueue: (kind, payload) => {
      const task: ServedTask = {
        id: crypto.randomUUID(),
        kind,
        payload: payload as Record<string, unknown>,
        fence: 0,
        state: "queued",
        verdict: "go_on",
        progress: [],
        outcomes: [],
        duplicates: 0,
      };
      service.tasks.set(task.id, task);
      for (const client of sockets.clients) client.send(JSON.stringify({ type: "work" }));
      return task;
    },
    source: (key, bytes) => {
      service.objects.set(key, bytes);
      return { url: at(key), key, bytes: bytes.length };
    },
    target: (key, contentType = "application/octet-stream") => ({
      key,
      content_type: contentType,
    }),
    address: (asked) => {
      const key = "key" in asked ? asked.key : `made/${crypto.randomUUID()}/${asked.name}`;
      return { url: at(key), key, headers: { "If-None-Match": "*" } };
    },
    fault: (path, ...left) => void faults.push({ path, left }),
    requeue: (task) => {
      task.state = "queued";
      task.verdict = "go_on";
    },
    close: async () => {
      for (const client of sockets.clients) client.terminate();
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
    },
  };
  return service;
}

/** Longer than anything takes that a test waits for, also on cores that are shared. */
const HANGS_MS = 280_000;

/** Polls until something holds, for less than a test may take. */
export async function until(what: string, holds: () => boolean | Promise<boolean>): Promise<void> {
  const started = performance.now();
  while (!(await holds())) {
    if (performance.now() - started > HANGS_MS) throw new Error(`it never came to: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
