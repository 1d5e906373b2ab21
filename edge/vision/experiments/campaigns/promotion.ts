// What becomes of an experiment's winner: one move in the log of models or of the endpoint, and the
// way back. Whatever makes the winner ready comes before anything has changed.

import { Failure } from "../../../../shared/errors.ts";
import { iso } from "../../../../shared/time.ts";
import type { EndpointMove } from "../../../../shared/wire/endpoints.ts";
import type { Alias, ModelName } from "../../../../shared/wire/training.ts";
import type { Act, AuditAction } from "../../auth/audit.ts";
import type { Parts } from "../../base/parts.ts";
import { findModel, listMoves, type ModelRow, moveName } from "../../models/registry.ts";
import {
  changeEndpoint,
  type EndpointRow,
  isSame,
  listEndpointMoves,
  listEndpoints,
  rollBackEndpoint,
} from "../../serving/endpoints/endpoints.ts";
import { checkSettings, modelsOf, warmNewModels } from "../../serving/endpoints/settings.ts";
import { warmModel } from "../../serving/predict/activation.ts";
import { prepareForEdge } from "../../serving/predict/edge.ts";
import { servingNodes } from "../../tasks/nodes/nodes.ts";
import { type ExperimentRow, findExperiment, notePromotion } from "./experiments.ts";
import type { ExperimentPromotion, ExperimentResults } from "./records.ts";
import { endpointById } from "./traffic.ts";

type EndpointSettings = EndpointRow["settings"];

/** Who promotes or takes back, for the logs. */
export interface Promoter {
  actorId: string;
  actOf: (action: AuditAction) => Act;
}

/** What is to be moved to a winner. */
export type PlannedPromotion =
  | { winnerId: string; alias: ModelName }
  | { winnerId: string; endpoint: EndpointRow; only: EndpointSettings["models"][number] };

/** Settings by which one model answers alone. */
const servedBy = (
  before: EndpointSettings,
  only: EndpointSettings["models"][number],
): EndpointSettings => ({ ...before, models: [only], shadow: null });

/** The model that a verdict favours; fails with `state_conflict` where it favours none. */
export function winnerOf(row: ExperimentRow, { verdict }: ExperimentResults): string {
  if (verdict === "candidate_better") return row.candidateModelId;
  if (verdict === "baseline_better") return row.baselineModelId;
  throw new Failure("state_conflict", `there is no winner to promote: the verdict is ${verdict}`, {
    data: { verdict },
  });
}

/**
 * What a promotion moves: the alias that is named; else of an endpoint that follows an alias to the
 * baseline that alias, where the candidate wins, and in every other case what the endpoint serves.
 * Fails with `invalid_request` where nothing says what to move.
 */
export async function planPromotion(
  parts: Parts,
  row: ExperimentRow,
  { winnerId, alias }: { winnerId: string; alias: Alias | null },
): Promise<PlannedPromotion> {
  const { database } = parts;
  const { workspaceId, endpointId } = row;
  await findModel(database, [workspaceId], winnerId).catch(asConflict("the winner was deleted"));
  const { promotion } = row;
  // One that was cut off is made as it was begun, whatever follows what since.
  const named = promotion ? promotion.alias : alias;
  if (named !== null) return { winnerId, alias: named };
  if (endpointId === null) {
    const detail = "alias: required over reviewed frames: it says what the winner becomes";
    throw new Failure("invalid_request", detail);
  }
  const endpoint = await endpointById(database, { workspaceId, endpointId });
  if (!endpoint || endpoint.deleted) {
    throw new Failure("state_conflict", "the endpoint was deleted; name an alias to move");
  }
  const models = await modelsOf(database, [endpoint]);
  const { settings } = endpoint;
  const targetOf = (modelId: string) =>
    settings.models.find((target) => models.of(workspaceId, target)?.modelId === modelId);
  const followed = targetOf(row.baselineModelId)?.alias ?? null;
  const isFollowed = winnerId === row.candidateModelId && followed !== null;
  if (isFollowed && !promotion) return { winnerId, alias: followed };
  const { model_id, alias: own } = targetOf(winnerId) ?? { model_id: winnerId, alias: null };
  return { winnerId, endpoint, only: { model_id, alias: own, weight: 1 } };
}

const asConflict = (detail: string) => (thrown: unknown) => {
  const isGone = thrown instanceof Failure && thrown.code === "not_found";
  throw isGone ? new Failure("state_conflict", detail, { cause: thrown }) : thrown;
};

