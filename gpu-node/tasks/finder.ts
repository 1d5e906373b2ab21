// What looks for objects on the frames of a labeling task: a segmenter by its prompts, or a model
// of the registry by its classes.

import type { MaskedPrediction } from "../../shared/tasks/predict-task.ts";
import type { Detection, ModelSource, TaskPayload } from "../../shared/tasks/tasks.ts";
import { STORED_CONFIDENCE_MIN } from "../../shared/wire/labeling.ts";
import type { RgbImage } from "../media/image.ts";
import { shrink } from "../media/stills.ts";
import { flagDuplicates } from "../segmenters/duplicates.ts";
import type { PredictOptions, Predictor } from "../serving/predictor.ts";
import { IMAGE_MASKS } from "../serving/prototype-masks.ts";
import { detectAll } from "./detect.ts";
import { asTaskFailure, readyPrompts } from "./prompts.ts";
import type { RunnerContext } from "./runner-context.ts";

/** What a labeling task says of who looks, and for what. */
type Search = Pick<TaskPayload<"label">, "model" | "prompts" | "resolution" | "segmenter">;

export interface Finder {
  /** The segmenter's name, or the model's id. */
  name: string;
  /** What people are to know of what the prompts find. */
  warnings: string[];
  /** What is on a frame, in pixels of it, duplicates flagged. */
  find(frame: RgbImage): Promise<Detection[]>;
}

/** Works with what a task looks for objects with. Fails with a TaskFailure. */
export async function withFinder<Result>(
  search: Search,
  context: RunnerContext,
  work: (finder: Finder) => Promise<Result>,
): Promise<Result> {
  const { model, segmenter: name, prompts, resolution } = search;
  if (model) {
    return context.predictors.use(model, context.cancel, (predictor) =>
      work(modelFinder(predictor, model, search)),
    );
  }
  try {
    return await context.useSegmenter(name, async (segmenter) => {
      const { ready, warnings } = await readyPrompts(context, segmenter, prompts);
      const find = async (frame: RgbImage) => {
        const found = await detectAll(segmenter, frame, ready, resolution);
        return found.map(({ detection }) => detection);
      };
      return work({ name: segmenter.info.name, warnings, find });
    });
  } catch (thrown) {
    throw asTaskFailure(thrown);
  }
}

/** The objects of a model's classes that text prompts name. */
function modelFinder(
  predictor: Predictor,
  { model_id, task }: ModelSource,
  { prompts, resolution }: Search,
): Finder {
  const names = new Map(
    prompts.flatMap((prompt) => (prompt.kind === "text" ? [[prompt.text, prompt.class_name]] : [])),
  );
  const find = async (frame: RgbImage) => {
    const image = await shrink(frame, resolution);
    const options = { of: frame, confidence: STORED_CONFIDENCE_MIN };
    const found: MaskedPrediction[] =
      task === "segmentation"
        ? await outlined(predictor, image, options)
        : await predictor.predict(image, options);
    const detections = found.flatMap(({ class: own, bbox, confidence, mask }): Detection[] => {
      const name = names.get(own);
      if (name === undefined) return [];
      const polygon = mask && "polygon" in mask ? mask.polygon : null;
      return [{ class_name: name, bbox, confidence, polygon, duplicate_of: null }];
    });
    const flags = flagDuplicates(detections);
    return detections.map((one, index) => ({ ...one, duplicate_of: flags[index] ?? null }));
  };
  return { name: model_id, warnings: [], find };
}

async function outlined(
  predictor: Predictor,
  image: RgbImage,
  options: PredictOptions,
): Promise<MaskedPrediction[]> {
  const outline = await predictor.outline(image, options);
  return (await predictor.masked(outline, "polygon", IMAGE_MASKS)).predictions;
}
