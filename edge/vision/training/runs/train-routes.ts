// Before a run and at its start: what may be trained, how good a dataset is, and the start.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { InstalledWeights } from "../../../../shared/tasks/node-protocol.ts";
import { iso } from "../../../../shared/time.ts";
import { DatasetInclude, DatasetReport } from "../../../../shared/wire/dataset-report.ts";
import { TrainSettings, WeightsFile } from "../../../../shared/wire/training.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { name, text } from "../../../http/texts.ts";
import { user } from "../../auth/audience.ts";
import { answerOnce, IdempotencyKey } from "../../auth/idempotency.ts";
import { callerOf, workspacesOf } from "../../auth/scope.ts";
import { type Route, route } from "../../base/route.ts";
import { jobFor, jobId } from "../../labeling/jobs/access.ts";
import { datasetFor } from "../../labeling/versions/dataset-routes.ts";
import { listModels } from "../../models/registry.ts";
import { listWeights } from "../../models/weights.ts";
import { knownWeights } from "../../tasks/nodes/nodes.ts";
import { jobData, reportOf, versionFor } from "./dataset.ts";
import { startRun } from "./runs.ts";
import { TrainOptions, trainOptions, VariantRecord, variantRecords } from "./variants.ts";

const tag = "Training";

const StartingModel = z.object({
  model_id: z.uuid(),
  name: z.string(),
  version: z.number().int(),
  classes: z.array(z.string()),
});

const TrainBody = TrainSettings.extend({
  job_id: z.uuid().optional().meta({ description: "a finished job; or `dataset_id`" }),
  dataset_id: z.uuid().optional().meta({
    description: "beyond the contract: a dataset of jobs, in place of `job_id`",
  }),
  version: z
    .int()
    .min(1)
    .max(2_147_483_647)
    .optional()
    .meta({
      description:
        "beyond the contract: a version of the dataset; what it holds now, written down as its next " +
        "version, when omitted. Its own split and `include` hold",
    }),
  name: name()
    .max(200)
    .optional()
    .meta({ description: "also its model's; the variant and the day when omitted" }),
  notes: text().max(10_000).default(""),
})
  .strict()
  .refine(({ job_id, dataset_id }) => (job_id === undefined) !== (dataset_id === undefined), {
    error: "give either a job or a dataset",
    path: ["job_id"],
  })
  .refine(({ version, dataset_id }) => version === undefined || dataset_id !== undefined, {
    error: "only with dataset_id",
    path: ["version"],
  });

/** Settings of a run over a job that a dataset has of its own. */
const OF_DATASETS = ["val_share", "include"] as const;

