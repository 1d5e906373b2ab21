// Writes a labeled dataset as one zip: images decoded from their videos, stills as the bytes that
// came, and beside them labels in one of the layouts. The archive is made on disk, then streamed to
// the store.

import { readFile, rm } from "node:fs/promises";
import { ExportManifest } from "../../shared/tasks/export-manifest.ts";
import type { TaskPayload, TaskResult } from "../../shared/tasks/tasks.ts";
import { frameId } from "../../shared/wire/vision.ts";
import { TaskFailure } from "../base/failure.ts";
import { ascending, type Footage, openFootage, secondsOf } from "../media/footage.ts";
import { toJpeg } from "../media/stills.ts";
import { uploadFile } from "../objects/transfer.ts";
import { createZip, type ZipWriter } from "../objects/zip-writer.ts";
import { cocoLayout } from "./coco-layout.ts";
import { cvatLayout } from "./cvat-layout.ts";
import { cvatVideoLayout } from "./cvat-video-layout.ts";
import { extensionOf, imageNames, uniqueStems } from "./export-names.ts";
import type { Annotation, ExportedImage, Layout, LayoutOptions, Sequence } from "./layout.ts";
import { motLayout } from "./mot-layout.ts";
import type { RunnerContext } from "./runner-context.ts";
import { vocLayout } from "./voc-layout.ts";
import { yoloLayout, yoloSegLayout } from "./yolo-layout.ts";

const LAYOUTS: Record<
  TaskPayload<"export">["format"],
  (manifest: ExportManifest, options: LayoutOptions) => Layout
> = {
  yolo: yoloLayout,
  "yolo-seg": yoloSegLayout,
  coco: cocoLayout,
  voc: vocLayout,
  cvat: cvatLayout,
  "cvat-video": cvatVideoLayout,
  mot: motLayout,
};

const MANIFEST_BYTES_MAX = 512 * 1024 * 1024;

/** Does an `export` task. Fails with a TaskFailure, such as `file_too_large`. */
export async function run(
  payload: TaskPayload<"export">,
  context: RunnerContext,
): Promise<TaskResult<"export">> {
  const manifest = await readManifest(payload, context);
  const path = context.cache.temporary();
  const zip = await createZip(path);
  try {
    const summary = await writeDataset(payload, manifest, zip, context);
    const bytes = await zip.end();
    await uploadFile(context, payload.archive, path, context.cancel);
    return { bytes, summary };
  } catch (thrown) {
    await zip.abandon().catch(() => {});
    throw thrown;
  } finally {
    await rm(path, { force: true });
  }
}

async function readManifest({ manifest }: TaskPayload<"export">, context: RunnerContext) {
  if (manifest.bytes > MANIFEST_BYTES_MAX) {
    throw new TaskFailure("file_too_large", "the dataset has too many annotations for one export");
  }
  const held = await context.cache.open(manifest, context.cancel);
  try {
    return ExportManifest.parse(JSON.parse(await readFile(held.path, "utf8")));
  } finally {
    await held.release();
  }
}

