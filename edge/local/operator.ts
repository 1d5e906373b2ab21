// A small client of the operator API, for the commands of the local stack.

import { existsSync, readFileSync } from "node:fs";
import { z } from "zod";
import { Backfill, Job, PartitionState, Run, RunEvent, Tick } from "../../shared/markets.ts";
import { lockHolder, type State } from "./state.ts";

export interface Operator {
  jobs(): Promise<Job[]>;
  launch(job: string, partition?: string): Promise<string>;
  run(runId: string): Promise<Run>;
  runs(query: { limit?: number; backfill_id?: string }): Promise<Run[]>;
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
  ticks(query: { schedule?: string; limit?: number }): Promise<Tick[]>;
  switchSchedule(schedule: string, enabled: boolean): Promise<void>;
}

/** A client for a console at `url`. A refused request throws its `detail`. */
export function operatorAt(url: string, token: string): Operator {
  const ask = async (method: string, path: string, body?: object): Promise<unknown> => {
    const response = await fetch(`${url}/api${path}`, {
      method,
      headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
      ...(body ? { body: JSON.stringify(body) } : {}),
    });
    const answer = response.status === 204 ? {} : await response.json();
    if (!response.ok) {
      const { detail } = answer as { detail?: string };
      throw new Error(detail ?? `HTTP ${response.status}`);
    }
    return answer;
  };
  const get = async <T>(shape: z.ZodType<T>, path: string) => shape.parse(await ask("GET", path));
  const post = async <T>(shape: z.ZodType<T>, path: string, body: object = {}) =>
    shape.parse(await ask("POST", path, body));
  const query = (values: object) =>
    new URLSearchParams(
      Object.entries(values).map(([name, value]): [string, string] => [name, `${value}`]),
    );
  return {
    jobs: () => get(z.array(Job), "/jobs"),
    launch: async (job, partition) => {
      const body = { job, ...(partition ? { partition } : {}) };
      return (await post(z.object({ run_id: z.string() }), "/runs", body)).run_id;
    },
    run: (runId) => get(Run, `/runs/${runId}`),
    runs: (values) => get(z.array(Run), `/runs?${query(values)}`),
    cancelRun: (runId) => post(Run, `/runs/${runId}/cancel`),
    events: (runId) => get(z.array(RunEvent), `/runs/${runId}/events`),
    startBackfill: (body) => post(Backfill, "/backfills", body),
    backfill: (backfillId) => get(Backfill, `/backfills/${backfillId}`),
    cancelBackfill: (backfillId) => post(Backfill, `/backfills/${backfillId}/cancel`),
    retryBackfill: (backfillId) => post(Backfill, `/backfills/${backfillId}/retry`),
    partitions: (job, range = {}) =>
      get(z.array(PartitionState), `/jobs/${job}/partitions?${query(range)}`),
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

const POLL_MS = 300;
const SILENCE_MS_MAX = 30_000;

/** Polls until `ended`; a console that is being restarted is waited for. */
async function poll<T>(read: () => Promise<T>, ended: (value: T) => boolean): Promise<T> {
  for (let silence = 0; ; silence += POLL_MS) {
    try {
      const value = await read();
      if (ended(value)) return value;
      silence = 0;
    } catch (thrown) {
      const unreachable = thrown instanceof TypeError;
      if (!unreachable || silence > SILENCE_MS_MAX) throw thrown;
    }
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/** Follows a backfill to its end, telling of each change. */
export async function followBackfill(
  operator: Operator,
  backfill: Backfill,
  onProgress: (done: number, total: number, failed: number) => void,
): Promise<Backfill> {
  let told = -1;
  return poll(
    () => operator.backfill(backfill.backfill_id),
    ({ runs: { queued, running, succeeded, failed, late, canceled } }) => {
      const done = succeeded + failed + late + canceled;
      if (done !== told) onProgress(done, done + queued + running, failed);
      told = done;
      return queued + running === 0;
    },
  );
}

/** Waits for a run to end. */
export const followRun = (operator: Operator, runId: string): Promise<Run> =>
  poll(
    () => operator.run(runId),
    ({ state }) => state !== "queued" && state !== "running",
  );
