// Exporting a job as a dataset.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { EXPORT_CONTENTS, EXPORT_FORMATS, EXPORT_NAMES } from "../../../../shared/tasks/tasks.ts";
import { DatasetInclude } from "../../../../shared/wire/dataset-report.ts";
import { DatasetExport } from "../../../../shared/wire/labeling.ts";
import { headers } from "../../../http/description.ts";
import { errorResponses, json } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { callerOf, workspacesOf } from "../../auth/scope.ts";
import { originOf, pageQuery } from "../../base/api.ts";
import { listAnswer, statusQuery, tellTotal } from "../../base/lists.ts";
import { type Route, route } from "../../base/route.ts";
import { jobFor, jobId } from "../jobs/access.ts";
import { isLive, stillRuns } from "../jobs/jobs.ts";
import { awaitExport, findExport, listExports, startExport } from "./exports.ts";

const tag = "Datasets";

/** The header of an archive that is being made; one that failed is not worth another try. */
const retryAfter = {
  description: "seconds to wait before the next try, while the archive is being made",
  schema: { type: "integer" as const, minimum: 1 },
};
const notMade = Object.fromEntries(
  Object.entries(errorResponses("state_conflict")).map(([status, declared]) => [
    status,
    { ...declared, headers: { "Retry-After": retryAfter } },
  ]),
);

/** How an archive is laid out. */
export const Layout = z.strictObject({
  format: z
    .enum(EXPORT_FORMATS)
    .default("yolo")
    .meta({
      description: Object.entries(EXPORT_CONTENTS)
        .map(([format, content]) => `\`${format}\`: ${content}`)
        .join("; "),
    }),
  rectangles: z
    .boolean()
    .default(true)
    .meta({
      description:
        "in `coco` and `yolo-seg` a box without a mask has its rectangle as polygon, so that readers of " +
        "masks take every annotation; without it `segmentation` is empty, and the line is a box's",
    }),
  names: z
    .enum(EXPORT_NAMES)
    .default("frames")
    .meta({
      description:
        "what images are called: `frames` is `<video name>_<frame index in six digits>` for all of " +
        "them; `original` is a still's path as it was uploaded, with its folders, made safe for any " +
        "system. Names that are alike get a part of the video's id",
    }),
});

const Options = z.strictObject({
  ...Layout.shape,
  val_share: z
    .number()
    .min(0)
    .max(0.9)
    .default(0.2)
    .meta({
      description:
        "share of the frames for validation, 0 to 1; split by video, or a single video by blocks of " +
        "time. Frames whose side the job's import brought along stay there; where it brought frames " +
        "for validation, no others are drawn",
    }),
  seed: z.int().min(0).max(4_294_967_295).default(0),
  include: DatasetInclude,
  background: z.boolean().default(true).meta({
    description: "frames without annotations are part of it, as background",
  }),
  duplicates: z
    .boolean()
    .default(false)
    .meta({
      description:
        "annotations that repeat a better one of the same object are part of it, though nobody " +
        "accepted them",
    }),
  split_gap: z
    .boolean()
    .default(false)
    .meta({
      description:
        "of a single video, leaves out the training frames within the gap of a validation frame: a " +
        "hundredth of the dataset's frames, at least one; of fewer than 20 frames it has none. " +
        "Without it every frame is part of it",
    }),
});

const exportId = z.object({ export_id: z.uuid() });

/** Routes of exports. */
export const exportRoutes: readonly Route[] = [
  route(
    {
      call: "POST /jobs/{job_id}/export",
      operationId: "exportDataset",
      tag,
      summary: "Make an object-detection dataset of a job",
      description:
        "For annotators. A zip of images and labels in the layout of `format`, each side apart where it has sides. " +
        "Every frame of the dataset is in it, unless `split_gap` leaves some out; " +
        "stills leave as the files that came, unless they are GIF or AVIF or EXIF turns them. The " +
        "answer waits for a small one; `download_url` of a larger one answers 409 until it is made.",
      who: user,
      params: jobId,
      body: { content: { "application/json": { schema: Options } }, required: false },
      answers: {
        200: json("the dataset is there", DatasetExport),
        202: json("the dataset is being made", DatasetExport),
      },
      errors: ["state_conflict", "task_failed"],
    },
    async (context) => {
      const parts = context.var.service;
      const job = await jobFor(context, context.req.valid("param").job_id, "annotator");
      if (isLive(job)) throw stillRuns(job);
      // Without a body there is nothing to validate: the defaults hold.
      const body = Options.parse(context.req.valid("json") ?? {});
      const { val_share: valShare, split_gap: splitGap, ...options } = body;
      const exportId = await startExport(parts, job, {
        options: { ...options, valShare, splitGap },
        createdBy: callerOf(context).accountId,
      });
      const wanted = { exportId, origin: originOf(context) };
      const found = await awaitExport(parts, job.workspaceId, wanted);
      return found.status === "completed" ? context.json(found, 200) : context.json(found, 202);
    },
  ),
  route(
    {
      call: "GET /jobs/{job_id}/exports",
      operationId: "listExports",
      tag,
      summary: "The exports of a job, newest first",
      description: "Beyond the contract.",
      who: user,
      params: jobId,
      query: z.object({
        ...pageQuery(100, 20),
        status: statusQuery(DatasetExport.shape.status.options),
      }),
      answers: { 200: listAnswer("the exports", DatasetExport) },
    },
    async (context) => {
      const job = await jobFor(context, context.req.valid("param").job_id, "viewer");
      const wanted = { ...context.req.valid("query"), origin: originOf(context) };
      const page = await listExports(context.var.service, { jobId: job.id }, wanted);
      tellTotal(context, page);
      return context.json(page.rows, 200);
    },
  ),
  route(
    {
      call: "GET /exports/{export_id}",
      operationId: "readExport",
      tag,
      summary: "How an export stands",
      who: user,
      params: exportId,
      answers: { 200: json("the export", DatasetExport) },
    },
    async (context) => {
      const wanted = {
        exportId: context.req.valid("param").export_id,
        origin: originOf(context),
      };
      const workspaces = workspacesOf(callerOf(context));
      return context.json(await findExport(context.var.service, workspaces, wanted), 200);
    },
  ),
  route(
    {
      call: "GET /exports/{export_id}/download",
      operationId: "downloadExport",
      tag,
      summary: "The archive of an export",
      who: user,
      params: exportId,
      answers: {
        302: { description: "to the archive, signed for 15 minutes", headers: headers("Location") },
        ...notMade,
      },
      errors: ["state_conflict"],
    },
    async (context) => {
      const wanted = {
        exportId: context.req.valid("param").export_id,
        origin: originOf(context),
      };
      const workspaces = workspacesOf(callerOf(context));
      const found = await findExport(context.var.service, workspaces, wanted);
      if (found.status === "completed") return context.redirect(found.download_url, 302);
      const why =
        found.status === "failed" ? `failed: ${found.failure}` : "is being made; try again";
      if (found.status === "queued") context.header("Retry-After", "5");
      throw new Failure("state_conflict", `the export ${why}`);
    },
  ),
];
