// The supervisor: claims a task for each free slot, one of them kept for what people wait for,
// where predictions run beside each other, and one for training; renews the leases of what runs,
// and does with each task as the service says. It touches no video and no model: a child process
// does, and may crash. It reports an end only when it saw it.

import type {
  Capabilities,
  ClaimedTask,
  Outcome,
  TaskProgress,
  Verdict,
} from "../../shared/node-protocol.ts";
import { HEARTBEAT_SECONDS } from "../../shared/node-protocol.ts";
import { type Clock, HOUR, iso } from "../../shared/time.ts";
import type { Log } from "../base/log.ts";
import { pause } from "../objects/transfer.ts";
import type { Answer, Ask } from "./messages.ts";
import { backoffMs, LeaseStale, NodeRefused, type Service } from "./service.ts";
import { type Left, Slot, type SlotOptions } from "./slot.ts";

export interface WorkerOptions {
  service: Service;
  capabilities: Capabilities;
  slot: Omit<SlotOptions, "log" | "onLoaded">;
  log: Log;
  clock: Clock;
  /** For tests; the protocol's own otherwise. */
  heartbeatMs?: number;
  /** A task that shows no sign of life for so long is ended, to be tried again. */
  stallMs?: number;
  /** Pause between claims while the service's socket is open, and would say when there is work. */
  idleMs?: number;
}

/** A task and what the service wants of it. */
interface Running {
  task: ClaimedTask;
  slot: Slot;
  since: number;
  /** When it last reported progress. */
  lastSign: number;
  stalled: boolean;
  /** The hardest thing that was wanted so far; see Verdict. `snooze`: the node drains. */
  wanted: Verdict | "snooze";
  progress: TaskProgress | null;
  /** A report is under way; a newer one waits for its turn. */
  reporting: boolean;
  /** Resolves when every report so far was answered or given up. */
  reported: Promise<void>;
  next: TaskProgress | null;
  /** It came to an end here; what is left to do is to report it. */
  left: boolean;
  /** Says that nobody waits for the outcome any more. */
  abandoned: AbortController;
}

/** What the status page shows. */
export interface WorkerStatus {
  since: string;
  draining: boolean;
  socket: boolean;
  last_heartbeat_at: string | null;
  ended: Record<string, number>;
  slots: (null | {
    task_id: string;
    kind: string;
    attempt: number;
    since: string;
    wanted: string;
    progress: TaskProgress | null;
    pid: number | null;
  })[];
}

export interface Worker {
  /** Resolves when it stopped working: null after a drain, else why it had to. */
  readonly stopped: Promise<string | null>;
  status(): WorkerStatus;
  /** Claims no more; running tasks have so long, then go back to the queue. */
  drain(withinMs: number): void;
  /** Ends all child processes now. Their leases run out, and their tasks go to others. */
  kill(): Promise<void>;
}

/** How long a claim waits at the service while no socket would say that there is work. */
const CLAIM_WAIT_SECONDS = 10;
const COUNTER_WAIT_SECONDS = 1;
const IDLE_MS = 15_000;
/** The longest silence of honest work is the download of a large video. */
const STALL_MS = 2 * HOUR;
/** Longer is not waited for a report while the node drains. */
const FINISH_MS_MAX = 10_000;

export function startWorker(options: WorkerOptions): Worker {
  return new Supervisor(options);
}

class Supervisor implements Worker {
  readonly stopped: Promise<string | null>;
  readonly #options: WorkerOptions;
  readonly #slots: Slot[];
  /** For what somebody waits for: never behind a long task, its model and frames kept. */
  readonly #counter: Slot;
  /** For training, one at a time: it takes days, and nothing else must wait for it. */
  readonly #trainer: Slot;
  readonly #running = new Set<Running>();
  readonly #since: number;
  readonly #ended: Record<string, number> = {};
  readonly #stopClaiming = new AbortController();
  readonly #closeSocket: () => void;
  #draining = false;
  #claiming = false;
  #stopReason: string | null = null;
  #socket = false;
  #lastHeartbeat: number | null = null;
  #wake = () => {};
  #stop: (why: string | null) => void = () => {};
  #beat: NodeJS.Timeout;

