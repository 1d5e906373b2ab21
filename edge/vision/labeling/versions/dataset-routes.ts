// Datasets over HTTP: their jobs, the sides of their videos, their versions.

import { z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { whole } from "../../../../shared/scalars.ts";
import { DatasetInclude } from "../../../../shared/wire/dataset-report.ts";
import {
  Dataset,
  DatasetSide,
  DatasetVersion,
  VideoSide,
} from "../../../../shared/wire/datasets.ts";
import { DatasetExport } from "../../../../shared/wire/labeling.ts";
import type { Role } from "../../../../shared/wire/vision.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { text, title } from "../../../http/texts.ts";
import { user } from "../../auth/audience.ts";
import { allow, callerOf, workspacesOf } from "../../auth/scope.ts";
import { originOf, pageQuery } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { type Route, route } from "../../base/route.ts";
import { findProjectFor } from "../../media/projects/projects.ts";
import { ClassName } from "../classes.ts";
import { Layout } from "../datasets/export-routes.ts";
import { awaitExport, listExports } from "../datasets/exports.ts";
import { findJob } from "../jobs/jobs.ts";
import {
  createDataset,
  type DatasetRow,
  datasetRecord,
  deleteDataset,
  editDataset,
  findDataset,
  listDatasets,
  listSides,
  MEASURED_SHARE_MAX,
  MEMBERS_MAX,
  putMember,
  removeMember,
  SHARES_RULE,
  setSide,
} from "./dataset-rows.ts";
import { startVersionExport } from "./version-exports.ts";
import { findVersion, listVersions, makeVersion, versionRecord } from "./versions.ts";

const tag = "Datasets";
const VAL_SHARE = 0.2;
const TEST_SHARE = 0.1;
const VIDEOS_MAX = 10_000;
const CLASSES_MAX = 1_000;

const { val_share, test_share } = Dataset.shape;
const words = { name: title(), description: text().max(10_000) };
const NewDataset = z
  .strictObject({
    project_id: z.uuid(),
    ...words,
    description: words.description.default(""),
    job_ids: z.array(z.uuid()).max(MEMBERS_MAX).default([]).meta({
      description: "jobs of the project's workspace; other ones can be added later",
    }),
    include: DatasetInclude,
    val_share: val_share.default(VAL_SHARE),
    test_share: test_share.default(TEST_SHARE),
  })
  .refine((one) => one.val_share + one.test_share <= MEASURED_SHARE_MAX, {
    error: SHARES_RULE,
    path: ["test_share"],
  });
const DatasetEdit = z.strictObject({
  name: words.name.optional(),
  description: words.description.optional(),
  include: DatasetInclude.unwrap().optional(),
  val_share: val_share.optional(),
  test_share: test_share.optional(),
});
const MemberBody = z.strictObject({
  classes: z
    .record(ClassName, ClassName)
    .refine((map) => Object.keys(map).length <= CLASSES_MAX, "too many classes")
    .default({})
    .meta({
      maxProperties: CLASSES_MAX,
      description:
        "class of the dataset by class of the job, where they are called differently, such as " +
        '`{"lorry": "truck"}`',
    }),
  without: z.array(ClassName).max(CLASSES_MAX).default([]).meta({
    description: "classes of the job that the dataset leaves out: their objects are background",
  }),
});

export const datasetId = z.object({ dataset_id: z.uuid() });
const memberId = datasetId.extend({ job_id: z.uuid() });
const versionId = datasetId.extend({
  version: whole(1, 2_147_483_647).meta({ description: "the version's number" }),
});

/**
 * The dataset of this id, if the caller has at least the role in its workspace. Fails with
 * `not_found` for another workspace's, and with `forbidden` where the role is too small.
 */
export async function datasetFor(
  context: Pick<Context, "get"> & { var: { service: Parts } },
  id: string,
  role: Role,
): Promise<DatasetRow> {
  const caller = callerOf(context);
  const row = await findDataset(context.var.service.database, workspacesOf(caller), id);
  allow(caller, row.workspaceId, role);
  return row;
}

/** Routes of datasets and their versions. */
export const datasetRoutes: readonly Route[] = [
  route(
    {
      call: "GET /datasets",
      operationId: "listDatasets",
      tag,
      summary: "Datasets, newest first",
      description: "Beyond the contract.",
      who: user,
      query: z.object({ project_id: z.uuid().optional(), ...pageQuery(500) }),
      answers: { 200: json("datasets of the caller's workspaces", z.array(Dataset)) },
    },
    async (context) => {
      const { project_id: projectId, ...page } = context.req.valid("query");
      const workspaces = workspacesOf(callerOf(context));
      const { database } = context.var.service;
      const rows = await listDatasets(database, workspaces, { projectId, page });
      return context.json(rows.map(datasetRecord), 200);
    },
  ),
  route(
    {
      call: "POST /datasets",
      operationId: "createDataset",
      tag,
      summary: "Jobs that are trained on together",
      description:
        "Beyond the contract; for engineers. Classes of one name in several jobs are one class. A " +
        "frame may be in several jobs, if they label different classes on it.",
      who: user,
      body: jsonBody(NewDataset),
      answers: { 201: json("the dataset", Dataset) },
      errors: ["not_found"],
    },
    async (context) => {
      const parts = context.var.service;
      const caller = callerOf(context);
      const { project_id, job_ids: jobs, val_share: valShare, ...body } = context.req.valid("json");
      const { test_share: testShare, ...said } = body;
      const project = await findProjectFor(parts, caller, project_id, "engineer");
      const { workspaceId } = project;
      const id = await createDataset(parts.database, {
        ...said,
        valShare,
        testShare,
        workspaceId,
        jobs,
        projectId: project_id,
        createdBy: caller.accountId,
      });
      const made = await findDataset(parts.database, [workspaceId], id);
      return context.json(datasetRecord(made), 201);
    },
  ),
  route(
    {
      call: "GET /datasets/{dataset_id}",
      operationId: "readDataset",
      tag,
      summary: "One dataset with its jobs",
      description: "Beyond the contract.",
      who: user,
      params: datasetId,
      answers: { 200: json("the dataset", Dataset) },
    },
    async (context) => {
      const row = await datasetFor(context, context.req.valid("param").dataset_id, "viewer");
      return context.json(datasetRecord(row), 200);
    },
  ),
  route(
    {
      call: "PATCH /datasets/{dataset_id}",
      operationId: "editDataset",
      tag,
      summary: "Rename a dataset, or change what it takes of its jobs",
      description:
        "Beyond the contract; for engineers. Other shares hold for videos that come in later: a side " +
        "that was drawn stays.",
      who: user,
      params: datasetId,
      body: jsonBody(DatasetEdit),
      answers: { 200: json("the dataset", Dataset) },
    },
    async (context) => {
      const { database } = context.var.service;
      const row = await datasetFor(context, context.req.valid("param").dataset_id, "engineer");
      const { val_share: valShare, test_share: testShare, ...said } = context.req.valid("json");
      await editDataset(database, row, { ...said, valShare, testShare });
      const now = await findDataset(database, [row.workspaceId], row.id);
      return context.json(datasetRecord(now), 200);
    },
  ),
  route(
    {
      call: "DELETE /datasets/{dataset_id}",
      operationId: "deleteDataset",
      tag,
      summary: "Delete a dataset with its versions",
      description:
        "Beyond the contract; for engineers. Its exports go with it; its jobs, videos and training " +
        "runs stay.",
      who: user,
      params: datasetId,
      answers: { 204: { description: "the dataset is gone" } },
    },
    async (context) => {
      const row = await datasetFor(context, context.req.valid("param").dataset_id, "engineer");
      await deleteDataset(context.var.service, row);
      return context.body(null, 204);
    },
  ),
  route(
    {
      call: "PUT /datasets/{dataset_id}/jobs/{job_id}",
      operationId: "putDatasetJob",
      tag,
      summary: "Put a job into a dataset, or map its classes anew",
      description: "Beyond the contract; for engineers.",
      who: user,
      params: memberId,
      body: jsonBody(MemberBody),
      answers: { 200: json("the dataset", Dataset) },
    },
    async (context) => {
      const { database } = context.var.service;
      const { dataset_id, job_id } = context.req.valid("param");
      const row = await datasetFor(context, dataset_id, "engineer");
      const job = await findJob(database, [row.workspaceId], job_id);
      await putMember(database, row, { job_id: job.id, ...context.req.valid("json") });
      const now = await findDataset(database, [row.workspaceId], row.id);
      return context.json(datasetRecord(now), 200);
    },
  ),
  route(
    {
      call: "DELETE /datasets/{dataset_id}/jobs/{job_id}",
      operationId: "removeDatasetJob",
      tag,
      summary: "Take a job out of a dataset",
      description: "Beyond the contract; for engineers. Versions that were made with it stay.",
      who: user,
      params: memberId,
      answers: { 204: { description: "the job is out" } },
    },
    async (context) => {
      const { dataset_id, job_id } = context.req.valid("param");
      const row = await datasetFor(context, dataset_id, "engineer");
      await removeMember(context.var.service.database, row, job_id);
      return context.body(null, 204);
    },
  ),
  route(
    {
      call: "GET /datasets/{dataset_id}/split",
      operationId: "listSides",
      tag,
      summary: "The sides of a dataset's videos, by their names",
      description:
        "Beyond the contract. A video has a side from the first version on that has it. The only " +
        "video of a dataset has stretches of time on each side.",
      who: user,
      params: datasetId,
      query: z.object({ side: DatasetSide.optional(), ...pageQuery(5_000, 500) }),
      answers: { 200: json("videos and stretches", z.array(VideoSide)) },
    },
    async (context) => {
      const row = await datasetFor(context, context.req.valid("param").dataset_id, "viewer");
      const { side, ...page } = context.req.valid("query");
      const sides = await listSides(context.var.service.database, row, { side, page });
      return context.json(sides, 200);
    },
  ),
  route(
    {
      call: "POST /datasets/{dataset_id}/split",
      operationId: "setSide",
      tag,
      summary: "Set the side of videos by hand",
      description: "Beyond the contract; for engineers. The next version has them there, whole.",
      who: user,
      params: datasetId,
      body: jsonBody(
        z.strictObject({
          video_ids: z.array(z.uuid()).min(1).max(VIDEOS_MAX),
          side: DatasetSide,
        }),
      ),
      answers: { 204: { description: "the videos are on that side" } },
    },
    async (context) => {
      const row = await datasetFor(context, context.req.valid("param").dataset_id, "engineer");
      const { video_ids: videoIds, side } = context.req.valid("json");
      await setSide(context.var.service.database, row, { videoIds, side });
      return context.body(null, 204);
    },
  ),
  route(
    {
      call: "POST /datasets/{dataset_id}/versions",
      operationId: "makeVersion",
      tag,
      summary: "Write down what a dataset holds now",
      description:
        "Beyond the contract; for engineers. Later edits of the jobs change nothing of a version. A " +
        "video without a side is drawn to one and stays there. 409 where a job is not finished, or " +
        "two jobs label one class on the same frame.",
      who: user,
      params: datasetId,
      body: jsonBody(
        z.strictObject({
          note: text()
            .max(10_000)
            .default("")
            .meta({ description: "what people say of the version" }),
        }),
      ),
      answers: {
        200: json("nothing changed: the newest version", DatasetVersion),
        201: json("the new version", DatasetVersion),
      },
      errors: ["state_conflict"],
    },
    async (context) => {
      const parts = context.var.service;
      const row = await datasetFor(context, context.req.valid("param").dataset_id, "engineer");
      const { note } = context.req.valid("json");
      const createdBy = callerOf(context).accountId;
      const { version, isNew } = await makeVersion(parts, row, { note, createdBy });
      const record = versionRecord(version);
      return isNew ? context.json(record, 201) : context.json(record, 200);
    },
  ),
  route(
    {
      call: "GET /datasets/{dataset_id}/versions",
      operationId: "listVersions",
      tag,
      summary: "Versions of a dataset, newest first",
      description: "Beyond the contract.",
      who: user,
      params: datasetId,
      query: z.object(pageQuery(100, 20)),
      answers: { 200: json("the versions", z.array(DatasetVersion)) },
    },
    async (context) => {
      const row = await datasetFor(context, context.req.valid("param").dataset_id, "viewer");
      const page = context.req.valid("query");
      const rows = await listVersions(context.var.service.database, row, { page });
      return context.json(rows.map(versionRecord), 200);
    },
  ),
  route(
    {
      call: "GET /datasets/{dataset_id}/versions/{version}",
      operationId: "readVersion",
      tag,
      summary: "One version of a dataset",
      description: "Beyond the contract.",
      who: user,
      params: versionId,
      answers: { 200: json("the version", DatasetVersion) },
    },
    async (context) => {
      const { dataset_id, version } = context.req.valid("param");
      const row = await datasetFor(context, dataset_id, "viewer");
      const found = await findVersion(context.var.service.database, row, version);
      return context.json(versionRecord(found), 200);
    },
  ),
  route(
    {
      call: "POST /datasets/{dataset_id}/versions/{version}/export",
      operationId: "exportVersion",
      tag,
      summary: "Make an archive of a version of a dataset",
      description:
        "Beyond the contract; for annotators. As a job's export, with the frames, annotations and " +
        "sides of the version. `GET /exports/{export_id}` tells how it stands.",
      who: user,
      params: versionId,
      body: { content: { "application/json": { schema: Layout } }, required: false },
      answers: {
        200: json("the archive is there", DatasetExport),
        202: json("the archive is being made", DatasetExport),
      },
      errors: ["state_conflict", "task_failed"],
    },
    async (context) => {
      const parts = context.var.service;
      const { dataset_id, version: number } = context.req.valid("param");
      const row = await datasetFor(context, dataset_id, "annotator");
      const version = await findVersion(parts.database, row, number);
      // Without a body there is nothing to validate: the defaults hold.
      const options = Layout.parse(context.req.valid("json") ?? {});
      const createdBy = callerOf(context).accountId;
      const exportId = await startVersionExport(parts, row, { version, options, createdBy });
      const wanted = { exportId, origin: originOf(context) };
      const found = await awaitExport(parts, row.workspaceId, wanted);
      return found.status === "completed" ? context.json(found, 200) : context.json(found, 202);
    },
  ),
  route(
    {
      call: "GET /datasets/{dataset_id}/exports",
      operationId: "listVersionExports",
      tag,
      summary: "The exports of a dataset's versions, newest first",
      description: "Beyond the contract.",
      who: user,
      params: datasetId,
      query: z.object(pageQuery(100, 20)),
      answers: { 200: json("the exports", z.array(DatasetExport)) },
    },
    async (context) => {
      const row = await datasetFor(context, context.req.valid("param").dataset_id, "viewer");
      const wanted = { ...context.req.valid("query"), origin: originOf(context) };
      const page = await listExports(context.var.service, { datasetId: row.id }, wanted);
      return context.json(page.rows, 200);
    },
  ),
];
