// What people do to an experiment over HTTP: pause, go on, stop, complete, promote, take back.

import { Failure } from "../../../../shared/errors.ts";
import { json } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { actOf } from "../../auth/audit.ts";
import { callerOf } from "../../auth/scope.ts";
import { type Route, route } from "../../base/route.ts";
import { CompleteBody } from "./bodies.ts";
import { experimentRecord } from "./experiments.ts";
import { completeExperiment, resumeExperiment, suspendExperiment } from "./moves.ts";
import { type Promoter, rollBackPromotion } from "./promotion.ts";
import { Experiment } from "./records.ts";
import { experimentFor, experimentId } from "./routes.ts";

const tag = "Experiments";

/** Who asks, as the logs have him. */
const promoterOf = (context: Parameters<typeof callerOf>[0]): Promoter => ({
  actorId: callerOf(context).accountId,
  actOf: (action) => actOf(context, action),
});

/** Routes that move experiments: start, pause, resume, complete, stop, take back. */
export const experimentMoveRoutes: readonly Route[] = [
  route(
    {
      call: "POST /experiments/{experiment_id}/pause",
      operationId: "pauseExperiment",
      tag,
      summary: "Pause an experiment",
      description:
        "Beyond the contract; for engineers. What comes meanwhile does not count; the days of its " +
        "budget go on.",
      who: user,
      params: experimentId,
      answers: { 200: json("the experiment", Experiment) },
      errors: ["state_conflict"],
    },
    async (context) => {
      const { experiment_id: id } = context.req.valid("param");
      const row = await experimentFor(context, id, "engineer");
      const paused = await suspendExperiment(context.var.service, row, "pause");
      return context.json(experimentRecord(paused), 200);
    },
  ),
  route(
    {
      call: "POST /experiments/{experiment_id}/resume",
      operationId: "resumeExperiment",
      tag,
      summary: "Go on with a paused experiment",
      description:
        "Beyond the contract; for engineers. Over an endpoint both models have to serve there as when " +
        "it began.",
      who: user,
      params: experimentId,
      answers: { 200: json("the experiment", Experiment) },
      errors: ["state_conflict"],
    },
    async (context) => {
      const { experiment_id: id } = context.req.valid("param");
      const row = await experimentFor(context, id, "engineer");
      const running = await resumeExperiment(context.var.service, row);
      return context.json(experimentRecord(running), 200);
    },
  ),
  route(
    {
      call: "POST /experiments/{experiment_id}/stop",
      operationId: "stopExperiment",
      tag,
      summary: "Give an experiment up",
      description: "Beyond the contract; for engineers. Its figures stay; it promotes nothing.",
      who: user,
      params: experimentId,
      answers: { 200: json("the experiment", Experiment) },
      errors: ["state_conflict"],
    },
    async (context) => {
      const { experiment_id: id } = context.req.valid("param");
      const row = await experimentFor(context, id, "engineer");
      const stopped = await suspendExperiment(context.var.service, row, "stop");
      return context.json(experimentRecord(stopped), 200);
    },
  ),
  route(
    {
      call: "POST /experiments/{experiment_id}/complete",
      operationId: "completeExperiment",
      tag,
      summary: "Finish an experiment, and promote its winner where asked",
      description:
        "For engineers. It looks once more and keeps the verdict with its numbers. With `promote` the " +
        "winner gets `alias`; without one, where the endpoint follows an alias to the baseline and the " +
        "candidate won, that alias; else the endpoint serves the winner alone. A node opens it first, " +
        "and where that fails nothing has changed. Without a winner `promote` is refused. One that is " +
        "completed already can still be promoted, once.",
      who: user,
      params: experimentId,
      body: { content: { "application/json": { schema: CompleteBody } }, required: false },
      answers: { 200: json("the experiment", Experiment) },
      errors: ["state_conflict", "task_failed", "no_node"],
    },
    async (context) => {
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
    },
  ),
  route(
    {
      call: "POST /experiments/{experiment_id}/rollback",
      operationId: "rollBackExperiment",
      tag,
      summary: "Take an experiment's promotion back",
      description:
        "Beyond the contract; for engineers. What was moved is again as it was before, unless it has " +
        "moved on since. The rollback is a move in the log, like the promotion.",
      who: user,
      params: experimentId,
      answers: { 200: json("the experiment", Experiment) },
      errors: ["state_conflict", "task_failed", "no_node"],
    },
    async (context) => {
      const { experiment_id: id } = context.req.valid("param");
      const row = await experimentFor(context, id, "engineer");
      const back = await rollBackPromotion(context.var.service, row, promoterOf(context));
      return context.json(experimentRecord(back), 200);
    },
  ),
];
