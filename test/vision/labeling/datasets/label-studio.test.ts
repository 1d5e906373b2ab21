// Zips of Label Studio's labels, in both forms of its JSON.

import { beforeAll, describe, expect, it } from "vitest";
import { archiveLabels } from "../../../../edge/vision/labeling/datasets/archive-labels.ts";
import {
  areaOf,
  type ImportProject,
  importProject,
  invalid,
} from "../../../support/archive-imports.ts";
import { createWorld } from "../../../support/world.ts";

const [WIDTH, HEIGHT] = [200, 100];
let project: ImportProject;

beforeAll(async () => {
  const world = await createWorld({ services: ["vision"] });
  project = await importProject(world, {
    "one.jpg": 1,
    "two.png": 1,
    "three.webp": 1,
    "cam1/1.png": 1,
    "cam2/1.png": 1,
    "deadbeef-four.png": 1,
    "four.png": 1,
    "clip.mp4": 10,
  });
});

/** A region of Label Studio's, as its export has them. */
const region = (type: string, value: object, more: object = {}) => ({
  original_width: WIDTH,
  original_height: HEIGHT,
  image_rotation: 0,
  value,
  id: crypto.randomUUID().slice(0, 10),
  from_name: "label",
  to_name: "image",
  type,
  origin: "manual",
  ...more,
});
const box = (names: string[], more: object = {}) =>
  region("rectanglelabels", {
    x: 10,
    y: 20,
    width: 30,
    height: 40,
    rotation: 0,
    rectanglelabels: names,
    ...more,
  });
let taskIds = 0;
const task = (image: string, results: object[] | null, more: object = {}) => ({
  id: ++taskIds,
  data: { image, title: "words" },
  annotations: results ? [{ id: taskIds, result: results, was_cancelled: false }] : [],
  drafts: [],
  predictions: [],
  ...more,
});
const studio = (...tasks: object[]) => ({ "project-1.json": JSON.stringify(tasks) });

/** A stroke with a hole on an image of 200 by 100, by Label Studio's own library. */
const BRUSH = [
  [0, 1, 56, 128, 57, 27, 255, 31, 183, 0, 206, 255, 252, 10, 156, 3, 59, 255, 240, 42, 112, 12],
  [79, 255, 137, 192, 49, 63, 255, 2, 167, 0, 196, 255, 248, 156, 3, 19, 255, 240, 42, 112, 12, 79],
  [255, 137, 192, 49, 63, 255, 2, 167, 0, 206, 255, 252, 10, 156, 3, 59, 255, 240, 42, 112, 12],
  [239, 255, 192, 169, 192, 51, 191, 255, 2, 167, 0, 206, 255, 255, 240, 188, 0],
].flat();

/** Bytes of bits, as rle-pack writes them: lists of values, none of them a run. */
function listed(values: readonly number[]): number[] {
  const bits = (value: number, count: number) => value.toString(2).padStart(count, "0");
  const sizes = [3, 4, 8, 16].map((size) => bits(size - 1, 4)).join("");
  const lists: string[] = [];
  for (let at = 0; at < values.length; at += 8) {
    const some = values.slice(at, at + 8);
    lists.push(`000${bits(some.length - 1, 3)}${some.map((value) => bits(value, 8)).join("")}`);
  }
  const text = `${bits(values.length, 32)}${bits(7, 5)}${sizes}${lists.join("")}`;
  return (text.match(/.{1,8}/g) ?? []).map((byte) => Number.parseInt(byte.padEnd(8, "0"), 2));
}

