// Every route of serving, behind the access token.

import type { App } from "../../http/app.ts";
import { authenticate } from "../auth/scope.ts";
import { API } from "../base/api.ts";
import type { Parts } from "../base/parts.ts";
import { letPass } from "../uploads/form.ts";
import { addPredictions } from "./predict-routes.ts";
import { addServe } from "./serve-routes.ts";

const GUARDED = ["/predict/*", "/serve/*", "/models/:model_id/activate"];

/** Registers the routes on the service. */
export function addServingRoutes(app: App<Parts>) {
  for (const path of GUARDED) app.use(`${API}${path}`, authenticate());
  // A query that is refused leaves its body unread, and its sender would not see why.
  app.use(`${API}/predict/*`, async (context, next) => {
    await next();
    const { raw } = context.req;
    if (context.error && !raw.bodyUsed) await letPass(raw);
  });
  addPredictions(app);
  addServe(app);
}