async function writeDataset(
  { format, names, rectangles, videos }: TaskPayload<"export">,
  manifest: ExportManifest,
  zip: ZipWriter,
  context: RunnerContext,
): Promise<Record<string, unknown>> {
  const layout = LAYOUTS[format](manifest, { rectangles });
  const sources = new Map(videos.map((source) => [source.key, source]));
  const summary = new Summary(manifest);
  const total = manifest.videos.reduce((sum, { frames }) => sum + frames.length, 0);
  const namesOf = imageNames(manifest.videos, names);
  const stems = uniqueStems(manifest.videos);
  // What the images are called in the service: an import knows them again whatever their names.
  const frames = ["image,frame_id\n"];
  let done = 0;
  for (const [videoIndex, video] of manifest.videos.entries()) {
    if (video.frames.length === 0) continue;
    const wanted = new Map(video.frames.map((frame) => [frame.index, frame]));
    const source = sources.get(video.key);
    if (!source) throw new TaskFailure("bad_payload", `the task lacks the source of ${video.key}`);
    const footage = await openFootage(context, source);
    const sequence: Sequence = {
      name: stems[videoIndex] ?? "",
      filename: video.filename,
      frameCount: footage.frameCount,
      fps: meanFps(footage),
      frames: ascending([...wanted.keys()]),
    };
    let position = 0;
    try {
      for await (const { index, image: pixels } of footage.read([...wanted.keys()])) {
        const frame = wanted.get(index);
        if (!frame) continue;
        const { width, height } = pixels;
        const annotations = frame.annotations.flatMap((one) => within(one, { width, height }));
        const original = await footage.original();
        const kind = original?.extension ?? ".jpg";
        const name = `${namesOf[videoIndex]?.(index)}${extensionOf(video, { names, kind })}`;
        const own = frameId(video.video_id, index);
        const image: ExportedImage = {
          name,
          split: frame.split,
          sequence,
          index,
          position,
          frameId: own,
          width,
          height,
          annotations,
        };
        await zip.add(layout.imagePath(image), original?.bytes ?? (await toJpeg(pixels)));
        frames.push(`${layout.imagePath(image)},${own}\n`);
        await layout.add(image, zip);
        position += 1;
        summary.add(image, { labeled: frame.annotations.length, original: original !== null });
        done += 1;
        context.progress({ done, total, detail: {} });
      }
    } finally {
      await footage.close();
    }
  }
  await layout.end(zip);
  await zip.add("frames.csv", frames.join(""));
  return summary.result();
}

/** Frames a second in the mean; 1 where there is one frame alone. */
function meanFps(footage: Footage): number {
  const seconds = secondsOf(footage, footage.frameCount - 1);
  return seconds > 0 ? (footage.frameCount - 1) / seconds : 1;
}

/** The annotation cut to its image; none when nothing of it is inside. */
function within(
  one: Annotation,
  { width, height }: { width: number; height: number },
): Annotation[] {
  const [x1, y1, x2, y2] = one.bbox;
  const x = (value: number) => Math.min(width, Math.max(0, value));
  const y = (value: number) => Math.min(height, Math.max(0, value));
  const bbox: Annotation["bbox"] = [x(x1), y(y1), x(x2), y(y2)];
  if (bbox[2] <= bbox[0] || bbox[3] <= bbox[1]) return [];
  const polygon = one.polygon?.map((corner, at) => (at % 2 ? y(corner) : x(corner))) ?? null;
  return [{ ...one, bbox, polygon }];
}

/** Counts by split and class. */
class Summary {
  readonly #classes: readonly string[];
  readonly #splits = new Map<string, { images: number; background: number; counts: number[] }>();
  #skipped = 0;
  #originals = 0;

  constructor({ classes, videos }: ExportManifest) {
    this.#classes = classes;
    const hasTest = videos.some(({ frames }) => frames.some(({ split }) => split === "test"));
    for (const split of hasTest ? ["train", "val", "test"] : ["train", "val"]) {
      this.#splits.set(split, { images: 0, background: 0, counts: classes.map(() => 0) });
    }
  }

  /** Counts an image, of how many annotations, and whether it is a file as it came. */
  add(
    { split, annotations }: ExportedImage,
    { labeled, original }: { labeled: number; original: boolean },
  ) {
    const counted = this.#splits.get(split);
    if (!counted) return;
    counted.images += 1;
    if (annotations.length === 0) counted.background += 1;
    this.#skipped += labeled - annotations.length;
    this.#originals += Number(original);
    for (const { class_index } of annotations) {
      counted.counts[class_index] = (counted.counts[class_index] ?? 0) + 1;
    }
  }

  result(): Record<string, unknown> {
    const splits = [...this.#splits].map(([split, { images, background, counts }]) => [
      split,
      {
        images,
        background_images: background,
        annotations: counts.reduce((sum, count) => sum + count, 0),
        per_class: this.#classes.map((name, at) => ({ class: name, count: counts[at] ?? 0 })),
      },
    ]);
    return {
      ...Object.fromEntries(splits),
      annotations_outside_picture: this.#skipped,
      original_images: this.#originals,
    };
  }
}
