// What a minute brings to rollouts: each that is rolling is judged by what its devices reported,
// and goes on to its next stage, waits, or goes back with all its devices. Any step may be cut
// short and is taken up by the next minute.

import { sql } from "drizzle-orm";
import type { RolloutFigures } from "../../../../shared/wire/rollouts.ts";
import { batch, type Database, isSilent } from "../../../http/database.ts";
import { performDuties } from "../../../http/duties.ts";
import type { Parts } from "../../base/parts.ts";
import {
  assignRollouts,
  releaseHolds,
  sendBackAll,
  sendingBack,
  takeMissedReports,
} from "./devices.ts";
import { type Judgment, judge } from "./gates.ts";
import {
  fleetCounts,
  noteMove,
  type RolloutRow,
  rollingRollouts,
  rolloutFigures,
} from "./rollouts.ts";

/** Rollouts that one minute judges; those judged longest ago come first. */
const JUDGED_MAX = 200;

/** Judges and moves rollouts, and gives devices what they should have. The minute's duty. */
export async function advanceRollouts(parts: Parts): Promise<void> {
  await performDuties(parts.log, STEPS, parts);
}

const STEPS: Record<string, (parts: Parts) => Promise<unknown>> = {
  rollout_reports: takeMissedReports,
  // A stage that a fault kept from its devices is not one that brought none.
  rollouts_given: ({ database }) => assignRollouts(database),
  rollouts_judged: judgeAll,
  rollouts_sent_back: ({ database }) => sendBackAll(database),
  rollouts_given_on: ({ database }) => assignRollouts(database),
  rollouts_let_go: ({ database }) => releaseHolds(database),
};

/** Judges and moves rollouts; one that cannot be judged keeps no other waiting. */
async function judgeAll(parts: Parts): Promise<void> {
  const { database, log } = parts;
  for (const row of await rollingRollouts(database, JUDGED_MAX)) {
    try {
      await judgeOne(parts, row);
    } catch (error) {
      log.error("rollout_not_judged", { rollout_id: row.rolloutId, error });
      if (isSilent(error)) return;
    }
  }
}

async function judgeOne({ database, log }: Parts, row: RolloutRow): Promise<void> {
  const figures = await rolloutFigures(database, row.rolloutId);
  const judgment = judge(figures, {
    minutes: row.stageMinutes,
    isLast: row.stage === row.stages.length - 1,
    gates: row.gates,
    brought: await fleetCounts(database, row.rolloutId, { since: "stage" }),
  });
  const done = await follow(database, row, { judgment, figures });
  if (done && judgment.verdict !== "wait") {
    const { rolloutId: rollout_id, stage } = row;
    log.info("rollout_moved", { rollout_id, stage, verdict: judgment.verdict });
  }
}

/** Does what was judged, unless the rollout was moved since; returns whether it did. */
async function follow(
  database: Database,
  row: RolloutRow,
  { judgment, figures }: { judgment: Judgment; figures: RolloutFigures },
): Promise<boolean> {
  const { verdict, reason } = judgment;
  const isSeen = sql`id = ${row.rolloutId}::uuid AND state = 'rolling' AND stage = ${row.stage}::int`;
  const returned = sql`RETURNING id, workspace_id, stage, reason`;
  switch (verdict) {
    case "wait": {
      await database.execute(
        sql`UPDATE rollout SET reason = ${reason}, updated_at = now() WHERE ${isSeen}`,
      );
      return false;
    }
    case "advance": {
      const [moved] = await batch(database, [
        sql`WITH moved AS (
            UPDATE rollout SET stage = stage + 1, stage_since = now(), updated_at = now(),
              reason = ${reason} WHERE ${isSeen} ${returned})
          ${noteMove("advance", { figures })}`,
      ]);
      return Boolean(moved?.length);
    }
    case "complete": {
      const [moved] = await batch(database, [
        sql`WITH moved AS (
            UPDATE rollout SET state = 'completed', updated_at = now(), reason = ${reason}
             WHERE ${isSeen} ${returned})
          ${noteMove("complete", { figures })}`,
        // Those of the same devices that came before are nobody's any more, and never come back.
        sql`WITH moved AS (
            UPDATE rollout o SET state = 'superseded', updated_at = now(), reason = NULL
              FROM rollout n WHERE n.id = ${row.rolloutId}::uuid AND n.state = 'completed'
               AND o.workspace_id = n.workspace_id AND o.state IN ('rolling', 'paused', 'completed') AND o.id <> n.id
               AND o.group_name IS NOT DISTINCT FROM n.group_name AND o.tags = n.tags
               AND o.created_at <= n.created_at
            RETURNING o.id, o.workspace_id, o.stage, o.reason)
          ${noteMove("supersede", {})}`,
      ]);
      return Boolean(moved?.length);
    }
    case "roll_back": {
      const [moved] = await batch(database, [
        sql`WITH moved AS (
            UPDATE rollout SET state = 'rolled_back', updated_at = now(), reason = ${reason}
             WHERE ${isSeen} ${returned})
          ${noteMove("roll_back", { figures })}`,
        ...sendingBack(row.rolloutId),
      ]);
      return Boolean(moved?.length);
    }
  }
}
