// Agreement of two jobs over HTTP.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { decimal } from "../../../../shared/scalars.ts";
import { JobAgreement } from "../../../../shared/wire/collaboration.ts";
import { json } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { type Route, route } from "../../base/route.ts";
import { jobFor, jobId } from "../jobs/access.ts";
import { jobAgreement } from "./agreement.ts";

/** The route of agreement. */
export const agreementRoutes: readonly Route[] = [
  route(
    {
      call: "GET /jobs/{job_id}/agreement",
      operationId: "readAgreement",
      tag: "Review",
      summary: "How far two people agree who labeled the same frames in two jobs",
      description:
        "Beyond the contract; for viewers. `with_job_id` is another job of the same project, such as a " +
        "copy that somebody else labels. Over the frames that both have labeled, boxes of one class " +
        "are matched one to one, those first that overlap most, from an IoU of `iou` on. Neither job is the " +
        "truth: exchanged, they have the same figures. Annotations below their job's threshold, " +
        "rejected ones and duplicates do not count; classes are matched by name. 422 for jobs of two " +
        "projects, without a frame in common, or of over 100,000 annotations together.",
      who: user,
      params: jobId,
      query: z.object({
        with_job_id: z.uuid(),
        iou: decimal((number) => number.min(0.1).max(0.95))
          .default(0.5)
          .meta({ description: "overlap from which two boxes may stand for one object" }),
      }),
      answers: { 200: json("the agreement", JobAgreement) },
    },
    async (context) => {
      const job = await jobFor(context, context.req.valid("param").job_id, "viewer");
      const { with_job_id: otherId, iou: iouMin } = context.req.valid("query");
      const other = await jobFor(context, otherId, "viewer");
      if (other.id === job.id) {
        throw new Failure("invalid_request", "with_job_id: is the same job; name another");
      }
      const { database } = context.var.service;
      return context.json(await jobAgreement(database, { job, other, iouMin }), 200);
    },
  ),
];
