// Zips of LabelMe's labels, a file an image.

import { beforeAll, describe, expect, it } from "vitest";
import { withoutImageData } from "../../../../edge/vision/labeling/datasets/image-data.ts";
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

/** A shape of LabelMe's as it writes them. */
const shape = (shape_type: string, points: number[][], more: object = {}) => ({
  label: "cat",
  points,
  group_id: null,
  description: "",
  shape_type,
  flags: {},
  mask: null,
  ...more,
});
const labelme = (imagePath: string | null, shapes: object[], more: object = {}) =>
  JSON.stringify({
    version: "5.5.0",
    flags: {},
    shapes,
    imagePath,
    imageData: null,
    imageHeight: HEIGHT,
    imageWidth: WIDTH,
    ...more,
  });

// The same mask of 9 by 6 pixels with a hole, by LabelMe's own library: of one bit, and of eight.
const MASKS = [
  "iVBORw0KGgoAAAANSUhEUgAAAAkAAAAGAQAAAAA5vIloAAAAGklEQVR4nGNgYGCoZ2B6wcDEwMAkwcDAwAAAEaoBhsAn/k0AAAAASUVORK5CYII=",
  "iVBORw0KGgoAAAANSUhEUgAAAAkAAAAGCAAAAAA0rOsZAAAAI0lEQVR4nD3JsQ0AMAgEMYPYf+VPEYGrk45V6kcaCfTdYf95cRoDCa3qtMkAAAAASUVORK5CYII=",
  "iVBORw0KGgoAAAANSUhEUgAAAAkAAAAGCAAAAAA0rOsZAAAAI0lEQVR4nGNggAFGhv9QBhMDAwMjIwMDAwMTXJaFgQEmDwcAQXoCC0dQF00AAAAASUVORK5CYII=",
];
const BOX = [
  [10, 20],
  [50, 60],
];

