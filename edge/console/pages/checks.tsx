// Checks: what the read-back after each write found, pipeline by pipeline.

import type { FC } from "hono/jsx";
import { iso } from "../../../shared/time.ts";
import type { Refusal } from "../../../shared/wire/refusals.ts";
import { listInstruments, type WatchedInstrument } from "../../markets/ingest/instruments.ts";
import type { IngestParts } from "../../markets/ingest/parts.ts";
import type { Pipeline } from "../../markets/ingest/pipeline.ts";
import { PIPELINES, pipelineOf } from "../../markets/ingest/pipelines.ts";
import { listRefusals } from "../../markets/ingest/refusals.ts";
import { type CheckSummary, newestChecks } from "../../markets/ingest/summaries.ts";
import { Empty, Facts, Live, State, stepOf, ValidTime } from "./components.tsx";
import { checkVerdict } from "./glance.ts";
import { Strip } from "./grid.tsx";
import { Form, type Here, type View } from "./layout.tsx";
import { refusalPath, wordsOf } from "./refusal.tsx";
import { distance, jobPath, number } from "./words.ts";

const HISTORY = 24;
const REFUSALS = 1_000;
/** Their ids fit one form. */
const REFUSALS_SHOWN = 200;
const SYMBOLS = 12;

/** The newest read-back checks of every pipeline. */
export async function checksView({ database }: IngestParts): Promise<View> {
  const names = PIPELINES.map(({ job }) => job);
  const libraries = PIPELINES.flatMap((pipeline) => pipeline.libraries);
  const [checks, instruments, refusals] = await Promise.all([
    newestChecks(database, names, HISTORY),
    listInstruments(database, libraries),
    listRefusals(database, { state: "open", limit: REFUSALS }),
  ]);
  return {
    title: "Checks",
    section: "checks",
    body: (here) => (
      <>
        <h1>Checks</h1>
        <p class="lead">
          After each write the committed rows are read back and the gate is run on them again. A
          stale symbol lags the freshest of its library by more than three days; the list is for
          watching only.
        </p>
        <Refusals refusals={refusals} here={here} />
        <Live name="checks" every={15}>
          {checks.size === 0 && (
            <Empty title="Nothing was checked yet">
              A check follows every run that writes. Launch a pipeline from the{" "}
              <a href="/overview">overview</a>.
            </Empty>
          )}
          {PIPELINES.filter(({ job }) => checks.has(job)).map((pipeline) => (
            <PipelineCheck
              pipeline={pipeline}
              history={checks.get(pipeline.job) ?? []}
              here={here}
              instruments={instruments.filter(({ library }) =>
                pipeline.libraries.includes(library),
              )}
            />
          ))}
          <UncheckedPipelines pipelines={PIPELINES.filter(({ job }) => !checks.has(job))} />
        </Live>
      </>
    ),
  };
}

/** What was refused and is open, a card a pipeline, with a way to accept what it lists. */
const Refusals: FC<{ refusals: readonly Refusal[]; here: Here }> = ({ refusals, here }) => {
  const byJob = Map.groupBy(refusals, ({ job }) => job);
  return (
    <>
      {[...byJob].map(([job, ofJob]) => (
        <JobRefusals job={job} refusals={ofJob} here={here} />
      ))}
    </>
  );
};

const JobRefusals: FC<{ job: string; refusals: readonly Refusal[]; here: Here }> = ({
  job,
  refusals,
  here,
}) => {
  const shown = refusals.slice(0, REFUSALS_SHOWN);
  return (
    <section class="card" id={`refusals-${job}`} aria-labelledby={`refusals-${job}-title`}>
      <div class="head">
        <h2 id={`refusals-${job}-title`}>
          Refused: <a href={jobPath(job)}>{pipelineOf(job)?.title ?? job}</a>
        </h2>
        <State state="failed">{number(refusals.length)} open</State>
      </div>
      <p>
        An answer lacked so many stored rows that a series was left as it was. Look at what would
        go; accept it where that is right, or wait for a sound answer.
      </p>
      <RefusalTags refusals={shown} />
      {shown.length < refusals.length && (
        <p class="soft">The newest {number(shown.length)}; accept these to see more.</p>
      )}
      {shown.length > 1 && (
        <details>
          <summary>Accept all {number(shown.length)}</summary>
          <Form here={here} action="/refusals/accept" class="actions">
            <input
              type="hidden"
              name="refusals"
              value={shown.map(({ refusal_id }) => refusal_id).join(" ")}
            />
            <button type="submit" class="danger">
              Accept all {number(shown.length)}, and run them
            </button>
          </Form>
        </details>
      )}
    </section>
  );
};

/** Refused changes, each a link to its rows. */
export const RefusalTags: FC<{ refusals: readonly Refusal[] }> = ({ refusals }) => (
  <ul class="tags">
    {refusals.map((refusal) => (
      <li>
        <a href={refusalPath(refusal.refusal_id)}>{wordsOf(refusal)}</a>{" "}
        <small class="number">{refusal.partition}</small>
        {refusal.state !== "open" && <small> {refusal.state}</small>}
      </li>
    ))}
  </ul>
);

