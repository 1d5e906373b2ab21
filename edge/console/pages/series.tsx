// The series explorer: library → symbol → page. It asks the read API like anyone; what of a series
// was known when is computed there.

import type { FC } from "hono/jsx";
import { z } from "zod";
import type { SeriesRecord, Vintage } from "../../../shared/markets.ts";
import {
  type MarketsClient,
  MarketsError,
  readSeriesState,
} from "../../../shared/markets-client.ts";
import { DAY, iso, parseInstant } from "../../../shared/time.ts";
import type { Pipeline } from "../../markets/ingest/pipeline.ts";
import { PIPELINES } from "../../markets/ingest/pipelines.ts";
import { type ChartData, chartOf, columnsOf, instrumentsOf } from "./chart.ts";
import { Snippets, Triangle, Values, Vintages } from "./history.tsx";
import type { View } from "./layout.tsx";
import { Empty, Facts, Moment } from "./parts.tsx";
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
  instrument: text,
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
  const found = symbols.filter((symbol) => words.every((word) => symbol.includes(word)));
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
                <a href={seriesPath(library, symbol)}>{symbol}</a>
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
  const pipeline = pipelineFor(library, symbol);
  const zone = pipeline?.timeZone ?? "UTC";
  const days = SHOWN_DAYS[pipeline?.partitions.unit ?? "day"];
  // Of what was learned lately by most series; an older one is found by its vintages.
  const recently = query.start && query.end ? NOWHERE : iso(now - days * DAY);
  const head = await readSeriesState(api, { library, symbol, start: recently });
  const after = Math.max(0, (head.storeVersion ?? 0) - VINTAGES);
  const page = await api.vintages({ library, symbol, after, limit: VINTAGES }).next();
  const vintages = page.value ?? [];
  const range = rangeOf(query, newestOf(head.records, vintages), days);
  const compare =
    query.compare === undefined ? before(vintages, range) : query.compare || undefined;
  const window = { library, symbol, start: range.start, end: range.end };
  const [latest, earlier] = await Promise.all([
    readSeriesState(api, { ...window, as_of: query.as_of }),
    compare ? readSeriesState(api, { ...window, as_of: compare }) : null,
  ]);
  const instruments = instrumentsOf([...latest.records, ...(earlier?.records ?? [])]);
  const instrument = pick(instruments, query.instrument, `${library}.${symbol}`);
  const columns = columnsOf(latest.records, pipeline?.valueColumns ?? ["value"]);
  const column = pick(columns, query.column, columns[0] ?? "value");
  const chart = chartOf({ now: latest, before: earlier, instrument, column });
  const revisions = await api
    .revisions({ ...window, as_of: query.as_of, column })
    .catch((thrown: unknown) => {
      if (thrown instanceof MarketsError && thrown.code === "row_cap_exceeded") return null;
      throw thrown;
    });
  const shown = { ...range, asOf: query.as_of, compare, instrument, column };
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
        <Choices
          query={query}
          shown={shown}
          instruments={instruments}
          columns={columns}
          vintages={vintages}
        />
        <Chart chart={chart} instrument={instrument} column={column} zone={zone} />
        <Difference chart={chart} compare={compare} />
        <Values chart={chart} zone={zone} />
        <Triangle
          rows={revisions?.rows.filter((row) => row.instrument_id === instrument) ?? null}
          statistics={revisions?.statistics ?? null}
          until={parseInstant(query.as_of ?? "") ?? here.now}
          zone={zone}
        />
        <Vintages vintages={vintages} zone={zone} path={(asOf) => comparing(query, asOf)} />
        <Snippets url={url} library={library} symbol={symbol} asOf={head.asOf} />
      </>
    ),
  };
}

const pick = (options: readonly string[], asked: string | undefined, fallback: string): string => {
  if (asked !== undefined && options.includes(asked)) return asked;
  return options.includes(fallback) ? fallback : (options[0] ?? fallback);
};

