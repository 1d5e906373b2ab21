// Two tenants cannot see each other. Walks every route of the service's own description that names
// something by id: for another tenant's id each answers the same 404 as for an id that is nobody's.
// A route without a fixture fails, so a new one cannot be forgotten.

import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { API } from "../../edge/vision/auth/parts.ts";
import { ErrorBody } from "../../shared/errors.ts";
import { describeApi } from "../support/common-routes.ts";
import { form, mp4 } from "../support/media.ts";
import { newTenant, type Person, register, type Tenant } from "../support/vision.ts";
import { createWorld, type World } from "../support/world.ts";

/** What of the first tenant the second one names, by the parameter it is named in. */
type Ids = Record<string, string>;

/** A body that passes validation, for routes that take one; `ids` are those of the first tenant. */
const BODIES: Record<string, (ids: Ids) => unknown> = {
  "PATCH /admin/users/{user_id}": () => ({ role: "viewer" }),
  "PATCH /projects/{project_id}": () => ({ name: "mine now" }),
  "POST /uploads/{upload_id}/parts": () => ({ parts: [{ part_number: 1, etag: "x" }] }),
  "POST /uploads/{upload_id}/complete": () => ({ parts: [] }),
  "POST /jobs/{job_id}/ticket": () => ({}),
  "PATCH /jobs/{job_id}": () => ({ name: "mine now" }),
  "POST /jobs/{job_id}/duplicate": () => ({}),
  "POST /jobs/{job_id}/add-class": () => ({ class: "mine" }),
  "POST /jobs/{job_id}/stop": () => ({}),
  "POST /jobs/{job_id}/resume": () => ({}),
  "POST /jobs/{job_id}/export": () => ({}),
  "POST /jobs/{job_id}/annotations/review": () => ({ accepted: true }),
  "PATCH /annotations/{annotation_id}": () => ({ accepted: true }),
  "POST /changes/{change_id}/undo": () => ({}),
};

/** Parameters that are no ids, with a value that exists. */
const PLAIN: Ids = { image: "0.jpg", class_name: "person" };

/** Routes of no tenant: nodes and queues are the installation's, for its nodes and its admins. */
const INSTALLATION = /^\/(node|admin\/(nodes|tasks|queue))\//;

/** Routes that name a project in their body. */
const BY_BODY: Record<string, (ids: Ids) => unknown> = {
  "POST /projects": ({ workspace_id }) => ({ name: "there", workspace_id }),
  "POST /upload": ({ project_id }) => form(["project_id", project_id ?? ""], { content: mp4() }),
  "POST /upload/batch": ({ project_id }) =>
    form(["project_id", project_id ?? ""], { content: mp4() }),
  "POST /upload/images": ({ project_id }) => form(["project_id", project_id ?? ""]),
  "POST /link-videos": ({ project_id }) => ({
    project_id,
    objects: [{ storage_key: "x", filename: "x" }],
  }),
  "POST /uploads": ({ project_id }) => ({ project_id, filename: "x", bytes: 1 }),
  "POST /label": ({ project_id, video_id }) => ({
    ...{ project_id, video_ids: [video_id], prompts: ["person"] },
  }),
  "POST /label/exemplar": ({ project_id, video_id }) => ({
    ...{ project_id, video_ids: [video_id] },
    exemplars: [{ frame_id: `${video_id}.0`, bbox: [1, 1, 2, 2] }],
  }),
  "POST /label/preview": ({ video_id }) => ({ frame_ids: [`${video_id}.0`], prompts: ["person"] }),
  "POST /label/segment-points": ({ video_id }) => ({
    ...{ frame_id: `${video_id}.0`, points: [{ x: 1, y: 1, label: 1 }] },
  }),
  "POST /annotations": ({ job_id, video_id }) => ({
    ...{ job_id, frame_id: `${video_id}.0`, class: "person", bbox: [1, 1, 2, 2] },
  }),
  "POST /annotations/merge-classes": ({ job_id }) => ({ job_id, from: "person", into: "car" }),
  "POST /import": ({ project_id }) => ({ project_id, yolo: LABELS }),
};

