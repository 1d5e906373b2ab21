// Review in workerd: listing, editing, judging, undoing, classes, numbers, datasets in and out.

import { beforeAll, describe, expect, it } from "vitest";
import { ExportManifest } from "../../../../shared/tasks/export-manifest.ts";
import type { ClaimedTask } from "../../../../shared/tasks/node-protocol.ts";
import { type Detection, TASK_KINDS } from "../../../../shared/tasks/tasks.ts";
import {
  Annotation,
  AnnotationPage,
  Change,
  DatasetExport,
  Job,
  JobClass,
  Overview,
  Stats,
} from "../../../../shared/wire/labeling.ts";
import { frameId } from "../../../../shared/wire/vision.ts";
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

const FRAMES = 10;
let world: World;
let admin: Person;
let annotator: Person;
let viewer: Person;
let node: ScriptedNode;
let projectId: string;
let videoId: string;

const detection = (class_name: string, x: number, confidence: number): Detection => ({
  class_name,
  confidence,
  bbox: [x, 20, x + 64, 20 + 36],
  polygon: [x, 20, x + 64, 20, x + 64, 56],
  duplicate_of: null,
});
/** A person on every frame and a car on every second one; confidence falls with the frame. */
const found = labelAs((frame_index) => [
  detection("person", 10 + frame_index, 0.95 - frame_index / 100),
  ...(frame_index % 2 === 0 ? [detection("car", 200, 0.6)] : []),
]);
let manifest: ExportManifest;
const exported = async (task: ClaimedTask, by: ScriptedNode) => {
  const payload = TASK_KINDS.export.payload.parse(task.payload);
  manifest = ExportManifest.parse(await (await fetch(payload.manifest.url)).json());
  await by.write(task, { key: payload.archive.key }, "a zip");
  return { bytes: 5, summary: { images: 10 } };
};

beforeAll(async () => {
  world = await createWorld({ services: ["console", "vision"] });
  admin = await register(world);
  [annotator, viewer] = [
    await colleague(world, admin, "annotator"),
    await colleague(world, admin, "viewer"),
  ];
  const probe = probeAs({ frames: FRAMES });
  node = await scriptedNode(world, admin, { probe, label: found, export: exported });
  projectId = (await newProject(admin)).project_id;
  videoId = (await uploadVideo(admin, projectId)).video_id;
  await node.work();
});

async function labeled(): Promise<string> {
  const body = { project_id: projectId, video_ids: [videoId], prompts: ["person", "car"] };
  const { job_id: id } = await admin.ok<{ job_id: string }>("POST", "/label", body);
  await node.work();
  return id;
}
const page = async (id: string, query = "") =>
  AnnotationPage.parse(await viewer.ok("GET", `/jobs/${id}/annotations${query}`));
/** What a job's annotations are, without what every edit raises. */
const content = async (id: string) =>
  (await page(id, "?limit=1000")).items.map(({ revision, updated_at, ...rest }) => rest);

