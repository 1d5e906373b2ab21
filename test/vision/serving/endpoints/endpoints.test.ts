// Named endpoints over HTTP: made, changed, deleted, rolled back, and who may. Goal: what an
// endpoint serves is what its newest move says, every move is in the log, and each can be taken
// back.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { TASK_KINDS } from "../../../../shared/tasks/tasks.ts";
import { Endpoint, EndpointKey, EndpointMove } from "../../../../shared/wire/endpoints.ts";
import { type RegisteredModel, registerModel } from "../../../support/registered-model.ts";
import {
  colleague,
  type Person,
  register,
  type Script,
  scriptedNode,
} from "../../../support/scripted-node.ts";
import { newTenant, register as registerPerson } from "../../../support/vision.ts";
import { createWorld, type World } from "../../../support/world.ts";

const ABSENT = "00000000-0000-4000-8000-000000000000";

let world: World;
let admin: Person;
let engineer: Person;
let viewer: Person;
let workspaceId: string;
let one: RegisteredModel;
let two: RegisteredModel;
let slugs = 0;

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  admin = await register(world);
  engineer = await colleague(world, admin, "engineer");
  viewer = await colleague(world, admin, "viewer");
  const me = await admin.ok<{ workspaces: { workspace_id: string }[] }>("GET", "/auth/me");
  workspaceId = me.workspaces[0]?.workspace_id ?? "";
  one = await registerModel(world, workspaceId, { classes: ["disc", "star"] });
  two = await registerModel(world, workspaceId, { classes: ["disc"] });
});

const freshSlug = () => `gate-${++slugs}`;
const make = async (more: Record<string, unknown> = {}) => {
  const body = { slug: freshSlug(), models: [{ model_id: one.model_id }], ...more };
  return Endpoint.parse(await engineer.ok("POST", "/endpoints", body));
};
const read = async (slug: string) => Endpoint.parse(await viewer.ok("GET", `/endpoints/${slug}`));
const moves = async (slug: string) =>
  EndpointMove.array().parse(await viewer.ok("GET", `/endpoints/${slug}/moves`));
const change = async (slug: string, body: Record<string, unknown>) =>
  Endpoint.parse(await engineer.ok("PATCH", `/endpoints/${slug}`, body));
const rollBack = (slug: string) =>
  engineer.ok<{ endpoint: Endpoint; move: EndpointMove; skipped: number[] }>(
    ...(["POST", `/endpoints/${slug}/rollback`] as const),
  );
const promote = (model: RegisteredModel, alias: string) =>
  engineer.ok("POST", `/models/${model.model_id}/promote`, { alias });

/** Does something while a node warms models as the script says. */
async function warming<Result>(warm: NonNullable<Script["warm"]>, act: () => Promise<Result>) {
  const node = await scriptedNode(world, admin, { warm });
  const stop = node.start();
  try {
    return await act();
  } finally {
    await stop();
    await world.visionDatabase.execute(sql`UPDATE node SET revoked_at = now()`);
  }
}
const opens = () => ({ seconds: 0.1 });

