// A child process: works on one task at a time, as the supervisor says. Whatever it does to itself
// is the supervisor's to see: a crash costs one task's attempt. It ends at once, with everything it
// started, when the supervisor is gone.

import { setPriority } from "node:os";
import { Worker } from "node:worker_threads";
import { openCache } from "./cache.ts";
import { createLog, toStandardOutput } from "./log.ts";
import type { ChildSettings, FromChild, ToChild } from "./messages.ts";
import type { OpenOptions, Segmenter } from "./segmenters/segmenter.ts";
import { Encodings, type TaskContext } from "./tasks/context.ts";
import { runTask } from "./tasks/run.ts";

/** Opens a segmenter by name; null is the default. */
export type Opener = (name: string | null, options: OpenOptions) => Promise<Segmenter>;

/** Below whatever people do on the machine. */
const PRIORITY = 10;
const PROGRESS_MS = 250;

const say = (message: FromChild) => {
  process.send?.(message);
};

/** Kills this process's whole group, itself included. */
function endGroup(): never {
  try {
    process.kill(-process.pid, "SIGKILL");
  } catch {
    // Not the group's leader: then it ends alone.
  }
  process.exit(1);
}

/** Serves the supervisor until one of both ends. */
export function serve(open: Opener) {
  process.on("disconnect", endGroup);
  // A busy main thread would not hear that; a thread of its own sees the parent change.
  new Worker(new URL("./watchdog.ts", import.meta.url), { workerData: process.ppid }).unref();
  // Ctrl-C is the supervisor's to handle; it tells its children what it wants.
  process.on("SIGINT", () => {});
  setPriority(PRIORITY);
  const log = createLog(toStandardOutput, { pid: process.pid });
  let parts: Promise<Parts> | undefined;
  let cancel: AbortController | undefined;
  process.on("message", (message: ToChild) => {
    if (message.type === "settings") parts = openParts(message.settings, open, log);
    if (message.type === "cancel") cancel?.abort();
    if (message.type !== "task") return;
    const controller = new AbortController();
    cancel = controller;
    work(message, parts, controller.signal)
      .then((outcome) => say({ type: "outcome", taskId: message.taskId, outcome }))
      .catch((thrown: unknown) => {
        log.error("child_failed", { error: thrown });
        process.exit(1);
      });
  });
  say({ type: "ready" });
}

type Parts = Pick<TaskContext, "cache" | "tools" | "segmenter" | "encodings" | "log">;

async function openParts(
  settings: ChildSettings,
  open: Opener,
  log: TaskContext["log"],
): Promise<Parts> {
  const { cacheDir, cacheBytesMax, modelsDir, cpuThreads, device, tools } = settings;
  const cache = await openCache({ dir: cacheDir, bytesMax: cacheBytesMax, log });
  const encodings = new Encodings();
  let current: { name: string | null; segmenter: Promise<Segmenter> } | undefined;
  const segmenter = async (name: string | null) => {
    if (current?.name === name) return current.segmenter;
    // One at a time: each fills much of the memory.
    const previous = current;
    current = undefined;
    encodings.clear();
    if (previous) await (await previous.segmenter).dispose();
    const opening = open(name, {
      modelsDir,
      cpuThreads,
      device,
      log: (level, event, fields) => log[level](event, fields),
    });
    current = { name, segmenter: opening };
    opening.catch(() => {
      current = undefined;
    });
    return opening;
  };
  return { cache, tools, segmenter, encodings, log };
}

async function work(
  { taskId, kind, payload }: Extract<ToChild, { type: "task" }>,
  parts: Promise<Parts> | undefined,
  cancel: AbortSignal,
) {
  if (!parts) throw new Error("a task came before the settings");
  const opened = await parts;
  const log = createLog(toStandardOutput, { pid: process.pid, task_id: taskId });
  let saidAt = Number.NEGATIVE_INFINITY;
  return runTask(kind, payload, {
    ...opened,
    log,
    cancel,
    progress: (progress) => {
      // The last frame is always told, those between only now and then.
      const now = performance.now();
      if (now - saidAt < PROGRESS_MS && progress.done !== progress.total) return;
      saidAt = now;
      say({ type: "progress", taskId, progress });
    },
  });
}
