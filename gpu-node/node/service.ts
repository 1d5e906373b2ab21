// The node's side of the node protocol (shared/tasks/tasks.ts). Faults that may pass are tried
// again, each time later; a refusal is final, and a refused token ends the node.

import { WebSocket } from "ws";
import { z } from "zod";
import type { Secret } from "../../shared/secret.ts";
import {
  type Capabilities,
  ClaimedTask,
  HeartbeatReply,
  type HeartbeatRequest,
  type Outcome,
  RegisteredNode,
  type TaskReport,
  Verdict,
  type WorkAnswer,
  WorkCall,
  WriteAddress,
} from "../../shared/tasks/node-protocol.ts";
import { ObjectSource } from "../../shared/tasks/tasks.ts";
import type { Log } from "../base/log.ts";
import { tally } from "../base/tally.ts";
import { pause } from "../objects/transfer.ts";
import { backoffMs } from "./backoff.ts";
import type { Lease } from "./held-task.ts";
import { Line, type LineOptions } from "./line.ts";
import type { ObjectRequest } from "./messages.ts";

/** The service does not know this node's token any more. */
export class NodeRefusal extends Error {
  override readonly name = "NodeRefusal";
}

/** The task is another's by now, or was revoked: `verdict` says what is still wanted. */
export class LeaseStale extends Error {
  override readonly name = "LeaseStale";
  readonly verdict: Verdict;

  constructor(verdict: Verdict) {
    super("the task's lease is another's");
    this.verdict = verdict;
  }
}

/** The service understood and said no. */
export class RequestRefusal extends Error {
  override readonly name = "RequestRefusal";
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, detail: string) {
    super(`the service answered ${status} ${code}: ${detail}`);
    this.status = status;
    this.code = code;
  }
}

/** No answer, or one that says to come again. */
class Unavailable extends Error {
  readonly afterMs: number | null;

  constructor(reason: string, afterMs: number | null) {
    super(reason);
    this.afterMs = afterMs;
  }
}

const Body = z.looseObject({ code: z.string(), detail: z.string() }).partial();
const TaskReply = z.object({ verdict: Verdict });
const FinishReply = z.object({ problem: z.string().optional() });

const REQUEST_MS_MAX = 30_000;
const PING_MS = 30_000;

/** Has the node claim, and says what it came to, for a task of a kind. */
export type OnWork = (kind: string) => Promise<WorkAnswer["outcome"]>;

export interface Service {
  /** The next task, or null when none came in time. */
  claim(kinds: readonly string[], waitSeconds: number): Promise<ClaimedTask | null>;
  /** One try: the next heartbeat comes soon enough. */
  heartbeat(
    request: z.input<typeof HeartbeatRequest>,
  ): Promise<z.infer<typeof HeartbeatReply>["tasks"]>;
  /** One try; gives what is wanted of the task now. */
  progress(lease: Lease, progress: TaskReport): Promise<Verdict>;
  /** Tried until it is answered, or until `signal` says that nobody waits any more. */
  finish(lease: Lease, outcome: Outcome, signal: AbortSignal): Promise<void>;
  /** Where a task writes or reads an object. Tried like `finish`. */
  object(
    lease: Lease,
    request: ObjectRequest,
    signal: AbortSignal,
  ): Promise<WriteAddress | ObjectSource>;
  /** Keeps the direct line, on which the service asks for what somebody waits for. */
  line(work: Pick<LineOptions, "kinds" | "answer" | "onOpen">): Line;
  /**
   * Keeps a socket on which the service says that there is work of some kinds; returns the way to
   * close it.
   */
  listen(kinds: readonly string[], onWork: OnWork, onOpen: (open: boolean) => void): () => void;
}

export interface ServiceOptions {
  url: string;
  token: Secret;
  log: Log;
}

const addressOf = (url: string, path: string) => `${url}/api/v1/node/${path}`;

/** What is sent in one request. */
interface PostRequest {
  token?: Secret;
  body: unknown;
  timeoutMs?: number;
  signal?: AbortSignal;
}

