// A run's epochs: train, measure the average's weights, have best weights and checkpoints written
// while the next one is trained. It ends after the last epoch, when nothing got better for long
// enough, or when somebody asks, within a step.

import type { Engine, EpochResult, Evaluation } from "../../native/index.d.ts";
import {
  CLASS_METRICS,
  type ClassMetric,
  classMetricKey,
  epochScore,
  MASK_METRICS,
  type MetricMap,
  type RunEpoch,
  type RunLosses,
  type TrainSettings,
  type ValidationLosses,
} from "../../shared/wire/training.ts";
import { TaskFailure } from "../base/failure.ts";
import { CheckpointWriter } from "./checkpoint-writer.ts";
import { isFurther, type RunState, thinned } from "./checkpoints.ts";
import type { EvaluationBatch } from "./evaluation-batch.ts";
import { type Report, spoken } from "./report.ts";
import type { RunFolder } from "./run-folder.ts";
import type { Team } from "./team.ts";

export interface LoopParts {
  engine: Engine;
  /** The processes that train with this one's engine; null where it is alone. */
  team: Team | null;
  evaluationBatch: EvaluationBatch;
  settings: TrainSettings;
  classes: readonly string[];
  valImages: number;
  folder: RunFolder;
  report: Report;
  /** Where the run is; the loop moves it on. */
  state: RunState;
  /** Says to end within a step, whatever it is that ends. */
  stop: AbortSignal;
  /** A checkpoint was written here; the training goes on meanwhile. */
  onCheckpoint(state: RunState): Promise<void>;
  /** What is written into the best weights' file. */
  metadata: Readonly<Record<string, string>>;
}

/** Steps in a row without a finite gradient that end a run. */
const LOST_STEPS_MAX = 20;
/** A validation of a stopped run's weights takes no longer; its node gives a stop 15 minutes. */
export const LAST_VALIDATION_MS = 5 * 60_000;

/** Trains from where the state is. Resolves when the run is at its end or was asked to stop. */
export async function trainEpochs(parts: LoopParts): Promise<void> {
  const { engine, settings, report, state, stop } = parts;
  const interrupt = () => engine.interrupt();
  stop.addEventListener("abort", interrupt);
  const began = { epoch: state.epoch, batch: state.batch };
  const writer = new CheckpointWriter(parts);
  try {
    const pace = new Pace(state.history);
    let lost = 0;
    while (state.epoch < settings.epochs && !stop.aborted) {
      if (ranOut(state, settings)) {
        report.say(
          `Stopped early: nothing got better in ${settings.patience} ${settings.patience === 1 ? "epoch" : "epochs"}.`,
        );
        break;
      }
      pace.begin();
      const result = await trainOne(parts, pace);
      lost = lostInARow(result, lost);
      if (lost > LOST_STEPS_MAX) throw notFinite(lost);
      if (result.skipped > 0) {
        report.say(`${result.skipped} steps were left out: their gradients were not finite.`);
      }
      state.batch = result.batch;
      // An epoch that went on after its last step has none of its own.
      if (result.images > 0) state.learning_rate = result.lr;
      if (result.batch < result.batches) break;
      const evaluation = await evaluate(parts);
      if (!evaluation) break;
      await endEpoch(parts, { result, evaluation, pace, writer });
    }
    if (!writer.isAt(state) && (stop.aborted || isFurther(state, began))) {
      state.line = report.line;
      await writer.write(state, { must: true });
    }
    await writer.finish();
  } finally {
    await writer.idle();
    stop.removeEventListener("abort", interrupt);
  }
}

function trainOne({ engine, team, report, state, settings }: LoopParts, pace: Pace) {
  const { epoch, batch: from } = state;
  return (team ?? engine).trainEpoch({ epoch, from }, (progress) => {
    const share = progress.batch / progress.batches;
    report.step(progress, pace.etaSeconds(settings.epochs - epoch, share));
  });
}

/** Metrics of the average's weights on the validation split; null where it was interrupted. */
async function evaluate(parts: LoopParts): Promise<Evaluation | null> {
  const { engine, evaluationBatch, settings, report, valImages, stop } = parts;
  const { image_size: imageSize } = settings;
  const evaluation = await evaluationBatch.measure(async (batch) =>
    stop.aborted ? null : engine.evaluate({ split: "val", batch, imageSize }, () => report.tell()),
  );
  return !evaluation || evaluation.images < valImages ? null : evaluation;
}

/** What a new epoch counts in the trend: about the mean of the last five. */
const TREND_SHARE = 1 / 3;
/** Scores that stand still are neared for a hundred epochs: a smaller rise than this is none. */
const TREND_STEP_MIN = 1e-3;

/** The trend of the epochs' score after one more epoch, counted from 1. */
export function trendAfter(
  trend: RunState["trend"],
  score: number,
  epoch: number,
): NonNullable<RunState["trend"]> {
  if (!trend) return { value: score, best: score, since: epoch };
  const value = trend.value + TREND_SHARE * (score - trend.value);
  return value >= trend.best + TREND_STEP_MIN
    ? { value, best: value, since: epoch }
    : { value, best: trend.best, since: trend.since };
}