const comparing = (query: SymbolQuery, asOf: string) => {
  const { library, symbol, instrument, column, start, end } = query;
  const kept = { library, symbol, instrument, column, start, end, compare: asOf };
  const entries = Object.entries(kept).filter(([, value]) => value !== undefined);
  return `/series?${new URLSearchParams(entries as [string, string][])}#chart`;
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

/** The knowledge time before the last vintage that changed the window; revisions come first. */
function before(vintages: readonly Vintage[], { start, end }: { start: string; end: string }) {
  const [from, to] = [parseInstant(start) ?? -Infinity, parseInstant(end) ?? Infinity];
  const touches = ({ first_datetime, last_datetime }: Vintage) =>
    Date.parse(first_datetime) <= to && Date.parse(last_datetime) >= from;
  const moved = vintages.findLastIndex((one) => touches(one) && one.revised + one.retracted > 0);
  const changed = moved > 0 ? moved : vintages.findLastIndex(touches);
  return changed > 0 ? vintages[changed - 1]?.as_of : undefined;
}

/** Without what says nothing: seconds and milliseconds of zero. */
const short = (instant: string) => instant.replace(/:00(\.000)?Z$/, "Z");

interface ChoicesProps {
  query: SymbolQuery;
  shown: { start: string; end: string; asOf: string | undefined; compare: string | undefined };
  instruments: readonly string[];
  columns: readonly string[];
  vintages: readonly Vintage[];
}

const Choices: FC<ChoicesProps & { shown: { instrument: string; column: string } }> = ({
  query: { library, symbol },
  shown,
  instruments,
  columns,
  vintages,
}) => (
  <form class="filters card" method="get" action="/series" aria-label="What is shown">
    <input type="hidden" name="library" value={library} />
    <input type="hidden" name="symbol" value={symbol} />
    {instruments.length > 1 && (
      <Choice label="Instrument" name="instrument" options={instruments} value={shown.instrument} />
    )}
    {columns.length > 1 && (
      <Choice label="Column" name="column" options={columns} value={shown.column} />
    )}
    <TextField label="From" name="start" value={short(shown.start)} />
    <TextField label="To" name="end" value={short(shown.end)} />
    <TextField label="As of" name="as_of" value={shown.asOf} list hint="latest" />
    <TextField label="Compared with" name="compare" value={shown.compare} list hint="nothing" />
    <datalist id="known-at">
      {vintages.toReversed().map(({ as_of, revised }) => (
        <option value={as_of}>{revised > 0 ? `${revised} revised` : ""}</option>
      ))}
    </datalist>
    <button type="submit">Show</button>
  </form>
);

const Choice: FC<{ label: string; name: string; options: readonly string[]; value: string }> = ({
  label,
  name,
  options,
  value,
}) => (
  <label>
    {label}
    <select name={name}>
      {options.map((option) => (
        <option value={option} selected={option === value}>
          {option}
        </option>
      ))}
    </select>
  </label>
);

const TextField: FC<{
  label: string;
  name: string;
  value: string | undefined;
  list?: boolean;
  hint?: string;
}> = ({ label, name, value, list = false, hint }) => (
  <label>
    {label}
    <input
      type="text"
      name={name}
      value={value ?? ""}
      list={list ? "known-at" : undefined}
      placeholder={hint ?? "2026-01-31T00:00Z"}
      autocomplete="off"
      spellcheck={false}
    />
  </label>
);

const Chart: FC<{ chart: ChartData; instrument: string; column: string; zone: string }> = ({
  chart,
  instrument,
  column,
  zone,
}) => {
  if (chart.times.length === 0) {
    return (
      <Empty title="Nothing was known of this window">
        Take a later knowledge time, or a window in which the series has values.
      </Empty>
    );
  }
  const { times, lines } = chart;
  const data = JSON.stringify({ times, lines, zone, column });
  return (
    <figure class="chart" id="chart" aria-label={`${instrument}, ${column}`}>
      <figcaption>
        {instrument} <span class="soft">{column}</span>
        {chart.cut && <span class="soft"> · only the newest {number(times.length)} points</span>}
      </figcaption>
      <div class="plot" data-chart={data} role="img" aria-label={`Chart of ${instrument}`} />
      <noscript>
        <p class="soft">The chart needs JavaScript; the values are in the table below.</p>
      </noscript>
    </figure>
  );
};

const Difference: FC<{ chart: ChartData; compare: string | undefined }> = ({ chart, compare }) => {
  const { asOf, comparedAsOf, added, changed, changeMax } = chart;
  return (
    <Facts
      facts={[
        ["As of", <Moment at={asOf} seconds />],
        [
          "Compared with",
          compare ? <Moment at={comparedAsOf ?? compare} seconds /> : "nothing older is known",
        ],
        ["Points", <span class="number">{number(chart.times.length)}</span>],
        ["Not known then", <span class="number">{compare ? number(added) : "–"}</span>],
        ["Changed since", <span class="number">{compare ? number(changed) : "–"}</span>],
        ["Largest change", <span class="number">{compare ? number(changeMax) : "–"}</span>],
      ]}
    />
  );
};
