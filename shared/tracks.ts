// Tracking by detection, after ByteTrack (Zhang et al., 2022): detections of high score are matched
// first, those of low score may only continue a track, and a track that is not seen for a while
// ends. Motion is constant velocity, smoothed, in corners.

import type { Bbox } from "./tasks.ts";

export interface TrackBox {
  /** Index of the frame in its video; gaps are allowed. */
  frame: number;
  bbox: Bbox;
  score: number;
}

/** The paper's settings. */
const HIGH_SCORE = 0.5;
const LOW_SCORE = 0.1;
const IOU_HIGH_MIN = 0.3;
const IOU_LOW_MIN = 0.5;
/** Frames of the sequence, labeled ones, that a track outlives unseen. */
const BUFFER_FRAMES = 30;
/** How much of a new displacement enters a track's velocity. */
const VELOCITY_GAIN = 0.5;

interface Track {
  id: number;
  bbox: Bbox;
  /** Pixels per labeled frame, by corner. */
  velocity: Bbox;
  /** Place in the sequence of labeled frames where it was last seen. */
  seen: number;
}

/**
 * The track of each box, from 1, in the order of the boxes; null for a low score that continues
 * nothing. Boxes are ordered by frame.
 */
export function track(boxes: readonly TrackBox[]): (number | null)[] {
  const result: (number | null)[] = boxes.map(() => null);
  let tracks: Track[] = [];
  let ids = 0;
  let step = 0;
  for (let from = 0; from < boxes.length; step++) {
    let to = from;
    while (to < boxes.length && boxes[to]?.frame === boxes[from]?.frame) to++;
    const places = Array.from({ length: to - from }, (_, index) => from + index);
    const score = (place: number) => (boxes[place] as TrackBox).score;
    const high = places.filter((place) => score(place) >= HIGH_SCORE);
    const low = places.filter((place) => score(place) < HIGH_SCORE && score(place) >= LOW_SCORE);
    tracks = tracks.filter(({ seen }) => step - seen <= BUFFER_FRAMES);
    const matched = new Set<Track>();
    const take = (candidates: readonly number[], iouMin: number): number[] => {
      const free = tracks.filter((one) => !matched.has(one));
      const pairs = free
        .flatMap((one) =>
          candidates.map((place) => ({
            one,
            place,
            overlap: iou(predicted(one, step), (boxes[place] as TrackBox).bbox),
          })),
        )
        .filter(({ overlap }) => overlap >= iouMin)
        .toSorted((left, right) => right.overlap - left.overlap || left.one.id - right.one.id);
      const taken = new Set<number>();
      for (const { one, place } of pairs) {
        if (matched.has(one) || taken.has(place)) continue;
        matched.add(one);
        taken.add(place);
        result[place] = one.id;
        follow(one, (boxes[place] as TrackBox).bbox, step);
      }
      return candidates.filter((place) => !taken.has(place));
    };
    const fresh = take(high, IOU_HIGH_MIN);
    take(low, IOU_LOW_MIN);
    for (const place of fresh) {
      const { bbox } = boxes[place] as TrackBox;
      const one: Track = { id: ++ids, bbox, velocity: [0, 0, 0, 0], seen: step };
      tracks.push(one);
      matched.add(one);
      result[place] = one.id;
    }
    from = to;
  }
  return result;
}

/** Where a track would be now. */
const predicted = ({ bbox, velocity, seen }: Track, step: number): Bbox =>
  bbox.map((corner, index) => corner + (velocity[index] as number) * (step - seen)) as Bbox;

function follow(one: Track, bbox: Bbox, step: number) {
  one.velocity = bbox.map((corner, index) => {
    const moved = (corner - (one.bbox[index] as number)) / (step - one.seen);
    return (one.velocity[index] as number) * (1 - VELOCITY_GAIN) + moved * VELOCITY_GAIN;
  }) as Bbox;
  one.bbox = bbox;
  one.seen = step;
}

/** Intersection over union of two boxes. */
export function iou(left: Bbox, right: Bbox): number {
  const width = Math.min(left[2], right[2]) - Math.max(left[0], right[0]);
  const height = Math.min(left[3], right[3]) - Math.max(left[1], right[1]);
  if (width <= 0 || height <= 0) return 0;
  const area = ([x1, y1, x2, y2]: Bbox) => (x2 - x1) * (y2 - y1);
  return (width * height) / (area(left) + area(right) - width * height);
}
