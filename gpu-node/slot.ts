// One place for one task at a time: a child process that is kept while it is healthy and replaced
// when it crashed or was ended. What a task came to is known only when its process said so or was
// seen to be gone, together with everything it started.

import { type ChildProcess, spawn } from "node:child_process";
import type { ClaimedTask, Outcome, TaskProgress } from "../shared/tasks.ts";
import { type Log, scrub } from "./log.ts";
import type { Answer, Ask, ChildSettings, FromChild, ToChild } from "./messages.ts";
import { groupLives } from "./processes.ts";

/** How a task left its slot. `ended`: the process was told to end and is gone. */
export type Left = { how: "outcome"; outcome: Outcome } | { how: "ended" };

export interface SlotOptions {
  /** The child's program, and what it runs in. */
  entry: string;
  environment: Readonly<Record<string, string>>;
  settings: ChildSettings;
  /** `setpriv` where the machine has it: the kernel then ends a child with its parent. */
  setpriv: string | null;
  log: Log;
  /** Where the child's own log lines go. Default: where the supervisor's go. */
  stdout?: "inherit" | "ignore";
  grace?: Partial<Grace>;
  /** The models that are open in the child became others. */
  onLoaded?: () => void;
}

/** How long each way of ending is tried before the next harder one. */
export interface Grace {
  cancelMs: number;
  /** A training writes and uploads a checkpoint and a model first; both may be large. */
  trainingCancelMs: number;
  termMs: number;
}

/** What a running task says of itself. */
export interface Heard {
  progress(progress: TaskProgress): void;
  ask(ask: Ask): Promise<Answer>;
}

const GRACE: Grace = { cancelMs: 30_000, trainingCancelMs: 15 * 60_000, termMs: 3_000 };
const STDERR_CHARACTERS = 2_000;
const GONE_POLL_MS = 20;

interface Child {
  process: ChildProcess;
  group: number;
  stderr: string;
  /** Resolves when nothing of its group runs any more. */
  gone: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
}

export class Slot {
  readonly #options: SlotOptions;
  readonly #grace: Grace;
  #child: Child | null = null;
  /** What was wanted of the task, also before its process was there. */
  #ending = false;
  #cancelled = false;
  #paused = false;
  #kind = "";
  /** Ends a task that does not heed its cancel. */
  #threat: NodeJS.Timeout | null = null;
  #onMessage: ((message: FromChild) => void) | null = null;

  constructor(options: SlotOptions) {
    this.#options = options;
    this.#grace = { ...GRACE, ...options.grace };
  }

  /** Models that are open in the child. */
  loaded: readonly string[] = [];

  get pid(): number | null {
    return this.#child?.group ?? null;
  }

