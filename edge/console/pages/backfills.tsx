// Backfills: how far they are, which partitions they hold and how each of those ended.

import type { FC } from "hono/jsx";
import { Failure } from "../../../shared/errors.ts";
import { type Backfill, RunState } from "../../../shared/wire/markets.ts";
import { findBackfill, listBackfills } from "../../markets/ingest/ledger.ts";
import type { IngestParts } from "../../markets/ingest/parts.ts";
import { pipelineOf } from "../../markets/ingest/pipelines.ts";
import { type ExecutionSummary, listExecutionSummaries } from "../../markets/ingest/summaries.ts";
import { Cell, Empty, Facts, Live, Moment, Progress, State } from "./components.tsx";
import { Grid, Legend } from "./grid.tsx";
import { Form, type Here, type View } from "./layout.tsx";
import { distance, jobPath, length, number } from "./words.ts";

const LISTED = 100;
/** A backfill holds at most so many partitions. */
const RUNS_MAX = 5_000;
const TROUBLES = 100;

const totalOf = ({ runs }: Backfill) => Object.values(runs).reduce((sum, one) => sum + one, 0);
const openOf = ({ runs }: Backfill) => runs.queued + runs.waiting + runs.running;
const stateOf = (backfill: Backfill): string => {
  const { queued, waiting, running } = backfill.runs;
  if (queued + running > 0) return "running";
  if (waiting > 0) return "waiting";
  if (backfill.runs.failed > 0) return "failed";
  if (backfill.runs.late > 0) return "late";
  if (backfill.runs.partial > 0) return "partial";
  return backfill.runs.canceled > 0 ? "canceled" : "succeeded";
};
const titleOf = (job: string) => pipelineOf(job)?.title ?? job;

/** A backfill in one line: its range, its progress, what went wrong. */
export const BackfillLine: FC<{ backfill: Backfill; here: Here }> = ({ backfill, here }) => (
  <article class="card line">
    <div>
      <a href={`/backfills/${backfill.backfill_id}`}>
        <strong>{titleOf(backfill.job)}</strong>{" "}
        <span class="number">
          {backfill.first} to {backfill.last}
        </span>
      </a>
      <small>{distance(backfill.created_at, here.now)}</small>
    </div>
    <Bar backfill={backfill} />
  </article>
);

const Bar: FC<{ backfill: Backfill }> = ({ backfill }) => {
  const { succeeded, partial, failed, late, canceled, queued, waiting, running } = backfill.runs;
  const total = totalOf(backfill);
  const parts = [
    ["succeeded", succeeded],
    ["partial", partial],
    ["failed", failed],
    ["late", late],
    ["canceled", canceled],
    ["running", running],
    ["waiting", waiting],
    ["queued", queued],
  ] as const;
  const state = stateOf(backfill);
  return (
    <div>
      <Progress
        done={state === "running" ? total - openOf(backfill) : succeeded}
        total={total}
        said={
          state === "running" || state === "succeeded"
            ? undefined
            : `${state}, ${number(succeeded)} of ${number(total)} done`
        }
        label={`Progress of the backfill of ${titleOf(backfill.job)}`}
      />
      <ul class="counts">
        {parts
          .filter(([name, count]) => count > 0 || name === "succeeded")
          .map(([name, count]) => (
            <li>
              <State state={name}>
                <span class="number">{number(count)}</span> {name}
              </State>
            </li>
          ))}
      </ul>
    </div>
  );
};

/** The list of backfills, newest first. */
export async function backfillsView({ database }: IngestParts): Promise<View> {
  const backfills = await listBackfills(database, LISTED);
  const isWorking = backfills.some((one) => stateOf(one) === "running");
  return {
    title: "Backfills",
    section: "backfills",
    body: (here) => (
      <>
        <h1>Backfills</h1>
        <p class="lead">
          A backfill rebuilds a range of partitions, newest first. Its rows are flagged{" "}
          <code>vintage_reconstructed</code>. Start one on a pipeline's page.
        </p>
        <Live name="backfills" every={isWorking ? 1 : 15}>
          {backfills.length === 0 && (
            <Empty title="No backfill yet">
              Open a pipeline on the <a href="/overview">overview</a>, choose the first and the last
              partition under “Backfill”, and follow its progress here.
            </Empty>
          )}
          {backfills.map((backfill) => (
            <BackfillLine backfill={backfill} here={here} />
          ))}
        </Live>
      </>
    ),
  };
}

