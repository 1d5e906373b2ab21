// A database that takes connections and answers nothing, or whose tables somebody holds locked.
// Goal: whoever waits is told so in time, by every service; nothing is left over, and all goes on
// by itself once the database does.

import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import {
  ALIVE_MS,
  ANSWER_MS_MAX,
  HEALTH_MS_MAX,
  STATEMENT_MS_MAX,
} from "../../edge/http/database.ts";
import { superuser } from "../../edge/local/postgres.ts";
import { API } from "../../edge/vision/base/api.ts";
import { newCode } from "../../edge/vision/fleet/devices/enrolment.ts";
import { ErrorBody } from "../../shared/errors.ts";
import { Secret } from "../../shared/secret.ts";
import { MINUTE, systemClock } from "../../shared/time.ts";
import { someCookie } from "../support/browser-sessions.ts";
import { describeApi } from "../support/common-routes.ts";
import { type Cuttable, cuttable } from "../support/cuttable.ts";
import {
  BODIES,
  BY_BODY,
  everything,
  filled,
  type Ids,
  isOperatorsOwn,
} from "../support/everything.ts";
import { form, mp4 } from "../support/media.ts";
import { CAPABILITIES, registerTestNode } from "../support/nodes.ts";
import { beginTransaction, type Transaction } from "../support/transactions.ts";
import { newTenant, PASSWORD, type Person, register } from "../support/vision.ts";
import {
  commitHours,
  createWorld,
  onlySchedules,
  VISION_TOKEN_SECRET,
  type World,
} from "../support/world.ts";

/** What a caller waits at most, and one who asks for the health. */
const ANSWER_MS = 15_000;
const HEALTH_MS = 2_000;
/** Tries for an answer in time: a fault is late each time, a busy machine now and then. */
const TRIES_MAX = 5;
const FROM = Date.UTC(2026, 0, 10);

let way: Cuttable;
/** A text of a statement after which the database falls silent. */
let fatal: string | null = null;
let superuserClient: pg.Client;
let world: World;
let owner: Person;
/** The installation's own admin. */
let operator: Person;
/** Somebody whose session may end. */
let leaving: Person;
let nodeToken: string;
let ids: Ids;

beforeAll(async () => {
  const { endpointPort, port: postgresPort, credentials } = inject("postgres");
  superuserClient = new pg.Client(superuser(postgresPort, credentials.superuser));
  await superuserClient.connect();
  way = await cuttable(endpointPort, (bytes) => {
    if (fatal && bytes.includes(fatal)) way.hold();
  });
  const { port } = way;
  world = await createWorld({ endpointPort: port, writerPort: port, visionPort: port });
  await onlySchedules(world, []);
  await commitHours(world, "erco", FROM, [1, 2, 3]);
  operator = await register(world.urls.vision);
  const tenant = await newTenant(world.urls.vision, operator, "admin");
  owner = tenant.member;
  leaving = await register(world.urls.vision);
  ids = { ...(await everything(world, tenant)), queue_name: "label" };
  const node = await registerTestNode(world.urls.vision, operator);
  nodeToken = node.headers.Authorization ?? "";
});
afterAll(async () => {
  await superuserClient.end();
  await way.close();
});

interface Request {
  url: string;
  method: string;
  path: string;
  headers: Record<string, string>;
  body?: unknown;
}
interface Answer {
  request: string;
  status: number;
  code: string | undefined;
  retryAfter: string | null;
  ms: number;
}

async function send({ url, method, path, headers, body }: Request): Promise<Answer> {
  const started = performance.now();
  const isForm = body instanceof FormData;
  const response = await fetch(url + path, {
    method,
    headers: { ...headers, ...(isForm ? {} : { "Content-Type": "application/json" }) },
    body: method === "GET" ? null : isForm ? body : JSON.stringify(body ?? {}),
    redirect: "manual",
  });
  const text = await response.text();
  return {
    request: `${method} ${path}`,
    status: response.status,
    code: text.startsWith("{") ? ErrorBody.safeParse(JSON.parse(text)).data?.code : undefined,
    retryAfter: response.headers.get("Retry-After"),
    ms: performance.now() - started,
  };
}

