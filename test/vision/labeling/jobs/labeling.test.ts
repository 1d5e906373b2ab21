// Labeling jobs in workerd: from a request to annotations, through stops, failures, late duplicates
// and one class more. The node is scripted; its protocol, the database and the store are real.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import type { ClaimedTask } from "../../../../shared/tasks/node-protocol.ts";
import { TASK_KINDS } from "../../../../shared/tasks/tasks.ts";
import { AnnotationPage, Job, JobProgress } from "../../../../shared/wire/labeling.ts";
import { Ticket } from "../../../../shared/wire/progress.ts";
import { frameId } from "../../../../shared/wire/vision.ts";
import {
  type Api,
  newProject,
  type Person,
  probeAs,
  register,
  type ScriptedNode,
  scriptedNode,
  uploadVideo,
} from "../../../support/scripted-node.ts";
import { createWorld, type World } from "../../../support/world.ts";

let world: World;
let admin: Person;
let node: ScriptedNode;
let projectId: string;
let videoId: string;

const FRAMES = 70;

/** Two people a frame, the second one unsure, and a car that is the first person too. */
const found = (task: ClaimedTask) => {
  const payload = TASK_KINDS.label.payload.parse(task.payload);
  const box = (x: number) => [x, 10, x + 50, 90] as [number, number, number, number];
  const seen = (frame: number) =>
    payload.prompts.flatMap(({ class_name }) => [
      ...[{ class_name, bbox: box(frame), confidence: 0.9 }],
      ...(class_name === "person" ? [{ class_name, bbox: box(300), confidence: 0.3 }] : []),
    ]);
  return {
    frames: payload.frames.map((frame_index) => ({
      frame_index,
      detections: seen(frame_index).map((one) => ({
        ...one,
        polygon: null,
        duplicate_of: one.class_name === "car" ? 0 : null,
      })),
    })),
    segmenter: "scripted",
    seconds: 0.1,
    warnings: [],
  };
};

beforeAll(async () => {
  world = await createWorld({ services: ["console", "vision"] });
  admin = await register(world);
  node = await scriptedNode(world, admin, { probe: probeAs({ frames: FRAMES }), label: found });
  projectId = (await newProject(admin)).project_id;
  videoId = (await uploadVideo(admin, projectId)).video_id;
  await node.work();
});

const label = (more: object = {}) => ({
  project_id: projectId,
  video_ids: [videoId],
  prompts: ["person"],
  threshold: 0.5,
  ...more,
});
const start = async (api: Api = admin, more: object = {}) =>
  (await api.ok<{ job_id: string }>("POST", "/label", label(more))).job_id;
const statusOf = async (id: string) => JobProgress.parse(await admin.ok("GET", `/status/${id}`));
const annotationsOf = async (id: string, query = "") =>
  AnnotationPage.parse(await admin.ok("GET", `/jobs/${id}/annotations?limit=1000${query}`));

