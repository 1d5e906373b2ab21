// Every route of training and the model registry, behind the access token.

import type { App } from "../../http/app.ts";
import { authenticate } from "../auth/scope.ts";
import { API } from "../base/api.ts";
import type { Parts } from "../base/parts.ts";
import { addModels, type BeforeActive } from "../registry/model-routes.ts";
import { addWeights } from "../registry/weights-routes.ts";
import { addRuns } from "./run-routes.ts";
import { addTrain } from "./train-routes.ts";

const GUARDED = ["/train", "/train/*", "/models", "/models/*", "/admin/training/*"];

/** Registers the routes on the service. */
export function addTrainingRoutes(
  app: App<Parts>,
  { beforeActive = async () => {} }: { beforeActive?: BeforeActive } = {},
) {
  for (const path of GUARDED) app.use(`${API}${path}`, authenticate());
  // Those that are named come before those that are a parameter.
  addTrain(app);
  addWeights(app);
  addRuns(app);
  addModels(app, beforeActive);
}
