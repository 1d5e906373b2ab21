// Segmenters that steps name. Goal: a run goes to a node that has them all, whoever else is there;
// a name that no node has is refused at its step before anything runs; and a clip whose segmenter
// went away with its node does not wait for ever.

import { sql } from "drizzle-orm";
import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { RunAnswer, VideoRun } from "../../../edge/vision/workflows/runs/bodies.ts";
import type { Capabilities } from "../../../shared/tasks/node-protocol.ts";
import type { WorkflowStepReport } from "../../../shared/tasks/workflow-task.ts";
import type { WorkflowDefinition } from "../../../shared/workflow/definition.ts";
import { type LineEnd, lineNode, openLineEnd } from "../../support/line-end.ts";
import { form, mp4, png } from "../../support/media.ts";
import { CAPABILITIES } from "../../support/nodes.ts";
import { createWorkflowWorld, type WorkflowWorld } from "../../support/workflow-world.ts";

let w: WorkflowWorld;
const ends: LineEnd[] = [];
beforeAll(async () => {
  w = await createWorkflowWorld();
});
beforeEach(async () => {
  await w.world.visionDatabase.execute(sql`UPDATE node SET revoked_at = now()`);
});
afterEach(() => {
  for (const { socket } of ends.splice(0)) socket.terminate();
});

const image = `data:image/png;base64,${Buffer.from(png(64, 48)).toString("base64")}`;
/** Counts what the named segmenters find, one step each; without a name it is the node's own. */
const finding = (...segmenters: (string | undefined)[]): WorkflowDefinition => ({
  version: "1.0",
  inputs: [{ name: "image", kind: "image" }],
  steps: segmenters.map((segmenter, index) => ({
    id: `find_${index}`,
    type: "segmenter@1",
    parameters: { image: "$inputs.image", prompts: ["car"], ...(segmenter && { segmenter }) },
  })),
  outputs: segmenters.map((_, index) => ({
    name: `count_${index}`,
    value: `$steps.find_${index}.count`,
  })),
});

const segmentersOf = (names: readonly string[]): Capabilities["segmenters"] =>
  names.map((name) => ({
    name,
    title: name,
    text: "open",
    vocabulary: [],
    meanings: {},
    exemplar: "none",
    licence: "none",
  }));

interface SegmentingNode {
  name: string;
  /** Runs that it was asked for. */
  asks: number;
  /** What its steps say of the models that answered. */
  models: WorkflowStepReport["models"];
}

/** Opens a node that has some segmenters, and finds two objects by each. */
async function openNode(name: string, segmenters: readonly string[]): Promise<SegmentingNode> {
  const own: SegmentingNode = { name, asks: 0, models: [] };
  const identity = await lineNode(w.world, w.admin, {
    name,
    capabilities: {
      ...CAPABILITIES,
      kinds: ["workflow", "workflow_video"],
      segmenters: segmentersOf(segmenters),
    },
  });
  const end = await openLineEnd(w.world, identity, {
    kind: "workflow",
    hear: (line, frame) => {
      if (frame.kind !== "workflow_ask") return;
      line.send({ kind: "read", value: frame.payload.length });
      if (!frame.last) return;
      own.asks += 1;
      const step = { step: "find_0", type: "segmenter@1", elements: 1, masked: 0, cache_hits: 0 };
      const steps = [{ ...step, ms: 1, warnings: [], models: own.models }];
      const said = { failure: null, outputs: { count_0: 2 }, steps, effects: [], state: {} };
      line.answer(frame.id, { ...said, seconds: 0.1 });
    },
  });
  ends.push(end);
  return own;
}

const run = async (definition: WorkflowDefinition) =>
  RunAnswer.parse(
    await w.engineer.ok("POST", `/workflows/run?workspace_id=${w.workspaceId}`, {
      definition,
      inputs: { image },
    }),
  );
async function refused(method: string, path: string, body?: object) {
  const response = await w.engineer.send(method, path, body);
  const said = (await response.json()) as Record<string, unknown>;
  return { ...said, status: response.status };
}
const asking = (definition: WorkflowDefinition) =>
  refused("POST", `/workflows/run?workspace_id=${w.workspaceId}`, {
    definition,
    inputs: { image },
  });
const silence = () =>
  w.world.visionDatabase.execute(
    sql`UPDATE node SET last_heartbeat_at = last_heartbeat_at - interval '1 day'`,
  );
const startClip = async (definition: WorkflowDefinition) => {
  const body = form({ content: mp4() }, ["definition", JSON.stringify(definition)]);
  const path = `/workflows/run/video?workspace_id=${w.workspaceId}&wait_seconds=0`;
  return VideoRun.parse(await w.engineer.ok("POST", path, body));
};

