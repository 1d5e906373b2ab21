// Incidents that the minute cron detects: duties that fail and backups that are missing. The
// detectors of other rooms are passed in.

import { sql } from "drizzle-orm";
import { HOUR, MINUTE } from "../../../../shared/time.ts";
import { wireTime } from "../../../http/database.ts";
import { type DutyOutcome, performDuties } from "../../../http/duties.ts";
import type { Parts } from "../../base/parts.ts";
import { instant, textList } from "../../base/sql.ts";
import { type IncidentParts, noteIncidents } from "./incidents.ts";
import { sendIncidentNotices } from "./notices.ts";

/** A duty that failed so often in a row is told of. */
const FAILURES_MIN = 3;
/** A duty that neither failed nor was performed for so long is none any more. */
const UNHEARD_MS = HOUR;

/** What a minute has brought so far. */
export interface MinuteReport<Given> {
  outcome: DutyOutcome;
  /** The cron's time. */
  minute: number;
  /** What rooms look for, by name. */
  causes: Readonly<Record<string, (parts: Given) => Promise<unknown>>>;
}

type CauseParts = IncidentParts & Pick<Parts, "log" | "limits">;

/**
 * Runs every detector of incidents, then sends the webhook messages that are due. A detector that
 * fails stops none of the others, and counts as a failed duty of the minute.
 */
export async function tendIncidents<Given extends CauseParts>(
  parts: Given,
  { outcome, minute, causes }: MinuteReport<Given>,
): Promise<void> {
  const own = await performDuties(
    parts.log,
    {
      ...causes,
      missing_backups: noticeMissingBackup,
    },
    parts,
  );
  const whole = {
    succeeded: [...outcome.succeeded, ...own.succeeded],
    failed: [...outcome.failed, ...own.failed],
  };
  await performDuties(parts.log, {
    failed_duties: () => noticeFailedDuties(parts, whole, minute),
    incident_notices: () => sendIncidentNotices(parts),
  });
}

/** Counts duties that failed in a row, and tells of those that did for minutes. */
export async function noticeFailedDuties(
  parts: IncidentParts,
  { succeeded, failed }: DutyOutcome,
  minute: number,
): Promise<void> {
  const at = instant(minute - (minute % MINUTE));
  await parts.database.execute(sql`
    WITH counted AS (
      INSERT INTO duty_failure AS d (duty, failures, minute)
      SELECT duty, 1, ${at} FROM ${textList(failed)} AS given(duty)
      ON CONFLICT (duty) DO UPDATE SET failures = d.failures + 1, minute = excluded.minute
       WHERE d.minute < excluded.minute)
    DELETE FROM duty_failure WHERE duty IN ${textList(succeeded)}
       OR (minute < ${instant(minute - UNHEARD_MS)} AND NOT duty IN ${textList(failed)})`);
  await noteIncidents(parts, {
    kind: "duty_failed",
    wrong: sql`
      SELECT duty AS subject, 'the duty ' || duty || ' of each minute failed ' || failures
          || ' times in a row; the log says why' AS detail
        FROM duty_failure WHERE failures >= ${FAILURES_MIN}::int`,
    isOver: sql`NOT EXISTS (SELECT FROM duty_failure WHERE duty = i.subject)`,
  });
}

/** The one database that is looked after. */
const VISION = "vision";

/** A newest backup that is too old, or that is not there; nothing where nobody set an age. */
export async function noticeMissingBackup(
  parts: IncidentParts & Pick<Parts, "limits">,
): Promise<void> {
  const hours = parts.limits.backupHoursMax;
  const isFresh = sql`EXISTS (SELECT FROM database_backup
    WHERE made_at > ${instant(parts.clock() - (hours ?? 0) * HOUR)})`;
  const detail = sql`coalesce((SELECT 'the newest whole backup of the database was made at '
      || ${wireTime(sql`made_at`)} FROM database_backup),
    'no whole backup of the database was ever made')`;
  await noteIncidents(parts, {
    kind: "backup_missing",
    wrong: sql`SELECT ${VISION}::text AS subject, ${detail} AS detail
      WHERE ${hours !== null}::boolean AND NOT ${isFresh}`,
    isOver: sql`true`,
  });
}