describe("Label Studio's export", () => {
  it("is rectangles, polygons, ellipses and strokes, in percent of their image", async () => {
    const id = "pair";
    const values = { x: 50, y: 50, width: 10, height: 10, rotation: 0 };
    const found = await project.imported(
      studio(
        task("/data/upload/1/0123abcd-one.jpg", [
          box(["cat"]),
          box(["cat", " dog "], { x: 60 }),
          box(["cat"], { x: 50, y: 50, width: 10, height: 10, rotation: 90 }),
          region("polygonlabels", {
            points: [
              [0, 0],
              [10, 0],
              [10, 10],
            ],
            closed: true,
            polygonlabels: ["cat"],
          }),
          region("ellipselabels", {
            x: 50,
            y: 50,
            radiusX: 5,
            radiusY: 20,
            rotation: 0,
            ellipselabels: ["cat"],
          }),
          region("brushlabels", { format: "rle", rle: BRUSH, brushlabels: ["sky"] }),
          region("rectangle", values, { id }),
          region("labels", { ...values, labels: ["pair"] }, { id }),
          region("choices", { choices: ["occluded"] }, { id }),
          region("choices", { choices: ["sunny"] }),
          region("keypointlabels", { x: 1, y: 2, width: 1, keypointlabels: ["nose"] }),
          region("rectangle", values),
          box(["cat"], { x: 5 }),
          { type: "relation", from_id: "a", to_id: "b", direction: "right" },
          { ...box(["cat"]), image_rotation: 90 },
        ]),
        task("/data/local-files/?d=cam1%2F1.png", []),
        task("s3://bucket/set/cam2/1.png?versionId=1", null),
        task("https://example.com/gone.png", [box(["cat"])]),
      ),
    );
    expect(found).toMatchObject({
      stored_annotations: 9,
      unmatched: ["gone.png"],
      unmatched_annotations: 1,
      left_out: 3,
    });
    expect(found.notes).toEqual([
      "1 task without annotations not taken",
      "1 shape of several labels taken once for each",
      "1 ellipse taken as polygons of 64 corners",
      "1 shape without a label left out",
      "1 shape left out, drawn on an image that was turned in the editor",
      "no shapes, and not taken: 2 choices, 1 relation",
      "left out, as neither boxes nor polygons: 1 keypointlabels",
    ]);
    expect(project.imagesOf(found)).toEqual(["cam1/1.png", "one.jpg"]);
    const kept = await project.annotationsOf(found);
    const of = (name: string) => kept.filter((one) => one.class === name);
    expect(of("dog").map(({ bbox }) => bbox)).toEqual([[120, 20, 180, 60]]);
    expect(of("pair").map(({ bbox }) => bbox)).toEqual([[100, 50, 120, 60]]);
    // A box turns about its first corner: 20 by 10 pixels at (100, 50).
    expect(of("cat")).toContainEqual(expect.objectContaining({ bbox: [90, 50, 100, 70] }));
    expect(of("cat")).toContainEqual(
      expect.objectContaining({ polygon: [0, 0, 20, 0, 20, 10], bbox: [0, 0, 20, 10] }),
    );
    expect(of("cat")).toContainEqual(expect.objectContaining({ bbox: [90, 30, 110, 70] }));
    expect(of("sky").map(({ bbox }) => bbox)).toEqual([[30, 10, 60, 20]]);
    expect(areaOf(of("sky")[0]?.polygon ?? null)).toBe(300 - 30);
    expect(kept.every(({ confidence, source }) => confidence === null && source === "import")).toBe(
      true,
    );
  });

  it("takes a task's ground truth, else its newest annotation that nobody skipped", async () => {
    const made = (name: string, updated_at: string, more: object = {}) => ({
      result: [box([name])],
      updated_at,
      was_cancelled: false,
      ground_truth: false,
      ...more,
    });
    const found = await project.imported(
      studio(
        task("one.jpg", null, {
          annotations: [
            made("truth", "2024-01-01T00:00:00Z", { ground_truth: true }),
            made("late", "2025-01-01T00:00:00Z"),
          ],
          predictions: [{ result: [box(["guess"])], score: 0.5 }],
        }),
        task("two.png", null, {
          annotations: [
            made("new", "2025-01-01T00:00:00.5Z"),
            made("old", "2025-01-01T00:00:00Z"),
            made("skipped", "2026-01-01T00:00:00Z", { was_cancelled: true }),
          ],
        }),
        task("three.webp", null, {
          completions: [made("x", "2025-01-01T00:00:00Z", { skipped: true })],
          annotations: undefined,
        }),
        task("four.png", null, { predictions: [12] }),
      ),
    );
    expect((await project.annotationsOf(found)).map((one) => one.class).sort()).toEqual([
      "new",
      "truth",
    ]);
    expect(found.notes).toEqual([
      "2 tasks of several annotations: the ground truth is taken, else the newest",
      "1 task with predictions, which are not taken",
      "1 task that people skipped not taken",
      "1 task without annotations not taken",
    ]);
    expect(project.imagesOf(found)).toEqual(["one.jpg", "two.png"]);
  });

  it("without an annotation is its predictions, with their scores", async () => {
    const predicted = { ...box(["cat"]), score: 0.75 };
    const found = await project.imported(
      studio(
        task("one.jpg", null, { predictions: [{ result: [predicted], score: 0.5 }] }),
        task("two.png", null, { predictions: [{ result: [box(["cat"])], score: 0.5 }] }),
      ),
    );
    expect(found.notes).toEqual(["predictions are taken, as no task has an annotation"]);
    const kept = await project.annotationsOf(found);
    expect(kept.map(({ confidence }) => confidence).sort()).toEqual([0.5, 0.75]);
  });

  it("finds an uploaded image by its own name, then without the digits before it", async () => {
    const found = await project.imported(
      studio(
        task("/data/upload/7/deadbeef-four.png", [box(["exact"])]),
        task("/data/upload/7/00000000-four.png", [box(["prefix"])]),
        task("/data/upload/7/0a0a0a0a-clip_000003.jpg", [box(["frame"])]),
        task("http://host:8080/data/upload/7/0a0a0a0a-gone.jpg", [box(["gone"])]),
      ),
    );
    expect(found.unmatched).toEqual(["0a0a0a0a-gone.jpg"]);
    const kept = await project.annotationsOf(found);
    expect(kept.map((one) => [one.class, one.frame]).sort()).toEqual([
      ["exact", "deadbeef-four.png#0"],
      ["frame", "clip.mp4#3"],
      ["prefix", "four.png#0"],
    ]);
    const uploaded = (name: string) => task(`/data/upload/7/${name}`, [box(["x"])]);
    expect(
      await project.refused(studio(uploaded("00000000-one.jpg"), uploaded("11111111-one.jpg"))),
    ).toEqual(invalid(/00000000-one\.jpg and 11111111-one\.jpg are one image/));
    expect(await project.refused(studio(uploaded("00000000-1.png")))).toEqual(
      invalid(/00000000-1\.png may be cam1\/1\.png and cam2\/1\.png/),
    );
  });

  it("may be JSON-MIN, with a row for each annotation", async () => {
    const values = { x: 50, y: 50, width: 10, height: 10, rotation: 0 };
    const size = { original_width: WIDTH, original_height: HEIGHT };
    const row = (image: string, shapes: object, more: object = {}) => ({
      image,
      id: ++taskIds,
      annotator: 1,
      annotation_id: taskIds,
      lead_time: 3.5,
      created_at: "2025-01-01T00:00:00Z",
      updated_at: "2025-01-01T00:00:00Z",
      ...shapes,
      ...more,
    });
    const one = row("/data/upload/1/0123abcd-one.jpg", {
      label: [{ ...values, ...size, rectanglelabels: ["cat"] }],
      rectangle: [{ ...values, x: 20, ...size }],
      tag: [{ ...values, x: 20, ...size, labels: ["pair"] }],
      brush: [{ format: "rle", rle: BRUSH, ...size, brushlabels: ["sky"] }],
      choice: "sunny",
    });
    const later = row(
      one.image,
      { label: [{ ...values, ...size, rectanglelabels: ["new"] }] },
      { id: one.id, updated_at: "2026-01-01T00:00:00Z" },
    );
    const found = await project.imported(studio(one));
    expect(found.left_out).toBe(0);
    expect(
      (await project.annotationsOf(found)).map((each) => [each.class, each.bbox]).sort(),
    ).toEqual([
      ["cat", [100, 50, 120, 60]],
      ["pair", [40, 50, 60, 60]],
      ["sky", [30, 10, 60, 20]],
    ]);
    const both = await project.imported(studio(later, one));
    expect((await project.annotationsOf(both)).map((each) => each.class)).toEqual(["new"]);
  });

  it("has strokes in lists of values of many colors", async () => {
    const pixels = Array.from({ length: 40 }, (_, at) => [at, 255 - at, 7, at % 10 < 5 ? 1 : 0]);
    const rle = listed(pixels.flat());
    const brush = region(
      "brushlabels",
      { format: "rle", rle, brushlabels: ["x"] },
      { original_width: 10, original_height: 4 },
    );
    const document = JSON.stringify([task("one.jpg", [brush])]);
    const { labels } = archiveLabels(
      { texts: [{ name: "a.json", text: document }], images: 0, others: [] },
      { format: undefined, isKnown: () => true },
    );
    expect(labels).toHaveLength(1);
    expect(areaOf(labels[0]?.polygon ?? null)).toBe(20);
  });

  it("is refused in words that name the task", async () => {
    const of = (one: object) => ({ ...task("one.jpg", [one]), id: 77 });
    const brush = (rle: unknown) => region("brushlabels", { rle, brushlabels: ["x"] });
    const points = (list: unknown) =>
      region("polygonlabels", { points: list, polygonlabels: ["x"] });
    const cases: [object, RegExp][] = [
      [of(brush(BRUSH.slice(0, 40))), /task 77: its run lengths end too early/],
      [of(brush([0, 0, 0, 4, 1, 2, 3, 4])), /task 77: its run lengths are not of 200 × 100 pixels/],
      [of(brush("abc")), /task 77: rle of a brush must be a list of bytes/],
      [of(points([[1]])), /task 77: points of a polygon must be pairs of numbers/],
      [of(box(["cat"], { x: "1" })), /task 77: x of a shape must be a number/],
      [of(box([" "])), /task 77: a label is called " ", which is no name/],
      [
        { ...of({ ...box(["cat"], { rotation: 3 }), original_width: null }) },
        /task 77: a turned shape, or a brush's, needs original_width/,
      ],
      [{ ...of(box(["cat"])), data: { text: "words" } }, /task 77: its data names no image/],
      [
        { ...of(box(["cat"])), data: { left: "a.png", right: "b.png" } },
        /task 77: which of its data is the image: left, right\?/,
      ],
      [{ ...of(box(["cat"])), annotations: [{ result: [{ value: 3 }] }] }, /project-1\.json: 0\./],
    ];
    for (const [one, detail] of cases)
      expect(await project.refused(studio(one))).toEqual(invalid(detail));
  });
});
