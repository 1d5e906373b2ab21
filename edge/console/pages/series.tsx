// The series explorer: library → symbol → page. It asks the read API like anyone; what of a series
// was known when is computed there.

import type { FC } from "hono/jsx";
import { z } from "zod";
import { DAY, iso, parseInstant } from "../../../shared/time.ts";
import type { SeriesRecord, Vintage } from "../../../shared/wire/markets.ts";
import { type MarketsClient, MarketsError, readSeriesState } from "../../markets/client/client.ts";
import { describeSymbol, type SymbolDescription, unitOf } from "../../markets/client/symbols.ts";
import type { Pipeline } from "../../markets/ingest/pipeline.ts";
import { PIPELINES } from "../../markets/ingest/pipelines.ts";
import {
  type ChartData,
  chartOf,
  columnsOf,
  instrumentsOf,
  OVERLAID_MAX,
  overlaidAtFirst,
  overlayOf,
} from "./chart.ts";
import { Empty, Facts, Moment } from "./components.tsx";
import { Triangle, Values, Vintages } from "./history.tsx";
import type { View } from "./layout.tsx";
import { Plot } from "./plot.tsx";
import { ChoicesForm, Presets, type Problem, problemsOf } from "./series-form.tsx";
import { Snippets } from "./snippets.tsx";
import { number, seriesPath } from "./words.ts";

const text = z
  .string()
  .trim()
  .optional()
  .transform((given) => given || undefined);

/** What the address of the series pages asks for. */
export const SeriesQuery = z.object({
  library: text,
  symbol: text,
  /** Words of symbols to list. */
  q: text,
  /** Absent: those that the chart begins with. */
  instrument: z.array(z.string()).default([]),
  column: text,
  start: text,
  end: text,
  as_of: text,
  /** Absent: the vintage before; empty: none. */
  compare: z.string().trim().optional(),
});
export type SeriesQuery = z.output<typeof SeriesQuery>;

/** Valid time shown when none is asked for, by the pipeline's unit. */
const SHOWN_DAYS = { day: 7, operating_day: 7, weekday: 120, week: 730, month: 1_825 } as const;
const VINTAGES = 500;
/** Beyond all data: such a read returns no row and says which vintage answered. */
const NOWHERE = "9999-12-31";

const pipelineFor = (library: string, symbol: string): Pipeline | undefined =>
  PIPELINES.find(
    ({ libraries, owns }) => libraries.includes(library) && (owns?.(symbol) ?? true),
  ) ?? PIPELINES.find(({ libraries }) => libraries.includes(library));

/**
 * The libraries, the symbols of one, or one series, by how much the query names. Without a read API
 * it says so; what the read API refuses is thrown as its `MarketsError`.
 */
export async function seriesView(
  { api, ...more }: Omit<SeriesParts, "api"> & { api: MarketsClient | null },
  query: SeriesQuery,
): Promise<View> {
  if (!api) return unboundView();
  const { library, symbol } = query;
  if (!library) return librariesView(await api.libraries());
  if (!symbol) return symbolsView(library, await api.symbols({ library }), query.q);
  return symbolView({ api, ...more }, { ...query, library, symbol });
}

const unboundView = (): View => ({
  title: "Series",
  section: "series",
  body: () => (
    <>
      <h1>Series</h1>
      <Empty title="The console has no way to the read API">
        Series are shown by asking the read API. Bind its service to the console as{" "}
        <code>MARKETS</code> and start it; everything else here works without.
      </Empty>
    </>
  ),
});

const librariesView = (libraries: readonly string[]): View => ({
  title: "Series",
  section: "series",
  body: () => (
    <>
      <h1>Series</h1>
      <p class="lead">Every series at any knowledge time, through the read API.</p>
      {libraries.length === 0 && (
        <Empty title="The store is empty">
          Launch a pipeline from the <a href="/overview">overview</a>; its libraries appear here.
        </Empty>
      )}
      <ul class="tiles">
        {libraries.map((library) => (
          <li>
            <a class="card tile" href={seriesPath(library)}>
              <strong>{library}</strong>
              <small>
                {PIPELINES.filter((one) => one.libraries.includes(library))
                  .map(({ title }) => title)
                  .join(", ") || "no pipeline fills it any more"}
              </small>
            </a>
          </li>
        ))}
      </ul>
    </>
  ),
});

