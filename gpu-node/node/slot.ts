// A child process that is kept while it is healthy and replaced when it crashed or was ended, and
// the tasks in it: one, or several where the supervisor gives it several, which then end with it. A
// task's outcome is known only when its process said so or was seen to be gone, together with
// everything that it started.

import { type ChildProcess, spawn } from "node:child_process";
import type { ClaimedTask, Outcome, TaskReport } from "../../shared/tasks/node-protocol.ts";
import { type Log, scrub } from "../base/log.ts";
import { groupLives } from "../base/processes.ts";
import { tally } from "../base/tally.ts";
import type { EncodedReply } from "../serving/direct.ts";
import type { OpenModels } from "../serving/predictors.ts";
import type { AttemptEnd } from "./held-task.ts";
import { isPausable } from "./lanes.ts";
import type { ChildSettings, FromChild, ObjectReply, ObjectRequest, ToChild } from "./messages.ts";

/**
 * Arguments for the runtime of a process through which images go. Their bytes lie outside of its
 * heap and are freed with the small objects that hold them, but count as its growth: a heap of 25
 * MB that may grow by 8 was gone through as a whole every dozen images, which took 1 to 2 ms an
 * image in each process. Young objects are collected before that in a space of 2 MB, where 32 are
 * usual, and the heap may grow to four times its size.
 */
export const IMAGE_ARGUMENTS = ["--max-semi-space-size=2", "--heap-growing-percent=300"];

export interface SlotOptions {
  /** The child's program, and what it runs in. */
  entry: string;
  environment: Readonly<Record<string, string>>;
  /** For the runtime of the program, before it. */
  runtimeArguments?: readonly string[];
  settings: ChildSettings;
  /** `setpriv` where the machine has it: the kernel then ends a child with its parent. */
  setpriv: string | null;
  log: Log;
  /** Where the child's own log lines go. Default: where the supervisor's go. */
  stdout?: "inherit" | "ignore";
  grace?: Partial<Grace>;
  /** Other models are open in the child than before. */
  onLoaded?: () => void;
}

/** How long each way of ending a task is tried before the next, stronger one. */
export interface Grace {
  cancelMs: number;
  /** Time for a training to write and upload a checkpoint and a model; both may be large. */
  trainingCancelMs: number;
  termMs: number;
  /** Time beyond a direct request's own: then the process is ended, for it hangs. */
  askMs: number;
}

/** Hears what a task says while it works. */
export interface TaskListener {
  progress(progress: TaskReport): void;
  request(request: ObjectRequest): Promise<ObjectReply>;
}

const GRACE: Grace = {
  cancelMs: 30_000,
  trainingCancelMs: 15 * 60_000,
  termMs: 3_000,
  askMs: 5 * 60_000,
};
const STDERR_CHARACTERS = 2_000;
const GONE_POLL_MS = 20;

interface ProcessExit {
  code: number | null;
  signal: NodeJS.Signals | null;
}

interface Child {
  process: ChildProcess;
  /** It was told to end, and takes nothing any more. */
  ending: boolean;
  /** Its process group, which is its process id. */
  group: number;
  /** Its last words on standard error. */
  stderr: string;
  /** Resolves when nothing of its group runs any more. */
  gone: Promise<ProcessExit>;
}

/** A task in the slot, and what was wanted of it, also before its process was there. */
interface SlotTask {
  kind: string;
  ending: boolean;
  canceled: boolean;
  paused: boolean;
  /** Ends the process of a task that does not heed its cancel. */
  cancelTimer: NodeJS.Timeout | undefined;
  /** The process that has it, once there is one. */
  child: Child | null;
  onMessage: (message: FromTask) => void;
  /** Its process is gone. */
  onGone: (exit: ProcessExit) => void;
}

/** Who waits for the answer to a request, and from which child, once that is there. */
interface Asker {
  child: Child | null;
  answer(answer: EncodedReply | null): void;
}

type FromTask = Extract<FromChild, { taskId: string }>;

export class Slot {
  readonly #options: SlotOptions;
  readonly #grace: Grace;
  #child: Child | null = null;
  /** By the tasks' ids. */
  readonly #tasks = new Map<string, SlotTask>();
  /** Who waits for the child's answers, by the number of the request. */
  readonly #asked = new Map<number, Asker>();
  #asks = 0;

  constructor(options: SlotOptions) {
    this.#options = options;
    this.#grace = { ...GRACE, ...options.grace };
  }

