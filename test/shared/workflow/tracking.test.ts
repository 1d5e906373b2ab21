// The tracker of a workflow against the tracker of labeling, whose it is; speeds of tracks; and the
// examples of every block that remembers or sends.

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { track } from "../../../shared/detector/tracks.ts";
import type { Bbox } from "../../../shared/shapes.ts";
import { MEMORY_BLOCKS } from "../../../shared/workflow/blocks/memory.ts";
import { SINK_BLOCKS } from "../../../shared/workflow/blocks/sinks.ts";
import { TRACKING_BLOCKS } from "../../../shared/workflow/blocks/tracking.ts";
import { ZONE_BLOCKS } from "../../../shared/workflow/blocks/zones.ts";
import { runBlock } from "../../support/workflow-steps.ts";

const seed = process.env.SEED ? { seed: Number(process.env.SEED) } : {};
const run = runBlock(TRACKING_BLOCKS);
const frame = { width: 400, height: 400, offset: [0, 0], scale: [1, 1] };
const box = (x: number, y: number, confidence = 0.9, size = 40) => ({
  class: "car",
  confidence,
  bbox: [x, y, x + size, y + size] as Bbox,
});
const Objects = z.object({
  objects: z.array(
    z.object({
      bbox: z.array(z.number()),
      track_id: z.number(),
      data: z.record(z.string(), z.number()).optional(),
    }),
  ),
});
const objectsOf = (value: unknown) => Objects.parse(value).objects;
const idsOf = (value: unknown) => objectsOf(value).map(({ track_id }) => track_id);

/** Ids by frame; the state goes through JSON between frames, as hosts keep it. */
async function follow(
  frames: ReturnType<typeof box>[][],
  {
    parameters = {},
    times = frames.map((_, index) => index * 100),
  }: {
    parameters?: object;
    times?: number[];
  } = {},
) {
  let state: unknown = null;
  const ids: number[][] = [];
  for (const [index, objects] of frames.entries()) {
    const now = times[index] ?? 0;
    const given = { detections: { frame, objects } };
    const result = await run("tracker@1", given, { parameters, state, now });
    state = JSON.parse(JSON.stringify(result.state));
    ids.push(idsOf(result.outputs.tracks));
    const parted = [...idsOf(result.outputs.new_tracks), ...idsOf(result.outputs.known_tracks)];
    expect(parted.sort()).toEqual(idsOf(result.outputs.tracks).sort());
  }
  return ids;
}

describe("the tracker", () => {
  it("gives the ids that the tracker of whole videos gives, frame by frame", async () => {
    const objects = fc.array(
      fc
        .record({
          x: fc.integer({ min: 0, max: 300 }),
          y: fc.integer({ min: 0, max: 300 }),
          confidence: fc.double({ min: 0, max: 1, noNaN: true }),
        })
        .map(({ x, y, confidence }) => box(x, y, confidence)),
      { maxLength: 6 },
    );
    await fc.assert(
      fc.asyncProperty(fc.array(objects, { minLength: 1, maxLength: 8 }), async (frames) => {
        // The block counts motion in milliseconds, from its second frame on a hundred each.
        const whole = track(
          frames.map((boxes, index) => ({ frameIndex: (index + 1) * 100, boxes })),
        );
        const expected = whole.map((ids) => ids.filter((id) => id !== null));
        expect(await follow(frames)).toEqual(expected);
      }),
      { ...seed, numRuns: 60 },
    );
  });

  it("follows motion by the time of the frames, through gaps and clocks that stand or go back", async () => {
    const moving = [0, 1, 2, 3, 7, 8].map((step) => [box(step * 12, 0)]);
    const times = [0, 100, 200, 300, 700, 800];
    expect((await follow(moving, { times })).flat()).toEqual([1, 1, 1, 1, 1, 1]);
    const even = [0, 1, 2, 3, 4, 5].map((step) => [box(step * 12, 0)]);
    const broken = [500, 600, 700, 700, 0, 100];
    expect((await follow(even, { times: broken })).flat()).toEqual([1, 1, 1, 1, 1, 1]);
  });

  it("sees a crop that moves over a still object as the same place of the root image", async () => {
    let state: unknown = null;
    for (const offset of [0, 100, 200]) {
      const crop = { width: 400, height: 400, offset: [offset, 0], scale: [1, 1] };
      const detections = { frame: crop, objects: [box(300 - offset, 10)] };
      const result = await run("tracker@1", { detections }, { state, now: offset });
      ({ state } = result);
      expect(idsOf(result.outputs.tracks)).toEqual([1]);
    }
  });

  it("begins anew, with a warning, from a state of another shape, and stays small", async () => {
    const detections = { frame, objects: [box(0, 0)] };
    const odd = await run("tracker@1", { detections }, { state: { next_id: "9" } });
    expect(idsOf(odd.outputs.tracks)).toEqual([1]);
    expect(odd.warnings).toHaveLength(1);
    const crowd = Array.from({ length: 1_200 }, (_, index) =>
      box((index % 40) * 50, Math.floor(index / 40) * 50, 0.6 + (index % 300) / 1_000),
    );
    const full = await run("tracker@1", { detections: { frame, objects: crowd } }, {});
    expect(idsOf(full.outputs.tracks)).toHaveLength(1_000);
    expect(full.warnings).toEqual(["only the 1000 surest objects of a frame are tracked"]);
    // Of many that are long to tell, those seen last are remembered: a stream keeps them all.
    const odder = (index: number) => box(index * 50.123456789, index / 7, 0.9, 40.987654321);
    const long = Array.from({ length: 1_000 }, (_, index) => odder(index));
    const told = await run("tracker@1", { detections: { frame, objects: long } }, {});
    expect(JSON.stringify(told.state).length).toBeLessThan(201_000);
    const speeds = await run("velocity@1", { tracks: told.outputs.tracks }, {});
    expect(JSON.stringify(speeds.state).length).toBeLessThan(201_000);
  });
});

