// Runs workflows for the queue: on uploaded images, and on the frames of a video one after another,
// each with the state that the frame before has left.

import type { TaskPayload, TaskResult } from "../../shared/tasks/tasks.ts";
import type { WorkflowRun } from "../../shared/workflow/execution.ts";
import type { KeyedValue } from "../../shared/workflow/plan.ts";
import { TaskFailure } from "../base/failure.ts";
import { type Footage, openFootage, secondsOf } from "../media/footage.ts";
import { rootImage } from "../workflows/node-image.ts";
import {
  answerRun,
  failureReport,
  GivenFile,
  GivenFrame,
  Session,
  type SessionServices,
} from "../workflows/session.ts";
import { VideoTally } from "../workflows/video-tally.ts";
import { type FrameRun, storeOutputClip } from "./output-clip.ts";
import type { RunnerContext } from "./runner-context.ts";
import { lookAtImage } from "./sam-objects.ts";
import { wantedFrames } from "./wanted-frames.ts";

type Result = TaskResult<"workflow_video">;
type Payload = TaskPayload<"workflow_video">;

/** Frames of a workflow that remembers nothing are worked on at once, so that batches fill. */
const FRAMES_AT_ONCE = 4;

const servicesOf = ({ predictors, useSegmenter, log }: RunnerContext): SessionServices => ({
  predictors,
  sam: async (readImage, request, signal) =>
    lookAtImage(await readImage(), request, { useSegmenter, signal }),
  log,
});

/** Does a `workflow` task. */
export const run = (
  { images, ...request }: TaskPayload<"workflow">,
  context: RunnerContext,
): Promise<TaskResult<"workflow">> =>
  withFiles(images, context, (files) =>
    answerRun(request, files, servicesOf(context), context.cancel),
  );

/** Works with files of the store, which stay on the disk meanwhile. */
async function withFiles<Result>(
  images: Payload["images"],
  { cache, cancel }: Pick<RunnerContext, "cache" | "cancel">,
  work: (files: readonly GivenFile[]) => Promise<Result>,
): Promise<Result> {
  const held: Awaited<ReturnType<typeof cache.open>>[] = [];
  const files: GivenFile[] = [];
  try {
    for (const { name, file } of images) {
      const opened = await cache.open(file, cancel);
      held.push(opened);
      files.push(new GivenFile(name, opened.path, `object ${file.key}`));
    }
    return await work(files);
  } finally {
    for (const { release } of held) await release();
  }
}

/**
 * Does a `workflow_video` task; a canceled one gives the frames that were done, without a clip of
 * them.
 */
export async function runVideo(payload: Payload, context: RunnerContext): Promise<Result> {
  const started = performance.now();
  const { images, video, frames_input, annotated_output: output, annotated: target } = payload;
  const services = servicesOf(context);
  const session = new Session(payload, services);
  const input = session.plan.inputs.find(({ name }) => name === frames_input);
  if (input?.kind !== "image") {
    throw new TaskFailure("invalid_request", `${frames_input} is no input that takes an image`);
  }
  const planned = session.plan.outputs.find(({ name }) => name === output);
  if (output !== undefined && (planned?.kind !== "image" || planned.lineage.length > 0)) {
    throw new TaskFailure("invalid_request", `${output} is no output that is one image`);
  }
  const footage = await openFootage(context, video);
  try {
    const { wanted, leftOut } = wantedFrames(footage, payload);
    const tally = new VideoTally(payload.state);
    const clip = await withFiles(images, context, async (files) => {
      const run = { session, files, footage, wanted, payload, services };
      const frames = runFrames(run, context, tally);
      if (output !== undefined && target) {
        return storeOutputClip(frames, { output, footage, wanted, target }, context);
      }
      while (!(await frames.next()).done);
      return null;
    });
    const { left_out, warnings, ...told } = tally.told();
    return {
      ...told,
      warnings: [...warnings, ...(clip?.warnings ?? [])],
      ...(clip ? { annotated: clip.annotated } : {}),
      width: footage.width,
      height: footage.height,
      left_out: { frames: leftOut, ...left_out },
      seconds: (performance.now() - started) / 1_000,
    };
  } finally {
    await footage.close();
  }
}

interface FramesRun {
  session: Session;
  files: readonly GivenFile[];
  footage: Footage;
  wanted: readonly number[];
  payload: Payload;
  services: SessionServices;
}

/**
 * Runs the frames in their order, each once it is asked for and some ahead. The tally says why it
 * ended before the last one, where it did.
 */
async function* runFrames(
  { session, files, footage, wanted, payload, services }: FramesRun,
  { cancel, progress }: Pick<RunnerContext, "cancel" | "progress">,
  tally: VideoTally,
): AsyncGenerator<FrameRun> {
  const { frames_input, video } = payload;
  // A run that is not waited for any more ends with the others.
  const stop = new AbortController();
  const signal = AbortSignal.any([cancel, stop.signal]);
  const inFlight: Promise<Omit<FrameRun, "outputs"> & { run: WorkflowRun }>[] = [];
  const take = async (running: (typeof inFlight)[number]): Promise<FrameRun> => {
    const { index, image, run } = await running;
    await tally.add(index, secondsOf(footage, index), run);
    progress({ done: tally.count, total: wanted.length, detail: {} });
    return { index, image, outputs: run.outputs };
  };
  const { isStateful, hasEffects, steps } = session.plan;
  // A segmenter looks at one image at a time: other frames would wait while their time runs out.
  const hasSegmenter = steps.some(({ block }) => block.type === "segmenter@1");
  // Sinks remember what they have asked for.
  const atOnce = isStateful || hasEffects || hasSegmenter ? 1 : FRAMES_AT_ONCE;
  try {
    // Everything but the frames is read once; a first frame stands in for them.
    let values: ReadonlyMap<string, KeyedValue> | null = null;
    for await (const { index, image } of footage.read(wanted)) {
      if (cancel.aborted) return;
      const key = `frame ${index} of ${video.key}`;
      const frame = { value: rootImage(image), key };
      values ??= await session.readValues([...files, new GivenFrame(frames_input, frame)]);
      const inputs = new Map(values).set(frames_input, frame);
      const now = 1_000 * secondsOf(footage, index);
      const running = session
        .run(inputs, { state: tally.state, now, signal, isCached: false })
        .then((ended) => ({ index, image, run: ended }));
      // Whoever waits for it hears of its failure, also where that is later.
      running.catch(() => {});
      inFlight.push(running);
      const oldest = inFlight.length >= atOnce ? inFlight.shift() : undefined;
      if (oldest) yield await take(oldest);
    }
    for (const running of inFlight) yield await take(running);
  } catch (thrown) {
    if (!cancel.aborted) tally.failure = failureReport(thrown, services);
  } finally {
    stop.abort();
  }
}
