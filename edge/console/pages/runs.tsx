// Runs: the list with its filters.

import type { FC } from "hono/jsx";
import { z } from "zod";
import { RunState, RunTrigger } from "../../../shared/wire/markets.ts";
import { text } from "../../http/texts.ts";
import { verdictOf } from "../../markets/ingest/check.ts";
import type { IngestParts } from "../../markets/ingest/parts.ts";
import { pipelineOf } from "../../markets/ingest/pipelines.ts";
import { type ExecutionSummary, listExecutionSummaries } from "../../markets/ingest/summaries.ts";
import { calendarDay, formField } from "../parameters.ts";
import { ALL, Cell, DateField, Empty, JOBS, Live, Moment, Select, State } from "./components.tsx";
import type { View } from "./layout.tsx";
import { distance, isBusy, jobPath, length, number } from "./words.ts";

const PAGE = 25;

/** The filters of the list of runs. */
export const RunsQuery = z.object({
  job: formField(text()),
  state: formField(RunState),
  trigger: formField(RunTrigger),
  partition: formField(calendarDay),
  backfill: formField(z.uuid("must be a backfill's id")),
  after: formField(z.uuid("must be a run's id")),
});
export type RunsQuery = z.output<typeof RunsQuery>;

/** The list of runs, newest first, a page at a time. */
export async function runsView({ database }: IngestParts, query: RunsQuery): Promise<View> {
  const { backfill: backfillId, ...filter } = query;
  const found = await listExecutionSummaries(database, { ...filter, backfillId, limit: PAGE + 1 });
  const runs = found.slice(0, PAGE);
  const last = found.length > PAGE ? runs.at(-1) : undefined;
  const isWorking = runs.some(({ state }) => isBusy(state));
  const { after, ...asked } = query;
  const isFiltered = Object.values(asked).some((value) => value !== undefined);
  const hidden = after ? 60 : isWorking ? 2 : 10;
  return {
    title: "Runs",
    section: "runs",
    body: (here) => (
      <>
        <h1>Runs</h1>
        <Filters query={query} />
        <Live name="runs" every={hidden}>
          {runs.length === 0 ? (
            <Empty title={isFiltered ? "No run is like this" : "Nothing has run yet"}>
              {isFiltered ? (
                <>
                  Take a filter away, or see <a href="/runs">all runs</a>.
                </>
              ) : (
                <>
                  Launch a pipeline from the <a href="/overview">overview</a>, or wait for its
                  schedule.
                </>
              )}
            </Empty>
          ) : (
            <RunTable runs={runs} now={here.now} />
          )}
          <p class="pages">
            {after && <a href={`/runs?${queryText(asked)}`}>Newest</a>}
            {last && (
              <a href={`/runs?${queryText({ ...asked, after: last.run_id })}`} rel="next">
                Older
              </a>
            )}
          </p>
        </Live>
      </>
    ),
  };
}

const queryText = (values: object) =>
  new URLSearchParams(
    Object.entries(values).filter(([, value]) => value !== undefined) as [string, string][],
  ).toString();

const Filters: FC<{ query: RunsQuery }> = ({ query }) => (
  <form class="filters" method="get" action="/runs" aria-label="Filter runs">
    <Select label="Pipeline" name="job" options={[ALL, ...JOBS]} value={query.job} />
    <Select label="State" name="state" options={[ALL, ...RunState.options]} value={query.state} />
    <Select
      label="Started by"
      name="trigger"
      options={[ALL, ...RunTrigger.options]}
      value={query.trigger}
    />
    <DateField label="Partition" name="partition" value={query.partition ?? ""} />
    {query.backfill && <input type="hidden" name="backfill" value={query.backfill} />}
    <button type="submit">Filter</button>
    {Object.values(query).some(Boolean) && (
      <a class="button quiet" href="/runs">
        Clear
      </a>
    )}
    {query.backfill && (
      <p class="soft">
        Only runs of one <a href={`/backfills/${query.backfill}`}>backfill</a>.
      </p>
    )}
  </form>
);

/** How long a run took, or has been at it. */
function duration({ started_at, finished_at }: ExecutionSummary, now: number): string {
  if (!started_at) return "–";
  return length((finished_at ? Date.parse(finished_at) : now) - Date.parse(started_at));
}

/** Runs as a table; without the job where all are of one. */
export const RunTable: FC<{
  runs: readonly ExecutionSummary[];
  now: number;
  withJob?: boolean;
}> = ({ runs, now, withJob = true }) => (
  <table class="stack compact">
    <thead>
      <tr>
        <th scope="col">{withJob ? "Run" : "Partition"}</th>
        <th scope="col">State</th>
        <th scope="col">Started by</th>
        <th scope="col">Created</th>
        <th scope="col" class="right">
          Took
        </th>
        <th scope="col" class="right">
          Rows
        </th>
        <th scope="col">Check</th>
      </tr>
    </thead>
    <tbody>
      {runs.map((run) => (
        <tr>
          <th scope="row">
            <a href={`/runs/${run.run_id}`}>
              {withJob && `${pipelineOf(run.job)?.title ?? run.job} `}
              <span class="number whole">{run.partition}</span>
            </a>
          </th>
          <Cell head="State">
            <State state={run.state} />
            {run.error_code && <small>{run.error_code}</small>}
          </Cell>
          <Cell head="Started by">
            {run.backfill_id ? <a href={`/backfills/${run.backfill_id}`}>backfill</a> : run.trigger}
            {run.launched_by && <small>{run.launched_by}</small>}
            {run.reconstructed && !run.backfill_id && <small>reconstruction</small>}
          </Cell>
          <Cell head="Created">
            <Moment at={run.created_at} zone={pipelineOf(run.job)?.timeZone ?? "UTC"} />
            <small>{distance(run.created_at, now)}</small>
          </Cell>
          <Cell head="Took" class="number right">
            {duration(run, now)}
          </Cell>
          <Cell head="Rows" class="number right">
            {run.rows_written === null ? "–" : number(run.rows_written)}
          </Cell>
          <Cell head="Check">
            {run.check ? <State state={verdictOf(run.check)} /> : <span class="soft">–</span>}
          </Cell>
        </tr>
      ))}
    </tbody>
  </table>
);

/** Where to go on from a pipeline's newest runs. */
export const AllRuns: FC<{ job: string }> = ({ job }) => (
  <p class="pages">
    <a href={`/runs?job=${encodeURIComponent(job)}`}>All runs of this pipeline</a>
    <a href={`${jobPath(job)}#launch`}>Launch</a>
  </p>
);
