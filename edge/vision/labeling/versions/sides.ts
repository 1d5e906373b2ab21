// Which side of a dataset's split each frame is on. A side is drawn once and kept as the dataset
// grows: a frame that was trained on never comes to measure a model. Pure.

import { SIDES } from "../../../../shared/wire/datasets.ts";
import { fixedSides } from "../datasets/imported-sides.ts";
import {
  BLOCKS,
  type Side,
  type SideSpan,
  type SplitVideo,
  seeded,
  sidesOf,
} from "../datasets/split.ts";

/** A span that a dataset keeps from now on; `origin` of one that an import brought along. */
export interface NewSpan extends SideSpan {
  origin?: "import";
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

/**
 * Spans for the videos that have none. A video goes whole to the side that lacks most frames of its
 * share, long ones first and others in an order that follows from their ids, and so does a group of
 * look-alikes, unless one of them has a side. The only video of a dataset is cut into blocks of
 * time, over all that its jobs are over: what is labeled later is of the block that it lies in.
 * Sides that imports told come before what is drawn, and after what is known.
 */
export function drawSides(
  videos: readonly DrawnVideo[],
  known: readonly SideSpan[],
  shares: Shares,
  told: readonly SideSpan[] = [],
): NewSpan[] {
  const spans = Map.groupBy(known, ({ videoId }) => videoId);
  const labeled = videos.filter(({ frames }) => frames.length > 0);
  const [only] = labeled;
  const knownSides = ({ videoId, frames }: DrawnVideo) => [
    ...sidesOf(frames, spans.get(videoId) ?? []).values(),
  ];
  const hasVal = labeled.some((one) => spans.has(one.videoId) && knownSides(one).includes("val"));
  const news = told.filter(({ videoId }) => !spans.has(videoId));
  const held = fixedSides(videos, news, { hasVal });
  const keptOf = ({ videoId }: DrawnVideo): NewSpan[] =>
    (held.spans.get(videoId) ?? []).map((span) => ({ ...span, origin: "import" }));
  if (only && labeled.length === 1) {
    if (spans.has(only.videoId)) return [];
    const kept = keptOf(only);
    return kept.length > 0 ? kept : blocksOf(only, shares);
  }
  const wanted = wantedShares(shares);
  const taken = new Map<Side, number>(SIDES.map((side) => [side, 0]));
  const take = (sides: Iterable<Side>) => {
    for (const side of sides) taken.set(side, (taken.get(side) ?? 0) + 1);
  };
  for (const video of labeled) if (spans.has(video.videoId)) take(knownSides(video));
  const total = labeled.reduce((sum, { frames }) => sum + frames.length, 0);
  const groups = [...Map.groupBy(labeled, ({ videoId, group }) => group ?? videoId).values()];
  const all = groups
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
  const isKept = ({ news, beside }: (typeof all)[number]) =>
    !beside && news.some(({ videoId }) => held.spans.has(videoId));
  const brought = all.filter(isKept).flatMap(({ news }) => news);
  for (const { videoId, frames } of brought) {
    take(sidesOf(frames, held.spans.get(videoId) ?? []).values());
  }
  const units = all.filter((unit) => !isKept(unit));
  const drawn = units.flatMap(({ news, beside, length }, position) => {
    if (beside) return news.flatMap(({ videoId }) => beside.map((span) => ({ ...span, videoId })));
    const lacks = (side: Side) => wanted[side] * total - (taken.get(side) ?? 0);
    const empty = SIDES.filter((side) => wanted[side] > 0 && (taken.get(side) ?? 0) === 0);
    // Each side has a video, where there are as many.
    const candidates = empty.length > 0 && units.length - position <= empty.length ? empty : SIDES;
    const side = candidates.reduce((best, one) => (lacks(one) > lacks(best) ? one : best));
    taken.set(side, (taken.get(side) ?? 0) + length);
    return news.map(({ videoId }) => ({ videoId, fromIndex: 0, side }));
  });
  return [...brought.flatMap(keptOf), ...drawn];
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