describe("a job's annotations", () => {
  it("are listed in pages, frame by frame, and by every filter", async () => {
    const id = await labeled();
    const all = await page(id, "?limit=1000");
    expect([all.total, all.items.length, all.offset, all.limit]).toEqual([15, 15, 0, 1000]);
    const indexes = all.items.map(({ frame_id: frame }) => Number(frame.split(".")[1]));
    expect(indexes).toEqual(indexes.toSorted((left, right) => left - right));
    const [first, second] = [await page(id, "?limit=8"), await page(id, "?limit=8&offset=8")];
    expect([...first.items, ...second.items]).toEqual(all.items);
    expect((await page(id, "?class_name=car")).total).toBe(5);
    expect((await page(id, `?frame_id=${frameId(videoId, 4)}`)).total).toBe(2);
    expect((await page(id, `?frame_id=${frameId(videoId, 4)}&class_name=car`)).total).toBe(1);
    expect((await page(id, "?min_confidence=0.9")).total).toBe(6);
    expect((await page(id, "?max_confidence=0.7")).total).toBe(5);
    expect((await page(id, "?accepted=null")).total).toBe(15);
    expect((await page(id, "?accepted=true")).total).toBe(0);
    expect((await page(id, "?class_name=nothing")).total).toBe(0);
    for (const query of ["?limit=0", "?limit=1001", "?offset=-1", "?frame_id=7"]) {
      const path = `/jobs/${id}/annotations${query}`;
      expect(await viewer.refused("GET", path)).toEqual([422, "invalid_request"]);
    }
  });

  it("are edited one at a time, by whoever saw the newest revision", async () => {
    const id = await labeled();
    const [one] = (await page(id)).items as [Annotation];
    const path = `/annotations/${one.annotation_id}`;
    const edited = Annotation.parse(
      await annotator.ok("PATCH", path, { bbox: [1, 2, 3, 4], class: "cyclist", revision: 1 }),
    );
    expect(edited).toMatchObject({
      bbox: [1, 2, 3, 4],
      class: "cyclist",
      revision: 2,
      polygon: null,
      accepted: null,
    });
    const late = await annotator.send("PATCH", path, { accepted: true, revision: 1 });
    expect([late.status, await late.json()]).toMatchObject([
      409,
      { code: "revision_conflict", revision: 2 },
    ]);
    expect(await annotator.ok("PATCH", path, { accepted: true })).toMatchObject({ accepted: true });
    expect(await annotator.ok("PATCH", path, { accepted: null })).toMatchObject({ accepted: null });
    expect(await annotator.refused("PATCH", path, {})).toEqual([422, "invalid_request"]);
    expect(await annotator.refused("PATCH", path, { bbox: [3, 2, 1, 4] })).toEqual([
      422,
      "invalid_request",
    ]);
    expect(await viewer.refused("PATCH", path, { accepted: true })).toEqual([403, "forbidden"]);
    const absent = `/annotations/${crypto.randomUUID()}`;
    expect(await annotator.refused("PATCH", absent, { accepted: true })).toEqual([
      404,
      "not_found",
    ]);
    expect(await annotator.refused("DELETE", absent)).toEqual([404, "not_found"]);
  });

  it("are drawn by hand, inside a frame of the job, in an old class or a new one", async () => {
    const id = await labeled();
    const drawn = (more: object = {}) => ({
      job_id: id,
      frame_id: frameId(videoId, 3),
      class: "dog",
      bbox: [600, 300, 700, 400],
      ...more,
    });
    const response = await annotator.send("POST", "/annotations", drawn());
    expect(response.status).toBe(201);
    expect(Annotation.parse(await response.json())).toMatchObject({
      class: "dog",
      bbox: [600, 300, 640, 360],
      source: "person",
      accepted: true,
      confidence: null,
    });
    const classes = JobClass.array().parse(await viewer.ok("GET", `/jobs/${id}/classes`));
    expect(classes.map((one) => [one.class, one.index, one.annotations])).toEqual([
      ["person", 0, 10],
      ["car", 1, 5],
      ["dog", 2, 1],
    ]);
    for (const wrong of [
      { frame_id: frameId(videoId, FRAMES) },
      { frame_id: frameId(crypto.randomUUID(), 0) },
      { job_id: crypto.randomUUID() },
    ]) {
      const refused = await annotator.refused("POST", "/annotations", drawn(wrong));
      expect(refused).toEqual([404, "not_found"]);
    }
    const outside = drawn({ bbox: [700, 300, 800, 400] });
    expect(await annotator.refused("POST", "/annotations", outside)).toEqual([
      422,
      "invalid_request",
    ]);
    expect(await viewer.refused("POST", "/annotations", drawn())).toEqual([403, "forbidden"]);
  });
});

