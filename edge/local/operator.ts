// A small client of the operator API, for the commands of the local stack.

import { existsSync, readFileSync } from "node:fs";
import { z } from "zod";
import { LateRows } from "../../shared/wire/instruments.ts";
import {
  Backfill,
  Job,
  PartitionState,
  Run,
  RunEvent,
  type RunState,
  Tick,
} from "../../shared/wire/markets.ts";
import { AcceptedRefusals, Refusal, RefusedChange } from "../../shared/wire/refusals.ts";
import { lockHolder, type State } from "./state.ts";

/** Which runs to list; what is undefined does not filter. */
export interface RunFilter {
  job?: string | undefined;
  partition?: string | undefined;
  state?: RunState | undefined;
  backfill_id?: string | undefined;
  limit?: number;
}

/** A refused request, in the console's words. */
export class OperatorError extends Error {
  readonly code: string;
  constructor(code: string, detail: string) {
    super(detail);
    this.code = code;
  }
}

/** The operator API's verbs. Each throws an `OperatorError` when it is refused. */
export interface Operator {
  jobs(): Promise<Job[]>;
  launch(job: string, partition?: string): Promise<string>;
  run(runId: string): Promise<Run>;
  runs(filter: RunFilter): Promise<Run[]>;
  startBackfill(body: {
    job: string;
    first: string;
    last: string;
    idempotency_key?: string;
  }): Promise<Backfill>;
  backfill(backfillId: string): Promise<Backfill>;
  cancelBackfill(backfillId: string): Promise<Backfill>;
  retryBackfill(backfillId: string): Promise<Backfill>;
  cancelRun(runId: string): Promise<Run>;
  events(runId: string): Promise<RunEvent[]>;
  partitions(job: string, range?: { first?: string; last?: string }): Promise<PartitionState[]>;
  vintageFlags(job: string): Promise<LateRows[]>;
  refusals(filter: {
    job?: string | undefined;
    state?: Refusal["state"];
    limit?: number;
  }): Promise<Refusal[]>;
  refusal(refusalId: string): Promise<RefusedChange>;
  acceptRefusals(refusalIds: readonly string[]): Promise<AcceptedRefusals>;
  ticks(query: { schedule?: string; limit?: number }): Promise<Tick[]>;
  switchSchedule(schedule: string, enabled: boolean): Promise<void>;
}

/** A client for a console at `url`. A refused request throws an `OperatorError`. */
export function operatorAt(url: string, token: string): Operator {
  const ask = async (method: string, path: string, body?: object): Promise<unknown> => {
    const response = await fetch(`${url}/api${path}`, {
      method,
      headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
      ...(body ? { body: JSON.stringify(body) } : {}),
    });
    const answer = response.status === 204 ? {} : await response.json();
    if (!response.ok) {
      const { code = "", detail } = answer as { code?: string; detail?: string };
      throw new OperatorError(code, detail ?? `HTTP ${response.status}`);
    }
    return answer;
  };
  const get = async <T>(shape: z.ZodType<T>, path: string) => shape.parse(await ask("GET", path));
  const post = async <T>(shape: z.ZodType<T>, path: string, body: object = {}) =>
    shape.parse(await ask("POST", path, body));
  const query = (values: object) =>
    new URLSearchParams(
      Object.entries(values)
        .filter(([, value]) => value !== undefined)
        .map(([name, value]): [string, string] => [name, `${value}`]),
    );
  return {
    jobs: () => get(z.array(Job), "/jobs"),
    launch: async (job, partition) => {
      const body = { job, ...(partition ? { partition } : {}) };
      return (await post(z.object({ run_id: z.string() }), "/runs", body)).run_id;
    },
    run: (runId) => get(Run, `/runs/${encodeURIComponent(runId)}`),
    runs: (values) => get(z.array(Run), `/runs?${query(values)}`),
    cancelRun: (runId) => post(Run, `/runs/${encodeURIComponent(runId)}/cancel`),
    events: (runId) => get(z.array(RunEvent), `/runs/${encodeURIComponent(runId)}/events`),
    startBackfill: (body) => post(Backfill, "/backfills", body),
    backfill: (backfillId) => get(Backfill, `/backfills/${encodeURIComponent(backfillId)}`),
    cancelBackfill: (backfillId) =>
      post(Backfill, `/backfills/${encodeURIComponent(backfillId)}/cancel`),
    retryBackfill: (backfillId) =>
      post(Backfill, `/backfills/${encodeURIComponent(backfillId)}/retry`),
    partitions: (job, range = {}) =>
      get(z.array(PartitionState), `/jobs/${encodeURIComponent(job)}/partitions?${query(range)}`),
    vintageFlags: (job) => get(z.array(LateRows), `/jobs/${encodeURIComponent(job)}/vintage-flags`),
    refusals: (values) => get(z.array(Refusal), `/refusals?${query(values)}`),
    refusal: (refusalId) => get(RefusedChange, `/refusals/${encodeURIComponent(refusalId)}`),
    acceptRefusals: (refusal_ids) => post(AcceptedRefusals, "/refusals/accept", { refusal_ids }),
    ticks: (values) => get(z.array(Tick), `/ticks?${query(values)}`),
    switchSchedule: async (schedule, enabled) => {
      await ask("PATCH", `/schedules/${encodeURIComponent(schedule)}`, { enabled });
    },
  };
}

