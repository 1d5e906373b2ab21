// Which side of a dataset's split each frame is on. A side is drawn once and kept as the dataset
// grows: a frame that was trained on never comes to measure a model. Pure.

import { BLOCKS, type Side, type SplitVideo, seeded } from "../datasets/split.ts";

/** The side of a video's frames from an index on, to the next span of the video. */
export interface SideSpan {
  videoId: string;
  fromIndex: number;
  side: Side;
}

/** A video as it is split, with the first and the last frame that its jobs are over. */
export interface DrawnVideo extends SplitVideo {
  first: number;
  last: number;
}

/** Shares of the frames, 0 to 1; what is left of 1 is for training. */
export interface Shares {
  valShare: number;
  testShare: number;
}

const SIDES = ["train", "val", "test"] as const;

/**
 * Spans for the videos that have none. A video goes whole to the side that lacks most frames of its
 * share, long ones first and others in an order that follows from their ids, and so does a group of
 * look-alikes, unless one of them has a side. The only video of a dataset is cut into blocks of
 * time, over all that its jobs are over: what is labeled later is of the block that it lies in.
 */
export function drawSides(
  videos: readonly DrawnVideo[],
  known: readonly SideSpan[],
  shares: Shares,
): SideSpan[] {
  const spans = Map.groupBy(known, ({ videoId }) => videoId);
  const labeled = videos.filter(({ frames }) => frames.length > 0);
  const [only] = labeled;
  if (only && labeled.length === 1) return spans.has(only.videoId) ? [] : blocksOf(only, shares);
  const wanted = wantedShares(shares);
  const taken = new Map<Side, number>(SIDES.map((side) => [side, 0]));
  for (const { videoId, frames } of labeled) {
    const own = spans.get(videoId);
    if (!own) continue;
    for (const side of sidesOf(frames, own).values()) taken.set(side, (taken.get(side) ?? 0) + 1);
  }
  const total = labeled.reduce((sum, { frames }) => sum + frames.length, 0);
  const groups = [...Map.groupBy(labeled, ({ videoId, group }) => group ?? videoId).values()];
  const units = groups
    .map((members) => {
      const news = members.filter(({ videoId }) => !spans.has(videoId));
      return {
        news,
        beside: members.map(({ videoId }) => spans.get(videoId)).find((own) => own !== undefined),
        length: news.reduce((sum, { frames }) => sum + frames.length, 0),
        order: Math.min(...members.map(({ videoId }) => orderOf(videoId))),
      };
    })
    .filter(({ news }) => news.length > 0)
    .toSorted((one, other) => other.length - one.length || one.order - other.order);
  return units.flatMap(({ news, beside, length }, position) => {
    if (beside) return news.flatMap(({ videoId }) => beside.map((span) => ({ ...span, videoId })));
    const lacks = (side: Side) => wanted[side] * total - (taken.get(side) ?? 0);
    const empty = SIDES.filter((side) => wanted[side] > 0 && (taken.get(side) ?? 0) === 0);
    // Each side has a video, where there are as many.
    const candidates = empty.length > 0 && units.length - position <= empty.length ? empty : SIDES;
    const side = candidates.reduce((best, one) => (lacks(one) > lacks(best) ? one : best));
    taken.set(side, (taken.get(side) ?? 0) + length);
    return news.map(({ videoId }) => ({ videoId, fromIndex: 0, side }));
  });
}

const wantedShares = ({ valShare, testShare }: Shares): Record<Side, number> => ({
  train: 1 - valShare - testShare,
  val: valShare,
  test: testShare,
});

/** A number in [0, 1) that follows from a video's id (FNV-1a, then a step of the generator). */
function orderOf(videoId: string): number {
  let hash = 0x811c9dc5;
  for (const character of videoId) {
    hash = Math.imul(hash ^ (character.codePointAt(0) ?? 0), 0x01000193);
  }
  return seeded(hash)();
}

/** The blocks of time of a dataset's only video; neighbors of one side are one span. */
function blocksOf(
  { videoId, first, last }: DrawnVideo,
  { valShare, testShare }: Shares,
): SideSpan[] {
  const length = last - first + 1;
  const blocks = Math.min(BLOCKS, length);
  const random = seeded(Math.floor(orderOf(videoId) * 2 ** 32));
  const order = Array.from({ length: blocks }, (_, block) => ({ block, key: random() }))
    .toSorted((one, other) => one.key - other.key)
    .map(({ block }) => block);
  const count = (share: number) => (share === 0 ? 0 : Math.max(1, Math.round(share * blocks)));
  // One block at least is trained on.
  const val = order.slice(0, Math.min(count(valShare), blocks - 1));
  const rest = order.slice(val.length);
  const test = rest.slice(0, Math.min(count(testShare), rest.length - 1));
  const spans: SideSpan[] = [];
  for (let block = 0; block < blocks; block++) {
    const side = val.includes(block) ? "val" : test.includes(block) ? "test" : "train";
    if (spans.at(-1)?.side === side) continue;
    const fromIndex = block === 0 ? 0 : first + Math.ceil((block * length) / blocks);
    spans.push({ videoId, fromIndex, side });
  }
  return spans;
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