/** Readies what a promotion moves; where it fails nothing has changed. */
export async function readyPromotion(parts: Parts, plan: PlannedPromotion, workspaceId: string) {
  if ("endpoint" in plan) {
    const before = plan.endpoint.settings;
    const after = servedBy(before, plan.only);
    await checkSettings(parts.database, { workspaceId, settings: after }, before);
    await warmNewModels(parts, { workspaceId, before, after });
  } else {
    const model = await findModel(parts.database, [workspaceId], plan.winnerId);
    await warmNamed(parts, model, plan.alias);
  }
}

/** Has a node open a model that requests come to once it has a name. */
async function warmNamed(parts: Parts, model: ModelRow, name: ModelName): Promise<void> {
  const { workspaceId } = model;
  if (!(await isServed(parts, workspaceId, name))) return;
  const { warm } = await servingNodes(parts.database, { workspaceId, model });
  if (name === "active" || warm === 0) await warmModel(parts, model);
}

/** Whether requests come to whatever model has a name: to the active one, or by an endpoint. */
async function isServed({ database }: Parts, workspaceId: string, name: ModelName) {
  if (name === "active") return true;
  const endpoints = await listEndpoints(database, [workspaceId]);
  return endpoints.some(({ settings }) => settings.models.some(({ alias }) => alias === name));
}

/** What is active is made ready for the edge, too, as by an activation. */
async function readyAtEdge(
  parts: Parts,
  workspaceId: string,
  { name, modelId, actorId }: { name: ModelName; modelId: string | null; actorId: string },
): Promise<void> {
  if (name !== "active" || modelId === null) return;
  await prepareForEdge(parts, { workspaceId, modelId }, actorId);
}

/**
 * Moves what was planned, and writes it down with the experiment; returns it as it is then. What is
 * to be moved is written down first: of two at once both move the same, and one that is cut off is
 * made by the next request.
 */
export async function promote(
  parts: Parts,
  row: ExperimentRow,
  { plan, ...promoter }: Promoter & { plan: PlannedPromotion },
): Promise<ExperimentRow> {
  const isEndpoint = "endpoint" in plan;
  const begun: ExperimentPromotion = {
    winner_model_id: plan.winnerId,
    kind: isEndpoint ? "endpoint" : "alias",
    alias: isEndpoint ? null : plan.alias,
    slug: isEndpoint ? plan.endpoint.slug : null,
    from_model_id: null,
    move_id: null,
    at: iso(parts.clock()),
    rolled_back_at: null,
  };
  const seen = row.promotion ? row : await notePromotion(parts, row, begun);
  if (!seen) throw new Failure("state_conflict", "another request promotes the winner already");
  const moved = isEndpoint
    ? await moveEndpoint(parts, row, { plan, actorId: promoter.actorId })
    : await moveAlias(parts, row, { plan, ...promoter });
  const noted = await notePromotion(parts, seen, { ...begun, ...moved });
  if (noted) return noted;
  return findExperiment(parts.database, [row.workspaceId], row.experimentId);
}

type MoveNote = Pick<ExperimentPromotion, "from_model_id" | "move_id">;

/**
 * Whether a move may be the promotion's own, of a request that was cut off before it was written
 * down: the same person made the move since it had begun. Whoever calls looks at where it led.
 * Clocks that differ make it nobody's, which is safe: it is not taken back here.
 */
const isOwn = (
  { at, actor_id, rollback_of }: { at: string } & Pick<EndpointMove, "actor_id" | "rollback_of">,
  { promotion }: ExperimentRow,
  actorId: string,
): boolean =>
  promotion !== null && at >= promotion.at && actor_id === actorId && rollback_of === null;

async function moveAlias(
  parts: Parts,
  row: ExperimentRow,
  { plan, actorId, actOf }: Promoter & { plan: { winnerId: string; alias: ModelName } },
): Promise<MoveNote> {
  const { workspaceId } = row;
  const { winnerId: modelId, alias: name } = plan;
  const act = actOf(name === "active" ? "activateModel" : "promoteModel");
  const move = await moveName(parts, { workspaceId, name, modelId, actorId, act });
  await readyAtEdge(parts, workspaceId, { name, modelId, actorId });
  const [newest] = await listMoves(parts.database, [workspaceId], { name, limit: 1, offset: 0 });
  const isCutOff = newest?.to_model_id === modelId && isOwn(newest, row, actorId);
  const made = move ?? (isCutOff ? newest : null);
  return { from_model_id: made?.from_model_id ?? null, move_id: made?.move_id ?? null };
}

