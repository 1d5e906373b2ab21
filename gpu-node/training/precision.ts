// In which precision a run's steps are done: as it was asked for, else in the faster one. On a CPU
// with instructions for bf16 that is measured: they pay with one torch and not with another.

import type { Device, Engine, Precision } from "../../native/index.d.ts";
import type { ResolvedSettings, TrainSettings } from "../../shared/wire/training.ts";
import { engineCode } from "./engine-failure.ts";

/** By how much bf16 has to be faster to be chosen. */
const SPEEDUP_MIN = 1.15;
/** Most images and largest side of a step that is measured; below them bf16 gains less. */
const STEP_BATCH_MAX = 8;
const STEP_SIDE_MAX = 320;
/**
 * A measurement takes about so long, and ends after so many steps of each precision. No step takes
 * longer, unless one image does.
 */
const MEASURED_SECONDS = 3;
const MEASURED_STEPS_MAX = 8;

const PRECISIONS = ["fp32", "bf16"] as const;

export interface PrecisionHardware {
  device: Device;
  /** It has instructions for bf16. */
  bf16: boolean;
}

/** A precision, and why it is that one. */
export type PrecisionChoice = Required<Pick<ResolvedSettings, "precision" | "precision_reason">>;

/** Seconds of a step by precision. */
export type StepSeconds = Readonly<Record<Precision, number>>;

const PROCESSORS: Record<Device, string> = { cpu: "CPU", cuda: "GPU" };

const because = (precision: Precision, reason: string): PrecisionChoice => ({
  precision,
  precision_reason: reason,
});

/** The precision that a run begins in; `measure` is asked where a measurement decides. */
export async function choosePrecision(
  asked: TrainSettings["precision"],
  { device, bf16 }: PrecisionHardware,
  measure: () => Promise<StepSeconds>,
): Promise<PrecisionChoice> {
  const processor = PROCESSORS[device];
  if (asked === "fp32") return because("fp32", "as asked for");
  if (!bf16) {
    const lacking = `this ${processor} has no instructions for bf16`;
    return because("fp32", asked === "bf16" ? `bf16 was asked for, but ${lacking}` : lacking);
  }
  if (asked === "bf16") return because("bf16", "as asked for");
  if (device === "cuda") return because("bf16", `this ${processor} has instructions for it`);
  try {
    const seconds = await measure();
    const ratio = seconds.fp32 / seconds.bf16;
    return ratio >= SPEEDUP_MIN
      ? because("bf16", `${ratio.toFixed(1)} times as fast as fp32 here`)
      : because("fp32", `bf16 is only ${ratio.toFixed(2)} times as fast here`);
  } catch (thrown) {
    // What fails in bf16 alone costs the run nothing.
    if (engineCode(thrown) === null) throw thrown;
    return because("fp32", `bf16 could not be measured here (${(thrown as Error).message})`);
  }
}

/** What goes on from a checkpoint keeps its precision, unless this machine has no bf16. */
export function precisionOnResume(
  before: Pick<ResolvedSettings, "precision">,
  { device, bf16 }: PrecisionHardware,
): PrecisionChoice | null {
  if (before.precision === "fp32" || bf16) return null;
  const reason = `the run began in bf16, but this ${PROCESSORS[device]} has no instructions for it`;
  return because("fp32", reason);
}

/**
 * CPU seconds of a step in each precision: the minimum of several, done in turn. Time by the clock
 * would say what else the machine does.
 */
export async function measureSteps(
  probe: Engine["probe"],
  { batch, imageSize }: { batch: number; imageSize: number },
): Promise<StepSeconds> {
  const side = Math.min(imageSize, STEP_SIDE_MAX);
  // The first steps also prepare what the next ones use: they say how long those may take.
  let imageSeconds = 0;
  for (const precision of PRECISIONS) {
    const { seconds } = await probe({ batch: 1, imageSize: side, precision });
    imageSeconds = Math.max(imageSeconds, seconds);
  }
  const fitting = Math.max(1, Math.floor(MEASURED_SECONDS / imageSeconds));
  const step = { batch: Math.min(batch, STEP_BATCH_MAX, fitting), imageSize: side };
  const minima = { fp32: Number.POSITIVE_INFINITY, bf16: Number.POSITIVE_INFINITY };
  let spent = 0;
  for (let done = 0; done < MEASURED_STEPS_MAX && spent < MEASURED_SECONDS; done++) {
    for (const precision of PRECISIONS) {
      const { seconds, cpuSeconds } = await probe({ ...step, precision });
      spent += seconds;
      minima[precision] = Math.min(minima[precision], cpuSeconds);
    }
  }
  return minima;
}