const symbolsView = (library: string, symbols: readonly string[], q = ""): View => {
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  const found = symbols.filter((symbol) => {
    const text = `${symbol} ${describeSymbol(library, symbol).name}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  return {
    title: library,
    section: "series",
    body: () => (
      <>
        <p class="crumbs">
          <a href="/series">Series</a>
        </p>
        <h1>{library}</h1>
        <form class="filters" method="get" action="/series" aria-label="Find a symbol">
          <input type="hidden" name="library" value={library} />
          <label>
            Symbol
            <input type="search" name="q" value={q} placeholder="part of its name" />
          </label>
          <button type="submit">Find</button>
        </form>
        {found.length === 0 ? (
          <Empty title="No symbol is named like this">
            See <a href={seriesPath(library)}>all {number(symbols.length)}</a>.
          </Empty>
        ) : (
          <ul class="tags large">
            {found.map((symbol) => (
              <li>
                <a href={seriesPath(library, symbol)}>
                  {symbol}
                  <small>{describeSymbol(library, symbol).name}</small>
                </a>
              </li>
            ))}
          </ul>
        )}
      </>
    ),
  };
};

/** A query that names one series. */
type SymbolQuery = SeriesQuery & { library: string; symbol: string };

/** What the pages of series work with. */
interface SeriesParts {
  api: MarketsClient;
  /** Where consumers reach it. */
  url: string;
  now: number;
}

async function symbolView({ api, url, now }: SeriesParts, query: SymbolQuery): Promise<View> {
  const { library, symbol } = query;
  const problems = problemsOf(query);
  if (problems.length > 0) return unreadableView(query, problems);
  const pipeline = pipelineFor(library, symbol);
  const described = describeSymbol(library, symbol);
  const zone = described.time_zone;
  const days = SHOWN_DAYS[pipeline?.partitions.unit ?? "day"];
  // What was learned lately by most series is shown; an older one is found by its vintages.
  const recently = query.start && query.end ? NOWHERE : iso(now - days * DAY);
  const head = await readSeriesState(api, { library, symbol, start: recently });
  const after = Math.max(0, (head.storeVersion ?? 0) - VINTAGES);
  const page = await api.vintages({ library, symbol, after, limit: VINTAGES }).next();
  const vintages = page.value ?? [];
  const range = rangeOf(query, newestOf(head.records, vintages), days);
  const window = { library, symbol, start: range.start, end: range.end };
  const latest = await readSeriesState(api, { ...window, as_of: query.as_of });
  const columns = columnsOf(latest.records, pipeline?.valueColumns ?? ["value"]);
  const column =
    query.column && columns.includes(query.column) ? query.column : (columns[0] ?? "value");
  const unitAt = (one: string) => unitOf(described, one, column);
  const atFirst = overlaidAtFirst(latest.records, column, unitAt);
  // Two knowledge times of several instruments are more lines than one can tell apart.
  const isOverlay = shownInstruments(query, instrumentsOf(latest.records), atFirst).length > 1;
  const compare = isOverlay
    ? undefined
    : await comparedWith(api, query, { state: latest, vintages, range });
  const earlier = compare ? await readSeriesState(api, { ...window, as_of: compare }) : null;
  const known = instrumentsOf([...latest.records, ...(earlier?.records ?? [])]);
  const instruments = shownInstruments(query, known, atFirst);
  const [instrument = `${library}.${symbol}`] = instruments;
  const chart = isOverlay
    ? overlayOf(
        latest,
        column,
        instruments.map((one) => ({ instrument: one, name: nameOf(described, one) ?? one })),
      )
    : chartOf({ now: latest, before: earlier, instrument, column });
  const revisions = await api
    .revisions({ ...window, as_of: query.as_of, column })
    .catch((thrown: unknown) => {
      if (thrown instanceof MarketsError && thrown.code === "row_cap_exceeded") return null;
      throw thrown;
    });
  const units = new Set(instruments.map(unitAt));
  const unit = units.size > 1 ? null : unitAt(instrument);
  const shown = { library, symbol, ...range, asOf: query.as_of, compare, instruments, column };
  return {
    title: `${library} ${symbol}`,
    section: "series",
    charts: true,
    body: (here) => (
      <>
        <p class="crumbs">
          <a href="/series">Series</a> <a href={seriesPath(library)}>{library}</a>
        </p>
        <h1>{symbol}</h1>
        <p class="lead">
          {described.name}
          {unit && `, ${unit}`}
          {described.kind === "ahead" && " · its newest values lie ahead"}
          <span class="soft"> · {zone}</span>
        </p>
        <Presets shown={shown} now={here.now} />
        <ChoicesForm
          shown={shown}
          instruments={known.map((one) => [one, nameOf(described, one) ?? one])}
          columns={columns}
          vintages={vintages}
          problems={[]}
        />
        <Chart chart={chart} shown={{ described, instruments, column, unit }} />
        {isOverlay ? (
          <p class="soft">
            Choose one instrument to compare two knowledge times of it, and to see how it was
            revised.
          </p>
        ) : (
          <Difference chart={chart} compare={compare} unit={unit} />
        )}
        <Values chart={chart} of={described} unit={unit} isOverlay={isOverlay} />
        {!isOverlay && (
          <Triangle
            rows={revisions?.rows.filter((row) => row.instrument_id === instrument) ?? null}
            statistics={revisions?.statistics ?? null}
            until={parseInstant(query.as_of ?? "") ?? here.now}
            of={described}
            unit={unit}
          />
        )}
        <Vintages
          vintages={vintages}
          of={described}
          isCompared={!isOverlay}
          path={(asOf) => knownAt(query, asOf)}
        />
        <Snippets url={url} library={library} symbol={symbol} asOf={head.asOf} />
      </>
    ),
  };
}

/** What a chart is of. */
interface ShownSeries {
  described: SymbolDescription;
  instruments: readonly string[];
  column: string;
  unit: string | null;
}

/** The instruments asked for that there are; else those that the chart begins with. */
function shownInstruments(
  { instrument: asked, compare }: SymbolQuery,
  known: readonly string[],
  atFirst: readonly string[],
): string[] {
  const found = known.filter((one) => asked.includes(one)).slice(0, OVERLAID_MAX);
  if (found.length > 0) return found;
  // Who wants two knowledge times compared wants one instrument.
  return compare || atFirst.length === 0 ? known.slice(0, 1) : [...atFirst];
}

/** The page as of a vintage; what it is compared with is then the vintage before. */
const knownAt = (query: SymbolQuery, asOf: string) => {
  const { library, symbol, instrument, column, start, end } = query;
  const kept = { library, symbol, column, start, end, as_of: asOf };
  const entries = Object.entries(kept).filter(([, value]) => value !== undefined);
  const chosen = instrument.map((one) => ["instrument", one]);
  return `/series?${new URLSearchParams([...entries, ...chosen] as [string, string][])}#chart`;
};

/** The valid time asked for; by default what was newest, as long as the pipeline's unit asks. */
function rangeOf({ start, end }: SymbolQuery, newest: number, days: number) {
  const to = parseInstant(end ?? "") ?? newest;
  return { start: start ?? iso(to - days * DAY), end: end ?? iso(to) };
}

/** The newest valid time: of the rows, or where there is none of what vintages changed. */
function newestOf(records: readonly SeriesRecord[], vintages: readonly Vintage[]): number {
  const instants = [
    ...records.map(({ Datetime }) => Datetime),
    ...vintages.map(({ last_datetime }) => last_datetime),
  ];
  return instants.reduce((newest, instant) => Math.max(newest, Date.parse(instant)), 0);
}

interface Comparison {
  /** The state at the `as_of` asked for. */
  state: { storeVersion: number | null };
  vintages: readonly Vintage[];
  range: { start: string; end: string };
}

/**
 * The knowledge time to compare with: what the query says, or of an `as_of` the vintage before the
 * one that answers it, or of the latest state what was known before the last revision.
 */
async function comparedWith(
  api: MarketsClient,
  { library, symbol, compare, as_of }: SymbolQuery,
  { state, vintages, range }: Comparison,
): Promise<string | undefined> {
  if (compare !== undefined) return compare || undefined;
  if (as_of === undefined) return before(vintages, range);
  const version = state.storeVersion ?? 0;
  if (version < 2) return undefined;
  const page = await api.vintages({ library, symbol, after: version - 2, limit: 1 }).next();
  return page.value?.[0]?.as_of;
}

/** The knowledge time before the last vintage that changed the window; revisions come first. */
function before(vintages: readonly Vintage[], { start, end }: { start: string; end: string }) {
  const [from, to] = [parseInstant(start) ?? -Infinity, parseInstant(end) ?? Infinity];
  const touches = ({ first_datetime, last_datetime }: Vintage) =>
    Date.parse(first_datetime) <= to && Date.parse(last_datetime) >= from;
  const moved = vintages.findLastIndex((one) => touches(one) && one.revised + one.retracted > 0);
  const changed = moved > 0 ? moved : vintages.findLastIndex(touches);
  return changed > 0 ? vintages[changed - 1]?.as_of : undefined;
}

const nameOf = ({ instruments }: SymbolDescription, instrument: string) =>
  instruments.find((one) => one.instrument_id === instrument)?.name ?? null;

/** The form as it was typed, with what of it cannot be read. */
const unreadableView = (query: SymbolQuery, problems: readonly Problem[]): View => {
  const { library, symbol, start, end, as_of: asOf, compare, instrument, column } = query;
  const shown = { library, symbol, start, end, asOf, compare, instruments: instrument, column };
  return {
    title: `${library} ${symbol}`,
    section: "series",
    status: 422,
    body: () => (
      <>
        <p class="crumbs">
          <a href="/series">Series</a> <a href={seriesPath(library)}>{library}</a>
        </p>
        <h1>{symbol}</h1>
        <ChoicesForm
          shown={shown}
          instruments={instrument.map((one) => [one, one])}
          columns={[]}
          vintages={[]}
          problems={problems}
        />
      </>
    ),
  };
};

interface ChartProps {
  chart: ChartData;
  shown: ShownSeries;
}

const Chart: FC<ChartProps> = ({ chart, shown: { described, instruments, column, unit } }) => {
  if (chart.times.length === 0) {
    return (
      <Empty title="Nothing was known of this window">
        Take a later knowledge time, or a window in which the series has values.
      </Empty>
    );
  }
  const [first = ""] = instruments;
  const isOverlay = instruments.length > 1;
  const name = isOverlay ? `${number(instruments.length)} instruments` : nameOf(described, first);
  return (
    <Plot
      data={{ times: chart.times, lines: chart.lines, revised: chart.revised }}
      unit={unit}
      zone={described.time_zone}
      step={described.step}
      title={`${isOverlay ? described.name : first}, ${column}`}
    >
      {name ?? first}{" "}
      <span class="soft">
        {name && !isOverlay && `${first} · `}
        {column}
        {unit && `, ${unit}`}
      </span>
      {chart.cut && (
        <span class="soft"> · only the newest {number(chart.times.length)} points</span>
      )}
    </Plot>
  );
};

const Difference: FC<{
  chart: ChartData;
  compare: string | undefined;
  unit: string | null;
}> = ({ chart, compare, unit }) => {
  const { asOf, comparedAsOf, added, gone, revised, changeMax } = chart;
  const counted = (count: number) => <span class="number">{compare ? number(count) : "–"}</span>;
  return (
    <Facts
      facts={[
        ["As of", <Moment at={asOf} seconds />],
        [
          "Compared with",
          compare ? <Moment at={comparedAsOf ?? compare} seconds /> : "nothing older is known",
        ],
        ["Points", <span class="number">{number(chart.times.length)}</span>],
        ["Not known then", counted(added)],
        ["Gone since", counted(gone)],
        ["Changed since", counted(revised.length)],
        [
          "Largest change",
          <span class="number">
            {compare && revised.length > 0
              ? `${number(Number(changeMax.toPrecision(6)))} ${unit ?? ""}`
              : "–"}
          </span>,
        ],
      ]}
    />
  );
};
