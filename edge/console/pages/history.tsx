// Parts of the series page under its chart: values, revision triangle, vintages.

import type { FC } from "hono/jsx";
import { parseDuration } from "../../../shared/time.ts";
import type { Revisions, Vintage } from "../../../shared/wire/markets.ts";
import type { SymbolDescription } from "../../markets/client/symbols.ts";
import type { ChartData } from "./chart.ts";
import { Cell, Empty, Moment, ValidTime } from "./components.tsx";
import { length, number } from "./words.ts";

const VALUES_SHOWN = 48;
const NEWEST_SHOWN = 12;
const REVISED_SHOWN = 24;
const VINTAGES_SHOWN = 10;
const VINTAGES_FOLDED = 60;

/** The newest values as a table: what the chart shows, for whoever cannot see it. */
export const Values: FC<{
  chart: ChartData;
  of: SymbolDescription;
  unit: string | null;
  /** Its lines are of several instruments, not of two knowledge times. */
  isOverlay: boolean;
}> = ({ chart, of: { step, time_zone: zone }, unit, isOverlay }) => {
  const isCompared = !isOverlay && chart.lines.length > 1;
  const revised = new Set(chart.revised);
  const newest = chart.times
    .map((_, index) => index)
    .slice(-VALUES_SHOWN)
    .toReversed();
  if (newest.length === 0) return null;
  const shown = (value: number | null | undefined) => (value == null ? "–" : number(value));
  return (
    <details id="values">
      <summary>
        The newest {number(newest.length)} values as a table{unit && `, in ${unit}`}
      </summary>
      <div class="scroll" tabindex={0}>
        <table class="plain">
          <thead>
            <tr>
              <th scope="col">Datetime</th>
              {chart.lines.map(({ name }) => (
                <th scope="col" class="right">
                  {name}
                </th>
              ))}
              {isCompared && (
                <th scope="col" class="right">
                  Change
                </th>
              )}
            </tr>
          </thead>
          <tbody>
            {newest.map((index) => (
              <tr class={revised.has(index) ? "revised" : undefined}>
                <th scope="row">
                  <ValidTime at={(chart.times[index] ?? 0) * 1_000} step={step} zone={zone} />
                </th>
                {chart.lines.map(({ values }) => (
                  <td class="number right">{shown(values[index])}</td>
                ))}
                {isCompared && <td class="number right">{changeOf(chart, index)}</td>}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
};

/** How a point moved from the compared state; absence is absence, not a number. */
function changeOf({ lines: [latest, earlier] }: ChartData, index: number) {
  const [now, before] = [latest?.values[index] ?? null, earlier?.values[index] ?? null];
  if (now === null && before === null) return "–";
  if (before === null) return "new";
  if (now === null) return "gone";
  return now === before ? "" : signed(now - before);
}

type TriangleRow = Revisions["rows"][number];

/** How far a print lies from the latest one, as a share of it, in steps. */
const HEAT = [0, 0.001, 0.01, 0.03, 0.1];

function heatOf(value: number | null | undefined, latest: number | null | undefined): number {
  if (value == null || latest == null) return 0;
  const share = Math.abs(value - latest) / Math.max(Math.abs(latest), 1e-9);
  return share === 0 ? 0 : HEAT.filter((step) => share > step).length;
}

const signed = (difference: number) =>
  `${difference > 0 ? "+" : "−"}${number(Math.abs(Number(difference.toPrecision(4))))}`;

const Print: FC<{ value: number | null | undefined; latest: number | null | undefined }> = ({
  value,
  latest,
}) => {
  if (value === undefined) return <td class="number right soft">–</td>;
  const differs = value !== null && latest != null && value !== latest;
  return (
    <td class={`number right heat-${heatOf(value, latest)}`}>
      {value === null ? "null" : number(value)}
      {differs && <small>{signed(value - latest)}</small>}
    </td>
  );
};

const lagName = (lag: string): string =>
  lag
    .replace(/^P(\d+)D$/, "$1 d")
    .replace(/^PT(\d+)H$/, "$1 h")
    .replace(/^PT(\d+)M$/, "$1 min");

/** The newest rows and the newest of those that were revised, newest first. */
function newestAndRevised(rows: readonly TriangleRow[]): TriangleRow[] {
  const isRevised = ({ prints }: TriangleRow) => prints.length > 1;
  const revised = new Set(rows.filter(isRevised).slice(-REVISED_SHOWN));
  return rows
    .filter((row, index) => index >= rows.length - NEWEST_SHOWN || revised.has(row))
    .toReversed();
}

/** Valid time by lag: what was known of each row, and how it moved until now. */
export const Triangle: FC<{
  rows: readonly TriangleRow[] | null;
  statistics: Revisions["statistics"] | null;
  /** What is known ends here: later lags of a row are still to come. */
  until: number;
  of: SymbolDescription;
  unit: string | null;
}> = ({ rows, statistics, until, of: { step, time_zone: zone }, unit }) => {
  const lags = Object.keys(statistics?.by_lag ?? {});
  const shown = newestAndRevised(rows ?? []);
  return (
    <section aria-labelledby="triangle">
      <h2 id="triangle">Revision triangle</h2>
      {rows === null && (
        <Empty title="Too many prints for one triangle">Take a shorter window.</Empty>
      )}
      {rows?.length === 0 && (
        <Empty title="No row in this window">Take another window above.</Empty>
      )}
      {shown.length > 0 && (
        <>
          <p class="soft">
            The newest rows, and the newest that were revised: what was known so long after each
            Datetime{unit && `, in ${unit}`}, and how far it was from the latest print; the stronger
            the colour, the further. “–”: not known by then; hatched: still to come.{" "}
            {number(statistics?.revised ?? 0)} of {number(statistics?.rows ?? 0)} rows were revised,{" "}
            {number(statistics?.retracted ?? 0)} retracted.
          </p>
          <div class="scroll" tabindex={0}>
            <table class="plain triangle">
              <thead>
                <tr>
                  <th scope="col">Datetime</th>
                  <th scope="col" class="right">
                    Prints
                  </th>
                  <th scope="col" class="right">
                    First
                  </th>
                  {lags.map((lag) => (
                    <th scope="col" class="right">
                      {lagName(lag)}
                    </th>
                  ))}
                  <th scope="col" class="right">
                    Latest
                  </th>
                </tr>
              </thead>
              <tbody>
                {shown.map((row) => (
                  <tr>
                    <th scope="row">
                      <ValidTime at={row.Datetime} step={step} zone={zone} />
                    </th>
                    <td class="number right">{number(row.prints.length)}</td>
                    <Print value={row.first.value} latest={row.latest?.value} />
                    {lags.map((lag) =>
                      Date.parse(row.Datetime) + (parseDuration(lag) ?? 0) > until ? (
                        <td class="to-come">
                          <span class="hidden">still to come</span>
                        </td>
                      ) : (
                        <Print value={row.by_lag[lag] ?? undefined} latest={row.latest?.value} />
                      ),
                    )}
                    <td class="number right">
                      {row.latest ? shownLatest(row.latest) : "retracted"}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </>
      )}
    </section>
  );
};

const shownLatest = (print: { value: number | null; lag_seconds: number }) => (
  <>
    {print.value === null ? "null" : number(print.value)}
    <small>{length(print.lag_seconds * 1_000)} after</small>
  </>
);

interface VintagesProps {
  /** Whether the page compares two knowledge times, or shows one. */
  isCompared: boolean;
  vintages: readonly Vintage[];
  of: SymbolDescription;
  path: (asOf: string) => string;
}

/** The newest vintages of a series, each with a link that compares it with the one before. */
export const Vintages: FC<VintagesProps> = ({ vintages, of, path, isCompared }) => {
  const older = vintages.slice(-VINTAGES_FOLDED, -VINTAGES_SHOWN);
  return (
    <section aria-labelledby="vintages">
      <h2 id="vintages">
        Vintages <small>the newest first</small>
      </h2>
      <VintageTable
        of={of}
        path={path}
        isCompared={isCompared}
        vintages={vintages.slice(-VINTAGES_SHOWN)}
      />
      {older.length > 0 && (
        <details id="older-vintages">
          <summary>{number(older.length)} before these</summary>
          <VintageTable of={of} path={path} isCompared={isCompared} vintages={older} />
        </details>
      )}
    </section>
  );
};

const VintageTable: FC<VintagesProps> = ({ vintages, of, path, isCompared }) => (
  <table class="stack compact">
    <thead>
      <tr>
        <th scope="col">as_of</th>
        <th scope="col" class="right">
          Version
        </th>
        <th scope="col" class="right">
          Inserted
        </th>
        <th scope="col" class="right">
          Revised
        </th>
        <th scope="col" class="right">
          Retracted
        </th>
        <th scope="col">Changed from</th>
        <th scope="col">Partition</th>
        <th scope="col">
          <span class="hidden">Look</span>
        </th>
      </tr>
    </thead>
    <tbody>
      {vintages.toReversed().map((vintage) => (
        <tr>
          <th scope="row">
            <Moment at={vintage.as_of} zone={of.time_zone} seconds />
            {vintage.vintage_reconstructed && <small>reconstructed</small>}
          </th>
          <Cell head="Version" class="number right">
            {vintage.store_version}
          </Cell>
          <Cell head="Inserted" class="number right">
            {number(vintage.inserted)}
          </Cell>
          <Cell head="Revised" class="number right">
            {number(vintage.revised)}
          </Cell>
          <Cell head="Retracted" class="number right">
            {number(vintage.retracted)}
          </Cell>
          <Cell head="Changed from">
            <ValidTime at={vintage.first_datetime} step={of.step} zone={of.time_zone} />
          </Cell>
          <Cell head="Partition">
            <RunLink vintage={vintage} />
          </Cell>
          <Cell head="">
            <a
              href={path(vintage.as_of)}
              aria-label={
                isCompared
                  ? `Compare ${vintage.as_of} with the vintage before it`
                  : `Show what was known at ${vintage.as_of}`
              }
            >
              {isCompared ? "Compare" : "Show"}
            </a>
          </Cell>
        </tr>
      ))}
    </tbody>
  </table>
);

const UUID = /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/;

const RunLink: FC<{ vintage: Vintage }> = ({ vintage: { run_id, partition } }) =>
  UUID.test(run_id) ? (
    <a class="number" href={`/runs/${run_id}`}>
      {partition}
    </a>
  ) : (
    <span class="number">{partition}</span>
  );
