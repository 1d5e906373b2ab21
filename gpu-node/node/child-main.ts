// The program of a child process, with the installed segmenters.

import { openSegmenter } from "../segmenters/segmenter.ts";
import { serve } from "./child.ts";

serve(openSegmenter);