/** One request and its parsed answer; those that get none are counted. */
async function post<Schema extends z.ZodType>(
  address: string,
  request: PostRequest,
  schema: Schema,
): Promise<z.output<Schema>> {
  try {
    return await send(address, request, schema);
  } catch (thrown) {
    const verb = address.split("/").at(-1) ?? "";
    if (thrown instanceof Unavailable) {
      tally.count("vantage_node_service_failures_total", { request: verb });
    }
    throw thrown;
  }
}

async function send<Schema extends z.ZodType>(
  address: string,
  request: PostRequest,
  schema: Schema,
): Promise<z.output<Schema>> {
  const limit = AbortSignal.timeout(request.timeoutMs ?? REQUEST_MS_MAX);
  let response: Response;
  let text: string;
  try {
    response = await fetch(address, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        ...(request.token ? { authorization: `Bearer ${request.token.reveal()}` } : {}),
      },
      body: JSON.stringify(request.body),
      redirect: "error",
      signal: request.signal ? AbortSignal.any([limit, request.signal]) : limit,
    });
    text = await response.text();
  } catch (thrown) {
    request.signal?.throwIfAborted();
    const cause = (thrown as Error).cause as { code?: string } | undefined;
    throw new Unavailable(`no answer (${cause?.code ?? (thrown as Error).name})`, null);
  }
  if (!response.ok) throw failureOf(response, text);
  const parsed = schema.safeParse(text === "" ? null : parseJson(text));
  // Such as the page of a proxy that answers for the service.
  if (!parsed.success) throw new Unavailable("an answer that is none of the service's", null);
  return parsed.data;
}

