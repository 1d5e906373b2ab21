// Logs of devices. A line is known by its device, boot and number, and stored once however often it
// comes: which numbers came is kept as ranges, beyond the lines themselves. A device forgets lines
// up to the acknowledged one, and nothing else; what it had to drop it says so.

import { type SQL, sql } from "drizzle-orm";
import { assert, Failure } from "../../../../shared/errors.ts";
import { DAY } from "../../../../shared/time.ts";
import {
  LOG_GAPS_MAX,
  LOG_LINE_BYTES_MAX,
  type LogBatch,
  type LogLine,
  type LogReceipt,
} from "../../../../shared/wire/fleet.ts";
import { batch } from "../../../http/database.ts";
import { jsonb } from "../../../http/storable.ts";
import type { Parts } from "../../base/parts.ts";
import { repeatFor } from "../../base/repeat.ts";
import { instant } from "../../base/sql.ts";
import type { DeviceIdentity } from "./access.ts";
import { requireShallow, single } from "./readings.ts";

/** Ranges that the lines of a boot may lie in; who would leave more holes closes some first. */
const RANGES_MAX = 10_000;
/**
 * Boots of a device that are known. Of one more the oldest leaves, with its lines: first of those
 * that miss nothing. So an agent that starts over and over is heard, and takes no more room.
 */
const BOOTS_MAX = 5_000;
/** Lines of a device that are kept, whatever their age. */
export const DEVICE_LINES_MAX = 2_000_000;
/** Bytes of a device's lines that are kept, as the database has them before it compresses. */
export const DEVICE_LOG_BYTES_MAX = 2 * 1024 ** 3;
/** A device that sends more beyond those than the minute forgets is refused from here on. */
const REFUSED_FROM = DEVICE_LINES_MAX + 200_000;
const BYTES_REFUSED_FROM = DEVICE_LOG_BYTES_MAX + 256 * 1024 ** 2;
/**
 * Days since a boot without lines was heard of, after which it is forgotten which lines came: a
 * device may be away for longer than lines are kept, and go on in the same boot.
 */
const EMPTY_BOOT_DAYS = 400;
/** Lines that one statement forgets, and how long a minute's statements go on. */
const FORGOTTEN_MAX = 20_000;
const FORGETTING_MS = 10_000;
/** Devices with too many lines that one statement looks after, those with the most. */
const CROWDED_MAX = 10;
/** Years in which a device's clock is taken for one. */
const [YEAR_FROM, YEAR_TO] = [1970, 2200];

/** What the statement of a batch tells. */
interface SyncAnswer extends Record<string, unknown> {
  stored: number;
  acked: number;
  gaps: { from: number; to: number }[];
  ranges: number;
  isFull: boolean;
}

function checkTimes(lines: readonly LogLine[]): void {
  for (const [index, { time }] of lines.entries()) {
    const year = new Date(time).getUTCFullYear();
    if (year >= YEAR_FROM && year < YEAR_TO) continue;
    const detail = `lines.${index}.time: must lie between ${YEAR_FROM} and ${YEAR_TO}`;
    throw new Failure("invalid_request", detail);
  }
}

function checkSizes(lines: readonly LogLine[]): void {
  const encoder = new TextEncoder();
  for (const [index, line] of lines.entries()) {
    const bytes = encoder.encode(JSON.stringify(line)).length;
    if (bytes <= LOG_LINE_BYTES_MAX) continue;
    const detail = `lines.${index}: has ${bytes} bytes, and may have ${LOG_LINE_BYTES_MAX}`;
    throw new Failure("invalid_request", detail);
  }
}

/**
 * A time in UTC, with all digits of its second: Postgres takes no offset beyond 15:59, and a `Date`
 * has no microseconds.
 */
function inUtc(time: string): string {
  const [fraction = ""] = /\.\d+/.exec(time) ?? [];
  return `${new Date(time).toISOString().slice(0, -".000Z".length)}${fraction}Z`;
}

/** Lines as rows of a statement, in the order in which they came. */
function linesOf(lines: readonly LogLine[]): SQL {
  const rows = lines.map(({ seq, time, kind, model_id, latency_ms, ...line }) => {
    const confidences = line.objects.map(({ confidence }) => confidence);
    const confidence = confidences.length > 0 ? Math.max(...confidences) : null;
    const measured = { latency_ms: single(latency_ms), confidence: single(confidence) };
    return { seq, time: inUtc(time), kind, model_id, line, ...measured };
  });
  return sql`jsonb_to_recordset(${jsonb(rows)}) AS l(seq bigint, time timestamptz, kind text,
    model_id uuid, latency_ms real, confidence real, line jsonb)`;
}

