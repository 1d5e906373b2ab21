// Which frames train and which validate. Frames of one moment look alike: a split that put them on
// both sides would measure memory, so it goes by video, or within a single video by time. Pure.

export interface SplitVideo {
  videoId: string;
  frames: readonly number[];
  /** Videos of one group are on one side: their images are the same, or nearly. */
  group?: string | undefined;
}

/** A side of a split: frames to learn from, to choose on, and to measure on at the end alone. */
export type Side = "train" | "val" | "test";

/** The side of a video's frames from an index on, to the next span of the video. */
export interface SideSpan {
  videoId: string;
  fromIndex: number;
  side: Side;
}

/** The side among several that a model learns least from: test, else val, else train. */
export const strictestSide = (sides: readonly Side[]): Side =>
  sides.includes("test") ? "test" : sides.includes("val") ? "val" : "train";

/** Frames of a video by the side of the split that they are on. */
export interface SplitFrames {
  sides: ReadonlyMap<number, Side>;
  /** Training frames that lie within the gap of a validation frame of the same video. */
  border: ReadonlySet<number>;
}

/** Blocks of time that a single video's frames are cut into. */
export const BLOCKS = 10;
/** Length of the gap between two sides, as a share of the video's frames; one frame at least. */
const GAP_SHARE = 0.01;
/** A video of fewer frames has no gap: too few frames would be left. */
const GAP_FRAMES_MIN = 2 * BLOCKS;

/** A small generator of repeatable numbers in [0, 1): mulberry32 of a seed. */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

/**
 * Puts every frame on a side, by video. Several videos are split whole, and groups of them, as near
 * to the share as their lengths allow; a single one is cut into blocks of time, and the training
 * frames next to a validation block are its border. With two frames or more, neither side is empty,
 * unless all videos are of one group.
 */
export function splitFrames(
  videos: readonly SplitVideo[],
  { valShare, seed }: { valShare: number; seed: number },
): Map<string, SplitFrames> {
  const random = seeded(seed);
  const labeled = videos.filter(({ frames }) => frames.length > 0);
  if (labeled.length === 1) {
    const [only] = labeled as [SplitVideo];
    return new Map([[only.videoId, splitOne(only.frames, valShare, random)]]);
  }
  const groups = Map.groupBy(labeled, ({ videoId, group }) => group ?? videoId);
  const units = [...groups].map(([name, videos]) => ({
    name,
    length: videos.reduce((sum, { frames }) => sum + frames.length, 0),
    key: random(),
  }));
  const total = units.reduce((sum, { length }) => sum + length, 0);
  const order = units.toSorted((left, right) => left.key - right.key);
  const val = new Set<string>();
  let taken = 0;
  for (const { name, length } of order) {
    if (val.size + 1 === order.length) break;
    const over = taken + length - valShare * total;
    // Taken when that is nearer to the share than leaving it.
    if (over >= valShare * total - taken) continue;
    val.add(name);
    taken += length;
    if (taken >= valShare * total) break;
  }
  if (val.size === 0 && valShare > 0 && order.length > 1) {
    // All are longer than twice the share; the sort keeps the random order of equals.
    const [shortest] = order.toSorted((left, right) => left.length - right.length);
    if (shortest) val.add(shortest.name);
  }
  return new Map(
    labeled.map(({ videoId, frames, group }) => {
      const side: Side = val.has(group ?? videoId) ? "val" : "train";
      return [videoId, { sides: new Map(frames.map((frame) => [frame, side])), border: new Set() }];
    }),
  );
}

function splitOne(frames: readonly number[], valShare: number, random: () => number): SplitFrames {
  const sides = new Map<number, Side>();
  const blocks = Math.min(BLOCKS, frames.length);
  const wanted = valShare === 0 ? 0 : Math.max(1, Math.round(valShare * blocks));
  const order = Array.from({ length: blocks }, (_, block) => ({ block, key: random() }));
  const val = new Set(
    order
      .toSorted((left, right) => left.key - right.key)
      .slice(0, Math.min(wanted, blocks - 1))
      .map(({ block }) => block),
  );
  const blockOf = (index: number) => Math.floor((index * blocks) / frames.length);
  for (const [index, frame] of frames.entries()) {
    sides.set(frame, val.has(blockOf(index)) ? "val" : "train");
  }
  return { sides, border: borderOf(sides) };
}

/**
 * The training frames of a video that lie within the gap of a frame of another side. The frames are
 * in their order.
 */
export function borderOf(sides: ReadonlyMap<number, Side>): Set<number> {
  const frames = [...sides];
  const { length } = frames;
  const gap = length < GAP_FRAMES_MIN ? 0 : Math.max(1, Math.floor(length * GAP_SHARE));
  const measures = (index: number) => (frames[index]?.[1] ?? "train") !== "train";
  const near = frames.filter(
    ([, side], index) => side === "train" && (measures(index - gap) || measures(index + gap)),
  );
  return new Set(near.map(([frame]) => frame));
}

/**
 * How many frames lie within a length of time of a frame on the other side. The frames are in
 * their order, `times` are those of all of the video's frames, in the unit of `within`.
 */
export function countNearOtherSide(
  sides: ReadonlyMap<number, Side>,
  times: ArrayLike<number>,
  within: number,
): number {
  const frames = [...sides].map(([frame, side]) => ({ side, time: times[frame] as number }));
  const near = new Set<object>();
  for (const inOrder of [frames, frames.toReversed()]) {
    const last = new Map<Side, number>();
    for (const one of inOrder) {
      last.delete(one.side);
      const others = [...last.values()];
      if (others.some((time) => Math.abs(one.time - time) <= within)) near.add(one);
      last.set(one.side, one.time);
    }
  }
  return near.size;
}

/** The side of each frame of a video, which has a span from its first frame on. */
export function sidesOf(
  frames: readonly number[],
  spans: readonly Pick<SideSpan, "fromIndex" | "side">[],
): Map<number, Side> {
  const ordered = spans.toSorted((one, other) => one.fromIndex - other.fromIndex);
  let at = 0;
  return new Map(
    frames.map((frame) => {
      while (at + 1 < ordered.length && (ordered[at + 1]?.fromIndex ?? 0) <= frame) at++;
      return [frame, ordered[at]?.side ?? "train"];
    }),
  );
}
