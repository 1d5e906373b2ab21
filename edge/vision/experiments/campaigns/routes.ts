// Experiments over HTTP: begun, listed, read, deleted. What people do to one that is under way is
// in `move-routes.ts`.

import { z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { Failure } from "../../../../shared/errors.ts";
import type { Role } from "../../../../shared/wire/vision.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { allow, callerOf, workspacesFor, workspacesOf } from "../../auth/scope.ts";
import { pageQuery } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { type Route, route } from "../../base/route.ts";
import { jobFor } from "../../labeling/jobs/access.ts";
import { endpointFor } from "../../serving/endpoints/access.ts";
import { ExperimentBody, rulesOf } from "./bodies.ts";
import {
  deleteExperiment,
  type ExperimentRow,
  experimentRecord,
  findExperiment,
  listExperiments,
} from "./experiments.ts";
import { dropFrameTasks } from "./frames.ts";
import { EXPERIMENT_STATES, Experiment } from "./records.ts";
import { beginExperiment } from "./start.ts";

export const tag = "Experiments";
export const experimentId = z.object({ experiment_id: z.uuid() });
const PAGE_MAX = 200;
const PAGE_DEFAULT = 50;

type Access = Pick<Context, "get"> & { var: { service: Parts } };

/** The experiment of a path, if the caller has at least the role in its workspace. */
export async function experimentFor(
  context: Access,
  id: string,
  role: Role,
): Promise<ExperimentRow> {
  const caller = callerOf(context);
  const row = await findExperiment(context.var.service.database, workspacesOf(caller), id);
  allow(caller, row.workspaceId, role);
  return row;
}

/** Routes of experiments, but for those that move them. */
export const experimentRoutes: readonly Route[] = [
  route(
    {
      call: "POST /experiments",
      operationId: "makeExperiment",
      tag,
      summary: "Begin an experiment: two models, held against each other until it is clear",
      description:
        "For engineers. Over a named endpoint's requests, or over the frames of a labeling job as they " +
        "are reviewed. It is looked at every minute; its figures hold at all times, however often they " +
        "are read, and `plan` says how many samples it will need. At most 50 a workspace at once.",
      who: user,
      body: jsonBody(ExperimentBody),
      answers: { 201: json("the experiment", Experiment) },
      errors: ["not_found", "state_conflict"],
    },
    async (context) => {
      const body = context.req.valid("json");
      const rules = rulesOf(body);
      const { endpoint: slug, job_id: jobId, workspace_id } = body;
      if ((slug === undefined) === (jobId === undefined)) {
        throw new Failure("invalid_request", "endpoint: give either it or job_id");
      }
      const over =
        jobId === undefined
          ? {
              endpoint: await endpointFor(context, { slug: slug ?? "", workspace_id }, "engineer"),
            }
          : { job: await jobFor(context, jobId, "engineer") };
      const { accountId: createdBy } = callerOf(context);
      const row = await beginExperiment(context.var.service, { body, rules, over, createdBy });
      return context.json(experimentRecord(row), 201);
    },
  ),
  route(
    {
      call: "GET /experiments",
      operationId: "listExperiments",
      tag,
      summary: "Experiments, newest first",
      who: user,
      query: z.object({
        workspace_id: z.uuid().optional(),
        status: z.enum(EXPERIMENT_STATES).optional(),
        ...pageQuery(PAGE_MAX, PAGE_DEFAULT),
      }),
      answers: { 200: json("experiments of the caller's workspaces", z.array(Experiment)) },
      errors: ["not_found"],
    },
    async (context) => {
      const { workspace_id, status: state, ...page } = context.req.valid("query");
      const caller = callerOf(context);
      const workspaces =
        workspace_id === undefined
          ? workspacesOf(caller)
          : workspacesFor(caller, workspace_id, "viewer");
      const { database } = context.var.service;
      const rows = await listExperiments(database, workspaces, { state, ...page });
      return context.json(rows.map(experimentRecord), 200);
    },
  ),
  route(
    {
      call: "GET /experiments/{experiment_id}",
      operationId: "readExperiment",
      tag,
      summary: "One experiment, and how it stands",
      description: "Beyond the contract. Its figures are of the last look, a minute ago at most.",
      who: user,
      params: experimentId,
      answers: { 200: json("the experiment", Experiment) },
    },
    async (context) => {
      const { experiment_id: id } = context.req.valid("param");
      return context.json(experimentRecord(await experimentFor(context, id, "viewer")), 200);
    },
  ),
  route(
    {
      call: "DELETE /experiments/{experiment_id}",
      operationId: "deleteExperiment",
      tag,
      summary: "Delete an experiment and its figures",
      description:
        "Beyond the contract; for engineers. One that is under way ends with it. What it promoted " +
        "stays, and can be taken back by the logs of models and endpoints.",
      who: user,
      params: experimentId,
      answers: { 204: { description: "the experiment is gone" } },
    },
    async (context) => {
      const parts = context.var.service;
      const { experiment_id: id } = context.req.valid("param");
      const row = await experimentFor(context, id, "engineer");
      await deleteExperiment(parts, row);
      await dropFrameTasks(parts, row);
      return context.body(null, 204);
    },
  ),
];
