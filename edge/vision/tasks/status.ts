// How the installation stands: queues, nodes, what is stuck, and how fast what it is built on
// answers.

import { sql } from "drizzle-orm";
import { type TaskLane, taskKind } from "../../../shared/tasks/tasks.ts";
import type { Clock } from "../../../shared/time.ts";
import type { Database } from "../../http/database.ts";
import type { Realm } from "../auth/scope.ts";
import type { Parts } from "../base/parts.ts";
import { countNodes, type NodeCounts } from "./nodes/nodes.ts";
import { listQueues, type QueueRecord, stuckTasks } from "./overview.ts";

/** Statements whose middle time is the database's latency. */
const PINGS = 5;
/** A bucket that has not answered by then is not reachable. */
const STORE_MS_MAX = 2_000;
/** No object has this key: its head is asked for to see whether the store answers. */
const NO_KEY = "status/none";

/** A queue with the lane that its tasks take on a node. */
export interface LaneQueue extends QueueRecord {
  lane: TaskLane;
}

/** Tasks of a kind that do not behave as their own history lets expect. */
export interface StuckCount {
  kind: string;
  tasks: number;
}

/** Where the installation stands. */
export interface Overview {
  queues: LaneQueue[];
  nodes: NodeCounts;
  /** By kind; kinds of which nothing is stuck are left out. */
  stuck: StuckCount[];
  /** Jobs and whatever else the stuck tasks are part of. */
  stuckSubjects: number;
}

/** What a realm's queues, nodes and tasks are at; kinds of other releases are in the batch lane. */
export async function overviewOf(database: Database, realm: Realm): Promise<Overview> {
  const [queues, nodes, stuck] = await Promise.all([
    listQueues(database, realm),
    countNodes(database, realm),
    stuckTasks(database, realm),
  ]);
  const byKind = [...Map.groupBy(stuck, ({ kind }) => kind)];
  return {
    queues: queues.map((queue) => ({ ...queue, lane: taskKind(queue.name)?.lane ?? "batch" })),
    nodes,
    stuck: byKind.map(([kind, tasks]) => ({ kind, tasks: tasks.length })).toSorted(byName),
    stuckSubjects: new Set(stuck.map(({ subject }) => subject)).size,
  };
}

const byName = (one: StuckCount, other: StuckCount) => (one.kind < other.kind ? -1 : 1);

/** Milliseconds that the database takes to answer: the middle one of a few statements. */
export async function databaseLatencyMs(database: Database, clock: Clock): Promise<number> {
  const times: number[] = [];
  for (let ping = 0; ping < PINGS; ping++) {
    const started = clock();
    await database.execute(sql`SELECT 1 AS one`);
    times.push(clock() - started);
  }
  return times.toSorted((one, other) => one - other)[Math.floor(PINGS / 2)] ?? 0;
}

/** Whether the object store answers, and in how many milliseconds; null where it does not. */
export async function storeLatencyMs({
  bucket,
  clock,
  log,
}: Pick<Parts, "bucket" | "clock" | "log">): Promise<number | null> {
  const started = clock();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<"late">((resolve) => {
    timer = setTimeout(() => resolve("late"), STORE_MS_MAX);
  });
  try {
    const answer = await Promise.race([bucket.head(NO_KEY), late]);
    return answer === "late" ? null : clock() - started;
  } catch (error) {
    log.warning("store_unreachable", { error });
    return null;
  } finally {
    clearTimeout(timer);
  }
}

/** Seconds that the first of all tasks in line has waited; null where none waits. */
export function oldestQueuedSeconds(queues: readonly QueueRecord[], now: number): number | null {
  const since = queues.flatMap(({ oldest_queued_at: at }) => (at === null ? [] : [Date.parse(at)]));
  // The database's clock may be ahead.
  return since.length === 0 ? null : Math.max(0, now - Math.min(...since)) / 1_000;
}
