// Events: a search over the journals of all runs.

import type { FC } from "hono/jsx";
import { z } from "zod";
import { Failure } from "../../../shared/errors.ts";
import { DAY, isoDay } from "../../../shared/time.ts";
import { text } from "../../http/texts.ts";
import { type EventMatch, searchEvents } from "../../markets/ingest/event-search.ts";
import type { IngestParts } from "../../markets/ingest/parts.ts";
import { pipelineOf } from "../../markets/ingest/pipelines.ts";
import type { Range } from "../../markets/store/rows.ts";
import { calendarDay, formField } from "../parameters.ts";
import { ALL, DateField, Empty, JOBS, Moment, Select, State } from "./components.tsx";
import type { View } from "./layout.tsx";

const PAGE = 40;
const DEFAULT_DAYS = 7;
const DAYS_MAX = 31;
const LEVELS = ["info", "warning", "error"] as const;

const day = formField(calendarDay);

/** What is searched for. Without days: the last seven. */
export const EventsQuery = z.object({
  q: formField(text().trim().max(200, "must have at most 200 characters")),
  level: formField(z.enum(LEVELS)),
  job: formField(text()),
  from: day,
  to: day,
  after: formField(
    z
      .string()
      .regex(/^\d{1,15}$/, "must be an entry's number")
      .transform(Number),
  ),
});
type EventsQuery = z.output<typeof EventsQuery>;

/** The days asked for, the last one included; fails with `invalid_request` for too many. */
function rangeOf({ from, to }: EventsQuery, now: number): Range {
  const last = to ? Date.parse(to) : Math.max(now, from ? Date.parse(from) : now);
  const end = (Math.floor(last / DAY) + 1) * DAY;
  const start = from ? Date.parse(from) : end - DEFAULT_DAYS * DAY;
  if (start >= end) throw new Failure("invalid_request", "from: must not be after to");
  if (end - start > DAYS_MAX * DAY) {
    if (from && !to) return { from: start, to: start + DAYS_MAX * DAY };
    throw new Failure("invalid_request", `from: at most ${DAYS_MAX} days are searched at once`);
  }
  return { from: start, to: end };
}

/** The newest entries that match, a page at a time. */
export async function eventsView(
  { database, clock }: IngestParts,
  query: EventsQuery,
): Promise<View> {
  const { q: text, level, job, after } = query;
  const range = rangeOf(query, clock());
  const found = await searchEvents(database, { text, level, job, range, after, limit: PAGE + 1 });
  const matches = found.slice(0, PAGE);
  const last = found.length > PAGE ? matches.at(-1) : undefined;
  const asked = {
    ...(text ? { q: text } : {}),
    ...(level ? { level } : {}),
    ...(job ? { job } : {}),
    from: isoDay(range.from),
    to: isoDay(range.to - DAY),
  };
  return {
    title: "Events",
    section: "events",
    body: () => (
      <>
        <h1>Events</h1>
        <p class="lead">
          What runs wrote into their journals, newest first. At most {DAYS_MAX} days are searched at
          once; journals are kept for four months.
        </p>
        <Filters query={query} range={range} />
        {matches.length === 0 ? (
          <Empty title="No entry is like this">
            Look for less, in other days, or at <a href="/events">the last week</a>.
          </Empty>
        ) : (
          <ol class="journal events" aria-label="Entries">
            {matches.map((match) => (
              <Entry match={match} text={text ?? ""} />
            ))}
          </ol>
        )}
        <p class="pages">
          {after !== undefined && <a href={`/events?${new URLSearchParams(asked)}`}>Newest</a>}
          {last && (
            <a
              href={`/events?${new URLSearchParams({ ...asked, after: String(last.id) })}`}
              rel="next"
            >
              Older
            </a>
          )}
        </p>
      </>
    ),
  };
}

const Filters: FC<{ query: EventsQuery; range: Range }> = ({ query, range }) => (
  <form class="filters" method="get" action="/events" aria-label="Search events">
    <label>
      Text
      <input type="search" name="q" value={query.q ?? ""} maxlength={200} />
    </label>
    <Select label="Level" name="level" options={[ALL, ...LEVELS]} value={query.level} />
    <Select label="Pipeline" name="job" options={[ALL, ...JOBS]} value={query.job} />
    <DateField label="From" name="from" value={isoDay(range.from)} />
    <DateField label="To" name="to" value={isoDay(range.to - DAY)} />
    <button type="submit">Search</button>
  </form>
);

const STATES = { info: "succeeded", warning: "warning", error: "failed" } as const;

const Entry: FC<{ match: EventMatch; text: string }> = ({ match, text }) => (
  <li class={match.level}>
    <Moment at={match.at} zone={pipelineOf(match.job)?.timeZone ?? "UTC"} seconds />
    <div class="what">
      <State state={STATES[match.level]}>{match.level}</State>{" "}
      <strong>
        <MarkedText text={match.event} part={text} />
      </strong>{" "}
      <a href={`/runs/${match.run_id}`}>
        {pipelineOf(match.job)?.title ?? match.job} <span class="number">{match.partition}</span>
      </a>
      <span class="detail">
        {Object.entries(match.detail).map(([name, value]) => (
          <span>
            <i>
              <MarkedText text={name} part={text} />
            </i>{" "}
            <MarkedText
              text={typeof value === "string" ? value : JSON.stringify(value)}
              part={text}
            />
          </span>
        ))}
      </span>
    </div>
  </li>
);

/** A text with every occurrence of a part of it marked, in letters of either case. */
const MarkedText: FC<{ text: string; part: string }> = ({ text, part }) => {
  if (part === "") return <>{text}</>;
  const pattern = new RegExp(`(${part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")})`, "gi");
  return <>{text.split(pattern).map((one, index) => (index % 2 ? <mark>{one}</mark> : one))}</>;
};
