// Suggestions of what to label next, embeddings, and frames like one. Goal: nodes look at every
// unlabeled frame once, what they cannot read is counted, and no crash spoils the ranking.

import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, expect, it } from "vitest";
import type { EmbedResult } from "../../../../shared/tasks/embed-task.ts";
import type { ClaimedTask } from "../../../../shared/tasks/node-protocol.ts";
import { TASK_KINDS, type TaskPayload } from "../../../../shared/tasks/tasks.ts";
import { Embeddings, SimilarFrames, Suggestion } from "../../../../shared/wire/suggestions.ts";
import { frameId } from "../../../../shared/wire/vision.ts";
import { registerModel } from "../../../support/registered-model.ts";
import {
  apiAs,
  colleague,
  newProject,
  type Person,
  probeAs,
  type ScriptedNode,
  scriptedNode,
  uploadVideo,
} from "../../../support/scripted-node.ts";
import { newTenant, register as registerPerson } from "../../../support/vision.ts";
import { createWorld, type World } from "../../../support/world.ts";

/** Frames of the clip, ten seconds at ten a second; at one a second eleven are candidates. */
const FRAMES = 101;
const SAMPLED = Array.from({ length: 11 }, (_, second) => second * 10);

let world: World;
let founder: Awaited<ReturnType<typeof registerPerson>>;
let admin: Person;
let annotator: Person;
let node: ScriptedNode;
let projectId: string;
let clip: string;
let image: string;
let given: TaskPayload<"embed">[];
/** What the node answers instead. */
let instead: ((task: TaskPayload<"embed">) => Record<string, unknown> | null) | null = null;

/** A vector that turns with the frame's index; the image's is the one of frame 33. */
const vectorOf = (videoId: string, frame: number) => {
  const angle = ((videoId === image ? 33 : frame) / FRAMES) * Math.PI;
  const numbers = Int8Array.of(
    Math.round(127 * Math.cos(angle)),
    Math.round(127 * Math.sin(angle)),
  );
  return Buffer.from(numbers.buffer).toString("base64");
};
/** The model is the less sure of a frame, the later it is. */
const entropiesOf = (frame: number) => ({ car: 1 + frame });

function look(task: ClaimedTask): Record<string, unknown> {
  const payload = TASK_KINDS.embed.payload.parse(task.payload);
  given.push(payload);
  return instead?.(payload) ?? answered(payload);
}
function answered({ videos }: TaskPayload<"embed">): EmbedResult {
  const frames = videos.flatMap(({ video_id, embed, score }) =>
    [...new Set([...embed, ...score])].map((frame_index) => ({
      video_id,
      frame_index,
      vector: embed.includes(frame_index) ? vectorOf(video_id, frame_index) : null,
      entropies: score.includes(frame_index) ? entropiesOf(frame_index) : null,
    })),
  );
  return { frames, unreadable: [] };
}

const asPerson = ({ id, email, tokens }: typeof founder): Person => ({
  ...apiAs(world.urls.vision, tokens.access_token),
  id,
  email,
});

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  founder = await registerPerson(world.urls.vision);
  admin = asPerson(founder);
  annotator = await colleague(world, admin, "annotator");
  let probes = 0;
  node = await scriptedNode(world, admin, {
    probe: (...args) => probeAs({ frames: probes++ % 2 === 0 ? FRAMES : 1 })(...args),
    embed: look,
  });
});
beforeEach(async () => {
  given = [];
  instead = null;
  projectId = (await newProject(admin)).project_id;
  clip = (await uploadVideo(admin, projectId, "clip.mp4")).video_id;
  await node.work();
  image = (await uploadVideo(admin, projectId, "image.mp4")).video_id;
  await node.work();
});

const ask = async (body: Record<string, unknown> = {}, project = projectId) =>
  Suggestion.parse(
    await admin.ok("POST", `/projects/${project}/suggestions`, { budget: 3, ...body }),
  );
const read = async (id: string) => Suggestion.parse(await admin.ok("GET", `/suggestions/${id}`));
const suggested = async (body: Record<string, unknown> = {}) => {
  const { suggestion_id } = await ask(body);
  await node.work();
  return read(suggestion_id);
};
const model = async () => {
  const { rows } = await world.visionDatabase.execute<{ id: string }>(
    sql`SELECT workspace_id AS id FROM video WHERE id = ${clip}::uuid`,
  );
  const file = Buffer.alloc(8);
  return registerModel(world, rows[0]?.id ?? "", { file, classes: ["car"] });
};
/** A job in which a person draws on these frames of the clip. */
const drawOn = async (...frames: number[]) => {
  const body = { project_id: projectId, frame_ids: frames.map((one) => frameId(clip, one)) };
  const { job_id } = await admin.ok<{ job_id: string }>("POST", "/jobs", body);
  for (const frame of frames) {
    await admin.ok("POST", "/annotations", {
      job_id,
      frame_id: frameId(clip, frame),
      class: "car",
      bbox: [1, 1, 9, 9],
    });
  }
};

