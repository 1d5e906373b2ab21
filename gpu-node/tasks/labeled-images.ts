// Frames of what a model learned from, with what people labeled on them: for the ranges of int8,
// and for the average precision of a file.

import { createHash } from "node:crypto";
import type { ExportManifest } from "../../shared/tasks/export-manifest.ts";
import type { Bbox, ObjectSource, TaskPayload } from "../../shared/tasks/tasks.ts";
import { BrokenMedia, TaskFailure } from "../base/failure.ts";
import { type MediaContext, openFootage } from "../media/footage.ts";
import type { RgbImage } from "../media/image.ts";
import { readManifest } from "../training/dataset.ts";

/** An image, and the boxes on it in its pixels. */
export interface LabeledImage {
  /** Id of the frame within its dataset. */
  id: string;
  image: RgbImage;
  truths: { className: string; bbox: Bbox }[];
}

type Video = ExportManifest["videos"][number];
interface ListedFrame {
  video: Video;
  frame: Video["frames"][number];
}
type Context = Pick<MediaContext, "cache" | "tools" | "cancel" | "log">;

/** The dataset of a model, by its list. */
export class LabeledImages {
  readonly #classes: readonly string[];
  readonly #frames: Readonly<Record<"train" | "val", ListedFrame[]>>;
  readonly #sources: ReadonlyMap<string, ObjectSource>;

  constructor({ classes, videos }: ExportManifest, sources: readonly ObjectSource[]) {
    const listed = videos.flatMap((video) => video.frames.map((frame) => ({ video, frame })));
    const of = (split: "train" | "val") => listed.filter(({ frame }) => frame.split === split);
    this.#classes = classes;
    this.#frames = { train: of("train"), val: of("val") };
    this.#sources = new Map(sources.map((source) => [source.key, source]));
  }

  /** How many of a split `read` gives at most. */
  count = (split: "train" | "val", max: number): number =>
    Math.min(max, this.#frames[split].length);

  /**
   * So many images of a split, chosen by the hash of what they are: the same ones each time. One
   * whose video was deleted or is none that can be decoded is left out; what may pass, such as a
   * store that does not answer, fails, so that nothing is made of fewer images than there are.
   */
  async *read(split: "train" | "val", max: number, context: Context): AsyncGenerator<LabeledImage> {
    const chosen = byHash(this.#frames[split]).slice(0, max);
    const videos = new Map(chosen.map(({ video }) => [video.key, video]));
    for (const [key, video] of videos) {
      const frames = chosen.filter((one) => one.video.key === key).map(({ frame }) => frame);
      try {
        yield* this.#readVideo(video, frames, context);
      } catch (thrown) {
        context.cancel.throwIfAborted();
        if (!isLost(thrown)) throw thrown;
        context.log.warning("dataset_video_missing", { key, error: thrown });
      }
    }
  }

  async *#readVideo(
    video: Video,
    frames: readonly Video["frames"][number][],
    context: Context,
  ): AsyncGenerator<LabeledImage> {
    const source = this.#sources.get(video.key);
    if (!source) throw new TaskFailure("bad_dataset", "the task has no address of the video");
    const byIndex = new Map(frames.map((frame) => [frame.index, frame]));
    const footage = await openFootage(context, source);
    try {
      for await (const { index, image } of footage.read([...byIndex.keys()])) {
        const annotations = byIndex.get(index)?.annotations ?? [];
        const truths = annotations.flatMap(({ class_index, bbox }) => {
          const className = this.#classes[class_index];
          return className === undefined ? [] : [{ className, bbox }];
        });
        yield { id: frameId(video, index), image, truths };
      }
    } finally {
      await footage.close();
    }
  }
}

const frameId = ({ key }: Video, index: number) => `${key} ${index}`;

/** Whether reading again would give the same: the object is gone, or is no video that we read. */
const isLost = (thrown: unknown): boolean =>
  thrown instanceof BrokenMedia || (thrown instanceof TaskFailure && !thrown.retryable);

/** In an order that depends on what the frames are, and on nothing else. */
function byHash(frames: readonly ListedFrame[]): ListedFrame[] {
  const hashed = frames.map((one) => ({
    one,
    hash: createHash("sha256").update(frameId(one.video, one.frame.index)).digest("hex"),
  }));
  return hashed.sort((a, b) => (a.hash < b.hash ? -1 : 1)).map(({ one }) => one);
}

/** The dataset of a task's model; null where the service has none any more. */
export async function openLabeledImages(
  dataset: TaskPayload<"device_export">["dataset"],
  context: Context,
): Promise<LabeledImages | null> {
  if (!dataset) return null;
  const { manifest } = await readManifest(dataset.manifest, context);
  return new LabeledImages(manifest, dataset.videos);
}