describe("LabelMe's files", () => {
  it("are boxes, polygons, circles and masks of their images", async () => {
    const found = await project.imported({
      "set/one.json": labelme("..\\set\\one.jpg", [
        shape("rectangle", [
          [50, 60],
          [10, 20],
        ]),
        shape("rectangle", [
          [1, 2],
          [9, 2],
          [9, 8],
          [1, 8],
        ]),
        shape(
          "polygon",
          [
            [10, 10],
            [-20, 30],
            [30, 40],
          ],
          { group_id: 3, flags: { hidden: true }, description: "behind" },
        ),
        shape("oriented_rectangle", [
          [50, 10],
          [60, 20],
          [50, 30],
          [40, 20],
        ]),
        shape("circle", [
          [100, 50],
          [110, 50],
        ]),
        shape("line", BOX),
        shape("linestrip", BOX),
        shape("point", [[5, 5]]),
        shape("points", BOX),
      ]),
      "set/two.json": labelme("two.png", [], { imageData: "aaaa", flags: { blurred: true } }),
      "set/gone.json": labelme("gone.png", [shape("rectangle", BOX)]),
    });
    expect(found).toMatchObject({
      stored_annotations: 5,
      unmatched: ["set/gone.png"],
      unmatched_annotations: 1,
      left_out: 4,
    });
    expect(found.notes).toEqual([
      "1 circle taken as polygons of 64 corners",
      "told of shapes and images, and not taken: 1 group_id, 2 flags, 1 description",
      "left out, as neither boxes nor polygons: 1 line, 1 linestrip, 1 point, 1 points",
    ]);
    expect(project.imagesOf(found)).toEqual(["one.jpg", "two.png"]);
    const kept = await project.annotationsOf(found);
    const boxes = kept.filter(({ polygon }) => !polygon).map(({ bbox }) => bbox);
    expect(boxes).toHaveLength(2);
    expect(boxes).toEqual(
      expect.arrayContaining([
        [10, 20, 50, 60],
        [1, 2, 9, 8],
      ]),
    );
    const circle = kept.find(({ bbox }) => bbox[0] === 90);
    expect(circle?.bbox).toEqual([90, 40, 110, 60]);
    expect(circle?.polygon).toHaveLength(128);
    expect(Math.abs(areaOf(circle?.polygon ?? null) - 100 * Math.PI)).toBeLessThan(1);
    // Clipped at the frame, not bent.
    const cut = kept.find(({ bbox }) => bbox[0] === 0);
    expect(cut?.bbox).toEqual([0, 10, 30, 40]);
    expect(cut?.polygon).toHaveLength(8);
    expect(kept.find(({ bbox }) => bbox[0] === 40)?.polygon).toHaveLength(8);
  });

  it.each(MASKS)("have masks as PNGs of one channel (%#)", async (mask) => {
    const corners = [
      [20, 30],
      [28, 35],
    ];
    const found = await project.imported({
      "one.json": labelme("one.jpg", [shape("mask", corners, { mask })]),
    });
    const [only] = await project.annotationsOf(found);
    // 7 by 4 pixels, and a hole of 2 by 2.
    expect(only?.bbox).toEqual([21, 31, 28, 35]);
    expect(areaOf(only?.polygon ?? null)).toBe(24);
  });

  it("are of the image that they are called after, where that alone is known", async () => {
    const found = await project.imported({
      "annotations/one.json": labelme("renamed.jpg", [shape("rectangle", BOX)]),
      "annotations/cam1/1.json": labelme("..\\..\\images\\cam1\\1.png", [shape("rectangle", BOX)]),
      "annotations/cam2/1.json": labelme(null, [shape("rectangle", BOX)]),
    });
    expect(found.unmatched).toEqual([]);
    expect(project.imagesOf(found)).toEqual(["cam1/1.png", "cam2/1.png", "one.jpg"]);
  });

  it("are refused in words that name the file", async () => {
    const cases: [object[], RegExp][] = [
      [[shape("circle", [[1, 2]])], /a\.json: shapes\.0: a circle must have its center/],
      [[shape("mask", BOX)], /a\.json: shapes\.0: a mask must have its PNG/],
      [[shape("mask", BOX, { mask: "AAAA" })], /shapes\.0: a mask must be a PNG of one channel/],
      [[shape("mask", BOX, { mask: MASKS[0] })], /mask has 9 × 6 pixels, and its box other sides/],
      [[shape("rectangle", [[1, 2]])], /a rectangle must have two or four corners/],
      [[shape("polygon", [[1]])], /a\.json: shapes\.0\.points\.0/],
      [[shape("rectangle", BOX, { label: " " })], /a\.json: shapes\.0\.label/],
    ];
    for (const [shapes, detail] of cases)
      expect(await project.refused({ "a.json": labelme("one.jpg", shapes) })).toEqual(
        invalid(detail),
      );
    const turned = labelme("one.jpg", [shape("rectangle", BOX)], {
      imageWidth: HEIGHT,
      imageHeight: WIDTH,
    });
    expect(await project.refused({ "a.json": turned })).toEqual(invalid(/labels are of 100 × 200/));
    const one = labelme("one.jpg", [shape("rectangle", BOX)]);
    expect(await project.refused({ "a.json": one, "classes.txt": "x", "a.txt": "" })).toEqual(
      invalid(/format: name one: the archive holds yolo and labelme/),
    );
  });

  it("may hold their images, of far more bytes than labels may have", async () => {
    // Text that shrinks to a tenth, so that the zip is a small one.
    const noise = (from: number) =>
      Array.from({ length: 12_000 }, (_, at) => {
        const digits = Math.imul(at + from + 1, 0x9e3779b1) >>> 0;
        return `${digits.toString(36)}${digits}${"A".repeat(1_000)}`;
      }).join("");
    const names = ["one.jpg", "two.png", "three.webp"];
    const found = await project.imported(
      Object.fromEntries(
        names.map((name, index) => [
          `${name}.json`,
          labelme(name, [shape("rectangle", BOX)], { imageData: noise(index * 12_000) }),
        ]),
      ),
    );
    expect(found).toMatchObject({ stored_annotations: 3, notes: [] });
  });

  it("lose nothing but their images while they are read, however it is cut", async () => {
    const document = {
      imageData: "a".repeat(50),
      shapes: [{ label: 'a "imageData": "b" c', imageData: 5 }],
      nested: { imageData: null, more: "imageData" },
      last: "x",
    };
    const bytes = Buffer.from(JSON.stringify(document, null, 1));
    for (let size = 1; size < 40; size++) {
      async function* chunks() {
        for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
      }
      const parts = await Array.fromAsync(withoutImageData(chunks()));
      const text = Buffer.concat(parts).toString();
      expect(JSON.parse(text)).toEqual({ ...document, imageData: "" });
    }
  });
});
