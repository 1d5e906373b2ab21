// Blocks that know objects again from frame to frame: the tracker, and the speed of its tracks.
// Boxes are followed in pixels of the root image, so that a crop that moves does not move them.

import { z } from "zod";
import { type TrackerMemory, trackFrame } from "../../detector/tracks.ts";
import { Bbox } from "../../shapes.ts";
import { anchorOf, rootBox } from "../anchors.ts";
import { type Block, BlockFailure, defineBlock } from "../block.ts";
import { readState, remembered } from "../step-state.ts";
import type { WorkflowObject } from "../values.ts";

/** Objects that take part in a frame, the surest; and tracks that are kept. */
const OBJECTS_MAX = 1_000;
const TRACKS_MAX = 2_000;
/** Milliseconds between frames before any two have told. */
const INTERVAL_MS = 100;

const TrackerState = z.object({
  next_id: z.int().min(1),
  /** Milliseconds of motion; it always advances, whatever the frames' times do. */
  clock_ms: z.number(),
  now_ms: z.number(),
  interval_ms: z.number().positive(),
  tracks: z
    .array(
      z.object({
        id: z.int().min(1),
        bbox: Bbox,
        velocity: z.tuple([z.number(), z.number(), z.number(), z.number()]),
        frameIndex: z.number(),
        unseen: z.int().min(0),
      }),
    )
    .max(TRACKS_MAX),
});
type TrackerState = z.infer<typeof TrackerState>;

/** Boxes that a float cannot hold as boxes would not come back from the state. */
const isKept = ({ bbox }: TrackerMemory["tracks"][number]) => Bbox.safeParse(bbox).success;

/** The state after the frame's time has come; a frame that is no later counts as the next one. */
function advance(state: TrackerState, now: number): TrackerState {
  const interval = now > state.now_ms ? now - state.now_ms : state.interval_ms;
  return { ...state, clock_ms: state.clock_ms + interval, now_ms: now, interval_ms: interval };
}

