// What prompts find, told before a job begins and kept with it; and one box for one object,
// whichever prompts, passes and people saw it.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { matching } from "../../../../edge/vision/labeling/review/annotations.ts";
import { ExportManifest } from "../../../../shared/tasks/export-manifest.ts";
import { type Bbox, TASK_KINDS } from "../../../../shared/tasks/tasks.ts";
import type { DatasetReport } from "../../../../shared/wire/dataset-report.ts";
import {
  type Annotation,
  AnnotationPage,
  Job,
  type JobComparison,
  type Overview,
  type Stats,
} from "../../../../shared/wire/labeling.ts";
import { frameId } from "../../../../shared/wire/vision.ts";
import {
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

const FRAMES = 3;
/** One object, as all prompts see it, and one that only the dog's sees. */
const OBJECT: Bbox = [10, 10, 110, 110];
const NEARLY: Bbox = [11, 10, 110, 110];
const APART: Bbox = [200, 10, 300, 110];

let world: World;
let admin: Person;
let node: ScriptedNode;
let projectId: string;
let videoId: string;
/** What the node says of prompts. */
let said: string[];
/** Annotations in the datasets that the node was given to make. */
let exported: number;

const boxOf = (class_name: string, bbox: Bbox, confidence: number) => ({
  class_name,
  bbox,
  confidence,
  polygon: null,
  duplicate_of: null,
});
const found = labelAs((_, prompts) =>
  prompts.flatMap(({ class_name: name }) => {
    if (name === "dog") return [boxOf(name, NEARLY, 0.95), boxOf(name, APART, 0.9)];
    return name === "person" ? [boxOf(name, NEARLY, 0.1)] : [boxOf(name, OBJECT, 0.8)];
  }),
);

beforeAll(async () => {
  world = await createWorld({ services: ["console", "vision"] });
  admin = await register(world);
  node = await scriptedNode(world, admin, {
    probe: probeAs({ frames: FRAMES }),
    label: async (task) => ({ ...found(task), warnings: said }),
    export: async (task, by) => {
      const { manifest, archive } = TASK_KINDS.export.payload.parse(task.payload);
      const { videos } = ExportManifest.parse(await (await fetch(manifest.url)).json());
      const frames = videos.flatMap((video) => video.frames);
      exported = frames.flatMap(({ annotations }) => annotations).length;
      await by.write(task, { key: archive.key }, "a zip");
      return { bytes: 5, summary: {} };
    },
  });
  projectId = (await newProject(admin)).project_id;
  videoId = (await uploadVideo(admin, projectId)).video_id;
  await node.work();
  said = [];
});

const label = (...prompts: string[]) => ({ project_id: projectId, video_ids: [videoId], prompts });
interface JobStart {
  job_id: string;
  warnings: string[];
}
const start = (...prompts: string[]) => admin.ok<JobStart>("POST", "/label", label(...prompts));
async function labeled(...prompts: string[]): Promise<string> {
  const { job_id: id } = await start(...prompts);
  await node.work();
  return id;
}
const job = async (id: string) => Job.parse(await admin.ok("GET", `/jobs/${id}`));
async function annotations(id: string, query = ""): Promise<Annotation[]> {
  const path = `/jobs/${id}/annotations?limit=1000${query}`;
  return AnnotationPage.parse(await admin.ok("GET", path)).items;
}
const addClass = (id: string, name: string, prompt = name) =>
  admin.ok<JobStart>("POST", `/jobs/${id}/add-class`, { class: name, prompt });

const TAXIS = '"taxi": Scripted looks for every car; it cannot tell "taxi" apart';

describe("a prompt that finds more than it names", () => {
  it("says so in the answer, in the job, and in the job's list", async () => {
    const { job_id: id, warnings } = await start("taxi", "person");
    expect(warnings).toEqual([TAXIS]);
    expect((await job(id)).warnings).toEqual([TAXIS]);
    const listed = Job.array().parse(await admin.ok("GET", "/jobs"));
    expect(listed.find((one) => one.job_id === id)?.warnings).toEqual([TAXIS]);
    expect((await start("person")).warnings).toEqual([]);
    await node.work();
  });

  it("says so of a class that is added", async () => {
    const id = await labeled("person");
    expect((await addClass(id, "cabs", "yellow taxis")).warnings).toHaveLength(1);
    await node.work();
    expect((await job(id)).warnings).toEqual([
      '"yellow taxis": Scripted looks for every car; it cannot tell "yellow", "taxis" apart',
    ]);
  });

  it("is told by the node too, which alone knows where none was there before; once", async () => {
    said = [TAXIS, '"car": the node left a word out'];
    const id = await labeled("taxi");
    expect((await job(id)).warnings).toEqual(said);
    said = [];
  });
});

describe("prompts that look for one class", () => {
  it("are refused before anything starts", async () => {
    const jobs = await admin.ok<unknown[]>("GET", "/jobs");
    const answer = await admin.send("POST", "/label", label("car", "dog", "taxi"));
    expect([answer.status, await answer.json()]).toMatchObject([
      422,
      {
        code: "invalid_request",
        detail: expect.stringContaining('"taxi" looks for car, as "car"'),
      },
    ]);
    const look = { frame_ids: [frameId(videoId, 0)], prompts: ["car", "automobile"] };
    expect(await admin.refused("POST", "/label/preview", look)).toEqual([422, "invalid_request"]);
    expect(await admin.ok<unknown[]>("GET", "/jobs")).toHaveLength(jobs.length);
  });

  it("are refused where one is a class that the job has", async () => {
    const id = await labeled("car");
    const answer = await admin.send("POST", `/jobs/${id}/add-class`, { class: "taxi" });
    expect([answer.status, await answer.json()]).toMatchObject([
      409,
      { code: "class_exists", class: "car", detail: expect.stringContaining("both look for car") },
    ]);
  });

  it("leave a class that one of them names closer to that one", async () => {
    const { warnings } = await start("traffic", "car");
    expect(warnings).toEqual(['"traffic": a car is labeled "car" only']);
    await node.work();
  });
});

describe("a second box of one object", () => {
  it("is flagged in a later pass, and nothing of what was labeled changes", async () => {
    const id = await labeled("car");
    const before = await annotations(id);
    await addClass(id, "dog");
    await node.work();
    const after = await annotations(id);
    expect(after.filter((one) => one.class === "car")).toEqual(before);
    const dogs = after.filter((one) => one.class === "dog" && one.bbox[0] === NEARLY[0]);
    expect(dogs.map((one) => one.duplicate_of)).toEqual(before.map((one) => one.annotation_id));
    const apart = after.filter((one) => one.bbox[0] === APART[0]);
    expect(apart.map((one) => one.duplicate_of)).toEqual([null, null, null]);
  });

  it("is one of the surest that it repeats, not of one that is hidden, though that is nearer", async () => {
    const id = await labeled("car", "person");
    await addClass(id, "dog");
    await node.work();
    const stats = await admin.ok<Stats>("GET", `/jobs/${id}/stats`);
    expect([stats.annotation_count, stats.duplicates]).toEqual([2 * FRAMES, FRAMES]);
  });

  it("is flagged where a person drew the object before the node saw it", async () => {
    const { job_id: id } = await start("car");
    const drawn = { job_id: id, frame_id: frameId(videoId, 1), class: "car", bbox: NEARLY };
    const own = await admin.ok<Annotation>("POST", "/annotations", drawn);
    await node.work();
    const flagged = (await annotations(id)).filter((one) => one.duplicate_of !== null);
    expect(flagged).toMatchObject([
      { frame_id: frameId(videoId, 1), source: "model", duplicate_of: own.annotation_id },
    ]);
  });

  it.each([true, false])("is found by one join, not one after another: %s", async (duplicates) => {
    const jobId = crypto.randomUUID();
    const where = matching({ jobId, threshold: 0.5, shownFrom: 0.5, duplicates });
    const { rows } = await world.visionDatabase.execute(sql`
      EXPLAIN SELECT count(*) FROM annotation a WHERE a.job_id = ${jobId}::uuid AND ${where}`);
    expect(JSON.stringify(rows)).not.toContain("SubPlan");
  });

  it("is left out of numbers and datasets, unless it is asked for", async () => {
    const id = await labeled("car");
    await addClass(id, "dog");
    await node.work();
    const stats = await admin.ok<Stats>("GET", `/jobs/${id}/stats`);
    expect([stats.annotation_count, stats.duplicates]).toEqual([2 * FRAMES, FRAMES]);
    const whole = await admin.ok<Stats>("GET", `/jobs/${id}/stats?duplicates=true`);
    expect([whole.annotation_count, whole.duplicates]).toEqual([3 * FRAMES, FRAMES]);
    const overview = await admin.ok<Overview>("GET", `/jobs/${id}/overview`);
    expect(overview.per_class).toEqual([
      { class: "car", count: FRAMES },
      { class: "dog", count: FRAMES },
    ]);
    const report = await admin.ok<DatasetReport>("GET", `/train/dataset-stats/${id}`);
    expect(report.total_annotations).toBe(2 * FRAMES);
    const exportOf = async (options: object) => {
      const stop = node.start();
      await admin.ok("POST", `/jobs/${id}/export`, options);
      await stop();
      return exported;
    };
    expect(await exportOf({})).toBe(2 * FRAMES);
    expect(await exportOf({ duplicates: true })).toBe(3 * FRAMES);
    const compared = await admin.ok<JobComparison>("GET", `/jobs/${id}/compare?truth_job_id=${id}`);
    expect(compared.overall.truths).toBe(2 * FRAMES);
  });

  it("stands for the object where the better one is rejected, hidden, or gone", async () => {
    const id = await labeled("car");
    await addClass(id, "dog");
    await node.work();
    const cars = await annotations(id, "&class_name=car");
    const count = async () =>
      (await admin.ok<Stats>("GET", `/jobs/${id}/stats`)).per_class.find(
        (one) => one.class === "dog",
      )?.count;
    expect(await count()).toBe(FRAMES);
    await admin.ok("PATCH", `/annotations/${cars[0]?.annotation_id}`, { accepted: false });
    expect(await count()).toBe(FRAMES + 1);
    await admin.ok("DELETE", `/annotations/${cars[1]?.annotation_id}`);
    expect(await count()).toBe(FRAMES + 2);
    await admin.ok("PATCH", `/jobs/${id}`, { threshold: 0.85 });
    expect(await count()).toBe(2 * FRAMES);
  });

  it("is accepted by who names it, not by who accepts everything", async () => {
    const id = await labeled("car");
    await addClass(id, "dog");
    await node.work();
    const review = (filter: object) =>
      admin.ok<{ changed: number }>("POST", `/jobs/${id}/annotations/review`, {
        accepted: true,
        filter,
      });
    // The cars are less sure, and are shown all the same.
    expect((await review({ min_confidence: 0.9 })).changed).toBe(FRAMES);
    expect((await review({})).changed).toBe(FRAMES);
    const left = await annotations(id, "&duplicates=true");
    expect(left.map((one) => one.accepted)).toEqual([null, null, null]);
    const [one] = left;
    const named = { annotations: [{ annotation_id: one?.annotation_id }] };
    expect((await review(named)).changed).toBe(1);
    expect(await annotations(id, "&duplicates=true")).toHaveLength(FRAMES - 1);
    expect((await review({ duplicates: true })).changed).toBe(FRAMES - 1);
    const stats = await admin.ok<Stats>("GET", `/jobs/${id}/stats`);
    expect([stats.annotation_count, stats.duplicates]).toEqual([3 * FRAMES, 0]);
    const overview = await admin.ok<Overview>("GET", `/jobs/${id}/overview`);
    expect(overview.completion_percentage).toBe(100);
  });

  it("is not accepted with what was rejected before", async () => {
    const id = await labeled("car");
    await addClass(id, "dog");
    await node.work();
    const review = (accepted: boolean, more: object) =>
      admin.ok<{ changed: number }>("POST", `/jobs/${id}/annotations/review`, {
        accepted,
        ...more,
      });
    await review(false, { filter: { class_name: "dog" } });
    const changed = await review(true, { include_reviewed: true });
    expect(changed.changed).toBe(2 * FRAMES);
    const dogs = await annotations(id, "&class_name=dog&accepted=false");
    expect(dogs.map((one) => one.duplicate_of !== null)).toEqual([true, true, true]);
  });
});

it("refuses a segmenter that no node offers, whoever asks for it, and names those there are", async () => {
  const segmenter = "sam9";
  const frame_id = frameId(videoId, 0);
  const exemplars = [{ frame_id, bbox: [1, 1, 9, 9] }];
  const job = { project_id: projectId, video_ids: [videoId], segmenter };
  for (const [path, body] of [
    ["/label", { ...job, prompts: ["car"] }],
    ["/label/exemplar", { ...job, exemplars }],
    ["/label/preview", { frame_ids: [frame_id], exemplars, segmenter }],
    ["/label/segment-points", { frame_id, points: [{ x: 1, y: 1, label: 1 }], segmenter }],
  ] as const) {
    const response = await admin.send("POST", path, body);
    const { code, detail } = (await response.json()) as { code: string; detail: string };
    expect([path, response.status, code]).toEqual([path, 422, "prompt_unknown"]);
    expect(detail).toBe('no node offers the segmenter "sam9"; they offer scripted');
  }
});
