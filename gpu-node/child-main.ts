// The program of a child process, with the installed segmenters.

import { serve } from "./child.ts";
import { openSegmenter } from "./segmenters/segmenter.ts";

serve(openSegmenter);
