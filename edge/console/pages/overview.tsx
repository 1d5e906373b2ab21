// The overview: what needs somebody, then every pipeline with its live run, next tick, newest data
// and recent partitions.

import type { FC } from "hono/jsx";
import type { Backfill } from "../../../shared/wire/markets.ts";
import { listBackfills } from "../../markets/ingest/ledger.ts";
import type { IngestParts } from "../../markets/ingest/parts.ts";
import { lastMinute } from "../../markets/ingest/ticks.ts";
import { BackfillLine } from "./backfills.tsx";
import { Cell, Empty, Live, Moment, State, stepOf, ValidTime } from "./components.tsx";
import {
  checkVerdict,
  glanceAll,
  type Need,
  needsOf,
  type PipelineGlance,
  RECENT,
} from "./glance.ts";
import { cellOf, Strip } from "./grid.tsx";
import type { Here, View } from "./layout.tsx";
import { Heartbeat } from "./scheduler.tsx";
import { distance, jobPath, number, schedulePath } from "./words.ts";

const BACKFILLS = 20;
const NEWEST = `of the newest ${RECENT} of each pipeline`;

/** Every pipeline at a glance. */
export async function overviewView(ingest: IngestParts): Promise<View> {
  const [glances, backfills, { sandbox }, last] = await Promise.all([
    glanceAll(ingest),
    listBackfills(ingest.database, BACKFILLS),
    ingest.store.overview(),
    lastMinute(ingest.database),
  ]);
  const open = backfills.filter(({ runs: { queued, running } }) => queued + running > 0);
  const isWorking = open.length > 0 || glances.some(({ isAtWork }) => isAtWork);
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
        <Live name="overview" every={isWorking ? 2 : 15}>
          <Needs needs={needsOf(glances)} />
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
            <Heartbeat last={last} now={here.now} />
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

const Needs: FC<{ needs: readonly Need[] }> = ({ needs }) => (
  <section aria-labelledby="needs">
    <h2 id="needs">What needs me</h2>
    {needs.length === 0 ? (
      <p class="soft">Nothing: no failure, nothing late, every schedule on, no warning.</p>
    ) : (
      <ul class="needs">
        {needs.map(({ state, title, what, href }) => (
          <li>
            <a href={href}>
              <State state={state} />
              <span>
                <strong>{title}</strong> {what}
              </span>
            </a>
          </li>
        ))}
      </ul>
    )}
  </section>
);

const Totals: FC<{ glances: readonly PipelineGlance[]; backfills: readonly Backfill[] }> = ({
  glances,
  backfills,
}) => {
  const states = glances.flatMap(({ partitions }) => partitions.map(({ state }) => state));
  const count = (state: string) => states.filter((one) => one === state).length;
  const failing = glances.filter(({ check }) => check && checkVerdict(check) === "failed").length;
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
      <Total
        state="waiting"
        count={count("waiting")}
        title="waiting for a release"
        // A partition may wait for the run that its next tick starts.
        href="#pipelines"
        hint={NEWEST}
      />
      <Total state="failed" count={failing} title="failing checks" href="/checks" />
      <Total
        state="running"
        count={glances.filter(({ isAtWork }) => isAtWork).length}
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
  const { pipeline, job, run, check, partitions } = glance;
  return (
    <tr>
      <th scope="row">
        <a href={jobPath(job.job)}>{job.title}</a>
        <small>
          {job.job} · {pipeline.libraries.join(", ")}
        </small>
      </th>
      <Cell head="Newest partitions">
        <Strip
          label={`Newest partitions of ${job.title}`}
          cells={partitions.map((one) => cellOf(job.job, one))}
        />
      </Cell>
      <Cell head="Last run">
        {run ? (
          <>
            <a href={`/runs/${run.run_id}`}>
              <State state={run.state} />
            </a>
            <small>
              of partition <span class="whole">{run.partition}</span>,{" "}
              {distance(run.finished_at ?? run.created_at, now)}
            </small>
          </>
        ) : (
          <span class="soft">never</span>
        )}
      </Cell>
      <Cell head="Next tick">
        <NextTick glance={glance} now={now} />
      </Cell>
      <Cell head="Newest data">
        <NewestData glance={glance} now={now} />
      </Cell>
      <Cell head="Check">
        {check ? (
          <a href={`/checks#${job.job}`}>
            <State state={checkVerdict(check)} />
          </a>
        ) : (
          <span class="soft">–</span>
        )}
      </Cell>
    </tr>
  );
};

/** The next tick of the pipeline's own schedule, or that it is off. */
const NextTick: FC<{ glance: PipelineGlance; now: number }> = ({
  glance: { pipeline, job },
  now,
}) => {
  const [main] = job.schedules;
  if (!main) return <span class="soft">run by hand</span>;
  if (!main.enabled || !main.next_tick) {
    return (
      <a href={schedulePath(main.schedule)}>
        <State state="off">schedule off</State>
      </a>
    );
  }
  return (
    <>
      <Moment at={main.next_tick} zone={pipeline.timeZone} />
      <small>{distance(main.next_tick, now)}</small>
    </>
  );
};

/** What has happened and what lies ahead, apart; late beyond the pipeline's own bounds. */
const NewestData: FC<{ glance: PipelineGlance; now: number }> = ({ glance, now }) => {
  const { pipeline, newest, horizon, series, late, check } = glance;
  const step = stepOf(pipeline);
  // Nothing was read back where a partition rightly has no rows.
  const instruments = check?.instruments || null;
  if (series === 0) return <span class="soft">no data yet</span>;
  return (
    <>
      {late !== null && <State state="late">late since {distance(late, now)}</State>}
      {newest !== null && <ValidTime at={newest} step={step} zone={pipeline.timeZone} />}
      {newest !== null && <small>{distance(newest, now)}</small>}
      {horizon !== null && (
        <small>
          {newest === null ? "reaches" : "ahead to"}{" "}
          <ValidTime at={horizon} step={step} zone={pipeline.timeZone} />
          {newest === null && `, ${distance(horizon, now)}`}
        </small>
      )}
      <small>
        {instruments === null
          ? `${number(series)} series`
          : `${number(instruments)} ${instruments === 1 ? "instrument" : "instruments"}`}
      </small>
    </>
  );
};