  /** Models that are open in the child. */
  loaded: readonly string[] = [];
  /** The sizes of image, pixels a side, that each is open for, by its id. */
  loadedSizes: OpenModels["sizes"] = {};
  /** What they take, estimated. */
  loadedBytes = 0;

  get pid(): number | null {
    return this.#child?.group ?? null;
  }

  /** Works on a task until it leaves the slot. */
  async work(claimed: ClaimedTask, listener: TaskListener): Promise<AttemptEnd> {
    const { task_id: taskId, kind, payload } = claimed;
    const task: SlotTask = {
      kind,
      ending: false,
      canceled: false,
      paused: false,
      cancelTimer: undefined,
      child: null,
      onMessage: () => {},
      onGone: () => {},
    };
    this.#tasks.set(taskId, task);
    try {
      const child = await this.#healthyChild();
      if (task.ending) {
        await this.end({ force: true });
        return { how: "ended" };
      }
      // Not a race with the child's end, which would keep each outcome until then.
      const { promise, resolve } = Promise.withResolvers<Outcome | ProcessExit>();
      task.child = child;
      task.onGone = resolve;
      task.onMessage = (message) => {
        if (message.type === "progress") listener.progress(message.progress);
        else if (message.type === "request") void this.#reply(message, listener);
        else resolve(message.outcome);
      };
      this.#tell({ type: "task", taskId, kind, payload });
      if (task.canceled) this.#tell({ type: "cancel", taskId });
      if (task.paused) this.#tell({ type: "pause", taskId });
      const first = await promise;
      if ("outcome" in first) return { how: "outcome", outcome: first };
      if (task.ending) return { how: "ended" };
      return { how: "outcome", outcome: crashed(first, child.stderr) };
    } finally {
      clearTimeout(task.cancelTimer);
      this.#tasks.delete(taskId);
    }
  }

  /** Whether it works on nothing. */
  get idle(): boolean {
    return this.#tasks.size === 0 && this.#asked.size === 0;
  }

  /** What the child answers to a request of the direct line; null where it has no answer. */
  async ask(body: Uint8Array, ms: number, signal: AbortSignal): Promise<EncodedReply | null> {
    const until = performance.now() + ms;
    this.#asks += 1;
    const id = this.#asks;
    const { promise, resolve } = Promise.withResolvers<EncodedReply | null>();
    const asker: Asker = { child: null, answer: resolve };
    this.#asked.set(id, asker);
    const drop = () => this.#tell({ type: "drop", id });
    let hangs: NodeJS.Timeout | undefined;
    try {
      asker.child = await this.#healthyChild();
      const left = Math.floor(until - performance.now());
      if (signal.aborted || left <= 0) return null;
      this.#tell({ type: "ask", id, body, ms: left });
      signal.addEventListener("abort", drop);
      // Nobody waits any more, but its place at this node would be taken for ever.
      hangs = setTimeout(() => void this.end({ force: true }), left + this.#grace.askMs);
      // Not a race with the child's end, for the same reason.
      return await promise;
    } finally {
      clearTimeout(hangs);
      signal.removeEventListener("abort", drop);
      this.#asked.delete(id);
    }
  }

  /** Asks a task to stop and keep what is done; ends the process when it does not heed it. */
  cancel(taskId: string): void {
    const task = this.#tasks.get(taskId);
    if (!task) return;
    task.canceled = true;
    this.#tell({ type: "cancel", taskId });
    const { cancelMs, trainingCancelMs } = this.#grace;
    const graceMs = isPausable(task.kind) ? trainingCancelMs : cancelMs;
    task.cancelTimer ??= setTimeout(() => void this.end(), graceMs);
  }

  /** Asks a task that can to put its work aside; the others go on. */
  pause(taskId: string): void {
    const task = this.#tasks.get(taskId);
    if (task) task.paused = true;
    this.#tell({ type: "pause", taskId });
  }

  /**
   * Ends the process and all it started: by SIGTERM, later SIGKILL; with `force` by SIGKILL at
   * once. Resolves when they are gone.
   */
  async end(options: { force?: boolean } = {}): Promise<void> {
    for (const task of this.#tasks.values()) task.ending = true;
    const child = this.#child;
    if (!child) return;
    child.ending = true;
    if (!options.force) {
      signalGroup(child.group, "SIGTERM");
      const timer = setTimeout(() => signalGroup(child.group, "SIGKILL"), this.#grace.termMs);
      await child.gone;
      clearTimeout(timer);
      return;
    }
    signalGroup(child.group, "SIGKILL");
    await child.gone;
  }

  /** The child that is there, or a new one where it just died or was told to end. */
  async #healthyChild(): Promise<Child> {
    for (;;) {
      const child = this.#child;
      // Where two tasks waited for the old one to be gone, the second finds the first one's child.
      if (!child) return this.#start();
      const { exitCode, signalCode, connected } = child.process;
      const lives = exitCode === null && signalCode === null && connected;
      if (lives && !child.ending) return child;
      if (!lives) signalGroup(child.group, "SIGKILL");
      await child.gone;
    }
  }

  #setLoaded({ models, sizes, bytes }: Omit<Extract<FromChild, { type: "loaded" }>, "type">) {
    this.loadedBytes = bytes;
    const isSame =
      JSON.stringify([models, sizes]) === JSON.stringify([this.loaded, this.loadedSizes]);
    if (isSame) return;
    this.loaded = models;
    this.loadedSizes = sizes;
    this.#options.onLoaded?.();
  }

  async #reply({ id, request }: Extract<FromChild, { type: "request" }>, listener: TaskListener) {
    this.#tell({ type: "reply", id, reply: await listener.request(request) });
  }