/**
 * Takes a batch of a device's log. Of batches of one boot at once each waits for the one before, so
 * that a line is counted once. Fails with `state_conflict` where the boot has too many holes, with
 * `quota_exceeded` where the device has too many lines or bytes of them, and nothing of the batch
 * is kept then.
 */
export async function syncLogs(
  { database, clock }: Pick<Parts, "database" | "clock">,
  { deviceId }: Pick<DeviceIdentity, "deviceId">,
  { boot_id, lines, dropped }: LogBatch,
): Promise<LogReceipt> {
  checkTimes(lines);
  requireShallow(lines);
  checkSizes(lines);
  const now = instant(clock());
  const boot = sql`device_id = ${deviceId}::uuid AND boot_id = ${boot_id}`;
  const makeRoom = sql`
    WITH others AS (
      SELECT id, seen_at, (SELECT count(*) < 2 AND coalesce(min(lower(r)), 1) = 1
          FROM unnest(received) r) AS is_whole
        FROM device_boot WHERE device_id = ${deviceId}::uuid AND boot_id <> ${boot_id}
         AND (SELECT count(*) FROM device_boot WHERE device_id = ${deviceId}::uuid
           AND boot_id <> ${boot_id}) >= ${BOOTS_MAX}::int)
    DELETE FROM device_boot WHERE id IN (
      SELECT id FROM others ORDER BY is_whole DESC, seen_at, id
       LIMIT (SELECT greatest(0, count(*) - ${BOOTS_MAX - 1}::int) FROM others))`;
  // Whoever has the row's lock reads what the one before left: each statement sees anew.
  const lock = sql`
    INSERT INTO device_boot AS b (device_id, boot_id, created_at, seen_at)
    VALUES (${deviceId}::uuid, ${boot_id}, ${now}, ${now})
    ON CONFLICT (device_id, boot_id) DO UPDATE SET seen_at = excluded.seen_at`;
  const store = sql`
    WITH b AS (SELECT id, received FROM device_boot WHERE ${boot}),
    gone AS (
      SELECT coalesce(range_agg(int8range((r->>'from')::bigint, (r->>'to')::bigint, '[]')),
        '{}') AS seqs FROM jsonb_array_elements(${jsonb(dropped)}) r),
    fresh AS (
      SELECT DISTINCT ON (l.seq) l.*, pg_column_size(l.line) AS bytes
        FROM ${linesOf(lines)}, b WHERE NOT b.received @> l.seq ORDER BY l.seq),
    came AS (
      SELECT coalesce(range_agg(int8range(seq, seq, '[]')), '{}') AS seqs,
        count(*)::int AS stored, coalesce(sum(bytes), 0) AS bytes FROM fresh),
    known AS (
      SELECT b.id, came.stored, came.bytes, b.received + came.seqs + gone.seqs AS seqs,
        gone.seqs - b.received - came.seqs AS dropped FROM b, came, gone),
    refused AS (
      SELECT (SELECT count(*) FROM unnest(seqs)) > ${RANGES_MAX}::int OR is_full AS refused, is_full
        FROM known, LATERAL (SELECT known.stored > 0
            AND (known.stored + sum(lines) > ${REFUSED_FROM}::bigint
              OR known.bytes + sum(bytes) > ${BYTES_REFUSED_FROM}::bigint) AS is_full
          FROM device_boot WHERE device_id = ${deviceId}::uuid) held),
    stored AS (
      INSERT INTO device_log (boot, seq, device_id, time, received_at, kind, model_id, latency_ms,
        confidence, line, bytes)
      SELECT b.id, f.seq, ${deviceId}::uuid, f.time, ${now}, f.kind, f.model_id, f.latency_ms,
        f.confidence, f.line, f.bytes FROM fresh f, b, refused WHERE NOT refused.refused),
    moved AS (
      UPDATE device_boot SET received = known.seqs, lines = lines + known.stored,
        bytes = device_boot.bytes + known.bytes, dropped = device_boot.dropped + (SELECT coalesce(sum(upper(r) - lower(r)), 0)
          FROM unnest(known.dropped) r)
        FROM known, refused WHERE device_boot.id = known.id AND NOT refused.refused)
    SELECT stored::int,
      CASE WHEN seqs @> 1::bigint THEN (SELECT upper(r) - 1 FROM unnest(seqs) r LIMIT 1)
        ELSE 0 END::float8 AS acked,
      coalesce((SELECT jsonb_agg(jsonb_build_object('from', lower(g), 'to', upper(g) - 1))
        FROM (SELECT g FROM unnest(
            int8multirange(int8range(1, coalesce(upper(seqs), 1))) - seqs) g
          LIMIT ${LOG_GAPS_MAX}::int) holes), '[]') AS gaps,
      (SELECT count(*)::int FROM unnest(seqs)) AS ranges, (SELECT is_full FROM refused) AS "isFull"
      FROM known`;
  const [, , [synced]] = await batch<[unknown, unknown, SyncAnswer]>(database, [
    makeRoom,
    lock,
    store,
  ]);
  assert(synced, "a boot that was made is there");
  const { stored, acked, gaps, ranges, isFull } = synced;
  if (isFull) {
    const detail = "as much of the device's log is kept as may be; the oldest goes by the minute";
    const data = { lines_max: DEVICE_LINES_MAX, bytes_max: DEVICE_LOG_BYTES_MAX };
    throw new Failure("quota_exceeded", detail, { data });
  }
  if (ranges > RANGES_MAX) {
    const detail = `boot_id: its lines would lie in ${ranges} ranges; send what is missing, or say that it was dropped`;
    throw new Failure("state_conflict", detail, { data: { ranges_max: RANGES_MAX } });
  }
  return { boot_id, acked_seq: acked, stored, duplicates: lines.length - stored, gaps };
}

