// What every route has in common, by its own description: who may call it, a body that is no JSON
// is 400, an id that is none 422, a role that is too small 403, a database that is away 503. And
// statuses that only few routes have, each where it takes some doing.

import { randomUUID } from "node:crypto";
import { zipSync } from "fflate";
import { beforeAll, expect, it } from "vitest";
import { WebSocket } from "ws";
import { signAccess } from "../../edge/vision/auth/tokens.ts";
import { API } from "../../edge/vision/base/api.ts";
import { issueTicket } from "../../edge/vision/tasks/progress/tickets.ts";
import { ErrorBody } from "../../shared/errors.ts";
import { someCookie } from "../support/browser-sessions.ts";
import { describeApi } from "../support/common-routes.ts";
import {
  BODIES,
  BY_BODY,
  everything,
  filled,
  type Ids,
  isDevicesOwn,
  isOperatorsOwn,
} from "../support/everything.ts";
import { form, mp4, png } from "../support/media.ts";
import { CAPABILITIES, newGuest, tokenParts } from "../support/nodes.ts";
import { beginTransaction } from "../support/transactions.ts";
import { ask, newMember, newTenant, PASSWORD, type Person, register } from "../support/vision.ts";
import { createWorld, REFUSING_URL, type World } from "../support/world.ts";

let world: World;
let operator: Person;
let owner: Person;
let viewer: Person;
let ids: Ids;
let every: Route[];
/** Those whose caller is a member of a workspace. */
let routes: Route[];

beforeAll(async () => {
  world = await createWorld({
    services: ["vision"],
    environment: { vision: { UPLOAD_BYTES_MAX: "2000" } },
  });
  operator = await register(world.urls.vision);
  const tenant = await newTenant(world.urls.vision, operator, "admin");
  owner = tenant.member;
  viewer = await newMember(world.urls.vision, operator, tenant.workspaceId, "viewer");
  ids = await everything(world, tenant);
  const { paths } = (await describeApi(world.urls.vision)) as {
    paths: Record<string, Record<string, Operation>>;
  };
  every = Object.entries(paths)
    .filter(([path]) => path.startsWith(API))
    .flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, { description, responses, requestBody }]) => ({
        route: `${method.toUpperCase()} ${path.slice(API.length)}`,
        method: method.toUpperCase(),
        path: path.slice(API.length),
        statuses: Object.keys(responses).map(Number),
        needsRole:
          /`forbidden`/.test(responses[403]?.description ?? "") &&
          !/but no API token\.$/.test(description ?? ""),
        json: requestBody?.content["application/json"] !== undefined,
        bodyless: requestBody?.required === false,
        description: description ?? "",
      })),
    );
  routes = every.filter(
    ({ path }) => !/^\/(auth|node|progress)\b/.test(path) && !isDevicesOwn(path),
  );
});

interface Route {
  route: string;
  method: string;
  path: string;
  statuses: number[];
  /** Whether it refuses who lacks a role. */
  needsRole: boolean;
  json: boolean;
  /** Whether it takes a body that may be left out. */
  bodyless: boolean;
  description: string;
}

interface Operation {
  description?: string;
  responses: Record<string, { description: string }>;
  requestBody?: { required?: boolean; content: Record<string, unknown> };
}

const refusal = (reply: { status: number; body: unknown }) => [
  reply.status,
  ErrorBody.safeParse(reply.body).data?.code,
];
const nobodys = () => Object.fromEntries(Object.keys(ids).map((name) => [name, randomUUID()]));
/** A path whose every id is some id, for routes of the installation too. */
const somePath = (path: string) =>
  (filled(path, { ...nobodys(), ...ids }) ?? path).replace(/\{\w+\}/g, () => randomUUID());

it("answers 400 for a body that is no JSON", async () => {
  const taking = routes.filter(({ json, statuses }) => json && statuses.includes(400));
  expect(taking.length).toBeGreaterThan(15);
  for (const { route, method, path } of taking) {
    const headers = { "Content-Type": "application/json" };
    const reply = await owner.ask(method, somePath(path), "{not json", headers);
    expect([route, ...refusal(reply)]).toEqual([route, 400, "bad_body"]);
  }
});