describe("POST /label", () => {
  it("labels every frame, shows what is sure and keeps what is not", async () => {
    const response = await admin.send("POST", "/label", label());
    expect(response.status).toBe(202);
    const { job_id: id } = (await response.json()) as { job_id: string };
    expect(await statusOf(id)).toMatchObject({
      status: "queued",
      frames_done: 0,
      frames_total: FRAMES,
      progress: 0,
      tasks: { queued: 3, running: 0, finished: 0, failed: 0 },
    });
    const tasks = await node.work();
    expect(tasks.map(({ payload }) => (payload.frames as number[]).length)).toEqual([32, 32, 6]);
    expect(await statusOf(id)).toMatchObject({
      status: "completed",
      frames_done: FRAMES,
      progress: 1,
      stored_annotations: 2 * FRAMES,
      waiting_for: null,
      eta_seconds: null,
    });
    const page = await annotationsOf(id);
    expect(page.total).toBe(FRAMES);
    expect(page.items[0]).toMatchObject({
      frame_id: frameId(videoId, 0),
      class: "person",
      bbox: [0, 10, 50, 90],
      accepted: null,
      source: "model",
      revision: 1,
    });
    expect(page.items[0]?.confidence).toBeCloseTo(0.9, 6);
    // One object that moves a pixel a frame is one track, across all three tasks.
    expect(new Set(page.items.map(({ track_id }) => track_id))).toEqual(new Set([1]));
    const sliced = await admin.ok("PATCH", `/jobs/${id}`, { threshold: 0.2, name: "All of them" });
    expect(Job.parse(sliced)).toMatchObject({ threshold: 0.2, name: "All of them" });
    expect((await annotationsOf(id)).total).toBe(2 * FRAMES);
  });

  it("gives who may see a job an address of its live progress", async () => {
    const id = await start();
    const ticket = Ticket.parse(await admin.ok("POST", `/jobs/${id}/ticket`, {}));
    expect(ticket.url).toMatch(/^\/api\/v1\/progress\?/);
    await admin.send("POST", `/jobs/${id}/stop`, {});
  });

  it("samples by the frames' true times", async () => {
    const id = await start(admin, { fps: 2 });
    expect((await statusOf(id)).frames_total).toBe(14);
    const [task] = await node.work();
    expect(task?.payload.frames).toEqual(Array.from({ length: 14 }, (_, index) => index * 5));
  });

  it("labels a stretch of a video", async () => {
    const id = await start(admin, { fps: 2, from_seconds: 1, to_seconds: 3 });
    const [task] = await node.work();
    expect(task?.payload.frames).toEqual([10, 15, 20, 25]);
    expect((await statusOf(id)).frames_total).toBe(4);
    const beyond = label({ from_seconds: 100 });
    expect(await admin.refused("POST", "/label", beyond)).toEqual([422, "invalid_request"]);
  });

  it("starts one job for an idempotency key, and refuses the key for another body", async () => {
    const headers = { "Idempotency-Key": "once" };
    const one = await admin.ok("POST", "/label", label(), headers);
    expect(await admin.ok("POST", "/label", label(), headers)).toEqual(one);
    const other = await admin.refused("POST", "/label", label({ threshold: 0.1 }), headers);
    expect(other).toEqual([409, "idempotency_conflict"]);
    await node.work();
  });

  it("refuses a word that the segmenter lacks, with what is near and how to get more", async () => {
    const response = await admin.send("POST", "/label", label({ prompts: ["person", "cat"] }));
    expect(response.status).toBe(422);
    expect(await response.json()).toMatchObject({
      code: "prompt_unknown",
      prompt: "cat",
      nearest: ["car"],
      vocabulary: ["animal", "automobile", "car", "dog", "person", "taxi", "traffic"],
      detail: expect.stringContaining("npm run models -- install"),
    });
    const warned = await admin.ok("POST", "/label", label({ prompts: ["red cars"] }));
    expect(warned).toMatchObject({
      warnings: ['"red cars": Scripted looks for every car; it cannot tell "red" apart'],
    });
    await node.work();
  });

  it.each([
    [{ video_ids: [] }, 422, "invalid_request"],
    [{ prompts: [] }, 422, "invalid_request"],
    [{ prompts: ["  "] }, 422, "invalid_request"],
    [{ threshold: 2 }, 422, "invalid_request"],
    [{ fps: 0 }, 422, "invalid_request"],
    [{ video_ids: [crypto.randomUUID()] }, 404, "not_found"],
    [{ project_id: crypto.randomUUID() }, 404, "not_found"],
    [{ segmenter: "sam9" }, 422, "prompt_unknown"],
  ])("refuses %j", async (more, status, code) => {
    expect(await admin.refused("POST", "/label", label(more))).toEqual([status, code]);
  });

  it("waits right after the upload for the probe, as previews, masks and examples do", async () => {
    const fresh = (await uploadVideo(admin, projectId, "fresh.mp4")).video_id;
    const probe = (await node.claim(["probe"])) as ClaimedTask;
    const frame = frameId(fresh, 0);
    const bbox = [10, 10, 60, 60];
    const videos = { project_id: projectId, video_ids: [fresh] };
    const exemplars = [{ frame_id: frame, bbox }];
    const asked = [
      admin.send("POST", "/label", label(videos)),
      admin.send("POST", "/label/exemplar", { ...videos, class: "cell", exemplars }),
      admin.send("POST", "/label/preview", { frame_ids: [frame], prompts: ["person"] }),
      admin.send("POST", "/label/segment-points", { frame_id: frame, points: [], bbox }),
    ];
    const statuses = Promise.all(asked.map(async (answer) => (await answer).status));
    // Requests of another route are answered meanwhile.
    for (let count = 0; count < 5; count++) await admin.ok("GET", "/projects");
    const result = await probeAs({ frames: 3 })(probe, node);
    await node.finish(probe, { outcome: "finished", result });
    node.script.preview = () => ({ outcome: "failed", code: "x", detail: "x", retryable: false });
    node.script.segment = node.script.preview;
    const rest = node.start();
    // Those that a node does for whoever waits got as far as the node.
    expect(await statuses).toEqual([202, 202, 502, 502]);
    await rest();
  });

  it("makes no job without a video that was deleted while its probe was awaited", async () => {
    const gone = (await uploadVideo(admin, projectId, "gone.mp4")).video_id;
    const asked = admin.refused("POST", "/label", label({ video_ids: [videoId, gone] }));
    await admin.ok("DELETE", `/videos/${gone}`);
    expect(await asked).toEqual([404, "not_found"]);
  });

  it("waits some seconds for a probe and no longer, and never takes a broken one", async () => {
    const unprobed = (await uploadVideo(admin, projectId, "late.mp4")).video_id;
    const asked = label({ video_ids: [unprobed] });
    const early = await admin.send("POST", "/label", asked);
    expect([early.status, await early.json()]).toMatchObject([
      409,
      { code: "state_conflict", detail: expect.stringContaining("is probing: its frames are") },
    ]);
    const probe = await node.claim(["probe"]);
    await node.finish(probe as ClaimedTask, {
      outcome: "finished",
      result: { broken: "no video stream" },
    });
    const response = await admin.send("POST", "/label", asked);
    expect(await response.json()).toMatchObject({
      detail: expect.stringContaining("no video stream"),
    });
  });
});

