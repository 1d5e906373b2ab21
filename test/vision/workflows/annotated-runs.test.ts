// The clip of a workflow's output over HTTP, with a node that answers as the test says. Goal: it is
// given as long as its run's record is there, counts towards the storage, is refused before
// anything is run where the output is no image, and a node is believed no further than the store
// goes.

import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, expect, it } from "vitest";
import type { Parts } from "../../../edge/vision/base/parts.ts";
import { checkQuota } from "../../../edge/vision/media/videos/videos.ts";
import {
  deleteUnusedFiles,
  KEPT_PREDICTIONS,
} from "../../../edge/vision/serving/predict/predictions.ts";
import { VideoRun } from "../../../edge/vision/workflows/runs/bodies.ts";
import type { ClaimedTask } from "../../../shared/tasks/node-protocol.ts";
import { TASK_KINDS, type TaskResult } from "../../../shared/tasks/tasks.ts";
import { DAY, HOUR, MINUTE } from "../../../shared/time.ts";
import type { WorkflowDefinition } from "../../../shared/workflow/definition.ts";
import { form, mp4 } from "../../support/media.ts";
import { forgetRows } from "../../support/retention.ts";
import { type Script, type ScriptedNode, scriptedNode } from "../../support/scripted-node.ts";
import { createWorkflowWorld, type WorkflowWorld } from "../../support/workflow-world.ts";

let w: WorkflowWorld;
let node: ScriptedNode;
beforeAll(async () => {
  w = await createWorkflowWorld();
});
beforeEach(async () => {
  await w.world.visionDatabase.execute(sql`UPDATE node SET revoked_at = now()`);
  node = await scriptedNode(w.world, w.admin);
});

/** Gives the image, its sides, and the image in tiles. */
const looking: WorkflowDefinition = {
  version: "1.0",
  inputs: [{ name: "image", kind: "image" }],
  steps: [
    { id: "look", type: "image_properties@1", parameters: { image: "$inputs.image" } },
    {
      id: "small",
      type: "resize@1",
      parameters: { image: "$inputs.image", longest_side: 20, mode: "longest_side" },
    },
    {
      id: "cut",
      type: "tile@1",
      parameters: { image: "$inputs.image", width: 32, height: 32 },
    },
  ],
  outputs: [
    { name: "small", value: "$steps.small.image" },
    { name: "width", value: "$steps.look.width" },
    { name: "tiles", value: "$steps.cut.tiles" },
    { name: "same", value: "$inputs.image" },
  ],
};
const ASKED = "annotated_output=small";
const DRAWN = new Uint8Array(5_000).fill(7);

type Result = TaskResult<"workflow_video">;
const result = (more: Partial<Result> = {}): Result => ({
  failure: null,
  width: 64,
  height: 48,
  frames: [0, 2].map((frame_index) => ({
    frame_index,
    time: frame_index / 10,
    outputs: { small: null, width: 64, tiles: null, same: null },
  })),
  steps: [],
  effects: [],
  state: {},
  left_out: { frames: 0, effects: 0, images: 6 },
  warnings: [],
  seconds: 0.5,
  ...more,
});

const payloadOf = (task: ClaimedTask) => TASK_KINDS.workflow_video.payload.parse(task.payload);

/** Writes a clip where the task's payload says. */
const drawn = async (task: ClaimedTask, by: ScriptedNode, frames_without_output = 1) => {
  const key = await by.write(task, { key: payloadOf(task).annotated?.key ?? "" }, DRAWN);
  return { key, bytes: DRAWN.length, frames_without_output };
};
const drawing: NonNullable<Script["workflow_video"]> = async (task, by) => ({
  ...result({ annotated: await drawn(task, by) }),
});

const path = (query: string) => `/workflows/run/video?workspace_id=${w.workspaceId}&${query}`;
const body = () => form(["definition", JSON.stringify(looking)], { content: mp4() });
const start = async (query: string) =>
  VideoRun.parse(await w.engineer.ok("POST", path(query), body()));
const read = async (id: string) =>
  VideoRun.parse(await w.viewer.ok("GET", `/workflows/runs/${id}`));
const stored = async () =>
  (await w.world.media.list({ prefix: `ws/${w.workspaceId}/predictions/` })).objects;
const tasks = async () => {
  const { rows } = await w.world.visionDatabase.execute(
    sql`SELECT id FROM task WHERE kind = 'workflow_video'`,
  );
  return rows.length;
};

