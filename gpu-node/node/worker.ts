// The supervisor: claims a task for each free slot, renews the leases of what runs, and does with
// each task as the service says. Which slot takes what is `lanes.ts`'s, what follows from a demand
// `held-task.ts`'s. It touches no video and no model: a child process does, and may crash. It
// reports an end only when it saw it.

import { LINE_KIND_NAMES } from "../../shared/tasks/line.ts";
import type { ClaimedTask, Outcome, Verdict } from "../../shared/tasks/node-protocol.ts";
import { HEARTBEAT_SECONDS } from "../../shared/tasks/node-protocol.ts";
import { HOUR, iso } from "../../shared/time.ts";
import { backoffMs } from "./backoff.ts";
import {
  type Action,
  type AttemptEnd,
  claimedTask,
  demandOf,
  demandsExit,
  isStalled,
  leaseOf,
  reportOf,
} from "./held-task.ts";
import {
  claimableKinds,
  claimWaitSeconds,
  isPausable,
  roleOf,
  rolesOf,
  type SlotLoad,
  slotFor,
} from "./lanes.ts";
import type { Line } from "./line.ts";
import type { ObjectReply, ObjectRequest } from "./messages.ts";
import { ProgressReports } from "./progress-reports.ts";
import { LeaseStale, NodeRefusal, RequestRefusal, type Service } from "./service.ts";
import { IMAGE_ARGUMENTS, Slot } from "./slot.ts";
import { taskStatus, type WorkerStatus } from "./status.ts";
import { type CallOutcome, Wakeup } from "./wakeup.ts";
import { countClaim, countEnd, countLost, gaugesOf, type WorkerGauges } from "./worker-figures.ts";
import type { RoleSlot, RunningTask, WorkerOptions, WorkerState } from "./worker-state.ts";

export interface Worker {
  /** Resolves when it stopped working: null after a drain, else why it had to. */
  readonly stopped: Promise<string | null>;
  status(): WorkerStatus;
  /** How it stands, for `/metrics`. */
  gauges(): WorkerGauges;
  /** Claims no more; running tasks have so long, then go back to the queue. */
  drain(withinMs: number): void;
  /** Ends all child processes now. Their leases run out, and their tasks go to others. */
  kill(): Promise<void>;
}

const IDLE_MS = 15_000;
/** The longest silence of honest work is the download of a large video. */
const STALL_MS = 2 * HOUR;
/** How long a report is tried once the time of a drain is over. */
const FINISH_MS_MAX = 10_000;

/** Begins to claim and to do tasks, until it drains or the service does not know the node. */
export function startWorker(options: WorkerOptions): Worker {
  return new Supervisor(options);
}

