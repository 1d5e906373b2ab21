// Which model is active. Goal: only one that a node opened ever is, the one before serves until
// then, two at once leave one and both in the log, and the status says how things stand.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { TASK_KINDS } from "../../../../shared/tasks/tasks.ts";
import { ServeStatus } from "../../../../shared/wire/serving.ts";
import { Model } from "../../../../shared/wire/training.ts";
import { openModels } from "../../../support/nodes.ts";
import { type RegisteredModel, registerModel } from "../../../support/registered-model.ts";
import {
  colleague,
  type Person,
  register,
  type Script,
  type ScriptedNode,
  scriptedNode,
} from "../../../support/scripted-node.ts";
import { createWorld, type World } from "../../../support/world.ts";

let world: World;
let admin: Person;
let engineer: Person;
let viewer: Person;
let workspaceId: string;
let node: ScriptedNode;

const ABSENT = "00000000-0000-4000-8000-000000000000";

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  admin = await register(world);
  engineer = await colleague(world, admin, "engineer");
  viewer = await colleague(world, admin, "viewer");
  const me = await admin.ok<{ workspaces: { workspace_id: string }[] }>("GET", "/auth/me");
  workspaceId = me.workspaces[0]?.workspace_id ?? "";
});

const status = async (person = viewer) =>
  ServeStatus.parse(await person.ok("GET", `/serve/status?workspace_id=${workspaceId}`));

const active = async () => {
  const { rows } = await world.visionDatabase.execute<{ id: string }>(
    sql`SELECT id::text FROM model WHERE active AND workspace_id = ${workspaceId}::uuid`,
  );
  return rows.map(({ id }) => id);
};

const moves = async () => {
  const { rows } = await world.visionDatabase.execute(sql`
    SELECT from_model_id::text AS "from", to_model_id::text AS "to", rollback_of IS NOT NULL AS back,
      actor_id::text AS actor FROM model_move WHERE name = 'active' ORDER BY id`);
  return rows;
};

const activate = (model: { model_id: string }) =>
  engineer.send("POST", `/models/${model.model_id}/activate`);

/** Answers a request while the node works as the script says. */
async function working<Result>(script: Script, ask: () => Promise<Result>): Promise<Result> {
  node.script = script;
  const stop = node.start();
  try {
    return await ask();
  } finally {
    await stop();
  }
}

const code = async (response: Response) => [
  response.status,
  ((await response.json()) as { code: string }).code,
];

const opened: Script = { warm: () => ({ seconds: 0.1 }) };
const spoilt: Script = {
  warm: () => ({
    outcome: "failed",
    code: "bad_weights",
    detail: "the weights lack a",
    retryable: false,
  }),
};

describe("activating", () => {
  let first: RegisteredModel;
  let second: RegisteredModel;

  it("is refused while no node is there, and changes nothing", async () => {
    first = await registerModel(world, workspaceId);
    second = await registerModel(world, workspaceId, { classes: ["b", "a", "ü"] });
    const refused = await activate(first);
    expect(refused.headers.get("Retry-After")).toBe("5");
    expect(await code(refused)).toEqual([503, "no_node"]);
    expect(await active()).toEqual([]);
    expect(await status()).toMatchObject({
      health: "no_model",
      active_model: null,
      warm_up: "cold",
      nodes: { able: 0, warm: 0 },
    });
    expect(await viewer.refused("GET", "/serve/classes")).toEqual([409, "state_conflict"]);
    node = await scriptedNode(world, admin);
  });

  it("swaps only when a node has the model open", async () => {
    const seen: unknown[] = [];
    const script: Script = {
      warm: async (task) => {
        const { model } = TASK_KINDS.warm.payload.parse(task.payload);
        const weights = await (await fetch(model.weights.url)).arrayBuffer();
        expect(weights.byteLength).toBe(model.weights.bytes);
        seen.push([model.model_id, await active(), (await status()).warm_up]);
        return { seconds: 0.1 };
      },
    };
    const record = Model.parse(
      await working(script, () => engineer.ok("POST", `/models/${first.model_id}/activate`)),
    );
    expect(record).toMatchObject({ model_id: first.model_id, active: true });
    await working(script, () => engineer.ok("POST", `/models/${second.model_id}/activate`));
    expect(seen).toEqual([
      [first.model_id, [], "cold"],
      [second.model_id, [first.model_id], "cold"],
    ]);
    expect(await active()).toEqual([second.model_id]);
    expect(await viewer.ok("GET", "/serve/classes")).toEqual(["b", "a", "ü"]);
    const actor = engineer.id;
    expect(await moves()).toEqual([
      { from: null, to: first.model_id, back: false, actor },
      { from: first.model_id, to: second.model_id, back: false, actor },
    ]);
  });

  it("leaves the one before when the model cannot be opened, with the node's words", async () => {
    const refused = await working(spoilt, () => activate(first));
    expect(refused.status).toBe(502);
    expect(await refused.json()).toMatchObject({
      code: "task_failed",
      detail: "the weights lack a",
      node_code: "bad_weights",
    });
    expect(await active()).toEqual([second.model_id]);
    expect(await moves()).toHaveLength(2);
    expect(await status()).toMatchObject({ active_model: { model_id: second.model_id } });
  });

  it("of the active one opens it again and logs nothing", async () => {
    expect((await working(opened, () => activate(second))).status).toBe(200);
    expect(await moves()).toHaveLength(2);
  });

  it("by two at once ends with one, and both are in the log", async () => {
    const third = await registerModel(world, workspaceId);
    const answers = await working(opened, () => Promise.all([activate(first), activate(third)]));
    expect(answers.map((answer) => answer.status)).toEqual([200, 200]);
    const log = (await moves()).slice(2);
    expect(log.map(({ to }) => to).sort()).toEqual([first.model_id, third.model_id].sort());
    expect(log.map(({ from }) => from)).toEqual([second.model_id, log[0]?.to]);
    expect(await active()).toEqual([log[1]?.to]);
  });

  it("is refused for what is not the caller's, or no id", async () => {
    expect(await code(await activate({ model_id: ABSENT }))).toEqual([404, "not_found"]);
    expect(await code(await activate({ model_id: "none" }))).toEqual([422, "invalid_request"]);
    expect(await viewer.refused("POST", `/models/${first.model_id}/activate`)).toEqual([
      403,
      "forbidden",
    ]);
  });

  it("is taken back in one call, which opens the model first too", async () => {
    const [now = ""] = await active();
    const before = (await moves()).at(-1)?.from;
    const rollback = () => engineer.send("POST", "/models/rollback", { name: "active" });
    expect(await code(await working(spoilt, rollback))).toEqual([502, "task_failed"]);
    expect(await active()).toEqual([now]);
    expect((await working(opened, rollback)).status).toBe(200);
    expect(await active()).toEqual([before]);
    expect((await moves()).at(-1)).toEqual({
      from: now,
      to: before,
      back: true,
      actor: engineer.id,
    });
  });
});