const MARKETS = [
  "/libraries",
  "/symbols?library=power.demand",
  "/symbols/describe?library=power.demand",
  "/series?library=power.demand&symbol=erco",
  "/vintages?library=power.demand&symbol=erco",
  "/diff?library=power.demand&symbol=erco&from=2026-01-01",
  "/revisions?library=power.demand&symbol=erco",
  "/snapshots",
  "/changes",
  "/panel?library=power.demand&symbols=erco",
  "/curve?commodity=natural_gas",
];
const CONSOLE: readonly (readonly [string, unknown?])[] = [
  ["GET /api/jobs"],
  ["GET /api/jobs/grid_region/partitions"],
  ["GET /api/ticks"],
  ["GET /api/runs"],
  ["GET /api/backfills"],
  ["GET /api/alerts"],
  ["POST /api/runs", { job: "grid_region", partition: "2026-01-01" }],
  ["POST /api/snapshots", { name: "hung" }],
  ["PATCH /api/schedules/grid_region", { enabled: false }],
  ["GET /overview"],
  ["GET /runs"],
];
/** Bodies of routes that name nothing of a tenant. */
const MORE_BODIES: Record<string, object> = {
  "POST /auth/register": { email: "a@b.cd", password: PASSWORD, display_name: "A" },
  "POST /auth/login": { email: "a@b.cd", password: PASSWORD },
  "POST /auth/session": { email: "a@b.cd", password: PASSWORD },
  "POST /auth/refresh": { refresh_token: "x" },
  "POST /auth/password": { current_password: PASSWORD, new_password: `${PASSWORD}!` },
  "POST /auth/password-reset": { code: "x", password: PASSWORD },
  "POST /auth/tokens": { name: "hung", role: "viewer" },
  "POST /auth/me/delete": { password: "not the password" },
  "POST /admin/workspaces": { name: "hung" },
  "POST /admin/invitations": {},
  "POST /auth/invitation": { invitation: "x" },
  "POST /devices/enrol": {
    code: (await newCode({ tokenSecret: new Secret(VISION_TOKEN_SECRET), clock: systemClock }))
      .code,
    agent_version: "1",
    platform: "linux-x64",
    runtime: "none",
  },
  "POST /devices/{device_id}/heartbeat": {},
  "POST /devices/{device_id}/sync-logs": { boot_id: "boot", lines: [] },
  "POST /node/claim": { kinds: ["export"], wait_seconds: 0 },
  "POST /node/heartbeat": { tasks: [] },
  "POST /node/register": { code: "x", name: "x", capabilities: CAPABILITIES },
};
/** What devices do, with tokens of theirs. */
const OF_DEVICES =
  /\/devices\/\{device_id\}\/(manifest|artifact|heartbeat|token|sync-logs|images)$/;
/** Sockets, one that takes no JSON, and what no database is asked for. */
const OTHERS =
  /^(GET \/(progress|node\/(socket|line)|workflows\/blocks|link-videos)|POST \/(admin\/incidents\/test|train\/weights|workflows\/(check|import\/roboflow)))$/;

const marketsRequests = (): Request[] =>
  MARKETS.map((path) => ({ url: world.urls.markets, method: "GET", path, headers: {} }));

async function consoleRequests(): Promise<Request[]> {
  const url = world.urls.console;
  const login = await fetch(`${url}/login`, {
    method: "POST",
    headers: { Origin: url },
    body: new URLSearchParams({ token: world.operatorToken }),
    redirect: "manual",
  });
  const Cookie = (login.headers.get("Set-Cookie") ?? "").split(";")[0] ?? "";
  const headers = { Cookie, Authorization: `Bearer ${world.operatorToken}` };
  return CONSOLE.map(([route, body]) => {
    const [method = "", path = ""] = route.split(" ");
    return { url, method, path, headers, body };
  });
}

/** Every route of the vision service that says it may be 503, asked by one whom it lets in. */
async function visionRequests(): Promise<Request[]> {
  const { paths } = await describeApi(world.urls.vision);
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).flatMap(([verb, { responses = {} }]): Request[] => {
      const [method, own] = [verb.toUpperCase(), path.slice(API.length)];
      const route = `${method} ${own}`;
      if (!("503" in responses) || OTHERS.test(route)) return [];
      // A request may reach the database when it is back: what ends a session ends nobody's here.
      const byOperator = own.startsWith("/admin/incidents") || isOperatorsOwn(route);
      const person = byOperator ? operator : owner;
      // Nobody's account is deleted either.
      const named = isOperatorsOwn(route) ? {} : ids;
      const { tokens } = own.startsWith("/auth/") ? leaving : person;
      const user = own.startsWith("/node/") ? nodeToken : `Bearer ${tokens.access_token}`;
      const bearer = OF_DEVICES.test(own) ? "Bearer vdt_unheard-of" : user;
      return [
        {
          url: world.urls.vision,
          method,
          path: API + (filled(own, named) ?? own).replace(/\{\w+\}/g, () => randomUUID()),
          headers: { Authorization: bearer, Cookie: someCookie() },
          body: MORE_BODIES[route] ?? (BODIES[route] ?? BY_BODY[route])?.(ids),
        },
      ];
    }),
  );
}