const tracker = defineBlock({
  type: "tracker@1",
  title: "Tracker",
  description:
    "Gives objects the ids of their tracks, after ByteTrack: sure ones are matched first and " +
    "start tracks, weak ones only continue them. One state a stream.",
  section: "tracking",
  inputs: {
    detections: { kind: "detections", meaning: "objects of the next frame" },
  },
  parameters: z.object({
    confidence_high: z.number().min(0).max(1).default(0.5).meta({
      description: "objects at or above it start tracks and are matched first",
    }),
    confidence_low: z.number().min(0).max(1).default(0.1).meta({
      description: "objects below it take no part",
    }),
    iou_high: z.number().min(0.01).max(1).default(0.2).meta({
      description: "min overlap of a sure object with where its track is expected",
    }),
    iou_low: z.number().min(0.01).max(1).default(0.5).meta({
      description: "the same of a weak object",
    }),
    lost_frames_max: z.int().min(0).max(10_000).default(30).meta({
      description: "a track that is not seen in more frames than this has ended",
    }),
  }),
  outputs: {
    tracks: {
      kind: { like: "detections", tracked: true },
      meaning: "objects that have a track, with its id",
    },
    new_tracks: {
      kind: { like: "detections", tracked: true },
      meaning: "those of them whose track begins here",
    },
    known_tracks: {
      kind: { like: "detections", tracked: true },
      meaning: "those of them that were seen before",
    },
  },
  problemOf: ({ confidence_high: high, confidence_low: low }) =>
    low > high ? "confidence_low is above confidence_high" : null,
  runsOn: "anywhere",
  purity: "stateful",
  takesFrames: true,
  cost: "free",
  example: {
    parameters: {},
    state: {
      next_id: 2,
      clock_ms: 0,
      now_ms: 0,
      interval_ms: 100,
      tracks: [{ id: 1, bbox: [10, 10, 30, 30], velocity: [0, 0, 0, 0], frameIndex: 0, unseen: 0 }],
    },
    now: 100,
    inputs: {
      detections: {
        frame: { width: 100, height: 100 },
        objects: [
          { class: "car", confidence: 0.9, bbox: [12, 10, 32, 30] },
          { class: "car", confidence: 0.8, bbox: [60, 60, 90, 90] },
          { class: "car", confidence: 0.2, bbox: [0, 80, 10, 90] },
        ],
      },
    },
    outputs: {
      tracks: {
        frame: { width: 100, height: 100 },
        objects: [
          { class: "car", confidence: 0.9, bbox: [12, 10, 32, 30], track_id: 1 },
          { class: "car", confidence: 0.8, bbox: [60, 60, 90, 90], track_id: 2 },
        ],
      },
      new_tracks: {
        frame: { width: 100, height: 100 },
        objects: [{ class: "car", confidence: 0.8, bbox: [60, 60, 90, 90], track_id: 2 }],
      },
      known_tracks: {
        frame: { width: 100, height: 100 },
        objects: [{ class: "car", confidence: 0.9, bbox: [12, 10, 32, 30], track_id: 1 }],
      },
    },
  },
  run: ({ inputs: { detections }, parameters, state: given, now }) => {
    const fresh = { next_id: 1, clock_ms: 0, now_ms: now, interval_ms: INTERVAL_MS, tracks: [] };
    const { state: before, warnings } = readState(TrackerState, given, fresh);
    const state = advance(before, now);
    const { frame } = detections;
    const surest = [...detections.objects.entries()]
      .sort(([, a], [, b]) => b.confidence - a.confidence)
      .slice(0, OBJECTS_MAX)
      .sort(([a], [b]) => a - b)
      .map(([, object]) => object);
    if (surest.length < detections.objects.length) {
      warnings.push(`only the ${OBJECTS_MAX} surest objects of a frame are tracked`);
    }
    const { ids, memory } = trackFrame(
      { nextId: state.next_id, tracks: state.tracks },
      {
        frameIndex: state.clock_ms,
        boxes: surest.map(({ bbox, confidence }) => ({ bbox: rootBox(frame, bbox), confidence })),
      },
      {
        highMin: parameters.confidence_high,
        lowMin: parameters.confidence_low,
        highIouMin: parameters.iou_high,
        lowIouMin: parameters.iou_low,
        lostFramesMax: parameters.lost_frames_max,
      },
    );
    const objects = surest.flatMap((object, index): WorkflowObject[] => {
      const id = ids[index];
      return typeof id === "number" ? [{ ...object, track_id: id }] : [];
    });
    const isNew = ({ track_id: id = 0 }: WorkflowObject) => id >= state.next_id;
    return {
      outputs: {
        tracks: { frame, objects },
        new_tracks: { frame, objects: objects.filter(isNew) },
        known_tracks: { frame, objects: objects.filter((object) => !isNew(object)) },
      },
      state: {
        ...state,
        next_id: memory.nextId,
        // Those unseen for longest go first where there are too many.
        tracks: remembered(
          memory.tracks
            .filter(isKept)
            .sort((a, b) => a.unseen - b.unseen || a.id - b.id)
            .slice(0, TRACKS_MAX),
        ).sort((a, b) => a.id - b.id),
      },
      warnings,
    };
  },
});

const VelocityState = z.object({
  tracks: z
    .array(
      z.object({
        id: z.int(),
        now_ms: z.number(),
        center: z.tuple([z.number(), z.number()]),
        /** Pixels a second, smoothed; null: seen once. */
        velocity: z.tuple([z.number(), z.number()]).nullable(),
      }),
    )
    .max(TRACKS_MAX),
});

