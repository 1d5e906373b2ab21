// The ledger of ticks: what every schedule did at every instant it was due.

import { type SQL, sql } from "drizzle-orm";
import * as tables from "../../../db/markets/schema.ts";
import { iso } from "../../../shared/time.ts";
import type { RunState, Tick } from "../../../shared/wire/markets.ts";
import { type Database, epochMs } from "../../http/database.ts";
import { columnsOf, joinedColumnsOf, rowsOf, selection, typed } from "../../http/selection.ts";
import { ATTEMPTS_MAX, at, type NewExecution, STATE } from "./ledger.ts";

/** What a due instant led to: an execution, or the reason why none. */
export interface Firing {
  scheduledAt: number;
  outcome: NewExecution | { skipReason: string };
}

/** The state of a schedule that fired at least once; others are not in the ledger. */
export interface ScheduleState {
  /** Epoch milliseconds. */
  lastTick: number;
  enabled: boolean;
  /** The operator who last switched it, and when; null: nobody has. */
  switchedBy: string | null;
  switchedAt: string | null;
}

const schedule = columnsOf(tables.schedule, "schedule");
const SCHEDULE: SQL<ScheduleState & { name: string }> = selection({
  name: schedule.name,
  enabled: schedule.enabled,
  lastTick: epochMs(sql`last_tick`),
  switchedBy: schedule.switchedBy,
  switchedAt: schedule.switchedAt,
});

/** The schedules in the ledger, by name. */
export async function scheduleStates(database: Database): Promise<Map<string, ScheduleState>> {
  const rows = await rowsOf(database, SCHEDULE)`SELECT ${SCHEDULE} FROM schedule`;
  return new Map(rows.map((row) => [row.name, row]));
}

/**
 * Records the due instants of a schedule, oldest first, and starts their executions, all or
 * nothing. When the newest is not newer than the schedule's last one, or the schedule is off,
 * nothing changes and it returns false.
 */
export async function recordTicks(
  database: Database,
  schedule: string,
  firings: readonly Firing[],
  now: number,
): Promise<boolean> {
  const newest = firings.at(-1);
  if (!newest) return false;
  const ticks = firings.map(({ scheduledAt, outcome }) => ({
    at: iso(scheduledAt),
    ...("runId" in outcome ? { run: outcome.runId } : { reason: outcome.skipReason }),
  }));
  const executions = firings.flatMap(({ scheduledAt, outcome }) =>
    "runId" in outcome ? [{ ...outcome, at: iso(scheduledAt) }] : [],
  );
  const { rows } = await database.execute(sql`
    WITH fired AS (
      INSERT INTO schedule AS s (name, last_tick) VALUES (${schedule}, ${at(newest.scheduledAt)})
      ON CONFLICT (name) DO UPDATE SET last_tick = excluded.last_tick
        WHERE s.enabled AND s.last_tick < excluded.last_tick
      RETURNING name),
    started AS (
      INSERT INTO run (id, job, partition, trigger, reconstructed, state, created_at, available_at,
        attempts_max, scheduled_at)
      SELECT x."runId", x.job, x.partition, x.trigger, x.reconstructed, 'queued', ${at(now)},
        ${at(now)}, ${ATTEMPTS_MAX}::int, x.at
        FROM fired, jsonb_to_recordset(${JSON.stringify(executions)}::jsonb)
          AS x("runId" uuid, job text, partition date, trigger text, reconstructed boolean, at timestamptz))
    INSERT INTO tick (schedule, scheduled_at, run_id, skip_reason)
    SELECT name, x.at, x.run, x.reason
      FROM fired, jsonb_to_recordset(${JSON.stringify(ticks)}::jsonb)
        AS x(at timestamptz, run uuid, reason text)
    ON CONFLICT (schedule, scheduled_at) DO NOTHING
    RETURNING schedule`);
  return rows.length > 0;
}

/**
 * Switches a schedule on or off. Switched on, it goes on with the next instant after `lastTick`:
 * what was due while it was off stays undone.
 */
export async function switchSchedule(
  database: Database,
  name: string,
  { enabled, lastTick, by = null }: { enabled: boolean; lastTick: number; by?: string | null },
): Promise<void> {
  await database.execute(sql`
    INSERT INTO schedule AS s (name, enabled, last_tick, switched_by, switched_at)
    VALUES (${name}, ${enabled}::boolean, ${at(lastTick)}, ${by}, clock_timestamp())
    ON CONFLICT (name) DO UPDATE SET enabled = excluded.enabled,
      switched_by = excluded.switched_by, switched_at = excluded.switched_at,
      last_tick = CASE WHEN excluded.enabled AND NOT s.enabled
        THEN greatest(s.last_tick, excluded.last_tick) ELSE s.last_tick END`);
}

/** Records that the minute cron came, at `now`: the heartbeat of whatever fires the schedules. */
export async function recordMinute(database: Database, now: number): Promise<void> {
  await database.execute(sql`
    INSERT INTO housekeeping AS h (chore, last_at) VALUES ('minute', ${at(now)})
    ON CONFLICT (chore) DO UPDATE SET last_at = greatest(h.last_at, excluded.last_at)`);
}

/** When the minute cron last came, epoch milliseconds; null when it never did. */
export async function lastMinute(database: Database): Promise<number | null> {
  const { rows } = await database.execute<{ at: number }>(sql`
    SELECT ${epochMs(sql`last_at`)} AS at FROM housekeeping
     WHERE chore = 'minute'`);
  return rows[0]?.at ?? null;
}

const tick = columnsOf(tables.tick, "t");
/** A tick `t` with what is told of the execution that it started. */
export const TICK: SQL<Tick> = selection({
  schedule: tick.schedule,
  scheduled_at: tick.scheduledAt,
  run_id: tick.runId,
  skip_reason: tick.skipReason,
  state: typed<RunState | null>(STATE),
  partition: joinedColumnsOf(tables.run, "run").partition,
  reason: typed<string | null>(sql`coalesce(error_detail, metadata->>'empty_reason')`),
});

/** The newest ticks first, of one schedule or all, with the states of their executions. */
export async function listTicks(
  database: Database,
  filter: { schedule?: string | undefined; before?: string | undefined; limit: number },
): Promise<Tick[]> {
  const conditions = [
    ...(filter.schedule ? [sql`t.schedule = ${filter.schedule}`] : []),
    ...(filter.before ? [sql`t.scheduled_at < ${filter.before}::timestamptz`] : []),
  ];
  const where = conditions.length > 0 ? sql`WHERE ${sql.join(conditions, sql` AND `)}` : sql``;
  return await rowsOf(database, TICK)`
    SELECT ${TICK} FROM tick t LEFT JOIN run ON run.id = t.run_id ${where}
     ORDER BY t.scheduled_at DESC, t.schedule LIMIT ${filter.limit}::int`;
}

/** The newest tick of each schedule. */
export async function newestTicks(database: Database): Promise<Map<string, Tick>> {
  const rows = await rowsOf(database, TICK)`
    SELECT ${TICK}
      FROM schedule CROSS JOIN LATERAL (
        SELECT * FROM tick WHERE tick.schedule = name ORDER BY tick.scheduled_at DESC LIMIT 1) t
      LEFT JOIN run ON run.id = t.run_id`;
  return new Map(rows.map((one) => [one.schedule, one]));
}