async function everyRequest(): Promise<Request[]> {
  return [...marketsRequests(), ...(await consoleRequests()), ...(await visionRequests())];
}

/** Asks until an answer comes in time, a few times; gives it. */
async function inTime<One extends { ms: number }>(msMax: number, ask: () => Promise<One>) {
  let answer = await ask();
  for (let tries = 1; answer.ms >= msMax && tries < TRIES_MAX; tries++) answer = await ask();
  expect(answer.ms, JSON.stringify(answer)).toBeLessThan(msMax);
  return answer;
}

/**
 * Each answer is the declared 503, and came in time: hundreds at once also wait for each other, so
 * whoever waited longer is asked again alone.
 */
async function expectUnavailable(requests: readonly Request[], asked: Promise<Answer[]>) {
  const answers = await asked;
  const slow = requests.filter((_, index) => (answers[index]?.ms ?? 0) >= ANSWER_MS);
  for (const request of slow) await inTime(ANSWER_MS, () => send(request));
  const others = answers.filter(
    ({ status, code, retryAfter }) =>
      status !== 503 || retryAfter !== "5" || (code ?? "store_unavailable") !== "store_unavailable",
  );
  expect(others).toEqual([]);
}

async function healthOf(service: "markets" | "console" | "vision") {
  const started = performance.now();
  const response = await fetch(`${world.urls[service]}/healthz`);
  const body = (await response.json()) as Record<string, unknown>;
  return { ms: performance.now() - started, status: response.status, body };
}

/** How many statements of this world's services the database works on or holds back. */
async function underWay(): Promise<number> {
  const { rows } = await superuserClient.query(
    `SELECT 1 FROM pg_stat_activity
      WHERE state = 'active' AND pid <> pg_backend_pid() AND datname LIKE '%' || $1`,
    [world.databaseName.slice("markets".length)],
  );
  return rows.length;
}

it("is given up before a caller has to wait longer than is promised, by every limit", () => {
  expect(STATEMENT_MS_MAX).toBeLessThan(ANSWER_MS_MAX);
  // An edit that may take minutes learns of the silence by asking, which waits like others.
  expect(ALIVE_MS + ANSWER_MS_MAX).toBeLessThan(ANSWER_MS);
  expect(HEALTH_MS_MAX).toBeLessThan(HEALTH_MS);
});

describe("a database that answers nothing", () => {
  it("is 503 on every route of every service in time, and all go on when it does", async () => {
    const requests = await everyRequest();
    expect(requests.length).toBeGreaterThan(100);
    way.hold();
    for (const service of ["markets", "console", "vision"] as const) {
      const { status, body } = await inTime(HEALTH_MS, () => healthOf(service));
      expect([service, status, body.status]).toEqual([service, 200, "degraded"]);
      if (service !== "markets") expect(body.detail).toBe("the database does not answer");
    }
    const ticked = world.tick(systemClock() - (systemClock() % MINUTE));
    await expectUnavailable(requests, Promise.all(requests.map(send)));
    // The minute's event ends too, and says which duties had to wait.
    await ticked;
    const duties = world.logs.filter((line) => line.includes('"event":"duty"'));
    expect(duties.map((line) => (JSON.parse(line) as { duty: string }).duty)).toEqual(
      expect.arrayContaining(["heartbeat", "tasks"]),
    );
    way.mend();
    for (const service of ["markets", "console", "vision"] as const) {
      await expect.poll(async () => (await healthOf(service)).body.status).toBe("ok");
    }
    await expect.poll(underWay).toBe(0);
    const again = await Promise.all(marketsRequests().map(send));
    expect(again.filter(({ status }) => status >= 500)).toEqual([]);
    await world.tick(systemClock() - (systemClock() % MINUTE) + MINUTE);
    // What nobody waited for any more was not begun.
    expect((await owner.ask("GET", `/projects/${ids.project_id}`)).body.name).not.toBe("mine now");
  });
});

