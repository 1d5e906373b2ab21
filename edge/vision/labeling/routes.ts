// Every route of labeling and review, behind the access token.

import type { App } from "../../http/app.ts";
import { API, type Parts } from "../auth/parts.ts";
import { authenticate } from "../auth/scope.ts";
import { addClasses } from "./class-routes.ts";
import { addExports } from "./export-routes.ts";
import { addJobs } from "./job-routes.ts";
import { addLabel } from "./label-routes.ts";
import { addReview } from "./review-routes.ts";

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
