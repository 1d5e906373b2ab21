// What a version holds, and how it differs from the one before, read from their manifests a frame
// at a time: each may have a million annotations. Both have their videos in the order of their ids
// and the frames of a video in theirs.

import type { VersionChanges, VersionCounts } from "../../../../shared/wire/datasets.ts";
import type { Side } from "../datasets/split.ts";

/** What a manifest tells of a version's counts. */
type SidesCounts = Omit<VersionCounts, "left_out_frames" | "left_out_annotated_frames">;

/** A frame of a manifest. */
interface ManifestFrame {
  videoId: string;
  index: number;
  split: Side;
  annotations: { id: string; class_index: number; polygon: number[] | null }[];
}

/** The lines of a text that comes in chunks of bytes. */
async function* linesOf(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of chunks) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    yield* lines;
  }
  yield rest + decoder.decode();
}

const FRAMES = ',"frames":[';

/**
 * The frames of a manifest as `writeSplits` writes it: the head of a video is a line that opens the
 * list of its frames, and each frame is a line.
 */
async function* framesOf(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<ManifestFrame> {
  let videoId = "";
  for await (const line of linesOf(chunks)) {
    const text = line.startsWith(",") ? line.slice(1) : line;
    if (text.endsWith(FRAMES)) {
      videoId = (JSON.parse(`${text.slice(0, -FRAMES.length)}}`) as { video_id: string }).video_id;
    } else if (text.startsWith('{"index":')) {
      // The service wrote it.
      yield { videoId, ...(JSON.parse(text) as Omit<ManifestFrame, "videoId">) };
    }
  }
}

/** Which of two frames comes first in manifests; negative where `one` does. */
function byPlace(one: ManifestFrame, other: ManifestFrame): number {
  if (one.videoId !== other.videoId) return one.videoId < other.videoId ? -1 : 1;
  return one.index - other.index;
}

/** Counts what a manifest holds, and how it differs from that of the parent, where there is one. */
export async function compareVersions(
  manifest: AsyncIterable<Uint8Array>,
  parent: AsyncIterable<Uint8Array> | null,
  classes: readonly string[],
): Promise<{ counts: SidesCounts; changes: VersionChanges }> {
  const tally = new Tally(classes);
  const before = parent ? framesOf(parent) : null;
  let old = await before?.next();
  for await (const frame of framesOf(manifest)) {
    while (old && !old.done && byPlace(old.value, frame) < 0) {
      tally.change(old.value, null);
      old = await before?.next();
    }
    const isSame = old && !old.done && byPlace(old.value, frame) === 0;
    tally.change(isSame ? (old?.value ?? null) : null, frame);
    if (isSame) old = await before?.next();
  }
  while (old && !old.done) {
    tally.change(old.value, null);
    old = await before?.next();
  }
  return { counts: tally.counts, changes: tally.changes };
}

/** Counts frames and annotations as they are read. */
class Tally {
  readonly counts: SidesCounts;
  readonly changes: VersionChanges = {
    frames: { added: 0, changed: 0, removed: 0 },
    annotations: { added: 0, changed: 0, removed: 0 },
  };

  constructor(classes: readonly string[]) {
    const side = () => ({ frames: 0, annotated_frames: 0, annotations: 0, masks: 0 });
    const perClass = classes.map((name) => ({ class: name, train: 0, val: 0, test: 0 }));
    this.counts = { train: side(), val: side(), test: side(), per_class: perClass };
  }

  /** A frame as it was and as it is; null where it was not, or is no more. */
  change(before: ManifestFrame | null, now: ManifestFrame | null) {
    if (now) this.#count(now);
    const { frames, annotations } = this.changes;
    const old = new Map((before?.annotations ?? []).map((one) => [one.id, JSON.stringify(one)]));
    let different = before && now && before.split !== now.split;
    for (const one of now?.annotations ?? []) {
      const was = old.get(one.id);
      old.delete(one.id);
      if (was === undefined) annotations.added++;
      else if (was !== JSON.stringify(one)) annotations.changed++;
      else continue;
      different = true;
    }
    annotations.removed += old.size;
    if (!before) frames.added++;
    else if (!now) frames.removed++;
    else if (different || old.size > 0) frames.changed++;
  }

  #count({ split, annotations }: ManifestFrame) {
    const side = this.counts[split];
    side.frames++;
    if (annotations.length > 0) side.annotated_frames++;
    side.annotations += annotations.length;
    for (const { class_index, polygon } of annotations) {
      if (polygon) side.masks++;
      const own = this.counts.per_class[class_index];
      if (own) own[split]++;
    }
  }
}