const PipelineCheck: FC<{
  pipeline: Pipeline;
  history: readonly CheckSummary[];
  here: Here;
  instruments: readonly WatchedInstrument[];
}> = ({ pipeline, history, here, instruments }) => {
  const latest = history[0];
  if (!latest) return null;
  const cells = history.map((line) => ({
    partition: line.partition,
    state: checkVerdict(line),
    href: `/runs/${line.run_id}`,
  }));
  return (
    <section class="card" id={pipeline.job} aria-labelledby={`${pipeline.job}-title`}>
      <div class="head">
        <h2 id={`${pipeline.job}-title`}>
          <a href={jobPath(pipeline.job)}>{pipeline.title}</a>
        </h2>
        <State state={checkVerdict(latest)} />
      </div>
      <Strip label={`Newest checks of ${pipeline.title}`} cells={cells} />
      <CheckFacts line={latest} pipeline={pipeline} now={here.now} />
      <Retirements here={here} instruments={concerned(instruments, latest)} />
    </section>
  );
};

/** The instruments that a check lists as stale, alone or with their symbol, or that are retired. */
function concerned(instruments: readonly WatchedInstrument[], { check }: CheckSummary) {
  const stale = new Set(check?.stale_symbols ?? []);
  return instruments.filter(
    ({ library, symbol, instrumentId, retiredAt }) =>
      retiredAt !== null || stale.has(symbol) || stale.has(instrumentId.slice(library.length + 1)),
  );
}

/** Retires silent instruments, and watches retired ones again. */
const Retirements: FC<{ here: Here; instruments: readonly WatchedInstrument[] }> = ({
  here,
  instruments,
}) =>
  instruments.length === 0 ? null : (
    <details>
      <summary>Retire instruments, or watch them again</summary>
      {instruments.map(({ instrumentId, validMax, retiredAt, retiredBy }) => (
        <Form here={here} action="/instruments/retire" class="switch">
          <input type="hidden" name="instrument_id" value={instrumentId} />
          <input type="hidden" name="retired" value={retiredAt === null ? "true" : "false"} />
          <span>
            {instrumentId}, newest row {distance(iso(validMax), here.now)}
            {retiredAt !== null && `, retired${retiredBy ? ` by ${retiredBy}` : ""}`}
          </span>
          <button
            type="submit"
            class="quiet"
            aria-label={`${retiredAt === null ? "Retire" : "Watch"} ${instrumentId}`}
          >
            {retiredAt === null ? "Retire" : "Watch again"}
          </button>
        </Form>
      ))}
    </details>
  );

const CheckFacts: FC<{ line: CheckSummary; pipeline: Pipeline; now: number }> = ({
  line,
  pipeline,
  now,
}) => {
  const { check } = line;
  const when = line.finished_at;
  return (
    <>
      {!check?.passed && (
        <p class="trouble">{check?.reason ?? line.error_detail ?? "the gate refused the rows"}</p>
      )}
      <Facts
        facts={[
          [
            "Run",
            <a href={`/runs/${line.run_id}`}>
              of partition {line.partition}
              {when && `, ${distance(when, now)}`}
            </a>,
          ],
          ["Failures", <span class="number">{number(check?.failures ?? 1)}</span>],
          ["Warnings", check && check.warnings.length > 0 ? check.warnings.join("; ") : "none"],
          [
            "Newest data",
            <ValidTime
              at={check?.newest ?? null}
              step={stepOf(pipeline)}
              zone={pipeline.timeZone}
            />,
          ],
        ]}
      />
      <StaleSymbols symbols={check?.stale_symbols ?? []} />
    </>
  );
};

/** Symbols whose data lags; nothing where there are none. */
export const StaleSymbols: FC<{ symbols: readonly string[] }> = ({ symbols }) => {
  if (symbols.length === 0) return null;
  const [shown, more] = [symbols.slice(0, SYMBOLS), symbols.slice(SYMBOLS)];
  return (
    <div class="symbols">
      <strong>
        {number(symbols.length)} stale {symbols.length === 1 ? "symbol" : "symbols"}
      </strong>
      <ul class="tags">
        {shown.map((symbol) => (
          <li>{symbol}</li>
        ))}
      </ul>
      {more.length > 0 && (
        <details>
          <summary>{number(more.length)} more</summary>
          <ul class="tags">
            {more.map((symbol) => (
              <li>{symbol}</li>
            ))}
          </ul>
        </details>
      )}
    </div>
  );
};

const UncheckedPipelines: FC<{ pipelines: readonly Pipeline[] }> = ({ pipelines }) => {
  if (pipelines.length === 0) return null;
  return (
    <p class="soft">
      Not checked yet:{" "}
      {pipelines.map(({ job, title }, index) => (
        <>
          {index > 0 && ", "}
          <a href={jobPath(job)}>{title}</a>
        </>
      ))}
      .
    </p>
  );
};
