// A train task in this process: a folder for its node, what it said, and how it ended.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach } from "vitest";
import type { RunnerContext } from "../../gpu-node/tasks/runner-context.ts";
import { runTask } from "../../gpu-node/tasks/runners.ts";
import { ENGINE_ENVIRONMENT, loadEngine, type Native } from "../../native/load.ts";
import type { Outcome, TaskProgress } from "../../shared/tasks/node-protocol.ts";
import type { TaskPayload, TaskResult } from "../../shared/tasks/tasks.ts";
import { type Checkpoint, TrainDetail } from "../../shared/tasks/train-task.ts";
import type { NodeService } from "./node-service.ts";
import { taskContext } from "./task-context.ts";

/** The engine, or null, said aloud, where there is none. */
export function engineOrSay(): Native | null {
  Object.assign(process.env, ENGINE_ENVIRONMENT);
  const loaded = loadEngine();
  if ("native" in loaded) return loaded.native;
  process.stderr.write(`SKIPPED: ${loaded.missing}\n`);
  return null;
}

type Result = TaskResult<"train">;

/** A machine that trains: attempts in its folder find what earlier ones left. */
export interface Machine {
  dir: string;
  told: TrainDetail[];
  lines(): string[];
  /** Runs a task to its outcome; `at` looks at each report and may end it. */
  attempt(payload: TaskPayload<"train">, at?: (moment: Moment) => void): Promise<Outcome>;
  /** The result of a task that has to finish. */
  finish(payload: TaskPayload<"train">): Promise<Result>;
}

export interface Moment {
  detail: TrainDetail;
  progress: TaskProgress;
  cancel(): void;
  pause(): void;
}

const folders: string[] = [];
afterEach(() => {
  for (const dir of folders.splice(0)) rmSync(dir, { recursive: true, force: true });
});

export function machine(service: NodeService, more: Partial<RunnerContext> = {}): Machine {
  const dir = mkdtempSync(join(tmpdir(), "vantage-train-"));
  folders.push(dir);
  const told: TrainDetail[] = [];
  const self: Machine = {
    dir,
    told,
    lines: () => {
      const all = told.flatMap(({ log }) => log.map(({ n, line }) => [n, line] as const));
      return [...new Map(all).values()];
    },
    attempt: async (payload, at) => {
      const [cancel, pause] = [new AbortController(), new AbortController()];
      const context = await taskContext(service, dir, {
        cancel: cancel.signal,
        pause: pause.signal,
        progress: (progress) => {
          const detail = TrainDetail.parse(JSON.parse(JSON.stringify(progress.detail)));
          told.push(detail);
          const ends = { cancel: () => cancel.abort(), pause: () => pause.abort() };
          at?.({ detail, progress, ...ends });
        },
        ...more,
      });
      const outcome = await runTask("train", JSON.parse(JSON.stringify(payload)), context);
      return JSON.parse(JSON.stringify(outcome)) as Outcome;
    },
    finish: async (payload) => {
      const outcome = await self.attempt(payload);
      if (outcome.outcome !== "finished") throw new Error(JSON.stringify(outcome));
      return outcome.result as Result;
    },
  };
  return self;
}

/** The result of an outcome that has one. */
export function resultOf(outcome: Outcome): Result {
  if (!("result" in outcome) || !outcome.result) throw new Error(JSON.stringify(outcome));
  return outcome.result as Result;
}

/** The payload of the attempt that goes on from a checkpoint, as the service hands it out. */
export function resumed(
  service: NodeService,
  payload: TaskPayload<"train">,
  at: Checkpoint,
): TaskPayload<"train"> {
  const bytes = service.objects.get(at.key) as Buffer;
  return { ...payload, resume: { checkpoint: service.source(at.key, bytes), at } };
}
