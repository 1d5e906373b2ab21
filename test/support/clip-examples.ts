// Predictions on clips that examples tell of.

import { form, mp4 } from "./media.ts";
import type { Api } from "./scripted-node.ts";

/** A clip predicted on by the model, and one by a segmenter: their ids. */
export async function clipPredictions(api: Api): Promise<{ detected: string; segmented: string }> {
  const clip = { content: mp4() };
  const detected = await api.ok<{ prediction_id: string }>("POST", "/predict/video", form(clip));
  const prompted = form(["prompts", "person"], clip);
  const segmented = await api.ok<{ prediction_id: string }>(
    ...(["POST", "/predict/sam/video"] as const),
    prompted,
  );
  return { detected: detected.prediction_id, segmented: segmented.prediction_id };
}
