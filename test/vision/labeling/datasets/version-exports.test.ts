// Exports of a dataset's versions. Goal: an archive is of the version as it was written down,
// whatever its jobs became since; it is listed, and goes with its dataset.

import { beforeAll, expect, it } from "vitest";
import { ExportManifest } from "../../../../shared/tasks/export-manifest.ts";
import type { ClaimedTask } from "../../../../shared/tasks/node-protocol.ts";
import { TASK_KINDS } from "../../../../shared/tasks/tasks.ts";
import type { Dataset, DatasetVersion } from "../../../../shared/wire/datasets.ts";
import { DatasetExport, type ImportRecord } from "../../../../shared/wire/labeling.ts";
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
const payloads: ReturnType<typeof payloadOf>[] = [];
const payloadOf = (task: ClaimedTask) => TASK_KINDS.export.payload.parse(task.payload);

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  admin = await register(world);
  node = await scriptedNode(world, admin, { probe: probeAs({ frames: 1 }) });
  projectId = (await newProject(admin, "Road: north/south")).project_id;
  for (let index = 0; index < 6; index++) {
    await uploadVideo(admin, projectId, `still-${index}.mp4`);
  }
  await node.work();
  node.script.export = async (task, by) => {
    const payload = payloadOf(task);
    payloads.push(payload);
    await by.write(task, { key: payload.archive.key }, "a zip");
    return { bytes: 5, summary: { original_images: 6 } };
  };
});

/** A dataset of a job with sides, at its first version. */
async function dataset(name: string) {
  const sides = ["train", "train", "train", "val", "test", "train"];
  const labels = Object.fromEntries(
    sides.map((side, index) => [`${side}/still-${index}_000000`, "0 0.5 0.5 0.2 0.2"]),
  );
  const body = { project_id: projectId, yolo: { names: ["cell"], labels } };
  const { job } = await admin.ok<ImportRecord>("POST", "/import", body);
  const asked = { project_id: projectId, name, job_ids: [job.job_id] };
  const { dataset_id: id } = await admin.ok<Dataset>("POST", "/datasets", asked);
  const version = await admin.ok<DatasetVersion>("POST", `/datasets/${id}/versions`, {});
  return { id, jobId: job.job_id, version };
}
async function exported(id: string, body?: object) {
  const stop = node.start();
  const path = `/datasets/${id}/versions/1/export`;
  const made = DatasetExport.parse(await admin.ok("POST", path, body));
  await stop();
  return made;
}

it("is of the version, whatever its jobs became since", async () => {
  const { id, jobId, version } = await dataset("roads: a/b");
  await admin.ok("DELETE", `/jobs/${jobId}`);
  const made = await exported(id, { format: "coco", names: "original", rectangles: false });
  expect(made).toMatchObject({
    job_id: null,
    dataset: { dataset_id: id, version: 1 },
    format: "coco",
    status: "completed",
    bytes: 5,
    summary: { total_frames: 6, annotated_frames: 6, left_out_frames: 0, original_images: 6 },
  });
  const payload = payloads.at(-1);
  expect(payload).toMatchObject({ format: "coco", names: "original", rectangles: false });
  expect(payload?.videos).toHaveLength(6);
  const held = await world.media.get(payload?.manifest.key ?? "");
  const manifest = ExportManifest.parse(await held?.json());
  const splits = manifest.videos.flatMap(({ frames }) => frames.map(({ split }) => split));
  expect(splits.toSorted()).toEqual(["test", "train", "train", "train", "train", "val"]);
  expect(version.counts.test.annotations).toBe(1);
  const zip = await fetch(made.download_url);
  expect(decodeURIComponent(made.download_url)).toContain("roads_a_b_v1.zip");
  expect(await zip.text()).toBe("a zip");
  expect(await admin.ok("GET", `/exports/${made.export_id}`)).toMatchObject({ bytes: 5 });

  const other = await exported(id);
  const listed = await admin.ok<DatasetExport[]>("GET", `/datasets/${id}/exports`);
  expect(listed.map(({ export_id }) => export_id)).toEqual([other.export_id, made.export_id]);
  expect(listed[0]).toMatchObject({ format: "yolo", dataset: { dataset_id: id, version: 1 } });
});

it("goes with its dataset, also where a node is still making it", async () => {
  const { id } = await dataset("gone");
  const done = await exported(id);
  const folder = payloads.at(-1)?.archive.key.replace(/[^/]*$/, "") ?? "none";
  const { export: script, ...others } = node.script;
  node.script = others;
  const request = admin.send("POST", `/datasets/${id}/versions/1/export`, {});
  let making: ClaimedTask | null = null;
  await expect
    .poll(async () => {
      making ??= await node.claim(["export"]);
      return making;
    })
    .not.toBeNull();
  await admin.ok("DELETE", `/datasets/${id}`);
  // It is set in a callback, which the compiler does not follow.
  const late = making as unknown as ClaimedTask;
  const tasks = [{ task_id: late.task_id, fence: late.fence }];
  const told = await node.api.ok<{ tasks: object[] }>("POST", "/node/heartbeat", { tasks });
  expect(told.tasks).toMatchObject([{ verdict: "cancel" }]);
  const { archive } = payloadOf(late);
  await node.write(late, { key: archive.key }, "a zip");
  await node.finish(late, { outcome: "cancelled", result: null });
  await request;
  if (script) node.script.export = script;
  expect(await admin.refused("GET", `/exports/${done.export_id}`)).toEqual([404, "not_found"]);
  const left = async () => {
    const { objects } = await world.media.list({ prefix: "ws/" });
    const folders = [folder, archive.key.replace(/[^/]*$/, "")];
    return objects.filter(({ key }) => folders.some((one) => key.startsWith(one)));
  };
  await expect.poll(left).toEqual([]);
});

it("is refused for a version that is not there, whose videos are gone, and for viewers", async () => {
  const { id } = await dataset("refused");
  const path = `/datasets/${id}/versions/1/export`;
  expect(await admin.refused("POST", `/datasets/${id}/versions/2/export`, {})).toEqual([
    404,
    "not_found",
  ]);
  // A version is what it is: nothing of it is chosen anew.
  const chosen = await admin.refused("POST", path, { include: "accepted" });
  expect(chosen).toEqual([422, "invalid_request"]);
  const viewer = await colleague(world, admin, "viewer");
  expect(await viewer.refused("POST", path, {})).toEqual([403, "forbidden"]);
  expect(await viewer.ok("GET", `/datasets/${id}/exports`)).toEqual([]);
  for (const { job_id } of await admin.ok<{ job_id: string }[]>("GET", "/jobs")) {
    await admin.ok("DELETE", `/jobs/${job_id}`);
  }
  const [video] = await admin.ok<{ video_id: string }[]>("GET", `/projects/${projectId}/videos`);
  await admin.ok("DELETE", `/videos/${video?.video_id}`);
  expect(await admin.refused("POST", path, {})).toEqual([409, "state_conflict"]);
});