it("takes an empty body for none where one may be left out, whatever its Content-Type", async () => {
  const taking = every.filter(({ bodyless }) => bodyless);
  const answers: string[] = [];
  for (const { route, method, path } of taking) {
    for (const type of ["application/json", "application/x-www-form-urlencoded", "text/plain"]) {
      const stranger = await register(world.urls.vision);
      const reply = await stranger.ask(method, somePath(path), "", { "Content-Type": type });
      answers.push(`${reply.status} ${route}`);
    }
  }
  expect(new Set(answers)).toEqual(
    new Set([
      "204 POST /auth/logout",
      "403 POST /admin/nodes/codes",
      "404 POST /datasets/{dataset_id}/versions/{version}/export",
      "404 POST /experiments/{experiment_id}/complete",
      "404 POST /jobs/{job_id}/export",
      "404 POST /train/{run_id}/resume",
      "404 POST /workflows/saved/{slug}/deploy",
    ]),
  );
});

it.each([
  ["/auth/login", {}],
  ["/auth/session", {}],
  ["/auth/refresh", {}],
  ["/auth/password", {}],
  ["/auth/logout", { everywhere: 3 }],
  ["/auth/tokens", { name: "x", role: "viewer", expires_in_days: 366 }],
  ["/auth/password-reset", {}],
  ["/auth/me/delete", {}],
])("%s answers 400 for a body that is no JSON, and 422 for a wrong one", async (path, wrong) => {
  const headers = { "Content-Type": "application/json" };
  const torn = await owner.ask("POST", path, "{not json", headers);
  expect(refusal(torn)).toEqual([400, "bad_body"]);
  expect(refusal(await owner.ask("POST", path, wrong))).toEqual([422, "invalid_request"]);
});

it("answers 422 for an id that is none", async () => {
  const named = routes.filter(
    ({ path, statuses }) => /\{\w+_id\}/.test(path) && statuses.includes(422),
  );
  expect(named.length).toBeGreaterThan(25);
  for (const { route, method, path } of named) {
    const bad = path.replace(/\{\w+_id\}/g, "none").replace(/\{\w+\}/g, "0.jpg");
    const body = BODIES[route]?.(ids) ?? (method === "GET" ? undefined : {});
    const person = isOperatorsOwn(route) ? operator : owner;
    const reply = await person.ask(method, bad, method === "DELETE" ? undefined : body);
    expect([route, ...refusal(reply)]).toEqual([route, 422, "invalid_request"]);
  }
});

/** Bodies that take names they do not know: the contract's, and nodes' of other releases. */
const OPEN = [
  /^POST \/auth\/(register|login|refresh)$/,
  /^POST \/node\//,
  /^POST \/(link-videos|label|label\/[\w-]+|annotations|annotations\/merge-classes)$/,
  /^PATCH \/(jobs\/\{job_id\}|annotations\/\{annotation_id\}|train\/\{run_id\})$/,
  /^POST \/jobs\/\{job_id\}\/(add-class|export)$/,
  /^POST \/train(\/\{run_id\}\/resume)?$/,
  /^POST \/models\/\{model_id\}\/promote$/,
  /^POST \/devices\/\{device_id\}\/(heartbeat|sync-logs)$/,
];

it("answers 422 for what a body of our own does not name", async () => {
  const own = every.filter(({ route, json }) => json && !OPEN.some((one) => one.test(route)));
  expect(own.length).toBeGreaterThan(10);
  for (const { route, method, path } of own) {
    const given = (BODIES[route] ?? BY_BODY[route])?.(ids) as object | undefined;
    const reply = await owner.ask(method, somePath(path), { ...given, nonsense: 1 });
    expect([route, ...refusal(reply)]).toEqual([route, 422, "invalid_request"]);
    expect(reply.body.detail).toContain("nonsense");
  }
});