/** Sends a request while a node works as the script says. */
async function working<Answer>(
  workflow_video: NonNullable<Script["workflow_video"]>,
  ask: () => Promise<Answer>,
): Promise<Answer> {
  node.script = { workflow_video };
  const stop = node.start();
  try {
    return await ask();
  } finally {
    await stop();
  }
}

/** Whether one more byte has room where a workspace may have so many. */
async function hasRoom(workspaceBytesMax: number): Promise<boolean> {
  const limits = { workspaceBytesMax, accountBytesMax: 1e9 } as Parts["limits"]; // All that is read.
  const asked = checkQuota(w.partsAt(Date.now(), { limits }), w.workspaceId, 1);
  return asked.then(
    () => true,
    () => false,
  );
}

/** An hour of the duty that deletes files which no task uses. */
async function hourFrom(now: number) {
  let deleted = 0;
  for (let minute = 0; minute < 60; minute++) {
    deleted += await deleteUnusedFiles(w.partsAt(now + minute * MINUTE));
  }
  return deleted;
}

it("is given for as long as the record of its run is there, to members alone", async () => {
  expect(await hasRoom(1)).toBe(true);
  const run = await working(drawing, () => start(`${ASKED}&wait_seconds=20`));
  expect(run).toMatchObject({ status: "completed", frames_without_output: 1, warnings: [] });
  const file = await fetch(run.annotated_video_url ?? "");
  expect(file.headers.get("Content-Type")).toBe("video/mp4");
  expect(new Uint8Array(await file.arrayBuffer())).toEqual(DRAWN);
  const again = await read(run.run_id);
  expect((await fetch(again.annotated_video_url ?? "")).status).toBe(200);
  const stranger = await w.stranger();
  const foreign = [`/workflows/runs/${run.run_id}`, `/predict/video/${run.run_id}`] as const;
  for (const one of foreign) {
    expect(await stranger.refused("GET", one)).toEqual([404, "not_found"]);
  }
  // Its address is signed for this object alone.
  const other = (run.annotated_video_url ?? "").replace("/predictions/", "/predictions/a");
  expect((await fetch(other)).status).toBe(403);
  expect([await hasRoom(DRAWN.length), await hasRoom(DRAWN.length + 1)]).toEqual([false, true]);
  expect(await stored()).toHaveLength(1);
  expect(await hourFrom(Date.now() + 2 * HOUR)).toBe(0);
  await forgetRows(w.partsAt(Date.now() + 2 * DAY), KEPT_PREDICTIONS);
  expect(await hourFrom(Date.now() + 2 * HOUR)).toBe(1);
  expect([await stored(), await hasRoom(1)]).toEqual([[], true]);
  expect(await w.viewer.refused("GET", `/workflows/runs/${run.run_id}`)).toEqual([
    404,
    "not_found",
  ]);
});

it("is of a deployed workflow's output, too, and of an input that passes through", async () => {
  const { slug } = await w.make(looking);
  await w.engineer.ok("POST", `/workflows/saved/${slug}/deploy`);
  const asked: (string | undefined)[] = [];
  const script: NonNullable<Script["workflow_video"]> = (task, by) => {
    asked.push(payloadOf(task).annotated_output);
    return drawing(task, by);
  };
  const serve = `/workflows/serve/${slug}/video?wait_seconds=20&annotated_output=same`;
  const run = await working(script, () =>
    w.engineer.ok<VideoRun>("POST", serve, form({ content: mp4() })),
  );
  expect([asked, (await fetch(run.annotated_video_url ?? "")).status]).toEqual([["same"], 200]);
  const plain = await working(
    (task) => {
      expect(payloadOf(task)).not.toHaveProperty("annotated");
      return { ...result() };
    },
    () => start("wait_seconds=20"),
  );
  expect(plain).not.toHaveProperty("annotated_video_url");
  expect(plain).not.toHaveProperty("frames_without_output");
});

