// Weights that people bring along: in, listed, out.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../shared/errors.ts";
import { WeightsFile } from "../../../shared/wire/training.ts";
import { json } from "../../http/route.ts";
import { WITHOUT_NUL } from "../../http/texts.ts";
import { user } from "../auth/audience.ts";
import { allow, callerOf, workspacesOf } from "../auth/scope.ts";
import { toItsEnd } from "../base/api.ts";
import { type Route, route } from "../base/route.ts";
import {
  DATASET_MAX,
  deleteWeights,
  findWeights,
  listWeights,
  NAME_MAX,
  receiveWeights,
  weightsRecord,
} from "./weights.ts";

const tag = "Training";
const weightsId = z.object({ weights_id: z.uuid() });

const text = { type: "string" as const };
const textOf = (maxLength: number) => ({ ...text, maxLength, pattern: WITHOUT_NUL });

/** Routes of weights files. */
export const weightsRoutes: readonly Route[] = [
  route(
    {
      call: "POST /train/weights",
      operationId: "addWeights",
      tag,
      summary: "Bring weights along, to start runs from",
      description:
        "Beyond the contract; for engineers. multipart/form-data with `file` (safetensors or ONNX, " +
        "told by its first bytes; never a pickle), `name` and `dataset`, in any order. Whose classes " +
        "and layers match is told by the run that starts from them. Without `workspace_id`, in the " +
        "first workspace where you are an engineer.",
      who: user,
      query: z.object({ workspace_id: z.uuid().optional() }),
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
      answers: { 201: json("the weights", WeightsFile) },
      errors: ["bad_body", "not_found", "file_too_large", "quota_exceeded", "unsupported_media"],
    },
    async (context) => {
      const caller = callerOf(context);
      const named = context.req.valid("query").workspace_id;
      const workspaceId = named ?? workspacesOf(caller, "engineer")[0];
      if (!workspaceId) throw new Failure("forbidden", "uploading needs the role engineer");
      allow(caller, workspaceId, "engineer");
      const taking = { workspaceId, createdBy: caller.accountId };
      const work = receiveWeights(context.var.service, context.req.raw, taking);
      return context.json(await toItsEnd(context, work), 201);
    },
  ),
  route(
    {
      call: "GET /train/weights",
      operationId: "listWeights",
      tag,
      summary: "Weights to start runs from, newest first",
      description: "Beyond the contract.",
      who: user,
      answers: { 200: json("weights of the caller's workspaces", z.array(WeightsFile)) },
    },
    async (context) => {
      const { database } = context.var.service;
      return context.json(await listWeights(database, workspacesOf(callerOf(context))), 200);
    },
  ),
  route(
    {
      call: "GET /train/weights/{weights_id}",
      operationId: "readWeights",
      tag,
      summary: "One weights file",
      description: "Beyond the contract.",
      who: user,
      params: weightsId,
      answers: { 200: json("the weights", WeightsFile) },
    },
    async (context) => {
      const { database } = context.var.service;
      const { weights_id: id } = context.req.valid("param");
      const row = await findWeights(database, workspacesOf(callerOf(context)), id);
      return context.json(weightsRecord(row), 200);
    },
  ),
  route(
    {
      call: "DELETE /train/weights/{weights_id}",
      operationId: "deleteWeights",
      tag,
      summary: "Delete weights",
      description:
        "Beyond the contract; for engineers. Refused while a run that starts from them is not over.",
      who: user,
      params: weightsId,
      answers: { 204: { description: "they are gone" } },
      errors: ["state_conflict"],
    },
    async (context) => {
      const parts = context.var.service;
      const caller = callerOf(context);
      const { weights_id: id } = context.req.valid("param");
      const row = await findWeights(parts.database, workspacesOf(caller), id);
      allow(caller, row.workspaceId, "engineer");
      await deleteWeights(parts, row);
      return context.body(null, 204);
    },
  ),
];