/** Routes before a run, and its start. */
export const trainRoutes: readonly Route[] = [
  route(
    {
      call: "GET /train/variants",
      operationId: "listVariants",
      tag,
      summary: "Detector variants and every option of a run",
      who: user,
      answers: {
        200: json(
          "variants, smallest first; options with their defaults; what a run may start from",
          z.object({
            variants: z.array(VariantRecord),
            options: TrainOptions.extend({
              pretrained: z.object({
                models: z.array(StartingModel),
                weights: z.array(WeightsFile),
                datasets: z
                  .array(InstalledWeights)
                  .meta({ description: "sets that nodes have installed, by variant" }),
              }),
            }),
          }),
        ),
      },
    },
    async (context) => {
      const { database } = context.var.service;
      const workspaces = workspacesOf(callerOf(context));
      const [models, weights, datasets] = await Promise.all([
        listModels(database, workspaces),
        listWeights(database, workspaces),
        knownWeights(database, workspaces),
      ]);
      const starting = models.map((one) => ({
        model_id: one.modelId,
        name: one.name,
        version: one.version,
        classes: one.classes,
      }));
      const options = { ...trainOptions(), pretrained: { models: starting, weights, datasets } };
      return context.json({ variants: variantRecords(), options }, 200);
    },
  ),
  route(
    {
      call: "GET /train/dataset-stats/{job_id}",
      operationId: "readDatasetReport",
      tag,
      summary: "How good a job's annotations are to train on",
      description:
        "Counts annotations at or above the job's threshold that nobody rejected, without duplicates, " +
        "on every frame; with `include=accepted` those that were accepted, on frames where nothing " +
        "is pending. Frames of a single video that a run leaves out between the two sides of its " +
        "split are counted apart, as `left_out_frames`. " +
        "Recommended by annotated frames: under 50 det26n, aggressive, 150 epochs; from 50 " +
        "det26n, from 200 det26s, from 1,000 det26m, each standard and 100 epochs; 1280 px where 25 % " +
        "of the objects or more are smaller than 1 % of their frame. Warns of classes on fewer than " +
        "100 frames, of a ratio of 10 or more between the most frequent class and the rarest, of a " +
        "rarest class with fewer than 20 instances (severe under 10), and of classes with none, " +
        "which the ratio leaves out.",
      who: user,
      params: jobId,
      query: z.object({ include: DatasetInclude }),
      answers: { 200: json("the report", DatasetReport) },
    },
    async (context) => {
      const job = await jobFor(context, context.req.valid("param").job_id, "viewer");
      const split = TrainSettings.parse({ include: context.req.valid("query").include });
      return context.json(await reportOf(context.var.service.database, job, split), 200);
    },
  ),
  route(
    {
      call: "POST /train",
      operationId: "startRun",
      tag,
      summary: "Train a detector on a finished labeling job",
      description:
        "For engineers. The dataset is written down as it is now: later edits of the job change " +
        "nothing of the run. A dataset of jobs (`dataset_id`) is trained on as one of its versions. Only a finished job is trained on, as with add-class: one that was stopped " +
        "or failed is 409 until it is resumed to its end, or duplicated. `task: segmentation` of a " +
        "job without a mask to learn from is 422. On success a model is registered. A run needs room for its weights in the workspace's storage, " +
        "and is never refused at its end. First weights may be a model of the registry, a file of " +
        "your own, or a set by name that an operator installed on nodes. With an Idempotency-Key a repeated request starts one run.",
      who: user,
      body: jsonBody(TrainBody),
      headers: IdempotencyKey,
      answers: { 202: json("the run; a GPU node does it", z.object({ run_id: z.uuid() })) },
      errors: ["not_found", "state_conflict", "idempotency_conflict", "quota_exceeded"],
    },
    async (context) => {
      const parts = context.var.service;
      const body = context.req.valid("json");
      const {
        job_id: jobId,
        dataset_id: datasetId,
        version,
        name: wanted,
        notes,
        ...settings
      } = body;
      const { accountId: createdBy } = callerOf(context);
      // Defaults stand in the body that was read, and not in the one that was sent.
      const sent = datasetId ? Object.keys(await context.req.json<object>()) : [];
      const own = OF_DATASETS.find((setting) => sent.includes(setting));
      if (own) {
        throw new Failure("invalid_request", `${own}: is the dataset's own: PATCH /datasets/{id}`);
      }
      const origin = datasetId
        ? await datasetFor(context, datasetId, "engineer")
        : await jobFor(context, jobId ?? "", "engineer");
      const key = context.req.valid("header")["idempotency-key"];
      const once = { workspaceId: origin.workspaceId, route: "train", key, body };
      const answer = await answerOnce(parts, once, async () => {
        const data =
          "members" in origin
            ? await versionFor(parts, origin, { number: version, createdBy })
            : jobData(origin);
        const runName = wanted ?? `${settings.variant} ${iso(parts.clock()).slice(0, 10)}`;
        const runId = await startRun(parts, data, { name: runName, notes, settings, createdBy });
        return { status: 202, body: { run_id: runId } };
      });
      return context.json(answer.body, 202);
    },
  ),
];