describe("what asks a segmenter at once", () => {
  const failing = async () => ({
    outcome: "failed" as const,
    code: "broken",
    detail: "the model broke",
    retryable: false,
  });
  const click = (more: object = {}) => ({
    frame_id: frameId(videoId, 0),
    points: [{ x: 1, y: 1, label: 1 }],
    ...more,
  });
  const look = (more: object = {}) => ({
    frame_ids: [frameId(videoId, 0)],
    prompts: ["person"],
    ...more,
  });
  const exemplar = (more: object = {}) => ({
    project_id: projectId,
    video_ids: [videoId],
    exemplars: [{ frame_id: frameId(videoId, 0), bbox: [1, 1, 9, 9] }],
    ...more,
  });

  it("gives the node's words when it fails", async () => {
    Object.assign(node.script, { segment: failing, preview: failing, frames: failing });
    const stop = node.start();
    const failed = [502, "task_failed"];
    expect(await admin.refused("POST", "/label/segment-points", click())).toEqual(failed);
    expect(await admin.refused("POST", "/label/preview", look())).toEqual(failed);
    expect(await admin.refused("GET", `/videos/${videoId}/frames/69.jpg`)).toEqual(failed);
    await stop();
  });

  it.each([
    ["/label/segment-points", () => click({ points: [] })],
    ["/label/segment-points", () => click({ frame_id: "7" })],
    ["/label/preview", () => look({ frame_ids: [] })],
    ["/label/preview", () => look({ prompts: [] })],
    ["/label/exemplar", () => exemplar({ exemplars: [] })],
    ["/annotations", () => ({ bbox: [1, 1, 1, 1] })],
  ])("is refused as it stands: %s", async (path, body) => {
    expect(await admin.refused("POST", path, body())).toEqual([422, "invalid_request"]);
  });

  it("waits for a video to be probed", async () => {
    const unprobed = (await uploadVideo(admin, projectId, "unprobed.mp4")).video_id;
    const frame_id = frameId(unprobed, 0);
    const early = [409, "state_conflict"];
    const ask = (path: string, body: object) => admin.refused("POST", path, body);
    expect(await ask("/label/segment-points", click({ frame_id }))).toEqual(early);
    expect(await ask("/label/preview", look({ frame_ids: [frame_id] }))).toEqual(early);
    expect(await ask("/label/exemplar", exemplar({ video_ids: [unprobed] }))).toEqual(early);
    await node.work();
  });

  it("starts an exemplar job whose class is the one that was named", async () => {
    const body = exemplar({ class: "widget", threshold: 0 });
    const response = await admin.send("POST", "/label/exemplar", body);
    expect(response.status).toBe(202);
    const { job_id: id } = (await response.json()) as { job_id: string };
    await node.work();
    expect(new Set((await annotationsOf(id)).items.map((one) => one.class))).toEqual(
      new Set(["widget"]),
    );
  });
});