it("answers 405 with the true Allow where a path of letters stands beside ids", async () => {
  const own = Map.groupBy(every, ({ path }) => path);
  const shape = (path: string) => path.split("/").length;
  const beside = [...own.keys()].filter(
    (path) =>
      !path.includes("{") &&
      [...own.keys()].some(
        (other) =>
          shape(other) === shape(path) &&
          new RegExp(`^${other.replace(/\{\w+\}/g, "[^/]+")}$`).test(path) &&
          other !== path,
      ),
  );
  expect(beside.length).toBeGreaterThan(3);
  for (const path of beside) {
    const declared = (own.get(path) ?? []).map(({ method }) => method);
    for (const method of ["GET", "POST", "PATCH", "PUT", "DELETE", "SEARCH"]) {
      if (declared.includes(method)) continue;
      // Whoever asks: the guard of the ids beside it does not come first.
      const nobody = await ask(world.urls.vision, method, path);
      for (const { status, headers } of [await owner.ask(method, path), nobody]) {
        const allow = (headers.get("Allow") ?? "")
          .split(", ")
          .filter((one) => !/^(HEAD|OPT)/.test(one));
        expect([method, path, status, allow.sort()]).toEqual([method, path, 405, declared.sort()]);
      }
    }
  }
});

it("answers 403 to a member whose role is too small, on every route that says so", async () => {
  const guarded = routes.filter(({ needsRole }) => needsRole);
  expect(guarded.length).toBeGreaterThan(25);
  for (const { route, method, path } of guarded) {
    const body = (BODIES[route] ?? BY_BODY[route])?.(ids);
    const needsBody = method !== "GET" && method !== "DELETE";
    const reply = await viewer.ask(method, somePath(path), body ?? (needsBody ? {} : undefined));
    expect([route, ...refusal(reply)]).toEqual([route, 403, "forbidden"]);
  }
});

it("says of every route who may call it, and names a role just where one is needed", () => {
  const role = /needs the role (annotator|engineer|admin)|for (annotators|engineers)\b/i;
  const others = /^(.* )?(For every member|For everybody|For GPU nodes|For edge devices|Open: )/s;
  expect(every.length).toBeGreaterThan(70);
  for (const { route, description, needsRole } of every) {
    const said = [role.test(description), others.test(description)];
    expect([route, ...said]).toEqual([route, needsRole, !needsRole]);
  }
});

it("answers 503 on every route while the database is away", async () => {
  const away = await createWorld({
    services: ["vision"],
    environment: { vision: { DATABASE_URL: REFUSING_URL } },
  });
  const claims = {
    accountId: randomUUID(),
    email: "a@b.c",
    sessionVersion: 1,
    session: randomUUID(),
  };
  const token = await signAccess(tokenParts, claims);
  const bodies: Record<string, object> = {
    "POST /auth/register": { email: "a@b.cd", password: PASSWORD, display_name: "A" },
    "POST /auth/login": { email: "a@b.cd", password: PASSWORD },
    "POST /auth/session": { email: "a@b.cd", password: PASSWORD },
    "POST /auth/refresh": { refresh_token: "x" },
    "POST /auth/password-reset": { code: "x", password: PASSWORD },
    "POST /node/register": { code: "x", name: "x", capabilities: CAPABILITIES },
    "POST /devices/enrol": { code: "x", agent_version: "x", platform: "x", runtime: "x" },
    "POST /devices/{device_id}/heartbeat": {},
  };
  const waiting = every.filter(
    ({ statuses, path }) => statuses.includes(503) && path !== "/progress",
  );
  expect(waiting.length).toBeGreaterThan(65);
  for (const { route, method, path } of waiting) {
    const isNodes = path.startsWith("/node/");
    const bearer = isNodes ? "vnt_none" : isDevicesOwn(path) ? "vdt_none" : token;
    const headers = { Authorization: `Bearer ${bearer}`, Cookie: someCookie() };
    const body = bodies[route];
    const reply = await ask(away.urls.vision, method, somePath(path), { body, headers });
    expect([route, ...refusal(reply)]).toEqual([route, 503, "store_unavailable"]);
  }
});