  constructor(options: WorkerOptions) {
    this.#options = options;
    this.#since = options.clock();
    const { capabilities, slot, log, service } = options;
    const open = () => new Slot({ ...slot, log, onLoaded: () => void this.#heartbeat() });
    this.#slots = Array.from({ length: capabilities.slots }, open);
    this.#counter = open();
    this.#trainer = open();
    if (capabilities.kinds.some(isWaitedFor)) this.#slots.push(this.#counter);
    if (capabilities.kinds.includes("train")) this.#slots.push(this.#trainer);
    this.stopped = new Promise((resolve) => {
      this.#stop = resolve;
    });
    this.#closeSocket = service.listen(
      () => this.#wake(),
      (open) => {
        this.#socket = open;
        if (open) this.#wake();
      },
    );
    const heartbeatMs = options.heartbeatMs ?? HEARTBEAT_SECONDS * 1_000;
    this.#beat = setInterval(() => void this.#heartbeat(), heartbeatMs);
    void this.#heartbeat({ capabilities });
    this.#claimOn().catch((thrown: unknown) => this.#fail(thrown));
  }

  status(): WorkerStatus {
    return {
      since: iso(this.#since),
      draining: this.#draining,
      socket: this.#socket,
      last_heartbeat_at: this.#lastHeartbeat === null ? null : iso(this.#lastHeartbeat),
      ended: { ...this.#ended },
      slots: this.#slots.flatMap((slot) => {
        const held = this.#within(slot);
        if (held.length === 0) return [null];
        return held.map(({ task, since, wanted, progress }) => {
          const { task_id, kind, attempt } = task;
          return { task_id, kind, attempt, since: iso(since), wanted, progress, pid: slot.pid };
        });
      }),
    };
  }

  drain(withinMs: number) {
    if (this.#draining) return;
    this.#draining = true;
    this.#options.log.info("draining", { tasks: this.#running.size, within_ms: withinMs });
    this.#wake();
    void this.#heartbeat();
    for (const { slot, task } of this.#running) {
      if (task.kind === "train") slot.pause(task.task_id);
    }
    setTimeout(() => {
      for (const running of this.#running) this.#snooze(running);
    }, withinMs).unref();
    this.#leaveWhenIdle();
  }

  async kill() {
    this.#draining = true;
    this.#stopClaiming.abort();
    for (const running of this.#running) {
      running.wanted = "lost";
      running.abandoned.abort();
    }
    this.#wake();
    await Promise.all(this.#slots.map((slot) => slot.end({ atOnce: true })));
    this.#leave();
  }

  /** Stops for good, for a reason that people should read. */
  #fail(thrown: unknown) {
    if (this.#stopReason !== null) return;
    const why = thrown instanceof Error ? thrown.message : String(thrown);
    this.#stopReason = why;
    this.#options.log.error("node_stopped", { error: thrown });
    void this.kill();
  }

  #leave() {
    clearInterval(this.#beat);
    this.#closeSocket();
    this.#stop(this.#stopReason);
  }

  /** After a drain: idle children are ended once nothing runs and no claim is under way. */
  #leaveWhenIdle() {
    if (!this.#draining || this.#running.size > 0 || this.#claiming) return;
    Promise.all(this.#slots.map((slot) => slot.end())).then(() => this.#leave());
  }

  /** Claims while there is a free slot, until the node drains. */
  async #claimOn() {
    const { log } = this.#options;
    for (let failures = 0; !this.#draining; ) {
      const { kinds } = this.#options.capabilities;
      const taken = kinds.filter((kind) => this.#slots.some((slot) => this.#takes(slot, kind)));
      const woken = new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      // A node that can do nothing still says so by its heartbeats.
      if (taken.length === 0) {
        await woken;
        continue;
      }
      this.#claiming = true;
      let claimed: ClaimedTask | null = null;
      try {
        const general = this.#slots.some((slot) => this.#takes(slot, GENERAL));
        // The other slots may get free meanwhile, and would wait for this claim's answer.
        const wait = this.#socket ? 0 : general ? CLAIM_WAIT_SECONDS : COUNTER_WAIT_SECONDS;
        claimed = await this.#options.service.claim(taken, wait);
        failures = 0;
      } catch (thrown) {
        if (thrown instanceof NodeRefused) throw thrown;
        if (failures++ % 10 === 0) log.warning("claim_failed", { error: thrown });
      } finally {
        this.#claiming = false;
      }
      if (claimed) this.#take(this.#slotFor(claimed), claimed);
      else if (failures > 0) await this.#rest(woken, backoffMs(failures, null));
      else if (this.#socket) await this.#rest(woken, this.#options.idleMs ?? IDLE_MS);
    }
    this.#leaveWhenIdle();
  }

  #within = (slot: Slot) => [...this.#running].filter((running) => running.slot === slot);

  /**
   * Whether a slot has a place for a task of the kind. Predictions go beside each other, so that
   * one model looks at all their images at once, and beside whatever else is in the counter.
   */
  #takes(slot: Slot, kind: string): boolean {
    const held = this.#within(slot).map(({ task }) => task.kind);
    if (slot === this.#trainer) return kind === "train" && held.length === 0;
    if (kind === "train") return false;
    if (slot !== this.#counter) return held.length === 0;
    if (!isWaitedFor(kind)) return false;
    const alike = held.filter((one) => isShared(one) === isShared(kind));
    return alike.length < (isShared(kind) ? SHARED_MAX : 1);
  }

  /** Clicks and previews go to the one child that is warm for them, when it is free. */
  #slotFor({ kind }: ClaimedTask): Slot {
    const fit = this.#slots.filter((slot) => this.#takes(slot, kind));
    const warm = fit.includes(this.#counter) ? this.#counter : undefined;
    // The service gives no other kinds than it was asked for.
    return warm ?? (fit[0] as Slot);
  }

  #rest(woken: Promise<void>, milliseconds: number) {
    const stop = new AbortController();
    const over = pause(milliseconds, AbortSignal.any([stop.signal, this.#stopClaiming.signal]));
    return Promise.race([woken, over.catch(() => {})]).finally(() => stop.abort());
  }

  #take(slot: Slot, task: ClaimedTask) {
    const running: Running = {
      task,
      slot,
      since: this.#options.clock(),
      lastSign: this.#options.clock(),
      stalled: false,
      wanted: "go_on",
      progress: null,
      reporting: false,
      reported: Promise.resolve(),
      next: null,
      left: false,
      abandoned: new AbortController(),
    };
    this.#running.add(running);
    const { task_id, kind, attempt } = task;
    this.#options.log.info("task_started", { task_id, kind, attempt });
    this.#work(running)
      .catch((thrown: unknown) => {
        if (thrown instanceof NodeRefused) this.#fail(thrown);
        else this.#options.log.error("task_lost", { task_id, error: thrown });
      })
      .finally(() => {
        this.#running.delete(running);
        this.#wake();
        this.#leaveWhenIdle();
      });
  }

  /** Runs a task and reports its end; its lease is renewed until the report was answered. */
  async #work(running: Running) {
    const { task, slot } = running;
    const draining = this.#draining;
    // A claim that was answered while the node began to drain.
    const left: Left = draining
      ? { how: "outcome", outcome: { outcome: "snoozed", seconds: 0 } }
      : await slot.run(task, {
          progress: (progress) => this.#report(running, progress),
          ask: (ask) => this.#ask(running, ask),
        });
    // Whatever was to be ended is reported only once it is gone, also where it ended by itself.
    if (HARDNESS[running.wanted] >= HARDNESS.snooze) await slot.end();
    running.left = true;
    const outcome =
      running.stalled && left.how === "ended" ? STALLED : outcomeOf(left, running.wanted);
    const seconds = (this.#options.clock() - running.since) / 1_000;
    const name = outcome?.outcome ?? "abandoned";
    this.#ended[name] = (this.#ended[name] ?? 0) + 1;
    const { task_id, kind } = task;
    this.#options.log.info("task_ended", { task_id, kind, outcome: name, seconds });
    if (!outcome) return;
    // A later attempt goes on from what the last report said.
    if (outcome.outcome === "failed" || outcome.outcome === "snoozed") await running.reported;
    await this.#finish(running, outcome);
  }

  async #finish(running: Running, outcome: Outcome) {
    const { task, abandoned } = running;
    const lease = { taskId: task.task_id, fence: task.fence };
    try {
      await this.#options.service.finish(lease, outcome, abandoned.signal);
    } catch (thrown) {
      if (abandoned.signal.aborted) return;
      if (thrown instanceof NodeRefused) throw thrown;
      const { log, service } = this.#options;
      log.warning("finish_refused", { task_id: task.task_id, error: thrown });
      if (thrown instanceof LeaseStale) {
        if (thrown.verdict !== "revoke") return;
        // It was revoked while it ended; what is still wanted is that its process is gone.
        running.wanted = "revoke";
        await running.slot.end();
        const revoked: Outcome = { outcome: "revoked", exited: true };
        await service.finish(lease, revoked, abandoned.signal);
      } else if (outcome.outcome === "finished") {
        // The result was not of a shape that the service takes: that must not run for ever.
        const detail = `the result was refused: ${(thrown as Error).message}`;
        const failed: Outcome = { outcome: "failed", code: "internal", detail, retryable: true };
        await service.finish(lease, failed, abandoned.signal);
      }
    }
  }

  /** Reports progress, one report at a time, the newest when its turn comes. */
  #report(running: Running, progress: TaskProgress) {
    running.lastSign = this.#options.clock();
    running.progress = progress;
    running.next = progress;
    if (running.reporting) return;
    running.reporting = true;
    const { task } = running;
    const send = async () => {
      while (running.next && this.#running.has(running)) {
        const next = running.next;
        running.next = null;
        const lease = { taskId: task.task_id, fence: task.fence };
        this.#heed(running, await this.#options.service.progress(lease, next));
      }
    };
    running.reported = send()
      .catch((thrown: unknown) => {
        if (thrown instanceof NodeRefused) this.#fail(thrown);
        else if (thrown instanceof LeaseStale) this.#heed(running, thrown.verdict);
        else this.#options.log.info("progress_not_told", { reason: String(thrown) });
      })
      .finally(() => {
        running.reporting = false;
      });
  }

  /** Asks the service on a task's behalf. Why there is no answer is for the task to know. */
  async #ask(running: Running, ask: Ask): Promise<Answer> {
    const { task, abandoned } = running;
    const lease = { taskId: task.task_id, fence: task.fence };
    try {
      return { object: await this.#options.service.place(lease, ask, abandoned.signal) };
    } catch (thrown) {
      if (thrown instanceof NodeRefused) this.#fail(thrown);
      if (thrown instanceof LeaseStale) this.#heed(running, thrown.verdict);
      return { problem: thrown instanceof Error ? thrown.message : String(thrown) };
    }
  }

  async #heartbeat(more: { capabilities?: Capabilities } = {}) {
    const held = [...this.#running];
    for (const running of held) this.#endStalled(running);
    try {
      const verdicts = await this.#options.service.heartbeat({
        tasks: held.map(({ task }) => ({ task_id: task.task_id, fence: task.fence })),
        draining: this.#draining,
        loaded: [...new Set(this.#slots.flatMap(({ loaded }) => loaded))],
        ...more,
      });
      this.#lastHeartbeat = this.#options.clock();
      for (const running of held) {
        const said = verdicts.find(({ task_id }) => task_id === running.task.task_id);
        if (said && this.#running.has(running)) this.#heed(running, said.verdict);
      }
    } catch (thrown) {
      if (thrown instanceof NodeRefused) this.#fail(thrown);
      else this.#options.log.warning("heartbeat_failed", { error: thrown });
    }
  }

  /** A child that hangs in native code would keep its lease and its slot for ever. */
  #endStalled(running: Running) {
    const { lastSign, stalled, left, task, slot } = running;
    const silentMs = this.#options.clock() - lastSign;
    if (stalled || left || silentMs < (this.#options.stallMs ?? STALL_MS)) return;
    running.stalled = true;
    this.#options.log.error("task_stalled", { task_id: task.task_id, seconds: silentMs / 1_000 });
    void slot.end({ atOnce: true });
  }

  /** Does what is wanted of a task; only something harder replaces what was wanted before. */
  #heed(running: Running, verdict: Verdict) {
    if (running.left) {
      // Also what ended and was reported is lost to whoever asks for it again.
      if (verdict === "lost") running.abandoned.abort();
      return;
    }
    if (HARDNESS[verdict] <= HARDNESS[running.wanted]) return;
    running.wanted = verdict;
    const { task_id } = running.task;
    this.#options.log.info("verdict", { task_id, verdict });
    if (verdict === "cancel") running.slot.cancel(task_id);
    if (verdict === "revoke") void running.slot.end();
    if (verdict === "lost") {
      running.abandoned.abort();
      void running.slot.end({ atOnce: true });
    }
  }

  /** Ends a task that did not end in time; it goes back to the queue as it was. */
  #snooze(running: Running) {
    // Not waited for without end: a service that is away lets the lease run out.
    setTimeout(() => running.abandoned.abort(), FINISH_MS_MAX).unref();
    if (HARDNESS.snooze <= HARDNESS[running.wanted]) return;
    running.wanted = "snooze";
    void running.slot.end();
  }
}

const STALLED: Outcome = {
  outcome: "failed",
  code: "node_stalled",
  detail: "the task showed no sign of life for too long and was ended",
  retryable: true,
};

const WAITED_FOR: readonly string[] = ["preview", "segment", "frames", "warm", "predict"];
const isWaitedFor = (kind: string) => WAITED_FOR.includes(kind);
/** Any kind that is neither waited for nor training. */
const GENERAL = "label";
const isShared = (kind: string) => kind === "predict" || kind === "warm";
/** As many images as a model takes at once on the largest machine. */
const SHARED_MAX = 16;

const HARDNESS: Readonly<Record<Verdict | "snooze", number>> = {
  go_on: 0,
  cancel: 1,
  snooze: 2,
  revoke: 3,
  lost: 4,
};

/** What is reported of a task that left its slot; null is nothing. */
export function outcomeOf(left: Left, wanted: Verdict | "snooze"): Outcome | null {
  if (wanted === "lost") return null;
  if (wanted === "revoke") return { outcome: "revoked", exited: true };
  if (left.how === "outcome") return left.outcome;
  // Its process was ended for the sake of another task in it, or since the node drains.
  if (wanted !== "cancel") return { outcome: "snoozed", seconds: 0 };
  return { outcome: "cancelled", result: null };
}
