// Masks in predictions: who may ask for them, and what a node says of them, which is not believed.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import type { MaskedPrediction } from "../../../../shared/tasks/predict-task.ts";
import { MASK_FORMS, type MaskForm, type SamMask } from "../../../../shared/tasks/sam.ts";
import type { ModelRow } from "../../models/registry.ts";
import { maskProblem, type Size } from "../../tasks/nodes/detections.ts";

/** The form of masks, as requests say it. */
export const maskQuery = z
  .enum(MASK_FORMS)
  .default("none")
  .meta({
    description:
      "beyond the contract: each object's mask, of a segmentation model; GPU nodes draw them, the " +
      "edge never does",
  });

/** Whether a model makes masks of a form, or none are asked. */
export const makesMasks = ({ task }: Pick<ModelRow, "task">, form: MaskForm): boolean =>
  form === "none" || task === "segmentation";

/** Fails with `invalid_request` where masks are asked of a model that makes none. */
export function requireMasks(model: Pick<ModelRow, "task">, form: MaskForm): void {
  if (makesMasks(model, form)) return;
  const detail = "mask: the model detects, and makes boxes only; name a segmentation model";
  throw new Failure("invalid_request", detail);
}

/** Numbers of a mask as it is told: run lengths, or coordinates. */
export const numbersOf = (mask: SamMask | null | undefined): number => {
  if (!mask) return 0;
  return "rle" in mask ? mask.rle.counts.length : mask.polygon.length;
};

/** What masks were asked for, and what all of them may take. */
export interface AskedMasks {
  form: MaskForm;
  size: Size;
  numbersMax: number;
}

/** What is wrong with the masks of objects, in words for people, or null. */
export function masksProblem(
  found: readonly MaskedPrediction[],
  { form, size, numbersMax }: AskedMasks,
): string | null {
  for (const { mask } of found) {
    if (form === "none") {
      if (mask !== undefined) return "masks that nobody asked for";
      continue;
    }
    // What nobody drew must not pass for what is not there.
    if (mask === undefined) return "no masks";
    const problem = mask && maskProblem(mask, form, size);
    if (problem) return problem;
  }
  const numbers = found.reduce((sum, { mask }) => sum + numbersOf(mask), 0);
  return numbers > numbersMax ? "the masks take too many numbers" : null;
}