/** One backfill with its partitions; fails with `unknown_backfill`. */
export async function backfillView({ database }: IngestParts, backfillId: string): Promise<View> {
  const backfill = await findBackfill(database, backfillId);
  if (!backfill) throw new Failure("unknown_backfill", "no such backfill");
  const runs = await listExecutionSummaries(database, { backfillId, limit: RUNS_MAX });
  const pipeline = pipelineOf(backfill.job);
  return {
    title: `Backfill of ${titleOf(backfill.job)}`,
    section: "backfills",
    body: (here) => (
      <>
        <p class="crumbs">
          <a href="/backfills">Backfills</a>
        </p>
        <h1>
          {titleOf(backfill.job)}{" "}
          <span class="number">
            <span class="whole">{backfill.first}</span> to{" "}
            <span class="whole">{backfill.last}</span>
          </span>
        </h1>
        <Live name="backfill" every={stateOf(backfill) === "running" ? 1 : 30}>
          <Summary backfill={backfill} runs={runs} here={here} zone={pipeline?.timeZone ?? "UTC"} />
          <section aria-labelledby="partitions">
            <h2 id="partitions">Partitions</h2>
            <Legend states={RunState.options} revised={false} />
            <Grid
              name="backfill"
              unit={pipeline?.partitions.unit ?? "day"}
              cells={runs.map(({ partition, state, run_id, error_detail }) => ({
                partition,
                state,
                reason: error_detail,
                href: `/runs/${run_id}`,
              }))}
            />
          </section>
          <Troubles runs={runs} />
        </Live>
      </>
    ),
  };
}

const Summary: FC<{
  backfill: Backfill;
  runs: readonly ExecutionSummary[];
  here: Here;
  zone: string;
}> = ({ backfill, runs, here, zone }) => {
  const { partial, failed, late, canceled } = backfill.runs;
  const again = partial + failed + late + canceled;
  const rows = runs.reduce((sum, { rows_written }) => sum + (rows_written ?? 0), 0);
  return (
    <section class="card" aria-label="Progress">
      <Bar backfill={backfill} />
      <Facts
        facts={[
          ["State", <State state={stateOf(backfill)} />],
          ["Pipeline", <a href={jobPath(backfill.job)}>{titleOf(backfill.job)}</a>],
          ["Started", <Moment at={backfill.created_at} zone={zone} seconds />],
          ["Started by", backfill.launched_by ?? "–"],
          ...(backfill.canceled_by ? [["Canceled by", backfill.canceled_by] as const] : []),
          ["Rows written", <span class="number">{number(rows)}</span>],
          ["Time left", <Remaining backfill={backfill} runs={runs} now={here.now} />],
        ]}
      />
      <div class="actions">
        {openOf(backfill) > 0 && (
          <Form here={here} action={`/backfills/${backfill.backfill_id}/cancel`}>
            <button type="submit" class="danger">
              Cancel what is left
            </button>
          </Form>
        )}
        {again > 0 && (
          <Form here={here} action={`/backfills/${backfill.backfill_id}/retry`}>
            <button type="submit">Run {number(again)} failed or canceled again</button>
          </Form>
        )}
        <a class="button quiet" href={`/runs?backfill=${backfill.backfill_id}`}>
          All its runs
        </a>
      </div>
    </section>
  );
};

/** From the pace so far: partitions that ended, over the time they took. */
const Remaining: FC<{ backfill: Backfill; runs: readonly ExecutionSummary[]; now: number }> = ({
  backfill,
  runs,
  now,
}) => {
  const { queued, running, waiting } = backfill.runs;
  const left = queued + running;
  const ended = runs.filter(({ finished_at }) => finished_at !== null);
  if (left === 0) return <span>{waiting > 0 ? "waits for a release" : "none"}</span>;
  if (ended.length === 0) return <span class="soft">not known yet</span>;
  const began = Math.min(...runs.flatMap((run) => Date.parse(run.started_at ?? "") || []));
  const pace = ended.length / Math.max(now - began, 1);
  return (
    <span>
      about {length(left / pace)}{" "}
      <small class="soft">({(pace * 60_000).toFixed(pace * 60_000 < 10 ? 1 : 0)} a minute)</small>
    </span>
  );
};

/** Runs that did not end well, with the reason. */
const Troubles: FC<{ runs: readonly ExecutionSummary[] }> = ({ runs }) => {
  const troubles = runs.filter(
    ({ error_detail, state }) => error_detail !== null && state !== "waiting",
  );
  if (troubles.length === 0) return null;
  return (
    <section aria-labelledby="troubles">
      <h2 id="troubles">What went wrong</h2>
      <table class="stack">
        <thead>
          <tr>
            <th scope="col">Partition</th>
            <th scope="col">State</th>
            <th scope="col">Attempts</th>
            <th scope="col">Reason</th>
          </tr>
        </thead>
        <tbody>
          {troubles.slice(0, TROUBLES).map((run) => (
            <tr>
              <th scope="row">
                <a href={`/runs/${run.run_id}`}>{run.partition}</a>
              </th>
              <Cell head="State">
                <State state={run.state} />
              </Cell>
              <Cell head="Attempts" class="number">
                {run.attempt}
              </Cell>
              <Cell head="Reason">
                {run.error_code && <code>{run.error_code}</code>} {run.error_detail}
              </Cell>
            </tr>
          ))}
        </tbody>
      </table>
      {troubles.length > TROUBLES && (
        <p class="soft">and {number(troubles.length - TROUBLES)} more</p>
      )}
    </section>
  );
};