describe("an endpoint", () => {
  it("is made with what it serves, listed, read, and deleted", async () => {
    const made = await make({
      description: "north",
      models: [
        { model_id: one.model_id, weight: 3 },
        { alias: "canary", weight: 1 },
      ],
      classes: ["disc"],
      confidence: 0.5,
      image_size: 320,
      shadow: { model_id: two.model_id, share: 0.5 },
    });
    expect(made).toMatchObject({
      workspace_id: workspaceId,
      settings: {
        description: "north",
        models: [
          { model_id: one.model_id, alias: null, weight: 3 },
          { model_id: null, alias: "canary", weight: 1 },
        ],
        classes: ["disc"],
        confidence: 0.5,
        image_size: 320,
        shadow: { model_id: two.model_id, alias: null, share: 0.5 },
      },
      serving: [one.model_id],
      shadowing: two.model_id,
      revision: 1,
    });
    expect(await read(made.slug)).toEqual(made);
    const all = Endpoint.array().parse(await viewer.ok("GET", "/endpoints"));
    expect(all).toContainEqual(made);
    expect(await viewer.ok("GET", `/endpoints?workspace_id=${workspaceId}`)).toEqual(all);
    expect(await viewer.refused("GET", `/endpoints?workspace_id=${ABSENT}`)).toEqual([
      404,
      "not_found",
    ]);
    expect((await engineer.send("DELETE", `/endpoints/${made.slug}`)).status).toBe(204);
    expect(await viewer.refused("GET", `/endpoints/${made.slug}`)).toEqual([404, "not_found"]);
    expect(await engineer.refused("DELETE", `/endpoints/${made.slug}`)).toEqual([404, "not_found"]);
  });

  it("follows an alias, and the active model", async () => {
    const { slug, serving } = await make({ models: [{ alias: "staging" }] });
    expect(serving).toEqual([]);
    await promote(one, "staging");
    expect((await read(slug)).serving).toEqual([one.model_id]);
    await promote(two, "staging");
    expect((await read(slug)).serving).toEqual([two.model_id]);
    const active = await make({ models: [{ alias: "active" }] });
    const database = world.visionDatabase;
    await database.execute(sql`UPDATE model SET active = true WHERE id = ${one.model_id}::uuid`);
    expect((await read(active.slug)).serving).toEqual([one.model_id]);
    await database.execute(sql`UPDATE model SET active = false`);
  });

  it.each<[string, Record<string, unknown>, [number, string]]>([
    ["no model", { models: [] }, [422, "invalid_request"]],
    ["neither id nor alias", { models: [{}] }, [422, "invalid_request"]],
    ["both", { models: [{ model_id: ABSENT, alias: "active" }] }, [422, "invalid_request"]],
    [
      "one alias twice",
      { models: [{ alias: "canary" }, { alias: "canary" }] },
      [422, "invalid_request"],
    ],
    ["no weight at all", { models: [{ alias: "canary", weight: 0 }] }, [422, "invalid_request"]],
    ["a negative weight", { models: [{ alias: "canary", weight: -1 }] }, [422, "invalid_request"]],
    ["a model of nobody's", { models: [{ model_id: ABSENT }] }, [404, "not_found"]],
    ["a shadow of nobody's", { shadow: { model_id: ABSENT } }, [404, "not_found"]],
    ["a share of nothing", { shadow: { alias: "canary", share: 0 } }, [422, "invalid_request"]],
    ["a class of no model", { classes: ["dise"] }, [422, "invalid_request"]],
    ["a size of 100", { image_size: 100 }, [422, "invalid_request"]],
    ["a confidence of 2", { confidence: 2 }, [422, "invalid_request"]],
    ["a slug with blanks", { slug: "a b" }, [422, "invalid_request"]],
    ["a slug that ends in a hyphen", { slug: "a-" }, [422, "invalid_request"]],
    ["another's workspace", { workspace_id: ABSENT }, [404, "not_found"]],
    ["a word of nobody's", { nonsense: 1 }, [422, "invalid_request"]],
  ])("is refused with %s", async (_, more, expected) => {
    const body = { slug: freshSlug(), models: [{ model_id: one.model_id }], ...more };
    expect(await engineer.refused("POST", "/endpoints", body)).toEqual(expected);
  });

  it("says which class was meant", async () => {
    const body = { slug: freshSlug(), models: [{ model_id: one.model_id }], classes: ["dise"] };
    const response = await engineer.send("POST", "/endpoints", body);
    const { detail } = (await response.json()) as { detail: string };
    expect(detail).toContain("did you mean disc?");
  });

  it("has a slug of its own in its workspace, of two at once too", async () => {
    const slug = freshSlug();
    const body = { slug, models: [{ model_id: one.model_id }] };
    const answers = await Promise.all(
      Array.from({ length: 4 }, () => engineer.send("POST", "/endpoints", body)),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 409, 409, 409]);
    expect(await moves(slug)).toHaveLength(1);
  });

  it("is told from another workspace's of the same slug by the workspace", async () => {
    const { slug } = await make();
    const made = await admin.ok<{ workspace_id: string }>("POST", "/admin/workspaces", {
      name: "second",
    });
    const second = made.workspace_id;
    const theirs = await registerModel(world, second);
    const mine = await admin.ok<Endpoint>("POST", "/endpoints", {
      slug,
      workspace_id: second,
      models: [{ model_id: theirs.model_id }],
    });
    expect(mine.workspace_id).toBe(second);
    const body = { slug: "either", models: [{ alias: "canary" }] };
    expect(await admin.refused("POST", "/endpoints", body)).toEqual([422, "invalid_request"]);
    expect(await admin.refused("GET", `/endpoints/${slug}`)).toEqual([422, "invalid_request"]);
    const of = (workspace: string) =>
      admin.ok<Endpoint>("GET", `/endpoints/${slug}?workspace_id=${workspace}`);
    expect((await of(second)).endpoint_id).toBe(mine.endpoint_id);
    expect((await of(workspaceId)).endpoint_id).not.toBe(mine.endpoint_id);
    // A model of the one is none of the other's.
    const foreign = { slug: "x", workspace_id: second, models: [{ model_id: one.model_id }] };
    expect(await admin.refused("POST", "/endpoints", foreign)).toEqual([404, "not_found"]);
    await admin.ok("DELETE", `/endpoints/${slug}?workspace_id=${second}`);
    expect((await admin.ok<Endpoint>("GET", `/endpoints/${slug}`)).workspace_id).toBe(workspaceId);
  });

  it("keeps the models that it names from being deleted, until it is gone", async () => {
    const spare = await registerModel(world, workspaceId);
    const { slug } = await make({ models: [{ model_id: spare.model_id }] });
    const remove = () => engineer.send("DELETE", `/models/${spare.model_id}`);
    expect((await remove()).status).toBe(409);
    await engineer.ok("DELETE", `/endpoints/${slug}`);
    expect((await remove()).status).toBe(204);
    // What it was cannot come back.
    expect(await engineer.refused("POST", `/endpoints/${slug}/rollback`)).toEqual([
      409,
      "state_conflict",
    ]);
  });

  it("is for engineers to change and for viewers to see", async () => {
    const { slug } = await make();
    const key = { name: "k" };
    const patch = { description: "x" };
    const models = [{ model_id: one.model_id }];
    for (const [method, path, body] of [
      ["POST", "/endpoints", { slug: "mine", models }],
      ["PATCH", `/endpoints/${slug}`, patch],
      ["DELETE", `/endpoints/${slug}`, undefined],
      ["POST", `/endpoints/${slug}/rollback`, undefined],
      ["POST", `/endpoints/${slug}/keys`, key],
      ["GET", `/endpoints/${slug}/keys`, undefined],
      ["DELETE", `/endpoints/${slug}/keys/${ABSENT}`, undefined],
    ] as const) {
      expect([path, await viewer.refused(method, path, body)]).toEqual([path, [403, "forbidden"]]);
    }
    expect(await read(slug)).toMatchObject({ slug, revision: 1 });
  });
});

