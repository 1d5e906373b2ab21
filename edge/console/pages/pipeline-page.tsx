// One pipeline: its partitions as a grid, its schedules, its newest runs, and the forms that launch
// a run or a backfill.

import type { FC } from "hono/jsx";
import type { Job, PartitionState } from "../../../shared/wire/markets.ts";
import { listJobs } from "../../markets/ingest/overview.ts";
import { latestPartition, partitionRange, shiftPartition } from "../../markets/ingest/partition.ts";
import { partitionStates, recentKeys } from "../../markets/ingest/partition-states.ts";
import type { IngestParts } from "../../markets/ingest/parts.ts";
import { type Pipeline, requirePipeline } from "../../markets/ingest/pipeline.ts";
import {
  type ExecutionSummary,
  type JobPace,
  jobPace,
  listExecutionSummaries,
} from "../../markets/ingest/summaries.ts";
import { timeOf } from "./backfill-plan.tsx";
import { DateField, Empty, Facts, Live, State } from "./components.tsx";
import { cellOf, Grid, Legend } from "./grid.tsx";
import { Form, type Here, type View } from "./layout.tsx";
import { AllRuns, RunTable } from "./runs.tsx";
import { ScheduleTable } from "./schedules.tsx";
import { isBusy, jobPath, number, seriesPath } from "./words.ts";

/** Partitions of a grid's page: some three months of days, two years of weeks, ten of months. */
const SHOWN = { day: 92, operating_day: 92, weekday: 66, week: 104, month: 120 } as const;
const RUNS = 10;
/** What the backfill form proposes. */
const PROPOSED = { day: 90, operating_day: 90, weekday: 65, week: 26, month: 24 } as const;
const UNITS = {
  day: "UTC day",
  operating_day: "operating day (Central time, 23 to 25 hours)",
  weekday: "weekday",
  week: "week, named by its Friday",
  month: "month, named by its first day",
} as const;

/** What the address of a pipeline's page asks for. */
interface PipelineQuery {
  /** Newest partition of the grid. */
  last?: string | undefined;
  /** The one to look at. */
  partition?: string | undefined;
}

/** One pipeline: partitions, forms, schedules, newest runs. Fails with `unknown_job`. */
export async function pipelineView(
  parts: IngestParts,
  name: string,
  asked: PipelineQuery,
): Promise<View> {
  const pipeline = requirePipeline(parts.pipelines, name);
  const { database, clock } = parts;
  const { partitions, job } = pipeline;
  const now = clock();
  const newest = latestPartition(partitions, now);
  if (asked.last) partitionRange(partitions, asked.last, now);
  const keys = recentKeys(partitions, SHOWN[partitions.unit], now, asked.last ?? newest);
  const [jobs, states, runs, pace, chosen] = await Promise.all([
    listJobs(parts),
    partitionStates(database, pipeline, keys, now),
    listExecutionSummaries(database, { job, limit: RUNS }),
    jobPace(database, job),
    asked.partition ? lookAt(parts, pipeline, asked.partition) : null,
  ]);
  const schedules = jobs.find((one) => one.job === job)?.schedules ?? [];
  const isWorking =
    states.some(({ state }) => isBusy(state)) || runs.some(({ state }) => isBusy(state));
  return {
    title: pipeline.title,
    section: "overview",
    body: (here) => (
      <>
        <p class="crumbs">
          <a href="/overview">Overview</a>
        </p>
        <h1>{pipeline.title}</h1>
        <About pipeline={pipeline} newest={newest} now={now} />
        {chosen && <PartitionCard chosen={chosen} pipeline={pipeline} here={here} />}
        <Live name="partitions" every={isWorking ? 2 : 20}>
          <section aria-labelledby="partitions">
            <h2 id="partitions">Partitions</h2>
            {states.length === 0 ? (
              <Empty title="No partition is in range yet" />
            ) : (
              <>
                <Legend />
                <Grid
                  name="partition"
                  unit={partitions.unit}
                  cells={states.map((one) => cellOf(job, one))}
                />
                <Pages pipeline={pipeline} keys={keys} newest={newest} />
              </>
            )}
          </section>
        </Live>
        <div class="columns">
          <Launch here={here} pipeline={pipeline} newest={newest} partition={asked.partition} />
          <Backfill here={here} pipeline={pipeline} newest={newest} pace={pace} />
        </div>
        <Schedules schedules={schedules} here={here} />
        <Live name="runs" every={isWorking ? 2 : 20}>
          <Newest runs={runs} job={job} now={here.now} />
        </Live>
      </>
    ),
  };
}

const About: FC<{ pipeline: Pipeline; newest: string; now: number }> = ({ pipeline, newest }) => (
  <Facts
    facts={[
      ["Job", <code>{pipeline.job}</code>],
      ["Provider", pipeline.provider],
      [
        "Libraries",
        pipeline.libraries.map((library, index) => (
          <>
            {index > 0 && ", "}
            <a href={seriesPath(library)}>{library}</a>
          </>
        )),
      ],
      ["Partition", UNITS[pipeline.partitions.unit]],
      [
        "Range",
        <span class="number">
          <span class="whole">{pipeline.partitions.first}</span> to{" "}
          <span class="whole">{newest}</span>
        </span>,
      ],
      ["Market's clock", pipeline.timeZone],
    ]}
  />
);

