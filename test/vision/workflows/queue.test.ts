// Runs of workflows by the queue, with a node that claims tasks and answers as the test says:
// images that no line takes, and clips. Goal: what is done outside is done once and only for a run
// that ended well, a canceled one keeps the frames it did, no file of a request stays, and a node
// is believed no further than the plan goes.

import { sql } from "drizzle-orm";
import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { RunAnswer, VideoRun } from "../../../edge/vision/workflows/runs/bodies.ts";
import type { ClaimedTask } from "../../../shared/tasks/node-protocol.ts";
import { TASK_KINDS, type TaskResult } from "../../../shared/tasks/tasks.ts";
import type { WorkflowDelivery } from "../../../shared/wire/workflows.ts";
import type { WorkflowDefinition } from "../../../shared/workflow/definition.ts";
import { form, jpeg, mp4, png } from "../../support/media.ts";
import { registerModel } from "../../support/registered-model.ts";
import { type Script, type ScriptedNode, scriptedNode } from "../../support/scripted-node.ts";
import { beginTransaction } from "../../support/transactions.ts";
import { createWorkflowWorld, type WorkflowWorld } from "../../support/workflow-world.ts";

let w: WorkflowWorld;
beforeAll(async () => {
  w = await createWorkflowWorld();
});
beforeEach(async () => {
  await w.world.visionDatabase.execute(sql`UPDATE node SET revoked_at = now()`);
});
afterEach(async () => {
  const left = await w.world.media.list({ prefix: `ws/${w.workspaceId}/predictions/` });
  expect(left.objects).toEqual([]);
});

const address = `data:image/png;base64,${Buffer.from(png(64, 48)).toString("base64")}`;
/** The sides of an image; told to an address, and the image kept in a project. */
const measuring = (more: WorkflowDefinition["steps"] = []): WorkflowDefinition => ({
  version: "1.0",
  inputs: [{ name: "image", kind: "image" }],
  steps: [
    { id: "look", type: "image_properties@1", parameters: { image: "$inputs.image" } },
    ...more,
  ],
  outputs: [{ name: "width", value: "$steps.look.width" }],
});
const telling = () =>
  measuring([
    {
      id: "tell",
      type: "webhook@1",
      parameters: { payload: "$steps.look.width", url: "https://example.com/hook" },
    },
    {
      id: "keep",
      type: "dataset_upload@1",
      parameters: { image: "$inputs.image", project: w.projectId },
    },
  ]);

/** Sends a request while a node works as the script says. */
async function working<Result>(script: Script, ask: (node: ScriptedNode) => Promise<Result>) {
  const node = await scriptedNode(w.world, w.admin, script);
  const stop = node.start();
  try {
    return await ask(node);
  } finally {
    await stop();
  }
}