  /** Runs a task to where it leaves the slot. */
  async run(task: ClaimedTask, heard: Heard): Promise<Left> {
    this.#ending = false;
    this.#cancelled = false;
    this.#paused = false;
    this.#kind = task.kind;
    const child = await this.#healthyChild();
    if (this.#ending) {
      await this.end({ atOnce: true });
      return { how: "ended" };
    }
    const said = new Promise<Outcome>((resolve) => {
      this.#onMessage = (message) => {
        if (!("taskId" in message) || message.taskId !== task.task_id) return;
        if (message.type === "progress") heard.progress(message.progress);
        else if (message.type === "ask") void this.#answer(message, heard);
        else resolve(message.outcome);
      };
    });
    const { task_id: taskId, kind, payload } = task;
    this.#tell({ type: "task", taskId, kind, payload });
    if (this.#cancelled) this.#tell({ type: "cancel" });
    if (this.#paused) this.#tell({ type: "pause" });
    const first = await Promise.race([said, child.gone]);
    this.#onMessage = null;
    if (this.#threat) clearTimeout(this.#threat);
    this.#threat = null;
    if ("outcome" in first) return { how: "outcome", outcome: first };
    if (this.#ending) return { how: "ended" };
    return { how: "outcome", outcome: crashed(first, child.stderr) };
  }

  /** Asks the task to stop and keep what is done; ends the process when it does not heed it. */
  cancel(): void {
    this.#cancelled = true;
    this.#tell({ type: "cancel" });
    const { cancelMs, trainingCancelMs } = this.#grace;
    const graceMs = this.#kind === "train" ? trainingCancelMs : cancelMs;
    this.#threat ??= setTimeout(() => void this.end(), graceMs);
  }

  /** Asks a task that can to put its work aside; the others go on. */
  pause(): void {
    this.#paused = true;
    this.#tell({ type: "pause" });
  }

  /** Ends the process and all it started: SIGTERM, later SIGKILL. Resolves when they are gone. */
  async end(options: { atOnce?: boolean } = {}): Promise<void> {
    this.#ending = true;
    const child = this.#child;
    if (!child) return;
    if (!options.atOnce) {
      signalGroup(child.group, "SIGTERM");
      const timer = setTimeout(() => signalGroup(child.group, "SIGKILL"), this.#grace.termMs);
      await child.gone;
      clearTimeout(timer);
      return;
    }
    signalGroup(child.group, "SIGKILL");
    await child.gone;
  }

  /** The child that is there, or a new one where it just died. */
  async #healthyChild(): Promise<Child> {
    const child = this.#child;
    if (!child) return this.#start();
    const { exitCode, signalCode, connected } = child.process;
    if (exitCode === null && signalCode === null && connected) return child;
    signalGroup(child.group, "SIGKILL");
    await child.gone;
    return this.#start();
  }

  #setLoaded(models: readonly string[]) {
    if (models.join() === this.loaded.join()) return;
    this.loaded = models;
    this.#options.onLoaded?.();
  }

  async #answer({ id, ask }: Extract<FromChild, { type: "ask" }>, heard: Heard) {
    this.#tell({ type: "answer", id, answer: await heard.ask(ask) });
  }

  #tell(message: ToChild) {
    // A process that just died shows by its end, not by this.
    this.#child?.process.send(message, () => {});
  }

  #start(): Child {
    const { entry, environment, settings, setpriv, log, stdout = "inherit" } = this.#options;
    const node = [process.execPath, "--disable-warning=ExperimentalWarning", entry];
    const [command = "", ...args] = setpriv ? [setpriv, "--pdeathsig=KILL", ...node] : node;
    // A group of its own, so that all it starts can be ended with it.
    const spawned = spawn(command, args, {
      detached: true,
      env: environment,
      stdio: ["ignore", stdout, "pipe", "ipc"],
    });
    const child: Child = {
      process: spawned,
      group: spawned.pid ?? 0,
      stderr: "",
      gone: this.#gone(spawned),
    };
    spawned.stderr?.setEncoding("utf8").on("data", (text: string) => {
      child.stderr = (child.stderr + text).slice(-STDERR_CHARACTERS);
    });
    spawned.on("message", (message: FromChild) => {
      if (message.type === "loaded") this.#setLoaded(message.models);
      else this.#onMessage?.(message);
    });
    this.#child = child;
    this.#tell({ type: "settings", settings });
    log.info("child_started", { child: child.group });
    return child;
  }

  async #gone(spawned: ChildProcess) {
    const exit = await new Promise<{ code: number | null; signal: NodeJS.Signals | null }>(
      (resolve) => {
        spawned.once("error", () => resolve({ code: 127, signal: null }));
        spawned.once("exit", (code, signal) => resolve({ code, signal }));
      },
    );
    if (spawned.pid !== undefined) {
      signalGroup(spawned.pid, "SIGKILL");
      while (groupLives(spawned.pid)) {
        await new Promise((resolve) => setTimeout(resolve, GONE_POLL_MS));
      }
    }
    if (this.#child?.process === spawned) this.#child = null;
    this.#setLoaded([]);
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

function crashed(
  { code, signal }: { code: number | null; signal: NodeJS.Signals | null },
  stderr: string,
): Outcome {
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