it("ranks images and sampled frames by how they differ from what is labeled", async () => {
  await drawOn(0, 20);
  const begun = await ask();
  expect(begun).toMatchObject({
    status: "running",
    model_id: null,
    segmenter: "scripted",
    unlabeled_frames: SAMPLED.length - 1,
    candidates: SAMPLED.length - 1,
    labeled_frames: 2,
    frames_total: SAMPLED.length + 1,
    frames_done: 0,
    frames: [],
  });
  await node.work();
  const done = await read(begun.suggestion_id);
  expect(done).toMatchObject({ status: "completed", failure: null, unreadable_frames: 0 });
  expect(done.frames_done).toBe(done.frames_total);
  const indexes = done.frames.map(({ index }) => index);
  expect(indexes.every((index) => index >= 40)).toBe(true);
  const distances = done.frames.map(({ distance }) => distance ?? 0);
  expect(distances).toEqual(distances.toSorted((one, other) => other - one));
  expect(distances.at(-1)).toBeGreaterThan(0.1);
  const [index = 0] = indexes;
  expect(done.frames[0]).toMatchObject({
    frame_id: frameId(clip, index),
    filename: "clip.mp4",
    image_url: `/api/v1/videos/${clip}/frames/${index}.jpg`,
    uncertainty: null,
  });
  const ids = done.frames.map(({ frame_id }) => frame_id);
  await admin.ok("POST", "/jobs", { project_id: projectId, frame_ids: ids });
  const listed = await admin.ok<Suggestion[]>("GET", `/projects/${projectId}/suggestions`);
  expect(listed.map((one) => [one.suggestion_id, one.status, "frames" in one])).toEqual([
    [begun.suggestion_id, "completed", false],
  ]);
});

it("chooses where a model is unsure, and embeds no frame twice", async () => {
  const { model_id } = await model();
  const first = await suggested({ model: model_id, budget: 1 });
  // Four times the budget: those of 70 to 100. All are as far from nothing.
  expect(first.frames.map(({ index }) => index)).toEqual([100]);
  expect(first.frames[0]?.uncertainty).toBeGreaterThan(1);
  expect(given.flatMap(({ videos }) => videos.flatMap(({ embed }) => embed))).toHaveLength(12);
  given = [];
  await suggested({ model: model_id, budget: 1 });
  expect(given.flatMap(({ videos }) => videos.flatMap(({ embed }) => embed))).toEqual([]);
  expect(given.flatMap(({ videos }) => videos.flatMap(({ score }) => score))).toHaveLength(12);
  given = [];
  // Without a model no node has anything left to do.
  const third = await ask();
  expect(third.status).toBe("completed");
  expect(given).toEqual([]);
});

it("takes videos, a rate and a stretch, and refuses what leaves nothing", async () => {
  const few = await suggested({ video_ids: [clip], fps: 0.5, from_seconds: 5 });
  expect(few.frames.map(({ index }) => index).toSorted((a, b) => a - b)).toEqual([60, 80, 100]);
  const path = `/projects/${projectId}/suggestions`;
  const refused = (body: unknown) => admin.refused("POST", path, body);
  const elsewhere = { budget: 1, video_ids: [crypto.randomUUID()] };
  expect(await refused(elsewhere)).toEqual([404, "not_found"]);
  expect(await refused({ budget: 0 })).toEqual([422, "invalid_request"]);
  expect(await refused({ budget: 1, segmenter: "sam9" })).toEqual([422, "invalid_request"]);
  expect(await refused({ budget: 1, model: "active" })).toEqual([409, "state_conflict"]);
  await drawOn(...SAMPLED);
  const all = { budget: 1, video_ids: [clip] };
  expect(await refused(all)).toEqual([409, "state_conflict"]);
});

it("counts what cannot be read, and fails in the node's words where that is all", async () => {
  instead = ({ videos }) => {
    const [first, ...rest] = videos;
    const { frames } = answered({ segmenter: "", model: null, videos: rest });
    return { frames, unreadable: first ? [{ video_id: first.video_id, detail: "torn" }] : [] };
  };
  const some = await suggested();
  expect(some).toMatchObject({ status: "completed", unreadable_frames: SAMPLED.length });
  expect(some.frames.map(({ video_id }) => video_id)).toEqual([image]);
  instead = ({ videos: [first] }) => ({
    frames: [],
    unreadable: [{ video_id: first?.video_id, detail: "torn" }],
  });
  const torn = await suggested({ video_ids: [clip] });
  expect(torn).toMatchObject({ status: "failed", failure: "torn", unreadable_frames: 11 });
  instead = () => ({ outcome: "failed", code: "internal", detail: "no memory", retryable: false });
  const none = await suggested({ video_ids: [clip] });
  expect(none).toMatchObject({ status: "failed", failure: "no memory", frames: [] });
});

