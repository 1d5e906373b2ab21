// What a run's gate found, rule by rule with the offending rows, and its journal.

import type { FC } from "hono/jsx";
import { z } from "zod";
import type { Run, RunEvent } from "../../../shared/wire/markets.ts";
import { describeSymbol, unitOf } from "../../markets/client/symbols.ts";
import type { Pipeline } from "../../markets/ingest/pipeline.ts";
import { clauseOf } from "../../markets/ingest/rules.ts";
import { Cell, Empty, Moment, State, stepOf, ValidTime } from "./components.tsx";
import { isOpen, number } from "./words.ts";

const WHERE_SHOWN = 12;
const SAMPLES_SHOWN = 20;
/** So many entries of one kind in a row are folded. */
const ALIKE_MAX = 3;

/** What the gate found of one rule, as runs record it. */
export const RunFinding = z.object({
  severity: z.enum(["error", "warning"]),
  rule: z.string(),
  count: z.number(),
  where: z.string(),
  samples: z
    .array(
      z.object({
        Datetime: z.string(),
        instrument_id: z.string(),
        values: z.array(z.number().nullable()),
      }),
    )
    .optional(),
});
export type RunFinding = z.output<typeof RunFinding>;

interface FindingsProps {
  findings: readonly RunFinding[];
  pipeline: Pipeline | undefined;
}

/** What the gate found, by rule, with the first offending rows. */
export const Findings: FC<FindingsProps> = ({ findings, pipeline }) => {
  if (findings.length === 0) return null;
  const sorted = findings.toSorted((left, right) => left.severity.localeCompare(right.severity));
  const byRule = Map.groupBy(sorted, ({ severity, rule }) => `${severity} ${rule}`);
  return (
    <section aria-labelledby="findings">
      <h2 id="findings">What the gate found</h2>
      <table class="stack">
        <thead>
          <tr>
            <th scope="col">Rule</th>
            <th scope="col">Severity</th>
            <th scope="col" class="right">
              Count
            </th>
            <th scope="col">Where</th>
          </tr>
        </thead>
        <tbody>
          {[...byRule.values()].map((ofRule, index) => (
            <Rule ofRule={ofRule} index={index} pipeline={pipeline} />
          ))}
        </tbody>
      </table>
    </section>
  );
};

const Rule: FC<{
  ofRule: readonly RunFinding[];
  index: number;
  pipeline: Pipeline | undefined;
}> = ({ ofRule, index, pipeline }) => {
  const total = ofRule.reduce((sum, { count }) => sum + count, 0);
  const severity = ofRule[0]?.severity ?? "warning";
  return (
    <>
      <tr>
        <th scope="row">
          {clauseOf(ofRule[0]?.rule ?? "", total)}
          <small>
            <code>{ofRule[0]?.rule}</code>
          </small>
        </th>
        <Cell head="Severity">
          <State state={severity === "error" ? "failed" : "warning"}>{severity}</State>
        </Cell>
        <Cell head="Count" class="number right">
          {number(total)}
        </Cell>
        <Cell head="Where">
          <Places findings={ofRule.slice(0, WHERE_SHOWN)} />
          {ofRule.length > WHERE_SHOWN && (
            <details id={`places-${index}`}>
              <summary>{number(ofRule.length - WHERE_SHOWN)} more</summary>
              <Places findings={ofRule.slice(WHERE_SHOWN)} />
            </details>
          )}
        </Cell>
      </tr>
      <Samples ofRule={ofRule} index={index} pipeline={pipeline} total={total} />
    </>
  );
};

const Places: FC<{ findings: readonly RunFinding[] }> = ({ findings }) => (
  <ul class="tags">
    {findings.map(({ where, count }) => (
      <li>
        {where} {count > 1 && <small class="number soft">{number(count)}</small>}
      </li>
    ))}
  </ul>
);

/** In what the instrument of a pipeline's libraries counts a column, where that is known. */
function unitFor(pipeline: Pipeline | undefined, instrumentId: string, column: string) {
  const library = pipeline?.libraries.find((one) => instrumentId.startsWith(`${one}.`));
  if (library === undefined) return null;
  const [symbol = ""] = instrumentId.slice(library.length + 1).split(".");
  return unitOf(describeSymbol(library, symbol), instrumentId, column);
}

