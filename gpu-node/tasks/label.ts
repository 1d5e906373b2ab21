// Labels frames of one video, in display order: each is looked at once for all prompts.
// The same payload gives the same detections, whichever attempt or node it was. A canceled task
// gives what was done until then.

import type {
  Detection,
  FrameDetections,
  TaskPayload,
  TaskResult,
} from "../../shared/tasks/tasks.ts";
import { ascending, openFootage } from "../media/footage.ts";
import type { ReadFrame } from "../media/frame-reader.ts";
import { toJpeg } from "../media/stills.ts";
import { upload } from "../objects/transfer.ts";
import { CropPacker } from "./crop-packer.ts";
import { type Finder, withFinder } from "./finder.ts";
import type { RunnerContext } from "./runner-context.ts";

/** JPEGs on their way to the store at once. */
const UPLOADS_MAX = 3;
/** Milliseconds that a pack of crops may take to be written: labels do not wait longer for it. */
const PACK_MS_MAX = 10_000;
/** Milliseconds between reports of labeled frames, each of which is checked and stored. */
const PARTIAL_MS = 1_000;

/** Does a `label` task. Fails with a TaskFailure, which says whether to try again. */
export const run = (
  payload: TaskPayload<"label">,
  context: RunnerContext,
): Promise<TaskResult<"label">> => {
  const started = performance.now();
  return withFinder(payload, context, (finder) => labelFrames(payload, context, finder, started));
};

async function labelFrames(
  payload: TaskPayload<"label">,
  context: RunnerContext,
  finder: Finder,
  started: number,
): Promise<TaskResult<"label">> {
  const labeled: FrameDetections[] = [];
  const resultOf = (frames: FrameDetections[]) => ({
    frames,
    segmenter: finder.name,
    warnings: finder.warnings,
    seconds: (performance.now() - started) / 1_000,
  });
  let [reported, reportedAt] = [0, Number.NEGATIVE_INFINITY];
  const total = ascending(payload.frames).length;
  let annotations = 0;
  const uploads = new Uploads(payload, context);
  const crops = new Crops(payload, context);
  for await (const { index, image } of frames(payload, context)) {
    await uploads.add(index, image);
    const detections = await finder.find(image);
    labeled.push({ frame_index: index, detections });
    await crops.add(index, image, detections);
    annotations += detections.length;
    const done = labeled.length;
    const isDue = performance.now() - reportedAt >= PARTIAL_MS;
    const partial = isDue ? resultOf(labeled.slice(reported)) : undefined;
    if (isDue) [reported, reportedAt] = [done, performance.now()];
    const detail = { annotations, frame_index: index };
    context.progress({ done, total, detail, partial }, isDue || done === total);
    if (context.cancel.aborted) break;
  }
  await uploads.end();
  await crops.end();
  return resultOf(labeled);
}

/** The payload's frames; fewer after a cancel, which ends the decoding. */
async function* frames(
  payload: TaskPayload<"label">,
  context: RunnerContext,
): AsyncGenerator<ReadFrame> {
  const footage = await openFootage(context, payload.video);
  try {
    yield* footage.read(payload.frames);
  } catch (thrown) {
    if (!context.cancel.aborted) throw thrown;
  } finally {
    await footage.close();
  }
}

/** Writes the frames' JPEGs that the store lacks, a few at once, while frames are labeled. */
class Uploads {
  readonly #payload: TaskPayload<"label">;
  readonly #context: RunnerContext;
  readonly #running = new Set<Promise<void>>();
  #failure: { thrown: unknown } | null = null;

  constructor(payload: TaskPayload<"label">, context: RunnerContext) {
    this.#payload = payload;
    this.#context = context;
  }

  async add(index: number, image: ReadFrame["image"]) {
    const target = this.#payload.images[this.#payload.frames.indexOf(index)];
    if (!target) return;
    while (this.#running.size >= UPLOADS_MAX) await Promise.race(this.#running);
    this.#rethrow();
    const jpeg = await toJpeg(image);
    // A cancel keeps what is done, so a JPEG under way still arrives.
    const work: Promise<void> = upload(this.#context, target, jpeg).then(
      () => void this.#running.delete(work),
      (thrown: unknown) => {
        this.#running.delete(work);
        this.#failure ??= { thrown };
        this.#context.log.warning("frame_upload_failed", { frame: index, error: thrown });
      },
    );
    this.#running.add(work);
  }

  async end() {
    await Promise.all(this.#running);
    this.#rethrow();
  }

  #rethrow() {
    if (this.#failure) throw this.#failure.thrown;
  }
}

/**
 * Cuts crops of what is detected while the next frame is labeled, and writes them as one pack. They
 * can be cut again at any time, so no fault of theirs fails the task.
 */
class Crops {
  readonly #payload: TaskPayload<"label">;
  readonly #context: RunnerContext;
  readonly #packer = new CropPacker();
  #running: Promise<void> = Promise.resolve();

  constructor(payload: TaskPayload<"label">, context: RunnerContext) {
    this.#payload = payload;
    this.#context = context;
  }

  async add(index: number, image: ReadFrame["image"], detections: readonly Detection[]) {
    if (!this.#payload.crops || detections.length === 0) return;
    await this.#running;
    const boxes = detections.map(({ bbox }) => bbox);
    this.#running = this.#packer
      .add(index, image, boxes)
      .catch((error: unknown) =>
        this.#context.log.warning("crops_not_cut", { frame: index, error }),
      );
  }

  async end() {
    await this.#running;
    const { crops } = this.#payload;
    const { count, leftOut } = this.#packer;
    if (leftOut > 0) this.#context.log.info("crops_left_out", { count, left_out: leftOut });
    if (!crops || count === 0) return;
    try {
      const limit = AbortSignal.timeout(PACK_MS_MAX);
      await upload(this.#context, crops, this.#packer.pack(), limit);
    } catch (error) {
      this.#context.log.warning("crop_pack_not_written", { error });
    }
  }
}