describe("velocity", () => {
  const speeds = async (xs: number[], parameters: object, perUnit = 1) => {
    let state: unknown = null;
    const found: (number | undefined)[] = [];
    for (const [index, x] of xs.entries()) {
      const tracks = { frame, objects: [{ ...box(x, 0), track_id: 4 }] };
      const inputs = { tracks, pixels_per_unit: perUnit };
      const result = await run("velocity@1", inputs, { parameters, state, now: index * 500 });
      state = JSON.parse(JSON.stringify(result.state));
      found.push(objectsOf(result.outputs.tracks)[0]?.data?.velocity_x);
    }
    return found;
  };

  it("is the way of the center a second, in the unit that is given", async () => {
    expect(await speeds([0, 10, 30, 25], { smoothing: 0 })).toEqual([0, 20, 40, -10]);
    expect(await speeds([0, 10, 30], { smoothing: 0 }, 10)).toEqual([0, 2, 4]);
  });

  it("fails in words where the unit makes it no number", async () => {
    await expect(speeds([0, 10], { smoothing: 0 }, 1e-310)).rejects.toThrow(/too small/);
  });

  it("is smoothed from its second measurement on", async () => {
    expect(await speeds([0, 10, 30, 30], { smoothing: 0.5 })).toEqual([0, 20, 30, 15]);
  });
});

describe("the example of", () => {
  const blocks = [...TRACKING_BLOCKS, ...ZONE_BLOCKS, ...MEMORY_BLOCKS, ...SINK_BLOCKS];
  it.each(blocks.map((block) => [block.type, block]))("%s holds", async (type, block) => {
    const { example } = block;
    const inputs = Object.fromEntries(
      Object.entries(example.inputs).map(([port, value]) => [
        port,
        block.inputs[port]?.kind === "image"
          ? { frame: { width: 2, height: 2, offset: [0, 0], scale: [1, 1] } }
          : withFrame(value),
      ]),
    );
    const { parameters, state = null, now = 0 } = example;
    const { outputs } = await runBlock(blocks)(type, inputs, { parameters, state, now });
    expect(outputs).toEqual(
      Object.fromEntries(
        Object.entries(example.outputs).map(([port, value]) => [port, withFrame(value)]),
      ),
    );
  });
});

/** Detections as they are read from the wire: their frame with its defaults. */
function withFrame(value: unknown): unknown {
  const detections = z
    .object({ frame: z.object({ width: z.number(), height: z.number() }) })
    .loose()
    .safeParse(value);
  if (!detections.success) return value;
  const { frame: given, ...rest } = detections.data;
  return { frame: { ...given, offset: [0, 0], scale: [1, 1] }, ...rest };
}
