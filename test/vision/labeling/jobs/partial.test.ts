// Annotations while their task still runs. Goal: frames are there as soon as a node reports them,
// each once whatever becomes of the attempt, and nothing that a person did to them is undone.

import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import { topicOf } from "../../../../edge/vision/tasks/progress/progress.ts";
import { findTask } from "../../../../edge/vision/tasks/queue/queue.ts";
import type { ClaimedTask, Outcome } from "../../../../shared/tasks/node-protocol.ts";
import { type Detection, TASK_KINDS, type TaskKind } from "../../../../shared/tasks/tasks.ts";
import { AnnotationPage, JobProgress } from "../../../../shared/wire/labeling.ts";
import { frameId } from "../../../../shared/wire/vision.ts";
import {
  JPEG,
  newProject,
  type Person,
  probeAs,
  register,
  type ScriptedNode,
  scriptedNode,
  uploadVideo,
} from "../../../support/scripted-node.ts";
import { createWorld, type World } from "../../../support/world.ts";

const FRAMES = 6;
const ALL = [0, 1, 2, 3, 4, 5];
let world: World;
let admin: Person;
let node: ScriptedNode;
let projectId: string;
let videoId: string;
/** How a report is refused whose task is the node's no more. */
const STALE = [409, expect.any(String)];
/** The job of each test, and its one task as the node claimed it. */
let jobId: string;
let task: ClaimedTask;

const detection = (x: number, more: Partial<Detection> = {}): Detection => ({
  class_name: "person",
  bbox: [x, 10, x + 50, 90],
  confidence: 0.9,
  polygon: null,
  duplicate_of: null,
  ...more,
});
/** So many people on each frame. */
const answer = (frames: readonly number[], people = 2) => ({
  frames: frames.map((frame_index) => ({
    frame_index,
    detections: Array.from({ length: people }, (_, index) => detection(index * 100)),
  })),
  segmenter: "scripted",
  seconds: 0.1,
  warnings: [],
});

/** How the service took a report of frames: its status, and the words of a refusal. */
async function report(of: ClaimedTask, partial: Record<string, unknown>) {
  const frames = partial.frames as unknown[] | undefined;
  const body = { fence: of.fence, done: frames?.length ?? 1, total: FRAMES, partial };
  const response = await node.api.send("POST", `/node/tasks/${of.task_id}/progress`, body);
  const { detail } = (await response.json()) as { detail?: string };
  return [response.status, detail];
}
const finish = async (of: ClaimedTask, outcome: Outcome) => {
  const response = await node.finish(of, outcome);
  return [response.status, await response.json()];
};
const finished = (result: Record<string, unknown>): Outcome => ({ outcome: "finished", result });

async function claimed(kind: TaskKind = "label"): Promise<ClaimedTask> {
  await world.visionDatabase.execute(
    sql`UPDATE task SET available_at = now() - interval '1 second'`,
  );
  const one = await node.claim([kind]);
  expect(one?.kind).toBe(kind);
  return one as ClaimedTask;
}
const statusOf = async () => JobProgress.parse(await admin.ok("GET", `/status/${jobId}`));
const annotations = async () =>
  AnnotationPage.parse(await admin.ok("GET", `/jobs/${jobId}/annotations?limit=1000`)).items;
/** Annotations on each frame that has any. */
const counts = async () => {
  const byFrame = Map.groupBy(await annotations(), ({ frame_id }) => frame_id);
  return Object.fromEntries(
    ALL.map((frame) => [frame, byFrame.get(frameId(videoId, frame))?.length ?? 0]),
  );
};
/** The node that has the task falls silent, and the minute frees the task. */
async function killed() {
  await world.visionDatabase.execute(sql`
    UPDATE task SET lease_until = now() - interval '1 hour' WHERE state = 'running'`);
  await world.tick(Date.now());
}

beforeAll(async () => {
  world = await createWorld({ services: ["console", "vision"] });
  admin = await register(world);
  node = await scriptedNode(world, admin, { probe: probeAs({ frames: FRAMES }) });
  projectId = (await newProject(admin)).project_id;
  videoId = (await uploadVideo(admin, projectId)).video_id;
  await node.work();
});
beforeEach(async () => {
  await world.visionDatabase.execute(sql`DELETE FROM job`);
  await world.visionDatabase.execute(sql`DELETE FROM task WHERE kind = 'label'`);
  const body = { project_id: projectId, video_ids: [videoId], prompts: ["person"] };
  jobId = (await admin.ok<{ job_id: string }>("POST", "/label", body)).job_id;
  task = await claimed();
});

