// The registry in workerd: names move by a log that keeps everything, races leave one history, and
// the way back is one call, however often.

import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import { effectiveMoves } from "../../../edge/vision/base/history.ts";
import type { Parts } from "../../../edge/vision/base/parts.ts";
import {
  listMoves,
  moveName,
  namedModel,
  nameStepBack,
} from "../../../edge/vision/models/registry.ts";
import type { Outcome } from "../../../shared/tasks/node-protocol.ts";
import { ALIASES, Model, type ModelMove, type ModelName } from "../../../shared/wire/training.ts";
import {
  colleague,
  newProject,
  type Person,
  register,
  scriptedNode,
} from "../../support/scripted-node.ts";
import { trainedThings } from "../../support/trained-run.ts";
import { beginTransaction } from "../../support/transactions.ts";
import { createWorld, type World } from "../../support/world.ts";

let world: World;
let admin: Person;
let engineer: Person;
let workspaceId: string;
let models: string[];
let parts: Pick<Parts, "database">;

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  admin = await register(world);
  engineer = await colleague(world, admin, "engineer");
  parts = { database: world.visionDatabase };
  const project = await newProject(admin);
  workspaceId = project.workspace_id;
  const job = crypto.randomUUID();
  await world.visionDatabase.execute(sql`
    INSERT INTO job (id, workspace_id, project_id, name, kind, state, threshold, settings, ended_at)
    VALUES (${job}::uuid, ${workspaceId}::uuid, ${project.project_id}::uuid, 'j', 'manual',
      'completed', 0.5, '{}', now())`);
  const owner = { workspaceId, projectId: project.project_id, jobId: job };
  models = [];
  for (let count = 0; count < 8; count++) {
    models.push((await trainedThings(world, owner)).model_id);
  }
});

beforeEach(async () => {
  const { database } = parts;
  await database.execute(sql`DELETE FROM model_alias`);
  await database.execute(sql`DELETE FROM model_move`);
  await database.execute(sql`UPDATE model SET active = false`);
});

const at = (index: number) => models[index] as string;
const promote = (index: number, alias = "production") =>
  engineer.ok<{ model: Model; move: ModelMove | null }>("POST", `/models/${at(index)}/promote`, {
    alias,
  });
const rollback = (name: ModelName = "production") =>
  engineer.ok<{ model: Model; move: ModelMove; skipped: string[] }>("POST", "/models/rollback", {
    name,
  });
const move = (name: ModelName, index: number | null, more: object = {}) =>
  moveName(parts, {
    workspaceId,
    name,
    modelId: index === null ? null : at(index),
    actorId: null,
    ...more,
  });
const named = async (name: ModelName) =>
  (await namedModel(parts.database, workspaceId, name))?.modelId ?? null;
const log = (name?: ModelName) =>
  listMoves(parts.database, [workspaceId], { name, limit: 1_000, offset: 0 });

describe("promote", () => {
  it("moves an alias from model to model, and logs who did", async () => {
    const first = await promote(0);
    expect(Model.parse(first.model)).toMatchObject({ aliases: ["production"], active: false });
    await promote(0, "canary");
    const second = await promote(1);
    expect(second.move).toMatchObject({
      name: "production",
      from_model_id: at(0),
      to_model_id: at(1),
      rollback_of: null,
      actor_id: engineer.id,
    });
    expect((await promote(1)).move).toBeNull();
    expect((await engineer.ok<Model>("GET", `/models/${at(0)}`)).aliases).toEqual(["canary"]);
    const moves = await admin.ok<ModelMove[]>("GET", "/models/moves?name=production&limit=1");
    expect(moves).toEqual([second.move]);
    expect(await admin.ok("GET", "/models/moves")).toHaveLength(3);
    const list = await admin.ok<Model[]>("GET", "/models?alias=production");
    expect(list.map(({ model_id }) => model_id)).toEqual([at(1)]);
  });

  it.each([
    ["GET", "/models?alias=best", undefined],
    ["GET", "/models/moves?name=best", undefined],
    ["POST", "/models/rollback", { name: "best" }],
  ])("knows no other names: %s %s", async (method, path, body) => {
    expect(await admin.refused(method, path, body)).toEqual([422, "invalid_request"]);
  });

  it("refuses a name that is none, and viewers", async () => {
    const path = `/models/${at(0)}/promote`;
    expect(await admin.refused("POST", path, { alias: "best" })).toEqual([422, "invalid_request"]);
    const viewer = await colleague(world, admin, "viewer");
    expect(await viewer.refused("POST", path, { alias: "canary" })).toEqual([403, "forbidden"]);
    expect(await viewer.ok("GET", "/models")).toHaveLength(models.length);
  });

  it("takes a name away, and gives it back by a rollback", async () => {
    await promote(0);
    const path = `/models/${at(0)}/names/production`;
    expect((await engineer.send("DELETE", path)).status).toBe(204);
    expect(await named("production")).toBeNull();
    expect(await engineer.refused("DELETE", path)).toEqual([409, "state_conflict"]);
    expect((await rollback()).model.model_id).toBe(at(0));
  });
});

