// The task of looking for what prompts mean on a file of the store.

import { z } from "zod";
import { Uncut } from "./predict-task.ts";
import { SamRequest } from "./sam.ts";
import { ObjectSource } from "./task-objects.ts";

export const SamTask = SamRequest.extend({
  video: ObjectSource,
  /** Frames a second to look at; null is every frame. */
  fps: z.number().positive().nullable(),
  frames_max: z.number().int().positive(),
  uncut: Uncut,
});
