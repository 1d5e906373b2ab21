// Slices of a job's boxes. Goal: what a page shows is what a plain filter over plain objects gives,
// however the table came about, and the figures of reviews are those of the slice.

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Box } from "../../../edge/studio/boxes/box.ts";
import { BoxTable, uuidsOf } from "../../../edge/studio/boxes/columns.ts";
import { histograms, ReviewCurve, shareOf } from "../../../edge/studio/boxes/review-figures.ts";
import { type BoxFilter, type BoxSort, Slicer } from "../../../edge/studio/boxes/slice.ts";
import {
  confidenceCode,
  confidenceOf,
  NO_CONFIDENCE,
  SOURCES,
} from "../../../shared/columns/column-layout.ts";
import { readColumns } from "../../../shared/columns/column-reader.ts";
import { endBlock, headerBytes, newRowsBlock } from "../../../shared/columns/column-writer.ts";
import { dice } from "../../support/dice.ts";
import { EditServer, VIDEO } from "../../support/edit-server.ts";

const VIDEOS = [VIDEO, "00000000-0000-7000-8000-0000000000cc"];
const idOf = (index: number) => `00000000-0000-7000-8000-${String(index).padStart(12, "0")}`;

const box: fc.Arbitrary<Box> = fc.record({
  id: fc.nat(60).map(idOf),
  frame_id: fc
    .tuple(fc.constantFrom(...VIDEOS), fc.constantFrom(0, 1, 2, 65_535, 65_536, 200_000))
    .map(([video, frame]) => `${video}.${frame}`),
  class: fc.constantFrom("car", "bag", "person"),
  bbox: fc.constant([1, 2, 3.5, 4] as const),
  polygon: fc.constantFrom(null, [1, 2, 3, 4, 5, 6]),
  accepted: fc.constantFrom(null, true, false),
  track_id: fc.constantFrom(null, 1, 2),
  revision: fc.integer({ min: 1, max: 9 }),
  confidence: fc.option(fc.double({ min: 0, max: 1, noNaN: true }), { nil: null }),
  source: fc.constantFrom(...SOURCES),
  keyframe: fc.boolean(),
  duplicate: fc.boolean(),
  disputed: fc.boolean(),
});

/** A box as the table keeps it. */
const stored = (one: Box): Box => ({
  ...one,
  confidence: confidenceOf(confidenceCode(one.confidence)),
});

/** A table after writes and deletions, with the boxes that it should have. */
const filled = fc
  .array(fc.tuple(box, fc.boolean()), { maxLength: 120 })
  .map((steps): { table: BoxTable; boxes: Map<string, Box> } => {
    const table = new BoxTable();
    const boxes = new Map<string, Box>();
    for (const [one, isDeletion] of steps) {
      if (isDeletion) {
        table.remove(one.id);
        boxes.delete(one.id);
      } else {
        table.write(one);
        boxes.set(one.id, stored(one));
      }
    }
    return { table, boxes };
  });

const maybe = <Value>(value: fc.Arbitrary<Value>) => fc.option(value, { nil: undefined });
const bound = fc.constantFrom(0, 0.25, 0.5, 1);
const filter: fc.Arbitrary<BoxFilter> = fc
  .record({
    classes: maybe(fc.subarray(["car", "bag", "person", "unknown"])),
    states: maybe(fc.subarray(["pending", "accepted", "rejected"] as const)),
    from: maybe(fc.oneof(bound, fc.double({ min: 0, max: 1, noNaN: true }))),
    to: maybe(fc.oneof(bound, fc.double({ min: 0, max: 1, noNaN: true }))),
    video: maybe(fc.constantFrom(...VIDEOS, "none")),
    track: maybe(fc.constantFrom(null, 1, 2)),
    sources: maybe(fc.subarray([...SOURCES])),
    duplicate: maybe(fc.boolean()),
    disputed: maybe(fc.boolean()),
  })
  .map((given) => {
    const known = Object.entries(given).filter(([, value]) => value !== undefined);
    return Object.fromEntries(known);
  });

const SORTS = ["frame", "confidence-up", "confidence-down", "class"] as const;

const stateOf = ({ accepted }: Box) =>
  accepted === null ? "pending" : accepted ? "accepted" : "rejected";

