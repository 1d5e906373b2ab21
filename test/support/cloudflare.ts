// A simulated account of Cloudflare: the calls that a deployment makes, over an account's state, in
// the paths, fields and error codes of API v4. What wrangler would upload arrives from its stand-in
// (`test/support/wrangler.ts`), under a path of its own.

import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";

/** A Worker that was uploaded. */
export interface DeployedWorker {
  secrets: Record<string, string>;
  variables: Record<string, string>;
  region: string | undefined;
}

/** What wrangler's stand-in tells of one run. */
export interface WranglerRun {
  args: string[];
  script: string;
  secrets: Record<string, string>;
  variables: Record<string, string>;
  region?: string;
  domain?: string;
}

/** An account's state; tests read and change it. */
export interface Account {
  token: string;
  tokenStatus: string;
  /** Paths that the token may not ask, as beginnings below the account. */
  forbidden: string[];
  buckets: Record<string, { cors: object[] | null; lifecycle: object[] }>;
  queues: string[];
  workers: Record<string, DeployedWorker>;
  zones: { id: string; name: string; status: string }[];
  /** Names that have a DNS record that is no Worker's. */
  records: string[];
  /** Custom domains, each with the Worker that has it. */
  domains: Record<string, string>;
}

/** A running simulation. */
export interface SimulatedCloudflare {
  url: string;
  accountId: string;
  account: Account;
  /** Calls that change something, and runs of wrangler, in their order. */
  changes: string[];
  runs: WranglerRun[];
  /** The next call whose method and path contain this text fails with 500. */
  failOnce: (text: string) => void;
  close: () => Promise<void>;
}

/** What a call answers: a result, or a status with a code of the API. */
type Answer = { result: unknown; pages?: number } | { status: number; code: number; told: string };

const DEFAULT_LIFECYCLE = {
  id: "Default Multipart Abort Rule",
  enabled: true,
  conditions: { prefix: "" },
  abortMultipartUploadsTransition: { condition: { type: "Age", maxAge: 604_800 } },
};
const QUEUES_A_PAGE = 2;

const absent = (code: number): Answer => ({ status: 404, code, told: "there is no such thing" });

/** A call, as the account answers it. */
interface Call {
  method: string;
  /** Below the account, without its beginning slash; of what lies outside, the whole path. */
  path: string;
  query: URLSearchParams;
  // Bodies differ by the call; each is taken as the client writes it.
  body: Record<string, unknown>;
}

function answerBucket(account: Account, { method, path, body }: Call): Answer | undefined {
  const [, , name = "", part] = path.split("/");
  if (method === "POST") {
    account.buckets[String(body.name)] = { cors: null, lifecycle: [DEFAULT_LIFECYCLE] };
    return { result: { name: body.name } };
  }
  const bucket = account.buckets[name];
  if (!bucket) return absent(10_006);
  if (part === undefined) return { result: { name } };
  // The client writes arrays of objects here.
  const rules = body.rules as object[];
  if (part === "cors") {
    if (method === "PUT") bucket.cors = rules;
    return bucket.cors ? { result: { rules: bucket.cors } } : absent(10_059);
  }
  if (part !== "lifecycle") return undefined;
  if (method === "PUT") bucket.lifecycle = rules;
  return { result: { rules: bucket.lifecycle } };
}

function answerWorker(account: Account, { path }: Call): Answer | undefined {
  const [, , script = "", part] = path.split("/");
  const worker = account.workers[script];
  if (!worker) return absent(10_007);
  const secrets = Object.keys(worker.secrets).map((name) => ({ name, type: "secret_text" }));
  if (part === "secrets") return { result: secrets };
  if (part !== "settings") return undefined;
  const variables = Object.entries(worker.variables).map(([name, text]) => ({
    type: "plain_text",
    name,
    text,
  }));
  const placement = worker.region ? { mode: "targeted", region: worker.region } : undefined;
  return { result: { bindings: [...secrets, ...variables], placement } };
}

function answerQueues(account: Account, { method, query, body }: Call): Answer {
  if (method === "POST") {
    account.queues.push(String(body.queue_name));
    return { result: { queue_id: "1", queue_name: body.queue_name } };
  }
  const first = (Number(query.get("page")) - 1) * QUEUES_A_PAGE;
  const shown = account.queues.slice(first, first + QUEUES_A_PAGE);
  return {
    result: shown.map((name) => ({ queue_id: name, queue_name: name })),
    pages: Math.ceil(account.queues.length / QUEUES_A_PAGE),
  };
}