describe("a change", () => {
  it("replaces what it names, is a move, and changes nothing twice", async () => {
    const { slug, settings } = await make({ classes: ["disc"] });
    const changed = await change(slug, { confidence: 0.7, classes: null });
    expect(changed.settings).toEqual({ ...settings, confidence: 0.7, classes: null });
    expect(changed.revision).toBe(2);
    expect((await change(slug, { confidence: 0.7 })).revision).toBe(2);
    expect(await moves(slug)).toMatchObject([
      { kind: "change", before: settings, after: changed.settings, actor_id: engineer.id },
      { kind: "create", before: null, after: settings, rollback_of: null },
    ]);
    const page = `/endpoints/${slug}/moves?limit=1&offset=1`;
    expect(await viewer.ok("GET", page)).toMatchObject([{ kind: "create" }]);
  });

  it("is of the revision that its maker saw, where one is named", async () => {
    const { slug } = await make();
    await change(slug, { revision: 1, confidence: 0.6 });
    const late = { revision: 1, confidence: 0.2 };
    const response = await engineer.send("PATCH", `/endpoints/${slug}`, late);
    expect(await response.json()).toMatchObject({ code: "revision_conflict", revision: 2 });
    expect(response.status).toBe(409);
    expect((await read(slug)).settings.confidence).toBe(0.6);
  });

  it("is not lost among others at once, each of them in the log", async () => {
    const { slug } = await make();
    const edits = [{ confidence: 0.9 }, { description: "a" }, { classes: ["disc"] }];
    await Promise.all(edits.map((edit) => change(slug, edit)));
    expect((await read(slug)).settings).toMatchObject(Object.assign({}, ...edits));
    expect(await moves(slug)).toHaveLength(4);
    expect((await read(slug)).revision).toBe(4);
  });

  it("to another model waits until a node has it open, and fails as that does", async () => {
    const { slug } = await make();
    const models = [{ model_id: two.model_id }];
    const ask = () => engineer.refused("PATCH", `/endpoints/${slug}`, { models });
    expect(await ask()).toEqual([503, "no_node"]);
    const spoilt = () => ({
      outcome: "failed" as const,
      code: "bad_weights",
      detail: "spoilt",
      retryable: false,
    });
    expect(await warming(spoilt, ask)).toEqual([502, "task_failed"]);
    expect((await read(slug)).serving).toEqual([one.model_id]);
    const changed = await warming(opens, () => change(slug, { models }));
    expect(changed.serving).toEqual([two.model_id]);
    // The way back is opened, too.
    expect(
      await warming(spoilt, () => engineer.refused("POST", `/endpoints/${slug}/rollback`)),
    ).toEqual([502, "task_failed"]);
    expect((await warming(opens, () => rollBack(slug))).endpoint.serving).toEqual([one.model_id]);
    // Where no node is there, none has to have it open.
    await warming(opens, () => change(slug, { models }));
    expect((await rollBack(slug)).endpoint.serving).toEqual([one.model_id]);
  });

  it("of the image size waits until a node has the model open at it", async () => {
    const { slug } = await make();
    const sizes: number[] = [];
    const noting: Script["warm"] = (task) => {
      sizes.push(TASK_KINDS.warm.payload.parse(task.payload).model.image_size);
      return opens();
    };
    const changed = await warming(noting, () => change(slug, { image_size: 320 }));
    expect([changed.settings.image_size, sizes]).toEqual([320, [320]]);
  });

  it("is in no way of classes that an alias does not have any more", async () => {
    await promote(one, "canary");
    const { slug } = await make({ models: [{ alias: "canary" }], classes: ["star"] });
    await promote(two, "canary");
    expect((await change(slug, { description: "later" })).settings.classes).toEqual(["star"]);
    const other = { classes: ["star", "disc"] };
    expect(await engineer.refused("PATCH", `/endpoints/${slug}`, other)).toEqual([
      422,
      "invalid_request",
    ]);
    await engineer.ok("DELETE", `/models/${two.model_id}/names/canary`);
  });

  it.each<[string, Record<string, unknown>]>([
    ["a class of no model", { classes: ["wheel"] }],
    ["neither id nor alias", { models: [{}] }],
    ["a shadow without a model", { shadow: { share: 1 } }],
    ["a revision of 0", { revision: 0 }],
    ["a slug", { slug: "another" }],
  ])("is refused with %s", async (_, body) => {
    const { slug } = await make();
    expect(await engineer.refused("PATCH", `/endpoints/${slug}`, body)).toEqual([
      422,
      "invalid_request",
    ]);
    expect((await read(slug)).revision).toBe(1);
  });
});

