// Holds two models of the registry, or files of them, against each other: each frame is decoded
// once, and both look at the same pixels, one after the other, so that neither waits for the
// other's work.

import { createHash } from "node:crypto";
import { predictionsOf } from "../../shared/detector/letterbox.ts";
import { COMPARED_OBJECTS_MAX, comparedName } from "../../shared/tasks/comparison-task.ts";
import type { Prediction, TaskPayload, TaskResult } from "../../shared/tasks/tasks.ts";
import { TaskFailure } from "../base/failure.ts";
import { lookAhead } from "../base/lookahead.ts";
import { readWeights } from "../export/registry-weights.ts";
import { upload } from "../objects/transfer.ts";
import { usableDevice } from "../onnx/runtime.ts";
import type { SquareImage } from "../serving/letterbox.ts";
import { Session } from "../serving/model-thread.ts";
import { Predictor } from "../serving/predictor.ts";
import { type ComparedImage, openCompared } from "./comparison-frames.ts";
import { ComparisonRanking } from "./comparison-ranking.ts";
import { ComparisonTally, quantileMs } from "./comparison-tally.ts";
import type { RunnerContext } from "./runner-context.ts";

type Payload = TaskPayload<"comparison">;
type Result = TaskResult<"comparison">;
type Side = "a" | "b";

/** The lowest confidence that average precision looks at: COCO's evaluators take as little. */
const RANKED_CONFIDENCE_MIN = 0.001;
/** Confidences are told in ten thousandths: what rounds up to a bound counts. */
const ROUNDING = 0.00005;
/** Frames that are decoded and laid out while one is looked at. */
const FRAMES_AHEAD = 2;

/** Does a `comparison` task; a canceled one gives nothing. */
export async function run(payload: Payload, context: RunnerContext): Promise<Result> {
  const [a, b] = payload.models;
  const { predictors } = context;
  return useModel(a, context, predictors.use.bind(predictors), (one) =>
    // The first is held meanwhile: the second must not wait for its room.
    useModel(b, context, predictors.useBeside.bind(predictors), (other) =>
      compare(payload, { a: one, b: other }, context),
    ),
  );
}

/** Works with a model of a comparison, or with the file that is run in its place. */
function useModel<Work>(
  { model, file, file_sha256, size }: Payload["models"][number],
  context: RunnerContext,
  use: RunnerContext["predictors"]["use"],
  work: (predictor: Predictor) => Promise<Work>,
): Promise<Work> {
  if (!file || !file_sha256) {
    const wasOpen = context.predictors.isOpen(model);
    return use(model, context.cancel, async (predictor) => {
      // Its first image is slower than all others, which is nobody's latency.
      if (!wasOpen) await predictor.warm();
      return work(predictor);
    });
  }
  return useFile({ model, file, sha256: file_sha256, size }, context, work);
}

interface ModelFile {
  model: Payload["models"][number]["model"];
  file: NonNullable<Payload["models"][number]["file"]>;
  sha256: string;
  /** Height and width of its input, pixels. */
  size: readonly [number, number];
}

async function useFile<Work>(
  { model, file, sha256, size }: ModelFile,
  context: RunnerContext,
  work: (predictor: Predictor) => Promise<Work>,
): Promise<Work> {
  const { cancel, log, machine } = context;
  const known = { model_id: model.model_id, weights: file, sha256 };
  const onnx = await readWeights(context, known, cancel);
  const asked = machine.modelDevice ?? machine.device;
  const device = await usableDevice(asked, (level, event, fields) => log[level](event, fields));
  const opening = { onnx, cpuThreads: machine.cpuThreads, device, prototypes: false };
  const session = await Session.open(opening).catch((cause: unknown) => {
    const reason = cause instanceof Error ? cause.message : String(cause);
    const detail = `the export cannot be run here: ${reason.slice(0, 200)}`;
    throw new TaskFailure("bad_weights", detail, { cause });
  });
  const predictor = new Predictor(model, { device }, session, size);
  try {
    await predictor.warm();
    return await work(predictor);
  } finally {
    await predictor.dispose();
  }
}

type Predictors = Record<Side, Predictor>;