describe("a run on images", () => {
  it("is done by the queue where no line is, with the files of a list in their order", async () => {
    const graph = measuring();
    graph.inputs.push({ name: "more", kind: "list<image>" });
    const seen: [string, number][] = [];
    const answer = await working(
      {
        workflow: async (task) => {
          const { images } = TASK_KINDS.workflow.payload.parse(task.payload);
          for (const { name, file } of images) {
            const bytes = await (await fetch(file.url)).arrayBuffer();
            seen.push([name, bytes.byteLength]);
          }
          const outputs = { width: 64 };
          return { failure: null, outputs, steps: [], effects: [], state: {}, seconds: 0.1 };
        },
      },
      async () => {
        const body = { definition: graph, inputs: { image: address, more: [address, address] } };
        return RunAnswer.parse(await w.engineer.ok("POST", "/workflows/run", body));
      },
    );
    expect(answer).toMatchObject({ outputs: { width: 64 }, served_by: "node", effects: [] });
    const bytes = png(64, 48).length;
    expect(seen).toEqual([
      ["image", bytes],
      ["more", bytes],
      ["more", bytes],
    ]);
  });

  it("is one of the active model on an image alone, where no saved workflow is named", async () => {
    const path = "/workflows/run/image";
    const sent = () => form({ content: png(64, 48) });
    expect(await w.engineer.refused("POST", path, sent())).toEqual([409, "state_conflict"]);
    const { model_id } = await registerModel(w.world, w.workspaceId);
    await w.world.visionDatabase.execute(
      sql`UPDATE model SET active = true WHERE id = ${model_id}::uuid`,
    );
    const objects = [{ class: "disc", confidence: 0.9, bbox: [1, 2, 30, 40] }];
    const outputs = { predictions: { frame: { width: 64, height: 48 }, objects }, image: address };
    const asked: unknown[] = [];
    const answer = await working(
      {
        workflow: (task) => {
          const { models, definition } = TASK_KINDS.workflow.payload.parse(task.payload);
          asked.push(Object.values(models).map((one) => one.model_id));
          asked.push(definition.steps.map(({ type }) => type));
          return { failure: null, outputs, steps: [], effects: [], state: {}, seconds: 0.1 };
        },
      },
      async () => RunAnswer.parse(await w.engineer.ok("POST", path, sent())),
    );
    expect(answer).toMatchObject({ version: null, outputs, served_by: "node" });
    expect(asked).toEqual([[model_id], ["detector@1", "draw_boxes@1", "draw_labels@1"]]);
    expect(await w.viewer.refused("POST", path, sent())).toEqual([403, "forbidden"]);
    const stranger = await w.stranger();
    expect(await stranger.refused("POST", path, sent())).toEqual([409, "state_conflict"]);
  });

  it("is told what failed there, and which answer is not believed", async () => {
    const failure = { code: "limit" as const, step: "look", element: null, detail: "too much" };
    const asked = (workflow: NonNullable<Script["workflow"]>) =>
      working({ workflow }, async () => {
        const body = { definition: measuring(), inputs: { image: address } };
        const response = await w.engineer.send("POST", "/workflows/run", body);
        return [response.status, ((await response.json()) as { code: string }).code];
      });
    expect(await asked(() => ({ failure }))).toEqual([422, "workflow_failed"]);
    const more = { outputs: { width: 64, secret: 1 }, steps: [], effects: [], state: {} };
    expect(await asked(() => ({ failure: null, ...more, seconds: 1 }))).toEqual([
      502,
      "task_failed",
    ]);
  });
});