describe("a rollback", () => {
  it("leads one move further back each time, and ends at the beginning", async () => {
    const { slug } = await make({ confidence: 0.1 });
    await change(slug, { confidence: 0.2 });
    await change(slug, { confidence: 0.3 });
    const [third, second] = await moves(slug);
    const first = await rollBack(slug);
    expect(first.endpoint.settings.confidence).toBe(0.2);
    expect(first.move).toMatchObject({ kind: "rollback", rollback_of: third?.move_id });
    const again = await rollBack(slug);
    expect(again.endpoint.settings.confidence).toBe(0.1);
    expect(again.move.rollback_of).toBe(second?.move_id);
    const path = `/endpoints/${slug}/rollback`;
    expect(await engineer.refused("POST", path)).toEqual([409, "state_conflict"]);
    await change(slug, { confidence: 0.4 });
    expect((await rollBack(slug)).endpoint.settings.confidence).toBe(0.1);
    expect((await moves(slug)).map(({ kind }) => kind)).toEqual([
      "rollback",
      "change",
      "rollback",
      "rollback",
      "change",
      "change",
      "create",
    ]);
  });

  it("brings a deleted endpoint back, with its keys, unless its slug was taken", async () => {
    const { slug, endpoint_id } = await make();
    await engineer.ok("POST", `/endpoints/${slug}/keys`, { name: "k" });
    await engineer.ok("DELETE", `/endpoints/${slug}`);
    expect((await moves(slug)).map(({ kind }) => kind)).toEqual(["delete", "create"]);
    const { endpoint, move } = await rollBack(slug);
    expect(endpoint.endpoint_id).toBe(endpoint_id);
    expect(move).toMatchObject({ kind: "rollback", before: null, after: endpoint.settings });
    expect(await engineer.ok("GET", `/endpoints/${slug}/keys`)).toHaveLength(1);
    await engineer.ok("DELETE", `/endpoints/${slug}`);
    const body = { slug, models: [{ alias: "canary" }] };
    const taken = await engineer.ok<Endpoint>("POST", "/endpoints", body);
    expect(taken.endpoint_id).not.toBe(endpoint_id);
    // It is of the endpoint that is there, which was nothing before.
    const path = `/endpoints/${slug}/rollback`;
    expect(await engineer.refused("POST", path)).toEqual([409, "state_conflict"]);
    expect(await moves(slug)).toHaveLength(5);
  });

  it("passes over what leads back to models that were deleted, and says so", async () => {
    const spare = await registerModel(world, workspaceId);
    const { slug } = await make({ confidence: 0.1 });
    const replace = (body: Record<string, unknown>) => warming(opens, () => change(slug, body));
    await replace({ models: [{ model_id: spare.model_id }] });
    await replace({ models: [{ model_id: one.model_id }], confidence: 0.9 });
    await engineer.ok("DELETE", `/models/${spare.model_id}`);
    const [last] = await moves(slug);
    const { endpoint, skipped } = await rollBack(slug);
    expect(endpoint.settings).toMatchObject({ confidence: 0.1 });
    expect(skipped).toEqual([last?.move_id]);
  });

  it("of two at once takes back two moves, or tells one of the other", async () => {
    const { slug } = await make({ confidence: 0.1 });
    await change(slug, { confidence: 0.2 });
    const path = `/endpoints/${slug}/rollback`;
    const answers = await Promise.all([engineer.send("POST", path), engineer.send("POST", path)]);
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409]);
    expect((await read(slug)).settings.confidence).toBe(0.1);
  });
});

