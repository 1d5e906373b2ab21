// Models as files over HTTP: asked for, listed, read and deleted.

import { createRoute, z } from "@hono/zod-openapi";
import { ModelExport, ModelExportRequest } from "../../../../shared/wire/exports.ts";
import { type App, errorResponses, json, jsonBody } from "../../../http/app.ts";
import { callerOf, guard } from "../../auth/scope.ts";
import {
  API,
  bearer,
  bodyErrors,
  conflict,
  listErrors,
  pageQuery,
  readErrors,
  writeErrors,
} from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { modelFor } from "../../models/routes.ts";
import { deleteExport, startExport } from "./exports.ts";
import { optionsOf } from "./options.ts";
import { findExport, listExports } from "./records.ts";

const tags = ["Models"];
/** Exports in one answer. */
const EXPORTS_MAX = 1_000;
const modelId = z.object({ model_id: z.uuid() });
const exportId = modelId.extend({ export_id: z.uuid() });

/** Registers the routes of models as files. */
export function addModelExportRoutes(app: App<Parts>) {
  guard(app, "/models/*");
  addStart(app);
  addReading(app);
  addDeletion(app);
}

function addStart(app: App<Parts>) {
  const start = createRoute({
    method: "post",
    path: `${API}/models/{model_id}/export`,
    operationId: "exportModel",
    tags,
    summary: "Make a file of a model that other programs run",
    description:
      "For engineers. A GPU node writes the file and holds its answers against its own predictor's; " +
      "`fp16` and `int8` also by their average precision on the model's validation images. One that " +
      "misses its tolerance is `failed`, with the figure, and never offered. The same again is the " +
      "same export: 200 once its file is there. One that failed is tried anew. The file takes of the " +
      "workspace's storage. What cannot be made answers 422, which names what is missing, such as a " +
      "node with TensorRT, or images to calibrate `int8` on.",
    security: bearer,
    request: { params: modelId, ...jsonBody(ModelExportRequest) },
    responses: {
      200: json("the file is there", ModelExport),
      202: json("the file is being made", ModelExport),
      ...bodyErrors,
      ...conflict,
      ...errorResponses("quota_exceeded"),
    },
  });
  app.openapi(start, async (context) => {
    const parts = context.var.service;
    const model = await modelFor(context, context.req.valid("param").model_id, "engineer");
    const options = optionsOf(context.req.valid("json"), model);
    const { accountId: createdBy } = callerOf(context);
    const id = await startExport(parts, model, { options, createdBy });
    const found = await findExport(parts, model, id);
    return found.status === "completed" ? context.json(found, 200) : context.json(found, 202);
  });
}

function addReading(app: App<Parts>) {
  const list = createRoute({
    method: "get",
    path: `${API}/models/{model_id}/exports`,
    operationId: "listModelExports",
    tags,
    summary: "A model's exports, newest first",
    description: "Beyond the contract.",
    security: bearer,
    request: {
      params: modelId,
      query: z.object({
        ...pageQuery(EXPORTS_MAX),
      }),
    },
    responses: {
      200: json("the exports", z.array(ModelExport)),
      ...listErrors,
      ...errorResponses("not_found"),
    },
  });
  app.openapi(list, async (context) => {
    const model = await modelFor(context, context.req.valid("param").model_id, "viewer");
    const page = context.req.valid("query");
    return context.json(await listExports(context.var.service, model, page), 200);
  });

  const one = createRoute({
    method: "get",
    path: `${API}/models/{model_id}/exports/{export_id}`,
    operationId: "readModelExport",
    tags,
    summary: "How an export of a model stands",
    description: "Beyond the contract.",
    security: bearer,
    request: { params: exportId },
    responses: { 200: json("the export", ModelExport), ...readErrors },
  });
  app.openapi(one, async (context) => {
    const { model_id, export_id } = context.req.valid("param");
    const model = await modelFor(context, model_id, "viewer");
    return context.json(await findExport(context.var.service, model, export_id), 200);
  });
}

function addDeletion(app: App<Parts>) {
  const remove = createRoute({
    method: "delete",
    path: `${API}/models/{model_id}/exports/{export_id}`,
    operationId: "deleteModelExport",
    tags,
    summary: "Delete an export of a model",
    description:
      "Beyond the contract; for engineers. One that is being made is canceled. Addresses of its " +
      "file lead nowhere from then on. One that a rollout may still bring to devices is 409.",
    security: bearer,
    request: { params: exportId },
    responses: { 204: { description: "the export is gone" }, ...writeErrors, ...conflict },
  });
  app.openapi(remove, async (context) => {
    const { model_id, export_id } = context.req.valid("param");
    const model = await modelFor(context, model_id, "engineer");
    await deleteExport(context.var.service, model, export_id);
    return context.body(null, 204);
  });
}
