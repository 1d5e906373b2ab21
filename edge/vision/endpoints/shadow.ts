// A shadow: another model that looks at the images of answered requests, to see what it would have
// said. It comes after the answer, gets no place at a node that requests may soon need, and as many
// images are under way as may be held; what is let go is counted.

import { Failure } from "../../../shared/errors.ts";
import type { Prediction } from "../../../shared/tasks.ts";
import type { Parts } from "../base/parts.ts";
import type { ModelRow } from "../registry/models.ts";
import { predictDirectly } from "../serving/direct.ts";
import type { ReceivedImage } from "../serving/image-requests.ts";
import type { HeldFile } from "../serving/predictions.ts";
import { differencesOf } from "./differences.ts";
import { type MeterRpc, tell } from "./meter.ts";
import { emptyShadow, type ShadowCounts } from "./rollups.ts";

/** Images of an isolate that shadows look at, at once: each is held in memory meanwhile, twice. */
const UNDER_WAY_MAX = 4;
const BYTES_MAX = 8 * 1024 * 1024;
/** The platform ends what goes on for longer after an answer. */
const SHADOW_MS = 20_000;

/** What shadows of this isolate look at now. */
const underWay = { images: 0, bytes: 0 };

/** An answered request that a shadow is to look at. */
export interface AnsweredImage {
  image: ReceivedImage;
  /** What was told of it. */
  live: readonly Prediction[];
  /** What of the shadow's detections would have been told. */
  told: (predictions: readonly Prediction[]) => Prediction[];
  confidenceMin: number;
}

/** Has a shadow look at an answered request's image, and counts what that came to. Never fails. */
export async function mirror(
  parts: Parts,
  { model, meter }: { model: ModelRow; meter: MeterRpc },
  answered: AnsweredImage,
): Promise<void> {
  const { modelId } = model;
  const counts = { ...emptyShadow(), mirrored: 1, ...(await outcomeOf(parts, model, answered)) };
  const report = { id: crypto.randomUUID(), at: parts.clock(), modelId, counts };
  await tell(parts, () => meter.recordShadow(report));
}

type Outcome = Partial<ShadowCounts>;

async function outcomeOf(
  parts: Parts,
  model: ModelRow,
  { image, ...answered }: AnsweredImage,
): Promise<Outcome> {
  // It went by the store, and is there no more.
  if (!("pieces" in image)) return { shed: { too_large: 1 } };
  const { pieces } = image;
  const bytes = pieces.reduce((sum, { length }) => sum + length, 0);
  const isFull = underWay.images >= UNDER_WAY_MAX || underWay.bytes + bytes > BYTES_MAX;
  if (isFull) return { shed: { busy: 1 } };
  underWay.images += 1;
  underWay.bytes += bytes;
  try {
    return await look(parts, model, { ...answered, pieces });
  } catch (error) {
    if (error instanceof Failure && error.code === "overloaded") return { shed: { nodes_full: 1 } };
    parts.log.warning("shadow_failed", { model_id: model.modelId, error });
    return { failed: 1 };
  } finally {
    underWay.images -= 1;
    underWay.bytes -= bytes;
  }
}

async function look(
  parts: Parts,
  model: ModelRow,
  { pieces, live, told, confidenceMin }: Omit<AnsweredImage, "image"> & HeldFile,
): Promise<Outcome> {
  // The answer goes first.
  await new Promise<void>((resume) => setTimeout(resume, 0));
  const answer = await predictDirectly(parts, model, {
    image: pieces,
    confidenceMin,
    signal: AbortSignal.timeout(SHADOW_MS),
    isBatch: true,
  });
  if (!answer) return { shed: { no_line: 1 } };
  return { compared: 1, ...differencesOf(live, told(answer.predictions)) };
}