describe("keys", () => {
  it("are shown once, and then by how they begin", async () => {
    const { slug } = await make();
    const path = `/endpoints/${slug}/keys`;
    const made = await engineer.ok<EndpointKey & { key: string }>("POST", path, {
      name: " camera ",
      requests_per_minute: 120,
    });
    expect(made.key).toMatch(/^vek_[\w-]{32}$/);
    expect(made).toMatchObject({
      name: "camera",
      prefix: made.key.slice(0, 10),
      requests_per_minute: 120,
      burst: 20,
      revoked_at: null,
    });
    const other = await engineer.ok<EndpointKey>("POST", path, { name: "free" });
    expect(other).toMatchObject({ requests_per_minute: null, burst: null });
    const listed = EndpointKey.array().parse(await engineer.ok("GET", path));
    expect(listed.map(({ key_id }) => key_id)).toEqual([other.key_id, made.key_id]);
    expect(JSON.stringify(await engineer.ok("GET", path))).not.toContain(made.key);
    const { rows } = await world.visionDatabase.execute(sql`SELECT k::text FROM endpoint_key k`);
    expect(JSON.stringify(rows)).not.toContain(made.key.slice(10));
    expect(world.logs.join("\n")).not.toContain(made.key.slice(10));
  });

  it("are revoked once, and what is done with them is in the audit log", async () => {
    const { slug, endpoint_id } = await make();
    const path = `/endpoints/${slug}/keys`;
    const { key_id } = await engineer.ok<EndpointKey>("POST", path, { name: "k" });
    await engineer.ok("DELETE", `${path}/${key_id}`);
    expect(await engineer.refused("DELETE", `${path}/${key_id}`)).toEqual([404, "not_found"]);
    const [listed] = EndpointKey.array().parse(await engineer.ok("GET", path));
    expect([listed?.key_id, listed?.revoked_at === null]).toEqual([key_id, false]);
    const { rows } = await world.visionDatabase.execute<{ action: string }>(sql`
      SELECT action FROM audit_entry WHERE subject = ${`endpoint:${endpoint_id}`} ORDER BY id`);
    expect(rows.map(({ action }) => action)).toEqual(["makeEndpointKey", "revokeEndpointKey"]);
    const elsewhere = await make();
    const foreign = `/endpoints/${elsewhere.slug}/keys`;
    const { key_id: theirs } = await engineer.ok<EndpointKey>("POST", foreign, { name: "k" });
    expect(await engineer.refused("DELETE", `${path}/${theirs}`)).toEqual([404, "not_found"]);
  });

  it("are limited in number and by a burst only with a rate", async () => {
    const { slug, endpoint_id } = await make();
    const path = `/endpoints/${slug}/keys`;
    const burst = { name: "k", burst: 3 };
    expect(await engineer.refused("POST", path, burst)).toEqual([422, "invalid_request"]);
    await world.visionDatabase.execute(sql`
      INSERT INTO endpoint_key (id, endpoint_id, name, prefix, hash)
      SELECT gen_random_uuid(), ${endpoint_id}::uuid, 'k', 'vek_', decode(md5(n::text), 'hex')
        FROM generate_series(1, 100) n`);
    expect(await engineer.refused("POST", path, { name: "k" })).toEqual([409, "state_conflict"]);
  });
});

