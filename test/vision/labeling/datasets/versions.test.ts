// Datasets of jobs and their versions. Goal: several jobs train together under one list of classes;
// a version never changes and says how it differs; a frame stays on its side for good.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { ExportManifest } from "../../../../shared/tasks/export-manifest.ts";
import { Dataset, DatasetVersion, type VideoSide } from "../../../../shared/wire/datasets.ts";
import { Annotation, Job } from "../../../../shared/wire/labeling.ts";
import { TrainingRun } from "../../../../shared/wire/training.ts";
import { frameId } from "../../../../shared/wire/vision.ts";
import {
  colleague,
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
/** Stills of the project. */
const videos: string[] = [];

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  admin = await register(world);
  node = await scriptedNode(world, admin, { probe: probeAs({ frames: 1 }) });
  projectId = (await newProject(admin)).project_id;
  for (let index = 0; index < 12; index++) {
    videos.push((await uploadVideo(admin, projectId, `still-${index}.mp4`)).video_id);
  }
  await node.work();
});

const manual = async (some: readonly string[], name: string) =>
  Job.parse(await admin.ok("POST", "/jobs", { project_id: projectId, video_ids: some, name }))
    .job_id;
const draw = async (job_id: string, video: string, className = "car", x = 10) => {
  const bbox = [x, 10, x + 30, 40];
  const body = { job_id, frame_id: frameId(video, 0), class: className, bbox };
  return Annotation.parse(await admin.ok("POST", "/annotations", body)).annotation_id;
};
const drawn = async (some: readonly string[], name: string, className = "car") => {
  const id = await manual(some, name);
  for (const video of some) await draw(id, video, className);
  return id;
};
const dataset = async (jobs: readonly string[], more: Record<string, unknown> = {}) => {
  const body = { project_id: projectId, name: "streets", job_ids: jobs, ...more };
  return Dataset.parse(await admin.ok("POST", "/datasets", body)).dataset_id;
};
const version = async (id: string, note = "") =>
  DatasetVersion.parse(await admin.ok("POST", `/datasets/${id}/versions`, { note }));
const sides = (id: string) => admin.ok<VideoSide[]>("GET", `/datasets/${id}/split`);
const sideOf = async (id: string) =>
  new Map((await sides(id)).map(({ video_id, side }) => [video_id, side]));
const problem = async (method: string, path: string, body?: unknown) => {
  const response = await admin.send(method, path, body);
  const { code, detail } = (await response.json()) as { code: string; detail: string };
  return [response.status, code, detail];
};
const manifestOf = async (id: string, number: number) => {
  const { rows } = await world.visionDatabase.execute<{ key: string }>(sql`
    SELECT storage_key AS key FROM dataset_version
     WHERE dataset_id = ${id}::uuid AND number = ${number}::int`);
  const held = await world.media.get(rows[0]?.key ?? "");
  return ExportManifest.parse(await held?.json());
};

it("puts jobs together under one list of classes, with names that are mapped or left out", async () => {
  const cars = await drawn(videos.slice(0, 6), "cars");
  const lorries = await drawn(videos.slice(6, 12), "lorries", "lorry");
  await draw(lorries, videos[6] as string, "dog", 100);
  const id = await dataset([cars, lorries]);
  await admin.ok("PUT", `/datasets/${id}/jobs/${lorries}`, {
    classes: { lorry: "truck" },
    without: ["dog"],
  });
  const made = await version(id, "first");
  expect(made).toMatchObject({
    version: 1,
    parent: null,
    note: "first",
    classes: ["car", "truck"],
  });
  const total = (name: "frames" | "annotations" | "annotated_frames") =>
    made.counts.train[name] + made.counts.val[name] + made.counts.test[name];
  expect([total("frames"), total("annotations"), total("annotated_frames")]).toEqual([12, 12, 12]);
  expect(made.counts.per_class.map((one) => one.train + one.val + one.test)).toEqual([6, 6]);
  expect(made.changes).toEqual({
    frames: { added: 12, changed: 0, removed: 0 },
    annotations: { added: 12, changed: 0, removed: 0 },
  });
  const manifest = await manifestOf(id, 1);
  const classes = manifest.videos.flatMap((video) =>
    video.frames.flatMap(({ annotations }) => annotations.map((one) => one.class_index)),
  );
  expect(classes.toSorted()).toEqual([0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1]);
});

it("has the annotations of all jobs on a frame, and refuses two jobs of one class on it", async () => {
  const some = videos.slice(0, 3);
  const cars = await drawn(some, "cars");
  const people = await drawn(some, "people", "person");
  const id = await dataset([cars, people]);
  const made = await version(id);
  expect(made.classes).toEqual(["car", "person"]);
  const manifest = await manifestOf(id, 1);
  expect(manifest.videos.map(({ frames }) => frames[0]?.annotations.length)).toEqual([2, 2, 2]);
  const more = await drawn([some[0] as string], "more cars");
  await admin.ok("PUT", `/datasets/${id}/jobs/${more}`, {});
  const refusal = await problem("POST", `/datasets/${id}/versions`, {});
  expect(refusal).toEqual([409, "state_conflict", expect.stringMatching(/still-0.mp4: "car"/)]);
  await admin.ok("PUT", `/datasets/${id}/jobs/${more}`, { without: ["car"] });
  // Nothing of that job counts, so nothing changed.
  expect((await version(id)).version).toBe(1);
});

