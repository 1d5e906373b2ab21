// Who is who from frame to frame, after ByteTrack: confident boxes are matched to tracks first,
// weak ones may only continue a track, never start one. Motion is a constant velocity, corrected by
// fixed gains (an alpha-beta filter, a Kalman filter's steady state). Pure.
// It is our own by decision: it is short, and the same frames must give the same tracks for good.

import type { Bbox } from "../tasks/tasks.ts";

export interface TrackedBox {
  bbox: Bbox;
  confidence: number;
}

/** Boxes that overlap more, of two classes or by two hands, are of one object. */
export const DUPLICATE_IOU = 0.9;

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

/** Share of a new box that a track takes over, and share of its surprise that its velocity does. */
const POSITION_GAIN = 0.85;
const VELOCITY_GAIN = 0.4;

interface Track {
  id: number;
  bbox: Bbox;
  /** Pixels a frame, by corner. */
  velocity: Bbox;
  frameIndex: number;
  /** Frames looked at since it was seen. */
  unseen: number;
}

/** A track and where its motion takes it by the frame that is looked at. */
interface ExpectedTrack extends Track {
  predicted: Bbox;
}

/** What a tracker knows between two frames; plain JSON. */
export interface TrackerMemory {
  nextId: number;
  tracks: Track[];
}

/** A track id, or null, for each box of each frame, in the order given. */
export function track(
  frames: readonly FrameBoxes[],
  options: Partial<TrackOptions> = {},
): (number | null)[][] {
  let memory: TrackerMemory = { nextId: options.firstId ?? DEFAULTS.firstId, tracks: [] };
  return frames.map((frame) => {
    const next = trackFrame(memory, frame, options);
    memory = next.memory;
    return next.ids;
  });
}

/**
 * A track id, or null, for each box of one frame, and what the tracker knows after it. `firstId` is
 * the first memory's to say; the memory that is handed in stays as it is.
 */
export function trackFrame(
  memory: TrackerMemory,
  { frameIndex, boxes }: FrameBoxes,
  options: Partial<Omit<TrackOptions, "firstId">> = {},
): { ids: (number | null)[]; memory: TrackerMemory } {
  const settings = { ...DEFAULTS, ...options };
  const ids: (number | null)[] = boxes.map(() => null);
  const tracks = memory.tracks.map(
    (one): ExpectedTrack => ({ ...one, predicted: predict(one, frameIndex) }),
  );
  const free = new Set(tracks);
  const match = (candidates: number[], pool: Iterable<ExpectedTrack>, iouMin: number) => {
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
  const kept = tracks
    .filter(({ unseen }) => unseen <= settings.lostFramesMax)
    .map(({ predicted: _, ...one }): Track => one);
  let { nextId } = memory;
  for (const index of high) {
    if (ids[index] !== null) continue;
    const { bbox } = boxes[index] as TrackedBox;
    ids[index] = nextId;
    kept.push({ id: nextId++, bbox, velocity: [0, 0, 0, 0], frameIndex, unseen: 0 });
  }
  return { ids, memory: { nextId, tracks: kept } };
}

/** Pairs of box and track, by falling overlap, each used once. */
function greedyPairs(
  boxes: readonly TrackedBox[],
  candidates: readonly number[],
  tracks: readonly ExpectedTrack[],
  iouMin: number,
): [number, ExpectedTrack][] {
  const pairs: { index: number; one: ExpectedTrack; overlap: number }[] = [];
  for (const index of candidates) {
    for (const one of tracks) {
      const overlap = iou((boxes[index] as TrackedBox).bbox, one.predicted);
      if (overlap >= iouMin) pairs.push({ index, one, overlap });
    }
  }
  const usedBoxes = new Set<number>();
  const usedTracks = new Set<ExpectedTrack>();
  const taken: [number, ExpectedTrack][] = [];
  for (const { index, one } of pairs.sort((a, b) => b.overlap - a.overlap)) {
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

function correct(one: ExpectedTrack, seen: Bbox, frameIndex: number): void {
  const elapsed = Math.max(1, frameIndex - one.frameIndex);
  const { predicted, velocity } = one;
  const surprise = corners((corner) => seen[corner] - predicted[corner]);
  one.bbox = corners((corner) => predicted[corner] + POSITION_GAIN * surprise[corner]);
  one.velocity = corners(
    (corner) => velocity[corner] + (VELOCITY_GAIN * surprise[corner]) / elapsed,
  );
  one.frameIndex = frameIndex;
  one.unseen = 0;
}

/** Intersection over union of two boxes. */
export function iou(a: Readonly<Bbox>, b: Readonly<Bbox>): number {
  const width = Math.min(a[2], b[2]) - Math.max(a[0], b[0]);
  const height = Math.min(a[3], b[3]) - Math.max(a[1], b[1]);
  if (!(width > 0 && height > 0)) return 0;
  const area = ([x1, y1, x2, y2]: Readonly<Bbox>) => (x2 - x1) * (y2 - y1);
  return (width * height) / (area(a) + area(b) - width * height);
}
