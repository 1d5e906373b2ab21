// Two tenants cannot see each other. Walks every route of the service's own description that names
// something by id: for another tenant's id each answers the same 404 as for an id that is nobody's.
// A route without a fixture fails, so a new one cannot be forgotten.

import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { ErrorBody } from "../../shared/errors.ts";
import {
  BODIES,
  BY_BODY,
  everything,
  filled,
  type Ids,
  routesById,
} from "../support/everything.ts";
import { newTenant, type Person, register, type Tenant } from "../support/vision.ts";
import { createWorld, type World } from "../support/world.ts";

/** Routes that answer for their own caller's things only; read for leaks below. */
const LISTS = [
  ...["/projects", "/jobs", "/admin/users", "/admin/workspaces", "/auth/me", "/admin/audit"],
  "/auth/tokens",
  ...["/train", "/train/variants", "/train/weights", "/models", "/models/moves"],
  ...["/endpoints", "/metrics/summary", "/comparisons", "/experiments"],
  ...["/devices", "/devices/alerts", "/devices/settings", "/targets"],
  ...["/workflows/saved", "/workflows/secrets", "/workflows/deliveries", "/link-videos"],
];

let world: World;
let first: Tenant;
let second: Person;
let ids: Ids;

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  const admin = await register(world.urls.vision);
  first = await newTenant(world.urls.vision, admin, "admin");
  second = (await newTenant(world.urls.vision, admin, "admin")).member;
  ids = await everything(world, first);
});

const snapshot = async () => {
  const { rows } = await world.visionDatabase.execute(sql`
    SELECT (SELECT jsonb_agg(p ORDER BY id) FROM project p) AS projects,
      (SELECT jsonb_agg(v ORDER BY id) FROM video v) AS videos,
      (SELECT jsonb_agg(u ORDER BY id) FROM upload u) AS uploads,
      (SELECT jsonb_agg(c ORDER BY id) FROM annotation_comment c) AS comments,
      (SELECT jsonb_agg(e ORDER BY id) FROM endpoint e) AS endpoints,
      (SELECT jsonb_agg(k ORDER BY id) FROM endpoint_key k) AS endpoint_keys,
      (SELECT jsonb_agg(c ORDER BY id) FROM comparison c) AS comparisons,
      (SELECT jsonb_agg(s ORDER BY id) FROM comparison_session s) AS comparison_sessions,
      (SELECT jsonb_agg(x ORDER BY id) FROM experiment x) AS experiments,
      (SELECT jsonb_agg(d ORDER BY id) FROM device d) AS devices,
      (SELECT jsonb_agg(c ORDER BY hash) FROM device_code c) AS codes,
      (SELECT jsonb_agg(t ORDER BY id) FROM target t) AS targets,
      (SELECT jsonb_agg(f ORDER BY id) FROM workflow f) AS workflows,
      (SELECT jsonb_agg(f ORDER BY id) FROM workflow_version f) AS workflow_versions,
      (SELECT jsonb_agg(s ORDER BY id) FROM workflow_secret s) AS workflow_secrets,
      (SELECT jsonb_agg(m ORDER BY workspace_id, account_id) FROM membership m) AS memberships`);
  return { rows, objects: (await world.media.list()).objects.map(({ key }) => key) };
};

describe("another tenant", () => {
  it("gets the same 404 for what is ours as for what is nobody's, on every route", async () => {
    const routes = await routesById(world.urls.vision);
    expect(routes.length).toBeGreaterThan(10);
    const before = await snapshot();
    const nobodys = Object.fromEntries(Object.keys(ids).map((name) => [name, randomUUID()]));
    for (const { method, path } of routes) {
      const route = `${method} ${path}`;
      const answers: unknown[] = [];
      for (const values of [ids, nobodys]) {
        const full = filled(path, values);
        expect(full, `${route} has a parameter without a fixture`).not.toBeNull();
        const body = BODIES[route]?.(values);
        if (method !== "GET" && method !== "DELETE") {
          expect(body, `${route} has no body in BODIES`).toBeDefined();
        }
        const reply = await second.ask(method, full ?? "", body);
        const { code, detail } = ErrorBody.parse(reply.body);
        expect([route, reply.status, code]).toEqual([route, 404, "not_found"]);
        // What was asked for may be named, whosever it is.
        answers.push(String(detail).replaceAll(/[0-9a-f-]{36}/g, "<id>"));
      }
      expect([route, answers[0]]).toEqual([route, answers[1]]);
    }
    expect(await snapshot()).toEqual(before);
  });

  it.each(Object.keys(BY_BODY))("cannot name ours in a body either: %s", async (route) => {
    const [method = "", path = ""] = route.split(" ");
    const before = await snapshot();
    const reply = await second.ask(method, path, BY_BODY[route]?.(ids));
    expect([reply.status, reply.body.code]).toEqual([404, "not_found"]);
    expect(await snapshot()).toEqual(before);
  });

  it.each(LISTS)("finds nothing of ours in %s", async (path) => {
    const reply = await second.ask("GET", path);
    expect(reply.status).toBe(200);
    const text = JSON.stringify(reply.body);
    for (const [name, id] of Object.entries(ids))
      expect([name, text.includes(id)]).toEqual([name, false]);
  });
});

it("our own ids open every route that only reads, for ourselves", async () => {
  for (const { method, path } of await routesById(world.urls.vision)) {
    if (method !== "GET" || /frames|thumbnail|download/.test(path)) continue;
    const reply = await first.member.ask(method, filled(path, ids) ?? "");
    expect([path, reply.status]).toEqual([path, 200]);
  }
});