describe("the status", () => {
  const beat = (loaded: string[], sides?: number[]) =>
    node.api.ok("POST", "/node/heartbeat", { tasks: [], ...openModels(loaded, sides) });

  it("says where the active model is open, is being opened, or could not be", async () => {
    const [modelId = ""] = await active();
    await beat([]);
    expect(await status()).toMatchObject({
      health: "ok",
      warm_up: "cold",
      failure: null,
      nodes: { able: 1, warm: 0 },
      active_model: { model_id: modelId, classes: ["disc", "square", "star"], image_size: 96 },
    });
    await beat([modelId, ABSENT]);
    expect(await status()).toMatchObject({ warm_up: "warm", nodes: { able: 1, warm: 1 } });
    // At another size it is to be opened first.
    await beat([modelId], [64]);
    expect(await status()).toMatchObject({ warm_up: "cold", nodes: { able: 1, warm: 0 } });
    await beat([modelId], [64, 96]);
    expect(await status()).toMatchObject({ warm_up: "warm", nodes: { able: 1, warm: 1 } });
    await beat([ABSENT]);
    const seen: string[] = [];
    const failing: Script = {
      warm: async (task) => {
        seen.push((await status()).warm_up);
        return spoilt.warm?.(task, node) ?? {};
      },
    };
    expect((await working(failing, () => activate({ model_id: modelId }))).status).toBe(502);
    expect(seen).toEqual(["warming"]);
    expect(await status()).toMatchObject({ warm_up: "failed", failure: "the weights lack a" });
    expect(await active()).toEqual([modelId]);
    const draining = { tasks: [], draining: true, ...openModels([modelId]) };
    await node.api.ok("POST", "/node/heartbeat", draining);
    expect(await status()).toMatchObject({ health: "no_node", nodes: { able: 0, warm: 0 } });
    await beat([]);
  });

  it("is of one's own workspaces only", async () => {
    for (const path of ["/serve/status", "/serve/classes"]) {
      expect(await viewer.refused("GET", `${path}?workspace_id=${ABSENT}`)).toEqual([
        404,
        "not_found",
      ]);
      expect(await viewer.refused("GET", `${path}?workspace_id=x`)).toEqual([
        422,
        "invalid_request",
      ]);
      expect((await viewer.send("GET", path)).status).toBe(200);
    }
  });

  it("is asked for by workspace where several have an active model", async () => {
    const other = await admin.ok<{ workspace_id: string }>("POST", "/admin/workspaces", {
      name: "another",
    });
    const { model_id } = await registerModel(world, other.workspace_id);
    await world.visionDatabase.execute(
      sql`UPDATE model SET active = true WHERE id = ${model_id}::uuid`,
    );
    expect(await admin.refused("GET", "/serve/status")).toEqual([422, "invalid_request"]);
    expect(await admin.refused("GET", "/serve/classes")).toEqual([422, "invalid_request"]);
    const own = await admin.ok("GET", `/serve/status?workspace_id=${other.workspace_id}`);
    expect(own).toMatchObject({ active_model: { model_id } });
  });
});
