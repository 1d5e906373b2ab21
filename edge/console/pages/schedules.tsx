// Schedules: on or off, when they fire next, and what every tick led to.

import type { FC } from "hono/jsx";
import { assert } from "../../../shared/errors.ts";
import type { Schedule, Tick } from "../../../shared/wire/markets.ts";
import { listJobs } from "../../markets/ingest/overview.ts";
import type { IngestParts } from "../../markets/ingest/parts.ts";
import { requireSchedule, schedulesOf } from "../../markets/ingest/pipeline.ts";
import { recentTicks } from "../../markets/ingest/summaries.ts";
import { listTicks } from "../../markets/ingest/ticks.ts";
import { Cell, Empty, Facts, Live, Moment, State, signOf } from "./components.tsx";
import { Form, type Here, type View } from "./layout.tsx";
import { distance, jobPath, schedulePath } from "./words.ts";

const RECENT = 24;
const PAGE = 100;
const AIMS: Readonly<Record<Schedule["aim"], string>> = {
  latest: "the newest partition",
  previous: "the partition before the newest",
  unfinished: "the oldest recent partition that no run has finished",
};

const outcomeOf = ({ state, skip_reason }: Tick): string =>
  skip_reason === null ? (state ?? "queued") : "skipped";

/** Ticks as marks in a line, oldest first. */
const TickStrip: FC<{ ticks: readonly Tick[] }> = ({ ticks }) => {
  if (ticks.length === 0) return <span class="soft">none yet</span>;
  return (
    <ol class="strip" aria-label="Newest ticks">
      {ticks.toReversed().map((tick) => {
        const outcome = outcomeOf(tick);
        const label = `${tick.scheduled_at.slice(0, 16).replace("T", " ")} UTC: ${
          tick.skip_reason === null ? `${outcome}, partition ${tick.partition}` : tick.skip_reason
        }${tick.reason ? `. ${tick.reason}` : ""}`;
        const href = tick.run_id ? `/runs/${tick.run_id}` : schedulePath(tick.schedule);
        return (
          <li>
            <a class={`cell ${outcome}`} href={href} title={label}>
              <b aria-hidden="true">{signOf(outcome)}</b>
              <span class="hidden">{label}</span>
            </a>
          </li>
        );
      })}
    </ol>
  );
};

const Switch: FC<{ schedule: Schedule; here: Here }> = ({ schedule, here }) => (
  <Form here={here} action={`${schedulePath(schedule.schedule)}/switch`} class="switch">
    <input type="hidden" name="enabled" value={schedule.enabled ? "false" : "true"} />
    <input type="hidden" name="back" value={here.path} />
    <State state={schedule.enabled ? "succeeded" : "off"}>{schedule.enabled ? "on" : "off"}</State>
    <button
      type="submit"
      class="quiet"
      aria-label={`Switch ${schedule.schedule} ${schedule.enabled ? "off" : "on"}`}
    >
      Switch {schedule.enabled ? "off" : "on"}
    </button>
  </Form>
);

/** Schedules as a table, with their last tick or, where given, their newest ticks. */
export const ScheduleTable: FC<{
  schedules: readonly Schedule[];
  here: Here;
  ticks?: ReadonlyMap<string, readonly Tick[]>;
}> = ({ schedules, here, ticks }) => (
  <table class="stack quarters">
    <thead>
      <tr>
        <th scope="col">Schedule</th>
        <th scope="col">State</th>
        <th scope="col">Next tick</th>
        <th scope="col">{ticks ? "Newest ticks" : "Last tick"}</th>
      </tr>
    </thead>
    <tbody>
      {schedules.map((schedule) => (
        <tr>
          <th scope="row">
            <a href={schedulePath(schedule.schedule)}>{schedule.schedule}</a>
            <small>
              <code>{schedule.cron}</code> {schedule.time_zone}
            </small>
          </th>
          <Cell head="State">
            <Switch schedule={schedule} here={here} />
          </Cell>
          <Cell head="Next tick">
            {schedule.enabled && schedule.next_tick ? (
              <>
                <Moment at={schedule.next_tick} zone={schedule.time_zone} />
                <small>{distance(schedule.next_tick, here.now)}</small>
              </>
            ) : (
              <span class="soft">switched off</span>
            )}
          </Cell>
          <Cell head={ticks ? "Newest ticks" : "Last tick"}>
            {ticks ? (
              <TickStrip ticks={ticks.get(schedule.schedule) ?? []} />
            ) : (
              <LastTick schedule={schedule} now={here.now} />
            )}
          </Cell>
        </tr>
      ))}
    </tbody>
  </table>
);

const LastTick: FC<{ schedule: Schedule; now: number }> = ({ schedule: { last_tick }, now }) => {
  if (!last_tick) return <span class="soft">never</span>;
  return (
    <>
      {last_tick.run_id ? (
        <a href={`/runs/${last_tick.run_id}`}>
          <State state={outcomeOf(last_tick)} />
        </a>
      ) : (
        <State state="skipped" />
      )}
      <small>
        {last_tick.skip_reason ?? last_tick.reason ?? distance(last_tick.scheduled_at, now)}
      </small>
    </>
  );
};

