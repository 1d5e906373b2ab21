// The registry of models, and weights that were uploaded.

import type { TaskRoom } from "../tasks/room.ts";
import { type ModelHooks, modelRoutes } from "./routes.ts";
import { weightsRoutes } from "./weights-routes.ts";

/** The room of models, whose names and deletions these hear of. */
export const models = (hooks: ModelHooks): TaskRoom => ({
  routes: [...modelRoutes(hooks), ...weightsRoutes],
});
