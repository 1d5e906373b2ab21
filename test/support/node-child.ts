// The program of a test node's child processes: the real one, with the tests' segmenter.

import { serve } from "../../gpu-node/child.ts";
import { openRectangles } from "./rectangles.ts";

serve(async () => openRectangles());
