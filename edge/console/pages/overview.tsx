// The overview: every pipeline with its last run, next tick, newest data and recent partitions.

import type { FC } from "hono/jsx";
import type { Backfill, Job, PartitionState } from "../../../shared/markets.ts";
import { listBackfills } from "../../markets/ingest/ledger.ts";
import { listJobs } from "../../markets/ingest/overview.ts";
import { partitionStates, recentKeys } from "../../markets/ingest/partition-states.ts";
import type { IngestParts } from "../../markets/ingest/parts.ts";
import type { Pipeline } from "../../markets/ingest/pipeline.ts";
import { PIPELINES } from "../../markets/ingest/pipelines.ts";
import {
  type CheckSummary,
  type ExecutionSummary,
  listSeriesSummaries,
  newestChecks,
  newestExecutions,
  type SeriesSummary,
} from "../../markets/ingest/summaries.ts";
import { BackfillLine } from "./backfills.tsx";
import { checkState } from "./checks.tsx";
import { Strip } from "./grid.tsx";
import type { Here, View } from "./layout.tsx";
import { Cell, Empty, Live, Moment, State } from "./parts.tsx";
import { distance, jobPath, number } from "./words.ts";

const RECENT = 14;
const BACKFILLS = 20;
const NEWEST = `of the newest ${RECENT} of each pipeline`;

interface PipelineGlance {
  pipeline: Pipeline;
  job: Job;
  run: ExecutionSummary | undefined;
  check: CheckSummary | undefined;
  partitions: PartitionState[];
  series: SeriesSummary[];
}

/** Every pipeline at a glance. */
export async function overviewView(ingest: IngestParts): Promise<View> {
  const { database, clock } = ingest;
  const now = clock();
  const names = PIPELINES.map(({ job }) => job);
  const [jobs, runs, checks, series, backfills, { sandbox }, partitions] = await Promise.all([
    listJobs(ingest),
    newestExecutions(database, names),
    newestChecks(database, names, 1),
    listSeriesSummaries(database),
    listBackfills(database, BACKFILLS),
    ingest.store.overview(),
    Promise.all(
      PIPELINES.map((one) =>
        partitionStates(database, one, recentKeys(one.partitions, RECENT, now), now),
      ),
    ),
  ]);
  const glances = PIPELINES.map(
    (pipeline, index): PipelineGlance => ({
      pipeline,
      job: jobs[index] as Job,
      run: runs.get(pipeline.job),
      check: checks.get(pipeline.job)?.[0],
      partitions: partitions[index] ?? [],
      series: series.filter((one) => isOf(pipeline, one)),
    }),
  );
  const open = backfills.filter(({ runs: { queued, running } }) => queued + running > 0);
  const isBusy = open.length > 0 || glances.some(({ run }) => isOpen(run?.state));
  return {
    title: "Overview",
    section: "overview",
    body: (here) => (
      <>
        <h1>Overview</h1>
        {sandbox && (
          <p class="notice sandbox">
            <span aria-hidden="true">!</span> The providers here are the sandbox: shapes are
            realistic, numbers are invented. Set a provider's key to fetch its real data into a new
            store.
          </p>
        )}
        <Live name="overview" every={isBusy ? 2 : 15}>
          <Totals glances={glances} backfills={open} />
          {open.length > 0 && (
            <section aria-labelledby="running">
              <h2 id="running">Backfills under way</h2>
              {open.map((backfill) => (
                <BackfillLine backfill={backfill} here={here} />
              ))}
            </section>
          )}
          <section aria-labelledby="pipelines">
            <h2 id="pipelines">Pipelines</h2>
            {glances.every(({ run }) => !run) && (
              <Empty title="Nothing has run yet">
                Schedules fire by themselves at their next tick. To have data now, open a pipeline
                and launch it, or backfill a range.
              </Empty>
            )}
            <Pipelines glances={glances} here={here} />
          </section>
        </Live>
      </>
    ),
  };
}

/** Whether a run of this state has not ended. */
export const isOpen = (state: string | undefined) => state === "queued" || state === "running";

const isOf = ({ libraries, owns }: Pipeline, { library, symbol }: SeriesSummary) =>
  libraries.includes(library) && (owns?.(symbol) ?? true);