describe("a bulk review", () => {
  it("takes null for what is not given, and other types for none", async () => {
    const id = await labeled();
    const path = `/jobs/${id}/annotations/review`;
    await admin.ok("PATCH", `/jobs/${id}`, { threshold: 0.9 });
    const shown = (await page(id)).total;
    expect((await page(id, "?min_confidence=0")).total).toBeGreaterThan(shown);
    const filter = { min_confidence: null, max_confidence: null, class_name: null };
    const reviewed = await annotator.ok("POST", path, { accepted: true, filter });
    expect(reviewed).toMatchObject({ changed: shown });
    expect((await page(id, "?min_confidence=0&accepted=true")).total).toBe(shown);
    for (const wrong of [
      { min_confidence: "0.5" },
      { min_confidence: "" },
      { max_confidence: true },
      { duplicates: "true" },
      { accepted: null },
      { class_name: 1 },
      { confidence: 0.5 },
    ]) {
      const refused = await annotator.refused("POST", path, { accepted: false, filter: wrong });
      expect([wrong, refused]).toEqual([wrong, [422, "invalid_request"]]);
    }
    for (const query of ["max_confidence=", "min_confidence=", "min_confidence=0x1"]) {
      expect(await annotator.refused("GET", `/jobs/${id}/annotations?${query}`)).toEqual([
        422,
        "invalid_request",
      ]);
    }
  });
});

describe("undoing", () => {
  const changes = async (id: string) =>
    Change.array().parse(await viewer.ok("GET", `/jobs/${id}/changes`));

  it("brings back what was before, for every kind of edit, once", async () => {
    const id = await labeled();
    const before = await content(id);
    const [one] = (await page(id)).items as [Annotation];
    const filter = { class_name: "person", min_confidence: 0.9 };
    const edits: [string, string, object?][] = [
      ["POST", `/jobs/${id}/annotations/review`, { accepted: true, filter }],
      ["POST", `/jobs/${id}/annotations/review`, { accepted: false }],
      ["PATCH", `/annotations/${one.annotation_id}`, { bbox: [5, 5, 9, 9], class: "car" }],
      ["DELETE", `/annotations/${one.annotation_id}`],
      ["POST", "/annotations/merge-classes", { job_id: id, from: "person", into: "car" }],
      ["DELETE", `/jobs/${id}/classes/car`],
      [
        ...(["POST", "/annotations"] as const),
        { job_id: id, frame_id: frameId(videoId, 1), class: "person", bbox: [1, 1, 9, 9] },
      ],
    ];
    for (const [method, path, body] of edits) {
      await annotator.ok(method, path, body);
      expect(await content(id)).not.toEqual(before);
      const [newest] = await changes(id);
      expect(newest).toMatchObject({ actor_id: annotator.id, undone_at: null });
      const undone = await annotator.ok("POST", `/changes/${newest?.change_id}/undo`);
      expect(undone).toEqual({ restored: newest?.annotations, kept: 0 });
      expect(await content(id)).toEqual(before);
      const again = await annotator.refused("POST", `/changes/${newest?.change_id}/undo`);
      expect(again).toEqual([409, "state_conflict"]);
    }
    const classes = JobClass.array().parse(await viewer.ok("GET", `/jobs/${id}/classes`));
    expect(classes.map((known) => known.class)).toEqual(["person", "car"]);
  });

  it("leaves alone what somebody edited since", async () => {
    const id = await labeled();
    await annotator.ok("POST", `/jobs/${id}/annotations/review`, { accepted: true });
    const [one] = (await page(id)).items as [Annotation];
    await annotator.ok("PATCH", `/annotations/${one.annotation_id}`, { accepted: false });
    const [, bulk] = await changes(id);
    expect(await annotator.ok("POST", `/changes/${bulk?.change_id}/undo`)).toEqual({
      restored: 14,
      kept: 1,
    });
    const states = (await page(id, "?limit=1000")).items.map(({ accepted }) => accepted);
    expect(states.filter((state) => state === false)).toHaveLength(1);
    expect(states.filter((state) => state === null)).toHaveLength(14);
    expect(await viewer.refused("POST", `/changes/${bulk?.change_id}/undo`)).toEqual([
      403,
      "forbidden",
    ]);
    const absent = `/changes/${crypto.randomUUID()}/undo`;
    expect(await annotator.refused("POST", absent)).toEqual([404, "not_found"]);
  });
});