function failureOf(response: Response, text: string): Error {
  const { status } = response;
  const body = Body.safeParse(parseJson(text)).data ?? {};
  const { code = "", detail = "" } = body;
  if (status === 401) return new NodeRefusal(detail || "the node's token is not accepted");
  if (status === 409 && code === "lease_stale") {
    return new LeaseStale(Verdict.safeParse(body.verdict).data ?? "lost");
  }
  if (status >= 500 || status === 429 || status === 408) {
    const after = Number(response.headers.get("retry-after"));
    return new Unavailable(`status ${status} ${code}`, after > 0 ? after * 1_000 : null);
  }
  return new RequestRefusal(status, code, detail);
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Tries until there is an answer. */
async function persistently<Result>(
  log: Log,
  what: string,
  signal: AbortSignal | undefined,
  work: () => Promise<Result>,
): Promise<Result> {
  for (let attempt = 0; ; attempt++) {
    try {
      return await work();
    } catch (thrown) {
      if (!(thrown instanceof Unavailable)) throw thrown;
      if (attempt % 10 === 0) {
        log.warning("service_unavailable", { what, attempt, reason: thrown.message });
      }
      await pause(backoffMs(attempt, thrown.afterMs), signal);
    }
  }
}

/** Exchanges a one-time code for the node's identity. */
export function register(
  options: { url: string; code: Secret; name: string; capabilities: Capabilities; log: Log },
  signal?: AbortSignal,
): Promise<z.infer<typeof RegisteredNode>> {
  const { url, code, name, capabilities, log } = options;
  const body = { code: code.reveal(), name, capabilities };
  return persistently(log, "register", signal, () =>
    post(addressOf(url, "register"), { body }, RegisteredNode),
  ).catch((thrown: unknown) => {
    if (!(thrown instanceof RequestRefusal) || thrown.status !== 404) throw thrown;
    throw new Error(`there is no vision service at VANTAGE_URL, ${url}`, { cause: thrown });
  });
}

/** The service as a node speaks to it, with the token that its registration gave. */
export function connect({ url, token, log }: ServiceOptions): Service {
  return {
    claim: (kinds, waitSeconds) =>
      post(
        addressOf(url, "claim"),
        {
          token,
          body: { kinds, wait_seconds: waitSeconds },
          timeoutMs: REQUEST_MS_MAX + waitSeconds * 1_000,
        },
        ClaimedTask.nullable(),
      ),
    heartbeat: async (request) => {
      const reply = await post(
        addressOf(url, "heartbeat"),
        { token, body: request },
        HeartbeatReply,
      );
      return reply.tasks;
    },
    progress: async ({ taskId, fence }, progress) => {
      const body = { ...progress, fence };
      const address = addressOf(url, `tasks/${taskId}/progress`);
      return (await post(address, { token, body }, TaskReply)).verdict;
    },
    finish: async ({ taskId, fence }, outcome, signal) => {
      const body = { fence, outcome };
      const address = addressOf(url, `tasks/${taskId}/finish`);
      const { problem } = await persistently(log, "finish", signal, () =>
        post(address, { token, body, signal }, FinishReply),
      );
      if (problem) log.error("result_refused", { task_id: taskId, problem });
    },
    object: async ({ taskId, fence }, request, signal) => {
      const address = addressOf(url, `tasks/${taskId}/${request.what}`);
      const schema = request.what === "target" ? WriteAddress : ObjectSource;
      const body = { fence, ...bodyOf(request) };
      return persistently<WriteAddress | ObjectSource>(log, request.what, signal, () =>
        post(address, { token, body, signal }, schema),
      );
    },
    line: (work) => new Line({ url, token, log, ...work }),
    listen: (kinds, onWork, onOpen) => listen({ url, token, log, kinds }, onWork, onOpen),
  };
}

/** What a request for an object says, beside the fence. */
function bodyOf(request: ObjectRequest) {
  if (request.what === "source") return { key: request.key };
  const { written, bytes, md5 } = request;
  if ("key" in written) return { key: written.key, bytes, md5 };
  return { name: written.name, content_type: written.contentType, bytes, md5 };
}

/** Opens the socket again whenever it closes. A refused token shows at the next heartbeat. */
function listen(
  { url, token, log, kinds }: ServiceOptions & { kinds: readonly string[] },
  onWork: OnWork,
  onOpen: (open: boolean) => void,
): () => void {
  const end = new AbortController();
  let socket: WebSocket | undefined;
  const keep = async () => {
    for (let attempt = 0; !end.signal.aborted; attempt++) {
      const address = `${addressOf(url, "socket").replace(/^http/, "ws")}?kinds=${kinds.join(",")}`;
      socket = new WebSocket(address, {
        headers: { authorization: `Bearer ${token.reveal()}` },
        handshakeTimeout: REQUEST_MS_MAX,
        maxPayload: 64 * 1024,
        followRedirects: false,
      });
      const opened = await untilClosed(socket, onWork, onOpen);
      onOpen(false);
      if (opened) attempt = 0;
      else if (attempt % 10 === 0) log.info("socket_unavailable", { attempt });
      await pause(backoffMs(attempt + 1, null), end.signal);
    }
  };
  // It ends only by the abort that closing is.
  keep().catch(() => {});
  return () => {
    end.abort();
    socket?.terminate();
  };
}

/** Does what a message of the socket asks for; gives what is to be sent back. */
async function takeCall(text: string, onWork: OnWork): Promise<string | null> {
  try {
    const { call, kind } = WorkCall.parse(JSON.parse(text));
    const answer: WorkAnswer = { type: "answer", call, outcome: await onWork(kind) };
    return JSON.stringify(answer);
  } catch {
    // Whatever it says, it only saves waiting.
    return null;
  }
}

/** Resolves when the socket is gone, with whether it had been open. */
function untilClosed(
  socket: WebSocket,
  onWork: OnWork,
  onOpen: (open: boolean) => void,
): Promise<boolean> {
  return new Promise((resolve) => {
    let opened = false;
    let answered = true;
    const ping = setInterval(() => {
      // A peer that went away without a word answers no ping.
      if (!answered) socket.terminate();
      else if (opened) socket.send("ping");
      answered = !opened;
    }, PING_MS);
    socket.on("open", () => {
      opened = true;
      onOpen(true);
    });
    socket.on("message", (data) => {
      answered = true;
      const text = data.toString();
      if (text === "pong") return;
      void takeCall(text, onWork).then((answer) => {
        if (answer !== null && socket.readyState === WebSocket.OPEN) socket.send(answer);
      });
    });
    socket.on("error", () => {});
    socket.on("close", () => {
      clearInterval(ping);
      resolve(opened);
    });
  });
}
