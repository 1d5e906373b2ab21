// A small client of the operator API, for the commands of the local stack.

import { existsSync, readFileSync } from "node:fs";
import { z } from "zod";
import { Backfill, Job, Run } from "../../shared/markets.ts";
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
}

/** A client for a console at `url`. A refused request throws its `detail`. */
export function operatorAt(url: string, token: string): Operator {
  const call = async <T>(shape: z.ZodType<T>, path: string, body?: object): Promise<T> => {
    const response = await fetch(`${url}/api${path}`, {
      method: body ? "POST" : "GET",
      headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
      ...(body ? { body: JSON.stringify(body) } : {}),
    });
    const answer = (await response.json()) as { detail?: string };
    if (!response.ok) throw new Error(answer.detail ?? `HTTP ${response.status}`);
    return shape.parse(answer);
  };
  const query = (values: object) =>
    new URLSearchParams(
      Object.entries(values).map(([name, value]): [string, string] => [name, `${value}`]),
    );
  return {
    jobs: () => call(z.array(Job), "/jobs"),
    launch: async (job, partition) => {
      const body = { job, ...(partition ? { partition } : {}) };
      return (await call(z.object({ run_id: z.string() }), "/runs", body)).run_id;
    },
    run: (runId) => call(Run, `/runs/${runId}`),
    runs: (values) => call(z.array(Run), `/runs?${query(values)}`),
    startBackfill: (body) => call(Backfill, "/backfills", body),
    backfill: (backfillId) => call(Backfill, `/backfills/${backfillId}`),
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
    ({ runs: { queued, running, succeeded, failed } }) => {
      const done = succeeded + failed;
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
    ({ state }) => state === "succeeded" || state === "failed",
  );
