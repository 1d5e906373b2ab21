// Alerts: what the ledger says that operators should know, noticed every minute. A subject (a
// partition, a series, a pipeline's check) in trouble is one incident: told of once when it begins
// and once when it is over, however often a tick is delivered. The verdicts are those of the pages:
// the state of a partition, the read-back check, its list of stale symbols. A partition that only
// a backfill tries begins no incident: whoever started the backfill looks at it.

import { sql } from "drizzle-orm";
import { DAY, MINUTE } from "../../../shared/time.ts";
import type { Alert } from "../../../shared/wire/alerts.ts";
import { type Database, epochMs } from "../../http/database.ts";
import { jsonb } from "../../http/storable.ts";
import { at, hasCommitted } from "./ledger.ts";
import { partitionRange } from "./partition.ts";
import { partitionStates } from "./partition-states.ts";
import type { IngestParts } from "./parts.ts";
import { findPipeline, type Pipeline } from "./pipeline.ts";
import { clauseOf } from "./rules.ts";
import { newestForwardChecks } from "./summaries.ts";

/**
 * A run that ended a little before it was looked for may be committed later: each look reaches back
 * before the last one. What it meets again changes nothing.
 */
const OVERLAP_MS = 15 * MINUTE;
/** How far the first look of a ledger's life reaches back. */
const FIRST_LOOK_MS = DAY;
/** Partitions further apart are looked at by themselves, and not all that lies between. */
const GAP_MS = 31 * DAY;
/** Newest checks of a job that are read: the newest of a succeeded execution counts. */
const CHECKS = 4;
const CHORE = "alerts";

type NoticeParts = Pick<IngestParts, "pipelines" | "database">;

/** How new alerts are to be delivered: `unsent` where there is no webhook. */
type Delivery = Extract<Alert["delivery"], "pending" | "unsent">;

interface Trouble {
  job: string;
  subject: string;
  kind: "failed" | "late" | "stale";
  runId: string | null;
  detail: string;
}

interface Incident extends Record<string, unknown> {
  id: string;
  job: string;
  subject: string;
}

interface Verdict {
  troubles: Trouble[];
  over: { incident: Incident; detail: string }[];
}

/** An execution that ended since the last look. */
interface Ending extends Record<string, unknown> {
  job: string;
  partition: string;
  state: string;
  trigger: string;
  reconstructed: boolean;
}

const ofPartition = (key: string) => `partition ${key}`;
const ofSeries = (symbol: string) => `series ${symbol}`;
const CHECK = "check";
/** What a subject is called after its kind, or null where it is of another kind. */
const nameOf = (subject: string, kind: "partition" | "series"): string | null =>
  subject.startsWith(`${kind} `) ? subject.slice(kind.length + 1) : null;

/** Records the incidents that began or ended since the last look, at `now`. */
export async function noticeIncidents(parts: NoticeParts, delivery: Delivery, now: number) {
  const { database } = parts;
  const endings = await endedSince(database, await lookFrom(database, now));
  const byJob = Map.groupBy(endings, ({ job }) => job);
  const open = Map.groupBy(await openIncidents(database, [...byJob.keys()]), ({ job }) => job);
  const verdicts: Verdict[] = [];
  for (const [job, ofJob] of byJob) {
    const pipeline = findPipeline(parts.pipelines, job);
    const incidents = open.get(job) ?? [];
    if (!pipeline) continue;
    verdicts.push(await judgePartitions(database, pipeline, { ofJob, incidents }, now));
    const isForward = ofJob.some((one) => hasCommitted(one) && !one.reconstructed);
    if (isForward) verdicts.push(await judgeChecks(database, job, incidents));
  }
  await beginIncidents(
    database,
    verdicts.flatMap(({ troubles }) => troubles),
    delivery,
    now,
  );
  await endIncidents(
    database,
    verdicts.flatMap(({ over }) => over),
    delivery,
    now,
  );
  await database.execute(sql`
    INSERT INTO housekeeping AS h (chore, last_at) VALUES (${CHORE}, ${at(now)})
    ON CONFLICT (chore) DO UPDATE SET last_at = greatest(h.last_at, excluded.last_at)`);
}

async function lookFrom(database: Database, now: number): Promise<number> {
  const { rows } = await database.execute<{ last: number }>(sql`
    SELECT ${epochMs(sql`last_at`)} AS last FROM housekeeping
     WHERE chore = ${CHORE}`);
  return rows[0] ? Math.min(rows[0].last, now) - OVERLAP_MS : now - FIRST_LOOK_MS;
}

async function endedSince(database: Database, from: number): Promise<Ending[]> {
  const { rows } = await database.execute<Ending>(sql`
    SELECT DISTINCT job, partition::text, state, trigger, reconstructed
      FROM run WHERE finished_at >= ${at(from)}`);
  return rows;
}

async function openIncidents(database: Database, jobs: readonly string[]): Promise<Incident[]> {
  const { rows } = await database.execute<Incident>(sql`
    SELECT id::text, job, subject FROM alert
     WHERE ended_at IS NULL AND job IN (
       SELECT jsonb_array_elements_text(${JSON.stringify(jobs)}::jsonb))`);
  return rows;
}

