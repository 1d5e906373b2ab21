// Jobs compared over HTTP.

import { z } from "@hono/zod-openapi";
import { JobComparison } from "../../../../shared/wire/labeling.ts";
import { json } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { type Route, route } from "../../base/route.ts";
import { jobFor, jobId } from "../jobs/access.ts";
import { compareJobs } from "./comparison.ts";

/** The route that compares jobs. */
export const comparisonRoutes: readonly Route[] = [
  route(
    {
      call: "GET /jobs/{job_id}/compare",
      operationId: "compareJobs",
      tag: "Datasets",
      summary: "A job's precision, recall and AP by another job as the truth",
      description:
        "Beyond the contract; for viewers. `truth_job_id` is a job of the same project, such as an " +
        "import or a reviewed one; classes are matched by name, over the frames that both have " +
        "labeled. Average precision is COCO's, as pycocotools computes it for boxes, of all stored " +
        "annotations of the job; precision and recall are at the job's threshold and an IoU of 0.5. " +
        "Rejected annotations and duplicates of another class count on neither side; what a person " +
        "drew has a confidence of 1. 422 for jobs of two projects, without a frame in common, or of " +
        "over 100,000 annotations together.",
      who: user,
      params: jobId,
      query: z.object({ truth_job_id: z.uuid() }),
      answers: { 200: json("the figures", JobComparison) },
    },
    async (context) => {
      const job = await jobFor(context, context.req.valid("param").job_id, "viewer");
      const truth = await jobFor(context, context.req.valid("query").truth_job_id, "viewer");
      return context.json(await compareJobs(context.var.service.database, job, truth), 200);
    },
  ),
];
