// A look at an experiment: what its samples come to now, and what that brings. The minute looks at
// each; so does whoever pauses or ends one.

import { Failure } from "../../../../shared/errors.ts";
import { HOUR } from "../../../../shared/time.ts";
import type { Parts } from "../../base/parts.ts";
import { findJob, type JobRow } from "../../labeling/jobs/jobs.ts";
import { listModels, type ModelRow } from "../../models/registry.ts";
import { endOf, isOver } from "./end.ts";
import {
  changeExperiment,
  type ExperimentChange,
  type ExperimentRow,
  findExperiment,
  liveExperiments,
  touchExperiment,
} from "./experiments.ts";
import { resultsOf, type Samples } from "./figures.ts";
import { bringFramesOn, dropFrameTasks, reviewedScores } from "./frames.ts";
import type { ExperimentReason, ExperimentResults } from "./records.ts";
import { hasEnded } from "./states.ts";
import {
  countedBy,
  endpointById,
  lookUpServing,
  type MeterQuestion,
  noTraffic,
  readMeter,
  servesAsBegun,
} from "./traffic.ts";

/** How long looks may fail at the end of an experiment before it ends without them. */
const GRACE_MS = HOUR;

/** What a look found. */
export interface Look {
  /** What is to be written down of it. */
  change: Pick<ExperimentChange, "results" | "mark" | "counted">;
  results: ExperimentResults;
}

/** Why an experiment cannot go on as it is. */
interface Trouble {
  move: "stop" | "pause";
  reason: ExperimentReason;
}

/** Both models of an experiment; null where one was deleted. */
async function pairOf(
  { database }: Parts,
  row: ExperimentRow,
): Promise<{ baseline: ModelRow; candidate: ModelRow } | null> {
  const modelIds = [row.baselineModelId, row.candidateModelId];
  const models = await listModels(database, [row.workspaceId], { among: { modelIds, names: [] } });
  const [baseline, candidate] = modelIds.map((id) => models.find(({ modelId }) => modelId === id));
  return baseline && candidate ? { baseline, candidate } : null;
}

/** The job of an experiment; null where it was deleted. */
async function jobOf({ database }: Parts, row: ExperimentRow): Promise<JobRow | null> {
  return orGone(findJob(database, [row.workspaceId], row.jobId ?? ""));
}

/** What is looked for; null where it was deleted. */
const orGone = <Found>(found: Promise<Found>): Promise<Found | null> =>
  found.catch((thrown: unknown) => {
    if (thrown instanceof Failure && thrown.code === "not_found") return null;
    throw thrown;
  });

/** What an experiment asks of its endpoint's meter; null over reviewed frames. */
export const meterQuestion = ({ endpointId, ...row }: ExperimentRow): MeterQuestion | null =>
  endpointId === null
    ? null
    : {
        endpointId,
        source: row.source,
        baselineModelId: row.baselineModelId,
        candidateModelId: row.candidateModelId,
      };

/** What an experiment's samples come to now. What is read here counts once the change is made. */
export async function lookAt(parts: Parts, row: ExperimentRow): Promise<Look> {
  const question = meterQuestion(row);
  if (!question) {
    const samples: Samples = { reviewed: await reviewedScores(parts, row) };
    const results = resultsOf(row, samples);
    return { change: { results }, results };
  }
  // One that is paused counts nothing.
  const { mark, counted } = row.mark
    ? countedBy(row, await readMeter(parts, question))
    : { mark: null, counted: row.counted ?? noTraffic() };
  const results = resultsOf(row, { traffic: counted });
  return { change: { results, mark, counted }, results };
}

/** What stands in an experiment's way; null where nothing does. */
async function troubleOf(parts: Parts, row: ExperimentRow): Promise<Trouble | null> {
  const { workspaceId, endpointId } = row;
  if (!(await pairOf(parts, row))) return { move: "stop", reason: "model_deleted" };
  if (endpointId === null) {
    return (await jobOf(parts, row)) ? null : { move: "stop", reason: "job_deleted" };
  }
  const endpoint = await endpointById(parts.database, { workspaceId, endpointId });
  if (!endpoint || endpoint.deleted) return { move: "stop", reason: "endpoint_deleted" };
  if (row.state === "paused") return null;
  const serving = await lookUpServing(parts.database, endpoint, row);
  return servesAsBegun(serving, row) ? null : { move: "pause", reason: "endpoint_moved" };
}

/** The minute's look at one experiment. */
async function lookAtOne(parts: Parts, row: ExperimentRow): Promise<void> {
  const trouble = await troubleOf(parts, row);
  const isRunning = row.state === "running";
  if (!trouble && isRunning && row.jobId !== null) {
    const [job, models] = await Promise.all([jobOf(parts, row), pairOf(parts, row)]);
    if (job && models) await bringFramesOn(parts, row, { job, models });
  }
  const { change, results } = await lookAt(parts, row);
  const end = trouble ?? endOf(row, results, parts.clock());
  // What is paused or over counts no more.
  const moved = end ? { ...change, ...end, mark: null } : change;
  await endLook(parts, row, await changeExperiment(parts, row, moved));
}

/** What is under way for an experiment that has ended is nobody's, whoever ended it. */
async function endLook(parts: Parts, row: ExperimentRow, changed: ExperimentRow | null) {
  const now =
    changed ?? (await orGone(findExperiment(parts.database, [row.workspaceId], row.experimentId)));
  if (now && !hasEnded(now.state)) return;
  await dropFrameTasks(parts, row);
  if (!changed) return;
  const { experimentId, state, reason } = changed;
  parts.log.info("experiment_ended", { experiment_id: experimentId, state, reason });
}

/**
 * After a look that failed: others come first the next minute, and one whose days are over ends
 * by what the last look found.
 */
async function passOver(parts: Parts, row: ExperimentRow): Promise<void> {
  await touchExperiment(parts, row);
  if (!isOver(row, parts.clock() - GRACE_MS)) return;
  const end = { move: "complete", reason: "budget", mark: null } as const;
  await endLook(parts, row, await changeExperiment(parts, row, end));
}

/** The minute's duty: looks at experiments that have not ended. One that fails holds up none. */
export async function lookAtExperiments(parts: Parts): Promise<void> {
  for (const row of await liveExperiments(parts.database)) {
    try {
      await lookAtOne(parts, row);
    } catch (error) {
      parts.log.error("experiment_look", { experiment_id: row.experimentId, error });
      await passOver(parts, row).catch((thrown: unknown) => {
        parts.log.error("experiment_look", { experiment_id: row.experimentId, error: thrown });
      });
    }
  }
}
