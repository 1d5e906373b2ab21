// The timeline: which runs worked when, a lane a pipeline.

import type { FC } from "hono/jsx";
import { z } from "zod";
import { HOUR, iso, isoDay } from "../../../shared/time.ts";
import type { IngestParts } from "../../markets/ingest/parts.ts";
import { PIPELINES } from "../../markets/ingest/pipelines.ts";
import { listWorking, type TimelineEntry } from "../../markets/ingest/timeline.ts";
import type { Range } from "../../markets/store/rows.ts";
import { calendarDay, formField } from "../parameters.ts";
import { Cell, DateField, Empty, Live, Moment, Select, State, signOf } from "./components.tsx";
import type { View } from "./layout.tsx";
import { jobPath, length, number } from "./words.ts";

const RUNS_MAX = 1_000;
/** Runs in the table below; the bars hold all. */
const LISTED = 100;
const STRETCHES = [24, 6, 1] as const;
const HOURS = Array.from(
  { length: 24 },
  (_, hour) => [String(hour), `${String(hour).padStart(2, "0")}:00`] as const,
);
const LENGTHS = STRETCHES.map(
  (hours) => [String(hours), hours === 1 ? "1 hour" : `${hours} hours`] as const,
);
/** The drawing's units: a lane is so wide, and each of its rows so high. */
const WIDTH = 1_000;
const ROW = 18;
const BAR = 14;
const BAR_WIDTH_MIN = 8;
/** Runs of one lane that overlap more than this lie over one another. */
const ROWS_MAX = 8;

/** Which stretch is shown: from an hour of a UTC day on. */
export const TimelineQuery = z.object({
  day: formField(calendarDay),
  hour: z
    .string()
    .regex(/^([01]?\d|2[0-3])$/, "must be an hour from 0 to 23")
    .transform(Number)
    .optional(),
  hours: z.enum(["24", "6", "1"], { error: "must be 24, 6 or 1" }).default("24").transform(Number),
});
type TimelineQuery = z.output<typeof TimelineQuery>;

/** The newest stretch of a length that holds `now`, or the one asked for. */
function stretchOf({ day, hour, hours }: TimelineQuery, now: number): Range {
  const step = hours * HOUR;
  const newest = Math.floor(now / step) * step;
  const from = day ? Date.parse(day) + (hour ?? 0) * HOUR : newest;
  return { from, to: from + step };
}

const pathOf = (from: number, hours: number) =>
  `/timeline?day=${isoDay(from)}&hour=${new Date(from).getUTCHours()}&hours=${hours}`;

/** The runs of a stretch of time, pipeline by pipeline. */
export async function timelineView(
  { database, clock }: IngestParts,
  query: TimelineQuery,
): Promise<View> {
  const now = clock();
  const stretch = stretchOf(query, now);
  const found = await listWorking(database, stretch, RUNS_MAX + 1);
  const runs = found.slice(-RUNS_MAX);
  const isNow = stretch.from <= now && now < stretch.to;
  return {
    title: "Timeline",
    section: "timeline",
    body: () => (
      <>
        <h1>Timeline</h1>
        <Stretch query={query} stretch={stretch} />
        <Live name="timeline" every={isNow ? 15 : 60}>
          {found.length > RUNS_MAX && (
            <p class="notice">
              More runs worked in this time: the newest {number(RUNS_MAX)} are shown.
            </p>
          )}
          {runs.length === 0 && (
            <Empty title="Nothing worked in this time">
              Choose another day, or see <a href="/runs">all runs</a>.
            </Empty>
          )}
          {runs.length > 0 && <Lanes runs={runs} stretch={stretch} now={now} />}
          {runs.length > 0 && <RunList runs={runs} now={now} />}
        </Live>
      </>
    ),
  };
}

const Stretch: FC<{ query: TimelineQuery; stretch: Range }> = ({ query, stretch }) => {
  const { hours } = query;
  const step = stretch.to - stretch.from;
  return (
    <form class="filters" method="get" action="/timeline" aria-label="Choose a time">
      <DateField label="Day (UTC)" name="day" value={isoDay(stretch.from)} />
      <Select
        label="From"
        name="hour"
        options={HOURS}
        value={String(new Date(stretch.from).getUTCHours())}
      />
      <Select label="Length" name="hours" options={LENGTHS} value={String(hours)} />
      <button type="submit">Show</button>
      <a class="button quiet" href={pathOf(stretch.from - step, hours)} rel="prev">
        Earlier
      </a>
      <a class="button quiet" href={pathOf(stretch.to, hours)} rel="next">
        Later
      </a>
      <a class="button quiet" href={`/timeline?hours=${hours}`}>
        Now
      </a>
    </form>
  );
};

interface Lane {
  title: string;
  job: string;
  runs: readonly TimelineEntry[];
}