describe("classes", () => {
  it("are merged into another, renamed into a new one, and removed with their annotations", async () => {
    const id = await labeled();
    const merge = (from: string, into: string) => ({ job_id: id, from, into });
    const path = "/annotations/merge-classes";
    expect(await annotator.ok("POST", path, merge("car", "vehicle"))).toMatchObject({ changed: 5 });
    expect((await page(id, "?class_name=vehicle")).total).toBe(5);
    const merged = await annotator.ok("POST", path, merge("vehicle", "person"));
    expect(merged).toMatchObject({ changed: 5 });
    expect((await page(id, "?class_name=person")).total).toBe(15);
    expect(await annotator.refused("POST", path, merge("car", "person"))).toEqual([
      404,
      "not_found",
    ]);
    expect(await annotator.refused("POST", path, merge("person", "person"))).toEqual([
      422,
      "invalid_request",
    ]);
    const removed = await annotator.ok("DELETE", `/jobs/${id}/classes/person`);
    expect(removed).toMatchObject({ changed: 15 });
    expect((await page(id)).total).toBe(0);
    expect(await viewer.ok("GET", `/jobs/${id}/classes`)).toEqual([]);
    const again = await annotator.refused("DELETE", `/jobs/${id}/classes/person`);
    expect(again).toEqual([404, "not_found"]);
  });
});

describe("numbers", () => {
  it("say how much there is and how much of it was judged", async () => {
    const id = await labeled();
    const filter = { class_name: "car" };
    await annotator.ok("POST", `/jobs/${id}/annotations/review`, { accepted: false, filter });
    const sure = { class_name: "person", min_confidence: 0.9 };
    await annotator.ok("POST", `/jobs/${id}/annotations/review`, { accepted: true, filter: sure });
    expect(Overview.parse(await viewer.ok("GET", `/jobs/${id}/overview`))).toEqual({
      frame_count: FRAMES,
      annotated_frames: FRAMES,
      reviewed_frames: 0,
      annotation_count: 15,
      per_class: [
        { class: "person", count: 10 },
        { class: "car", count: 5 },
      ],
      // On six frames each annotation is judged.
      completion_percentage: 60,
      labeled_percentage: 100,
      stages: { label: 4, review: 0, done: 6 },
      people: [],
    });
    const stats = Stats.parse(await viewer.ok("GET", `/jobs/${id}/stats`));
    expect(stats).toMatchObject({
      annotation_count: 15,
      reviewed: { accepted: 6, rejected: 5, pending: 4 },
      duplicates: 0,
      per_class: [
        { class: "person", count: 10, share: 2 / 3, accepted: 6, rejected: 0, precision: 1 },
        { class: "car", count: 5, share: 1 / 3, accepted: 0, rejected: 5, precision: 0 },
      ],
      annotations_per_frame: [
        { annotations: 1, frames: 5 },
        { annotations: 2, frames: 5 },
      ],
    });
    const counts = stats.confidence_histogram.filter(({ count }) => count > 0);
    expect(counts.reduce((sum, { count }) => sum + count, 0)).toBe(15);
    expect(counts.find(({ from }) => from === 0.6)?.count).toBe(5);
    // 64 × 36 pixels of 640 × 360 are a hundredth of the frame.
    const [area] = stats.box_area_histogram.filter(({ count }) => count > 0);
    expect([area?.count, (area?.from ?? 1) <= 0.01001, (area?.to ?? 0) > 0.00999]).toEqual([
      15,
      true,
      true,
    ]);
  });
});