/** The first of the offending rows. */
const Samples: FC<{
  ofRule: readonly RunFinding[];
  index: number;
  pipeline: Pipeline | undefined;
  total: number;
}> = ({ ofRule, index, pipeline, total }) => {
  const samples = ofRule.flatMap((one) => one.samples ?? []).slice(0, SAMPLES_SHOWN);
  if (samples.length === 0) return null;
  const columns = pipeline?.valueColumns ?? ["value"];
  return (
    <tr class="under">
      <td colspan={4}>
        <details open={ofRule[0]?.severity === "error"} id={`rows-${index}`}>
          <summary>
            {samples.length < total ? `${samples.length} of ${number(total)} ` : "The "}
            offending rows
          </summary>
          <div class="scroll" tabindex={0}>
            <table class="plain">
              <caption class="hidden">Rows that break {ofRule[0]?.rule}</caption>
              <thead>
                <tr>
                  <th scope="col">Datetime</th>
                  <th scope="col">Instrument</th>
                  {columns.map((column) => (
                    <th scope="col" class="right">
                      {column}
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {samples.map((sample) => (
                  <tr>
                    <td>
                      <ValidTime
                        at={sample.Datetime}
                        step={stepOf(pipeline)}
                        zone={pipeline?.timeZone}
                      />
                    </td>
                    <td>{sample.instrument_id}</td>
                    {columns.map((column, index) => (
                      <td class="number right">
                        {sample.values[index] ?? "null"}{" "}
                        <small>{unitFor(pipeline, sample.instrument_id, column)}</small>
                      </td>
                    ))}
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </details>
      </td>
    </tr>
  );
};

interface JournalProps {
  events: readonly RunEvent[];
  run: Run;
  zone: string;
}

/** The steps of a run, oldest first. */
export const Journal: FC<JournalProps> = ({ events, run, zone }) => (
  <section aria-labelledby="journal">
    <h2 id="journal">Journal</h2>
    {events.length === 0 ? (
      <Empty title={isOpen(run.state) ? "Not begun yet" : "No journal"}>
        {isOpen(run.state)
          ? "Runs of a provider go one at a time; its steps appear here as they end."
          : "Journals are kept for four months; this run did nothing, or it is older."}
      </Empty>
    ) : (
      <ol class="journal">
        {folded(events).map((alike, index) => (
          <Entries alike={alike} index={index} zone={zone} />
        ))}
      </ol>
    )}
  </section>
);

/** Entries in order; many of one kind in a row stand together. */
function folded(events: readonly RunEvent[]): RunEvent[][] {
  const rows: RunEvent[][] = [];
  const kind = ({ attempt, level, event }: RunEvent) => `${attempt} ${level} ${event}`;
  for (const event of events) {
    const last = rows.at(-1);
    if (last?.[0] && kind(last[0]) === kind(event)) last.push(event);
    else rows.push([event]);
  }
  return rows.flatMap((alike) => (alike.length > ALIKE_MAX ? [alike] : alike.map((one) => [one])));
}

const Entries: FC<{ alike: readonly RunEvent[]; index: number; zone: string }> = ({
  alike,
  index,
  zone,
}) => {
  const [first] = alike;
  if (!first) return null;
  return (
    <li class={first.level}>
      <Moment at={first.at} zone={zone} seconds />
      <div class="what">
        <strong>{first.event}</strong>
        {first.level !== "info" && <span class="pill">{first.level}</span>}
        {first.attempt > 1 && first.event === "started" && (
          <span class="pill">attempt {first.attempt}</span>
        )}
        {alike.length === 1 ? (
          <Detail detail={first.detail} />
        ) : (
          <details id={`entries-${index}`}>
            <summary>{number(alike.length)} alike</summary>
            <ol>
              {alike.map(({ detail }) => (
                <li>
                  <Detail detail={detail} />
                </li>
              ))}
            </ol>
          </details>
        )}
      </div>
    </li>
  );
};

const Detail: FC<{ detail: RunEvent["detail"] }> = ({ detail }) => (
  <span class="detail">
    {Object.entries(detail)
      .filter(([, value]) => value !== null && !(Array.isArray(value) && value.length === 0))
      .map(([name, value]) => (
        <span>
          <i>{name}</i> {typeof value === "object" ? JSON.stringify(value) : String(value)}
        </span>
      ))}
  </span>
);