const Totals: FC<{ glances: readonly PipelineGlance[]; backfills: readonly Backfill[] }> = ({
  glances,
  backfills,
}) => {
  const states = glances.flatMap(({ partitions }) => partitions.map(({ state }) => state));
  const count = (state: string) => states.filter((one) => one === state).length;
  const failing = glances.filter(({ check }) => check && checkState(check) === "failed").length;
  return (
    <ul class="totals">
      <Total
        state="failed"
        count={count("failed")}
        title="failed partitions"
        href="/runs?state=failed"
        hint={NEWEST}
      />
      <Total
        state="late"
        count={count("late")}
        title="late partitions"
        href="/runs?state=late"
        hint={NEWEST}
      />
      <Total state="failed" count={failing} title="failing checks" href="/checks" />
      <Total
        state="running"
        count={glances.filter(({ run }) => isOpen(run?.state)).length}
        title="pipelines at work"
        href="/runs?state=running"
      />
      <Total
        state="running"
        count={backfills.length}
        title="backfills under way"
        href="/backfills"
      />
    </ul>
  );
};

const Total: FC<{
  state: string;
  count: number;
  title: string;
  href: string;
  hint?: string;
}> = (total) => (
  <li>
    <a
      href={total.href}
      class={total.count > 0 ? `total ${total.state}` : "total"}
      title={total.hint}
    >
      <strong class="number">{number(total.count)}</strong> {total.title}
    </a>
  </li>
);

const Pipelines: FC<{ glances: readonly PipelineGlance[]; here: Here }> = ({ glances, here }) => (
  <table class="stack overview">
    <thead>
      <tr>
        <th scope="col">Pipeline</th>
        <th scope="col">Newest partitions</th>
        <th scope="col">Last run</th>
        <th scope="col">Next tick</th>
        <th scope="col">Newest data</th>
        <th scope="col">Check</th>
      </tr>
    </thead>
    <tbody>
      {glances.map((glance) => (
        <Row glance={glance} now={here.now} />
      ))}
    </tbody>
  </table>
);

const Row: FC<{ glance: PipelineGlance; now: number }> = ({ glance, now }) => {
  const { pipeline, job, run, check, partitions, series } = glance;
  const ticks = job.schedules.filter(({ enabled }) => enabled).map(({ next_tick }) => next_tick);
  const next = ticks.filter((tick) => tick !== null).toSorted()[0];
  const newest = series.reduce((newest, line) => Math.max(newest, line.newest), -Infinity);
  const cells = partitions.map(({ partition, state, run_id, revised_rows: revised }) => ({
    partition,
    state,
    revised,
    href: run_id ? `/runs/${run_id}` : `${jobPath(job.job)}?partition=${partition}`,
  }));
  return (
    <tr>
      <th scope="row">
        <a href={jobPath(job.job)}>{job.title}</a>
        <small>
          {job.job} · {pipeline.libraries.join(", ")}
        </small>
      </th>
      <Cell head="Newest partitions">
        <Strip label={`Newest partitions of ${job.title}`} cells={cells} />
      </Cell>
      <Cell head="Last run">
        {run ? (
          <>
            <a href={`/runs/${run.run_id}`}>
              <State state={run.state} />
            </a>
            <small>
              {run.partition}, {distance(run.finished_at ?? run.created_at, now)}
            </small>
          </>
        ) : (
          <span class="soft">never</span>
        )}
      </Cell>
      <Cell head="Next tick">
        {next ? (
          <>
            <Moment at={next} zone={pipeline.timeZone} />
            <small>{distance(next, now)}</small>
          </>
        ) : (
          <span class="soft">{job.schedules.length > 0 ? "switched off" : "run by hand"}</span>
        )}
      </Cell>
      <Cell head="Newest data">
        {series.length > 0 ? (
          <>
            <Moment at={newest} zone={pipeline.timeZone} />
            <small>
              {distance(newest, now)} · {number(series.length)} series
            </small>
          </>
        ) : (
          <span class="soft">no data yet</span>
        )}
      </Cell>
      <Cell head="Check">
        {check ? (
          <a href={`/checks#${job.job}`}>
            <State state={checkState(check)} />
          </a>
        ) : (
          <span class="soft">–</span>
        )}
      </Cell>
    </tr>
  );
};
