// The program of a test node's child processes: the real one, with the tests' segmenter.

import { serve } from "../../gpu-node/node/child.ts";
import { BundleMissing } from "../../gpu-node/segmenters/failures.ts";
import { openRectangles } from "./rectangles.ts";

// Of this node; another of the fleet may have what it lacks.
serve(async (name) => {
  if (name === "elsewhere") throw new BundleMissing(name, ["rectangles"]);
  return openRectangles();
});