function answerCall(account: Account, call: Call): Answer | undefined {
  const { path, query } = call;
  if (path === "/user/tokens/verify") return { result: { status: account.tokenStatus } };
  if (path === "/zones") {
    return { result: account.zones.filter(({ name }) => name === query.get("name")) };
  }
  if (path.startsWith("/zones/")) {
    return { result: account.records.filter((name) => name === query.get("name")).map(named) };
  }
  if (path === "") return { result: { name: "Northern Power" } };
  if (path.startsWith("r2/buckets")) return answerBucket(account, call);
  if (path === "queues") return answerQueues(account, call);
  if (path.startsWith("workers/scripts/")) return answerWorker(account, call);
  if (path === "workers/subdomain") return { result: { subdomain: "northern" } };
  if (path !== "workers/domains") return undefined;
  const found = Object.entries(account.domains).filter(([name]) => name === query.get("hostname"));
  return { result: found.map(([hostname, service]) => ({ hostname, service })) };
}
const named = (name: string) => ({ name });

function upload(account: Account, run: WranglerRun) {
  const before = account.workers[run.script];
  account.workers[run.script] = {
    secrets: { ...before?.secrets, ...run.secrets },
    variables: { ...before?.variables, ...run.variables },
    region: run.region,
  };
  if (run.domain) account.domains[run.domain] = run.script;
}

async function bodyOf(request: IncomingMessage): Promise<Record<string, unknown>> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  const text = Buffer.concat(chunks).toString();
  return text === "" ? {} : JSON.parse(text);
}

/** Starts an account that holds nothing but an active zone, example.com. */
export async function simulateCloudflare(token: string): Promise<SimulatedCloudflare> {
  const accountId = "0123456789abcdef0123456789abcdef";
  const account: Account = {
    token,
    tokenStatus: "active",
    forbidden: [],
    buckets: {},
    queues: [],
    workers: {},
    zones: [{ id: "zone1", name: "example.com", status: "active" }],
    records: [],
    domains: {},
  };
  const changes: string[] = [];
  const runs: WranglerRun[] = [];
  let failing: string | undefined;
  const server = createServer(async (request, response) => {
    const { method = "" } = request;
    const url = new URL(request.url ?? "", "http://api");
    const body = await bodyOf(request);
    const send = (status: number, reply: object) => {
      response.writeHead(status, { "Content-Type": "application/json" });
      response.end(JSON.stringify(reply));
    };
    const fail = (status: number, code: number, message: string) =>
      send(status, { success: false, errors: [{ code, message }], result: null });
    if (url.pathname === "/wrangler") {
      // The stand-in writes this form.
      const run = body as unknown as WranglerRun;
      changes.push(`wrangler ${run.script}`);
      runs.push(run);
      upload(account, run);
      return send(200, {});
    }
    const path = url.pathname.replace(new RegExp(`^/accounts/${accountId}/?`), "");
    if (request.headers.authorization !== `Bearer ${account.token}`) {
      return fail(401, 10_000, "Authentication error");
    }
    if (account.forbidden.some((beginning) => path.startsWith(beginning))) {
      return fail(403, 10_000, "Authentication error");
    }
    if (failing !== undefined && `${method} ${path}`.includes(failing)) {
      failing = undefined;
      return fail(500, 10_001, "Unable to process your request");
    }
    const answer = answerCall(account, { method, path, query: url.searchParams, body });
    if (!answer) return fail(404, 7_003, "no route for that URI");
    if ("code" in answer) return fail(answer.status, answer.code, answer.told);
    if (method !== "GET") changes.push(`${method} ${path}`);
    const pages = { total_pages: answer.pages ?? 1 };
    return send(200, { success: true, errors: [], result: answer.result, result_info: pages });
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  return {
    // A TCP server that listens has such an address.
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    accountId,
    account,
    changes,
    runs,
    failOnce: (text) => {
      failing = text;
    },
    close: () =>
      new Promise((closed) => {
        server.close(() => closed());
        server.closeAllConnections();
      }),
  };
}
