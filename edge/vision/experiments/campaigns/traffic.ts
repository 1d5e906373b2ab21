// An experiment over an endpoint: how its two models serve there, and what the endpoint's meter has
// counted of them since the experiment began, pauses left out.

import { sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import type { Database } from "../../../http/database.ts";
import { rowsOf } from "../../../http/selection.ts";
import type { Parts } from "../../base/parts.ts";
import { ENDPOINT, type EndpointRow } from "../../serving/endpoints/endpoints.ts";
import { endpointMeter } from "../../serving/endpoints/meter.ts";
import { modelsOf, type ServedModels } from "../../serving/endpoints/settings.ts";
import {
  emptyTrial,
  sumTrials,
  type Trial,
  trialName,
  trialSince,
} from "../../serving/endpoints/trials.ts";
import type { ExperimentRow } from "./experiments.ts";
import type { Mark, TrafficCounts } from "./figures.ts";
import type { TrafficHistory } from "./plan.ts";
import type { ExperimentSource } from "./records.ts";

/** Two models, by their ids. */
export interface Pair {
  baselineModelId: string;
  candidateModelId: string;
}

/** The endpoint of this id, deleted or not; null where there never was one. */
export async function endpointById(
  database: Database,
  { workspaceId, endpointId }: { workspaceId: string; endpointId: string },
): Promise<EndpointRow | null> {
  const rows = await rowsOf(database, ENDPOINT)`
    SELECT ${ENDPOINT} FROM endpoint e
     WHERE e.id = ${endpointId}::uuid AND e.workspace_id = ${workspaceId}::uuid`;
  return rows[0] ?? null;
}

/** How two models serve at an endpoint now, and what part of its requests the candidate sees. */
export interface Serving {
  source: Exclude<ExperimentSource, "reviewed">;
  /** The candidate's share of the two models' requests; over a shadow, the shadow's share. */
  candidateShare: number;
  /**
   * All that samples depend on, as text to be compared: what is counted under other shares or
   * settings is not pooled. A shadow's share is left out, since its samples are pairs.
   */
  terms: string;
}

/** How two models serve at an endpoint now; null where they do not both. */
export function servingOf(
  models: ServedModels,
  { workspaceId, settings }: EndpointRow,
  { baselineModelId, candidateModelId }: Pair,
): Serving | null {
  const weightOf = (modelId: string) =>
    settings.models
      .filter((target) => models.of(workspaceId, target)?.modelId === modelId)
      .reduce((sum, { weight }) => sum + weight, 0);
  const [baseline, candidate] = [weightOf(baselineModelId), weightOf(candidateModelId)];
  if (baseline === 0) return null;
  const { shadow, confidence, classes, image_size } = settings;
  const termsOf = (share: number | null) =>
    JSON.stringify([share, confidence, classes && [...classes].sort(), image_size]);
  if (candidate > 0) {
    const candidateShare = candidate / (baseline + candidate);
    return { source: "split", candidateShare, terms: termsOf(candidateShare) };
  }
  const isShadow = shadow && models.of(workspaceId, shadow)?.modelId === candidateModelId;
  if (!isShadow) return null;
  return { source: "shadow", candidateShare: shadow.share, terms: termsOf(null) };
}

/** Whether two models serve as when their experiment began. */
export const servesAsBegun = (
  serving: Serving | null,
  { source, plan }: Pick<ExperimentRow, "source" | "plan">,
): boolean => serving?.source === source && serving.terms === plan.terms;

/** How two models serve at an endpoint now, looked up. */
export const lookUpServing = async (
  database: Database,
  endpoint: EndpointRow,
  pair: Pair,
): Promise<Serving | null> => servingOf(await modelsOf(database, [endpoint]), endpoint, pair);

/** What is asked of an endpoint's meter. */
export interface MeterQuestion extends Pair {
  endpointId: string;
  source: ExperimentSource;
}

/**
 * What the meter has counted of two models since the endpoint was made. Fails with
 * `store_unavailable` where it does not answer.
 */
export async function readTraffic(
  parts: Parts,
  { endpointId, source, baselineModelId, candidateModelId }: MeterQuestion,
): Promise<TrafficCounts> {
  const baseline = trialName(baselineModelId);
  const candidate = trialName(candidateModelId, source === "shadow" ? baselineModelId : null);
  const meter = endpointMeter(parts, endpointId);
  const trials = await meter.trials([baseline, candidate]).catch((cause: unknown) => {
    throw new Failure("store_unavailable", "the meter does not answer; try again", { cause });
  });
  const of = (name: string): Trial => trials[name] ?? emptyTrial();
  return { baseline: of(baseline), candidate: of(candidate) };
}

const eachOf = (
  one: TrafficCounts,
  other: TrafficCounts,
  by: (one: Trial, other: Trial) => Trial,
): TrafficCounts => ({
  baseline: by(one.baseline, other.baseline),
  candidate: by(one.candidate, other.candidate),
});

/** A reading of a meter between two looks at the moves of its endpoint. */
interface MeterReading {
  counts: TrafficCounts;
  movesBefore: string;
  movesAfter: string;
}

/** The newest moves of an endpoint, and of the aliases that it follows, as text to be compared. */
async function newestMoves(database: Database, endpointId: string): Promise<string> {
  const { rows } = await database.execute<{ moves: string }>(sql`
    SELECT e.revision || '.' || coalesce((SELECT max(n.id) FROM model_move n
        WHERE n.workspace_id = e.workspace_id AND n.name IN (
          SELECT target->>'alias' FROM jsonb_array_elements(e.settings->'models'
            || jsonb_build_array(e.settings->'shadow')) AS target)), 0) AS moves
      FROM endpoint e WHERE e.id = ${endpointId}::uuid`);
  return rows[0]?.moves ?? "";
}

/** Reads a meter, and the moves around it. Fails as `readTraffic` does. */
export async function readMeter(parts: Parts, question: MeterQuestion): Promise<MeterReading> {
  const movesBefore = await newestMoves(parts.database, question.endpointId);
  const counts = await readTraffic(parts, question);
  return {
    counts,
    movesBefore,
    movesAfter: await newestMoves(parts.database, question.endpointId),
  };
}

/** The mark of a reading with which an experiment begins, or goes on after a pause. */
export const markOf = ({ counts, movesBefore }: MeterReading): Mark => ({
  ...counts,
  moves: movesBefore,
});

/**
 * What an experiment has counted by a reading of its meter, and the mark that follows. A stretch
 * in which the endpoint or one of its aliases moved counts nothing, nor does the one after it:
 * there is no telling which of its requests were answered under which terms.
 */
export function countedBy(
  { mark, counted }: Pick<ExperimentRow, "mark" | "counted">,
  reading: MeterReading,
): { counted: TrafficCounts; mark: Mark } {
  const { counts, movesAfter } = reading;
  const isMoved = mark?.moves !== movesAfter;
  const isPooled = mark && !isMoved && mark.isUnsettled !== true;
  const stretch = isPooled ? eachOf(counts, mark, trialSince) : noTraffic();
  return {
    counted: counted ? eachOf(counted, stretch, sumTrials) : stretch,
    mark: isMoved ? { ...markOf(reading), isUnsettled: true } : markOf(reading),
  };
}

export const noTraffic = (): TrafficCounts => ({ baseline: emptyTrial(), candidate: emptyTrial() });

/** What the endpoint's requests were like until now. */
export async function historyOf(
  parts: Parts,
  question: MeterQuestion,
  { reading, serving }: { reading: TrafficCounts; serving: Serving },
): Promise<TrafficHistory> {
  const { endpointId, source, baselineModelId, candidateModelId } = question;
  const { windows } = await endpointMeter(parts, endpointId).read(parts.clock());
  const requests = (modelId: string) => windows["24h"].models[modelId]?.requests ?? 0;
  const isShadow = source === "shadow";
  return {
    trial: isShadow ? reading.candidate : reading.baseline,
    candidateShare: serving.candidateShare,
    samplesPerDay: isShadow
      ? requests(baselineModelId) * serving.candidateShare
      : requests(baselineModelId) + requests(candidateModelId),
  };
}
