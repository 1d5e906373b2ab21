// A shadow: another model that looks at the images of answered requests, to see what it would have
// said. It comes after the answer, gets no place at a node that requests may soon need, and as many
// images are under way as may be held; what is let go is counted.

import { Failure } from "../../../../shared/errors.ts";
import type { Prediction } from "../../../../shared/tasks/tasks.ts";
import type { Parts } from "../../base/parts.ts";
import type { ModelRow } from "../../models/registry.ts";
import { requestsAtNodes } from "../predict/asks.ts";
import { isModelFailure, predictDirectly } from "../predict/direct.ts";
import type { ReceivedImage } from "../predict/image-requests.ts";
import type { HeldFile } from "../predict/predictions.ts";
import { differencesOf } from "./differences.ts";
import type { MeterBatch } from "./meter-batch.ts";
import { emptyShadow, type ShadowCounts } from "./rollups.ts";
import { answeredSample, FAILED_SAMPLE, type TrialAnswer, type TrialSample } from "./trials.ts";

/** Images of an isolate that shadows look at, at once: each is held in memory meanwhile, twice. */
const UNDER_WAY_MAX = 4;
const BYTES_MAX = 8 * 1024 * 1024;
/** How long the answer has to get away: what a shadow takes before would be taken from it. */
const AFTER_MS = 5;
/** How long a shadow waits for a moment in which nobody waits for a node; then it asks anyway. */
const QUIET_MS_MAX = 1_000;
/** The platform ends what goes on for longer after an answer. */
const SHADOW_MS = 20_000;

/** What shadows of this isolate look at now. */
const underWay = { images: 0, bytes: 0 };

/** An answered request that a shadow is to look at. */
export interface AnsweredImage {
  image: ReceivedImage;
  /** Who answered, and what was told of it. */
  liveModelId: string;
  live: TrialAnswer;
  /** What of the shadow's detections would have been told. */
  told: (predictions: readonly Prediction[]) => Prediction[];
  confidenceMin: number;
}

/** Has a shadow look at an answered request's image, and counts what that came to. Never fails. */
export async function mirror(
  parts: Parts,
  { model, meter }: { model: ModelRow; meter: MeterBatch },
  answered: AnsweredImage,
): Promise<void> {
  const { modelId } = model;
  const outcome = await outcomeOf(parts, model, answered);
  const counts = { ...emptyShadow(), mirrored: 1, ...outcome.counts };
  const { liveModelId } = answered;
  const trial = outcome.sample ? { liveModelId, sample: outcome.sample } : null;
  await meter.shadow(parts, { at: parts.clock(), modelId, counts, trial });
}

interface Outcome {
  counts: Partial<ShadowCounts>;
  /** Null where the shadow was not asked, or could not be. */
  sample: TrialSample | null;
}

const shed = (why: string): Outcome => ({ counts: { shed: { [why]: 1 } }, sample: null });

async function outcomeOf(
  parts: Parts,
  model: ModelRow,
  { image, ...answered }: AnsweredImage,
): Promise<Outcome> {
  // It went by the store, and is there no more.
  if (!("pieces" in image)) return shed("too_large");
  const { pieces } = image;
  const bytes = pieces.reduce((sum, { length }) => sum + length, 0);
  const isFull = underWay.images >= UNDER_WAY_MAX || underWay.bytes + bytes > BYTES_MAX;
  if (isFull) return shed("busy");
  underWay.images += 1;
  underWay.bytes += bytes;
  const signal = AbortSignal.timeout(SHADOW_MS);
  try {
    return await look(parts, model, { ...answered, pieces, signal });
  } catch (error) {
    if (error instanceof Failure && error.code === "overloaded") return shed("nodes_full");
    parts.log.warning("shadow_failed", { model_id: model.modelId, error });
    const isModels = signal.aborted || isModelFailure(error);
    return { counts: { failed: 1 }, sample: isModels ? FAILED_SAMPLE : null };
  } finally {
    underWay.images -= 1;
    underWay.bytes -= bytes;
  }
}

/** Lets the answer go first, and the requests that this isolate has at nodes. */
async function quietMoment({ clock }: Parts): Promise<void> {
  const until = clock() + QUIET_MS_MAX;
  do {
    await new Promise<void>((resume) => setTimeout(resume, AFTER_MS));
  } while (requestsAtNodes(clock) > 0 && clock() < until);
}

async function look(
  parts: Parts,
  model: ModelRow,
  {
    pieces,
    live,
    told,
    ...asked
  }: Omit<AnsweredImage, "image"> & Pick<HeldFile, "pieces"> & { signal: AbortSignal },
): Promise<Outcome> {
  await quietMoment(parts);
  const started = parts.clock();
  const answer = await predictDirectly(parts, model, {
    image: pieces,
    confidenceMin: asked.confidenceMin,
    signal: asked.signal,
    isBatch: true,
  });
  if (!answer) return shed("no_line");
  const own = { told: told(answer.predictions), ms: parts.clock() - started, cold: answer.cold };
  return {
    counts: { compared: 1, ...differencesOf(live.told, own.told) },
    sample: answeredSample(own, live),
  };
}
