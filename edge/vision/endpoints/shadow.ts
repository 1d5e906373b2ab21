// A shadow: another model that looks at the images of answered requests, to see what it would have
// said. It comes after the answer, gets no place at a node that requests may soon need, and as many
// images are under way as may be held; what is let go is counted.

import { Failure } from "../../../shared/errors.ts";
import type { Prediction } from "../../../shared/tasks.ts";
import type { Parts } from "../base/parts.ts";
import type { ModelRow } from "../registry/models.ts";
import { predictDirectly } from "../serving/direct.ts";
import type { ReceivedImage } from "../serving/image-requests.ts";
import { differencesOf } from "./differences.ts";
import { type MeterRpc, tell } from "./meter.ts";
import { emptyShadow, type ShadowCounts } from "./rollups.ts";

/** Images of an isolate that shadows look at, at once: each is held in memory meanwhile. */
export const UNDER_WAY_MAX = 4;
/** The platform ends what goes on for longer after an answer. */
const SHADOW_MS = 20_000;

/** How many images shadows of this isolate look at now. */
let underWay = 0;

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
  const counts: ShadowCounts = { ...emptyShadow(), mirrored: 1 };
  // The answer goes first.
  await new Promise<void>((resume) => setTimeout(resume, 0));
  if (underWay >= UNDER_WAY_MAX) counts.shed.busy = 1;
  else {
    underWay += 1;
    try {
      await look(parts, model, { ...answered, counts });
    } catch (error) {
      if (error instanceof Failure && error.code === "overloaded") counts.shed.nodes_full = 1;
      else {
        counts.failed = 1;
        parts.log.warning("shadow_failed", { model_id: model.modelId, error });
      }
    } finally {
      underWay -= 1;
    }
  }
  const { modelId } = model;
  await tell(parts, () => meter.recordShadow({ at: parts.clock(), modelId, counts }));
}

async function look(
  parts: Parts,
  model: ModelRow,
  { image, live, told, confidenceMin, counts }: AnsweredImage & { counts: ShadowCounts },
): Promise<void> {
  if (!("pieces" in image)) {
    // It went by the store, and is there no more.
    counts.shed.too_large = 1;
    return;
  }
  const answer = await predictDirectly(parts, model, {
    image: image.pieces,
    confidenceMin,
    signal: AbortSignal.timeout(SHADOW_MS),
    isBatch: true,
  });
  if (!answer) {
    counts.shed.no_line = 1;
    return;
  }
  counts.compared = 1;
  Object.assign(counts, differencesOf(live, told(answer.predictions)));
}