describe("a run on a clip", () => {
  type Result = TaskResult<"workflow_video">;
  const frame = (frame_index: number) => ({
    frame_index,
    time: frame_index / 10,
    outputs: { width: 64 },
  });
  const result = (more: Partial<Result> = {}): Result => ({
    failure: null,
    width: 64,
    height: 48,
    frames: [frame(0), frame(2)],
    steps: [],
    effects: [],
    state: {},
    left_out: { frames: 0, effects: 0, images: 0 },
    warnings: [],
    seconds: 0.5,
    ...more,
  });
  /** What both sinks ask for at a frame. */
  const effects = (frame_index: number): Result["effects"] => [
    {
      frame_index,
      step: "tell",
      element: [],
      kind: "webhook",
      request: {
        url: "https://example.com/hook",
        url_secret: null,
        headers: {},
        secret_headers: {},
        signing_secret: null,
        payload: 64,
      },
      image: null,
    },
    {
      frame_index,
      step: "keep",
      element: [],
      kind: "dataset_upload",
      request: { project: w.projectId, tags: [], objects: [] },
      image: Buffer.from(jpeg(64, 48 + frame_index)).toString("base64"),
    },
  ];
  const start = async (query = "wait_seconds=20", definition = telling()) => {
    const fields = { definition: JSON.stringify(definition) };
    const body = form({ content: mp4() }, ...Object.entries(fields));
    const path = `/workflows/run/video?workspace_id=${w.workspaceId}&${query}`;
    return VideoRun.parse(await w.engineer.ok("POST", path, body));
  };
  const read = async (id: string) =>
    VideoRun.parse(await w.viewer.ok("GET", `/workflows/runs/${id}`));
  const deliveries = (id: string) =>
    w.engineer.ok<WorkflowDelivery[]>("GET", `/workflows/deliveries?run_id=${id}`);
  const videos = async () =>
    (await w.admin.ok("GET", `/projects/${w.projectId}/videos`)) as unknown[];

  it("does what its frames ask for once it has ended well, once, however often it is heard", async () => {
    const before = (await videos()).length;
    let claimed: ClaimedTask | null = null;
    const done = result({ effects: [...effects(0), ...effects(2)] });
    const run = await working(
      {
        workflow_video: (task) => {
          claimed = task;
          return { ...done };
        },
      },
      async (node) => {
        const { run_id, ...ended } = await start();
        const task = claimed as unknown as ClaimedTask; // Since the run has ended.
        // A late duplicate, as of a node whose answer was lost.
        await node.finish(task, { outcome: "finished", result: { ...done } });
        expect(ended).toMatchObject({ status: "completed", frames_done: 2, failure: null });
        return read(run_id);
      },
    );
    expect(run.effects).toEqual([
      expect.objectContaining({ step: "tell", element: [0], status: "queued" }),
      expect.objectContaining({ step: "keep", element: [0], status: "stored" }),
      expect.objectContaining({ step: "tell", element: [2], status: "queued" }),
      expect.objectContaining({ step: "keep", element: [2], status: "stored" }),
    ]);
    const told = (await deliveries(run.run_id)).map(({ element }) => element);
    expect(told.sort()).toEqual([[0], [2]]);
    expect((await videos()).length).toBe(before + 2);
  });

  it("runs on until all was done outside, also for who waits for its end", async () => {
    const { visionDatabase } = w.world;
    const done = result({ effects: effects(0) });
    const held = await beginTransaction(visionDatabase);
    await held.query("LOCK TABLE workflow_delivery IN SHARE MODE");
    const script = { workflow_video: () => ({ ...done }) };
    const [standing, ended] = await working(script, async () => {
      const ending = start("wait_seconds=90");
      let underWay: VideoRun;
      try {
        // A message cannot be written down yet.
        await held.awaited();
        const { rows } = await visionDatabase.execute<{ id: string }>(sql`
          SELECT id::text FROM task WHERE kind = 'workflow_video' AND state = 'finished'
           ORDER BY created_at DESC LIMIT 1`);
        underWay = await read(rows[0]?.id ?? "");
      } finally {
        await held.commit();
      }
      return [underWay, await ending] as const;
    });
    const { run_id } = ended;
    const open = { frames: null, effects: null, seconds: null };
    expect(standing).toMatchObject({ run_id, status: "running", frames_done: 2, ...open });
    expect(ended).toMatchObject({ status: "completed", frames_done: 2 });
    expect(ended.effects?.map(({ status }) => status)).toEqual(["queued", "stored"]);
  });

  it("does nothing outside that was canceled, though its node did all frames meanwhile", async () => {
    const before = (await videos()).length;
    const node = await scriptedNode(w.world, w.admin);
    const { run_id } = await start("wait_seconds=0");
    const task = (await node.claim(["workflow_video"])) as ClaimedTask;
    expect(await w.engineer.ok("DELETE", `/workflows/runs/${run_id}`)).toMatchObject({
      status: "running",
    });
    const done = result({ effects: effects(0) });
    await node.finish(task, { outcome: "finished", result: { ...done } });
    const ended = { status: "canceled", frames_done: 2, effects: [] };
    expect(await read(run_id)).toMatchObject(ended);
    expect([await deliveries(run_id), (await videos()).length]).toEqual([[], before]);
  });

  it("does what it asks for, whatever its node says has become of that", async () => {
    const done = { ...result({ effects: effects(0) }), outcomes: null };
    const ended = await working({ workflow_video: () => done }, () => start());
    expect(ended.effects?.map(({ status }) => status)).toEqual(["queued", "stored"]);
  });

  it("only tells it of a dry run, and does nothing of one that failed at a frame", async () => {
    const before = (await videos()).length;
    const script = { workflow_video: () => ({ ...result({ effects: effects(0) }) }) };
    const dry = await working(script, () => start("wait_seconds=20&dry_run=true"));
    expect(dry.effects?.map(({ status }) => status)).toEqual(["dry_run", "dry_run"]);
    const failure = {
      code: "step_failed" as const,
      step: "look",
      element: [],
      detail: "no such thing",
    };
    const failed = await working(
      {
        workflow_video: () => ({ ...result({ failure, frames: [frame(0)], effects: effects(0) }) }),
      },
      () => start(),
    );
    expect(failed).toMatchObject({
      status: "failed",
      failure: "no such thing",
      problem: { step: "look" },
      frames: [{ frame_index: 0 }],
    });
    expect([...(await deliveries(dry.run_id)), ...(await deliveries(failed.run_id))]).toEqual([]);
    expect((await videos()).length).toBe(before);
  });

  it("tells how far it is while a node works on it", async () => {
    const node = await scriptedNode(w.world, w.admin);
    const { run_id } = await start("wait_seconds=0");
    const task = (await node.claim(["workflow_video"])) as ClaimedTask;
    const progress = { fence: task.fence, done: 1, total: 3, detail: {} };
    await node.api.ok("POST", `/node/tasks/${task.task_id}/progress`, progress);
    const standing = { status: "running", frames_done: 1, frames_total: 3, frames: null };
    expect(await read(run_id)).toMatchObject(standing);
    await node.finish(task, { outcome: "finished", result: { ...result() } });
    expect(await read(run_id)).toMatchObject({ status: "completed", frames_done: 2 });
  });

  it("keeps the frames that were done when it is canceled, and does nothing outside", async () => {
    const before = (await videos()).length;
    const node = await scriptedNode(w.world, w.admin);
    const { run_id, status } = await start("wait_seconds=0");
    expect(status).toBe("queued");
    const task = (await node.claim(["workflow_video"])) as ClaimedTask;
    expect(await w.viewer.refused("DELETE", `/workflows/runs/${run_id}`)).toEqual([
      403,
      "forbidden",
    ]);
    const stranger = await w.stranger();
    expect(await stranger.refused("DELETE", `/workflows/runs/${run_id}`)).toEqual([
      404,
      "not_found",
    ]);
    await w.engineer.ok("DELETE", `/workflows/runs/${run_id}`);
    const part = result({ frames: [frame(0)], effects: effects(0) });
    await node.finish(task, { outcome: "cancelled", result: { ...part } });
    expect(await read(run_id)).toMatchObject({ status: "canceled", frames: [{ frame_index: 0 }] });
    expect(await deliveries(run_id)).toEqual([]);
    expect((await videos()).length).toBe(before);
    const again = await w.engineer.ok("DELETE", `/workflows/runs/${run_id}`);
    expect(again).toMatchObject({ status: "canceled" });
  });

  it("of which nothing was done yet is over at once when it is canceled", async () => {
    await scriptedNode(w.world, w.admin);
    const { run_id } = await start("wait_seconds=0");
    const canceled = await w.engineer.ok("DELETE", `/workflows/runs/${run_id}`);
    expect(canceled).toMatchObject({ status: "canceled", frames: null });
  });

  it("is on every frame up to 3,000, and refused by name where its clip has more", async () => {
    const payloads: unknown[] = [];
    const refusing: NonNullable<Script["workflow_video"]> = (task) => {
      payloads.push(task.payload);
      const failed = { outcome: "failed" as const, code: "too_many_frames", retryable: false };
      return { ...failed, detail: "the clip has 3,010 frames" };
    };
    const body = form({ content: mp4() }, ["definition", JSON.stringify(telling())]);
    const path = `/workflows/run/video?workspace_id=${w.workspaceId}`;
    const answer = await working({ workflow_video: refusing }, () =>
      w.engineer.refused("POST", path, body),
    );
    expect(answer).toEqual([413, "too_many_frames"]);
    expect(payloads).toMatchObject([{ fps: null, frames_max: 3_000, uncut: true }]);
  });

  it("is not believed where a node answers what the plan cannot give", async () => {
    const node = await scriptedNode(w.world, w.admin);
    const before = (await videos()).length;
    const cases: [Result, string][] = [
      [result({ frames: [0, 1, 2, 3].map(frame) }), "over 3 frames"],
      [result({ frames: [frame(2), frame(0)] }), "not in its order"],
      [result({ frames: [{ ...frame(0), outputs: { secret: 1 } }] }), "frame 0"],
      [result({ effects: effects(1) }), "frame 1 is not answered"],
    ];
    for (const [said, problem] of cases) {
      const { run_id } = await start("wait_seconds=0&frames_max=3");
      const task = (await node.claim(["workflow_video"])) as ClaimedTask;
      await node.finish(task, { outcome: "finished", result: { ...said } });
      const { rows } = await w.world.visionDatabase.execute(sql`
        SELECT state, errors->-1->>'detail' AS detail FROM task WHERE id = ${run_id}::uuid`);
      // Another node may do it.
      const refusal = { state: "queued", detail: expect.stringContaining(problem) };
      expect(rows).toEqual([refusal]);
      await w.engineer.ok("DELETE", `/workflows/runs/${run_id}`);
    }
    expect((await videos()).length).toBe(before);
  });
});