/**
 * Whether nothing got better for as long as the patience lasts: neither the best epoch's score nor
 * the trend. Of scores that scatter one lucky epoch stays the best for long, while all that follow
 * still rise.
 */
export function ranOut(
  { best, trend, epoch }: Pick<RunState, "best" | "trend" | "epoch">,
  { patience }: Pick<TrainSettings, "patience">,
): boolean {
  return patience > 0 && epoch - Math.max(best?.since ?? 0, trend?.since ?? 0) >= patience;
}

/** Steps in a row that were left out, as far as an epoch's counts tell. */
export function lostInARow({ skipped, batches }: EpochResult, before: number): number {
  if (skipped === 0) return 0;
  // A few among many are what a large learning rate or a half precision cost.
  return skipped * 2 >= batches ? before + skipped : 0;
}

const notFinite = (steps: number) =>
  new TaskFailure(
    "not_finite",
    `the loss or its gradients were not finite in ${steps} steps in a row: choose a smaller ` +
      "learning rate (or leave it blank), and check the dataset for wrong boxes",
  );

interface FinishedEpoch {
  result: EpochResult;
  evaluation: Evaluation;
  pace: Pace;
  writer: CheckpointWriter;
}

async function endEpoch(parts: LoopParts, { result, evaluation, pace, writer }: FinishedEpoch) {
  const { state, settings, classes, report } = parts;
  const metrics = metricsOf(evaluation, classes);
  const row: RunEpoch = {
    epoch: state.epoch + 1,
    losses: lossesOf(result, state.history),
    validation_losses: validationLossesOf(evaluation),
    metrics,
    learning_rate: digits(state.learning_rate, 8),
    seconds: digits(pace.end(), 2),
  };
  const score = epochScore(metrics);
  const { best } = state;
  // While nothing is found yet, who learned longer is ahead.
  const isBest = !best || score > best.score || (score === 0 && best.score === 0);
  const weights = {
    epoch: row.epoch,
    evaluation,
    metadata: weightsMetadata(parts.metadata, row.epoch),
  };
  if (isBest) {
    const { epoch } = row;
    const since = best?.score === score ? best.since : epoch;
    state.best = { epoch, score, since };
  }
  state.history = thinned([...state.history, row], state.best?.epoch);
  state.trend = trendAfter(state.trend, score, row.epoch);
  state.epoch += 1;
  state.batch = 0;
  for (const line of linesOf(row, { epochs: settings.epochs, result, isBest })) report.say(line);
  state.line = report.line;
  await writer.write(state, { best: isBest ? weights : null });
  const eta = pace.etaSeconds(settings.epochs - state.epoch, 0);
  report.epochDone(state.history, state, eta);
}

/** Metadata of the file of an epoch's weights. */
export const weightsMetadata = (metadata: LoopParts["metadata"], epoch: number) => ({
  ...metadata,
  epoch: String(epoch),
});

/** Validates the weights of a stopped run; null where that takes too long. */
export async function lastValidation(
  parts: Pick<LoopParts, "engine" | "evaluationBatch" | "settings" | "valImages" | "report">,
): Promise<Evaluation | null> {
  const { engine, evaluationBatch, settings, valImages, report } = parts;
  const { image_size: imageSize } = settings;
  const limit = setTimeout(() => engine.interrupt(), LAST_VALIDATION_MS);
  try {
    const evaluation = await evaluationBatch.measure((batch) =>
      engine.evaluate({ split: "val", batch, imageSize }, () => report.tell()),
    );
    return evaluation.images < valImages ? null : evaluation;
  } finally {
    clearTimeout(limit);
  }
}

/** Rounded; what is no number becomes 0, since JSON has none of these. */
const digits = (value: number, count: number) =>
  Number.isFinite(value) ? Number(value.toFixed(count)) : 0;

const byMasks = (
  of: Pick<Evaluation, "maskMAP50" | "maskMAP50_95">,
  metric: (typeof MASK_METRICS)[number],
) => (metric === "mask/mAP50" ? of.maskMAP50 : of.maskMAP50_95);

/** Metrics of weights that were not validated: null, also those of masks where the task has any. */
export function unmeasured(classes: readonly string[], task: string): MetricMap {
  const ofMasks = task === "segmentation" ? MASK_METRICS : [];
  const all = ["mAP50", "mAP50-95", "precision", "recall", ...ofMasks];
  const ofClass = [...CLASS_METRICS, ...ofMasks];
  const each = classes.flatMap((name) => ofClass.map((one) => classMetricKey(name, one)));
  return Object.fromEntries([...all, ...each].map((key) => [key, null]));
}

