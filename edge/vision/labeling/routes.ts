// Every route of labeling and review, behind the access token.

import type { App } from "../../http/app.ts";
import { authenticate } from "../auth/scope.ts";
import { API } from "../base/api.ts";
import type { Parts } from "../base/parts.ts";
import { addExports } from "../datasets/export-routes.ts";
import { addClasses } from "../review/class-routes.ts";
import { addReview } from "../review/review-routes.ts";
import { addJobs } from "./job-routes.ts";
import { addLabel } from "./label-routes.ts";

const GUARDED = [
  ...["/label", "/label/*", "/status/*", "/jobs", "/jobs/*", "/import"],
  ...["/annotations", "/annotations/*", "/changes/*", "/exports/*"],
];

/** Registers the routes on the service. */
export function addLabelingRoutes(app: App<Parts>) {
  for (const path of GUARDED) app.use(`${API}${path}`, authenticate());
  addLabel(app);
  addJobs(app);
  // Before the routes of single annotations: its path would be one of their ids.
  addClasses(app);
  addReview(app);
  addExports(app);
}
