// Models as files over HTTP: asked for, listed, read and deleted.

import { z } from "@hono/zod-openapi";
import { ModelExport, ModelExportRequest } from "../../../../shared/wire/exports.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { callerOf } from "../../auth/scope.ts";
import { pageQuery } from "../../base/api.ts";
import { type Route, route } from "../../base/route.ts";
import { modelFor } from "../../models/routes.ts";
import { deleteExport, startExport } from "./exports.ts";
import { optionsOf } from "./options.ts";
import { findExport, listExports } from "./records.ts";

const tag = "Models";
/** Exports in one answer. */
const EXPORTS_MAX = 1_000;
const modelId = z.object({ model_id: z.uuid() });
const exportId = modelId.extend({ export_id: z.uuid() });

/** Routes of models as files. */
export const modelExportRoutes: readonly Route[] = [
  route(
    {
      call: "POST /models/{model_id}/export",
      operationId: "exportModel",
      tag,
      summary: "Make a file of a model that other programs run",
      description:
        "For engineers. A GPU node writes the file and holds its answers against its own predictor's; " +
        "`fp16` and `int8` also by their average precision on the model's validation images. One that " +
        "misses its tolerance is `failed`, with the figure, and never offered. The same again is the " +
        "same export: 200 once its file is there. One that failed is tried anew. The file takes of the " +
        "workspace's storage. What cannot be made answers 422, which names what is missing, such as a " +
        "node with TensorRT, or images to calibrate `int8` on.",
      who: user,
      params: modelId,
      body: jsonBody(ModelExportRequest),
      answers: {
        200: json("the file is there", ModelExport),
        202: json("the file is being made", ModelExport),
      },
      errors: ["state_conflict", "quota_exceeded"],
    },
    async (context) => {
      const parts = context.var.service;
      const model = await modelFor(context, context.req.valid("param").model_id, "engineer");
      const options = optionsOf(context.req.valid("json"), model);
      const { accountId: createdBy } = callerOf(context);
      const id = await startExport(parts, model, { options, createdBy });
      const found = await findExport(parts, model, id);
      return found.status === "completed" ? context.json(found, 200) : context.json(found, 202);
    },
  ),
  route(
    {
      call: "GET /models/{model_id}/exports",
      operationId: "listModelExports",
      tag,
      summary: "A model's exports, newest first",
      description: "Beyond the contract.",
      who: user,
      params: modelId,
      query: z.object({
        ...pageQuery(EXPORTS_MAX),
      }),
      answers: { 200: json("the exports", z.array(ModelExport)) },
    },
    async (context) => {
      const model = await modelFor(context, context.req.valid("param").model_id, "viewer");
      const page = context.req.valid("query");
      return context.json(await listExports(context.var.service, model, page), 200);
    },
  ),
  route(
    {
      call: "GET /models/{model_id}/exports/{export_id}",
      operationId: "readModelExport",
      tag,
      summary: "How an export of a model stands",
      description: "Beyond the contract.",
      who: user,
      params: exportId,
      answers: { 200: json("the export", ModelExport) },
    },
    async (context) => {
      const { model_id, export_id } = context.req.valid("param");
      const model = await modelFor(context, model_id, "viewer");
      return context.json(await findExport(context.var.service, model, export_id), 200);
    },
  ),
  route(
    {
      call: "DELETE /models/{model_id}/exports/{export_id}",
      operationId: "deleteModelExport",
      tag,
      summary: "Delete an export of a model",
      description:
        "Beyond the contract; for engineers. One that is being made is canceled. Addresses of its " +
        "file lead nowhere from then on. One that a rollout may still bring to devices is 409.",
      who: user,
      params: exportId,
      answers: { 204: { description: "the export is gone" } },
      errors: ["state_conflict"],
    },
    async (context) => {
      const { model_id, export_id } = context.req.valid("param");
      const model = await modelFor(context, model_id, "engineer");
      await deleteExport(context.var.service, model, export_id);
      return context.body(null, 204);
    },
  ),
];