interface ChosenPartition {
  partition: string;
  state: PartitionState | undefined;
  runs: ExecutionSummary[];
}

async function lookAt(
  { database, clock }: IngestParts,
  pipeline: Pipeline,
  partition: string,
): Promise<ChosenPartition> {
  const { job } = pipeline;
  const [states, runs] = await Promise.all([
    partitionStates(database, pipeline, [partition], clock()),
    listExecutionSummaries(database, { job, partition, limit: RUNS }),
  ]);
  return { partition, state: states[0], runs };
}

const PartitionCard: FC<{ chosen: ChosenPartition; pipeline: Pipeline; here: Here }> = ({
  chosen: { partition, state, runs },
  pipeline,
  here,
}) => (
  <section class="card" id="partition" aria-labelledby="partition-title">
    <div class="head">
      <h2 id="partition-title">
        Partition <span class="number">{partition}</span>
      </h2>
      <State state={state?.state ?? "missing"} />
    </div>
    {state?.reason && (
      <p class={state.state === "materialized" ? "soft" : `trouble ${state.state}`}>
        {state.reason}
      </p>
    )}
    {state?.state === "materialized" && runs.length === 0 && (
      <p>A run of a later partition looked back on it; it has no run of its own.</p>
    )}
    {(state?.revised_rows ?? 0) > 0 && (
      <p>{number(state?.revised_rows ?? 0)} of its rows were revised or retracted later.</p>
    )}
    {runs.length > 0 && <RunTable runs={runs} now={here.now} withJob={false} />}
    <Form here={here} action={`${jobPath(pipeline.job)}/launch`} class="actions">
      <input type="hidden" name="partition" value={partition} />
      <button type="submit">Run {partition}</button>
    </Form>
  </section>
);

const Pages: FC<{ pipeline: Pipeline; keys: readonly string[]; newest: string }> = ({
  pipeline: { job, partitions },
  keys,
  newest,
}) => {
  const [first, last] = [keys.at(-1) ?? newest, keys[0] ?? newest];
  const count = SHOWN[partitions.unit];
  const older = shiftPartition(partitions, first, -1);
  const newer = shiftPartition(partitions, last, count);
  return (
    <nav class="pages" aria-label="More partitions">
      {older >= partitions.first && <a href={`${jobPath(job)}?last=${older}`}>Older</a>}
      {last < newest && (
        <a href={newer < newest ? `${jobPath(job)}?last=${newer}` : jobPath(job)}>Newer</a>
      )}
    </nav>
  );
};

const Launch: FC<{
  here: Here;
  pipeline: Pipeline;
  newest: string;
  partition: string | undefined;
}> = ({ here, pipeline: { job }, newest, partition }) => (
  <section class="card" id="launch" aria-labelledby="launch-title">
    <h2 id="launch-title">Launch a run</h2>
    <Form here={here} action={`${jobPath(job)}/launch`} class="fields" label="Launch a run">
      <DateField label="Partition" name="partition" value={partition ?? newest} />
      <button type="submit">Launch</button>
    </Form>
    <p class="soft">
      The newest ({newest}) is written as a true vintage; an older one as a reconstruction, flagged{" "}
      <code>vintage_reconstructed</code>.
    </p>
  </section>
);

const Backfill: FC<{ here: Here; pipeline: Pipeline; newest: string; pace: JobPace }> = ({
  here,
  pipeline,
  newest,
  pace,
}) => {
  const { job, partitions } = pipeline;
  const proposed = PROPOSED[partitions.unit];
  const back = shiftPartition(partitions, newest, 1 - proposed);
  return (
    <section class="card" id="backfill" aria-labelledby="backfill-title">
      <h2 id="backfill-title">Backfill</h2>
      <Form here={here} action={`${jobPath(job)}/backfill`} class="fields" label="Backfill">
        <input type="hidden" name="key" value={crypto.randomUUID()} />
        <DateField
          label="First"
          name="first"
          value={back > partitions.first ? back : partitions.first}
          required
        />
        <DateField label="Last" name="last" value={newest} required />
        <button type="submit">Start backfill</button>
      </Form>
      <p class="soft">
        One run a partition, newest first: the {number(proposed)} proposed take{" "}
        {timeOf(pipeline, pace, proposed)}. Safe to repeat: what is stored already is not written
        twice. More than 100 runs are asked about first.
      </p>
    </section>
  );
};

const Schedules: FC<{ schedules: Job["schedules"]; here: Here }> = ({ schedules, here }) => (
  <section aria-labelledby="schedules">
    <h2 id="schedules">Schedules</h2>
    {schedules.length === 0 ? (
      <Empty title="No schedule">This pipeline is run by hand: launch it above.</Empty>
    ) : (
      <ScheduleTable schedules={schedules} here={here} />
    )}
  </section>
);

const Newest: FC<{ runs: readonly ExecutionSummary[]; job: string; now: number }> = ({
  runs,
  job,
  now,
}) => (
  <section aria-labelledby="newest-runs">
    <h2 id="newest-runs">Newest runs</h2>
    {runs.length === 0 ? (
      <Empty title="Nothing has run yet">Launch a run above, or wait for the schedule.</Empty>
    ) : (
      <>
        <RunTable runs={runs} now={now} withJob={false} />
        <AllRuns job={job} />
      </>
    )}
  </section>
);
