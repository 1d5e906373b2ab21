// Jobs that get videos after they were made, and jobs in which people draw. Goal: only what is new
// is looked at, for all classes that the job has, and an empty frame that nobody looked at is no
// background.

import { sql } from "drizzle-orm";
import { beforeAll, expect, it } from "vitest";
import type { ClaimedTask } from "../../../../shared/tasks/node-protocol.ts";
import { TASK_KINDS, type TaskPayload } from "../../../../shared/tasks/tasks.ts";
import type { DatasetReport } from "../../../../shared/wire/dataset-report.ts";
import { AnnotationPage, Job, type JobProgress } from "../../../../shared/wire/labeling.ts";
import { frameId } from "../../../../shared/wire/vision.ts";
import { registerModel } from "../../../support/registered-model.ts";
import {
  colleague,
  labelAs,
  newProject,
  type Person,
  probeAs,
  register,
  type ScriptedNode,
  scriptedNode,
  uploadVideo,
} from "../../../support/scripted-node.ts";
import { createWorld, type World } from "../../../support/world.ts";

const FRAMES = 40;
let world: World;
let admin: Person;
let node: ScriptedNode;
let projectId: string;
let first: string;
let second: string;
/** Tasks that the node was given. */
const given: TaskPayload<"label">[] = [];

/** Each class has a box of its own on each frame, and all of them `same` on one another. */
const labeled = labelAs((_, prompts) =>
  prompts.map(({ class_name }) => ({
    class_name,
    confidence: class_name === "car" ? 0.8 : 0.9,
    polygon: null,
    duplicate_of: null,
    bbox: class_name === "dog" ? [100, 100, 180, 180] : [10, 10, 60, 60],
  })),
);

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  admin = await register(world);
  node = await scriptedNode(world, admin, {
    probe: probeAs({ frames: FRAMES }),
    label: (task: ClaimedTask) => {
      given.push(TASK_KINDS.label.payload.parse(task.payload));
      return labeled(task);
    },
  });
  projectId = (await newProject(admin)).project_id;
  first = (await uploadVideo(admin, projectId, "first.mp4")).video_id;
  second = (await uploadVideo(admin, projectId, "second.mp4")).video_id;
  await node.work();
});

const label = async (more: Record<string, unknown> = {}) => {
  const body = { project_id: projectId, video_ids: [first], prompts: ["car", "dog"], fps: 1 };
  const { job_id } = await admin.ok<{ job_id: string }>("POST", "/label", { ...body, ...more });
  await node.work();
  given.length = 0;
  return job_id;
};
const annotationsOf = async (id: string, query = "") =>
  AnnotationPage.parse(await admin.ok("GET", `/jobs/${id}/annotations?limit=1000${query}`)).items;
const answerOf = async (sent: Promise<Response>) => {
  const response = await sent;
  return { status: response.status, body: await response.json() };
};
const add = (id: string, body: Record<string, unknown>) =>
  answerOf(admin.send("POST", `/jobs/${id}/videos`, body));
const manual = async (more: Record<string, unknown> = {}) =>
  Job.parse(
    await admin.ok("POST", "/jobs", { project_id: projectId, video_ids: [first], ...more }),
  );
const draw = (job_id: string, frame_id: string, className = "car") =>
  admin.ok("POST", "/annotations", { job_id, frame_id, class: className, bbox: [1, 1, 9, 9] });
const report = (id: string) => admin.ok<DatasetReport>("GET", `/train/dataset-stats/${id}`);

it("looks through new videos for the classes of all passes, and leaves the rest as it is", async () => {
  const id = await label();
  await admin.ok("POST", `/jobs/${id}/add-class`, { class: "person" });
  await node.work();
  const before = await annotationsOf(id);
  given.length = 0;
  const answer = await add(id, { video_ids: [second] });
  expect(answer).toMatchObject({ status: 202, body: { video_ids: [first, second] } });
  expect((await admin.ok<JobProgress>("GET", `/status/${id}`)).frames_total).toBe(8);
  await node.work();
  expect(given.map((one) => [one.video_id, one.frames, one.prompts.length])).toEqual([
    [second, [0, 10, 20, 30], 2],
    [second, [0, 10, 20, 30], 1],
  ]);
  expect(await admin.ok("GET", `/status/${id}`)).toMatchObject({
    status: "completed",
    frames_done: 8,
    progress: 1,
  });
  const all = await annotationsOf(id);
  expect(all.filter(({ frame_id }) => frame_id.startsWith(first))).toEqual(before);
  const added = all.filter(({ frame_id }) => frame_id.startsWith(second));
  expect(added).toHaveLength(12);
  // Tracked through the new video, the second pass's repeating the first one's as on the others.
  const tracks = Map.groupBy(added, (one) => one.class);
  const ids = [...tracks.values()].map((own) => new Set(own.map(({ track_id }) => track_id)));
  expect(ids.map((own) => own.size)).toEqual([1, 1, 1]);
  expect(new Set(ids.flatMap((own) => [...own])).size).toBe(3);
  const repeats = (items: typeof all) =>
    items.filter((one) => one.duplicate_of !== null).map((one) => one.class);
  expect(repeats(added)).toEqual(repeats(before));
  expect(repeats(added)).toEqual(["person", "person", "person", "person"]);
});