it("answers 503 to more listeners than a topic may have", async () => {
  const crowded = await createWorld({
    services: ["vision"],
    environment: { vision: { LISTENERS_MAX: "1" } },
  });
  const asked = { topic: `label:${randomUUID()}`, ...newGuest() };
  const listen = async () => {
    const { url } = await issueTicket(tokenParts, asked);
    return new Promise<number | undefined>((done) => {
      const socket = new WebSocket(new URL(url, crowded.urls.vision))
        .on("open", () => done(101))
        .on("error", () => {});
      socket.on("unexpected-response", (_, { statusCode }) => done(statusCode));
    });
  };
  expect([await listen(), await listen()]).toEqual([101, 503]);
});

it.each(["/upload/batch", "/upload/images"])("POST %s answers 400 and 422", async (path) => {
  const headers = { "Content-Type": "multipart/form-data; boundary=b" };
  expect(refusal(await owner.ask("POST", path, "no form", headers))).toEqual([400, "bad_body"]);
  const projectId: [string, string] = ["project_id", ids.project_id ?? ""];
  const empty = await owner.ask("POST", path, form(projectId));
  expect(refusal(empty)).toEqual([422, "invalid_request"]);
  // Whatever is wrong with each of the files is told of that file.
  const large = [{ content: mp4(2_001) }, { content: png(20_000, 20_000) }];
  const refused = await owner.ask("POST", path, form(projectId, ...large));
  expect(refusal(refused)).toEqual([422, "invalid_request"]);
  const failed = refused.body.failed as { code: string }[];
  expect(failed.map(({ code }) => code)).toContain("file_too_large");
});

it("POST /import/archive answers 400 for what is no form, and 413 for what is too large", async () => {
  const headers = { "Content-Type": "multipart/form-data; boundary=b" };
  const send = (body: unknown, more = {}) => owner.ask("POST", "/import/archive", body, more);
  expect(refusal(await send("no form", headers))).toEqual([400, "bad_body"]);
  const noise = Uint8Array.from({ length: 2_001 }, (_, at) => (at * 7_919) % 251);
  const large = { content: zipSync({ "x.txt": [noise, { level: 0 }] }), filename: "labels.zip" };
  const reply = await send(form(["project_id", ids.project_id ?? ""], large));
  expect(refusal(reply)).toEqual([413, "file_too_large"]);
});

it("GET /exports/{export_id}/download answers 409 and when to come, of what is being made", async () => {
  const reply = await owner.ask("GET", `/exports/${ids.export_id}/download`);
  expect(refusal(reply)).toEqual([409, "state_conflict"]);
  expect(reply.headers.get("Retry-After")).toBe("5");
});

it("POST /link-videos answers 413 for an object that is too large", async () => {
  const storage_key = `ws/${ids.workspace_id}/large.mp4`;
  await world.media.put(storage_key, mp4(2_001));
  const objects = [{ storage_key, filename: "large.mp4" }];
  const reply = await owner.ask("POST", "/link-videos", { project_id: ids.project_id, objects });
  expect(refusal(reply)).toEqual([413, "file_too_large"]);
});

it("POST /uploads answers 409 for an Idempotency-Key that came with another body", async () => {
  const headers = { "Idempotency-Key": randomUUID() };
  const begin = (bytes: number) => {
    const body = { project_id: ids.project_id, filename: "a.mp4", bytes };
    return owner.ask("POST", "/uploads", body, headers);
  };
  const first = await begin(100);
  expect(first.status).toBe(201);
  expect((await begin(100)).body.upload_id).toBe(first.body.upload_id);
  expect(refusal(await begin(101))).toEqual([409, "idempotency_conflict"]);
});

it("POST /auth/password answers 409 when another request changed it meanwhile", async () => {
  const person = await register(world.urls.vision);
  const other = await beginTransaction(world.visionDatabase);
  await other.query(`UPDATE account SET password_hash = 'another' WHERE id = '${person.id}'`);
  const change = person.ask("POST", "/auth/password", {
    current_password: PASSWORD,
    new_password: "a new long password",
  });
  await other.awaited();
  await other.commit();
  expect(refusal(await change)).toEqual([409, "state_conflict"]);
});
