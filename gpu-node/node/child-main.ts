// The program of a child process, with the installed segmenters.

import { openSegmenter } from "../segmenters/registry.ts";
import { serve } from "./child.ts";

serve(openSegmenter);