it("says who found what, for each pass", async () => {
  const id = await label({ prompts: ["car"] });
  const [row] = (
    await world.visionDatabase.execute<{ id: string }>(
      sql`SELECT workspace_id AS id FROM job WHERE id = ${id}::uuid`,
    )
  ).rows;
  const own = await registerModel(world, row?.id ?? "", { classes: ["dog"] });
  await admin.ok("POST", `/jobs/${id}/add-class`, { class: "dog", model: own.model_id });
  await node.work();
  await add(id, { video_ids: [second] });
  await node.work();
  await draw(id, frameId(first, 0), "van");
  const found = new Set((await annotationsOf(id)).map((one) => `${one.class} ${one.found_by}`));
  expect([...found].sort()).toEqual(["car scripted", `dog ${own.model_id}`, "van null"]);
  const copy = Job.parse(await admin.ok("POST", `/jobs/${id}/duplicate`));
  const copied = new Set((await annotationsOf(copy.job_id)).map(({ found_by }) => found_by));
  expect(copied).toEqual(new Set([own.model_id, "scripted", null]));
});

it("goes on after a stop with the videos that were added, for the classes that are left", async () => {
  const id = await label();
  await admin.ok("POST", `/jobs/${id}/add-class`, { class: "person" });
  await node.work();
  await admin.ok("DELETE", `/jobs/${id}/classes/dog`);
  await admin.ok("DELETE", `/jobs/${id}/classes/person`);
  await add(id, { video_ids: [second], from_seconds: 1, to_seconds: 2 });
  await admin.ok("POST", `/jobs/${id}/stop`);
  given.length = 0;
  await admin.ok("POST", `/jobs/${id}/resume`);
  await node.work();
  expect(given.map((one) => [one.frames, one.prompts.map((prompt) => prompt.class_name)])).toEqual([
    [[10], ["car"]],
  ]);
  expect(await admin.ok("GET", `/status/${id}`)).toMatchObject({
    status: "completed",
    progress: 1,
  });
  expect((await report(id)).total_frames).toBe(5);
});

it("fails a job whose model went between the request and the planning", async () => {
  const id = await label({ prompts: ["car"] });
  await admin.ok("POST", `/jobs/${id}/add-class`, { class: "dog" });
  await node.work();
  await world.visionDatabase.execute(sql`
    UPDATE job SET state = 'queued', ended_at = NULL, created_at = now() - interval '1 hour',
      settings = settings || jsonb_build_object('round', 3,
        'models', jsonb_build_object('1', ${crypto.randomUUID()}::text))
     WHERE id = ${id}::uuid`);
  // A frame that the pass has not seen.
  await world.visionDatabase.execute(sql`
    UPDATE job_video SET frames = frames || 39 WHERE job_id = ${id}::uuid`);
  await world.tick(Date.now());
  expect(Job.parse(await admin.ok("GET", `/jobs/${id}`))).toMatchObject({
    status: "failed",
    failure: "the model that labels was deleted",
  });
});

it("gets no videos that it cannot look through, and stays as it is", async () => {
  const bare = await label({ prompts: ["car"] });
  await admin.ok("DELETE", `/jobs/${bare}/classes/car`);
  expect(await add(bare, { video_ids: [second] })).toMatchObject({ status: 409 });
  const id = await label({ prompts: ["car"] });
  await world.visionDatabase.execute(sql`
    UPDATE job SET settings = settings || jsonb_build_object('models',
      jsonb_build_object('0', ${crypto.randomUUID()}::text)) WHERE id = ${id}::uuid`);
  expect(await add(id, { video_ids: [second] })).toMatchObject({ status: 404 });
  for (const job of [bare, id]) {
    expect(Job.parse(await admin.ok("GET", `/jobs/${job}`))).toMatchObject({
      status: "completed",
      video_ids: [first],
    });
  }
});