/** A client of the stack that runs on a state folder. */
export function operatorOf(state: State): Operator {
  // A port alone proves nothing: another program may have taken it, and would be sent the token.
  if (!lockHolder(state) || !existsSync(state.running)) {
    throw new Error(`no stack runs on ${state.dir}; start one with npm start`);
  }
  const { urls } = JSON.parse(readFileSync(state.running, "utf8")) as { urls: { console: string } };
  return operatorAt(urls.console, readFileSync(state.operatorToken, "utf8").trim());
}

/** Most runs end at once, and who follows a long one sees no difference. */
const POLL_MS = { first: 30, max: 300 };
const SILENCE_MS_MAX = 30_000;

/** Polls until `ended`; a console that is being restarted is waited for. */
async function poll<T>(
  read: () => Promise<T>,
  ended: (value: T) => boolean | Promise<boolean>,
): Promise<T> {
  let silence = 0;
  for (let pauseMs = POLL_MS.first; ; pauseMs = Math.min(1.5 * pauseMs, POLL_MS.max)) {
    try {
      const value = await read();
      if (await ended(value)) return value;
      silence = 0;
    } catch (thrown) {
      const unreachable = thrown instanceof TypeError;
      if (!unreachable || silence > SILENCE_MS_MAX) throw thrown;
    }
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
    silence += pauseMs;
  }
}

/** Follows a backfill to its end, telling of each change. */
export async function followBackfill(
  operator: Operator,
  { backfill_id }: Pick<Backfill, "backfill_id">,
  onChange: (backfill: Backfill) => void | Promise<void>,
): Promise<Backfill> {
  let told = -1;
  return poll(
    () => operator.backfill(backfill_id),
    async (backfill) => {
      const open = backfill.runs.queued + backfill.runs.waiting + backfill.runs.running;
      if (open !== told) await onChange(backfill);
      told = open;
      return open === 0;
    },
  );
}

/** Waits for a run to end; tells once when it waits for its provider, which may take long. */
export function followRun(
  operator: Operator,
  runId: string,
  onWaiting: (run: Run) => void = () => {},
): Promise<Run> {
  let hasWaited = false;
  return poll(
    () => operator.run(runId),
    (run) => {
      if (run.state === "waiting" && !hasWaited) onWaiting(run);
      hasWaited ||= run.state === "waiting";
      return !["queued", "waiting", "running"].includes(run.state);
    },
  );
}
