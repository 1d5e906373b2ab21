// Blocks of regions of an image: who is in a zone, for how long, and who crosses a line. Zones and
// lines are in pixels of the root image, and boxes are mapped onto it, so that what was found on a
// crop counts where it is.

import { z } from "zod";
import { type Anchor, AnchorList, anchorOf, insideOf, rootBox, turn } from "../anchors.ts";
import { type Block, BlockFailure, defineBlock } from "../block.ts";
import { readState, remembered } from "../step-state.ts";
import type { Detections, LineValue, WorkflowObject, ZoneValue } from "../values.ts";

/** Tracks that a state remembers; those that were not seen for longest are forgotten first. */
const TRACKS_MAX = 5_000;
const CLASSES_MAX = 1_000;

const rule = () =>
  z.enum(["all", "any"]).default("all").meta({
    description: "whether all anchors have to be in the zone, or any",
  });
const anchors = (initial: Anchor[]) =>
  AnchorList.default(initial).meta({ description: "points of a box that stand for its object" });

/** A test of a frame's objects for being in a zone. */
function zoneTest(
  zone: ZoneValue,
  { frame }: Detections,
  { anchors: points, require: wanted }: { anchors: Anchor[]; require: "all" | "any" },
): (object: WorkflowObject) => boolean {
  const isInside = insideOf(zone);
  return ({ bbox }) => {
    const box = rootBox(frame, bbox);
    const test = (anchor: Anchor) => isInside(anchorOf(box, anchor));
    return wanted === "all" ? points.every(test) : points.some(test);
  };
}

const zoneFilter = defineBlock({
  type: "zone_filter@1",
  title: "Zone filter",
  description:
    "Parts objects into those in a polygon and those outside of it; its border is in it.",
  section: "tracking",
  inputs: {
    detections: { kind: "detections", meaning: "the objects" },
    zone: { kind: "zone", meaning: "the polygon" },
  },
  parameters: z.object({ anchors: anchors(["bottom_center"]), require: rule() }),
  outputs: {
    inside: { kind: { like: "detections" }, meaning: "the objects in the zone" },
    outside: { kind: { like: "detections" }, meaning: "the others" },
    count: { kind: "integer", meaning: "how many are in the zone" },
  },
  runsOn: "anywhere",
  purity: "pure",
  cost: "free",
  example: {
    parameters: {},
    inputs: {
      detections: {
        frame: { width: 100, height: 100 },
        objects: [
          { class: "car", confidence: 0.9, bbox: [10, 10, 30, 40] },
          { class: "car", confidence: 0.8, bbox: [60, 60, 80, 90] },
        ],
      },
      zone: [
        [0, 0],
        [50, 0],
        [50, 50],
        [0, 50],
      ],
    },
    outputs: {
      inside: {
        frame: { width: 100, height: 100 },
        objects: [{ class: "car", confidence: 0.9, bbox: [10, 10, 30, 40] }],
      },
      outside: {
        frame: { width: 100, height: 100 },
        objects: [{ class: "car", confidence: 0.8, bbox: [60, 60, 80, 90] }],
      },
      count: 1,
    },
  },
  run: ({ inputs: { detections, zone }, parameters }) => {
    const { frame, objects } = detections;
    const isInside = objects.map(zoneTest(zone, detections, parameters));
    const inside = objects.filter((_, index) => isInside[index]);
    return {
      outputs: {
        inside: { frame, objects: inside },
        outside: { frame, objects: objects.filter((_, index) => !isInside[index]) },
        count: inside.length,
      },
    };
  },
});

const Crossings = z.int().min(0);
const LineState = z.object({
  tracks: z
    .array(
      z.object({
        id: z.int(),
        /** The side that it is known to be on. */
        isLeft: z.boolean(),
        /** Sightings in a row on the other side. */
        across: z.int().min(0),
        /** Frames in a row without it. */
        absent: z.int().min(0),
      }),
    )
    .max(TRACKS_MAX),
  classes: z.array(z.object({ class: z.string(), in: Crossings, out: Crossings })).max(CLASSES_MAX),
  in: Crossings,
  out: Crossings,
});
type LineState = z.infer<typeof LineState>;

/**
 * The side of a line that a box is on by all of its anchors; null where they are on both, within
 * the margin, or not all beside the line: between the perpendiculars through its two ends.
 */
function sideOf(
  points: readonly (readonly [number, number])[],
  [start, end]: LineValue,
  margin: number,
): "left" | "right" | null {
  const [dx, dy] = [end[0] - start[0], end[1] - start[1]];
  const band = margin * Math.hypot(dx, dy);
  let [lefts, rights] = [0, 0];
  for (const [x, y] of points) {
    if ((x - start[0]) * dx + (y - start[1]) * dy < 0) return null;
    if ((x - end[0]) * dx + (y - end[1]) * dy > 0) return null;
    const area = turn([x, y], start, end);
    // A point on the line itself is right of it, as supervision has it.
    if (area < -band) lefts++;
    else if (area >= band) rights++;
  }
  if (lefts === points.length) return "left";
  return rights === points.length ? "right" : null;
}