/**
 * Forgets lines that are older than they are kept, and the oldest of devices that have too many, or
 * too many bytes of them; boots without lines that were not heard of for over a year; and devices
 * that were deleted, once their logs are gone. The minute cron calls it.
 */
export async function forgetLogs({
  database,
  clock,
  limits,
}: Pick<Parts, "database" | "clock" | "limits">): Promise<void> {
  const until = instant(clock() - limits.deviceLogDays * DAY);
  const forget = async (these: SQL) => {
    const { rows } = await database.execute<{ count: number }>(sql`
      WITH these AS (${these}),
      deleted AS (DELETE FROM device_log l USING these t
        WHERE l.boot = t.boot AND l.seq = t.seq RETURNING l.boot, l.bytes),
      uncounted AS (
        UPDATE device_boot b SET lines = b.lines - gone.count, bytes = b.bytes - gone.bytes FROM (
          SELECT boot, count(*), sum(bytes) AS bytes FROM deleted GROUP BY boot) gone
         WHERE b.id = gone.boot)
      SELECT count(*)::int AS count FROM deleted`);
    return rows[0]?.count ?? 0;
  };
  await repeatFor({ clock }, FORGETTING_MS, () =>
    forget(sql`SELECT boot, seq FROM device_log WHERE received_at < ${until}
      ORDER BY received_at LIMIT ${FORGOTTEN_MAX}::int`),
  );
  // All lines of a deleted device are too many.
  const lines = sql`count.lines
    - CASE WHEN d.deleted_at IS NULL THEN ${DEVICE_LINES_MAX}::bigint ELSE 0 END`;
  const bytes = sql`count.bytes - ${DEVICE_LOG_BYTES_MAX}::bigint`;
  const order = sql`ORDER BY time, boot, seq`;
  await repeatFor({ clock }, FORGETTING_MS, () =>
    forget(sql`
      SELECT l.boot, l.seq FROM (
        SELECT d.id, ${lines} AS lines, ${bytes} AS bytes
          FROM device d JOIN (SELECT device_id, sum(lines) AS lines, sum(bytes) AS bytes
            FROM device_boot WHERE lines > 0 GROUP BY device_id) count ON count.device_id = d.id
         WHERE ${lines} > 0 OR ${bytes} > 0
         ORDER BY greatest((${lines}) / ${DEVICE_LINES_MAX}::float8,
           (${bytes}) / ${DEVICE_LOG_BYTES_MAX}::float8) DESC LIMIT ${CROWDED_MAX}::int) crowded,
        LATERAL (SELECT boot, seq FROM (
          SELECT boot, seq, row_number() OVER w AS number, sum(bytes) OVER w - bytes AS before
            FROM (SELECT boot, seq, time, bytes FROM device_log WHERE device_id = crowded.id
              ${order} LIMIT ${FORGOTTEN_MAX / CROWDED_MAX}::int) oldest
          WINDOW w AS (${order})) o
         WHERE o.number <= crowded.lines OR o.before < crowded.bytes) l`),
  );
  const bootsUntil = instant(clock() - Math.max(EMPTY_BOOT_DAYS, limits.deviceLogDays) * DAY);
  await database.execute(sql`
    DELETE FROM device_boot b WHERE b.lines = 0 AND b.seen_at < ${bootsUntil}`);
  await database.execute(sql`
    DELETE FROM device d WHERE d.deleted_at IS NOT NULL AND d.id IN (
      SELECT id FROM device WHERE deleted_at IS NOT NULL
         AND NOT EXISTS (SELECT FROM device_log l WHERE l.device_id = device.id)
       ORDER BY deleted_at LIMIT 100)`);
}
