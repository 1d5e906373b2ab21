// What a node says that it found, read: hundreds of objects in each answer, so those that are as
// they always are pass without the schema, which takes half a millisecond for them in a Worker.

import { LineAnswer } from "../../../../shared/tasks/line.ts";
import type { MaskedPrediction } from "../../../../shared/tasks/predict-task.ts";

/** What a body of JSON says as an answer, as `LineAnswer` reads it; null where it is none. */
export function lineAnswerOf(said: unknown): LineAnswer | null {
  const found = isRecord(said) ? plainPredictions(said.predictions) : null;
  if (!found) return LineAnswer.safeParse(said).data ?? null;
  const rest = LineAnswer.safeParse({ ...(said as object), predictions: [] }).data;
  return rest ? { ...rest, predictions: found } : null;
}

/** Objects without masks that the schema would take; null where it has to be asked. */
function plainPredictions(given: unknown): MaskedPrediction[] | null {
  if (!Array.isArray(given)) return null;
  const found: MaskedPrediction[] = [];
  for (const one of given as unknown[]) {
    if (!isRecord(one) || "mask" in one) return null;
    const { class: name, confidence, bbox } = one;
    if (typeof name !== "string" || typeof confidence !== "number") return null;
    if (!(confidence >= 0 && confidence <= 1) || !isBbox(bbox)) return null;
    found.push({ class: name, confidence, bbox });
  }
  return found;
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** As `Bbox` has it. */
function isBbox(value: unknown): value is MaskedPrediction["bbox"] {
  if (!Array.isArray(value) || value.length !== 4) return false;
  if (!value.every((corner) => Number.isFinite(corner))) return false;
  const [x1, y1, x2, y2] = value as MaskedPrediction["bbox"];
  return Math.fround(x2) > Math.fround(x1) && Math.fround(y2) > Math.fround(y1);
}