const Lanes: FC<{ runs: readonly TimelineEntry[]; stretch: Range; now: number }> = ({
  runs,
  stretch,
  now,
}) => {
  const byJob = Map.groupBy(runs, ({ job }) => job);
  const known = PIPELINES.map(({ job, title }) => ({ job, title }));
  const gone = [...byJob.keys()]
    .filter((job) => !known.some((one) => one.job === job))
    .map((job) => ({ job, title: job }));
  const lanes: Lane[] = [...known, ...gone].map((one) => ({
    ...one,
    runs: byJob.get(one.job) ?? [],
  }));
  return (
    <section class="card lanes" aria-label="Runs by pipeline">
      <div class="lane" aria-hidden="true">
        <span />
        <ol class="axis">
          {ticksOf(stretch).map((tick) => (
            <li>{iso(tick).slice(11, 16)}</li>
          ))}
        </ol>
      </div>
      {lanes.map((lane) => (
        <div class="lane">
          <div>
            <a href={jobPath(lane.job)}>{lane.title}</a>
            <small>{countsOf(lane.runs)}</small>
          </div>
          <Bars lane={lane} stretch={stretch} now={now} />
        </div>
      ))}
    </section>
  );
};

/** Eight, or six of a stretch that eight do not divide. */
function ticksOf({ from, to }: Range): number[] {
  const count = (to - from) % (8 * HOUR) === 0 ? 8 : 6;
  return Array.from({ length: count }, (_, index) => from + (index * (to - from)) / count);
}

/** `12 ✓, 1 ✕`: what the bars' colours say. */
const countsOf = (runs: readonly TimelineEntry[]): string =>
  [...Map.groupBy(runs, ({ state }) => state)]
    .map(([state, those]) => `${those.length} ${signOf(state)}`)
    .join(", ") || "–";

/** What a bar says to those who do not see it. */
function wordsOf({ partition, state, started, finished, attempt }: TimelineEntry, now: number) {
  const took = length((finished ?? now) - started);
  const again = attempt > 1 ? `, attempt ${attempt}` : "";
  return `${partition} ${state}, began ${iso(started).slice(11, 19)} UTC, ${took}${again}`;
}

const Bars: FC<{ lane: Lane; stretch: Range; now: number }> = ({ lane, stretch, now }) => {
  const unit = WIDTH / (stretch.to - stretch.from);
  const xOf = (instant: number) =>
    (Math.min(Math.max(instant, stretch.from), stretch.to) - stretch.from) * unit;
  // The end of the last bar of each row; a run goes to the first row that is free.
  const ends: number[] = [];
  const bars = lane.runs.map((run) => {
    const x = Math.min(xOf(run.started), WIDTH - BAR_WIDTH_MIN);
    const width = Math.max(xOf(run.finished ?? now) - x, BAR_WIDTH_MIN);
    const free = ends.findIndex((end) => end <= x);
    const row = free >= 0 ? free : Math.min(ends.length, ROWS_MAX - 1);
    ends[row] = Math.max(ends[row] ?? 0, x + width + 1);
    return { run, x, width, row };
  });
  const height = Math.max(1, ends.length) * ROW;
  return (
    <svg viewBox={`0 0 ${WIDTH} ${height}`} height={height} preserveAspectRatio="none">
      <title>{`Runs of ${lane.title}`}</title>
      {ticksOf(stretch).map((tick) => (
        <line x1={xOf(tick)} x2={xOf(tick)} y1="0" y2={height} class="tick" />
      ))}
      {stretch.from <= now && now < stretch.to && (
        <line x1={xOf(now)} x2={xOf(now)} y1="0" y2={height} class="now" />
      )}
      {bars.map(({ run, x, width, row }) => (
        <a href={`/runs/${run.run_id}`} aria-label={wordsOf(run, now)}>
          <title>{wordsOf(run, now)}</title>
          <rect
            class={`bar ${run.state}`}
            x={x.toFixed(1)}
            y={row * ROW + (ROW - BAR) / 2}
            width={width.toFixed(1)}
            height={BAR}
          />
        </a>
      ))}
    </svg>
  );
};

const RunList: FC<{ runs: readonly TimelineEntry[]; now: number }> = ({ runs, now }) => (
  <details id="listed">
    <summary>
      {runs.length > LISTED ? `The newest ${LISTED} of ${number(runs.length)} runs` : "The runs"} as
      a table
    </summary>
    <table class="stack compact">
      <thead>
        <tr>
          <th scope="col">Run</th>
          <th scope="col">State</th>
          <th scope="col">Began</th>
          <th scope="col" class="right">
            Took
          </th>
        </tr>
      </thead>
      <tbody>
        {runs
          .slice(-LISTED)
          .toReversed()
          .map((run) => (
            <tr>
              <th scope="row">
                <a href={`/runs/${run.run_id}`}>
                  {PIPELINES.find(({ job }) => job === run.job)?.title ?? run.job}{" "}
                  <span class="number whole">{run.partition}</span>
                </a>
              </th>
              <Cell head="State">
                <State state={run.state} />
              </Cell>
              <Cell head="Began">
                <Moment at={run.started} seconds />
              </Cell>
              <Cell head="Took" class="number right">
                {length((run.finished ?? now) - run.started)}
              </Cell>
            </tr>
          ))}
      </tbody>
    </table>
  </details>
);