/** One more crossing; of classes past the limit only the sums are kept. */
function countCrossing(state: LineState, className: string, way: "in" | "out"): void {
  state[way]++;
  let counts = state.classes.find((one) => one.class === className);
  if (!counts && state.classes.length < CLASSES_MAX) {
    counts = { class: className, in: 0, out: 0 };
    state.classes.push(counts);
  }
  if (counts) counts[way]++;
}

const byClass = ({ classes }: LineState, way: "in" | "out"): Record<string, number> =>
  Object.fromEntries(classes.filter((one) => one[way] > 0).map((one) => [one.class, one[way]]));

const lineCounter = defineBlock({
  type: "line_counter@1",
  title: "Line counter",
  description:
    "Counts the tracks that cross a line. Looking from its start to its end, right to left is " +
    "`in`. An object counts once all of its anchors are on the other side, so that one that " +
    "stands on the line does not count again and again.",
  section: "tracking",
  inputs: {
    tracks: { kind: "tracks", meaning: "objects with the ids of their tracks" },
    line: { kind: "line", meaning: "the line" },
  },
  parameters: z.object({
    anchors: anchors(["top_left", "top_right", "bottom_left", "bottom_right"]),
    margin: z.number().min(0).max(10_000).default(0).meta({
      description: "pixels of the root image: anchors nearer to the line are on neither side",
    }),
    frames_min: z.int().min(1).max(1_000).default(1).meta({
      description: "sightings in a row on the other side that make a crossing",
    }),
    lost_frames_max: z.int().min(0).max(10_000).default(30).meta({
      description: "a track that is not seen in more frames than this begins anew",
    }),
  }),
  outputs: {
    count_in: { kind: "integer", meaning: "crossings from right to left, since the stream began" },
    count_out: { kind: "integer", meaning: "crossings from left to right" },
    crossed_in: { kind: { like: "tracks" }, meaning: "who crosses in on this frame" },
    crossed_out: { kind: { like: "tracks" }, meaning: "who crosses out on this frame" },
    by_class: { kind: "json", meaning: "`{in, out}`: crossings by class" },
  },
  runsOn: "anywhere",
  purity: "stateful",
  takesFrames: true,
  cost: "free",
  example: {
    parameters: {},
    state: {
      tracks: [{ id: 1, isLeft: false, across: 0, absent: 0 }],
      classes: [],
      in: 0,
      out: 0,
    },
    inputs: {
      tracks: {
        frame: { width: 200, height: 200 },
        objects: [{ class: "car", confidence: 0.9, bbox: [10, 50, 20, 90], track_id: 1 }],
      },
      line: [
        [0, 100],
        [200, 100],
      ],
    },
    outputs: {
      count_in: 1,
      count_out: 0,
      crossed_in: {
        frame: { width: 200, height: 200 },
        objects: [{ class: "car", confidence: 0.9, bbox: [10, 50, 20, 90], track_id: 1 }],
      },
      crossed_out: { frame: { width: 200, height: 200 }, objects: [] },
      by_class: { in: { car: 1 }, out: {} },
    },
  },
  run: ({ inputs: { tracks, line }, parameters, state: given }) => {
    const fresh: LineState = { tracks: [], classes: [], in: 0, out: 0 };
    const { state, warnings } = readState(LineState, given, fresh);
    const [start, end] = line;
    if (start[0] === end[0] && start[1] === end[1]) {
      throw new BlockFailure("the line's start is its end: it has no sides");
    }
    const seen = new Set(tracks.objects.map((object) => object.track_id));
    const known = new Map(
      state.tracks
        .map((one) => ({ ...one, absent: seen.has(one.id) ? 0 : one.absent + 1 }))
        .filter(({ absent }) => absent <= parameters.lost_frames_max)
        .map((one) => [one.id, one]),
    );
    const crossed = { in: [] as WorkflowObject[], out: [] as WorkflowObject[] };
    for (const object of tracks.objects) {
      const { track_id: id, class: className } = object;
      if (id === undefined) continue;
      const box = rootBox(tracks.frame, object.bbox);
      const points = parameters.anchors.map((anchor) => anchorOf(box, anchor));
      const side = sideOf(points, line, parameters.margin);
      if (side === null) continue;
      const isLeft = side === "left";
      const one = known.get(id) ?? { id, isLeft, across: 0, absent: 0 };
      known.set(id, one);
      one.across = isLeft === one.isLeft ? 0 : one.across + 1;
      if (one.across < parameters.frames_min) continue;
      one.isLeft = isLeft;
      one.across = 0;
      const way = isLeft ? "in" : "out";
      countCrossing(state, className, way);
      crossed[way].push(object);
    }
    return {
      outputs: {
        count_in: state.in,
        count_out: state.out,
        crossed_in: { frame: tracks.frame, objects: crossed.in },
        crossed_out: { frame: tracks.frame, objects: crossed.out },
        by_class: { in: byClass(state, "in"), out: byClass(state, "out") },
      },
      state: {
        ...state,
        tracks: remembered(
          [...known.values()].sort((a, b) => a.absent - b.absent).slice(0, TRACKS_MAX),
        ),
      },
      warnings,
    };
  },
});

