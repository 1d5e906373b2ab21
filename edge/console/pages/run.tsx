// One run: where it stands, what it did step by step, what it wrote, what was found wrong.

import type { FC } from "hono/jsx";
import { z } from "zod";
import { Failure } from "../../../shared/errors.ts";
import { DAY, iso } from "../../../shared/time.ts";
import type { Run } from "../../../shared/wire/markets.ts";
import { outcomeOf, verdictOf } from "../../markets/ingest/check.ts";
import { listEvents } from "../../markets/ingest/journal.ts";
import { findExecution } from "../../markets/ingest/ledger.ts";
import type { IngestParts } from "../../markets/ingest/parts.ts";
import type { Pipeline } from "../../markets/ingest/pipeline.ts";
import { pipelineOf } from "../../markets/ingest/pipelines.ts";
import { listRefusals } from "../../markets/ingest/refusals.ts";
import { RefusalTags, StaleSymbols } from "./checks.tsx";
import { Facts, Live, Moment, State, stepOf, ValidTime } from "./components.tsx";
import { Findings, Journal, RunFinding } from "./journal.tsx";
import { Form, type Here, type View } from "./layout.tsx";
import { distance, isBusy, isDated, isOpen, jobPath, length, number, seriesPath } from "./words.ts";

const SERIES_SHOWN = 12;
const REFUSALS_SHOWN = 100;

/** What runs record; a run that failed early recorded less. */
const Metadata = z.object({
  rows_written: z.number().optional(),
  rows_fetched: z.number().optional(),
  left_out: z.number().optional(),
  as_of: z.string().nullish(),
  store_version: z.record(z.string(), z.number()).optional(),
  source_url: z.string().optional(),
  covered: z.object({ from: z.string(), to: z.string() }).optional(),
  empty_reason: z.string().nullish(),
  arrived: z.string().optional(),
  findings: z.array(RunFinding).optional(),
  check: z
    .object({
      passed: z.boolean(),
      schema: z.string(),
      failures: z.number(),
      reason: z.string().nullable(),
      warnings: z.array(z.string()),
      newest: z.string().nullable(),
      stale_symbols: z.array(z.string()),
      retired_symbols: z.array(z.string()),
    })
    .optional(),
});
type Metadata = z.output<typeof Metadata>;

/** One run of a partition; fails with `unknown_run`. */
export async function runView({ database }: IngestParts, runId: string): Promise<View> {
  const [run, events, refusals] = await Promise.all([
    findExecution(database, runId),
    listEvents(database, runId),
    listRefusals(database, { runId, limit: REFUSALS_SHOWN }),
  ]);
  if (!run) throw new Failure("unknown_run", "no such run");
  const pipeline = pipelineOf(run.job);
  const title = pipeline?.title ?? run.job;
  const metadata = Metadata.safeParse(run.metadata ?? {}).data ?? {};
  return {
    title: `Run of ${title}, ${run.partition}`,
    section: "runs",
    body: (here) => (
      <>
        <p class="crumbs">
          <a href="/runs">Runs</a> <a href={jobPath(run.job)}>{title}</a>
        </p>
        <h1>
          {title} <span class="number whole">{run.partition}</span>
        </h1>
        <Live name="run" every={isBusy(run.state) ? 1 : 30}>
          <Summary run={run} here={here} pipeline={pipeline} />
          <Outcome metadata={metadata} pipeline={pipeline} />
          {refusals.length > 0 && (
            <section class="card" aria-labelledby="refused">
              <h2 id="refused">Refused, as many rows would be withdrawn</h2>
              <RefusalTags refusals={refusals} />
            </section>
          )}
          <ArrivedFields arrived={metadata.arrived} />
          <Findings findings={metadata.findings ?? []} pipeline={pipeline} />
          <Journal events={events} run={run} zone={pipeline?.timeZone ?? "UTC"} />
        </Live>
      </>
    ),
  };
}

const Summary: FC<{ run: Run; here: Here; pipeline: Pipeline | undefined }> = ({
  run,
  here,
  pipeline,
}) => {
  const zone = pipeline?.timeZone ?? "UTC";
  const began = run.started_at ? Date.parse(run.started_at) : null;
  const ended = run.finished_at ? Date.parse(run.finished_at) : here.now;
  const { available_at: due } = run;
  const waits =
    run.state !== "running" && isOpen(run.state) && (due === null || Date.parse(due) > here.now);
  return (
    <section class="card" aria-label="Where it stands">
      <div class="head">
        <State state={run.state} />
        <span class="soft">{distance(run.finished_at ?? run.created_at, here.now)}</span>
      </div>
      {run.error_code && (
        <p class={`trouble ${run.state}`}>
          <code>{run.error_code}</code> {run.error_detail}
        </p>
      )}
      <Facts
        facts={[
          ["Started by", <StartedBy run={run} />],
          ["Writes", run.reconstructed ? "a reconstruction" : "true vintages"],
          ["Attempt", <span class="number">{run.attempt}</span>],
          ["Created", <Moment at={run.created_at} zone={zone} seconds />],
          [
            waits && due !== null ? "Tried again" : "Began",
            waits ? (
              due === null ? (
                "when its turn in the backfill comes"
              ) : (
                <>
                  <Moment at={due} zone={zone} seconds /> <small>{distance(due, here.now)}</small>
                </>
              )
            ) : (
              <Moment at={run.started_at} zone={zone} seconds />
            ),
          ],
          ["Took", began === null ? "–" : <span class="number">{length(ended - began)}</span>],
          ["Id", <code class="id">{run.run_id}</code>],
        ]}
      />
      <div class="actions">
        {isOpen(run.state) ? (
          <Form here={here} action={`/runs/${run.run_id}/cancel`}>
            <button type="submit" class="danger">
              Cancel
            </button>
          </Form>
        ) : (
          <Form here={here} action={`/runs/${run.run_id}/again`}>
            <button type="submit">Run it again</button>
          </Form>
        )}
        <a class="button quiet" href={`${jobPath(run.job)}?partition=${run.partition}#partition`}>
          All runs of this partition
        </a>
      </div>
    </section>
  );
};

