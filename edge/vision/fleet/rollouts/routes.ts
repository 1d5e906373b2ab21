// Rollouts over HTTP: made, read, and moved by people.

import { z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { MODEL_STATES } from "../../../../shared/wire/fleet.ts";
import {
  ROLLOUT_STATES,
  Rollout,
  RolloutDevice,
  RolloutMove,
} from "../../../../shared/wire/rollouts.ts";
import type { Role } from "../../../../shared/wire/vision.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { allow, callerOf, workspacesOf } from "../../auth/scope.ts";
import { pageQuery } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { type Route, route } from "../../base/route.ts";
import { gatesOf, RolloutBody, selectorOf, stagesOf } from "./bodies.ts";
import { assignRollouts } from "./devices.ts";
import { assertSigning } from "./manifest-keys.ts";
import {
  createRollout,
  findRollout,
  listRolloutDevices,
  listRolloutMoves,
  listRollouts,
  moveRollout,
  type PeoplesMove,
  type RolloutRow,
  rolloutFile,
  rolloutRecord,
} from "./rollouts.ts";

const tag = "Rollouts";
const ROLLOUTS_MAX = 100;
const ENTRIES_MAX = 1_000;
const rolloutId = z.object({ rollout_id: z.uuid() });

/** The rollout of a request, if its caller has at least the role in its workspace. */
async function rolloutFor(
  context: Pick<Context, "get"> & { var: { service: Parts } },
  id: string,
  role: Role,
): Promise<RolloutRow> {
  const caller = callerOf(context);
  const row = await findRollout(context.var.service.database, workspacesOf(caller), id);
  allow(caller, row.workspaceId, role);
  return row;
}

const moveRoute = (move: PeoplesMove, description: string): Route =>
  route(
    {
      call: `POST /rollouts/{rollout_id}/${move}`,
      operationId: `${move}Rollout`,
      tag,
      summary: `${move[0]?.toUpperCase()}${move.slice(1)} a rollout`,
      description: `Beyond the contract; for engineers. ${description}`,
      who: user,
      params: rolloutId,
      answers: { 200: json("the rollout", Rollout) },
      errors: ["state_conflict"],
    },
    async (context) => {
      const { database } = context.var.service;
      const row = await rolloutFor(context, context.req.valid("param").rollout_id, "engineer");
      const actorId = callerOf(context).accountId;
      await moveRollout(database, row, { move, actorId });
      const now = await findRollout(database, [row.workspaceId], row.rolloutId);
      return context.json(await rolloutRecord(database, now), 200);
    },
  );

/** Routes of rollouts, but for those that devices use. */
export const rolloutRoutes: readonly Route[] = [
  route(
    {
      call: "POST /rollouts",
      operationId: "makeRollout",
      tag,
      summary: "Bring a model to devices, in stages",
      description:
        "Beyond the contract; for engineers. The devices of a `group`, or those that have all `tags`, " +
        "get the file of an export, a share of them at each stage: those whose bucket, a hash of the " +
        "device's and the rollout's ids modulo 10,000, is below it, at least one in the first. A " +
        "minute's duty looks at what they report: where a gate fails, all go back to what they had " +
        "confirmed before; where enough confirmed, the next stage begins. Devices that are away get " +
        "what is wanted of them when they come. At most 100 under way.",
      who: user,
      body: jsonBody(RolloutBody),
      answers: { 201: json("the rollout", Rollout) },
      errors: ["not_found", "state_conflict"],
    },
    async (context) => {
      const parts = context.var.service;
      const { database } = parts;
      const caller = callerOf(context);
      const body = context.req.valid("json");
      const selector = selectorOf(body);
      const stages = stagesOf(body);
      const exported = await rolloutFile(database, workspacesOf(caller), body.export_id, (id) =>
        allow(caller, id, "engineer"),
      );
      const { workspaceId } = exported;
      assertSigning(parts);
      const id = await createRollout(database, {
        ...exported,
        ...selector,
        exportId: body.export_id,
        gates: gatesOf(body),
        confirm: body.confirm,
        confidence: body.confidence,
        minAgent: body.min_agent,
        stages,
        actorId: caller.accountId,
      });
      await assignRollouts(database, { workspaceId });
      const row = await findRollout(database, [workspaceId], id);
      return context.json(await rolloutRecord(database, row), 201);
    },
  ),
  route(
    {
      call: "GET /rollouts",
      operationId: "listRollouts",
      tag,
      summary: "Rollouts, newest first",
      description:
        "Beyond the contract. Ratios and shifts of their figures are null here; a rollout's own record " +
        "has them.",
      who: user,
      query: z.object({
        status: z.enum(ROLLOUT_STATES).optional().meta({ description: "only those that stand so" }),
        ...pageQuery(ROLLOUTS_MAX, 20),
      }),
      answers: { 200: json("rollouts", z.array(Rollout)) },
    },
    async (context) => {
      const { database } = context.var.service;
      const page = context.req.valid("query");
      const rows = await listRollouts(database, workspacesOf(callerOf(context)), page);
      const records = rows.map((row) => rolloutRecord(database, row, { isListed: true }));
      const all = await Promise.all(records);
      return context.json(all, 200);
    },
  ),
  route(
    {
      call: "GET /rollouts/{rollout_id}",
      operationId: "readRollout",
      tag,
      summary: "How a rollout stands",
      description: "Beyond the contract. Devices by state, and the figures that its gates look at.",
      who: user,
      params: rolloutId,
      answers: { 200: json("the rollout", Rollout) },
    },
    async (context) => {
      const row = await rolloutFor(context, context.req.valid("param").rollout_id, "viewer");
      return context.json(await rolloutRecord(context.var.service.database, row), 200);
    },
  ),
  route(
    {
      call: "GET /rollouts/{rollout_id}/devices",
      operationId: "listRolloutDevices",
      tag,
      summary: "The devices that a rollout was given to, by their buckets",
      description: "Beyond the contract.",
      who: user,
      params: rolloutId,
      query: z.object({
        status: z.enum(MODEL_STATES).optional().meta({ description: "only those that are so far" }),
        ...pageQuery(ENTRIES_MAX),
      }),
      answers: { 200: json("its devices", z.array(RolloutDevice)) },
    },
    async (context) => {
      const row = await rolloutFor(context, context.req.valid("param").rollout_id, "viewer");
      const page = context.req.valid("query");
      const rows = await listRolloutDevices(context.var.service.database, row, page);
      return context.json(z.array(RolloutDevice).parse(rows), 200);
    },
  ),
  route(
    {
      call: "GET /rollouts/{rollout_id}/moves",
      operationId: "listRolloutMoves",
      tag,
      summary: "What happened to a rollout, newest first",
      description: "Beyond the contract. Kept for ever, with what the gates saw.",
      who: user,
      params: rolloutId,
      query: z.object(pageQuery(ENTRIES_MAX)),
      answers: { 200: json("its moves", z.array(RolloutMove)) },
    },
    async (context) => {
      const row = await rolloutFor(context, context.req.valid("param").rollout_id, "viewer");
      const page = context.req.valid("query");
      const rows = await listRolloutMoves(context.var.service.database, row, page);
      return context.json(z.array(RolloutMove).parse(rows), 200);
    },
  ),
  moveRoute("pause", "No further device gets it, and no gate is looked at, until it is resumed."),
  moveRoute("resume", "It goes on where it was paused; its stage begins anew."),
  moveRoute(
    "abort",
    "Every device that it was given to goes back to the model that it had confirmed before; one " +
      "without any keeps what it has. Of a rollout that was completed, too.",
  ),
];