describe("rollback", () => {
  it("goes back one model at a call, further with each, and forward again", async () => {
    for (const index of [0, 1, 2, 3]) await promote(index);
    const moves = (await log("production")).toReversed();
    const back = await rollback();
    expect(back.move).toMatchObject({
      from_model_id: at(3),
      to_model_id: at(2),
      rollback_of: moves[3]?.move_id,
    });
    expect((await rollback()).model.model_id).toBe(at(1));
    await promote(4);
    expect((await rollback()).model.model_id).toBe(at(1));
    expect((await rollback()).model.model_id).toBe(at(0));
    const refused = await engineer.refused("POST", "/models/rollback", { name: "production" });
    expect(refused).toEqual([409, "state_conflict"]);
    // All of it is there still.
    expect(await log("production")).toHaveLength(9);
  });

  it("passes over models that were deleted, and says which", async () => {
    const extra = await extraModel();
    await promote(0);
    await engineer.ok("POST", `/models/${extra}/promote`, { alias: "production" });
    await promote(1);
    expect((await engineer.send("DELETE", `/models/${extra}`)).status).toBe(204);
    const back = await rollback();
    expect([back.model.model_id, back.skipped]).toEqual([at(0), [extra]]);
    const only = await extraModel();
    await engineer.ok("POST", `/models/${only}/promote`, { alias: "canary" });
    await promote(1, "canary");
    await engineer.send("DELETE", `/models/${only}`);
    const response = await engineer.send("POST", "/models/rollback", { name: "canary" });
    expect([response.status, await response.json()]).toMatchObject([
      409,
      { detail: expect.stringContaining("was deleted"), skipped: [only] },
    ]);
  });

  it("of the active model waits for a node that opens it", async () => {
    await move("active", 0);
    await move("active", 1);
    const noNode = await engineer.refused("POST", "/models/rollback", { name: "active" });
    expect(noNode).toEqual([503, "no_node"]);
    const broken = { outcome: "failed", code: "bad_weights", detail: "torn", retryable: false };
    const node = await scriptedNode(world, admin, { warm: () => broken as Outcome });
    const stop = node.start();
    const failed = await engineer.refused("POST", "/models/rollback", { name: "active" });
    expect(failed).toEqual([502, "task_failed"]);
    expect(await named("active")).toBe(at(1));
    node.script.warm = () => ({ seconds: 0.1 });
    expect((await rollback("active")).model).toMatchObject({ model_id: at(0), active: true });
    await stop();
  });

  it("loses to somebody who moved the name meanwhile", async () => {
    await move("staging", 0);
    await move("staging", 1);
    const { modelId, from, rollbackOf } = await nameStepBack(parts.database, {
      workspaceId,
      name: "staging",
    });
    await move("staging", 2);
    const late = moveName(parts, {
      workspaceId,
      name: "staging",
      modelId,
      from,
      rollbackOf,
      actorId: null,
    });
    await expect(late).rejects.toMatchObject({ code: "state_conflict" });
    expect(await named("staging")).toBe(at(2));
  });

  it("needs the workspace of whoever is an engineer of several", async () => {
    await admin.ok("POST", "/admin/workspaces", { name: "Another" });
    const body = { name: "production" };
    expect(await admin.refused("POST", "/models/rollback", body)).toEqual([422, "invalid_request"]);
    await promote(0);
    await promote(1);
    const own = await admin.ok("POST", "/models/rollback", { ...body, workspace_id: workspaceId });
    expect(own).toMatchObject({ model: { model_id: at(0) } });
  });
});