describe("a database that falls silent over a write", () => {
  it("is 503 in time, and the repeated request is not done a second time within its minute", async () => {
    let name = "";
    const make = async () => {
      const started = performance.now();
      const headers = { "Idempotency-Key": name };
      const { status, body } = await owner.ask("POST", "/projects", { name }, headers);
      return { ms: performance.now() - started, said: [status, body.code] };
    };
    const silent = await inTime(ANSWER_MS, async () => {
      name = randomUUID();
      fatal = "INSERT INTO project";
      const made = await make();
      fatal = null;
      way.mend();
      return made;
    });
    expect(silent.said).toEqual([503, "store_unavailable"]);
    expect((await make()).said).toEqual([409, "idempotency_conflict"]);
    const { rows } = await world.visionDatabase.execute(
      sql`SELECT 1 FROM project WHERE name = ${name}`,
    );
    // It was committed, though nobody heard of it.
    expect(rows).toHaveLength(1);
  });

  it("is 503 in time under an edit that may take minutes", async () => {
    const { said } = await inTime(ANSWER_MS, async () => {
      const copy = await owner.ask("POST", `/jobs/${ids.job_id}/duplicate`);
      fatal = "DELETE FROM job WHERE";
      const started = performance.now();
      const path = `/jobs/${String(copy.body.job_id)}`;
      const { status, body } = await owner.ask("DELETE", path);
      const ms = performance.now() - started;
      fatal = null;
      way.mend();
      return { ms, said: [status, body.code] };
    });
    expect(said).toEqual([503, "store_unavailable"]);
  });

  it("leaves a video whose record nobody heard of its bytes", async () => {
    fatal = "INSERT INTO video";
    const content = form(["project_id", ids.project_id ?? ""], { content: mp4() });
    const reply = await owner.ask("POST", "/upload", content);
    expect([reply.status, reply.body.code]).toEqual([503, "store_unavailable"]);
    fatal = null;
    way.mend();
    const { rows } = await world.visionDatabase.execute<{ key: string }>(sql`
      SELECT storage_key AS key FROM video WHERE id <> ${ids.video_id}::uuid`);
    expect(rows).toHaveLength(1);
    expect(await world.media.get(rows[0]?.key ?? "")).not.toBeNull();
  });
});

describe("tables that somebody holds locked", () => {
  /** Tables by which a caller is known: with these locked no route would come to its own. */
  const KEPT = "account|session|workspace|membership|node|attempt";
  const OF_THESE = new RegExp(`^${API}/(auth|admin|node/(register|heartbeat|tasks))`);

  async function lockAll(database: World["database"], but: string): Promise<Transaction> {
    const { rows } = await database.execute<{ name: string }>(sql`
      SELECT quote_ident(tablename) AS name FROM pg_tables
       WHERE schemaname = 'public' AND tablename !~ ${`^(${but})$`}`);
    const holder = await beginTransaction(database);
    await holder.query(`LOCK TABLE ${rows.map(({ name }) => name).join(", ")}`);
    return holder;
  }

  it("are 503 in time, and no statement goes on waiting for them", async () => {
    const vision = (await visionRequests()).filter(({ path }) => !OF_THESE.test(path));
    const requests = [...marketsRequests(), ...(await consoleRequests()), ...vision];
    const holders = [
      await lockAll(world.database, "none"),
      await lockAll(world.visionDatabase, KEPT),
    ];
    const asked = Promise.all(requests.map(send));
    await expect.poll(underWay).toBeGreaterThan(10);
    await expectUnavailable(requests, asked);
    await expect.poll(underWay).toBe(0);
    for (const holder of holders) await holder.commit();
    const again = await Promise.all(marketsRequests().map(send));
    expect(again.filter(({ status }) => status >= 500)).toEqual([]);
  });
});

it("names a database that is not there, and one that was not migrated, as the declared 503", async () => {
  const { port } = new URL(`http://127.0.0.1:${inject("postgres").endpointPort}`);
  const { credentials } = inject("postgres");
  const at = (database: string) =>
    `postgresql://vision_writer:${credentials.visionWriter}@127.0.0.1:${port}/${database}`;
  for (const [url, detail] of [
    [at("nowhere"), "the database is missing or was not migrated"],
    [at("postgres"), "the database is missing or was not migrated"],
    [at("postgres").replace(credentials.visionWriter, "wrong"), "does not let this service in"],
  ] as const) {
    const lost = await createWorld({
      environment: {
        markets: { DATABASE_URL: url },
        console: { DATABASE_URL: url },
        vision: { DATABASE_URL: url },
      },
    });
    const bearer = { Authorization: `Bearer ${lost.operatorToken}` };
    const { vision, markets, console } = lost.urls;
    const login = { email: "a@b.cd", password: "correct horse battery staple" };
    const requests = [
      { url: markets, method: "GET", path: "/libraries", headers: {} },
      { url: console, method: "GET", path: "/api/runs", headers: bearer },
      { url: vision, method: "POST", path: `${API}/auth/login`, headers: {}, body: login },
    ];
    await expectUnavailable(requests, Promise.all(requests.map(send)));
    for (const service of [vision, console]) {
      const health = await (await fetch(`${service}/healthz`)).json();
      expect(health).toMatchObject({ status: "degraded", detail: expect.stringContaining(detail) });
    }
  }
});