describe("a dataset", () => {
  it("is made of what was not rejected, by split, and handed out signed", async () => {
    const id = await labeled();
    const filter = { class_name: "car" };
    await annotator.ok("POST", `/jobs/${id}/annotations/review`, { accepted: false, filter });
    const stop = node.start();
    const made = DatasetExport.parse(await annotator.ok("POST", `/jobs/${id}/export`));
    await stop();
    expect(made).toMatchObject({ status: "completed", format: "yolo", bytes: 5 });
    expect(await (await fetch(made.download_url)).text()).toBe("a zip");
    expect(manifest.classes).toEqual(["person", "car"]);
    const frames = manifest.videos.flatMap((video) => video.frames);
    expect(frames.flatMap(({ annotations }) => annotations)).toHaveLength(10);
    expect(new Set(frames.map(({ split }) => split))).toEqual(new Set(["train", "val"]));
    const again = await viewer.ok("GET", `/exports/${made.export_id}`);
    expect(DatasetExport.parse(again).status).toBe("completed");
    const download = await viewer.send("GET", `/exports/${made.export_id}/download`);
    expect([download.status, download.headers.get("Location")?.split("?")[0]]).toEqual([
      302,
      made.download_url.split("?")[0],
    ]);
  });

  it("fails with the node's words", async () => {
    const id = await labeled();
    node.script.export = () => ({
      outcome: "failed",
      code: "disk_full",
      detail: "the disk is full",
      retryable: false,
    });
    const stop = node.start();
    const response = await annotator.send("POST", `/jobs/${id}/export`, { format: "coco" });
    await stop();
    node.script.export = exported;
    expect([response.status, await response.json()]).toMatchObject([
      502,
      { code: "task_failed", detail: "the disk is full" },
    ]);
    const absent = `/exports/${crypto.randomUUID()}`;
    expect(await viewer.refused("GET", absent)).toEqual([404, "not_found"]);
    expect(await viewer.refused("GET", `${absent}/download`)).toEqual([404, "not_found"]);
  });

  it("comes in as COCO or YOLO, as a finished job over the frames that it names", async () => {
    const coco = {
      images: [
        { id: 1, file_name: "images/val/clip_000003.jpg" },
        { id: 2, file_name: "elsewhere.jpg" },
      ],
      categories: [{ id: 7, name: "person" }],
      annotations: [
        { image_id: 1, category_id: 7, bbox: [10, 20, 30, 40] },
        { image_id: 2, category_id: 7, bbox: [10, 20, 30, 40] },
      ],
    };
    const response = await admin.send("POST", "/import", { project_id: projectId, coco });
    expect(response.status).toBe(201);
    const made = (await response.json()) as {
      job: Job;
      stored_annotations: number;
      unmatched: string[];
    };
    expect(made).toMatchObject({ stored_annotations: 1, unmatched: ["elsewhere.jpg"] });
    expect(Job.parse(made.job)).toMatchObject({ kind: "import", status: "completed" });
    expect((await page(made.job.job_id)).items).toMatchObject([
      { frame_id: frameId(videoId, 3), class: "person", bbox: [10, 20, 40, 60], source: "import" },
    ]);
    const yolo = { names: ["car", "dog"], labels: { "clip_000004.txt": "1 0.5 0.5 0.25 0.5\n" } };
    const other = await admin.ok<{ job: Job }>("POST", "/import", { project_id: projectId, yolo });
    expect((await page(other.job.job_id)).items).toMatchObject([
      { frame_id: frameId(videoId, 4), class: "dog", bbox: [240, 90, 400, 270] },
    ]);
  });

  it.each([
    [{}, 422, "invalid_request"],
    [
      { yolo: { names: ["a"], labels: { clip_000001: "3 0.5 0.5 0.1 0.1" } } },
      422,
      "invalid_request",
    ],
    [{ yolo: { names: ["a"], labels: { clip_000001: "0 a b" } } }, 422, "invalid_request"],
    [{ yolo: { names: ["a"], labels: { nothing: "0 0.5 0.5 0.1 0.1" } } }, 404, "not_found"],
  ])("is refused as %j", async (body, status, code) => {
    const refused = await admin.refused("POST", "/import", { project_id: projectId, ...body });
    expect(refused).toEqual([status, code]);
  });
});