const velocity = defineBlock({
  type: "velocity@1",
  title: "Velocity",
  description:
    "Notes how fast each track moves by the center of its box: `velocity_x`, `velocity_y` and " +
    "`speed` in its data, units a second, smoothed.",
  section: "tracking",
  inputs: {
    tracks: { kind: "tracks", meaning: "objects with the ids of their tracks" },
    pixels_per_unit: {
      kind: "number",
      meaning: "pixels of the root image in a unit of length, such as a meter",
      default: 1,
    },
  },
  parameters: z.object({
    smoothing: z.number().min(0).max(0.99).default(0.5).meta({
      description: "share of the former velocity in the new one; 0 does not smooth",
    }),
    forget_seconds: z.number().positive().max(86_400).default(10).meta({
      description: "a track that is not seen for longer begins anew",
    }),
  }),
  outputs: {
    tracks: { kind: { like: "tracks" }, meaning: "the objects, with their velocity in `data`" },
    speed_max: { kind: "number", meaning: "the speed of the fastest; 0 where there is none" },
  },
  runsOn: "anywhere",
  purity: "stateful",
  takesFrames: true,
  cost: "free",
  example: {
    parameters: { smoothing: 0 },
    state: { tracks: [{ id: 1, now_ms: 0, center: [10, 10], velocity: [0, 0] }] },
    now: 500,
    inputs: {
      tracks: {
        frame: { width: 100, height: 100 },
        objects: [{ class: "car", confidence: 0.9, bbox: [20, 18, 30, 30], track_id: 1 }],
      },
    },
    outputs: {
      tracks: {
        frame: { width: 100, height: 100 },
        objects: [
          {
            class: "car",
            confidence: 0.9,
            bbox: [20, 18, 30, 30],
            track_id: 1,
            data: { velocity_x: 30, velocity_y: 28, speed: Math.hypot(30, 28) },
          },
        ],
      },
      speed_max: Math.hypot(30, 28),
    },
  },
  run: ({ inputs: { tracks, pixels_per_unit: perUnit }, parameters, state: given, now }) => {
    const { state, warnings } = readState(VelocityState, given, { tracks: [] });
    const isFresh = ({ now_ms: seen }: { now_ms: number }) =>
      now - seen <= parameters.forget_seconds * 1_000 && seen <= now;
    const known = new Map(state.tracks.filter(isFresh).map((one) => [one.id, one]));
    const scale = perUnit > 0 ? perUnit : 1;
    if (scale !== perUnit) warnings.push("pixels_per_unit must be above 0: 1 is taken");
    const { frame } = tracks;
    let speedMax = 0;
    const objects = tracks.objects.map((object): WorkflowObject => {
      const { track_id: id } = object;
      if (id === undefined) return object;
      const center = anchorOf(rootBox(frame, object.bbox), "center");
      const before = known.get(id);
      const seconds = before ? (now - before.now_ms) / 1_000 : 0;
      const { smoothing } = parameters;
      const along = (axis: 0 | 1): number => {
        const former = before?.velocity?.[axis];
        if (!before || seconds === 0) return former ?? 0;
        const measured = (center[axis] - before.center[axis]) / seconds;
        return former === undefined ? measured : smoothing * former + (1 - smoothing) * measured;
      };
      const next: [number, number] = [along(0), along(1)];
      const isMeasured = seconds > 0 || before?.velocity;
      known.set(id, { id, now_ms: now, center, velocity: isMeasured ? next : null });
      const [x, y] = [next[0] / scale, next[1] / scale];
      const speed = Math.hypot(x, y);
      if (!Number.isFinite(speed)) throw new BlockFailure("pixels_per_unit is too small");
      speedMax = Math.max(speedMax, speed);
      return { ...object, data: { ...object.data, velocity_x: x, velocity_y: y, speed } };
    });
    return {
      outputs: { tracks: { frame, objects }, speed_max: speedMax },
      state: {
        tracks: remembered(
          [...known.values()].sort((a, b) => b.now_ms - a.now_ms).slice(0, TRACKS_MAX),
        ),
      },
      warnings,
    };
  },
});

export const TRACKING_BLOCKS: readonly Block[] = [tracker, velocity];
