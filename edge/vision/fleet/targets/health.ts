// How targets are: looked at by the minute, and whenever somebody asks. One that is down is looked
// at less and less often. Each look is remembered for a week.

import { sql } from "drizzle-orm";
import { targetCheck } from "../../../../db/vision/targets.ts";
import { MINUTE } from "../../../../shared/time.ts";
import { performEach } from "../../../http/duties.ts";
import { askOutside } from "../../../http/outbound.ts";
import { rowsOf } from "../../../http/selection.ts";
import { storable } from "../../../http/storable.ts";
import type { Parts } from "../../base/parts.ts";
import { keep } from "../../base/retention.ts";
import { instant } from "../../base/sql.ts";
import { stateAt } from "../devices/devices.ts";
import { protocolOf } from "./protocols.ts";
import type { TargetCheck } from "./records.ts";
import { credentialOf, TARGET, type TargetRow } from "./targets.ts";

const CHECK_TIMEOUT_MS = 5_000;
const CHECK_BYTES_MAX = 256 * 1024;
/** Looks of a minute, and of them at once. */
const CHECKED_MAX = 60;
const CHECKED_AT_ONCE = 8;
/** The next look at one that is well; at one that is down, twice as late each time, up to this. */
const NEXT_MS = MINUTE;
const NEXT_MS_MAX = 16 * MINUTE;
/** Looks are kept for a week. */
export const KEPT_CHECKS = keep(targetCheck, "at", { days: 7, max: 20_000 });
/** Longer than a look takes. */
const CLAIM_MS = 2 * MINUTE;

type HealthParts = Pick<Parts, "database" | "clock" | "log" | "sealing" | "outbound">;

/** Looks at the targets that are due. The minute cron calls it. */
export async function checkTargets(parts: HealthParts): Promise<void> {
  const now = parts.clock();
  const rows = await rowsOf(parts.database, TARGET)`
    UPDATE target t SET next_check_at = ${instant(now + CLAIM_MS)}
     WHERE id IN (SELECT id FROM target WHERE enabled AND next_check_at <= ${instant(now)}
       ORDER BY next_check_at LIMIT ${CHECKED_MAX}::int FOR UPDATE SKIP LOCKED)
    RETURNING ${TARGET}`;
  const due = { duty: "targets", items: rows, atOnce: CHECKED_AT_ONCE };
  await performEach(parts.log, due, (row) => checkTarget(parts, row));
}

/** Looks at a target and remembers how it was; what was changed meanwhile is not said to be so. */
export async function checkTarget(parts: HealthParts, row: TargetRow): Promise<TargetCheck> {
  const began = parts.clock();
  const { problem, answered } = await look(parts, row);
  const now = parts.clock();
  const up = problem === null;
  const latency = answered ? now - began : null;
  const state = up ? "up" : "down";
  await parts.database.execute(sql`
    WITH seen AS (
      UPDATE target t SET state = ${state}, problem = ${problem}::text,
        latency_ms = ${latency}::float8, checked_at = ${instant(now)},
        since = CASE WHEN t.state = ${state} THEN t.since ELSE ${instant(now)} END,
        failures = CASE WHEN ${up}::boolean THEN 0 ELSE t.failures + 1 END,
        next_check_at = ${instant(now)} + CASE WHEN ${up}::boolean THEN ${NEXT_MS}::float8
          ELSE least(${NEXT_MS}::float8 * 2 ^ least(t.failures, 10), ${NEXT_MS_MAX}::float8) END
          * interval '1 millisecond'
       WHERE id = ${row.targetId}::uuid AND revision = ${row.revision}::int RETURNING id)
    INSERT INTO target_check (target_id, at, up, latency_ms, problem)
    SELECT id, ${instant(now)}, ${up}::boolean, ${latency}::float8, ${problem}::text FROM seen
    ON CONFLICT DO NOTHING`);
  return { at: new Date(now).toISOString(), up, latency_ms: latency, problem };
}

/** What is wrong with a target now, in a clause about it; null: nothing. */
async function look(
  parts: HealthParts,
  row: TargetRow,
): Promise<{ problem: string | null; answered: boolean }> {
  const { config } = row;
  if (config.kind === "device") {
    return { problem: await deviceProblem(parts, config.device_id), answered: false };
  }
  try {
    const protocol = protocolOf(config);
    const answer = await askOutside(parts.outbound, {
      ...protocol.health(await credentialOf(parts, row)),
      timeoutMs: CHECK_TIMEOUT_MS,
      bytesMax: CHECK_BYTES_MAX,
    });
    if (typeof answer === "string") return { problem: answer, answered: false };
    if (answer.status !== 200) return { problem: `answered ${answer.status}`, answered: true };
    return { problem: wordsOf(protocol.problem, answer.body), answered: true };
  } catch (error) {
    parts.log.warning("target", { target_id: row.targetId, error });
    return { problem: "its credential could not be opened: enter it anew", answered: false };
  }
}

function wordsOf(problem: (answer: unknown) => string | null, body: Uint8Array): string | null {
  try {
    const words = problem(JSON.parse(new TextDecoder().decode(body)));
    return words === null ? null : storable(words);
  } catch {
    return "answered what it does not when it is well";
  }
}

async function deviceProblem(
  { database, clock }: Pick<Parts, "database" | "clock">,
  deviceId: string,
): Promise<string | null> {
  const { rows } = await database.execute<{ state: string }>(sql`
    SELECT ${stateAt(instant(clock()))} AS state
      FROM device d LEFT JOIN device_state s ON s.device_id = d.id
     WHERE d.id = ${deviceId}::uuid AND d.deleted_at IS NULL AND d.revoked_at IS NULL`);
  const state = rows[0]?.state;
  if (state === undefined) return "is there no more, or was revoked";
  return state === "online" ? null : `is ${state === "never" ? "not heard of yet" : state}`;
}
