// Crops of annotations over HTTP.

import { z } from "@hono/zod-openapi";
import { CROP_IDS_MAX, writeCropAnswer } from "../../../../shared/crop-answer.ts";
import { binary } from "../../../http/description.ts";
import { jsonBody } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { type Route, route } from "../../base/route.ts";
import { jobFor, jobId } from "../jobs/access.ts";
import { cropsOf } from "./crops.ts";

const ANSWER_TYPE = "application/octet-stream";

/** Routes of crops. */
export const cropRoutes: readonly Route[] = [
  route(
    {
      call: "POST /jobs/{job_id}/crops",
      operationId: "readCrops",
      tag: "Review",
      summary: "Small images of up to 64 annotations",
      description:
        "Beyond the contract. JPEGs of at most 128 pixels a side: the box with a margin of 15 % of its " +
        'longer side. The answer, little-endian: "VCRA", then u32 version (1), u32 number of ids, u32 ' +
        "`missing`, then for each id in order an i32: the bytes of its JPEG, 0 where there is none " +
        "yet, -1 where the job has no such annotation; then the JPEGs one after the other. Nodes cut " +
        "crops while they label; what lacks, as after a box was moved, is asked for at once and not " +
        "waited for: `missing` says how many of them come, 0 while no node is there.",
      who: user,
      params: jobId,
      body: jsonBody(
        z.strictObject({
          annotation_ids: z.array(z.uuid()).min(1).max(CROP_IDS_MAX).meta({
            description: "annotations of the job, in the order of the answer",
          }),
        }),
      ),
      answers: { 200: { description: "the crops", content: { [ANSWER_TYPE]: binary } } },
      never: ["forbidden"],
    },
    async (context) => {
      const job = await jobFor(context, context.req.valid("param").job_id, "viewer");
      const { annotation_ids } = context.req.valid("json");
      const answer = writeCropAnswer(await cropsOf(context.var.service, job, annotation_ids));
      context.header("Content-Type", ANSWER_TYPE);
      context.header("Cache-Control", "private, no-cache");
      return context.body(answer, 200);
    },
  ),
];
