// What this isolate counts, and how it reaches the one object that sums what all isolates do. There
// are as many isolates as the platform likes, each with a memory of its own that goes without a
// word; so none shows its own figures. Each sends what it counted in batches, some seconds apart;
// what an isolate had not sent when it went is lost, and a batch is never added twice.

import { type Series, Tally, type TallyTable } from "../../../shared/tally.ts";
import type { Parts } from "./parts.ts";

/** Seconds; the longest ones are claims that wait for work, and uploads. */
const REQUEST_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60] as const;
/** Seconds; a prediction that opens its model first may take as many as a minute. */
const ASK_SECONDS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60] as const;

/** Everything that is counted. */
const TABLE = {
  vantage_vision_http_requests_total: {
    help: "Requests that were answered; without a route, those that met none.",
    labels: ["method", "route", "code"],
  },
  vantage_vision_http_request_duration_seconds: {
    help: "Time from a request until its answer began.",
    labels: ["method", "route"],
    bounds: REQUEST_SECONDS,
  },
  vantage_vision_line_asks_total: {
    help: "Predictions asked of nodes by their direct lines, by what came of it.",
    labels: ["status"],
  },
  vantage_vision_line_ask_duration_seconds: {
    help: "Time from asking a node by its direct line until it answered with a result.",
    labels: [],
    bounds: ASK_SECONDS,
  },
  vantage_vision_tasks_enqueued_total: {
    help: "Tasks that were put on the queue.",
    labels: ["kind"],
  },
  vantage_vision_tasks_claimed_total: {
    help: "Claims that got a task; one that is tried again is claimed again.",
    labels: ["kind"],
  },
  vantage_vision_tasks_ended_total: {
    help: "Tasks that are over, by the state they ended in.",
    labels: ["kind", "state"],
  },
  vantage_vision_tasks_requeued_total: {
    help: "Attempts after which the task was queued again, by what ended them.",
    labels: ["kind", "reason"],
  },
  vantage_vision_leases_lost_total: {
    help: "Leases that expired because their node fell silent.",
    labels: ["kind"],
  },
} as const satisfies TallyTable;

/** What vision services count, for the object that sums it. */
export const VISION_TABLE: TallyTable = TABLE;

/** What this isolate counted since it sent the last batch. */
export const tally = new Tally(TABLE);

/** What the object answers to. */
export interface CountersRpc {
  /** Adds a batch, unless this one of that isolate was added before. */
  add(isolate: string, sequence: number, series: readonly Series[]): Promise<void>;
  /** All that was ever counted, and since when: epoch milliseconds. */
  read(): Promise<{ since: number; series: Series[] }>;
}

type CounterParts = Pick<Parts, "counters" | "clock" | "log">;

/** The object, of which there is one. */
export const countersOf = ({ counters }: Pick<Parts, "counters">): CountersRpc =>
  // The namespace does not know the class of its objects.
  counters.get(counters.idFromName("counters")) as unknown as CountersRpc;

/** What was counted is sent after so long, so that requests share a batch. */
const SEND_AFTER_MS = 3_000;
/** A promise to send that was not kept by then was lost with its request. */
const OVERDUE_MS = 30_000;

/** A batch on its way; the same again until the object has taken it. */
interface Batch {
  sequence: number;
  series: readonly Series[];
}

let isolate: string | null = null;
let sequence = 0;
let unsent: Batch | null = null;
let promisedAt: number | null = null;

/** Sends what was counted, after a while and with whatever is counted until then. */
export function sendSoon(parts: CounterParts, after: (work: Promise<unknown>) => void): void {
  const now = parts.clock();
  if (promisedAt !== null && now - promisedAt < OVERDUE_MS) return;
  promisedAt = now;
  const waited = new Promise<void>((done) => setTimeout(done, SEND_AFTER_MS));
  after(
    waited.then(() => {
      promisedAt = null;
      return sendCounts(parts);
    }),
  );
}

/** Sends what was counted now. It never fails its caller: what is not taken goes with the next. */
export async function sendCounts(parts: CounterParts): Promise<void> {
  // Random values are refused while a Worker starts.
  isolate ??= crypto.randomUUID();
  const series = unsent ? [] : tally.take();
  if (series.length > 0) {
    sequence += 1;
    unsent = { sequence, series };
  }
  const batch = unsent;
  if (!batch) return;
  try {
    await countersOf(parts).add(isolate, batch.sequence, batch.series);
    if (unsent === batch) unsent = null;
  } catch (error) {
    parts.log.warning("counts_not_sent", { error });
  }
}
