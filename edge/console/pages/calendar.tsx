// The release calendar: when each publisher's next numbers are expected, when they came, and how
// late that was, a month at a time.

import { type Child, type FC, useContext } from "hono/jsx";
import { z } from "zod";
import { addMonths, DAY, isoDay, MINUTE } from "../../../shared/time.ts";
import { text } from "../../http/texts.ts";
import type { IngestParts } from "../../markets/ingest/parts.ts";
import { requirePipeline } from "../../markets/ingest/pipeline.ts";
import { PIPELINES } from "../../markets/ingest/pipelines.ts";
import {
  type CalendarRelease,
  listReleases,
  releasingPipelines,
} from "../../markets/ingest/release-calendar.ts";
import { formField } from "../parameters.ts";
import {
  ALL,
  Cell,
  ClockContext,
  Empty,
  Live,
  Moment,
  Select,
  State,
  signOf,
} from "./components.tsx";
import type { View } from "./layout.tsx";
import { jobPath, length, readClock, zonesOf } from "./words.ts";

const RELEASING = releasingPipelines(PIPELINES);
const WEEKDAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
/** The months that calendars reach. */
const MONTH = /^(19|20|21)\d\d-(0[1-9]|1[0-2])$/;
/** A release that is stored this soon after its time came in time. */
const PROMPT_MS = 5 * MINUTE;

/** Which month is shown, of which pipeline. */
export const CalendarQuery = z.object({
  month: formField(z.string().regex(MONTH, "must be a YYYY-MM month")),
  job: formField(text()),
});
type CalendarQuery = z.output<typeof CalendarQuery>;

/** The releases of a month. */
export async function calendarView(parts: IngestParts, query: CalendarQuery): Promise<View> {
  const now = parts.clock();
  const month = query.month ?? isoDay(now).slice(0, 7);
  const first = Date.parse(`${month}-01`);
  const next = addMonths(first, 1);
  const pipelines = query.job ? [requirePipeline(RELEASING, query.job)] : RELEASING;
  // A day of margin: the month's days are those of the clock that is shown.
  const releases = await listReleases(parts, pipelines, { from: first - DAY, to: next + DAY });
  return {
    title: `Calendar, ${month}`,
    section: "calendar",
    body: () => (
      <>
        <h1>
          Release calendar <span class="number whole">{month}</span>
        </h1>
        <p class="lead">
          When publishers are expected to release, and when what they released was stored. “By
          rule”: moved for a holiday by the usual rule, as the publisher's own calendar of that year
          is not recorded.
        </p>
        <form class="filters" method="get" action="/calendar" aria-label="Choose a month">
          <label>
            Month
            <input
              type="text"
              name="month"
              value={month}
              pattern="\d{4}-\d{2}"
              title="YYYY-MM"
              placeholder="YYYY-MM"
              size={8}
            />
          </label>
          <Select
            label="Pipeline"
            name="job"
            options={[ALL, ...RELEASING.map(({ job, title }) => [job, title] as const)]}
            value={query.job}
          />
          <button type="submit">Show</button>
          <MonthLink month={addMonths(first, -1)} query={query}>
            Earlier
          </MonthLink>
          <MonthLink month={next} query={query}>
            Later
          </MonthLink>
        </form>
        <Live name="calendar" every={30}>
          <Month releases={releases} first={first} next={next} now={now} />
        </Live>
      </>
    ),
  };
}

/** Another month, where the calendar reaches it. */
const MonthLink: FC<{ month: number; query: CalendarQuery; children?: Child }> = ({
  month: instant,
  query: { job },
  children,
}) => {
  const month = isoDay(instant).slice(0, 7);
  const query = new URLSearchParams({ month, ...(job ? { job } : {}) });
  return MONTH.test(month) ? (
    <a class="button quiet" href={`/calendar?${query}`}>
      {children}
    </a>
  ) : null;
};

interface MonthProps {
  releases: readonly CalendarRelease[];
  /** The month's first day and the next one's, each as 00:00Z. */
  first: number;
  next: number;
  now: number;
}

