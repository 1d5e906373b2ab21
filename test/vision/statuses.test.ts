// What every route has in common, by its own description: a body that is no JSON is 400, an id that
// is none 422, a role that is too small 403, a database that is away 503.

import { randomUUID } from "node:crypto";
import { beforeAll, expect, it } from "vitest";
import { API } from "../../edge/vision/auth/parts.ts";
import { signAccess } from "../../edge/vision/auth/tokens.ts";
import { ErrorBody } from "../../shared/errors.ts";
import { describeApi } from "../support/common-routes.ts";
import { BODIES, BY_BODY, everything, filled, type Ids } from "../support/everything.ts";
import { tokenParts } from "../support/nodes.ts";
import { newMember, newTenant, type Person, register } from "../support/vision.ts";
import { createWorld, REFUSING_URL, type World } from "../support/world.ts";

let world: World;
let owner: Person;
let viewer: Person;
let ids: Ids;
let routes: { route: string; method: string; path: string; statuses: number[]; json: boolean }[];

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  const admin = await register(world.urls.vision);
  const tenant = await newTenant(world.urls.vision, admin, "admin");
  owner = tenant.member;
  viewer = await newMember(world.urls.vision, admin, tenant.workspaceId, "viewer");
  ids = await everything(world, tenant);
  const { paths } = (await describeApi(world.urls.vision)) as {
    paths: Record<string, Record<string, Operation>>;
  };
  routes = Object.entries(paths)
    .filter(([path]) => path.startsWith(API) && !/\/(auth|node|progress)\b/.test(path))
    .flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, { responses, requestBody }]) => ({
        route: `${method.toUpperCase()} ${path.slice(API.length)}`,
        method: method.toUpperCase(),
        path: path.slice(API.length),
        statuses: Object.keys(responses).map(Number),
        json: requestBody?.content["application/json"] !== undefined,
      })),
    );
});

interface Operation {
  responses: Record<string, unknown>;
  requestBody?: { content: Record<string, unknown> };
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

it.each([
  ["/auth/login", {}],
  ["/auth/refresh", {}],
  ["/auth/password", {}],
  ["/auth/logout", { everywhere: 3 }],
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
    const reply = await owner.ask(method, bad, method === "DELETE" ? undefined : body);
    expect([route, ...refusal(reply)]).toEqual([route, 422, "invalid_request"]);
  }
});

it("answers 403 to a member whose role is too small, on every route that says so", async () => {
  const guarded = routes.filter(({ statuses }) => statuses.includes(403));
  expect(guarded.length).toBeGreaterThan(25);
  for (const { route, method, path } of guarded) {
    const body = (BODIES[route] ?? BY_BODY[route])?.(ids);
    const needsBody = method !== "GET" && method !== "DELETE";
    const reply = await viewer.ask(method, somePath(path), body ?? (needsBody ? {} : undefined));
    expect([route, ...refusal(reply)]).toEqual([route, 403, "forbidden"]);
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
  const waiting = routes.filter(({ statuses }) => statuses.includes(503));
  expect(waiting.length).toBeGreaterThan(50);
  for (const { route, method, path } of waiting) {
    const response = await fetch(away.urls.vision + API + somePath(path), {
      method,
      headers: { Authorization: `Bearer ${token}` },
    });
    const { code } = ErrorBody.parse(await response.json());
    expect([route, response.status, code]).toEqual([route, 503, "store_unavailable"]);
  }
});