it("takes no answer that was not asked for", async () => {
  const wrong: ((one: EmbedResult["frames"][number]) => unknown)[] = [
    (one) => ({ ...one, video_id: crypto.randomUUID() }),
    (one) => ({ ...one, frame_index: 7 }),
    (one) => ({ ...one, vector: null }),
    (one) => ({ ...one, vector: "" }),
    (one) => ({ ...one, vector: one.frame_index === 0 ? "AAAA" : one.vector }),
    (one) => ({ ...one, entropies: { car: 1 } }),
    (one) => ({ ...one, entropies: { lorry: 1 } }),
  ];
  for (const change of wrong) {
    instead = (task) => ({ ...answered(task), frames: answered(task).frames.map(change) });
    const { suggestion_id: id, frames_done: done } = await suggested({ video_ids: [clip] });
    expect(done).toBe(0);
    await admin.ok("DELETE", `/suggestions/${id}`);
  }
});

it("goes on after a crash, and takes a late duplicate for nothing new", async () => {
  const { suggestion_id: id } = await ask();
  const { visionDatabase: database } = world;
  // As if the process had died before a task was enqueued, and before the ranking.
  await database.execute(sql`DELETE FROM task WHERE subject = ${`suggestion:${id}`}`);
  await database.execute(sql`
    UPDATE suggestion SET planned = false, created_at = now() - interval '1 hour'
     WHERE id = ${id}::uuid`);
  await Promise.all([world.tick(Date.now()), world.tick(Date.now())]);
  await node.work();
  const done = await read(id);
  expect(done.status).toBe("completed");
  expect(done.frames).toHaveLength(3);
  await world.tick(Date.now());
  expect(await read(id)).toEqual(done);
});

it("finds the frames most like one, once they have embeddings", async () => {
  await drawOn(0, 30, 100);
  const path = `/frames/${frameId(image, 0)}/similar`;
  expect(await admin.refused("GET", path)).toEqual([409, "state_conflict"]);
  const embeddings = `/projects/${projectId}/embeddings`;
  const [started] = await Promise.all(
    [1, 2, 3].map(async () => Embeddings.parse(await admin.ok("POST", embeddings, {}))),
  );
  expect(started).toEqual({ segmenter: "scripted", frames: 4, embedded: 0, running: true });
  // While nodes work, other requests add nothing.
  await admin.ok("POST", embeddings, {});
  await node.work();
  expect(given).toHaveLength(1);
  expect(await admin.ok("GET", embeddings)).toEqual({ ...started, embedded: 4, running: false });
  const alike = SimilarFrames.parse(await admin.ok("GET", `${path}?limit=2`));
  expect(alike).toMatchObject({ segmenter: "scripted", compared: 4 });
  expect(alike.frames.map(({ frame_id }) => frame_id)).toEqual([
    frameId(clip, 30),
    frameId(clip, 0),
  ]);
  expect(alike.frames[0]?.similarity).toBeGreaterThan(0.9);
  // What nodes offer now is of no matter to what is stored.
  const named = await admin.ok<SimilarFrames>("GET", `${path}?segmenter=scripted`);
  expect(named.frames).toHaveLength(3);
  expect(await admin.refused("GET", `${path}?segmenter=sam9`)).toEqual([409, "state_conflict"]);
  await admin.ok("DELETE", `/videos/${image}`);
  expect(await admin.refused("GET", path)).toEqual([404, "not_found"]);
});

it("stops and forgets, and lets only engineers begin and delete", async () => {
  const { suggestion_id: id } = await ask();
  const path = `/projects/${projectId}/suggestions`;
  expect(await annotator.refused("POST", path, { budget: 1 })).toEqual([403, "forbidden"]);
  expect(await annotator.refused("DELETE", `/suggestions/${id}`)).toEqual([403, "forbidden"]);
  expect((await annotator.ok<Suggestion>("GET", `/suggestions/${id}`)).status).toBe("running");
  const stranger = asPerson((await newTenant(world.urls.vision, founder, "admin")).member);
  for (const route of [`/suggestions/${id}`, path, `/frames/${frameId(image, 0)}/similar`]) {
    expect(await stranger.refused("GET", route)).toEqual([404, "not_found"]);
  }
  expect(await stranger.refused("POST", path, { budget: 1 })).toEqual([404, "not_found"]);
  await admin.ok("DELETE", `/suggestions/${id}`);
  expect(await node.work()).toEqual([]);
  expect(await admin.refused("GET", `/suggestions/${id}`)).toEqual([404, "not_found"]);
});

it("waits for a node with the segmenter that is named where nodes have none at all", async () => {
  await world.visionDatabase.execute(sql`
    UPDATE node SET capabilities = jsonb_set(capabilities, '{segmenters}', '[]')`);
  const segmenter = "sam9";
  const path = `/projects/${projectId}/embeddings`;
  const started = await admin.ok("POST", path, { segmenter });
  expect(started).toEqual({ segmenter, frames: 1, embedded: 0, running: true });
  const body = { project_id: projectId, video_ids: [clip], prompts: ["car"], segmenter };
  const { job_id } = await admin.ok<{ job_id: string }>("POST", "/label", body);
  expect(await admin.ok("GET", `/jobs/${job_id}`)).toMatchObject({ status: "queued" });
});