it("keeps what repeats a class that is left out, and takes names of one class for one", async () => {
  const job = await manual(videos.slice(0, 3), "traffic");
  for (const video of videos.slice(0, 3)) {
    const better = await draw(job, video, "vehicle");
    const car = await draw(job, video, "car");
    await world.visionDatabase.execute(sql`
      UPDATE annotation SET source = 'model', review = 'pending', confidence = 0.8,
        duplicate_of = ${better}::uuid WHERE id = ${car}::uuid`);
  }
  const id = await dataset([job]);
  const whole = (await version(id)).counts.per_class;
  const total = (one: (typeof whole)[number]) => one.train + one.val + one.test;
  expect(whole.map((one) => [one.class, total(one)])).toEqual([
    ["vehicle", 3],
    ["car", 0],
  ]);
  await admin.ok("PUT", `/datasets/${id}/jobs/${job}`, { without: ["vehicle"] });
  const cars = await drawn(videos.slice(3, 6), "cars", "Car");
  await admin.ok("PUT", `/datasets/${id}/jobs/${cars}`, {});
  const { per_class, ...rest } = (await version(id)).counts;
  expect(per_class.map((one) => [one.class, total(one)])).toEqual([
    ["vehicle", 0],
    ["car", 6],
  ]);
  expect(rest.train.annotations + rest.val.annotations + rest.test.annotations).toBe(6);
});

it("tells what was added, changed and removed since, and changes nothing of a version", async () => {
  const some = videos.slice(0, 4);
  const job = await manual(videos.slice(0, 5), "cars");
  const ids = [];
  for (const video of some) ids.push(await draw(job, video));
  const id = await dataset([job]);
  const first = await version(id);
  await admin.ok("PATCH", `/annotations/${ids[0]}`, { bbox: [1, 1, 20, 20] });
  await admin.ok("PATCH", `/annotations/${ids[1]}`, { class: "van" });
  await admin.ok("DELETE", `/annotations/${ids[2]}`);
  await draw(job, some[3] as string, "car", 90);
  await draw(job, videos[4] as string);
  const second = await version(id);
  expect(second).toMatchObject({ version: 2, parent: 1, classes: ["car", "van"] });
  expect(second.changes).toEqual({
    frames: { added: 1, changed: 3, removed: 1 },
    annotations: { added: 2, changed: 2, removed: 1 },
  });
  expect(await version(id)).toEqual(second);
  const again = DatasetVersion.parse(await admin.ok("GET", `/datasets/${id}/versions/1`));
  expect(again).toEqual(first);
  const listed = await admin.ok<DatasetVersion[]>("GET", `/datasets/${id}/versions`);
  expect(listed.map((one) => one.version)).toEqual([2, 1]);
  expect((await manifestOf(id, 1)).classes).toEqual(["car"]);
});

describe("a side of the split", () => {
  it("stays as the dataset grows, and is set by hand", async () => {
    const job = await drawn(videos.slice(0, 6), "cars");
    const id = await dataset([job]);
    await version(id);
    const before = await sideOf(id);
    expect(new Set(before.values())).toEqual(new Set(["train", "val", "test"]));
    await admin.ok("POST", `/jobs/${job}/videos`, { video_ids: videos.slice(6) });
    for (const video of videos.slice(6)) await draw(job, video);
    await version(id);
    const after = await sideOf(id);
    expect(after.size).toBe(12);
    for (const [video, side] of before) expect(after.get(video)).toBe(side);
    const moved = videos.filter((video) => after.get(video) === "train").slice(0, 2);
    await admin.ok("POST", `/datasets/${id}/split`, { video_ids: moved, side: "test" });
    const third = await version(id);
    expect(third.changes.frames).toEqual({ added: 0, changed: 2, removed: 0 });
    const now = await sides(id);
    expect(
      now
        .filter(({ origin }) => origin === "person")
        .map((one) => one.video_id)
        .sort(),
    ).toEqual(moved.toSorted());
    const stranger = [crypto.randomUUID()];
    const path = `/datasets/${id}/split`;
    expect((await problem("POST", path, { video_ids: stranger, side: "val" }))[0]).toBe(404);
  });

  it("is drawn once by two versions that are made at the same time", async () => {
    const id = await dataset([await drawn(videos, "cars")]);
    const path = `/datasets/${id}/versions`;
    const answers = await Promise.all([1, 2, 3].map(() => admin.send("POST", path, {})));
    const statuses = answers.map(({ status }) => status);
    expect(statuses.filter((status) => status === 201)).toHaveLength(1);
    expect(statuses.filter((status) => ![200, 201, 409].includes(status))).toEqual([]);
    expect((await sides(id)).length).toBe(12);
    expect(await admin.ok("GET", path)).toHaveLength(1);
    // Of those that came too late nothing is left in the store.
    const { objects } = await world.media.list({ prefix: "ws/" });
    expect(objects.filter(({ key }) => key.includes(id))).toHaveLength(1);
  });
});

