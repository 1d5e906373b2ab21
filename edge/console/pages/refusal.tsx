// A refused change: which rows would go and which would come, as a chart and a table, and the form
// that accepts it once.

import type { FC } from "hono/jsx";
import type { Refusal, RefusedChange, RefusedRow } from "../../../shared/wire/refusals.ts";
import { describeSymbol, unitOf } from "../../markets/client/symbols.ts";
import type { IngestParts } from "../../markets/ingest/parts.ts";
import { pipelineOf } from "../../markets/ingest/pipelines.ts";
import { requireRefusal } from "../../markets/ingest/refusals.ts";
import { POINTS_MAX } from "./chart.ts";
import { Cell, Facts, Moment, State, ValidTime } from "./components.tsx";
import { Form, type Here, type View } from "./layout.tsx";
import { type Line, Plot, type PlotData } from "./plot.tsx";
import { jobPath, number, seriesPath } from "./words.ts";

const ROWS_SHOWN = 200;
/** More lines on one chart are not told apart. */
const INSTRUMENTS_SHOWN = 4;

/** The address of a refused change. */
export const refusalPath = (refusalId: string): string => `/refusals/${refusalId}`;

/** One refused change; fails with `unknown_refusal`. */
export async function refusalView({ database }: IngestParts, refusalId: string): Promise<View> {
  const refusal = await requireRefusal(database, refusalId);
  const { library, symbol, job, changes } = refusal;
  const title = pipelineOf(job)?.title ?? job;
  const described = describeSymbol(library, symbol);
  const [column = "value"] = refusal.value_columns;
  const instruments = new Set(changes.map(({ instrument_id }) => instrument_id));
  const units = new Set([...instruments].map((one) => unitOf(described, one, column)));
  const [unit = null] = units.size === 1 ? units : [];
  return {
    title: `Refused: ${symbol}`,
    section: "checks",
    charts: true,
    body: (here) => (
      <>
        <p class="crumbs">
          <a href="/checks">Checks</a> <a href={jobPath(job)}>{title}</a>
        </p>
        <h1>
          {symbol} <small>{described.name}</small>
        </h1>
        <Decision refusal={refusal} here={here} />
        <Plot
          data={plotted(refusal)}
          unit={unit}
          zone={described.time_zone}
          step={described.step}
          title={`${library} ${symbol}`}
        >
          Solid: what the source sent; dashed: what is stored and would go or change{" "}
          <span class="soft">
            {column}
            {instruments.size > INSTRUMENTS_SHOWN &&
              ` · ${INSTRUMENTS_SHOWN} of ${number(instruments.size)} instruments, those with most rows`}
          </span>
        </Plot>
        <Rows refusal={refusal} step={described.step} zone={described.time_zone} />
      </>
    ),
  };
}

/** What it comes to, in a sentence. */
export const wordsOf = ({ symbol, withdrawn, stored, inserted, revised }: Refusal): string =>
  `${symbol} would lose ${number(withdrawn)} of ${number(stored)} rows` +
  (inserted > 0 ? `, gain ${number(inserted)}` : "") +
  (revised > 0 ? `, change ${number(revised)}` : "");

const Decision: FC<{ refusal: Refusal; here: Here }> = ({ refusal, here }) => (
  <section class="card" aria-label="What was refused">
    <div class="head">
      <State state={refusal.state === "open" ? "failed" : "warning"}>{refusal.state}</State>
    </div>
    <p>
      {wordsOf(refusal)}: more than a provider withdraws on a usual day, hence the series was left
      as it was.
    </p>
    <Facts
      facts={[
        [
          "Run",
          <a href={`/runs/${refusal.run_id}`}>
            partition <span class="number">{refusal.partition}</span>
          </a>,
        ],
        [
          "Series",
          <a href={seriesPath(refusal.library, refusal.symbol)}>
            {refusal.library} {refusal.symbol}
          </a>,
        ],
        ["Refused", <Moment at={refusal.refused_at} seconds />],
        [
          "Accepted",
          refusal.accepted_at ? (
            <>
              <Moment at={refusal.accepted_at} seconds /> by <b>{refusal.accepted_by}</b>
            </>
          ) : (
            "–"
          ),
        ],
        ["Ended", <Moment at={refusal.ended_at} seconds />],
      ]}
    />
    {refusal.state === "open" && (
      <>
        <p>
          Accept it where the rows are rightly gone, such as those of a fuel that the agency now
          files under another code. A run may then withdraw these rows and no others, once, and only
          where it sends what comes in their place. A faulty answer needs nothing: the next sound
          one ends this.
        </p>
        <Form here={here} action="/refusals/accept" class="actions">
          <input type="hidden" name="refusals" value={refusal.refusal_id} />
          <button type="submit" class="danger">
            Accept, and run it
          </button>
        </Form>
      </>
    )}
  </section>
);

/** Values stored and sent, of the instruments with most changed rows. */
function plotted({ changes }: RefusedChange): PlotData {
  const byInstrument = Map.groupBy(changes, ({ instrument_id }) => instrument_id);
  const instants = [...new Set(changes.map(({ Datetime }) => Datetime))]
    .toSorted()
    .slice(-POINTS_MAX);
  const shown = [...byInstrument]
    .toSorted(([, left], [, right]) => right.length - left.length)
    .slice(0, INSTRUMENTS_SHOWN);
  const lines = shown.flatMap(([instrument, rows], hue): Line[] =>
    (["after", "before"] as const).flatMap((side) => {
      const at = new Map(rows.map((row) => [row.Datetime, row[side]?.[0] ?? null]));
      const values = instants.map((instant) => at.get(instant) ?? null);
      const name = `${instrument}, ${side === "after" ? "sent" : "stored"}`;
      const isEmpty = values.every((value) => value === null);
      return isEmpty ? [] : [{ name, values, hue, dashed: side === "before" }];
    }),
  );
  return { times: instants.map((instant) => Date.parse(instant) / 1_000), lines, revised: [] };
}

const valuesOf = (values: RefusedRow["before"]) =>
  values === null
    ? "–"
    : values.map((value) => (value === null ? "null" : number(value))).join(", ");

const Rows: FC<{ refusal: RefusedChange; step: string | null; zone: string }> = ({
  refusal: { changes, value_columns },
  step,
  zone,
}) => (
  <section aria-labelledby="rows">
    <h2 id="rows">
      Rows <small>{value_columns.join(", ")}</small>
    </h2>
    <table class="stack compact">
      <thead>
        <tr>
          <th scope="col">Datetime</th>
          <th scope="col">Instrument</th>
          <th scope="col" class="right">
            Stored
          </th>
          <th scope="col" class="right">
            Sent
          </th>
        </tr>
      </thead>
      <tbody>
        {changes.slice(0, ROWS_SHOWN).map((row) => (
          <tr>
            <th scope="row">
              <ValidTime at={row.Datetime} step={step} zone={zone} />
            </th>
            <Cell head="Instrument">{row.instrument_id}</Cell>
            <Cell head="Stored" class="number right">
              {valuesOf(row.before)}
            </Cell>
            <Cell head="Sent" class="number right">
              {valuesOf(row.after)}
            </Cell>
          </tr>
        ))}
      </tbody>
    </table>
    {changes.length > ROWS_SHOWN && (
      <p class="soft">
        The first {number(ROWS_SHOWN)} of {number(changes.length)} rows; the operator API has all.
      </p>
    )}
  </section>
);