const StayState = z.object({
  tracks: z
    .array(
      z.object({
        id: z.int(),
        /** Milliseconds that it has been in the zone. */
        stayed_ms: z.number().min(0),
        /** When it was last seen, and whether in the zone. */
        now_ms: z.number(),
        isInside: z.boolean(),
      }),
    )
    .max(TRACKS_MAX),
});

const timeInZone = defineBlock({
  type: "time_in_zone@1",
  title: "Time in zone",
  description:
    "Notes how long each track has been in a zone, as `seconds_in_zone` in its data. Time between " +
    "two sightings counts where both are in the zone.",
  section: "tracking",
  inputs: {
    tracks: { kind: "tracks", meaning: "objects with the ids of their tracks" },
    zone: { kind: "zone", meaning: "the polygon" },
    seconds_min: {
      kind: "number",
      meaning: "objects that have stayed for less are left out",
      default: 0,
    },
  },
  parameters: z.object({
    anchors: anchors(["bottom_center"]),
    require: rule(),
    reset_on_exit: z.boolean().default(true).meta({
      description: "whether leaving the zone sets the time to 0, or only stops it",
    }),
    keep_outside: z.boolean().default(false).meta({
      description: "whether objects outside of the zone stay in the output",
    }),
    forget_seconds: z.number().positive().max(86_400).default(60).meta({
      description: "a track that is not seen for longer begins anew",
    }),
  }),
  outputs: {
    tracks: { kind: { like: "tracks" }, meaning: "the objects, with their time in `data`" },
    count: { kind: "integer", meaning: "how many of them are in the zone" },
    seconds_max: { kind: "number", meaning: "the longest stay of those; 0 where there is none" },
  },
  runsOn: "anywhere",
  purity: "stateful",
  takesFrames: true,
  cost: "free",
  example: {
    parameters: {},
    state: { tracks: [{ id: 1, stayed_ms: 1_000, now_ms: 2_000, isInside: true }] },
    now: 2_500,
    inputs: {
      tracks: {
        frame: { width: 100, height: 100 },
        objects: [{ class: "car", confidence: 0.9, bbox: [10, 10, 30, 40], track_id: 1 }],
      },
      zone: [
        [0, 0],
        [50, 0],
        [50, 50],
        [0, 50],
      ],
      seconds_min: 1,
    },
    outputs: {
      tracks: {
        frame: { width: 100, height: 100 },
        objects: [
          {
            class: "car",
            confidence: 0.9,
            bbox: [10, 10, 30, 40],
            track_id: 1,
            data: { seconds_in_zone: 1.5 },
          },
        ],
      },
      count: 1,
      seconds_max: 1.5,
    },
  },
  run: ({ inputs: { tracks, zone, seconds_min: secondsMin }, parameters, state: given, now }) => {
    const { state, warnings } = readState(StayState, given, { tracks: [] });
    const isFresh = ({ now_ms: seen }: { now_ms: number }) =>
      seen <= now && now - seen <= parameters.forget_seconds * 1_000;
    const known = new Map(state.tracks.filter(isFresh).map((one) => [one.id, one]));
    const test = zoneTest(zone, tracks, parameters);
    let [count, secondsMax] = [0, 0];
    const objects = tracks.objects.flatMap((object): WorkflowObject[] => {
      const { track_id: id } = object;
      if (id === undefined) return [];
      const isInside = test(object);
      const before = known.get(id);
      let stayed = before?.stayed_ms ?? 0;
      if (isInside && before?.isInside) stayed += now - before.now_ms;
      if (!isInside && parameters.reset_on_exit) stayed = 0;
      known.set(id, { id, stayed_ms: stayed, now_ms: now, isInside });
      const seconds = stayed / 1_000;
      if (seconds < secondsMin || !(isInside || parameters.keep_outside)) return [];
      if (isInside) {
        count++;
        secondsMax = Math.max(secondsMax, seconds);
      }
      return [{ ...object, data: { ...object.data, seconds_in_zone: seconds } }];
    });
    return {
      outputs: { tracks: { frame: tracks.frame, objects }, count, seconds_max: secondsMax },
      state: {
        tracks: remembered(
          [...known.values()].sort((a, b) => b.now_ms - a.now_ms).slice(0, TRACKS_MAX),
        ),
      },
      warnings,
    };
  },
});

export const ZONE_BLOCKS: readonly Block[] = [zoneFilter, lineCounter, timeInZone];
