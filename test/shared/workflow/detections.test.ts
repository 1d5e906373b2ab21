// Objects are kept, ordered, renamed and counted as asked, and none is lost on the way.

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { BlockFailure } from "../../../shared/workflow/block.ts";
import { DETECTION_BLOCKS } from "../../../shared/workflow/blocks/detections.ts";
import type { Detections } from "../../../shared/workflow/values.ts";
import { runnerOf } from "../../support/block-runner.ts";

const run = runnerOf(DETECTION_BLOCKS);

const FRAME = { width: 100, height: 50, offset: [0, 0], scale: [1, 1] };
const OBJECTS = [
  { class: "car", confidence: 0.9, bbox: [0, 0, 50, 50], track_id: 4 },
  { class: "bus", confidence: 0.5, bbox: [50, 0, 60, 20], data: { seconds_in_zone: 7 } },
  { class: "car", confidence: 0.5, bbox: [90, 40, 100, 50], data: { seconds_in_zone: 2 } },
];
const detections = { frame: FRAME, objects: OBJECTS };
const indexesOf = (value: unknown) =>
  (value as Detections).objects.map((object) => OBJECTS.indexOf(object as never)); // ours, in part

describe("a filter", () => {
  it.each<[string, Record<string, unknown>, Record<string, unknown>, number[]]>([
    ["nothing", {}, {}, [0, 1, 2]],
    ["classes", { classes: ["bus", "fox"] }, {}, [1]],
    ["no class", { classes: [] }, {}, []],
    ["the lowest confidence, inclusive", { confidence_min: 0.5 }, {}, [0, 1, 2]],
    ["the highest confidence", { confidence_max: 0.6 }, {}, [1, 2]],
    ["areas", {}, { area_min: 100, area_max: 200 }, [1, 2]],
    ["shares of the image", {}, { area_share_min: 0.04 }, [0, 1]],
    ["tracks", {}, { has_track: true }, [0]],
    ["no tracks", {}, { has_track: false }, [1, 2]],
    ["what blocks noted", {}, { where: "coalesce(object.data.seconds_in_zone, 0) > 5" }, [1]],
    ["centers", {}, { where: "object.x > image.width / 2 and object.y < 20" }, [1]],
    ["ids of tracks", {}, { where: "object.track_id in [3, 4]" }, [0]],
    ["the box", {}, { where: "object.bbox[2] == object.width + object.bbox[0]" }, [0, 1, 2]],
  ])("of %s keeps what was asked for, and hands on the rest", async (_, inputs, given, kept) => {
    const result = await run("filter@1", { detections, ...inputs }, given);
    expect(indexesOf(result.detections)).toEqual(kept);
    expect(indexesOf(result.rest)).toEqual([0, 1, 2].filter((index) => !kept.includes(index)));
  });

  it("refuses an expression before the run that is none", async () => {
    const asked = run("filter@1", { detections }, { where: "object.class = 'car'" });
    await expect(asked).rejects.toThrow('where: "=" means nothing here: write `==`');
    await expect(run("filter@1", { detections }, { where: "frame.width" })).rejects.toThrow(
      "no value is called frame",
    );
  });

  it("fails of an expression that is neither true nor false, or mixes types", async () => {
    const asked = run("filter@1", { detections }, { where: "object.area" });
    await expect(asked).rejects.toThrow(BlockFailure);
    await expect(run("filter@1", { detections }, { where: "object.track_id > 3" })).rejects.toThrow(
      "needs two numbers or two texts, not null and a number",
    );
  });

  it("bounds what an expression costs over all objects", async () => {
    const many = Array.from({ length: 10_000 }, () => OBJECTS[0]);
    const where = "all(map([1,2,3,4,5,6,7,8,9], x => x), x => x < 10 and len(object.bbox) == 4)";
    const asked = run("filter@1", { detections: { frame: FRAME, objects: many } }, { where });
    await expect(asked).rejects.toThrow("too many steps");
  });
});

describe("sorting", () => {
  it.each<[Record<string, unknown>, number[]]>([
    [{}, [0, 1, 2]],
    [{ order: "ascending" }, [1, 2, 0]],
    [{ by: "class", order: "ascending" }, [1, 0, 2]],
    [{ by: "x" }, [2, 1, 0]],
    [{ by: "y", order: "ascending", limit: 1 }, [1]],
    [{ by: "track_id" }, [0, 1, 2]],
    [{ by: "data.seconds_in_zone", order: "ascending" }, [2, 1, 0]],
    [{ by: "data.seconds_in_zone" }, [1, 2, 0]],
    [{ by: "data.__proto__" }, [0, 1, 2]],
    [{ limit: 0 }, []],
  ])(
    "by %j keeps the order of equals, and puts those without a value last",
    async (given, order) => {
      const result = await run("sort@1", { detections }, given);
      expect(indexesOf(result.detections)).toEqual(order);
    },
  );
});

describe("classes", () => {
  it("are renamed, and others kept or dropped", async () => {
    const named = async (given: Record<string, unknown>) => {
      const result = await run("class_map@1", { detections }, given);
      return (result.detections as Detections).objects.map((object) => object.class);
    };
    expect(await named({ classes: { car: "vehicle" } })).toEqual(["vehicle", "bus", "vehicle"]);
    expect(await named({ classes: { bus: "car" }, others: "drop" })).toEqual(["car"]);
    // Names are looked up in what was given alone.
    expect(await named({ classes: { toString: "x" } })).toEqual(["car", "bus", "car"]);
  });

  it("are counted, whatever they are called", async () => {
    const name = fc.oneof(
      fc.constantFrom("car", "__proto__", "constructor", "toString"),
      fc.string({ maxLength: 3 }),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(name, { maxLength: 12 }), async (names) => {
        const objects = names.map((each) => ({ class: each, confidence: 1, bbox: [0, 0, 1, 1] }));
        const result = await run("count@1", { detections: { frame: FRAME, objects } });
        const counts = Object.entries(result.by_class as object);
        expect(result.count).toBe(names.length);
        expect(new Map(counts)).toEqual(
          new Map(names.map((each) => [each, names.filter((other) => other === each).length])),
        );
      }),
    );
    const some = await run("count@1", { detections, classes: ["car"] });
    expect(some).toEqual({ count: 2, by_class: { car: 2 } });
  });
});

describe("a summary", () => {
  it("tells centers in pixels of the root image, and each track once", async () => {
    const frame = { width: 100, height: 50, offset: [10, 20], scale: [2, 1] };
    const objects = [OBJECTS[0], OBJECTS[0]];
    const result = await run("detections_summary@1", { detections: { frame, objects } });
    expect(result).toMatchObject({ count: 2, is_empty: false, track_ids: [4] });
    expect(result.centers).toEqual([
      [60, 45],
      [60, 45],
    ]);
  });
});