async function moveEndpoint(
  parts: Parts,
  row: ExperimentRow,
  { plan, actorId }: { plan: Extract<PlannedPromotion, { endpoint: unknown }>; actorId: string },
): Promise<MoveNote> {
  const edit = async (settings: EndpointSettings) => servedBy(settings, plan.only);
  const { changed, move } = await changeEndpoint(parts, plan.endpoint, { actorId, edit });
  const [newest] = await listEndpointMoves(parts.database, changed, { limit: 1, offset: 0 });
  const isCutOff =
    newest?.kind === "change" &&
    newest.after !== null &&
    isSame(newest.after, servedBy(newest.after, plan.only)) &&
    isOwn(newest, row, actorId);
  const made = move ?? (isCutOff ? newest : null);
  return { from_model_id: null, move_id: made?.move_id ?? null };
}

/**
 * Takes an experiment's promotion back; returns the experiment. Fails with `state_conflict` where
 * there is none that stands, or where what it moved has moved on since.
 */
export async function rollBackPromotion(
  parts: Parts,
  row: ExperimentRow,
  promoter: Promoter,
): Promise<ExperimentRow> {
  const { promotion } = row;
  if (!promotion) throw new Failure("state_conflict", "the experiment promoted nothing");
  if (promotion.rolled_back_at !== null) {
    throw new Failure("state_conflict", "the promotion was taken back already");
  }
  const { move_id: moveId } = promotion;
  if (moveId === null) {
    throw new Failure("state_conflict", "the promotion moved nothing: it was so already");
  }
  if (promotion.kind === "alias")
    await takeNameBack(parts, row, { promotion, moveId, ...promoter });
  else await takeEndpointBack(parts, row, { moveId, actorId: promoter.actorId });
  const rolled_back_at = iso(parts.clock());
  const noted = await notePromotion(parts, row, { ...promotion, rolled_back_at });
  if (noted) return noted;
  throw new Failure("state_conflict", "the promotion was taken back by another request meanwhile");
}

async function takeNameBack(
  parts: Parts,
  { workspaceId }: ExperimentRow,
  back: Promoter & { promotion: ExperimentPromotion; moveId: number },
): Promise<void> {
  const { promotion, moveId, actorId, actOf } = back;
  const { alias: name, from_model_id: modelId, winner_model_id: from } = promotion;
  if (name === null) return;
  const [newest] = await listMoves(parts.database, [workspaceId], { name, limit: 1, offset: 0 });
  // A request that was cut off took it back already.
  if (newest?.rollback_of === moveId) return;
  if (newest?.move_id !== moveId) {
    throw new Failure(
      "state_conflict",
      `${name} has moved since: roll it back by POST /models/rollback`,
    );
  }
  if (modelId !== null) {
    const model = await findModel(parts.database, [workspaceId], modelId).catch(GONE);
    const warmed = warmNamed(parts, model, name);
    await (name === "active" ? warmed : warmed.catch(unlessNoNode));
  }
  const act = actOf("rollBackModel");
  const move = { workspaceId, name, modelId, from, actorId, act, rollbackOf: moveId };
  await moveName(parts, move).catch(GONE);
  await readyAtEdge(parts, workspaceId, { name, modelId, actorId });
}

/** Whoever goes back does so most urgently while the nodes are down. */
const unlessNoNode = (thrown: unknown) => {
  if (!(thrown instanceof Failure && thrown.code === "no_node")) throw thrown;
};

const GONE = asConflict("what it was before names a model that was deleted");

async function takeEndpointBack(
  parts: Parts,
  { workspaceId, endpointId }: ExperimentRow,
  { moveId, actorId }: { moveId: number; actorId: string },
): Promise<void> {
  const { database } = parts;
  const endpoint = endpointId && (await endpointById(database, { workspaceId, endpointId }));
  if (!endpoint || endpoint.deleted) {
    throw new Failure("state_conflict", "the endpoint was deleted since");
  }
  const [newest] = await listEndpointMoves(database, endpoint, { limit: 1, offset: 0 });
  // A request that was cut off took it back already.
  if (newest?.rollback_of === moveId) return;
  if (newest?.move_id !== moveId || newest.before === null) {
    const way = `POST /endpoints/${endpoint.slug}/rollback`;
    throw new Failure("state_conflict", `the endpoint has moved since: roll it back by ${way}`);
  }
  const settings = newest.before;
  const change = { workspaceId, before: endpoint.settings, after: settings };
  await warmNewModels(parts, change).catch(unlessNoNode);
  const back = { settings, rollbackOf: moveId, skipped: [], actorId };
  await rollBackEndpoint(parts, endpoint, back).catch(GONE);
}
