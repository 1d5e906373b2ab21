// All prompts on one image: encoded once, found objects in pixels of the source frame.

import type { Bbox, Detection } from "../../shared/tasks/tasks.ts";
import { STORED_CONFIDENCE_MIN } from "../../shared/wire/labeling.ts";
import { clip } from "../media/geometry.ts";
import type { RgbImage } from "../media/image.ts";
import { shrink } from "../media/stills.ts";
import { flagDuplicates } from "../segmenters/duplicates.ts";
import type { Segmenter } from "../segmenters/segmenter.ts";
import type { ReadyPrompt } from "./prompts.ts";

/** A detection and the index of the prompt that it answers. */
export interface PromptDetection {
  prompt: number;
  detection: Detection;
}

const hundredths = (value: number) => Math.round(value * 100) / 100;

/** What all prompts find on an image, by prompt and falling confidence, duplicates flagged. */
export async function detectAll(
  segmenter: Segmenter,
  whole: RgbImage,
  prompts: readonly ReadyPrompt[],
  resolution: number | null,
): Promise<PromptDetection[]> {
  const image = await shrink(whole, resolution);
  const encoded = await segmenter.encode(image);
  try {
    const byPrompt = await segmenter.detect(
      encoded,
      prompts.map(({ prompt }) => prompt),
      { confidenceMin: STORED_CONFIDENCE_MIN, masks: true },
    );
    const x = whole.width / image.width;
    const y = whole.height / image.height;
    const found = prompts.flatMap(({ className }, prompt) =>
      (byPrompt[prompt] ?? []).flatMap(({ bbox, confidence, polygon }): PromptDetection[] => {
        const scaled = bbox.map((corner, at) => hundredths(corner * (at % 2 ? y : x))) as Bbox;
        const inside = clip(scaled, whole);
        if (!inside || confidence < STORED_CONFIDENCE_MIN) return [];
        const detection: Detection = {
          class_name: className,
          bbox: inside,
          confidence: Math.round(Math.min(1, confidence) * 10_000) / 10_000,
          polygon: polygon?.map((corner, at) => hundredths(corner * (at % 2 ? y : x))) ?? null,
          duplicate_of: null,
        };
        return [{ prompt, detection }];
      }),
    );
    const flags = flagDuplicates(found.map(({ detection }) => detection));
    found.forEach(({ detection }, index) => {
      detection.duplicate_of = flags[index] ?? null;
    });
    return found;
  } finally {
    encoded.dispose();
  }
}