async function compare(
  payload: Payload,
  predictors: Predictors,
  context: RunnerContext,
): Promise<Result> {
  const started = performance.now();
  const { a, b } = predictors;
  const longestSide = Math.max(...a.size, ...b.size);
  const footage = await openCompared(payload, longestSide, context);
  const [first, second] = payload.models;
  const confidences = { a: first.confidence, b: second.confidence };
  const { hasTruth } = footage;
  const tally = new ComparisonTally({ iou: payload.iou, confidences, hasTruth });
  const ranking = new ComparisonRanking(payload.overlays.length);
  const durations: Record<Side, number[]> = { a: [], b: [] };
  let frames = 0;
  for await (const laid of lookAhead(laidOut(footage.images(), predictors), FRAMES_AHEAD)) {
    context.cancel.throwIfAborted();
    // Each comes first half of the time: what one leaves in the caches is the other's too.
    const order: readonly Side[] = frames % 2 === 0 ? ["a", "b"] : ["b", "a"];
    const found: Record<Side, Prediction[]> = { a: [], b: [] };
    for (const side of order) {
      const began = performance.now();
      const rows = await predictors[side].rows(laid[side], context.cancel);
      durations[side].push(performance.now() - began);
      const { placement } = laid[side];
      const { classes } = predictors[side].model;
      const lowest = Math.min(confidences[side] - ROUNDING, hasTruth ? RANKED_CONFIDENCE_MIN : 1);
      const all = predictionsOf(rows, { classes, confidence: lowest, placement });
      found[side] = named(all, payload.classes[side]);
    }
    const { image, index, videoId, truth, ...head } = laid.frame;
    const frame = tally.add({ video_id: videoId, frame_index: index, truth, ...head }, found);
    if (tally.objects > COMPARED_OBJECTS_MAX) throw tooMany();
    await ranking.add(frame, image);
    frames += 1;
    const { total } = footage.size();
    context.progress({ done: frames, total, detail: { objects: tally.objects } });
  }
  const latencyOf = (side: Side) => ({
    p50_ms: quantileMs(durations[side], 0.5),
    p95_ms: quantileMs(durations[side], 0.95),
  });
  const written = await write(payload, ranking, context);
  const seconds = (performance.now() - started) / 1_000;
  const ids = payload.models.map(({ model }) => model.model_id);
  context.log.info("models_compared", { model_ids: ids, frames, objects: tally.objects, seconds });
  return {
    frames_compared: frames,
    left_out: footage.size().leftOut,
    agreement: tally.agreement(),
    figures: tally.figures(),
    latency: { a: latencyOf("a"), b: latencyOf("b"), device: a.device },
    seconds,
    ...written,
  };
}

const tooMany = () => {
  const less = "ask for higher confidences, a lower fps or fewer frames";
  return new TaskFailure(
    "too_many_objects",
    `over ${COMPARED_OBJECTS_MAX} objects were found; ${less}`,
  );
};

/** Detections under the names by which they are compared. */
const named = (found: readonly Prediction[], names: Payload["classes"]["a"]): Prediction[] =>
  found.flatMap((one) => {
    const name = comparedName(names, one.class);
    return name === null ? [] : [{ ...one, class: name }];
  });

interface LaidFrame extends Record<Side, SquareImage> {
  frame: ComparedImage;
}

/** Images as both models look at them; laid out once where that is the same. */
async function* laidOut(
  images: AsyncGenerator<ComparedImage>,
  { a, b }: Predictors,
): AsyncGenerator<LaidFrame> {
  const isSame = a.size[0] === b.size[0] && a.size[1] === b.size[1];
  for await (const frame of images) {
    const one = await a.lay(frame.image, frame);
    yield { frame, a: one, b: isSame ? one : await b.lay(frame.image, frame) };
  }
}

/** Writes the frames and the overlays of the first ones. */
async function write(
  payload: Payload,
  ranking: ComparisonRanking,
  context: RunnerContext,
): Promise<Pick<Result, "report" | "overlays">> {
  const overlays: number[] = [];
  for await (const image of ranking.overlays()) {
    const target = payload.overlays[overlays.length];
    if (!target) break;
    await upload(context, target, image, context.cancel);
    overlays.push(image.length);
  }
  const { bytes, blocks } = ranking.report();
  await upload(context, payload.report, bytes, context.cancel);
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  return { report: { bytes: bytes.length, sha256, blocks }, overlays };
}