  #tell(message: ToChild) {
    // A process that just died shows by its end, not by this.
    this.#child?.process.send(message, () => {});
  }

  #start(): Child {
    const { entry, environment, settings, setpriv, log, stdout = "inherit" } = this.#options;
    const own = this.#options.runtimeArguments ?? [];
    const node = [process.execPath, "--disable-warning=ExperimentalWarning", ...own, entry];
    const [command = "", ...args] = setpriv ? [setpriv, "--pdeathsig=KILL", ...node] : node;
    // A group of its own, so that all it starts can be ended with it.
    const spawned = spawn(command, args, {
      detached: true,
      env: environment,
      stdio: ["ignore", stdout, "pipe", "ipc"],
      // Images cross as bytes.
      serialization: "advanced",
    });
    const child: Child = {
      process: spawned,
      group: spawned.pid ?? 0,
      stderr: "",
      ending: false,
      gone: this.#gone(spawned),
    };
    spawned.stderr?.setEncoding("utf8").on("data", (text: string) => {
      child.stderr = (child.stderr + text).slice(-STDERR_CHARACTERS);
    });
    spawned.on("message", (message: FromChild) => {
      if (message.type === "loaded") this.#setLoaded(message);
      else if (message.type === "counts") tally.add(message.series);
      else if (message.type === "answer") this.#asked.get(message.id)?.answer(message.answer);
      else if ("taskId" in message) this.#tasks.get(message.taskId)?.onMessage(message);
    });
    this.#child = child;
    this.#tell({ type: "settings", settings });
    tally.count("vantage_node_children_started_total");
    log.info("child_started", { child: child.group });
    return child;
  }

  async #gone(spawned: ChildProcess) {
    const exit = await new Promise<ProcessExit>((resolve) => {
      spawned.once("error", () => resolve({ code: 127, signal: null }));
      spawned.once("exit", (code, signal) => resolve({ code, signal }));
    });
    if (spawned.pid !== undefined) {
      signalGroup(spawned.pid, "SIGKILL");
      while (groupLives(spawned.pid)) {
        await new Promise((resolve) => setTimeout(resolve, GONE_POLL_MS));
      }
    }
    if (this.#child?.process === spawned) this.#child = null;
    for (const { child, answer } of this.#asked.values()) {
      if (child?.process === spawned) answer(null);
    }
    for (const { child, onGone } of this.#tasks.values()) {
      if (child?.process === spawned) onGone(exit);
    }
    this.#setLoaded({ models: [], sizes: {}, bytes: 0 });
    this.#options.log.info("child_ended", { child: spawned.pid, ...exit });
    return exit;
  }
}

function signalGroup(group: number, signal: NodeJS.Signals) {
  try {
    if (group > 0) process.kill(-group, signal);
  } catch {
    // All of it is gone.
  }
}

function crashed({ code, signal }: ProcessExit, stderr: string): Outcome {
  const how =
    signal === "SIGKILL"
      ? "was killed, most likely by the system for want of memory"
      : signal
        ? `was ended by ${signal}`
        : `ended with exit status ${code}`;
  const said = scrub(stderr.trim()).slice(-600);
  const detail = `the task's process ${how}${said ? `: ${said}` : ""}`;
  return { outcome: "failed", code: "node_crashed", detail, retryable: true };
}
