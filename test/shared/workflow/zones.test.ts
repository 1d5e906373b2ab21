// Zones, lines and time against supervision's answers, kept beside: who is in, who crosses which
// way, and what a state remembers of it.

import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { ZONE_BLOCKS } from "../../../shared/workflow/blocks/zones.ts";
import { runBlock } from "../../support/workflow-steps.ts";

const Pair = z.tuple([z.number(), z.number()]);
const Golden = z.object({
  lines: z.array(
    z.object({
      line: z.tuple([Pair, Pair]),
      anchors: z.array(z.string()),
      frames_min: z.number(),
      frames: z.array(
        z.object({
          objects: z.array(z.tuple([z.number(), z.number(), z.number(), z.number(), z.number()])),
          in: z.array(z.number()),
          out: z.array(z.number()),
        }),
      ),
      count: Pair,
    }),
  ),
  zones: z.array(
    z.object({
      zone: z.array(Pair),
      anchors: z.array(z.string()),
      require: z.string(),
      boxes: z.array(z.array(z.number())),
      inside: z.array(z.number()),
    }),
  ),
});
const golden = Golden.parse(
  JSON.parse(readFileSync(new URL("../../golden/workflow/zones.json", import.meta.url), "utf8")),
);

const frame = { width: 100, height: 100, offset: [0, 0], scale: [1, 1] };
const run = runBlock(ZONE_BLOCKS);
const object = (bbox: readonly number[], track?: number) => ({
  class: "car",
  confidence: 0.9,
  bbox,
  ...(track !== undefined && { track_id: track }),
});
const on = (objects: object[], on: object = frame) => ({ frame: on, objects });
const Objects = z.object({ objects: z.array(z.object({ track_id: z.number() }).loose()) });
const idsOf = (value: unknown) => Objects.parse(value).objects.map(({ track_id }) => track_id);

describe("a line counter", () => {
  it("counts as supervision's LineZone, frame by frame and way by way", async () => {
    let crossings = 0;
    for (const { line, anchors, frames_min, frames, count } of golden.lines) {
      // Supervision forgets a track as soon as it was absent for the threshold and one frame more.
      const parameters = { anchors, frames_min, lost_frames_max: frames_min };
      let state: unknown = null;
      for (const { objects, in: ins, out: outs } of frames) {
        const tracks = on(objects.map(([id, ...box]) => object(box, id)));
        const result = await run("line_counter@1", { tracks, line }, { parameters, state });
        ({ state } = result);
        expect(idsOf(result.outputs.crossed_in)).toEqual(ins);
        expect(idsOf(result.outputs.crossed_out)).toEqual(outs);
        crossings += ins.length + outs.length;
        if (objects === frames.at(-1)?.objects) {
          expect([result.outputs.count_in, result.outputs.count_out]).toEqual(count);
        }
      }
    }
    expect(crossings).toBeGreaterThan(50);
  });

  const line = [
    [0, 50],
    [100, 50],
  ];
  const walk = async (rows: (number | null)[], parameters: object = {}) => {
    let state: unknown = null;
    let outputs: Readonly<Record<string, unknown>> = {};
    for (const y of rows) {
      const tracks = on(y === null ? [] : [object([40, y - 5, 50, y + 5], 1)]);
      const result = await run("line_counter@1", { tracks, line }, { parameters, state });
      ({ outputs } = result);
      state = JSON.parse(JSON.stringify(result.state));
    }
    return [outputs.count_in, outputs.count_out];
  };

  it("counts an object that jitters on the line once", async () => {
    expect(await walk([80, 60, 52, 48, 51, 49, 52, 40, 47, 53, 44, 20])).toEqual([1, 0]);
    const center = { anchors: ["center"], margin: 5 };
    expect(await walk([80, 60, 52, 48, 51, 46, 54, 40, 47, 53, 44, 20], center)).toEqual([1, 0]);
  });

  it("knows a track by its side while it is hidden, for as long as it is told", async () => {
    expect(await walk([70, null, null, null, 30])).toEqual([1, 0]);
    expect(await walk([70, null, null, null, 30], { lost_frames_max: 2 })).toEqual([0, 0]);
  });

  it("counts what was found on a crop by where that lies in the root image", async () => {
    const crop = { width: 20, height: 20, offset: [40, 20], scale: [2, 2] };
    const step = (y: number, state: unknown) =>
      run("line_counter@1", { tracks: on([object([2, y, 6, y + 2], 7)], crop), line }, { state });
    const before = await step(16, null);
    expect((await step(2, before.state)).outputs).toMatchObject({
      count_in: 1,
      by_class: { in: { car: 1 }, out: {} },
    });
  });

  it("begins anew, with a warning, from a state of another shape", async () => {
    const inputs = { tracks: on([]), line };
    const result = await run("line_counter@1", inputs, { state: { in: -4 } });
    expect(result.outputs.count_in).toBe(0);
    expect(result.warnings).toEqual([expect.stringContaining("begins anew")]);
  });

  it("refuses a line without a length, and remembers a bounded number of tracks", async () => {
    const dot = [
      [1, 1],
      [1, 1],
    ];
    await expect(run("line_counter@1", { tracks: on([]), line: dot }, {})).rejects.toThrow(
      /no sides/,
    );
    const many = Array.from({ length: 6_000 }, (_, id) => object([1, 1, 2, 2], id));
    const { state } = await run("line_counter@1", { tracks: on(many), line }, {});
    expect(z.object({ tracks: z.array(z.json()) }).parse(state).tracks.length).toBeGreaterThan(
      3_000,
    );
    expect(JSON.stringify(state).length).toBeLessThan(201_000);
  });
});

