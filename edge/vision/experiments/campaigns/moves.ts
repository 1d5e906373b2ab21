// What people do to an experiment. Each looks first, so that what came until now is counted; a look
// of the minute in between is taken up, and the move made again of what it left.

import { Failure } from "../../../../shared/errors.ts";
import type { Alias } from "../../../../shared/wire/training.ts";
import type { Parts } from "../../base/parts.ts";
import {
  assertMovable,
  changeExperiment,
  type ExperimentRow,
  findExperiment,
} from "./experiments.ts";
import { dropFrameTasks } from "./frames.ts";
import { lookAt, meterQuestion } from "./looks.ts";
import {
  type PlannedPromotion,
  type Promoter,
  planPromotion,
  promote,
  readyPromotion,
  winnerOf,
} from "./promotion.ts";
import { endpointById, lookUpServing, markOf, readMeter, servesAsBegun } from "./traffic.ts";

/** A move that others keep coming before is given up. */
const TRIES_MAX = 3;

/** Makes a move of an experiment as it is now: `move` gives null where another came before. */
async function persistently(
  { database }: Parts,
  row: ExperimentRow,
  move: (seen: ExperimentRow) => Promise<ExperimentRow | null>,
): Promise<ExperimentRow> {
  let seen = row;
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    const moved = await move(seen);
    if (moved) return moved;
    seen = await findExperiment(database, [row.workspaceId], row.experimentId);
  }
  throw new Failure("state_conflict", "others keep changing the experiment; try again");
}

/** Pauses an experiment, or gives it up. */
export async function suspendExperiment(
  parts: Parts,
  row: ExperimentRow,
  move: "pause" | "stop",
): Promise<ExperimentRow> {
  const suspended = await persistently(parts, row, async (seen) => {
    assertMovable(seen, move);
    const { change } = await lookAt(parts, seen);
    return changeExperiment(parts, seen, { ...change, mark: null, move, reason: "by_person" });
  });
  if (move === "stop") await dropFrameTasks(parts, suspended);
  return suspended;
}

/** Goes on with a paused experiment; what came meanwhile does not count. */
export const resumeExperiment = (parts: Parts, row: ExperimentRow): Promise<ExperimentRow> =>
  persistently(parts, row, async (seen) => {
    assertMovable(seen, "resume");
    const question = meterQuestion(seen);
    if (!question) return changeExperiment(parts, seen, { move: "resume" });
    const endpoint = await endpointById(parts.database, {
      ...seen,
      endpointId: question.endpointId,
    });
    const serving =
      endpoint && !endpoint.deleted && (await lookUpServing(parts.database, endpoint, seen));
    if (!serving || !servesAsBegun(serving, seen)) {
      const detail = "the endpoint does not serve both models as when the experiment began";
      throw new Failure("state_conflict", detail);
    }
    const mark = markOf(await readMeter(parts, question));
    return changeExperiment(parts, seen, { move: "resume", mark });
  });

/** Who asks for a promotion, and the alias that he names. */
export interface PromotionRequest extends Promoter {
  alias: Alias | null;
}

/** Completes an experiment, and promotes its winner where asked. */
export async function completeExperiment(
  parts: Parts,
  row: ExperimentRow,
  request: PromotionRequest | null,
): Promise<ExperimentRow> {
  if (row.state === "completed" && request) return promoteCompleted(parts, row, request);
  const ready: { plan: PlannedPromotion | null } = { plan: null };
  const completed = await persistently(parts, row, async (seen) => {
    assertMovable(seen, "complete");
    const { change, results } = await lookAt(parts, seen);
    if (request) ready.plan = await readied(parts, { ...seen, results }, request);
    const move = { move: "complete", reason: "by_person" } as const;
    return changeExperiment(parts, seen, { ...change, mark: null, ...move });
  });
  await dropFrameTasks(parts, completed);
  const { plan } = ready;
  return plan && request ? promote(parts, completed, { ...request, plan }) : completed;
}

/** What a promotion moves, ready to be moved. */
async function readied(
  parts: Parts,
  row: ExperimentRow,
  { alias }: PromotionRequest,
): Promise<PlannedPromotion> {
  const winnerId = winnerOf(row, row.results);
  const plan = await planPromotion(parts, row, { winnerId, alias });
  await readyPromotion(parts, plan, row.workspaceId);
  return plan;
}

async function promoteCompleted(
  parts: Parts,
  row: ExperimentRow,
  request: PromotionRequest,
): Promise<ExperimentRow> {
  // One without a move was cut off, or found nothing to move: it may be made again.
  if (row.promotion && row.promotion.move_id !== null) {
    throw new Failure("state_conflict", "the experiment was completed and promoted already");
  }
  return promote(parts, row, { ...request, plan: await readied(parts, row, request) });
}