it("is refused before anything is run where the output is not one image", async () => {
  const [files, before] = [(await stored()).length, await tasks()];
  const refused = async (name: string, text = JSON.stringify(looking)) => {
    const sent = form(["definition", text], { content: mp4() });
    const response = await w.engineer.send("POST", path(`annotated_output=${name}`), sent);
    const { code, detail } = (await response.json()) as { code: string; detail: string };
    return [response.status, code, detail];
  };
  const problem = (detail: string) => [422, "invalid_request", `annotated_output: ${detail}`];
  const fix = "name small or same";
  expect(await refused("missing")).toEqual(problem(`there is no output missing; ${fix}`));
  for (const name of ["width", "tiles"]) {
    expect(await refused(name)).toEqual(problem(`the output ${name} is not one image; ${fix}`));
  }
  const [only] = looking.steps;
  const steps = only ? [only] : [];
  const bare = { ...looking, steps, outputs: [{ name: "width", value: "$steps.look.width" }] };
  expect(await refused("width", JSON.stringify(bare))).toEqual(
    problem("the output width is not one image; no output is one image"),
  );
  expect((await refused("Not a name"))[1]).toBe("invalid_request");
  expect([(await stored()).length, await tasks()]).toEqual([files, before]);
});

it("is null of a node whose release makes none, and the answer says so", async () => {
  const run = await working(
    () => ({ ...result() }),
    () => start(`${ASKED}&wait_seconds=20`),
  );
  expect(run).toMatchObject({
    status: "completed",
    annotated_video_url: null,
    frames_without_output: null,
    warnings: [expect.stringContaining("release makes no clip")],
  });
  // Nothing was run: there is nothing to show.
  const empty = await working(
    () => ({ ...result({ frames: [] }) }),
    () => start(`${ASKED}&wait_seconds=20`),
  );
  expect(empty).toMatchObject({ annotated_video_url: null, warnings: [] });
});

it("has the frames before the one at which the run failed", async () => {
  const failure = { code: "limit" as const, step: "look", element: null, detail: "too much" };
  const run = await working(
    async (task, by) => ({ ...result({ failure, annotated: await drawn(task, by, 0) }) }),
    () => start(`${ASKED}&wait_seconds=20`),
  );
  expect(run).toMatchObject({ status: "failed", failure: "too much", frames_without_output: 0 });
  expect((await fetch(run.annotated_video_url ?? "")).status).toBe(200);
});

it("is none of a canceled run, and none of its files stays", async () => {
  const files = (await stored()).length;
  const { run_id, ...queued } = await start(`${ASKED}&wait_seconds=0`);
  expect(queued).toMatchObject({ status: "queued", annotated_video_url: null });
  const task = (await node.claim(["workflow_video"])) as ClaimedTask;
  const annotated = await drawn(task, node);
  await w.engineer.ok("DELETE", `/workflows/runs/${run_id}`);
  await node.finish(task, { outcome: "cancelled", result: { ...result({ annotated }) } });
  expect(await read(run_id)).toMatchObject({
    status: "canceled",
    frames_done: 2,
    annotated_video_url: null,
    frames_without_output: null,
    warnings: [],
  });
  await expect.poll(async () => (await stored()).length).toBe(files);
});

it("is taken from no node that wrote it elsewhere, not at all, or unasked", async () => {
  const files = (await stored()).length;
  const key = `ws/${w.workspaceId}/predictions/other.mp4`;
  const foreign = { key, bytes: 10, frames_without_output: 0 };
  const cases: [string, string, (task: ClaimedTask) => Promise<Result["annotated"]>][] = [
    [ASKED, "under another key", async () => foreign],
    [
      ASKED,
      "is not in the store",
      async (task) => ({ ...(await drawn(task, node)), bytes: 4_999 }),
    ],
    [ASKED, "on more frames than are answered", (task) => drawn(task, node, 3)],
    ["fps=5", "not asked for", async () => foreign],
  ];
  for (const [query, problem, written] of cases) {
    const { run_id } = await start(`${query}&wait_seconds=0`);
    const task = (await node.claim(["workflow_video"])) as ClaimedTask;
    const said = result({ annotated: await written(task) });
    await node.finish(task, { outcome: "finished", result: { ...said } });
    const { rows } = await w.world.visionDatabase.execute(sql`
      SELECT state, errors->-1->>'detail' AS detail FROM task WHERE id = ${run_id}::uuid`);
    expect(rows).toEqual([{ state: "queued", detail: expect.stringContaining(problem) }]);
    await w.engineer.ok("DELETE", `/workflows/runs/${run_id}`);
  }
  // What refused attempts wrote goes with the files that no task uses.
  await hourFrom(Date.now() + 2 * HOUR);
  expect((await stored()).length).toBe(files);
});
