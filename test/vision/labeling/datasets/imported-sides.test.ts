// Sides of the split that an import brings along. Goal: they are counted, kept with the job and its
// copies, and hold in datasets, trainings and exports, after what people set and what was drawn.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { ExportManifest } from "../../../../shared/tasks/export-manifest.ts";
import { TASK_KINDS } from "../../../../shared/tasks/tasks.ts";
import type { Dataset, DatasetVersion, VideoSide } from "../../../../shared/wire/datasets.ts";
import type { ImportRecord, Job } from "../../../../shared/wire/labeling.ts";
import {
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
/** Stills of the project, and their numbers by their ids. */
const videos: string[] = [];
const numberOf = new Map<string, number>();

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  admin = await register(world);
  node = await scriptedNode(world, admin, { probe: probeAs({ frames: 1 }) });
  projectId = (await newProject(admin)).project_id;
  for (let index = 0; index < 10; index++) {
    const { video_id: id } = await uploadVideo(admin, projectId, `still-${index}.mp4`);
    videos.push(id);
    numberOf.set(id, index);
  }
  await node.work();
});

/** Imports labels of stills, by their numbers, in folders of sides. */
async function imported(sides: Record<string, readonly number[]>, name = "cell") {
  const labels = Object.entries(sides).flatMap(([folder, numbers]) =>
    numbers.map((number) => [`${folder}/still-${number}_000000`, "0 0.5 0.5 0.2 0.2"]),
  );
  const body = {
    project_id: projectId,
    yolo: { names: [name], labels: Object.fromEntries(labels) },
  };
  return admin.ok<ImportRecord>("POST", "/import", body);
}
const dataset = async (...jobs: string[]) =>
  (
    await admin.ok<Dataset>("POST", "/datasets", {
      project_id: projectId,
      name: "d",
      job_ids: jobs,
    })
  ).dataset_id;
const version = (id: string) => admin.ok<DatasetVersion>("POST", `/datasets/${id}/versions`, {});
/** Sides with their origins, by the numbers of the stills. */
const splitOf = async (id: string) => {
  const sides = await admin.ok<VideoSide[]>("GET", `/datasets/${id}/split`);
  return Object.fromEntries<string>(
    sides.map(({ video_id, side, origin }) => [numberOf.get(video_id) ?? -1, `${side} ${origin}`]),
  );
};
/** Numbers of the stills of each side of a manifest. */
async function sidesIn(key: string) {
  const held = await world.media.get(key);
  const { videos: listed } = ExportManifest.parse(await held?.json());
  const numbers = { train: [] as number[], val: [] as number[], test: [] as number[] };
  for (const { video_id, frames } of listed) {
    for (const { split } of frames) numbers[split].push(numberOf.get(video_id) ?? -1);
  }
  for (const some of Object.values(numbers)) some.sort();
  return numbers;
}
async function trained(body: object) {
  await admin.ok("POST", "/train", { variant: "det26n", ...body });
  const task = await node.claim(["train"]);
  return sidesIn(TASK_KINDS.train.payload.parse(task?.payload).manifest.key);
}

const THREE = { "images/train": [0, 1, 2, 3], "images/val": [4, 5], "images/test": [6] };

describe("sides of an import", () => {
  it("are counted, and are those of a training, whose draw is left nothing", async () => {
    const { job, sides } = await imported({ ...THREE, elsewhere: [7] });
    expect(sides).toEqual({ train: 4, val: 2, test: 1 });
    const wanted = { train: [0, 1, 2, 3, 7], val: [4, 5], test: [6] };
    expect(await trained({ job_id: job.job_id, val_share: 0.5 })).toEqual(wanted);
    const copy = await admin.ok<Job>("POST", `/jobs/${job.job_id}/duplicate`);
    expect(await trained({ job_id: copy.job_id })).toEqual(wanted);
    await admin.ok("DELETE", `/jobs/${job.job_id}`);
    const { rows } = await world.visionDatabase.execute(
      sql`SELECT FROM job_side WHERE job_id = ${job.job_id}::uuid`,
    );
    expect(rows).toEqual([]);
  });

  it("are those of an export", async () => {
    const { job } = await imported(THREE);
    let manifest = "";
    node.script.export = async (task, by) => {
      const payload = TASK_KINDS.export.payload.parse(task.payload);
      manifest = payload.manifest.key;
      const { key } = payload.archive;
      await by.write(task, { key }, new Uint8Array(4));
      return { bytes: 4, summary: {} };
    };
    const stop = node.start();
    await admin.ok("POST", `/jobs/${job.job_id}/export`, { format: "yolo" });
    await stop();
    expect(await sidesIn(manifest)).toEqual({ train: [0, 1, 2, 3], val: [4, 5], test: [6] });
  });

  it("leave a draw to validate on where they tell no frame for that", async () => {
    const { job, sides } = await imported({ train: [0, 1, 2, 3, 4], test: [5] });
    expect(sides).toEqual({ train: 5, val: 0, test: 1 });
    const { train, val, test } = await trained({ job_id: job.job_id, val_share: 0.4 });
    expect([train.length, val.length, test]).toEqual([3, 2, [5]]);
  });

  it("are no split where all are one, which is said", async () => {
    const { job, sides, notes } = await imported({ test: [0, 1, 2, 3, 4] });
    expect(sides).toEqual({ train: 0, val: 0, test: 0 });
    expect(notes.join()).toMatch(/all sides are test, which is no split/);
    const { train, val } = await trained({ job_id: job.job_id, val_share: 0.4 });
    expect([train.length, val.length]).toEqual([3, 2]);
  });

  it("are nobody's where the labels tell none", async () => {
    const { sides } = await imported({ train_2: [0], "": [1] });
    expect(sides).toEqual({ train: 0, val: 0, test: 0 });
  });
});

describe("a dataset", () => {
  it("keeps them, but for what people set and what was drawn before", async () => {
    const first = await imported({ some: [0, 1] }, "first");
    const id = await dataset(first.job.job_id);
    await version(id);
    const before = await splitOf(id);
    expect(Object.values(before).every((one) => one.endsWith(" drawn"))).toBe(true);
    const { job } = await imported({ train: [2, 3], val: [4], test: [0, 1, 5] });
    await admin.ok("PUT", `/datasets/${id}/jobs/${job.job_id}`, {});
    await admin.ok("POST", `/datasets/${id}/split`, { video_ids: [videos[5]], side: "train" });
    const { counts } = await version(id);
    expect(await splitOf(id)).toEqual({
      ...before,
      2: "train import",
      3: "train import",
      4: "val import",
      5: "train person",
    });
    expect(counts.train.frames + counts.val.frames + counts.test.frames).toBe(6);
    await admin.ok("POST", `/datasets/${id}/split`, { video_ids: [videos[4]], side: "test" });
    await version(id);
    expect((await splitOf(id))[4]).toBe("test person");
  });

  it("has a frame of two jobs on the more held-out side", async () => {
    const one = await imported({ train: [0, 1], val: [2] }, "one");
    const other = await imported({ test: [0], train: [2, 3] }, "other");
    const id = await dataset(one.job.job_id, other.job.job_id);
    await version(id);
    expect(await splitOf(id)).toEqual({
      0: "test import",
      1: "train import",
      2: "val import",
      3: "train import",
    });
    expect(await trained({ dataset_id: id })).toEqual({ train: [1, 3], val: [2], test: [0] });
  });
});