describe("frames of a task that runs", () => {
  it("have their annotations as soon as they are reported", async () => {
    expect(await report(task, answer([0]))).toEqual([200, undefined]);
    expect(await counts()).toEqual({ 0: 2, 1: 0, 2: 0, 3: 0, 4: 0, 5: 0 });
    expect(await statusOf()).toMatchObject({
      frames_done: 1,
      stored_annotations: 2,
      tasks: { running: 1 },
    });
    expect(await report(task, answer([1, 2]))).toEqual([200, undefined]);
    expect(await counts()).toEqual({ 0: 2, 1: 2, 2: 2, 3: 0, 4: 0, 5: 0 });
    const { topic } = await statusOf();
    const live = topicOf({ topics: world.objects("PROGRESS") }, topic);
    const told = expect.objectContaining({ frames_done: 3, stored_annotations: 6 });
    await expect.poll(async () => (await live.snapshot(topic)).data).toEqual(told);
    expect(await finish(task, finished(answer(ALL)))).toMatchObject([200, { repeated: false }]);
    expect(await counts()).toEqual({ 0: 2, 1: 2, 2: 2, 3: 2, 4: 2, 5: 2 });
    expect(await statusOf()).toMatchObject({ frames_done: FRAMES, stored_annotations: 2 * FRAMES });
    // Both people are tracked through all frames, whenever these came.
    expect(new Set((await annotations()).map(({ track_id }) => track_id))).toEqual(new Set([1, 2]));
  });

  it("are stored once, as they were reported first, however late and often they come", async () => {
    await report(task, answer([0, 1]));
    const first = await annotations();
    expect(await report(task, answer([0, 1], 3))).toEqual([200, undefined]);
    expect(await report({ ...task, fence: task.fence - 1 }, answer([2]))).toEqual(STALE);
    expect(await annotations()).toEqual(first);
    await Promise.all([report(task, answer([2], 1)), report(task, answer([2], 1))]);
    expect(await counts()).toMatchObject({ 0: 2, 1: 2, 2: 1 });
    await finish(task, finished(answer(ALL, 3)));
    expect(await counts()).toEqual({ 0: 2, 1: 2, 2: 1, 3: 3, 4: 3, 5: 3 });
    const all = await annotations();
    expect(await report(task, answer([5], 9))).toEqual(STALE);
    expect(await annotations()).toEqual(all);
  });

  it("outlive a node that is killed, and are not doubled by the next one", async () => {
    await report(task, answer([0, 1, 2]));
    await killed();
    expect(await statusOf()).toMatchObject({ frames_done: 3, tasks: { queued: 1 } });
    const next = await claimed();
    expect(next).toMatchObject({ task_id: task.task_id, attempt: 2 });
    expect(await report(task, answer([3], 7))).toEqual(STALE);
    expect(await report(next, answer([0, 1], 5))).toEqual([200, undefined]);
    expect(await counts()).toEqual({ 0: 2, 1: 2, 2: 2, 3: 0, 4: 0, 5: 0 });
    expect(await statusOf()).toMatchObject({ frames_done: 3 });
    await finish(next, finished(answer(ALL, 4)));
    expect(await counts()).toEqual({ 0: 2, 1: 2, 2: 2, 3: 4, 4: 4, 5: 4 });
    expect(await statusOf()).toMatchObject({ status: "completed", frames_done: FRAMES });
  });

  it("keep what people made of them", async () => {
    await report(task, answer([0, 1]));
    const [one, other, third] = await annotations();
    const [path, gone, moved] = [one, other, third].map(
      (each) => `/annotations/${each?.annotation_id}`,
    );
    await admin.ok("PATCH", path ?? "", { accepted: true });
    await admin.ok("DELETE", gone ?? "");
    await admin.ok("PATCH", moved ?? "", { bbox: [1, 2, 3, 4] });
    await killed();
    const next = await claimed();
    await report(next, answer([0]));
    await finish(next, finished(answer(ALL)));
    const after = await annotations();
    expect(after).toHaveLength(2 * FRAMES - 1);
    const byId = new Map(after.map((each) => [each.annotation_id, each]));
    expect(byId.get(one?.annotation_id ?? "")).toMatchObject({ accepted: true });
    expect(byId.get(third?.annotation_id ?? "")).toMatchObject({ bbox: [1, 2, 3, 4] });
    expect(byId.has(other?.annotation_id ?? "")).toBe(false);
  });
});

