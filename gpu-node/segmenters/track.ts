// Who is who from frame to frame, after ByteTrack: confident boxes are matched to tracks first,
// weak ones may only continue a track, never start one. Motion is a constant velocity, corrected by
// fixed gains (an alpha-beta filter, a Kalman filter's steady state). Pure.

import type { Bbox } from "../../shared/tasks.ts";
import { iou } from "./geometry.ts";

export interface TrackedBox {
  bbox: Bbox;
  confidence: number;
}

export interface FrameBoxes {
  /** Ascending; gaps are allowed, since frames are sampled. */
  frameIndex: number;
  boxes: readonly TrackedBox[];
}

export interface TrackOptions {
  /** Boxes at or above it start tracks and are matched first. */
  highMin: number;
  /** Boxes below it take no part. */
  lowMin: number;
  /** Least overlap with a track's predicted box, for confident and for weak boxes. */
  highIouMin: number;
  lowIouMin: number;
  /** A track that was not seen for more looked-at frames than this has ended. */
  lostFramesMax: number;
  firstId: number;
}

const DEFAULTS: TrackOptions = {
  highMin: 0.5,
  lowMin: 0.1,
  highIouMin: 0.2,
  lowIouMin: 0.5,
  lostFramesMax: 30,
  firstId: 1,
};

/** How far a track follows a box in place, and its velocity the surprise. */
const PLACE_GAIN = 0.85;
const VELOCITY_GAIN = 0.4;

interface Track {
  id: number;
  bbox: Bbox;
  /** Pixels a frame, by corner. */
  velocity: Bbox;
  frameIndex: number;
  predicted: Bbox;
  unseen: number;
}

/** A track id, or null, for each box of each frame, in the order given. */
export function track(
  frames: readonly FrameBoxes[],
  options: Partial<TrackOptions> = {},
): (number | null)[][] {
  const settings = { ...DEFAULTS, ...options };
  let nextId = settings.firstId;
  let tracks: Track[] = [];
  return frames.map(({ frameIndex, boxes }) => {
    const ids: (number | null)[] = boxes.map(() => null);
    for (const one of tracks) one.predicted = predict(one, frameIndex);
    const free = new Set(tracks);
    const match = (candidates: number[], pool: Iterable<Track>, iouMin: number) => {
      for (const [index, one] of greedyPairs(boxes, candidates, [...pool], iouMin)) {
        ids[index] = one.id;
        free.delete(one);
        correct(one, (boxes[index] as TrackedBox).bbox, frameIndex);
      }
    };
    const indexes = boxes.map((_, index) => index);
    const confidence = (index: number) => boxes[index]?.confidence ?? 0;
    const high = indexes.filter((index) => confidence(index) >= settings.highMin);
    const low = indexes.filter(
      (index) => confidence(index) < settings.highMin && confidence(index) >= settings.lowMin,
    );
    match(high, free, settings.highIouMin);
    // A weak box is no proof that something long unseen is back.
    match(
      low,
      [...free].filter(({ unseen }) => unseen === 0),
      settings.lowIouMin,
    );
    for (const one of free) one.unseen++;
    tracks = tracks.filter(({ unseen }) => unseen <= settings.lostFramesMax);
    for (const index of high) {
      if (ids[index] !== null) continue;
      const { bbox } = boxes[index] as TrackedBox;
      ids[index] = nextId;
      tracks.push({
        id: nextId++,
        bbox,
        velocity: [0, 0, 0, 0],
        frameIndex,
        predicted: bbox,
        unseen: 0,
      });
    }
    return ids;
  });
}

/** Pairs of box and track, by falling overlap, each used once. */
function greedyPairs(
  boxes: readonly TrackedBox[],
  candidates: readonly number[],
  tracks: readonly Track[],
  iouMin: number,
): [number, Track][] {
  const pairs = candidates.flatMap((index) =>
    tracks.map((one) => ({
      index,
      one,
      overlap: iou((boxes[index] as TrackedBox).bbox, one.predicted),
    })),
  );
  const usedBoxes = new Set<number>();
  const usedTracks = new Set<Track>();
  const taken: [number, Track][] = [];
  for (const { index, one, overlap } of pairs.sort((a, b) => b.overlap - a.overlap)) {
    if (overlap < iouMin) break;
    if (usedBoxes.has(index) || usedTracks.has(one)) continue;
    usedBoxes.add(index);
    usedTracks.add(one);
    taken.push([index, one]);
  }
  return taken;
}

const corners = (make: (corner: 0 | 1 | 2 | 3) => number): Bbox => [
  make(0),
  make(1),
  make(2),
  make(3),
];

function predict({ bbox, velocity, frameIndex }: Track, at: number): Bbox {
  const predicted = corners((corner) => bbox[corner] + velocity[corner] * (at - frameIndex));
  // A box that shrinks to nothing while unseen keeps its last size.
  return predicted[2] > predicted[0] && predicted[3] > predicted[1] ? predicted : bbox;
}

function correct(one: Track, seen: Bbox, frameIndex: number): void {
  const elapsed = Math.max(1, frameIndex - one.frameIndex);
  const { predicted, velocity } = one;
  const surprise = corners((corner) => seen[corner] - predicted[corner]);
  one.bbox = corners((corner) => predicted[corner] + PLACE_GAIN * surprise[corner]);
  one.velocity = corners(
    (corner) => velocity[corner] + (VELOCITY_GAIN * surprise[corner]) / elapsed,
  );
  one.frameIndex = frameIndex;
  one.unseen = 0;
}

/** Detections of different classes that overlap more are one object seen by two prompts. */
export const DUPLICATE_IOU = 0.9;

/** For each detection the place of the better one of another class that it repeats, or null. */
export function flagDuplicates(
  detections: readonly (TrackedBox & { class_name: string })[],
): (number | null)[] {
  const order = detections
    .map((_, index) => index)
    .sort((a, b) => confidenceAt(detections, b) - confidenceAt(detections, a) || a - b);
  const flags: (number | null)[] = detections.map(() => null);
  order.forEach((index, rank) => {
    const one = detections[index] as TrackedBox & { class_name: string };
    const better = order.slice(0, rank).find((other) => {
      const first = detections[other] as TrackedBox & { class_name: string };
      return (
        flags[other] === null &&
        first.class_name !== one.class_name &&
        iou(first.bbox, one.bbox) > DUPLICATE_IOU
      );
    });
    flags[index] = better ?? null;
  });
  return flags;
}

const confidenceAt = (boxes: readonly TrackedBox[], index: number) => boxes[index]?.confidence ?? 0;