/** The same by plain objects. */
const isMeant = (one: Box, wanted: BoxFilter): boolean => {
  const code = confidenceCode(one.confidence);
  return (
    (wanted.classes?.includes(one.class) ?? true) &&
    (wanted.states?.includes(stateOf(one)) ?? true) &&
    (wanted.from === undefined || code >= confidenceCode(wanted.from)) &&
    (wanted.to === undefined || code <= confidenceCode(wanted.to)) &&
    (wanted.video === undefined || one.frame_id.startsWith(`${wanted.video}.`)) &&
    (wanted.track === undefined || one.track_id === wanted.track) &&
    (wanted.sources?.includes(one.source) ?? true) &&
    (wanted.duplicate === undefined || one.duplicate === wanted.duplicate) &&
    (wanted.disputed === undefined || one.disputed === wanted.disputed)
  );
};

/** What rows are sorted by, as numbers that rise. */
function keyOf(table: BoxTable, one: Box, sort: BoxSort): number[] {
  const code = confidenceCode(one.confidence);
  if (sort === "confidence-up") return [code];
  if (sort === "confidence-down") return [-code];
  if (sort === "class") return [table.classes.find(one.class) ?? -1, -code];
  const [video = "", index] = one.frame_id.split(".");
  return [table.videos.find(video) ?? -1, Number(index)];
}

const compare = (one: number[], other: number[]): number => {
  const index = one.findIndex((value, position) => value !== other[position]);
  return index < 0 ? 0 : (one[index] as number) - (other[index] as number);
};

describe("a table of boxes", () => {
  it("reads what was written last, and forgets what was deleted", () => {
    fc.assert(
      fc.property(filled, ({ table, boxes }) => {
        expect(table.count).toBe(boxes.size);
        for (let index = 0; index <= 60; index++) {
          expect(table.get(idOf(index))).toEqual(boxes.get(idOf(index)) ?? null);
        }
      }),
    );
  });

  it("keeps the index of a row that is deleted and written again", () => {
    const table = new BoxTable();
    const [one] = fc.sample(box, 1) as [Box];
    const index = table.write(one);
    table.remove(one.id);
    expect([table.indexOf(one.id), table.last(one.id)?.id]).toEqual([undefined, one.id]);
    expect(table.write(one)).toBe(index);
  });

  it("takes rows of the server, new ones and ones that it has, with the server's numbers", () => {
    const server = new EditServer(dice(1));
    server.seed(idOf(1), { class: "bag", confidence: 0.25, track_id: 7, bbox: [1, 2, 3, 4] });
    server.seed(idOf(2), { confidence: null, accepted: false, polygon: [1, 2, 3, 4, 5, 6] });
    const table = new BoxTable();
    table.append(server.columns(null));
    server.seed(idOf(2), { class: "person", source: "import", revision: 2 });
    server.seed(idOf(3), { frame_id: `${VIDEO}.70000`, duplicate_of: idOf(1) });
    table.append(server.columns(null));
    expect(table.count).toBe(3);
    expect(table.get(idOf(1))).toMatchObject({ class: "bag", track_id: 7, bbox: [1, 2, 3, 4] });
    expect(table.get(idOf(1))?.confidence).toBeCloseTo(0.25, 4);
    expect(table.get(idOf(2))).toMatchObject({ class: "person", source: "import", revision: 2 });
    const third = { frame_id: `${VIDEO}.70000`, duplicate: true, keyframe: false };
    expect(table.get(idOf(3))).toMatchObject(third);
  });

  it("says of a polygon that was not loaded, or is of another revision, only that there is one", () => {
    const server = new EditServer(dice(1));
    server.seed(idOf(1), { polygon: [1, 2, 3, 4, 5, 6] });
    const table = new BoxTable();
    table.append(server.columns(null));
    const unread = table.get(idOf(1)) as Box;
    expect("polygon" in unread).toBe(false);
    table.write({ ...unread, polygon: [1, 2, 3, 4, 5, 6] });
    expect(table.get(idOf(1))?.polygon).toEqual([1, 2, 3, 4, 5, 6]);
    table.write({ ...unread, revision: 2 });
    expect("polygon" in (table.get(idOf(1)) as Box)).toBe(false);
  });

  it("takes what the reader of the server's bytes gives", async () => {
    const server = new EditServer(dice(1));
    server.seed(idOf(1), { class: "bag", confidence: 0.25 });
    server.seed(idOf(2), { track_id: 3 });
    const { header, rows, columns } = server.columns(null);
    const block = newRowsBlock(rows);
    for (const name of Object.keys(columns) as (keyof typeof columns)[]) {
      block.columns[name].set(columns[name]);
    }
    const table = new BoxTable();
    table.append(await readColumns([headerBytes(header), block.bytes, endBlock(rows)]));
    expect(table.get(idOf(1))).toMatchObject({ class: "bag", frame_id: `${VIDEO}.0` });
    expect(table.get(idOf(2))?.track_id).toBe(3);
  });

  it("writes ids as text", () => {
    const bytes = Buffer.from(VIDEOS.join("").replaceAll("-", ""), "hex");
    expect(uuidsOf(bytes)).toEqual(VIDEOS);
  });
});