const LABELS = { names: ["person", "car"], labels: { film_000000: "0 0.5 0.5 0.2 0.2" } };

/** Routes that answer for their own caller's things only; read for leaks below. */
const LISTS = ["/projects", "/jobs", "/admin/users", "/admin/workspaces", "/auth/me"];

let world: World;
let first: Tenant;
let second: Person;
let ids: Ids;

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  const admin = await register(world.urls.vision);
  first = await newTenant(world.urls.vision, admin, "admin");
  second = (await newTenant(world.urls.vision, admin, "admin")).member;
  ids = await everything(first);
});

/** One of everything there is, of a tenant. */
async function everything({ workspaceId, member }: Tenant): Promise<Ids> {
  const project = await member.ask("POST", "/projects", { name: "theirs" });
  const project_id = String(project.body.project_id);
  const body = form(["project_id", project_id], { content: mp4() });
  const video_id = String((await member.ask("POST", "/upload", body)).body.video_id);
  const begun = { project_id, filename: "theirs.mp4", bytes: 100 };
  const upload_id = String((await member.ask("POST", "/uploads", begun)).body.upload_id);
  await world.visionDatabase.execute(sql`
    UPDATE video SET state = 'ready', frame_count = 2, width = 10, height = 10, time_base = '{1,10}',
      filename = 'film.mp4' WHERE id = ${video_id}::uuid`);
  const imported = await member.ask("POST", "/import", { project_id, yolo: LABELS });
  const job_id = String((imported.body.job as { job_id: string }).job_id);
  const { items } = (await member.ask("GET", `/jobs/${job_id}/annotations`)).body;
  const [{ annotation_id }] = items as [{ annotation_id: string }];
  await member.ask("PATCH", `/annotations/${annotation_id}`, { accepted: true });
  const changes = await member.ask("GET", `/jobs/${job_id}/changes`);
  const [{ change_id }] = changes.body as unknown as [{ change_id: string }];
  const export_id = randomUUID();
  await world.visionDatabase.execute(sql`
    INSERT INTO dataset_export (id, workspace_id, job_id, format, options, storage_key)
    VALUES (${export_id}::uuid, ${workspaceId}::uuid, ${job_id}::uuid, 'yolo', '{}', 'none')`);
  const own = { workspace_id: workspaceId, user_id: member.id, project_id, video_id, upload_id };
  return { ...own, job_id, annotation_id, change_id, export_id };
}

async function routesById() {
  const { paths } = await describeApi(world.urls.vision);
  return Object.entries(paths).flatMap(([path, methods]) =>
    path.includes("{") && path.startsWith(API) && !INSTALLATION.test(path.slice(API.length))
      ? Object.keys(methods).map((method) => ({
          method: method.toUpperCase(),
          path: path.slice(API.length),
        }))
      : [],
  );
}

/** The path with each parameter's value, or null for a parameter that has no fixture. */
function filled(path: string, values: Ids): string | null {
  let known = true;
  const full = path.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = PLAIN[name] ?? values[name];
    known &&= value !== undefined;
    return value ?? "";
  });
  return known ? full : null;
}

const snapshot = async () => {
  const { rows } = await world.visionDatabase.execute(sql`
    SELECT (SELECT jsonb_agg(p ORDER BY id) FROM project p) AS projects,
      (SELECT jsonb_agg(v ORDER BY id) FROM video v) AS videos,
      (SELECT jsonb_agg(u ORDER BY id) FROM upload u) AS uploads,
      (SELECT jsonb_agg(m ORDER BY workspace_id, account_id) FROM membership m) AS memberships`);
  return { rows, objects: (await world.media.list()).objects.map(({ key }) => key) };
};

describe("another tenant", () => {
  it("gets the same 404 for what is ours as for what is nobody's, on every route", async () => {
    const routes = await routesById();
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
        answers.push(detail);
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
  for (const { method, path } of await routesById()) {
    if (method !== "GET" || /frames|thumbnail|download/.test(path)) continue;
    const reply = await first.member.ask(method, filled(path, ids) ?? "");
    expect([path, reply.status]).toEqual([path, 200]);
  }
});
