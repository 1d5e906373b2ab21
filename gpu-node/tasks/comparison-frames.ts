// The frames of a comparison: which they are, decoded once each, and laid out as the two models
// look at them. Frames are read ahead while others are looked at.

import { sampleFrames } from "../../shared/detector/sampling.ts";
import { comparedName, type TruthObject } from "../../shared/tasks/comparison-task.ts";
import type { ExportManifest } from "../../shared/tasks/export-manifest.ts";
import type { ObjectSource, TaskPayload } from "../../shared/tasks/tasks.ts";
import { TaskFailure } from "../base/failure.ts";
import { type Footage, openFootage } from "../media/footage.ts";
import type { RgbImage } from "../media/image.ts";
import { readManifest } from "../training/dataset.ts";
import type { RunnerContext } from "./runner-context.ts";

type Payload = TaskPayload<"comparison">;

/** A frame as both models get it. */
export interface ComparedImage {
  videoId: string | null;
  filename: string;
  index: number;
  /** Seconds from the first frame of its video. */
  time: number;
  /** Size of the frame, of which the image may be a smaller copy. */
  width: number;
  height: number;
  image: RgbImage;
  /** Null where nobody reviewed it. */
  truth: TruthObject[] | null;
}

/** A video or image with the frames of it that are looked at. */
interface Clip {
  source: ObjectSource;
  videoId: string | null;
  filename: string;
  /** Null: as the task's `fps` says. */
  frames: { index: number; truth: TruthObject[] }[] | null;
}

/** The frames of a comparison, and how many there are. */
export interface ComparedFootage {
  hasTruth: boolean;
  images(): AsyncGenerator<ComparedImage>;
  /** Known once the first image is there. */
  size(): { total: number; leftOut: number };
}

/** As many items as are wanted, evenly spread; all where there are no more. */
export function spread<Item>(items: readonly Item[], max: number): Item[] {
  if (items.length <= max) return [...items];
  return Array.from(
    { length: max },
    (_, at) => items[Math.floor((at * items.length) / max)] as Item,
  );
}

/** What a task looks at. Images of videos are no larger than `longestSide` pixels a side. */
export async function openCompared(
  payload: Payload,
  longestSide: number,
  context: RunnerContext,
): Promise<ComparedFootage> {
  const { clips, leftOut } = await clipsOf(payload, context);
  const known = clips.reduce((sum, { frames }) => sum + (frames?.length ?? 0), 0);
  const size = { total: known, leftOut };
  return {
    hasTruth: payload.dataset !== null,
    size: () => size,
    async *images() {
      for (const clip of clips) {
        const footage = await openClip(clip, context);
        try {
          const wanted = clip.frames ?? framesAt(footage, payload, size);
          yield* imagesOf(footage, { clip, wanted, longestSide });
        } finally {
          await footage.close();
        }
      }
    },
  };
}

type WantedFrames = readonly { index: number; truth: TruthObject[] | null }[];

/** The frames of a video that the task's `fps` names; notes how many there are. */
function framesAt(
  { pts, timeBase }: Footage,
  { fps, frames_max }: Payload,
  size: { total: number; leftOut: number },
): WantedFrames {
  const sampled = sampleFrames(pts, timeBase, fps);
  const wanted = spread(sampled, frames_max);
  size.total = wanted.length;
  size.leftOut = sampled.length - wanted.length;
  return wanted.map((index) => ({ index, truth: null }));
}

async function clipsOf(
  payload: Payload,
  context: RunnerContext,
): Promise<{ clips: Clip[]; leftOut: number }> {
  const { video, dataset, video_id: videoId, filename } = payload;
  if (video) return { clips: [{ source: video, videoId, filename, frames: null }], leftOut: 0 };
  if (!dataset) throw new TaskFailure("bad_payload", "the task has nothing to compare on");
  const { manifest } = await readManifest(dataset.manifest, context);
  const sources = new Map(dataset.videos.map((source) => [source.key, source]));
  const all = framesIn(manifest, payload);
  if (all.length === 0) {
    const side = payload.split === "all" ? "" : ` of the side ${payload.split}`;
    throw new TaskFailure("bad_dataset", `the dataset has no frame${side}`);
  }
  const wanted = Map.groupBy(spread(all, payload.frames_max), ({ video: of }) => of);
  const clips = [...wanted].map(([{ video_id, filename: name, key }, frames]) => {
    const source = sources.get(key);
    if (!source) throw new TaskFailure("bad_dataset", `${name} was deleted since the export`);
    return { source, videoId: video_id, filename: name, frames };
  });
  return { clips, leftOut: Math.max(0, all.length - payload.frames_max) };
}

type Video = ExportManifest["videos"][number];

/** The frames of a dataset, video by video, by their index; with their truth as it is compared. */
function framesIn({ videos, classes }: ExportManifest, payload: Payload) {
  const { split, classes: maps } = payload;
  return videos.flatMap((video) =>
    video.frames
      .filter((frame) => split === "all" || frame.split === split)
      .toSorted((one, other) => one.index - other.index)
      .map((frame) => ({
        video,
        index: frame.index,
        truth: truthOf(frame, classes).flatMap(({ class: own, bbox }) => {
          const name = comparedName(maps.truth, own);
          return name === null ? [] : [{ class: name, bbox }];
        }),
      })),
  );
}

const truthOf = ({ annotations }: Video["frames"][number], classes: readonly string[]) =>
  annotations.flatMap(({ class_index, bbox }): TruthObject[] => {
    const name = classes[class_index];
    return name === undefined ? [] : [{ class: name, bbox }];
  });

/** What cannot be read is said with its name. */
async function openClip({ source, filename }: Clip, context: RunnerContext): Promise<Footage> {
  try {
    return await openFootage(context, source);
  } catch (thrown) {
    if (!(thrown instanceof TaskFailure) || thrown.code !== "unsupported_media") throw thrown;
    const { code, retryable, message } = thrown;
    const named = filename === "" ? message : `${filename}: ${message}`;
    throw new TaskFailure(code, named, { retryable, cause: thrown });
  }
}

async function* imagesOf(
  footage: Footage,
  { clip, wanted, longestSide }: { clip: Clip; wanted: WantedFrames; longestSide: number },
): AsyncGenerator<ComparedImage> {
  const { pts, timeBase, width, height } = footage;
  const truths = new Map(wanted.map(({ index, truth }) => [index, truth]));
  const { videoId, filename } = clip;
  // A still is decoded already, and is looked at as it is by the routes of predictions too.
  const options = { longestSide: footage.frameCount === 1 ? null : longestSide };
  for await (const { index, image } of footage.read([...truths.keys()], options)) {
    const ticks = (pts[index] ?? 0) - (pts[0] ?? 0);
    const time = Math.round(((ticks * timeBase[0]) / timeBase[1]) * 1e6) / 1e6;
    const truth = truths.get(index) ?? null;
    yield { videoId, filename, index, time, width, height, image, truth };
  }
}