async function extraModel() {
  const model = await admin.ok<Model>("GET", `/models/${at(0)}`);
  const id = crypto.randomUUID();
  await world.media.put(`ws/${workspaceId}/${id}`, "x");
  await world.visionDatabase.execute(sql`
    INSERT INTO model (id, workspace_id, name, version, variant, task, classes, image_size,
      parameters, storage_key, bytes, sha256)
    VALUES (${id}::uuid, ${workspaceId}::uuid, ${`extra ${id}`}, 1, ${model.variant}, 'detection',
      '{a}', 640, 1, ${`ws/${workspaceId}/${id}`}, 1, 'ab')`);
  return id;
}

describe("moves at once", () => {
  it("leave one history, each from where the one before it led", async () => {
    await Promise.all(
      ([...ALIASES, "active"] as ModelName[]).flatMap((name) =>
        models.map((_, index) => move(name, index)),
      ),
    );
    for (const name of [...ALIASES, "active"] as ModelName[]) {
      const moves = (await log(name)).toReversed();
      expect(moves).toHaveLength(models.length);
      const from = moves.map(({ from_model_id }) => from_model_id);
      const to = moves.map(({ to_model_id }) => to_model_id);
      expect(from).toEqual([null, ...to.slice(0, -1)]);
      expect(await named(name)).toBe(to.at(-1));
    }
    const { rows } = await world.visionDatabase.execute(sql`
      SELECT count(*)::int AS active FROM model WHERE active`);
    expect(rows).toEqual([{ active: 1 }]);
  });

  it("with a deletion: the model is named or gone, never both", async () => {
    for (let times = 0; times < 6; times++) {
      const id = await extraModel();
      const [deleted, moved] = await Promise.all([
        engineer.send("DELETE", `/models/${id}`),
        moveName(parts, { workspaceId, name: "active", modelId: id, actorId: null }).catch(
          (failure: { code: string }) => failure.code,
        ),
      ]);
      const named_ = await named("active");
      if (deleted.status === 204) expect([moved, named_ === id]).toEqual(["not_found", false]);
      else expect([deleted.status, named_]).toEqual([409, id]);
    }
  });

  it("do not name a model of another workspace", async () => {
    const stranger = moveName(parts, {
      workspaceId,
      name: "canary",
      modelId: crypto.randomUUID(),
      actorId: null,
    });
    await expect(stranger).rejects.toMatchObject({ code: "not_found" });
    expect(await log("canary")).toEqual([]);
  });
});

describe("DELETE /models/{model_id}", () => {
  it("refuses a model that has a name, and says which", async () => {
    await promote(0);
    await move("active", 0);
    const response = await engineer.send("DELETE", `/models/${at(0)}`);
    expect([response.status, await response.json()]).toMatchObject([
      409,
      { detail: expect.stringContaining("it is active, production") },
    ]);
  });

  it("is not found by who comes second", async () => {
    const id = await extraModel();
    const holding = await beginTransaction(world.visionDatabase);
    await holding.query(`DELETE FROM model WHERE id = '${id}'`);
    const second = engineer.refused("DELETE", `/models/${id}`);
    await holding.awaited();
    await holding.commit();
    expect(await second).toEqual([404, "not_found"]);
  });
});

it("gives a model's weights under its name and version", async () => {
  const response = await engineer.send("GET", `/models/${at(0)}/weights`);
  expect(response.status).toBe(302);
  const address = response.headers.get("Location") ?? "";
  expect(await (await fetch(address)).text()).toBe("x");
  const saved = new URL(address).searchParams.get("response-content-disposition");
  expect(saved).toMatch(/^attachment; filename="model_of_.*-v1\.safetensors"/);
});

describe("the moves that stand", () => {
  const moves = (...given: (number | null)[]) =>
    given.map((rollbackOf, index) => ({ id: index + 1, rollbackOf }));
  it.each([
    [[], []],
    [
      [null, null, null],
      [1, 2, 3],
    ],
    [
      [null, null, null, 3],
      [1, 2],
    ],
    [[null, null, null, 3, 2], [1]],
    [
      [null, null, null, 3, null],
      [1, 2, 5],
    ],
    [[null, null, null, 2], [1]],
    [[null, null, 2, null, 4], [1]],
  ])("of %j are %j", (given, standing) => {
    expect(effectiveMoves(moves(...given)).map(({ id }) => id)).toEqual(standing);
  });
});