describe("a slice", () => {
  it("is what a plain filter gives, in the order of its sort", () => {
    fc.assert(
      fc.property(filled, filter, fc.constantFrom(...SORTS), ({ table, boxes }, wanted, sort) => {
        const rows = [...new Slicer(table).slice(wanted, sort)].map((row) => table.read(row));
        const meant = [...boxes.values()].filter((one) => isMeant(one, wanted));
        expect(rows.map(({ id }) => id).sort()).toEqual(meant.map(({ id }) => id).sort());
        const keys = rows.map((one) => keyOf(table, one, sort));
        expect(keys).toEqual(keys.toSorted(compare));
      }),
      { numRuns: 300 },
    );
  });

  it("follows the table and the bounds", () => {
    const table = new BoxTable();
    const slicer = new Slicer(table);
    const [one] = fc.sample(box, 1) as [Box];
    table.write({ ...one, id: idOf(1), confidence: 0.5, class: "car" });
    expect(slicer.slice({ from: 0.6 }, "confidence-down")).toHaveLength(0);
    expect(slicer.slice({ from: 0.5 }, "confidence-down")).toHaveLength(1);
    table.write({ ...one, id: idOf(2), confidence: 0.7, class: "car" });
    expect(slicer.slice({ from: 0.5 }, "confidence-down")).toHaveLength(2);
    expect(slicer.slice({ from: 0.5, classes: ["bag"] }, "confidence-down")).toHaveLength(0);
  });
});

describe("figures of reviews", () => {
  it("count the boxes of each state by confidence", () => {
    fc.assert(
      fc.property(filled, ({ table, boxes }) => {
        const counts = histograms(table, new Slicer(table).slice({}, "frame"), 4);
        for (const state of ["pending", "accepted", "rejected"] as const) {
          const own = [...boxes.values()].filter((one) => stateOf(one) === state);
          const bins = [0, 0, 0, 0];
          for (const { confidence } of own) {
            if (confidence !== null) (bins[Math.min(3, Math.floor(confidence * 4))] as number)++;
          }
          expect([...counts[state].bins]).toEqual(bins);
          expect(counts[state].without).toBe(own.filter((one) => one.confidence === null).length);
        }
      }),
    );
  });

  it("estimate precision and recall at each threshold", () => {
    fc.assert(
      fc.property(filled, fc.double({ min: 0, max: 1, noNaN: true }), (all, threshold) => {
        const { table, boxes } = all;
        const curve = new ReviewCurve(table, new Slicer(table).slice({}, "class"));
        const reviewed = [...boxes.values()].filter((one) => one.accepted !== null);
        const codeOf = ({ confidence }: Box) => confidenceCode(confidence);
        const above = reviewed.filter(
          (one) => codeOf(one) >= confidenceCode(threshold) && codeOf(one) < NO_CONFIDENCE,
        );
        const accepted = above.filter((one) => one.accepted).length;
        const objects = reviewed.filter(
          (one) => one.accepted && (one.confidence !== null || one.source === "person"),
        );
        expect(curve.precision(threshold)).toEqual(shareOf(accepted, above.length));
        expect(curve.recall(threshold)).toEqual(shareOf(accepted, objects.length));
      }),
    );
  });

  it("give shares with Wilson's interval", () => {
    expect(shareOf(0, 0)).toBeNull();
    // Figures of Wilson's interval at 95 %, as R's prop.test(correct = FALSE) gives them.
    const half = shareOf(8, 10);
    expect([half?.low, half?.high]).toEqual([expect.closeTo(0.4902, 4), expect.closeTo(0.9433, 4)]);
    expect(shareOf(10, 10)).toMatchObject({ value: 1, of: 10, low: expect.closeTo(0.7225, 4) });
  });
});
