// Every route of serving, behind the access token.

import type { App } from "../../http/app.ts";
import { API, type Parts } from "../auth/parts.ts";
import { authenticate } from "../auth/scope.ts";
import { addPredictions } from "./predict-routes.ts";
import { addServe } from "./serve-routes.ts";

const GUARDED = ["/predict/*", "/serve/*", "/models/:model_id/activate"];

/** Registers the routes on the service. */
export function addServingRoutes(app: App<Parts>) {
  for (const path of GUARDED) app.use(`${API}${path}`, authenticate());
  addPredictions(app);
  addServe(app);
}