describe("a step that names a segmenter", () => {
  it("has its run go to a node that has it, whoever else is there", async () => {
    const [other, own] = [await openNode("other", ["small"]), await openNode("own", ["large"])];
    for (let time = 0; time < 6; time++) await run(finding("large"));
    expect([other.asks, own.asks]).toEqual([0, 6]);
    await run(finding("small"));
    expect([other.asks, own.asks]).toEqual([1, 6]);
  });

  it("is told which one answered, and no other is believed", async () => {
    const node = await openNode("own", ["large", "small"]);
    const model = (name: string, asked: string, version = 0) => ({
      asked,
      model_id: `segmenter:${name}`,
      name,
      version,
    });
    node.models = [model("large", "large")];
    const { steps } = await run(finding("large"));
    expect(steps[0]?.models).toEqual(node.models);
    node.models = [model("small", "default")];
    expect((await run(finding(undefined))).steps[0]?.models).toEqual(node.models);
    for (const wrong of [
      model("small", "large"),
      model("small", "small"),
      model("large", "large", 1),
    ]) {
      node.models = [wrong];
      expect(await asking(finding("large"))).toMatchObject({ status: 502, code: "task_failed" });
    }
  });

  it("is refused where no node has it, wherever it is checked, with those that they have", async () => {
    await openNode("own", ["large", "small"]);
    const definition = finding("large", "lrage");
    const problem = {
      code: "bad_value",
      step: "find_1",
      port: "segmenter",
      detail: expect.stringContaining("lrage"),
      fix: expect.stringContaining("large, small"),
    };
    const wrong = { status: 422, code: "invalid_workflow", problems: [problem] };
    const saving = { slug: "wrong", name: "Wrong", workspace_id: w.workspaceId, definition };
    expect(await refused("POST", "/workflows", saving)).toMatchObject(wrong);
    expect(await asking(definition)).toMatchObject(wrong);
    const clip = form({ content: mp4() }, ["definition", JSON.stringify(definition)]);
    const path = `/workflows/run/video?workspace_id=${w.workspaceId}`;
    expect(await refused("POST", path, clip)).toMatchObject(wrong);
    const checked = { workspace_id: w.workspaceId, definition };
    const verdict = await w.engineer.ok("POST", "/workflows/check", checked);
    expect(verdict).toMatchObject({ ok: false, problems: [problem] });
  });

  it("is saved where no node is known, and refused at deployment and run once one is", async () => {
    const { slug } = await w.make(finding("large"));
    await w.engineer.ok("POST", `/workflows/saved/${slug}/deploy`);
    const told = expect.stringContaining("has the segmenter large");
    const serve = () => refused("POST", `/workflows/serve/${slug}`, { inputs: { image } });
    expect(await serve()).toMatchObject({ status: 503, code: "no_node", detail: told });
    await openNode("other", ["small"]);
    expect(await serve()).toMatchObject({ status: 422, code: "invalid_workflow" });
    const deploying = await refused("POST", `/workflows/saved/${slug}/deploy`);
    expect(deploying).toMatchObject({ code: "invalid_workflow", problems: [{ step: "find_0" }] });
  });

  it("is refused for want of a node while that which has it is silent", async () => {
    await openNode("own", ["large"]);
    await silence();
    await openNode("other", ["small"]);
    const told = expect.stringContaining("has the segmenter large");
    expect(await asking(finding("large"))).toMatchObject({
      status: 503,
      code: "no_node",
      detail: told,
    });
    const clip = form({ content: mp4() }, ["definition", JSON.stringify(finding("large"))]);
    const path = `/workflows/run/video?workspace_id=${w.workspaceId}`;
    expect(await refused("POST", path, clip)).toMatchObject({ status: 503, detail: told });
  });
});

describe("a clip whose segmenter no node has any more", () => {
  it("fails after a quarter of an hour and says why; one that a node may do waits", async () => {
    await openNode("own", ["large", "small"]);
    const [stranded, waits, plain] = [
      await startClip(finding("large")),
      await startClip(finding("small")),
      await startClip(finding(undefined)),
    ];
    await w.world.visionDatabase.execute(sql`UPDATE node SET revoked_at = now()`);
    await openNode("other", ["small"]);
    const read = async ({ run_id }: VideoRun) =>
      VideoRun.parse(await w.viewer.ok("GET", `/workflows/runs/${run_id}`));
    const statuses = async () =>
      Promise.all([stranded, waits, plain].map(async (one) => (await read(one)).status));
    const minuteAfter = async (minutes: number) => {
      await w.world.visionDatabase.execute(sql`
        UPDATE task SET created_at = now() - ${minutes}::int * interval '1 minute'
         WHERE kind = 'workflow_video' AND state = 'queued'`);
      await w.world.tick(Date.now());
    };
    await minuteAfter(14);
    expect(await statuses()).toEqual(["queued", "queued", "queued"]);
    await minuteAfter(16);
    await expect.poll(statuses).toEqual(["failed", "queued", "queued"]);
    expect(await read(stranded)).toMatchObject({
      failure: "no GPU node that runs workflows has the segmenter large",
    });
    for (const { run_id } of [waits, plain]) {
      await w.engineer.ok("DELETE", `/workflows/runs/${run_id}`);
    }
    const left = await w.world.media.list({ prefix: `ws/${w.workspaceId}/predictions/` });
    expect(left.objects).toEqual([]);
  });
});
