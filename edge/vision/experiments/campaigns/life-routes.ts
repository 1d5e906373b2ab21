// What people do to an experiment over HTTP: pause, go on, stop, complete, promote, take back.

import { createRoute } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { type App, errorResponses, json } from "../../../http/app.ts";
import { actOf } from "../../auth/audit.ts";
import { callerOf, guard } from "../../auth/scope.ts";
import { API, bearer, bodyErrors, conflict, writeErrors } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { CompleteBody } from "./bodies.ts";
import { experimentRecord } from "./experiments.ts";
import { completeExperiment, resumeExperiment, suspendExperiment } from "./life.ts";
import { type Promoter, rollBackPromotion } from "./promotion.ts";
import { Experiment } from "./records.ts";
import { experimentFor, experimentId, tags } from "./routes.ts";

const readyErrors = errorResponses("task_failed", "no_node", "store_unavailable");

/** Registers the routes of experiments' lives. */
export function addExperimentLifeRoutes(app: App<Parts>) {
  guard(app, "/experiments/*");
  addPauses(app);
  addStop(app);
  addComplete(app);
  addRollback(app);
}

/** Who asks, as the logs have him. */
const promoterOf = (context: Parameters<typeof callerOf>[0]): Promoter => ({
  actorId: callerOf(context).accountId,
  actOf: (action) => actOf(context, action),
});

function addPauses(app: App<Parts>) {
  const pause = createRoute({
    method: "post",
    path: `${API}/experiments/{experiment_id}/pause`,
    operationId: "pauseExperiment",
    tags,
    summary: "Pause an experiment",
    description:
      "Beyond the contract; for engineers. What comes meanwhile does not count; the days of its " +
      "budget go on.",
    security: bearer,
    request: { params: experimentId },
    responses: { 200: json("the experiment", Experiment), ...writeErrors, ...conflict },
  });
  app.openapi(pause, async (context) => {
    const { experiment_id: id } = context.req.valid("param");
    const row = await experimentFor(context, id, "engineer");
    const paused = await suspendExperiment(context.var.service, row, "pause");
    return context.json(experimentRecord(paused), 200);
  });

  const resume = createRoute({
    method: "post",
    path: `${API}/experiments/{experiment_id}/resume`,
    operationId: "resumeExperiment",
    tags,
    summary: "Go on with a paused experiment",
    description:
      "Beyond the contract; for engineers. Over an endpoint both models have to serve there as when " +
      "it began.",
    security: bearer,
    request: { params: experimentId },
    responses: { 200: json("the experiment", Experiment), ...writeErrors, ...conflict },
  });
  app.openapi(resume, async (context) => {
    const { experiment_id: id } = context.req.valid("param");
    const row = await experimentFor(context, id, "engineer");
    const running = await resumeExperiment(context.var.service, row);
    return context.json(experimentRecord(running), 200);
  });
}

function addStop(app: App<Parts>) {
  const stop = createRoute({
    method: "post",
    path: `${API}/experiments/{experiment_id}/stop`,
    operationId: "stopExperiment",
    tags,
    summary: "Give an experiment up",
    description: "Beyond the contract; for engineers. Its figures stay; it promotes nothing.",
    security: bearer,
    request: { params: experimentId },
    responses: { 200: json("the experiment", Experiment), ...writeErrors, ...conflict },
  });
  app.openapi(stop, async (context) => {
    const { experiment_id: id } = context.req.valid("param");
    const row = await experimentFor(context, id, "engineer");
    const stopped = await suspendExperiment(context.var.service, row, "stop");
    return context.json(experimentRecord(stopped), 200);
  });
}

function addComplete(app: App<Parts>) {
  const complete = createRoute({
    method: "post",
    path: `${API}/experiments/{experiment_id}/complete`,
    operationId: "completeExperiment",
    tags,
    summary: "Finish an experiment, and promote its winner where asked",
    description:
      "For engineers. It looks once more and keeps the verdict with its numbers. With `promote` the " +
      "winner gets `alias`; without one, where the endpoint follows an alias to the baseline and the " +
      "candidate won, that alias; else the endpoint serves the winner alone. A node opens it first, " +
      "and where that fails nothing has changed. Without a winner `promote` is refused. One that is " +
      "completed already can still be promoted, once.",
    security: bearer,
    request: {
      params: experimentId,
      body: { content: { "application/json": { schema: CompleteBody } }, required: false },
    },
    responses: {
      200: json("the experiment", Experiment),
      ...bodyErrors,
      ...conflict,
      ...readyErrors,
    },
  });
  app.openapi(complete, async (context) => {
    const { experiment_id: id } = context.req.valid("param");
    const row = await experimentFor(context, id, "engineer");
    // Without a body there is nothing to validate: the defaults hold.
    const { promote, alias } = CompleteBody.parse(context.req.valid("json") ?? {});
    if (alias !== null && !promote) {
      throw new Failure("invalid_request", "alias: only with promote");
    }
    const promotion = promote ? { alias, ...promoterOf(context) } : null;
    const completed = await completeExperiment(context.var.service, row, promotion);
    return context.json(experimentRecord(completed), 200);
  });
}

function addRollback(app: App<Parts>) {
  const rollback = createRoute({
    method: "post",
    path: `${API}/experiments/{experiment_id}/rollback`,
    operationId: "rollBackExperiment",
    tags,
    summary: "Take an experiment's promotion back",
    description:
      "Beyond the contract; for engineers. What was moved is again as it was before, unless it has " +
      "moved on since. The rollback is a move in the log, like the promotion.",
    security: bearer,
    request: { params: experimentId },
    responses: {
      200: json("the experiment", Experiment),
      ...writeErrors,
      ...conflict,
      ...readyErrors,
    },
  });
  app.openapi(rollback, async (context) => {
    const { experiment_id: id } = context.req.valid("param");
    const row = await experimentFor(context, id, "engineer");
    const back = await rollBackPromotion(context.var.service, row, promoterOf(context));
    return context.json(experimentRecord(back), 200);
  });
}