describe("a job that runs", () => {
  it("is not copied, exported or resumed", async () => {
    const id = await start();
    const early = [409, "state_conflict"];
    for (const path of ["duplicate", "export", "resume", "add-class"]) {
      const body = path === "add-class" ? { class: "car" } : undefined;
      expect([path, ...(await admin.refused("POST", `/jobs/${id}/${path}`, body))]).toEqual([
        path,
        ...early,
      ]);
    }
    expect(await admin.refused("GET", "/jobs?project_id=none")).toEqual([422, "invalid_request"]);
    await node.work();
  });

  it("answers an export that takes long with where it will be", async () => {
    const id = await start();
    await node.work();
    const response = await admin.send("POST", `/jobs/${id}/export`, {});
    expect(response.status).toBe(202);
    const made = (await response.json()) as { export_id: string; download_url: string };
    const path = made.download_url.replace(/^.*\/api\/v1/, "");
    const early = await admin.send("GET", path);
    expect([early.status, early.headers.get("Retry-After")]).toEqual([409, "5"]);
  });
});

describe("a job's life", () => {
  it("is stopped with what is done kept, and resumed for the rest alone", async () => {
    const id = await start();
    const task = (await node.claim(["label"])) as ClaimedTask;
    const stopping = await admin.send("POST", `/jobs/${id}/stop`);
    expect(stopping.status).toBe(202);
    expect((await statusOf(id)).status).toBe("queued");
    const heartbeat = { tasks: [{ task_id: task.task_id, fence: task.fence }] };
    expect(await node.api.ok("POST", "/node/heartbeat", heartbeat)).toEqual({
      tasks: [{ task_id: task.task_id, verdict: "cancel" }],
    });
    const half = found(task);
    half.frames.splice(10);
    await node.finish(task, { outcome: "cancelled", result: half });
    expect(await statusOf(id)).toMatchObject({ status: "stopped", frames_done: 10 });
    expect((await annotationsOf(id)).total).toBe(10);
    expect(await admin.refused("POST", `/jobs/${id}/stop`)).toEqual([409, "state_conflict"]);

    expect((await admin.send("POST", `/jobs/${id}/resume`)).status).toBe(202);
    const tasks = await node.work();
    const frames = tasks.flatMap(({ payload }) => payload.frames as number[]);
    expect(frames).toEqual(Array.from({ length: FRAMES - 10 }, (_, index) => index + 10));
    expect(await statusOf(id)).toMatchObject({ status: "completed", frames_done: FRAMES });
    expect((await annotationsOf(id)).total).toBe(FRAMES);
  });

  it("shows who revoked a task of it, or purged its queue, until it goes on", async () => {
    const id = await start();
    const task = (await node.claim(["label"])) as ClaimedTask;
    expect((await statusOf(id)).intervention).toBeNull();
    await admin.ok("POST", `/admin/tasks/${task.task_id}/revoke`);
    const revoked = { kind: "revoked", task_id: task.task_id, actor_id: admin.id };
    expect(await statusOf(id)).toMatchObject({ status: "queued", intervention: revoked });
    await admin.ok("POST", "/admin/queue/label/purge");
    await node.finish(task, { outcome: "revoked", exited: true });
    expect(await statusOf(id)).toMatchObject({
      status: "stopped",
      failure: null,
      intervention: { kind: "purged", actor_id: admin.id },
    });
    await admin.ok("POST", `/jobs/${id}/resume`);
    expect((await statusOf(id)).intervention).toBeNull();
    await node.work();
    expect(await statusOf(id)).toMatchObject({ status: "completed", intervention: null });
  });

  it("fails with the node's words, keeps what was labeled, and may be resumed", async () => {
    const id = await start();
    const good = (await node.claim(["label"])) as ClaimedTask;
    await node.finish(good, { outcome: "finished", result: found(good) });
    const failure = { outcome: "failed" as const, code: "bad_frame", detail: "frame 40 is torn" };
    for (let task = await node.claim(["label"]); task; task = await node.claim(["label"])) {
      await node.finish(task, { ...failure, retryable: false });
    }
    expect(await statusOf(id)).toMatchObject({
      status: "failed",
      failure: "frame 40 is torn",
      frames_done: 32,
      tasks: { finished: 1, failed: 2 },
    });
    await admin.ok("POST", `/jobs/${id}/resume`);
    await node.work();
    expect(await statusOf(id)).toMatchObject({ status: "completed", failure: null });
    expect((await annotationsOf(id)).total).toBe(FRAMES);
  });

  it("does not end while its next round is not planned, and is taken up by the cron", async () => {
    const id = await start();
    const first = (await node.claim(["label"])) as ClaimedTask;
    // The service died between raising the round and enqueueing its tasks.
    await world.visionDatabase.execute(sql`
      UPDATE job SET settings = settings || '{"round": 2}', created_at = now() - interval '1 hour'
       WHERE id = ${id}::uuid`);
    await node.finish(first, { outcome: "finished", result: found(first) });
    expect((await statusOf(id)).status).toBe("running");
    await world.tick(Date.now());
    await node.work();
    expect(await statusOf(id)).toMatchObject({ status: "completed", frames_done: FRAMES });
    expect((await annotationsOf(id)).total).toBe(FRAMES);
  });

  it("stores a result once, however often and from whom it is delivered", async () => {
    const id = await start();
    const first = (await node.claim(["label"])) as ClaimedTask;
    const outcome = { outcome: "finished" as const, result: found(first) };
    expect((await node.finish(first, outcome)).status).toBe(200);
    expect((await node.finish(first, outcome)).status).toBe(200);
    const { total } = await annotationsOf(id);
    const stale = await node.finish({ ...first, fence: first.fence - 1 }, outcome);
    expect(stale.status).toBe(409);
    expect((await annotationsOf(id)).total).toBe(total);
    await node.work();
    expect((await annotationsOf(id)).total).toBe(FRAMES);
  });

  it("labels one class more over the same frames, and touches nothing else", async () => {
    const id = await start();
    await node.work();
    const before = (await annotationsOf(id)).items;
    await admin.ok("PATCH", `/annotations/${before[0]?.annotation_id}`, { accepted: true });
    const body = { class: "vehicle", prompt: "car" };
    const response = await admin.send("POST", `/jobs/${id}/add-class`, body);
    expect(response.status).toBe(202);
    expect(await admin.refused("POST", `/jobs/${id}/add-class`, body)).toEqual([
      409,
      "state_conflict",
    ]);
    const tasks = await node.work();
    expect(tasks[0]?.payload.prompts).toEqual([
      { kind: "text", class_name: "vehicle", text: "car" },
    ]);
    expect((await statusOf(id)).status).toBe("completed");
    const all = (await annotationsOf(id)).items;
    const old = all.filter((one) => one.class === "person");
    expect(old.map(({ annotation_id: one }) => one)).toEqual(
      before.map(({ annotation_id: one }) => one),
    );
    expect(old[0]?.accepted).toBe(true);
    expect(all.length - old.length).toBe(FRAMES);
    expect(await admin.refused("POST", `/jobs/${id}/add-class`, body)).toEqual([
      409,
      "class_exists",
    ]);
    const unknown = { class: "cat" };
    expect(await admin.refused("POST", `/jobs/${id}/add-class`, unknown)).toEqual([
      422,
      "prompt_unknown",
    ]);
  });

  it("is copied with everything, and deleted with everything", async () => {
    const id = await start();
    await node.work();
    const copy = Job.parse(await admin.ok("POST", `/jobs/${id}/duplicate`));
    expect(copy).toMatchObject({ status: "completed", name: "person (copy)" });
    const [own, copied] = [await annotationsOf(id), await annotationsOf(copy.job_id)];
    expect(copied.total).toBe(own.total);
    const ids = new Set(own.items.map(({ annotation_id: one }) => one));
    expect(copied.items.filter(({ annotation_id: one }) => ids.has(one))).toEqual([]);
    expect((await admin.send("DELETE", `/jobs/${id}`)).status).toBe(204);
    expect(await admin.refused("GET", `/jobs/${id}`)).toEqual([404, "not_found"]);
    expect(await admin.refused("GET", `/jobs/${id}/annotations`)).toEqual([404, "not_found"]);
    expect((await annotationsOf(copy.job_id)).total).toBe(own.total);
  });
});
