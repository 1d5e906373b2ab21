// What a run's model measures on the test frames of its dataset: once, when nothing is left to
// choose, by the code and the rule of the validation split.

import type { Engine, Evaluation } from "../../native/index.d.ts";
import { byHead } from "../../shared/detector/deployed-detector.ts";
import type { MetricMap, ResolvedSettings, TrainSettings } from "../../shared/wire/training.ts";
import type { MediaContext } from "../media/footage.ts";
import type { SplitData, TrainingData } from "./dataset.ts";
import type { EvaluationBatch } from "./evaluation-batch.ts";
import { metricsOf } from "./loop.ts";
import type { Report } from "./report.ts";
import type { RunFolder } from "./run-folder.ts";
import type { StartParts } from "./start.ts";
import { evaluateLooks, lookAt, suppressedLooks } from "./suppression-choice.ts";

/** Weights to measure, in the run's folder, and how the model that they become is served. */
export interface TestedWeights {
  weights: string;
  /** With the suppression that was chosen for them, if any. */
  resolved: Pick<ResolvedSettings, "precision" | "nms_iou" | "head">;
  evaluationBatch: Pick<EvaluationBatch, "measure">;
  /** Whether the run is to be put aside rather than stopped. */
  pausing(): boolean;
  /** Milliseconds that a stop leaves for it. */
  msLeft: number;
}

interface TestParts extends Pick<StartParts, "native" | "graph"> {
  hardware: Pick<StartParts["hardware"], "device" | "threads">;
  context: Pick<MediaContext, "cancel" | "log">;
  folder: Pick<RunFolder, "file">;
  data: Pick<TrainingData, "classes" | "test">;
  payload: { settings: Pick<TrainSettings, "image_size"> };
  report: Pick<Report, "say" | "tell">;
}

/**
 * Metrics of weights on the test frames; null where the dataset has none with an annotation, where
 * the measurement was ended, or where it failed, which the log then says: it costs the run nothing.
 */
export async function testMetrics(
  parts: TestParts,
  tested: TestedWeights,
): Promise<MetricMap | null> {
  const { data, context, report } = parts;
  const { test } = data;
  if (!test) return null;
  const { end, close } = endOfMeasuring(context, tested);
  try {
    const evaluation = await tested.evaluationBatch.measure((batch) =>
      measure(parts, { ...tested, test, batch, end }),
    );
    if (evaluation) {
      const metrics = metricsOf(evaluation, data.classes);
      const at = (name: string) => metrics[name]?.toFixed(3) ?? "not measured";
      report.say(`Test frames: mAP50 ${at("mAP50")}, mAP50-95 ${at("mAP50-95")}.`);
      return metrics;
    }
    report.say("The model was not measured on the test frames: the run was told to end.");
  } catch (error) {
    context.log.warning("test_not_measured", { error });
    const { message } = error as Error;
    report.say(`The model could not be measured on the test frames: ${message}.`);
  } finally {
    close();
  }
  return null;
}

interface TestFrames {
  test: SplitData;
  /** Images that are measured together. */
  batch: number;
  /** Ends the measurement; it gives null then. */
  end: AbortSignal;
}

async function measure(
  { native, graph, hardware, folder, payload, report }: TestParts,
  { weights, resolved, test, batch, end }: Omit<TestedWeights, "evaluationBatch"> & TestFrames,
): Promise<Evaluation | null> {
  const { device, threads } = hardware;
  const { image_size: imageSize } = payload.settings;
  const { nms_iou: nmsIou, head = "one_to_one", precision } = resolved;
  // Suppression was chosen by what single precision detects.
  const options = nmsIou === undefined ? { graph, precision } : { graph: byHead(graph, head) };
  const engine = new native.Engine({ ...options, device, threads, seed: 0 });
  const interrupt = () => engine.interrupt();
  end.addEventListener("abort", interrupt);
  try {
    await engine.load(folder.file(weights));
    const more = { batch, imageSize, onBatch: () => report.tell() };
    if (nmsIou === undefined) return await evaluated(engine, { ...more, test, end });
    const looks = await lookAt(engine, { ...more, val: test, stop: end });
    if (!looks) return null;
    return evaluateLooks({ native, graph }, suppressedLooks(looks, nmsIou));
  } catch (thrown) {
    if (end.aborted) return null;
    throw thrown;
  } finally {
    end.removeEventListener("abort", interrupt);
    await engine.close();
  }
}

interface EvaluatedFrames extends TestFrames {
  imageSize: number;
  onBatch(): void;
}

/** The engine's own evaluation, for which the test frames are the split that it measures on. */
async function evaluated(
  engine: Pick<Engine, "setDataset" | "evaluate">,
  { test, batch, imageSize, end, onBatch }: EvaluatedFrames,
): Promise<Evaluation | null> {
  await engine.setDataset("val", { path: test.path, images: test.images });
  if (end.aborted) return null;
  const evaluation = await engine.evaluate({ split: "val", batch, imageSize }, onBatch);
  return evaluation.images < test.images.length ? null : evaluation;
}

/**
 * Ends a run's last measurement: at once where the run is put aside, which measures anew when it
 * goes on, and so many milliseconds after a stop, whose model somebody waits for. `close` lets go
 * of the timer.
 */
function endOfMeasuring(
  { cancel }: Pick<MediaContext, "cancel">,
  { pausing, msLeft }: Pick<TestedWeights, "pausing" | "msLeft">,
): { end: AbortSignal; close(): void } {
  const ending = new AbortController();
  let running: NodeJS.Timeout | null = null;
  const onCancel = () => {
    running = setTimeout(() => ending.abort(), pausing() ? 0 : Math.max(0, msLeft));
  };
  if (cancel.aborted) onCancel();
  else cancel.addEventListener("abort", onCancel, { once: true });
  return {
    end: ending.signal,
    close: () => {
      if (running) clearTimeout(running);
      cancel.removeEventListener("abort", onCancel);
    },
  };
}
