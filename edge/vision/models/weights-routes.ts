// Weights that people bring along: in, listed, out.

import { createRoute, z } from "@hono/zod-openapi";
import { Failure } from "../../../shared/errors.ts";
import { WeightsFile } from "../../../shared/wire/training.ts";
import { type App, errorResponses, json, WITHOUT_NUL } from "../../http/app.ts";
import { allow, callerOf, guard, workspacesOf } from "../auth/scope.ts";
import {
  API,
  bearer,
  bodyErrors,
  conflict,
  readErrors,
  toItsEnd,
  writeErrors,
} from "../base/api.ts";
import type { Parts } from "../base/parts.ts";
import {
  DATASET_MAX,
  deleteWeights,
  findWeights,
  listWeights,
  NAME_MAX,
  receiveWeights,
  weightsRecord,
} from "./weights.ts";

const tags = ["Training"];
const weightsId = z.object({ weights_id: z.uuid() });

/** Registers the routes of weights files. */
export function addWeightsRoutes(app: App<Parts>) {
  guard(app, "/train/weights", "/train/weights/*");
  addUpload(app);
  const list = createRoute({
    method: "get",
    path: `${API}/train/weights`,
    operationId: "listWeights",
    tags,
    summary: "Weights to start runs from, newest first",
    description: "Beyond the contract.",
    security: bearer,
    responses: {
      200: json("weights of the caller's workspaces", z.array(WeightsFile)),
      ...errorResponses("unauthorized", "store_unavailable"),
    },
  });
  app.openapi(list, async (context) => {
    const { database } = context.var.service;
    return context.json(await listWeights(database, workspacesOf(callerOf(context))), 200);
  });

  const one = createRoute({
    method: "get",
    path: `${API}/train/weights/{weights_id}`,
    operationId: "readWeights",
    tags,
    summary: "One weights file",
    description: "Beyond the contract.",
    security: bearer,
    request: { params: weightsId },
    responses: { 200: json("the weights", WeightsFile), ...readErrors },
  });
  app.openapi(one, async (context) => {
    const { database } = context.var.service;
    const { weights_id: id } = context.req.valid("param");
    const row = await findWeights(database, workspacesOf(callerOf(context)), id);
    return context.json(weightsRecord(row), 200);
  });

  const remove = createRoute({
    method: "delete",
    path: `${API}/train/weights/{weights_id}`,
    operationId: "deleteWeights",
    tags,
    summary: "Delete weights",
    description:
      "Beyond the contract; for engineers. Refused while a run that starts from them is not over.",
    security: bearer,
    request: { params: weightsId },
    responses: { 204: { description: "they are gone" }, ...writeErrors, ...conflict },
  });
  app.openapi(remove, async (context) => {
    const parts = context.var.service;
    const caller = callerOf(context);
    const { weights_id: id } = context.req.valid("param");
    const row = await findWeights(parts.database, workspacesOf(caller), id);
    allow(caller, row.workspaceId, "engineer");
    await deleteWeights(parts, row);
    return context.body(null, 204);
  });
}

function addUpload(app: App<Parts>) {
  const text = { type: "string" as const };
  const textOf = (maxLength: number) => ({ ...text, maxLength, pattern: WITHOUT_NUL });
  const upload = createRoute({
    method: "post",
    path: `${API}/train/weights`,
    operationId: "addWeights",
    tags,
    summary: "Bring weights along, to start runs from",
    description:
      "Beyond the contract; for engineers. multipart/form-data with `file` (safetensors or ONNX, " +
      "told by its first bytes; never a pickle), `name` and `dataset`, in any order. Whose classes " +
      "and layers match is told by the run that starts from them. Without `workspace_id`, in the " +
      "first workspace where you are an engineer.",
    security: bearer,
    request: {
      query: z.object({ workspace_id: z.uuid().optional() }),
      // Described without a zod schema: one would have the chassis take the whole body into memory.
      body: {
        required: true,
        content: {
          "multipart/form-data": {
            schema: {
              type: "object" as const,
              properties: {
                file: { ...text, format: "binary" },
                name: textOf(NAME_MAX),
                dataset: textOf(DATASET_MAX),
              },
              required: ["file"],
            },
          },
        },
      },
    },
    responses: {
      201: json("the weights", WeightsFile),
      ...bodyErrors,
      ...errorResponses("file_too_large", "quota_exceeded", "unsupported_media"),
    },
  });
  app.openapi(upload, async (context) => {
    const caller = callerOf(context);
    const named = context.req.valid("query").workspace_id;
    const workspaceId = named ?? workspacesOf(caller, "engineer")[0];
    if (!workspaceId) throw new Failure("forbidden", "uploading needs the role engineer");
    allow(caller, workspaceId, "engineer");
    const taking = { workspaceId, createdBy: caller.accountId };
    const work = receiveWeights(context.var.service, context.req.raw, taking);
    return context.json(await toItsEnd(context, work), 201);
  });
}