/** Of an endpoint that follows the active model. */
const SETTINGS = JSON.stringify({
  description: "",
  models: [{ model_id: null, alias: "active", weight: 1 }],
  classes: null,
  confidence: 0.25,
  image_size: null,
  shadow: null,
});

it("a tenant has a hundred endpoints at most", async () => {
  const tenant = await newTenant(world.urls.vision, await registerAdmin(), "engineer");
  await world.visionDatabase.execute(sql`
    INSERT INTO endpoint (id, workspace_id, slug, settings)
    SELECT gen_random_uuid(), ${tenant.workspaceId}::uuid, 'e' || n, ${SETTINGS}::jsonb
      FROM generate_series(1, 100) n`);
  const body = { slug: "one-more", models: [{ alias: "active" }] };
  const reply = await tenant.member.ask("POST", "/endpoints", body);
  expect([reply.status, reply.body.endpoints_max]).toEqual([409, 100]);
  // Nor does one come back by a rollback of its deletion.
  await tenant.member.ask("DELETE", "/endpoints/e1");
  expect((await tenant.member.ask("POST", "/endpoints", body)).status).toBe(201);
  expect((await tenant.member.ask("POST", "/endpoints/e1/rollback")).status).toBe(409);
});

/** An admin who makes workspaces, as `newTenant` takes one. */
async function registerAdmin() {
  const person = await registerPerson(world.urls.vision);
  await admin.ok("PATCH", `/admin/users/${person.id}`, {
    workspace_id: workspaceId,
    role: "admin",
  });
  await person.renew();
  return person;
}