const Month: FC<MonthProps> = ({ releases, first, next, now }) => {
  const clock = useContext(ClockContext);
  const dayOf = ({ expected, pipeline }: CalendarRelease) =>
    readClock(expected, zonesOf(clock, pipeline.timeZone)[0]).day;
  const byDay = Map.groupBy(releases, dayOf);
  const today = readClock(now, zonesOf(clock, releases[0]?.pipeline.timeZone)[0]).day;
  const days = Array.from({ length: (next - first) / DAY }, (_, index) => first + index * DAY);
  const shown = days.flatMap((day) => byDay.get(isoDay(day)) ?? []);
  // Monday is the first column.
  const column = ((new Date(first).getUTCDay() + 6) % 7) + 1;
  if (shown.length === 0) {
    return <Empty title="Nothing is released in this month">Take another month or pipeline.</Empty>;
  }
  return (
    <>
      <div class="weekdays" aria-hidden="true">
        {WEEKDAYS.map((name) => (
          <span>{name}</span>
        ))}
      </div>
      <ol class={`calendar from-${column}`}>
        {days.map((day) => {
          const ofDay = byDay.get(isoDay(day)) ?? [];
          const isToday = today === isoDay(day);
          return (
            <li class={ofDay.length === 0 ? "idle" : undefined}>
              <h2 aria-current={isToday ? "date" : undefined}>
                <time datetime={isoDay(day)}>
                  <span class="month">{isoDay(day).slice(0, 8)}</span>
                  {isoDay(day).slice(8)}
                </time>
              </h2>
              {ofDay.map((release) => (
                <Release release={release} now={now} />
              ))}
            </li>
          );
        })}
      </ol>
      <details id="listed">
        <summary>As a table</summary>
        <ReleaseTable releases={shown} now={now} />
      </details>
    </>
  );
};

/** The state of a release: `expected` while it may not be out yet. */
const stateOf = ({ state, came, expected }: CalendarRelease, now: number): string => {
  if (came === null && now < expected && state !== "materialized") return "expected";
  return state ?? "expected";
};

/** How long after its time it was stored, or that it still is not. */
function lateness({ came, expected, state }: CalendarRelease, now: number): string {
  if (came === null) {
    // By a run of another partition, or as a reconstruction.
    if (state === "materialized") return "filled later";
    return now < expected ? `in ${length(expected - now)}` : `${length(now - expected)} over`;
  }
  if (came >= expected && came - expected < PROMPT_MS) return "in time";
  return came < expected ? `${length(expected - came)} early` : `${length(came - expected)} after`;
}

const releasePath = ({ pipeline, partition }: CalendarRelease) =>
  `${jobPath(pipeline.job)}?partition=${partition}#partition`;

const Release: FC<{ release: CalendarRelease; now: number }> = ({ release, now }) => {
  const { pipeline, expected, isDerived } = release;
  const clock = useContext(ClockContext);
  const reading = readClock(expected, zonesOf(clock, pipeline.timeZone)[0]);
  const state = stateOf(release, now);
  // What has not begun has no page of its own.
  const path = release.state === null ? jobPath(pipeline.job) : releasePath(release);
  return (
    <a class={`release state ${state}`} href={path}>
      <span aria-hidden="true">{signOf(state)}</span> <span class="hidden">{state}: </span>
      {pipeline.title}
      <small>
        {reading.time} {reading.zone}
        {isDerived && ", by rule"} · {lateness(release, now)}
      </small>
    </a>
  );
};

const ReleaseTable: FC<{ releases: readonly CalendarRelease[]; now: number }> = ({
  releases,
  now,
}) => (
  <table class="stack compact">
    <thead>
      <tr>
        <th scope="col">Release</th>
        <th scope="col">State</th>
        <th scope="col">Expected</th>
        <th scope="col">Stored</th>
        <th scope="col">How late</th>
      </tr>
    </thead>
    <tbody>
      {releases.map((release) => (
        <tr>
          <th scope="row">
            {release.pipeline.title} <span class="number">{release.partition}</span>
          </th>
          <Cell head="State">
            <State state={stateOf(release, now)} />
          </Cell>
          <Cell head="Expected">
            <Moment at={release.expected} zone={release.pipeline.timeZone} />
            {release.isDerived && <small>by rule</small>}
          </Cell>
          <Cell head="Stored">
            <Moment at={release.came} zone={release.pipeline.timeZone} />
          </Cell>
          <Cell head="How late">{lateness(release, now)}</Cell>
        </tr>
      ))}
    </tbody>
  </table>
);