const StartedBy: FC<{ run: Run }> = ({ run }) => {
  const by = run.launched_by && (
    <>
      , <b>{run.launched_by}</b>
    </>
  );
  if (run.backfill_id) {
    return (
      <span>
        <a href={`/backfills/${run.backfill_id}`}>backfill</a>
        {by}
      </span>
    );
  }
  if (!run.scheduled_at) return <span>hand{by}</span>;
  return (
    <span>
      the schedule, due <Moment at={run.scheduled_at} />
    </span>
  );
};

const Outcome: FC<{ metadata: Metadata; pipeline: Pipeline | undefined }> = ({
  metadata,
  pipeline,
}) => {
  const { rows_written, rows_fetched, as_of, covered, source_url, check, empty_reason } = metadata;
  const { left_out: leftOut = 0 } = metadata;
  const step = stepOf(pipeline);
  const zone = pipeline?.timeZone ?? "UTC";
  if (rows_written === undefined && !source_url) return null;
  return (
    <div class="columns">
      <section class="card" aria-labelledby="written">
        <h2 id="written">{rows_written === undefined ? "What it asked for" : "What it wrote"}</h2>
        {rows_written !== undefined && (
          <Facts
            facts={[
              ["Rows written", <span class="number">{number(rows_written ?? 0)}</span>],
              ["Rows fetched", <span class="number">{number(rows_fetched ?? 0)}</span>],
              ["Left out as unreadable", <span class="number">{number(leftOut)}</span>],
              ["as_of", <Moment at={as_of ?? null} zone={zone} seconds />],
              [
                "Covered",
                covered ? (
                  <>
                    <ValidTime at={covered.from} step={step} zone={zone} /> to{" "}
                    <ValidTime at={endOf(covered.to, step)} step={step} zone={zone} />
                  </>
                ) : (
                  "–"
                ),
              ],
            ]}
          />
        )}
        {empty_reason && <p class="notice">{empty_reason}</p>}
        {rows_written === 0 && !empty_reason && (
          <p class="soft">Nothing was new: what the provider sent is stored already.</p>
        )}
        <Versions versions={metadata.store_version ?? {}} pipeline={pipeline} />
        {source_url && (
          <p class="source">
            <span class="soft">Source</span> <code>{source_url}</code>
          </p>
        )}
      </section>
      {check && (
        <section class="card" aria-labelledby="check">
          <div class="head">
            <h2 id="check">Read-back check</h2>
            <State state={verdictOf(outcomeOf(check))} />
          </div>
          {check.reason && <p class={check.passed ? "soft" : "trouble"}>{check.reason}</p>}
          <Facts
            facts={[
              ["Rule set", check.schema],
              ["Failures", <span class="number">{number(check.failures)}</span>],
              ["Warnings", check.warnings.length > 0 ? check.warnings.join("; ") : "none"],
              ["Newest data", <ValidTime at={check.newest} step={step} zone={zone} />],
            ]}
          />
          <StaleSymbols symbols={check.stale_symbols} />
        </section>
      )}
    </div>
  );
};

/** The end of a range without its end; of dates the last one in it. */
const endOf = (to: string, step: string | null): string =>
  isDated(step) ? iso(Date.parse(to) - DAY) : to;

/** What a provider sent whose format changed: names and types, no more. */
const ArrivedFields: FC<{ arrived: string | undefined }> = ({ arrived }) =>
  arrived === undefined ? null : (
    <section class="card" aria-labelledby="arrived">
      <h2 id="arrived">What arrived</h2>
      <pre tabindex={0}>
        <code>{arrived}</code>
      </pre>
    </section>
  );

/** The series it changed, each with its new counter. */
const Versions: FC<{
  versions: Readonly<Record<string, number>>;
  pipeline: Pipeline | undefined;
}> = ({ versions, pipeline }) => {
  const links = Object.entries(versions).flatMap(([name, version]) => {
    const library = pipeline?.libraries.find((one) => name.startsWith(`${one}.`));
    return library ? [{ library, symbol: name.slice(library.length + 1), version }] : [];
  });
  if (links.length === 0) return null;
  const items = links.map(({ library, symbol, version }) => (
    <li>
      <a href={seriesPath(library, symbol)}>
        {(pipeline?.libraries.length ?? 0) > 1 ? `${library}.${symbol}` : symbol}
      </a>{" "}
      <small class="number">v{version}</small>
    </li>
  ));
  return (
    <details open={links.length <= SERIES_SHOWN} id="changed-series">
      <summary>{number(links.length)} series changed</summary>
      <ul class="tags">{items}</ul>
    </details>
  );
};