/** Every schedule by pipeline, with its newest ticks. */
export async function schedulesView(parts: IngestParts): Promise<View> {
  const names = schedulesOf(parts.pipelines).map(({ schedule }) => schedule.name);
  const [jobs, ticks] = await Promise.all([
    listJobs(parts),
    recentTicks(parts.database, names, RECENT),
  ]);
  const byHand = jobs.filter(({ schedules }) => schedules.length === 0);
  return {
    title: "Schedules",
    section: "schedules",
    body: (here) => (
      <>
        <h1>Schedules</h1>
        <p class="lead">
          Each fires in its own time zone, once per real hour across daylight-saving changes. What
          is due while one is switched off stays undone: backfill it where it is wanted.
        </p>
        <Live name="schedules" every={20}>
          {jobs
            .filter(({ schedules }) => schedules.length > 0)
            .map(({ job, title, schedules }) => (
              <section aria-labelledby={`schedules-${job}`}>
                <h2 id={`schedules-${job}`}>
                  <a href={jobPath(job)}>{title}</a>
                </h2>
                <ScheduleTable schedules={schedules} here={here} ticks={ticks} />
              </section>
            ))}
          {byHand.length > 0 && (
            <p class="soft">
              Run by hand, without a schedule:{" "}
              {byHand.map(({ job, title }, index) => (
                <>
                  {index > 0 && ", "}
                  <a href={jobPath(job)}>{title}</a>
                </>
              ))}
              .
            </p>
          )}
        </Live>
      </>
    ),
  };
}

/** One schedule and its ticks before an instant; fails with `unknown_schedule`. */
export async function scheduleView(
  parts: IngestParts,
  name: string,
  before: string | undefined,
): Promise<View> {
  const { pipeline } = requireSchedule(parts.pipelines, name);
  const jobs = await listJobs(parts);
  const schedule = jobs.flatMap(({ schedules }) => schedules).find((one) => one.schedule === name);
  assert(schedule, "the list of jobs holds every schedule");
  const ticks = await listTicks(parts.database, { schedule: name, before, limit: PAGE });
  const last = ticks.length === PAGE ? ticks.at(-1) : undefined;
  return {
    title: `Schedule ${name}`,
    section: "schedules",
    body: (here) => (
      <>
        <p class="crumbs">
          <a href="/schedules">Schedules</a>
        </p>
        <h1>{name}</h1>
        <Facts
          facts={[
            ["Pipeline", <a href={jobPath(schedule.job)}>{pipeline?.title ?? schedule.job}</a>],
            ["Cron", <code>{schedule.cron}</code>],
            ["Time zone", schedule.time_zone],
            ["Takes", AIMS[schedule.aim]],
            [
              "Next tick",
              schedule.enabled ? (
                <Moment at={schedule.next_tick} zone={schedule.time_zone} />
              ) : (
                "switched off"
              ),
            ],
            ["State", <Switch schedule={schedule} here={here} />],
            [
              "Last switched",
              schedule.switched_at ? (
                <>
                  <Moment at={schedule.switched_at} />{" "}
                  {schedule.switched_by && <small>by {schedule.switched_by}</small>}
                </>
              ) : (
                "never"
              ),
            ],
          ]}
        />
        <Live name="ticks" every={before ? 60 : 20}>
          <h2>Ticks</h2>
          {ticks.length === 0 ? (
            <Empty title={before ? "No older tick" : "It has not fired yet"}>
              {schedule.enabled && schedule.next_tick
                ? `Its first tick comes ${distance(schedule.next_tick, here.now)}.`
                : "Switch it on to have it fire."}
            </Empty>
          ) : (
            <>
              <TickStrip ticks={ticks.slice(0, RECENT * 2)} />
              <TickTable ticks={ticks} zone={schedule.time_zone} now={here.now} />
            </>
          )}
          <p class="pages">
            {before && <a href={schedulePath(name)}>Newest</a>}
            {last && (
              <a
                href={`${schedulePath(name)}?before=${encodeURIComponent(last.scheduled_at)}`}
                rel="next"
              >
                Older
              </a>
            )}
          </p>
        </Live>
      </>
    ),
  };
}

const TickTable: FC<{ ticks: readonly Tick[]; zone: string; now: number }> = ({
  ticks,
  zone,
  now,
}) => (
  <table class="stack compact">
    <thead>
      <tr>
        <th scope="col">Due</th>
        <th scope="col">Outcome</th>
        <th scope="col">Partition</th>
        <th scope="col">Reason</th>
      </tr>
    </thead>
    <tbody>
      {ticks.map((tick) => (
        <tr>
          <th scope="row">
            <Moment at={tick.scheduled_at} zone={zone} />
            <small>{distance(tick.scheduled_at, now)}</small>
          </th>
          <Cell head="Outcome">
            {tick.run_id ? (
              <a href={`/runs/${tick.run_id}`}>
                <State state={outcomeOf(tick)} />
              </a>
            ) : (
              <State state="skipped" />
            )}
          </Cell>
          <Cell head="Partition" class="number">
            {tick.partition ?? "–"}
          </Cell>
          <Cell head="Reason">
            {tick.skip_reason ?? tick.reason ?? <span class="soft">–</span>}
          </Cell>
        </tr>
      ))}
    </tbody>
  </table>
);