class Supervisor implements Worker {
  readonly stopped: Promise<string | null>;
  readonly #options: WorkerOptions;
  readonly #since: number;
  readonly #slots: readonly RoleSlot[];
  readonly #running = new Set<RunningTask>();
  readonly #state: WorkerState = {
    phase: "working",
    socketOpen: null,
    line: { open: false, ending: false },
    claiming: false,
    lastHeartbeatAt: null,
    stopReason: null,
    outcomes: {},
  };
  readonly #stopClaiming = new AbortController();
  readonly #wakeup = new Wakeup(this.#stopClaiming.signal);
  readonly #heartbeats: NodeJS.Timeout;
  readonly #closeSocket: () => void;
  readonly #line: Line | null;
  readonly #stop: (reason: string | null) => void;

  constructor(options: WorkerOptions) {
    this.#options = options;
    this.#since = options.clock();
    const { offer, slot, log, service } = options;
    this.#slots = rolesOf(offer.capabilities.slots, offer.capabilities.kinds).map((role) => ({
      role,
      slot: new Slot({
        ...slot,
        runtimeArguments: role === "serving" ? IMAGE_ARGUMENTS : [],
        log,
        onLoaded: () => void this.#heartbeat(),
      }),
    }));
    const stopped = Promise.withResolvers<string | null>();
    this.stopped = stopped.promise;
    this.#stop = stopped.resolve;
    this.#closeSocket = service.listen(
      offer.capabilities.kinds,
      (kind) => this.#call(kind),
      (open) => {
        this.#state.socketOpen = open;
        this.#wakeup.wake();
      },
    );
    this.#line = this.#openLine();
    const heartbeatMs = options.heartbeatMs ?? HEARTBEAT_SECONDS * 1_000;
    this.#heartbeats = setInterval(() => {
      void this.#heartbeat();
      void this.#lookAtModels();
    }, heartbeatMs);
    void this.#heartbeat();
    this.#claimUntilDrained().catch((thrown: unknown) => this.#fail(thrown));
  }

  /** Requests go where what they need is open; null on a node that answers none. */
  #openLine(): Line | null {
    const { offer, service } = this.#options;
    const kinds = LINE_KIND_NAMES.filter((kind) => offer.capabilities.kinds.includes(kind));
    if (kinds.length === 0) return null;
    return service.line({
      kinds,
      answer: async ({ kind, body, ms }, signal) => {
        const own = this.#slots.find(({ role }) => role === roleOf(kind));
        return own ? own.slot.ask(body, ms, signal) : null;
      },
      onOpen: (open) => {
        this.#state.line.open = open;
        void this.#heartbeat();
      },
    });
  }

  status(): WorkerStatus {
    const { phase, socketOpen, lastHeartbeatAt, outcomes } = this.#state;
    return {
      since: iso(this.#since),
      draining: phase === "draining",
      socket: socketOpen === true,
      last_heartbeat_at: lastHeartbeatAt === null ? null : iso(lastHeartbeatAt),
      ended: { ...outcomes },
      slots: this.#slots.flatMap(({ slot }) => {
        const tasks = this.#tasksIn(slot);
        return tasks.length === 0 ? [null] : tasks.map(taskStatus);
      }),
    };
  }

  gauges(): WorkerGauges {
    const kinds = [...this.#running].map(({ held }) => held.task.kind);
    return gaugesOf(this.#state, { since: this.#since, slots: this.#slots, kinds });
  }

  drain(withinMs: number) {
    if (this.#state.phase === "draining") return;
    this.#state.phase = "draining";
    this.#options.log.info("draining", { tasks: this.#running.size, within_ms: withinMs });
    this.#wakeup.wake();
    void this.#heartbeat();
    for (const { slot, held } of this.#running) {
      if (isPausable(held.task.kind)) slot.pause(held.task.task_id);
    }
    setTimeout(() => {
      for (const running of this.#running) this.#snooze(running);
      // The service asks another node for what is not answered yet.
      this.#line?.close();
    }, withinMs).unref();
    this.#state.line.ending = true;
    void (this.#line?.drain() ?? Promise.resolve()).then(() => {
      this.#state.line.ending = false;
      this.#leaveWhenIdle();
    });
  }

  async kill() {
    this.#state.phase = "draining";
    this.#stopClaiming.abort();
    this.#line?.close();
    for (const { held, abandoned } of this.#running) {
      held.demand = "lost";
      abandoned.abort();
    }
    this.#wakeup.wake();
    await Promise.all(this.#slots.map(({ slot }) => slot.end({ force: true })));
    this.#leave();
  }

  /** Stops for good, for a reason that people should read. */
  #fail(thrown: unknown) {
    if (this.#state.stopReason !== null) return;
    this.#state.stopReason = thrown instanceof Error ? thrown.message : String(thrown);
    this.#options.log.error("node_stopped", { error: thrown });
    void this.kill();
  }

  #leave() {
    clearInterval(this.#heartbeats);
    this.#closeSocket();
    this.#line?.close();
    this.#stop(this.#state.stopReason);
  }

  /** After a drain: idle children are ended once nothing runs and no claim is under way. */
  #leaveWhenIdle() {
    const { phase, claiming, line } = this.#state;
    if (phase !== "draining" || this.#running.size > 0 || claiming || line.ending) return;
    Promise.all(this.#slots.map(({ slot }) => slot.end())).then(() => this.#leave());
  }

  /** Claims while there is a free slot, until the node drains. */
  async #claimUntilDrained() {
    for (let failures = 0; this.#state.phase === "working"; ) {
      // From before the claim: what happens while it waits is not missed.
      const woken = this.#wakeup.next();
      const kinds = this.#claimableKinds();
      // A node that can do nothing still says so by its heartbeats.
      if (kinds.length === 0) {
        this.#answer("failed", kinds);
        await woken;
        continue;
      }
      const claim = await this.#claim(kinds, failures);
      failures = claim === "failed" ? failures + 1 : 0;
      const task = claim === "failed" ? null : claim;
      if (task) this.#take(task);
      this.#answer(claim, kinds);
      if (claim === "failed") await this.#wakeup.rest(woken, backoffMs(failures, null));
      else if (task?.more !== true && this.#state.socketOpen !== false)
        await this.#wakeup.rest(woken, this.#options.idleMs ?? IDLE_MS);
    }
    this.#leaveWhenIdle();
  }

  /** What becomes of the service's word that there is a task of a kind. */
  async #call(kind: string): Promise<CallOutcome> {
    const hasRoom = this.#state.phase === "working" && this.#claimableKinds().includes(kind);
    return hasRoom ? this.#wakeup.call(kind) : "busy";
  }

  /** Tells who called what a claim for these kinds came to. */
  #answer(claim: ClaimedTask | null | "failed", kinds: readonly string[]) {
    const room = this.#claimableKinds();
    let taken = claim === "failed" ? null : (claim?.kind ?? null);
    this.#wakeup.answer((kind) => {
      if (claim === null) return kinds.includes(kind) ? "none" : "busy";
      // One task is one caller's; and where more are due, somebody has to have room for them.
      if (taken !== kind || (claim !== "failed" && claim.more && !room.includes(kind)))
        return "busy";
      taken = null;
      return "taken";
    });
  }

  /** One claim; fails only where this node is not known any more. */
  async #claim(
    kinds: readonly string[],
    failuresBefore: number,
  ): Promise<ClaimedTask | null | "failed"> {
    this.#state.claiming = true;
    try {
      const socketOpen = this.#state.socketOpen !== false;
      const waitSeconds = claimWaitSeconds(this.#loads(), { socketOpen });
      return await this.#options.service.claim(kinds, waitSeconds);
    } catch (thrown) {
      if (thrown instanceof NodeRefusal) throw thrown;
      const { log } = this.#options;
      if (failuresBefore % 10 === 0) log.warning("claim_failed", { error: thrown });
      return "failed";
    } finally {
      this.#state.claiming = false;
    }
  }

  #claimableKinds = () => claimableKinds(this.#loads(), this.#options.offer.capabilities.kinds);

  #tasksIn = (slot: Slot) => [...this.#running].filter((running) => running.slot === slot);

  #loads(): (RoleSlot & SlotLoad)[] {
    return this.#slots.map(({ role, slot }) => {
      const kinds = this.#tasksIn(slot).map(({ held }) => held.task.kind);
      return { role, slot, kinds };
    });
  }

  #take(task: ClaimedTask) {
    const load = slotFor(this.#loads(), task.kind);
    if (!load) {
      // The service gives no other kinds than it was asked for.
      const error = new Error(`no slot has room for a task of the kind ${task.kind}`);
      this.#options.log.error("task_lost", { task_id: task.task_id, error });
      return;
    }
    const held = claimedTask(task, this.#options.clock());
    const running: RunningTask = {
      held,
      slot: load.slot,
      reports: this.#reportsOf(() => running),
      abandoned: new AbortController(),
    };
    this.#running.add(running);
    const { task_id, kind, attempt } = task;
    countClaim(kind);
    this.#options.log.info("task_started", { task_id, kind, attempt });
    this.#work(running)
      .catch((thrown: unknown) => {
        if (thrown instanceof NodeRefusal) this.#fail(thrown);
        else this.#options.log.error("task_lost", { task_id, error: thrown });
      })
      .finally(() => {
        this.#running.delete(running);
        running.reports.close();
        this.#wakeup.wake();
        this.#leaveWhenIdle();
      });
  }

  /** Works on a task and reports its end; its lease is renewed until the report was answered. */
  async #work(running: RunningTask) {
    const { held, slot, reports } = running;
    const end = await this.#attempt(running);
    // A process that had to go is reported only once it is gone, also where it ended by itself.
    if (demandsExit(held.demand)) await slot.end();
    held.phase = "reporting";
    const outcome = reportOf(held, end);
    const seconds = (this.#options.clock() - held.since) / 1_000;
    const name = outcome?.outcome ?? "abandoned";
    const { outcomes } = this.#state;
    outcomes[name] = (outcomes[name] ?? 0) + 1;
    const { task_id, kind } = held.task;
    this.#options.log.info("task_ended", { task_id, kind, outcome: name, seconds });
    countEnd({ kind, outcome: name, seconds });
    if (!outcome) return;
    // A later attempt goes on from what the last report said.
    if (outcome.outcome === "failed" || outcome.outcome === "snoozed") await reports.sent();
    await this.#finish(running, outcome);
  }

  async #attempt(running: RunningTask): Promise<AttemptEnd> {
    // The answer to a claim may come while the node begins to drain.
    if (this.#state.phase === "draining") {
      return { how: "outcome", outcome: { outcome: "snoozed", seconds: 0 } };
    }
    const { held, slot, reports } = running;
    return slot.work(held.task, {
      progress: (report) => {
        held.lastSignAt = this.#options.clock();
        // Without the part of a result, which is not for the status page.
        const { done, total, detail } = report;
        held.progress = { done, total, detail };
        reports.report(report);
      },
      request: (request) => this.#request(running, request),
    });
  }

  async #finish({ held, slot, abandoned }: RunningTask, outcome: Outcome) {
    const { log, service } = this.#options;
    const lease = leaseOf(held);
    try {
      await service.finish(lease, outcome, abandoned.signal);
    } catch (thrown) {
      if (abandoned.signal.aborted) return;
      if (thrown instanceof NodeRefusal) throw thrown;
      log.warning("finish_refused", { task_id: lease.taskId, error: thrown });
      if (thrown instanceof LeaseStale) {
        if (thrown.verdict !== "revoke") return;
        // It was revoked while it ended; what is still wanted is that its process is gone.
        held.demand = "revoke";
        await slot.end();
        const revoked: Outcome = { outcome: "revoked", exited: true };
        await service.finish(lease, revoked, abandoned.signal);
      } else if (outcome.outcome === "finished") {
        // The service does not take a result of this shape: the task must not be tried for ever.
        const detail = `the result was refused: ${(thrown as Error).message}`;
        const failed: Outcome = { outcome: "failed", code: "internal", detail, retryable: true };
        await service.finish(lease, failed, abandoned.signal);
      }
    }
  }

  #reportsOf(task: () => RunningTask): ProgressReports {
    return new ProgressReports({
      send: async (progress) => {
        const running = task();
        const { service } = this.#options;
        this.#heed(running, await service.progress(leaseOf(running.held), progress));
      },
      onFailed: (thrown) => {
        if (thrown instanceof NodeRefusal) this.#fail(thrown);
        else if (thrown instanceof LeaseStale) this.#heed(task(), thrown.verdict);
        else this.#options.log.info("progress_not_told", { reason: String(thrown) });
      },
    });
  }

  /** Asks the service for an object on a task's behalf; a failure is for the task to know. */
  async #request(running: RunningTask, request: ObjectRequest): Promise<ObjectReply> {
    const { held, abandoned } = running;
    const { service } = this.#options;
    try {
      return { object: await service.object(leaseOf(held), request, abandoned.signal) };
    } catch (thrown) {
      if (thrown instanceof NodeRefusal) this.#fail(thrown);
      if (thrown instanceof LeaseStale) this.#heed(running, thrown.verdict);
      return { problem: thrown instanceof Error ? thrown.message : String(thrown) };
    }
  }

  /** Says what people put into the folder of models, or took away, since it was looked at. */
  async #lookAtModels() {
    const { offer, log } = this.#options;
    try {
      if (await offer.look()) await this.#heartbeat();
    } catch (error) {
      log.warning("models_not_listed", { error });
    }
  }

  async #heartbeat() {
    const { offer, service } = this.#options;
    const tasks = [...this.#running];
    for (const running of tasks) this.#endStalled(running);
    const { untold: capabilities } = offer;
    try {
      const verdicts = await service.heartbeat({
        tasks: tasks.map(({ held: { task } }) => ({ task_id: task.task_id, fence: task.fence })),
        draining: this.#state.phase === "draining",
        line: this.#state.line.open,
        ...this.#loaded(),
        capabilities,
      });
      if (capabilities) offer.tell(capabilities);
      this.#state.lastHeartbeatAt = this.#options.clock();
      for (const running of tasks) {
        const reply = verdicts.find(({ task_id }) => task_id === running.held.task.task_id);
        if (reply && this.#running.has(running)) this.#heed(running, reply.verdict);
      }
    } catch (thrown) {
      if (thrown instanceof NodeRefusal) return this.#fail(thrown);
      this.#options.log.warning("heartbeat_failed", { error: thrown });
      // An offer that the service does not take, as too long: leases are renewed without it.
      if (!capabilities || !(thrown instanceof RequestRefusal) || thrown.status !== 422) return;
      offer.tell(capabilities);
      await this.#heartbeat();
    }
  }

  /** What is open where requests of the direct line go. */
  #loaded(): Pick<Parameters<Service["heartbeat"]>[0], "loaded" | "loaded_sizes"> {
    const own = new Set(LINE_KIND_NAMES.map(roleOf));
    const slots = this.#slots.flatMap(({ role, slot }) => (own.has(role) ? [slot] : []));
    const sizes: Record<string, number[]> = {};
    for (const { loadedSizes } of slots) {
      for (const [id, sides] of Object.entries(loadedSizes)) {
        sizes[id] = [...(sizes[id] ?? []), ...sides];
      }
    }
    return { loaded: slots.flatMap(({ loaded }) => loaded), loaded_sizes: sizes };
  }

  /** A child that hangs in native code would keep its lease and its slot for ever. */
  #endStalled({ held, slot }: RunningTask) {
    const now = this.#options.clock();
    if (!isStalled(held, now, this.#options.stallMs ?? STALL_MS)) return;
    held.stalled = true;
    const seconds = (now - held.lastSignAt) / 1_000;
    this.#options.log.error("task_stalled", { task_id: held.task.task_id, seconds });
    void slot.end({ force: true });
  }

  /** Does what the service wants of a task. */
  #heed(running: RunningTask, verdict: Verdict) {
    const { held } = running;
    const before = held.demand;
    const actions = demandOf(held, verdict);
    const { task_id } = held.task;
    if (held.demand === "lost" && before !== "lost") countLost(held.task.kind);
    if (held.demand !== before) this.#options.log.info("verdict", { task_id, verdict });
    this.#act(running, actions);
  }

  /** Ends a task that did not end in the time of a drain; it goes back to the queue as it was. */
  #snooze(running: RunningTask) {
    // Not tried without end: a service that is away lets the lease run out.
    setTimeout(() => running.abandoned.abort(), FINISH_MS_MAX).unref();
    this.#act(running, demandOf(running.held, "snooze"));
  }

  #act({ held, slot, abandoned }: RunningTask, actions: readonly Action[]) {
    for (const action of actions) {
      if (action === "cancel") slot.cancel(held.task.task_id);
      if (action === "end") void slot.end();
      if (action === "kill") void slot.end({ force: true });
      if (action === "abandon") abandoned.abort();
    }
  }
}