/** Partitions that an execution left in trouble, and those in trouble that are filled by now. */
async function judgePartitions(
  database: Database,
  pipeline: Pipeline,
  { ofJob, incidents }: { ofJob: readonly Ending[]; incidents: readonly Incident[] },
  now: number,
): Promise<Verdict> {
  const { job, partitions } = pipeline;
  const tried = ofJob
    .filter(({ state, trigger }) => ["failed", "late"].includes(state) && trigger !== "backfill")
    .map(({ partition }) => partition);
  // A pipeline that was changed may know a key no more that it once tried.
  const isKey = (key: string) => {
    try {
      return Boolean(partitionRange(partitions, key, now));
    } catch {
      return false;
    }
  };
  const open = new Map(
    incidents.flatMap((incident) => {
      const key = nameOf(incident.subject, "partition");
      return key === null ? [] : [[key, incident] as const];
    }),
  );
  // Every open one is looked at again: what ended it may have been hidden by a run that came after.
  const keys = [...new Set([...tried, ...open.keys()])].filter(isKey).toSorted();
  const states = await Promise.all(
    clustersOf(keys).map((cluster) => partitionStates(database, pipeline, cluster, now)),
  );
  const verdict: Verdict = { troubles: [], over: [] };
  for (const { partition, state, run_id: runId } of states.flat()) {
    const incident = open.get(partition);
    const subject = ofPartition(partition);
    if (incident && (state === "materialized" || state === "partial")) {
      verdict.over.push({ incident, detail: `${subject} is ${state}` });
    } else if (!incident && (state === "failed" || state === "late")) {
      const detail = `${subject} ${state === "late" ? "is late" : "failed"}`;
      verdict.troubles.push({ job, subject, kind: state, runId, detail });
    }
  }
  return verdict;
}

/** Sorted keys, cut where the next is far away. */
function clustersOf(keys: readonly string[]): string[][] {
  const clusters: string[][] = [];
  for (const key of keys) {
    const last = clusters.at(-1)?.at(-1);
    if (last !== undefined && Date.parse(key) - Date.parse(last) <= GAP_MS) {
      clusters.at(-1)?.push(key);
    } else clusters.push([key]);
  }
  return clusters;
}

/** The newest forward check of a job: whether it passed, and which symbols it found stale. */
async function judgeChecks(
  database: Database,
  job: string,
  incidents: readonly Incident[],
): Promise<Verdict> {
  const lines = (await newestForwardChecks(database, [job], CHECKS)).get(job) ?? [];
  const newest = lines.find(hasCommitted);
  const check = newest?.check;
  if (!newest || !check) return { troubles: [], over: [] };
  const { run_id: runId } = newest;
  const reason = check.reason ?? "the check failed";
  const troubles: Trouble[] = check.stale_symbols.map((symbol) => ({
    job,
    subject: ofSeries(symbol),
    kind: "stale",
    runId,
    detail: `${symbol} lags the freshest of its library by more than three days`,
  }));
  if (!check.passed) {
    const kind = reason === clauseOf("stale", 1) ? "stale" : "failed";
    const detail = `the read-back check of ${newest.partition}: ${reason}`;
    troubles.push({ job, subject: CHECK, kind, runId, detail });
  }
  const subjects = new Set(troubles.map(({ subject }) => subject));
  const isJudged = ({ subject }: Incident) => {
    const symbol = nameOf(subject, "series");
    // A symbol of which nothing is fresh is named as a whole: its instruments are no better.
    const inWhole = check.stale_symbols.some((stale) => symbol?.startsWith(`${stale}.`));
    return subject === CHECK || (symbol !== null && !inWhole);
  };
  const over = incidents
    .filter((incident) => isJudged(incident) && !subjects.has(incident.subject))
    .map((incident) => {
      const symbol = nameOf(incident.subject, "series");
      if (symbol === null) return { incident, detail: "the check passed" };
      const retired = check.retired_symbols;
      if (retired.includes(symbol)) return { incident, detail: `${symbol} is retired` };
      const isPart = retired.some((one) => one.startsWith(`${symbol}.`));
      const end = isPart ? "has nothing silent but what is retired" : "is fresh again";
      return { incident, detail: `${symbol} ${end}` };
    });
  return { troubles, over };
}

async function beginIncidents(
  database: Database,
  troubles: readonly Trouble[],
  delivery: Delivery,
  now: number,
) {
  if (troubles.length === 0) return;
  const rows = troubles.map((trouble) => ({ ...trouble, id: crypto.randomUUID() }));
  await database.execute(sql`
    INSERT INTO alert (id, kind, incident_id, job, subject, run_id, error_code, detail, created_at,
      delivery, next_at)
    SELECT x.id, x.kind, x.id, x.job, x.subject, x."runId", run.error_code,
      coalesce(run.error_detail, x.detail), ${at(now)}, ${delivery}, ${at(now)}
      FROM jsonb_to_recordset(${jsonb(rows)})
        AS x(id uuid, kind text, job text, subject text, "runId" uuid, detail text)
      LEFT JOIN run ON run.id = x."runId"
    ON CONFLICT DO NOTHING`);
}

async function endIncidents(
  database: Database,
  over: Verdict["over"],
  delivery: Delivery,
  now: number,
) {
  if (over.length === 0) return;
  const rows = over.map(({ incident, detail }) => ({
    id: crypto.randomUUID(),
    incident: incident.id,
    detail,
  }));
  await database.execute(sql`
    WITH x AS (
      SELECT * FROM jsonb_to_recordset(${jsonb(rows)}) AS x(id uuid, incident uuid, detail text)),
    ended AS (
      UPDATE alert SET ended_at = ${at(now)} FROM x
       WHERE alert.id = x.incident AND ended_at IS NULL
       RETURNING x.id, alert.id AS incident_id, job, subject, x.detail)
    INSERT INTO alert (id, kind, incident_id, job, subject, detail, created_at, ended_at, delivery,
      next_at)
    SELECT id, 'recovered', incident_id, job, subject, detail, ${at(now)}, ${at(now)},
      ${delivery}, ${at(now)} FROM ended`);
}