describe("a job that ends before its task", () => {
  const rest = async () => {
    await admin.ok("POST", `/jobs/${jobId}/resume`);
    const next = await claimed();
    await finish(next, finished(answer(next.payload.frames as number[])));
    expect(await statusOf()).toMatchObject({ status: "completed", frames_done: FRAMES });
    expect(await counts()).toEqual({ 0: 2, 1: 2, 2: 2, 3: 2, 4: 2, 5: 2 });
    return next.payload.frames;
  };

  it.each<[string, Outcome]>([
    ["its node says no more", { outcome: "cancelled", result: null }],
    ["its node says the rest", { outcome: "cancelled", result: answer([0, 1, 2]) }],
  ])("keeps its frames when it is stopped and %s", async (_, outcome) => {
    await report(task, answer([0, 1]));
    await admin.send("POST", `/jobs/${jobId}/stop`);
    expect(await report(task, answer([2]))).toEqual([200, undefined]);
    await finish(task, outcome);
    expect(await statusOf()).toMatchObject({
      status: "stopped",
      frames_done: 3,
      stored_annotations: 6,
    });
    expect(await rest()).toEqual([3, 4, 5]);
  });

  it("keeps its frames when it is stopped after its node was lost", async () => {
    await report(task, answer([0, 1]));
    await killed();
    await admin.send("POST", `/jobs/${jobId}/stop`);
    expect(await statusOf()).toMatchObject({ status: "stopped", frames_done: 2 });
    expect(await rest()).toEqual([2, 3, 4, 5]);
  });

  it("keeps its frames when its task fails for good", async () => {
    await report(task, answer([0]));
    const torn = { code: "bad_frame", detail: "frame 1 is torn", retryable: false };
    await finish(task, { outcome: "failed", ...torn });
    expect(await statusOf()).toMatchObject({
      status: "failed",
      frames_done: 1,
      stored_annotations: 2,
    });
    expect(await rest()).toEqual([1, 2, 3, 4, 5]);
  });

  it("takes what was reported before a revocation, and nothing after it", async () => {
    await report(task, answer([0]));
    await admin.send("POST", `/admin/tasks/${task.task_id}/revoke`);
    expect(await report(task, answer([1]))).toEqual(STALE);
    await finish(task, { outcome: "revoked", exited: true });
    expect(await statusOf()).toMatchObject({
      status: "stopped",
      frames_done: 1,
      stored_annotations: 2,
    });
    expect(await rest()).toEqual([1, 2, 3, 4, 5]);
  });

  it("stores nothing for a job that was deleted", async () => {
    await report(task, answer([0]));
    await admin.send("DELETE", `/jobs/${jobId}`);
    expect(await report(task, answer([1]))).toEqual([200, undefined]);
    await finish(task, finished(answer(ALL)));
    const { rows } = await world.visionDatabase.execute(sql`SELECT id FROM annotation`);
    expect(rows).toEqual([]);
  });
});

describe("a part of a result", () => {
  it.each<[string, Record<string, unknown>, RegExp]>([
    ["a frame that nobody asked for", answer([0, 7]), /frame 7 was not asked for/],
    ["a frame twice", answer([1, 1]), /answered twice/],
    ["no frames", { segmenter: "scripted", seconds: 1 }, /^partial: result\.frames/],
    [
      "a class of its own",
      {
        ...answer([]),
        frames: [{ frame_index: 0, detections: [detection(0, { class_name: "x" })] }],
      },
      /a class that was not/,
    ],
    [
      "a box beyond the frame",
      { ...answer([]), frames: [{ frame_index: 0, detections: [detection(9_000)] }] },
      /not inside/,
    ],
  ])("is refused like a result, and stores nothing: %s", async (_, partial, problem) => {
    expect(await report(task, partial)).toEqual([422, expect.stringMatching(problem)]);
    expect(await annotations()).toEqual([]);
    expect((await findTask(world.visionDatabase, task.task_id))?.framesDone).toEqual([]);
    expect(await report(task, answer([0]))).toEqual([200, undefined]);
  });

  it("is refused of a task whose result has no parts", async () => {
    await uploadVideo(admin, projectId, "another.mp4");
    const probe = await claimed("probe");
    expect(await report(probe, {})).toEqual([422, expect.stringMatching(/have no parts/)]);
    await finish(probe, finished({ broken: "no video" }));
  });

  it("comes with its frames' images, each taken when it is there", async () => {
    const { images } = TASK_KINDS.label.payload.parse(task.payload);
    const [early, late] = images.map((target) => target?.key ?? "");
    const image = async (frame: number) => {
      const key = images[frame]?.key ?? "";
      return (await world.media.get(key))?.arrayBuffer().then((bytes) => new Uint8Array(bytes));
    };
    await node.write(task, { key: early ?? "" }, JPEG);
    await report(task, answer([0, 1]));
    expect([await image(0), await image(1)]).toEqual([JPEG, undefined]);
    await node.write(task, { key: late ?? "" }, JPEG);
    await finish(task, finished(answer(ALL)));
    expect([await image(0), await image(1)]).toEqual([JPEG, JPEG]);
  });
});
