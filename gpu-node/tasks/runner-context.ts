// What a runner of this room works with: a task's context, and the models that its process has
// open.

import type { MediaContext } from "../media/footage.ts";
import type { Segmenter } from "../segmenters/segmenter.ts";
import type { Predictors } from "../serving/predictors.ts";
import type { Encodings } from "./encodings.ts";

export interface RunnerContext extends MediaContext {
  /**
   * Works with a segmenter by name, opened for it unless it is open; null names the default. No
   * other one is opened meanwhile.
   */
  useSegmenter<Result>(
    name: string | null,
    work: (segmenter: Segmenter) => Promise<Result>,
  ): Promise<Result>;
  /** Frames that were clicked last, encoded; they live as long as the process. */
  encodings: Encodings;
  /** Models that were used last, open; they live as long as the process. */
  predictors: Predictors;
}