it("trains on a version, and on what the dataset holds now where none is named", async () => {
  const job = await drawn(videos, "cars");
  const id = await dataset([job]);
  const first = await version(id);
  await draw(job, videos[0] as string, "car", 80);
  const start = (body: Record<string, unknown>) =>
    admin.ok<{ run_id: string }>("POST", "/train", { dataset_id: id, epochs: 1, ...body });
  const run = async (body: Record<string, unknown>) =>
    TrainingRun.parse(await admin.ok("GET", `/train/${(await start(body)).run_id}`));
  const old = await run({ version: 1 });
  expect(old).toMatchObject({
    job_id: null,
    dataset: { dataset_id: id, version: 1 },
    dataset_sha256: first.sha256,
    classes: ["car"],
  });
  const now = await run({});
  expect(now.dataset).toEqual({ dataset_id: id, version: 2 });
  expect((await run({})).dataset).toEqual({ dataset_id: id, version: 2 });
  const task = await node.claim(["train"]);
  const payload = task?.payload as { manifest: { url: string }; videos: unknown[] };
  const given = ExportManifest.parse(await (await fetch(payload.manifest.url)).json());
  const frames = given.videos.flatMap((one) => one.frames);
  expect(frames.filter(({ split }) => split === "test").length).toBeGreaterThan(0);
  expect(payload.videos).toHaveLength(12);
  await admin.ok("DELETE", `/datasets/${id}`);
  expect(TrainingRun.parse(await admin.ok("GET", `/train/${old.run_id}`)).dataset).toBeNull();
});

it("refuses what is no choice of data, an unfinished job, other workspaces and small roles", async () => {
  const job = await drawn(videos.slice(0, 3), "cars");
  const id = await dataset([job]);
  const train = (body: Record<string, unknown>) => problem("POST", "/train", body);
  const choice = "job_id: give either a job or a dataset";
  expect(await train({ job_id: job, dataset_id: id })).toEqual([422, "invalid_request", choice]);
  expect(await train({})).toEqual([422, "invalid_request", choice]);
  expect((await train({ job_id: job, version: 1 }))[2]).toBe("version: only with dataset_id");
  for (const own of [{ val_share: 0.3 }, { include: "accepted" }]) {
    expect((await train({ dataset_id: id, ...own }))[2]).toMatch(/is the dataset's own: PATCH/);
  }
  expect((await train({ dataset_id: id, version: 7 }))[0]).toBe(404);
  const empty = await dataset([]);
  expect((await problem("POST", `/datasets/${empty}/versions`, {}))[1]).toBe("state_conflict");
  const shares = { val_share: 0.6, test_share: 0.5 };
  const body = { project_id: projectId, name: "x" };
  expect((await problem("POST", "/datasets", { ...body, ...shares }))[0]).toBe(422);
  const patch = await problem("PATCH", `/datasets/${id}`, { val_share: 0.9 });
  expect(patch).toEqual([422, "invalid_request", expect.stringMatching(/^test_share: must leave/)]);
  const member = `/datasets/${id}/jobs/${job}`;
  expect((await problem("PUT", member, { without: ["cat"] }))[2]).toMatch(/no class "cat"/);
  const both = { classes: { car: "truck" }, without: ["car"] };
  expect((await problem("PUT", member, both))[2]).toMatch(/"car" is in classes too/);
  await admin.ok("PUT", member, { classes: { car: "truck" } });
  const renamed = { job_id: job, from: "car", into: "lorry" };
  await admin.ok("POST", "/annotations/merge-classes", renamed);
  const made = await problem("POST", `/datasets/${id}/versions`, {});
  expect(made).toEqual([409, "state_conflict", expect.stringMatching(/"car" any more/)]);
  const stranger = { ...body, job_ids: [crypto.randomUUID()] };
  expect((await problem("POST", "/datasets", stranger))[0]).toBe(404);
  await world.visionDatabase.execute(sql`
    UPDATE job SET state = 'stopped' WHERE id = ${job}::uuid`);
  expect((await problem("POST", `/datasets/${id}/versions`, {}))[2]).toMatch(/"cars" is stopped/);
  const viewer = await colleague(world, admin, "viewer");
  expect(Dataset.parse(await viewer.ok("GET", `/datasets/${id}`)).name).toBe("streets");
  for (const [method, path, sent] of [
    ["POST", "/datasets", body],
    ["PATCH", `/datasets/${id}`, { name: "mine" }],
    ["DELETE", `/datasets/${id}`],
    ["PUT", `/datasets/${id}/jobs/${job}`, {}],
    ["DELETE", `/datasets/${id}/jobs/${job}`],
    ["POST", `/datasets/${id}/split`, { video_ids: [videos[0]], side: "val" }],
    ["POST", `/datasets/${id}/versions`, {}],
  ] as const) {
    expect(await viewer.refused(method, path, sent)).toEqual([403, "forbidden"]);
  }
});