it("is made of videos or of frames, to draw in, with its classes in order", async () => {
  const whole = await manual({ fps: 2, classes: ["van", "car"], name: "ours" });
  expect(whole).toMatchObject({ kind: "manual", status: "completed", name: "ours", fps: 2 });
  const frames = (id: string) =>
    admin.ok<{ items: { index: number }[] }>("GET", `/jobs/${id}/frames`);
  expect((await frames(whole.job_id)).items.map(({ index }) => index)).toEqual([
    0, 5, 10, 15, 20, 25, 30, 35,
  ]);
  const ids = [3, 1, 3].map((index) => frameId(second, index));
  const some = await manual({ video_ids: undefined, frame_ids: ids });
  expect((await frames(some.job_id)).items.map(({ index }) => index)).toEqual([1, 3]);
  await draw(whole.job_id, frameId(first, 7), "dog");
  const { prompts } = Job.parse(await admin.ok("GET", `/jobs/${whole.job_id}`));
  expect(prompts).toEqual(["van", "car", "dog"]);
});

it("has as dataset what was drawn on or marked, and no frame that nobody looked at", async () => {
  const { job_id } = await manual({ fps: 1 });
  await draw(job_id, frameId(first, 10));
  await draw(job_id, frameId(first, 11));
  expect(await report(job_id)).toMatchObject({ total_frames: 2, annotated_frames: 2 });
  const filter = { frame_ids: [frameId(first, 0)] };
  await admin.ok("POST", `/jobs/${job_id}/frames/review`, { reviewed: true, filter });
  expect(await report(job_id)).toMatchObject({ total_frames: 3, annotated_frames: 2 });
  const copy = Job.parse(await admin.ok("POST", `/jobs/${job_id}/duplicate`));
  expect(await report(copy.job_id)).toMatchObject({ total_frames: 3, annotated_frames: 2 });
});

it("takes more frames of its videos and other videos, each frame once", async () => {
  const { job_id } = await manual({ video_ids: undefined, frame_ids: [frameId(first, 4)] });
  const more = [frameId(first, 2), frameId(first, 4), frameId(second, 0)];
  const answers = await Promise.all([
    add(job_id, { frame_ids: more }),
    add(job_id, { frame_ids: more }),
  ]);
  expect(answers.map(({ status }) => status)).toEqual([200, 200]);
  const page = await admin.ok<{ total: number }>("GET", `/jobs/${job_id}/frames`);
  expect(page.total).toBe(3);
  const overview = await admin.ok<{ frame_count: number }>("GET", `/jobs/${job_id}/overview`);
  expect(overview.frame_count).toBe(3);
});

it("gives an imported job videos to draw on, whose frames are no background", async () => {
  const yolo = { names: ["car"], labels: { first_000000: "0 0.5 0.5 0.2 0.2" } };
  const imported = await admin.ok<{ job: Job }>("POST", "/import", { project_id: projectId, yolo });
  const { job_id } = imported.job;
  expect((await add(job_id, { video_ids: [second] })).status).toBe(200);
  expect((await report(job_id)).total_frames).toBe(1);
  await draw(job_id, frameId(second, 5));
  expect((await report(job_id)).total_frames).toBe(2);
  expect(await add(job_id, { video_ids: [first] })).toMatchObject({
    status: 409,
    body: { detail: `the job has video ${first} already` },
  });
});

it("refuses a video it has, a job that runs, a copy, and what is no choice of frames", async () => {
  const id = await label();
  expect(await add(id, { video_ids: [first] })).toMatchObject({ status: 409 });
  expect(await add(id, { video_ids: [crypto.randomUUID()] })).toMatchObject({ status: 404 });
  for (const body of [
    {},
    { fps: 1 },
    { video_ids: [second], frame_ids: [frameId(second, 0)] },
    { frame_ids: [frameId(second, 0)], fps: 1 },
    { frame_ids: ["nothing"] },
  ]) {
    expect(await add(id, body)).toMatchObject({ status: 422, body: { code: "invalid_request" } });
  }
  expect(await add(id, { frame_ids: [frameId(second, FRAMES)] })).toMatchObject({ status: 404 });
  const copy = Job.parse(await admin.ok("POST", `/jobs/${id}/duplicate`));
  expect(await add(copy.job_id, { video_ids: [second] })).toMatchObject({ status: 409 });
  const annotator = await colleague(world, admin, "annotator");
  const body = { video_ids: [second] };
  expect(await annotator.refused("POST", `/jobs/${id}/videos`, body)).toEqual([403, "forbidden"]);
  expect(
    await annotator.refused("POST", "/jobs", { project_id: projectId, video_ids: [first] }),
  ).toEqual([403, "forbidden"]);
  // Of two requests at once one begins a round.
  const answers = await Promise.all([add(id, body), add(id, body)]);
  expect(answers.filter(({ status }) => status === 202)).toHaveLength(1);
  expect(await add(id, body)).toMatchObject({ status: 409 });
  await node.work();
  expect(await admin.ok("GET", `/status/${id}`)).toMatchObject({ frames_total: 8, progress: 1 });
});
