// The pipelines as the operator API lists them: jobs with their schedules, and partitions.

import { Failure } from "../../../shared/errors.ts";
import { iso } from "../../../shared/time.ts";
import type { Job, PartitionState } from "../../../shared/wire/markets.ts";
import { latestPartition, partitionsBetween, shiftPartition } from "./partition.ts";
import { partitionStates } from "./partition-states.ts";
import type { IngestParts } from "./parts.ts";
import { requirePipeline } from "./pipeline.ts";
import { nextTick } from "./schedule.ts";
import { newestTicks, scheduleStates } from "./ticks.ts";

type OverviewParts = Pick<IngestParts, "pipelines" | "database" | "clock">;

/** Partitions listed when no range is given, and at most. */
const PARTITIONS_DEFAULT = 60;
const PARTITIONS_MAX = 1_000;

/** Every pipeline with its schedules and their newest ticks. */
export async function listJobs({ pipelines, database, clock }: OverviewParts): Promise<Job[]> {
  const now = clock();
  const [states, ticks] = await Promise.all([scheduleStates(database), newestTicks(database)]);
  return pipelines.map(({ job, title, provider, libraries, partitions, schedules }) => ({
    job,
    title,
    provider,
    libraries: [...libraries],
    partition_unit: partitions.unit,
    first_partition: partitions.first,
    latest_partition: latestPartition(partitions, now),
    schedules: schedules.map((schedule) => {
      const { name, cron, timeZone, aim } = schedule;
      const next = nextTick(schedule, now);
      return {
        schedule: name,
        job,
        cron,
        time_zone: timeZone,
        aim,
        enabled: states.get(name)?.enabled ?? true,
        next_tick: next === null ? null : iso(next),
        last_tick: ticks.get(name) ?? null,
        switched_by: states.get(name)?.switchedBy ?? null,
        switched_at: states.get(name)?.switchedAt ?? null,
      };
    }),
  }));
}

/** The partitions of a range, newest first; fails with `unknown_job` or `bad_partition`. */
export async function listPartitions(
  { pipelines, database, clock }: OverviewParts,
  job: string,
  { first, last }: { first?: string | undefined; last?: string | undefined },
): Promise<PartitionState[]> {
  const pipeline = requirePipeline(pipelines, job);
  const { partitions } = pipeline;
  const now = clock();
  const newest = last ?? latestPartition(partitions, now);
  const back = shiftPartition(partitions, newest, 1 - PARTITIONS_DEFAULT);
  const oldest = first ?? (back > partitions.first ? back : partitions.first);
  const keys = partitionsBetween(partitions, oldest, newest, now);
  if (keys.length > PARTITIONS_MAX) {
    const detail = `${keys.length} partitions, at most ${PARTITIONS_MAX} are listed`;
    throw new Failure("bad_partition", detail);
  }
  return partitionStates(database, pipeline, keys, now);
}