/** The metrics under the contract's keys; null for a class without an object to measure by. */
export function metricsOf(evaluation: Evaluation, classes: readonly string[]): MetricMap {
  const metrics: MetricMap = {
    mAP50: digits(evaluation.mAP50, 5),
    "mAP50-95": digits(evaluation.mAP50_95, 5),
    precision: digits(evaluation.precision, 5),
    recall: digits(evaluation.recall, 5),
  };
  for (const metric of MASK_METRICS) {
    const value = byMasks(evaluation, metric);
    if (value !== undefined) metrics[metric] = digits(value, 5);
  }
  for (const [index, name] of classes.entries()) {
    const own = evaluation.perClass[index];
    const values = {
      precision: own?.precision,
      recall: own?.recall,
      mAP50: own?.mAP50,
      "mAP50-95": own?.mAP50_95,
    };
    const set = (metric: ClassMetric, value: number | undefined) => {
      metrics[classMetricKey(name, metric)] = value === undefined ? null : digits(value, 5);
    };
    for (const metric of CLASS_METRICS) set(metric, values[metric]);
    for (const metric of MASK_METRICS) {
      if (metrics[metric] !== undefined) set(metric, own ? byMasks(own, metric) : undefined);
    }
  }
  return metrics;
}

/** The epoch's losses; where a step's was no number, those of the epoch before. */
function lossesOf({ losses }: EpochResult, history: readonly RunEpoch[]): RunLosses {
  const before = history.at(-1)?.losses;
  const of = (name: keyof RunLosses) => {
    const value = losses[name] ?? 0;
    return Number.isFinite(value) ? digits(value, 5) : (before?.[name] ?? 0);
  };
  const items: RunLosses = { box: of("box"), cls: of("cls"), dfl: of("dfl") };
  if (losses.mask === undefined) return items;
  return { ...items, mask: of("mask"), semantic: of("semantic") };
}

/** Losses of validation; null where one of them is no number. */
function validationLossesOf({ losses }: Evaluation): ValidationLosses | null {
  if (!losses || !Object.values(losses).every(Number.isFinite)) return null;
  const { box, cls, dfl, mask } = losses;
  const items = { box: digits(box, 5), cls: digits(cls, 5), dfl: digits(dfl, 5) };
  return mask === undefined ? items : { ...items, mask: digits(mask, 5) };
}

/** An epoch as training consoles show it. */
function linesOf(
  { epoch, losses, validation_losses: validated, metrics, learning_rate, seconds }: RunEpoch,
  { epochs, result, isBest }: { epochs: number; result: EpochResult; isBest: boolean },
): string[] {
  const width = String(epochs).length;
  const { data, forward, backward, optimizer } = result.seconds;
  const spent = data + forward + backward + optimizer || 1;
  const share = (part: number) => `${Math.round((100 * part) / spent)} %`;
  const rate = spent > 0 ? result.images / spent : 0;
  const at = (name: string) => (metrics[name] ?? 0).toFixed(3);
  const { mask, semantic } = losses;
  const ofMasks =
    mask === undefined || semantic === undefined
      ? ""
      : `mask ${mask.toFixed(3)}  semantic ${semantic.toFixed(3)}  `;
  const ofValidation = validated
    ? `val box ${validated.box.toFixed(3)}  cls ${validated.cls.toFixed(3)}  ` +
      `dfl ${validated.dfl.toFixed(3)}  ${validated.mask === undefined ? "" : `mask ${validated.mask.toFixed(3)}  `}`
    : "";
  const masked = ofMasks && `  mask mAP50 ${at("mask/mAP50")}  mAP50-95 ${at("mask/mAP50-95")}`;
  return [
    `Epoch ${String(epoch).padStart(width)}/${epochs}  box ${losses.box.toFixed(3)}  ` +
      `cls ${losses.cls.toFixed(3)}  dfl ${losses.dfl.toFixed(3)}  ${ofMasks}lr ${learning_rate.toPrecision(3)}  ` +
      `${rate.toFixed(1)} images/s (data ${share(data)}, forward ${share(forward)}, ` +
      `backward ${share(backward)})  ${spoken(seconds)}`,
    `${" ".repeat(7 + width * 2)}  ${ofValidation}P ${at("precision")}  R ${at("recall")}  ` +
      `mAP50 ${at("mAP50")}  mAP50-95 ${at("mAP50-95")}${masked}${isBest ? "  best so far" : ""}`,
  ];
}

/** How long epochs take, and what is left. */
class Pace {
  #known: number[];
  #began = 0;

  constructor(history: readonly RunEpoch[]) {
    this.#known = history.slice(-5).map(({ seconds }) => seconds);
  }

  begin() {
    this.#began = performance.now();
  }

  end(): number {
    const seconds = (performance.now() - this.#began) / 1_000;
    this.#known = [...this.#known, seconds].slice(-5);
    return seconds;
  }

  /** Seconds that so many epochs take, of the first of which a share is done. */
  etaSeconds(epochs: number, share: number): number | null {
    const { length } = this.#known;
    const spent = (performance.now() - this.#began) / 1_000;
    if (length === 0 && share < 0.02) return null;
    const each =
      length > 0 ? this.#known.reduce((sum, one) => sum + one, 0) / length : spent / share;
    return Math.max(0, Math.round(each * (epochs - share)));
  }
}