describe("a zone filter", () => {
  it("has in a polygon what supervision's PolygonZone has, but for points on a pixel's edge", async () => {
    let [boxes, differences] = [0, 0];
    for (const { zone, anchors, require, ...given } of golden.zones) {
      const detections = on(given.boxes.map((box, index) => object(box, index)));
      const parameters = { anchors, require };
      const { outputs } = await run("zone_filter@1", { detections, zone }, { parameters });
      const inside = new Set(idsOf(outputs.inside));
      expect(inside.size).toBe(outputs.count);
      expect(inside.size + idsOf(outputs.outside).length).toBe(given.boxes.length);
      boxes += given.boxes.length;
      differences += given.boxes.filter(
        (_, index) => inside.has(index) !== given.inside.includes(index),
      ).length;
    }
    // Supervision rounds anchors to pixels of a mask whose border is drawn a pixel wide.
    expect(differences / boxes).toBeLessThan(0.03);
  });

  it("counts the border in, and what a crop shows by where it lies", async () => {
    const zone = [
      [10, 10],
      [50, 10],
      [50, 50],
      [10, 50],
    ];
    const border = on([object([20, 30, 40, 50], 1), object([20, 30, 40, 50.5], 2)]);
    expect(
      idsOf((await run("zone_filter@1", { detections: border, zone }, {})).outputs.inside),
    ).toEqual([1]);
    const crop = { width: 10, height: 10, offset: [45, 45], scale: [1, 1] };
    const moved = on([object([0, 0, 2, 2], 1), object([6, 6, 8, 8], 2)], crop);
    expect(
      idsOf((await run("zone_filter@1", { detections: moved, zone }, {})).outputs.inside),
    ).toEqual([1]);
  });
});

describe("time in a zone", () => {
  const zone = [
    [0, 0],
    [50, 0],
    [50, 100],
    [0, 100],
  ];
  const watch = async (seen: [now: number, x: number | null][], parameters: object = {}) => {
    let state: unknown = null;
    const seconds: unknown[] = [];
    for (const [now, x] of seen) {
      const tracks = on(x === null ? [] : [object([x, 10, x + 2, 20], 3)]);
      const result = await run("time_in_zone@1", { tracks, zone }, { parameters, state, now });
      state = JSON.parse(JSON.stringify(result.state));
      seconds.push(result.outputs.seconds_max);
    }
    return seconds;
  };

  it("adds up between sightings in it and begins anew when the track has left", async () => {
    const path: [number, number | null][] = [
      [0, 10],
      [500, 12],
      [1_000, null],
      [1_500, 14],
      [2_000, 80],
      [2_500, 10],
      [3_000, 10],
    ];
    expect(await watch(path)).toEqual([0, 0.5, 0, 1.5, 0, 0, 0.5]);
    expect(await watch(path, { reset_on_exit: false })).toEqual([0, 0.5, 0, 1.5, 0, 1.5, 2]);
  });

  it("forgets a track that was gone for too long, and time that runs backwards", async () => {
    const gone = { forget_seconds: 2 };
    expect(
      await watch(
        [
          [0, 10],
          [3_000, 10],
        ],
        gone,
      ),
    ).toEqual([0, 0]);
    expect(
      await watch([
        [9_000, 10],
        [500, 10],
        [700, 10],
      ]),
    ).toEqual([0, 0, 0.2]);
  });

  it("leaves out who has not stayed long enough, and those outside unless they are asked for", async () => {
    const tracks = on([object([10, 10, 12, 20], 1), object([80, 10, 82, 20], 2)]);
    const before = await run("time_in_zone@1", { tracks, zone }, { now: 0 });
    const later = (inputs: object, parameters: object = {}) =>
      run(
        "time_in_zone@1",
        { tracks, zone, ...inputs },
        { parameters, state: before.state, now: 800 },
      );
    expect(idsOf((await later({})).outputs.tracks)).toEqual([1]);
    expect(idsOf((await later({ seconds_min: 1 })).outputs.tracks)).toEqual([]);
    expect(idsOf((await later({}, { keep_outside: true })).outputs.tracks)).toEqual([1, 2]);
  });
});
