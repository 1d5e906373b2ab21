// Review frame by frame and in bulk: frames that a job labels and frames that people add, marks,
// polygons, edits by a filter, order and filters of the listing.

import { beforeAll, describe, expect, it } from "vitest";
import { ExportManifest } from "../../../../shared/tasks/export-manifest.ts";
import type { ClaimedTask } from "../../../../shared/tasks/node-protocol.ts";
import { type Detection, TASK_KINDS } from "../../../../shared/tasks/tasks.ts";
import {
  Annotation,
  AnnotationPage,
  Change,
  JobClass,
  JobFramePage,
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
import { createWorld } from "../../../support/world.ts";

/** Ten a second, of which the jobs here label two: 0, 5, 10 and 15. */
const FRAMES = 20;
const SAMPLED = [0, 5, 10, 15];
const invalid = [422, "invalid_request"];
let admin: Person;
let viewer: Person;
let node: ScriptedNode;
let projectId: string;
let videos: [string, string];

const detection = (class_name: string, confidence: number): Detection => ({
  class_name,
  confidence,
  bbox: [100, 20, 200, 120],
  polygon: null,
  duplicate_of: null,
});
/** A person on each frame but 15, a car on frame 0; confidence rises with the frame. */
const found = labelAs((frame_index) => [
  ...(frame_index === 15 ? [] : [detection("person", 0.6 + frame_index / 100)]),
  ...(frame_index === 0 ? [detection("car", 0.9)] : []),
]);
let manifest: ExportManifest;
const exported = async (task: ClaimedTask, by: ScriptedNode) => {
  const payload = TASK_KINDS.export.payload.parse(task.payload);
  manifest = ExportManifest.parse(await (await fetch(payload.manifest.url)).json());
  await by.write(task, { key: payload.archive.key }, "a zip");
  return { bytes: 5, summary: {} };
};

beforeAll(async () => {
  const world = await createWorld({ services: ["console", "vision"] });
  admin = await register(world);
  viewer = await colleague(world, admin, "viewer");
  const probe = probeAs({ frames: FRAMES });
  node = await scriptedNode(world, admin, { probe, label: found, export: exported });
  projectId = (await newProject(admin)).project_id;
  const one = (await uploadVideo(admin, projectId)).video_id;
  videos = [one, (await uploadVideo(admin, projectId)).video_id];
  await node.work();
});

/** A job over both videos, or over the first one. */
async function labeled(more: object = {}): Promise<string> {
  const body = { project_id: projectId, video_ids: videos, prompts: ["person", "car"], fps: 2 };
  const { job_id: id } = await admin.ok<{ job_id: string }>("POST", "/label", {
    ...body,
    ...more,
  });
  await node.work();
  return id;
}
const framesOf = async (id: string, query = "") =>
  JobFramePage.parse(await viewer.ok("GET", `/jobs/${id}/frames${query}`));
const page = async (id: string, query = "") =>
  AnnotationPage.parse(await viewer.ok("GET", `/jobs/${id}/annotations${query}`));
const overview = async (id: string) =>
  Overview.parse(await viewer.ok("GET", `/jobs/${id}/overview`));
const classes = async (id: string) =>
  JobClass.array()
    .parse(await viewer.ok("GET", `/jobs/${id}/classes?all=true`))
    .map((one) => one.class);
const mark = (id: string, filter: object, reviewed = true) =>
  admin.ok<{ changed: number }>("POST", `/jobs/${id}/frames/review`, { reviewed, filter });
const bulk = (id: string, what: string, body: object) =>
  admin.ok<{ changed: number; change_id: string }>("POST", `/jobs/${id}/annotations/${what}`, body);
const undo = (changeId: string) => admin.ok("POST", `/changes/${changeId}/undo`);
const newestChange = async (id: string) =>
  Change.array().parse(await admin.ok("GET", `/jobs/${id}/changes`))[0] as Change;
const draw = async (id: string, index: number, more: object = {}) =>
  Annotation.parse(
    await admin.ok("POST", "/annotations", {
      job_id: id,
      frame_id: frameId(videos[0], index),
      class: "person",
      bbox: [1, 1, 9, 9],
      ...more,
    }),
  );

describe("a job's frames", () => {
  it("are listed with their times and counts, and by every filter", async () => {
    const id = await labeled();
    const all = await framesOf(id);
    expect([all.total, all.offset, all.limit]).toEqual([8, 0, 100]);
    expect(all.items.map(({ video_id: of, index }) => [of, index])).toEqual(
      videos.flatMap((video) => SAMPLED.map((index) => [video, index])),
    );
    expect(all.items.slice(0, 4).map((one) => [one.pts_seconds, one.annotations.total])).toEqual([
      [0, 2],
      [0.5, 1],
      [1, 1],
      [1.5, 0],
    ]);
    expect(all.items[5]).toEqual({
      frame_id: frameId(videos[1], 5),
      video_id: videos[1],
      index: 5,
      pts_seconds: 0.5,
      image_url: `/api/v1/videos/${videos[1]}/frames/5.jpg`,
      sampled: true,
      annotations: { total: 1, pending: 1, accepted: 0, rejected: 0 },
      reviewed_at: null,
      reviewed_by: null,
      labeler_id: null,
      reviewer_id: null,
      stage: "label",
      tags: [],
    });
    const [first, second] = [
      await framesOf(id, "?limit=3"),
      await framesOf(id, "?limit=500&offset=3"),
    ];
    expect([...first.items, ...second.items]).toEqual(all.items);
    const indexes = async (query: string) =>
      (await framesOf(id, query)).items.map(({ index }) => index);
    expect(await indexes(`?video_id=${videos[1]}`)).toEqual(SAMPLED);
    expect(await indexes(`?video_id=${crypto.randomUUID()}`)).toEqual([]);
    expect(await indexes(`?video_id=${videos[0]}&from_index=5&to_index=15`)).toEqual([5, 10]);
    expect(await indexes("?annotated=false")).toEqual([15, 15]);
    expect(await indexes("?annotated=true&reviewed=true")).toEqual([]);
    for (const query of ["?limit=0", "?limit=501", "?reviewed=1", "?from_index=-1"]) {
      expect(await viewer.refused("GET", `/jobs/${id}/frames${query}`)).toEqual(invalid);
    }
  });

  it("are marked as reviewed, by their ids and by a filter, and unmarked", async () => {
    const id = await labeled();
    const frame = frameId(videos[0], 5);
    expect(await mark(id, { frame_ids: [frame, frame] })).toEqual({ changed: 1 });
    expect(await mark(id, { frame_ids: [frame] })).toEqual({ changed: 0 });
    const [reviewed] = (await framesOf(id, "?reviewed=true")).items;
    expect(reviewed).toMatchObject({ frame_id: frame, reviewed_by: admin.id });
    expect(reviewed?.annotations).toMatchObject({ pending: 1 });
    expect((await framesOf(id, "?reviewed=false")).total).toBe(7);
    expect(await mark(id, { annotated: false })).toEqual({ changed: 2 });
    expect(await mark(id, { video_id: videos[1], from_index: 5, to_index: 11 })).toEqual({
      changed: 2,
    });
    expect(await mark(id, {})).toEqual({ changed: 3 });
    expect(await mark(id, {}, false)).toEqual({ changed: 8 });
    const path = `/jobs/${id}/frames/review`;
    for (const wrong of [
      { frame_ids: [] },
      { frame_ids: ["none"] },
      { frame_ids: [frame], annotated: true },
      { frames: [frame] },
    ]) {
      const refused = await admin.refused("POST", path, { reviewed: true, filter: wrong });
      expect([wrong, refused]).toEqual([wrong, invalid]);
    }
    const absent = { reviewed: true, filter: { frame_ids: [frame, frameId(videos[0], FRAMES)] } };
    expect(await admin.refused("POST", path, absent)).toEqual([404, "not_found"]);
    expect((await framesOf(id, "?reviewed=true")).total).toBe(0);
    const body = { reviewed: true, filter: {} };
    expect(await viewer.refused("POST", path, body)).toEqual([403, "forbidden"]);
  });

  it("without annotations count as work until somebody looked at them", async () => {
    const id = await labeled({ video_ids: [videos[0]] });
    // Four frames, of which one has no annotation.
    await bulk(id, "review", { accepted: true });
    expect(await overview(id)).toMatchObject({ completion_percentage: 75, reviewed_frames: 0 });
    await mark(id, { frame_ids: [frameId(videos[0], 5)] });
    // That frame was done before, by its annotation.
    expect(await overview(id)).toMatchObject({ completion_percentage: 75, reviewed_frames: 1 });
    await mark(id, { annotated: false });
    expect(await overview(id)).toMatchObject({ completion_percentage: 100, reviewed_frames: 2 });
    const { job_id: copy } = await admin.ok<{ job_id: string }>("POST", `/jobs/${id}/duplicate`);
    expect(await overview(copy)).toEqual(await overview(id));
  });

  it("marked as reviewed are done, whatever is pending on them", async () => {
    const id = await labeled({ video_ids: [videos[0]] });
    expect(await overview(id)).toMatchObject({ completion_percentage: 0, reviewed_frames: 0 });
    await mark(id, { video_id: videos[0] });
    expect(await overview(id)).toMatchObject({ completion_percentage: 100, reviewed_frames: 4 });
  });
});

describe("a frame that the job does not label", () => {
  it("becomes one of its frames where somebody draws on it, and is none when that is undone", async () => {
    const id = await labeled({ video_ids: [videos[0]] });
    const drawn = await draw(id, 7);
    await draw(id, FRAMES - 1);
    expect(drawn).toMatchObject({ frame_id: frameId(videos[0], 7), keyframe: true });
    expect((await framesOf(id)).items.map(({ index, sampled }) => [index, sampled])).toEqual([
      ...[0, 5].map((index) => [index, true]),
      [7, false],
      ...[10, 15].map((index) => [index, true]),
      [19, false],
    ]);
    expect(await overview(id)).toMatchObject({ frame_count: 6, annotated_frames: 5 });
    const stats = Stats.parse(await viewer.ok("GET", `/jobs/${id}/stats`));
    const frames = stats.annotations_per_frame.reduce((sum, one) => sum + one.frames, 0);
    expect(frames).toBe(6);
    const stop = node.start();
    await admin.ok("POST", `/jobs/${id}/export`, { val_share: 0 });
    await stop();
    expect(manifest.videos.flatMap((one) => one.frames.map(({ index }) => index))).toEqual([
      0, 5, 7, 10, 15, 19,
    ]);
    await undo((await newestChange(id)).change_id);
    expect((await framesOf(id)).items.map(({ index }) => index)).toEqual([0, 5, 7, 10, 15]);
  });

  it("is in the job's range, from its first frame to before its next, or refused", async () => {
    const id = await labeled({ video_ids: [videos[0]], from_seconds: 0.5, to_seconds: 1.1 });
    expect((await framesOf(id)).items.map(({ index }) => index)).toEqual([5, 10]);
    await draw(id, 14);
    expect(await mark(id, { frame_ids: [frameId(videos[0], 6)] })).toEqual({ changed: 1 });
    expect((await framesOf(id)).items.map(({ index }) => index)).toEqual([5, 6, 10, 14]);
    for (const index of [4, 15, FRAMES]) {
      const body = {
        job_id: id,
        frame_id: frameId(videos[0], index),
        class: "a",
        bbox: [1, 1, 9, 9],
      };
      const refused = await admin.refused("POST", "/annotations", body);
      expect([index, ...refused]).toEqual([index, 404, "not_found"]);
    }
  });
});

describe("a polygon", () => {
  const square = [10, 10, 50, 10, 50, 40, 10, 40];

  it("gives its annotation the box around it, drawn or patched, and is taken away", async () => {
    const id = await labeled();
    const drawn = await draw(id, 0, { bbox: undefined, polygon: square });
    expect(drawn).toMatchObject({ bbox: [10, 10, 50, 40], polygon: square });
    const path = `/annotations/${drawn.annotation_id}`;
    const triangle = [0, 0, 30, 0, 0, 20];
    expect(await admin.ok("PATCH", path, { polygon: triangle })).toMatchObject({
      bbox: [0, 0, 30, 20],
      polygon: triangle,
    });
    expect(await admin.ok("PATCH", path, { polygon: null })).toMatchObject({
      bbox: [0, 0, 30, 20],
      polygon: null,
    });
    await undo((await newestChange(id)).change_id);
    const [again] = (await page(id, "?accepted=true")).items;
    expect(again?.polygon).toEqual(triangle);
    expect(
      await admin.ok("PATCH", path, { polygon: square, bbox: [10, 10, 50, 40] }),
    ).toMatchObject({ polygon: square });
    expect(await admin.ok("PATCH", path, { bbox: [1, 1, 5, 5] })).toMatchObject({ polygon: null });
  });

  it("is cut to its frame, side by side", async () => {
    const id = await labeled();
    // A diamond around the upper left corner: what is inside is a triangle.
    const drawn = await draw(id, 0, { bbox: undefined, polygon: [-40, 0, 0, -40, 40, 0, 0, 40] });
    expect(drawn.bbox).toEqual([0, 0, 40, 40]);
    const [area, x, y] = [areaOf(drawn.polygon ?? []), ...extremes(drawn.polygon ?? [])];
    expect([area, x, y]).toEqual([800, [0, 40], [0, 40]]);
    const right = await draw(id, 5, {
      bbox: undefined,
      polygon: [600, 0, 700, 0, 700, 400, 600, 400],
    });
    expect([right.bbox, areaOf(right.polygon ?? [])]).toEqual([[600, 0, 640, 360], 40 * 360]);
  });

  it.each([
    { polygon: [700, 10, 800, 10, 750, 90] },
    { polygon: [10, 10, 20, 20, 30, 30] },
    { polygon: [10, 10, 20, 20] },
    { polygon: [1, 1, 5, 1, 5] },
    { polygon: [1, 1, 5, 1, 5, 1e300] },
    { polygon: [1, 1, 5, 1, 5, null] },
    { polygon: square, bbox: [100, 100, 150, 140] },
  ])("is refused as %j", async (wrong) => {
    const id = await labeled({ video_ids: [videos[0]] });
    const body = { job_id: id, frame_id: frameId(videos[0], 0), class: "person" };
    expect(await admin.refused("POST", "/annotations", { ...body, ...wrong })).toEqual(invalid);
    const [one] = (await page(id)).items as [Annotation];
    const path = `/annotations/${one.annotation_id}`;
    expect(await admin.refused("PATCH", path, wrong)).toEqual(invalid);
    expect(await admin.refused("POST", "/annotations", body)).toEqual(invalid);
  });
});

/** Twice the shoelace sum, halved: the area of a ring. */
function areaOf(ring: readonly number[]): number {
  let sum = 0;
  for (let index = 0; index < ring.length; index += 2) {
    const [x = 0, y = 0] = ring.slice(index);
    const [nextX = 0, nextY = 0] = index + 2 < ring.length ? ring.slice(index + 2) : ring;
    sum += x * nextY - nextX * y;
  }
  return Math.abs(sum) / 2;
}
const extremes = (ring: readonly number[]) =>
  [0, 1].map((axis) => {
    const values = ring.filter((_, index) => index % 2 === axis);
    return [Math.min(...values), Math.max(...values)];
  });

describe("an edit of many", () => {
  it("judges what is pending, unless told otherwise", async () => {
    const id = await labeled({ video_ids: [videos[0]] });
    const car = { class_name: "car" };
    expect(await bulk(id, "review", { accepted: false, filter: car })).toMatchObject({
      changed: 1,
    });
    expect(await bulk(id, "review", { accepted: true })).toMatchObject({ changed: 3 });
    expect((await page(id, "?accepted=false")).total).toBe(1);
    expect(await bulk(id, "review", { accepted: false })).toMatchObject({ changed: 0 });
    const told = { accepted: true, filter: { accepted: false } };
    expect(await bulk(id, "review", told)).toMatchObject({ changed: 1 });
    const all = { accepted: false, include_reviewed: true };
    expect(await bulk(id, "review", all)).toMatchObject({ changed: 4 });
    expect(await bulk(id, "review", { accepted: null })).toMatchObject({ changed: 4 });
  });

  it("gives a class and deletes, by every filter, and is undone", async () => {
    const id = await labeled();
    const before = (await page(id)).items;
    const relabeled = await bulk(id, "relabel", {
      class: "cyclist",
      filter: { video_id: videos[1] },
    });
    expect(relabeled.changed).toBe(4);
    expect((await page(id, "?class_name=cyclist")).total).toBe(4);
    expect(
      await bulk(id, "relabel", { class: "cyclist", filter: { class_name: "cyclist" } }),
    ).toEqual({
      change_id: null,
      changed: 0,
    });
    await undo(relabeled.change_id);
    expect(await classes(id)).toEqual(["person", "car"]);
    for (const [filter, count] of [
      [{ from_index: 5, to_index: 10 }, 2],
      [{ max_confidence: 0.65 }, 4],
      [{ min_confidence: 0.65 }, 6],
      [{ video_id: videos[0], track_id: 1 }, 3],
      [{ annotations: before.slice(0, 3).map(({ annotation_id }) => ({ annotation_id })) }, 3],
      [{}, 8],
    ] as const) {
      const deleted = await bulk(id, "delete", { filter });
      expect([filter, deleted.changed]).toEqual([filter, count]);
      expect((await page(id)).total).toBe(8 - count);
      await undo(deleted.change_id);
    }
    const bare = ({ revision, updated_at, ...rest }: Annotation) => rest;
    expect((await page(id)).items.map(bare)).toEqual(before.map(bare));
    const path = (what: string) => `/jobs/${id}/annotations/${what}`;
    for (const [what, body] of [
      ["delete", {}],
      ["delete", { filter: { track_id: 1 } }],
      ["delete", { filter: { class: "car" } }],
      ["delete", { filter: { annotations: [] } }],
      ["relabel", { class: " ", filter: {} }],
    ] as const) {
      expect([body, await admin.refused("POST", path(what), body)]).toEqual([body, invalid]);
    }
    const body = { filter: {} };
    expect(await viewer.refused("POST", path("delete"), body)).toEqual([403, "forbidden"]);
  });

  it("is refused whole where somebody edited one since", async () => {
    const id = await labeled();
    const { items } = await page(id);
    const annotations = items
      .slice(0, 2)
      .map(({ annotation_id, revision }) => ({ annotation_id, revision }));
    const [one] = annotations as [Annotation];
    await admin.ok("PATCH", `/annotations/${one.annotation_id}`, { accepted: true });
    for (const [what, body] of [
      ["delete", {}],
      ["relabel", { class: "car" }],
      ["review", { accepted: false, include_reviewed: true }],
    ] as const) {
      const path = `/jobs/${id}/annotations/${what}`;
      const refused = await admin.send("POST", path, { ...body, filter: { annotations } });
      expect([refused.status, await refused.json()]).toMatchObject([
        409,
        { code: "revision_conflict", edited: [{ annotation_id: one.annotation_id, revision: 2 }] },
      ]);
    }
    expect((await page(id)).total).toBe(8);
  });
});

describe("a listing", () => {
  it("is sorted by confidence from either end, what people drew being the surest", async () => {
    const id = await labeled({ video_ids: [videos[0]] });
    await draw(id, 3);
    const confidences = async (query: string) =>
      (await page(id, query)).items.map(({ confidence }) => confidence?.toFixed(2) ?? null);
    const rising = ["0.60", "0.65", "0.70", "0.90", null];
    expect(await confidences("?sort=confidence")).toEqual(rising);
    expect(await confidences("?sort=-confidence")).toEqual(rising.toReversed());
    expect(await confidences("?sort=-confidence&limit=2&offset=1")).toEqual(["0.90", "0.70"]);
    expect(await viewer.refused("GET", `/jobs/${id}/annotations?sort=age`)).toEqual(invalid);
  });

  it("is of one video, of one of its tracks, of a range of frames", async () => {
    const id = await labeled();
    expect((await page(id, `?video_id=${videos[1]}`)).total).toBe(4);
    const track = await page(id, `?video_id=${videos[1]}&track_id=1`);
    expect(track.items.map(({ frame_id: of }) => of)).toEqual(
      [0, 5, 10].map((index) => frameId(videos[1], index)),
    );
    expect((await page(id, "?from_index=5&to_index=10")).total).toBe(2);
    expect(await viewer.refused("GET", `/jobs/${id}/annotations?track_id=1`)).toEqual(invalid);
  });
});
