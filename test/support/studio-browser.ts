// Browsers that work on a job in virtual time: tabs that can be killed at any moment, one storage
// and one lock a browser, and a connection that loses, doubles and delays requests and answers.

import type { EditRequest } from "../../edge/studio/boxes/edit.ts";
import type { Reply } from "../../edge/studio/boxes/edits-exchange.ts";
import { uuidSource } from "../../edge/studio/boxes/identity.ts";
import { JobBoxes, type JobPorts } from "../../edge/studio/boxes/job.ts";
import type { TabMessage } from "../../edge/studio/boxes/outbox.ts";
import type { OutboxEntry } from "../../edge/studio/boxes/outbox-queue.ts";
import { memoryStore, type OutboxStore } from "../../edge/studio/boxes/outbox-store.ts";
import { dice } from "./dice.ts";
import { EditServer, JOB } from "./edit-server.ts";

/** Time that passes when nothing else is left to do. */
export class VirtualTime {
  now = 1_800_000_000_000;
  #calls: { at: number; order: number; call: () => void }[] = [];
  #order = 0;

  after(milliseconds: number, call: () => void): () => void {
    const entry = { at: this.now + milliseconds, order: this.#order, call };
    this.#order += 1;
    const index = this.#calls.findLastIndex((one) => one.at <= entry.at);
    this.#calls.splice(index + 1, 0, entry);
    return () => {
      const position = this.#calls.indexOf(entry);
      if (position >= 0) this.#calls.splice(position, 1);
    };
  }

  /** Lets everything happen that is due within milliseconds, in order. */
  async pass(milliseconds: number): Promise<void> {
    const end = this.now + milliseconds;
    await rest();
    for (let next = this.#calls[0]; next && next.at <= end; next = this.#calls[0]) {
      this.#calls.shift();
      this.now = next.at;
      next.call();
      await rest();
    }
    this.now = end;
  }
}

/** Resolves once no promise is left that could go on by itself. */
const rest = () => new Promise<void>((done) => setImmediate(done));

/** How a connection fails: shares of requests, and the delay in milliseconds at most. */
export interface Faults {
  dropsRequest: number;
  dropsAnswer: number;
  doubles: number;
  fails: number;
  delay: number;
}

/** Milliseconds of a transaction, at most. */
const STORE_MS = 10;

export const NO_FAULTS: Faults = {
  dropsRequest: 0,
  dropsAnswer: 0,
  doubles: 0,
  fails: 0,
  delay: 0,
};

/** An answer as `fetch` gives it. */
export const replyOf = (
  status: number,
  body: unknown,
  headers: Record<string, string> = {},
): Reply => ({
  status,
  headers: { get: (name) => headers[name] ?? null },
  json: async () => structuredClone(body),
});

/** What tests of one scenario share. */
export interface Scenario {
  time: VirtualTime;
  server: EditServer;
  random: () => number;
  faults: Faults;
}

/** Id of a box that the server has from the start. */
export const boxId = (index: number) =>
  `00000000-0000-7000-8000-${String(index).padStart(12, "0")}`;

/** A job with boxes of a model; numbers repeat with the seed. */
export function scenarioOf(seed: number, boxes: number, faults = NO_FAULTS): Scenario {
  const random = dice(seed);
  const server = new EditServer(random);
  for (let index = 0; index < boxes; index++) server.seed(boxId(index));
  return { time: new VirtualTime(), server, random, faults };
}

/** A tab with the job open. */
export class Tab {
  isAlive = true;
  isOnline = true;
  readonly job: JobBoxes;
  readonly requests: EditRequest[][] = [];
  readonly #end: (() => void)[] = [];
  readonly #browser: Browser;
  #heardAt = 0;

  constructor(browser: Browser) {
    this.#browser = browser;
    this.job = new JobBoxes(JOB, this.#ports());
    this.#end.push(
      browser.scenario.server.subscribe((event) => {
        if (!this.isOnline) return;
        this.#later(() => this.isOnline && this.job.receive(event));
      }),
    );
  }

  /** Ends as a crash does: nothing of the tab happens any more. */
  kill(): void {
    this.isAlive = false;
    for (const end of this.#end.splice(0)) end();
  }

  /** Loses the live events until it is back, when it reads what changed. */
  setOnline(isOnline: boolean): void {
    const wasOnline = this.isOnline;
    this.isOnline = isOnline;
    if (isOnline && !wasOnline) void this.job.refresh();
  }

  #later(call: () => void): void {
    const { time, random, faults } = this.#browser.scenario;
    time.after(random() * faults.delay, () => this.isAlive && call());
  }

  /** Calls back later, after the calls before it: a channel keeps its order. */
  #inOrder(call: () => void): void {
    const { time, random, faults } = this.#browser.scenario;
    this.#heardAt = Math.max(this.#heardAt, time.now + random() * faults.delay);
    time.after(this.#heardAt - time.now, () => this.isAlive && call());
  }

  #delayed<Value>(value: Value): Promise<Value> {
    return new Promise((done) => this.#later(() => done(value)));
  }

  #ports(): JobPorts {
    const browser = this.#browser;
    const { time, server, random } = browser.scenario;
    const now = () => time.now;
    return {
      send: (_, edits) => this.#send(structuredClone(edits)),
      columns: async (after) => {
        await this.#delayed(null);
        if (!this.isOnline && after !== null) throw new TypeError("offline");
        return this.#delayed(server.columns(after));
      },
      store: {
        load: async (job) => this.#delayed(await browser.store.load(job)),
        write: async (job, change) => {
          await new Promise((done) =>
            time.after(random() * STORE_MS, () => this.isAlive && done(null)),
          );
          await browser.write(job, change);
        },
      },
      lock: (name, held, signal) => {
        const leave = browser.enqueue(name, () => {
          if (this.isAlive) void held().then(leave);
        });
        signal.addEventListener("abort", leave);
        this.#end.push(leave);
      },
      channel: {
        post: (message) => this.isAlive && browser.post(this, message),
        listen: (hear) => browser.listen(this, (message) => this.#inOrder(() => hear(message))),
      },
      now,
      after: (milliseconds, call) => time.after(milliseconds, () => this.isAlive && call()),
      random,
      newId: uuidSource(now, random),
    };
  }

  async #send(edits: readonly EditRequest[]): Promise<Reply> {
    const browser = this.#browser;
    const { server, random, faults, time } = browser.scenario;
    this.requests.push([...edits]);
    const isHit = (share: number) => random() < share;
    if (browser.reply) return this.#delayed(browser.reply(edits));
    if (!this.isOnline || isHit(faults.dropsRequest)) {
      await this.#delayed(null);
      throw new TypeError("fetch failed");
    }
    if (isHit(faults.fails)) return this.#delayed(replyOf(503, { code: "busy" }));
    const arrive = () => replyOf(200, server.edit(browser.account, edits));
    // A request may arrive after its tab is gone, and once more after its answer.
    if (isHit(faults.doubles)) time.after(random() * faults.delay * 5, arrive);
    const reply = await new Promise<Reply>((done) =>
      time.after(random() * faults.delay, () => done(arrive())),
    );
    await this.#delayed(null);
    if (isHit(faults.dropsAnswer)) throw new TypeError("connection reset");
    return reply;
  }
}

/** A browser with its storage, which outlives its tabs. */
export class Browser {
  readonly account: string;
  readonly scenario: Scenario;
  readonly store: OutboxStore = memoryStore();
  /** Answers instead of the server, where it is set. */
  reply: ((edits: readonly EditRequest[]) => Reply) | null = null;
  /** Whether storage refuses writes. */
  isFull = false;
  /** All forms of every entry that was stored, by key. */
  readonly entries = new Map<string, OutboxEntry[]>();
  readonly #queues = new Map<string, (() => void)[]>();
  readonly #channels = new Map<Tab, Set<(message: TabMessage) => void>>();

  constructor(account: string, scenario: Scenario) {
    this.account = account;
    this.scenario = scenario;
  }

  /** Opens the job in a tab of its own, which takes time. */
  async open(): Promise<Tab> {
    const tab = new Tab(this);
    let isOpen = false;
    const opened = tab.job.open().then(() => {
      isOpen = true;
    });
    while (!isOpen) await this.scenario.time.pass(100);
    await opened;
    return tab;
  }

  async write(...[job, change]: Parameters<OutboxStore["write"]>): Promise<void> {
    if (this.isFull) throw new DOMException("full", "QuotaExceededError");
    for (const entry of change.put) {
      this.entries.set(entry.key, [...(this.entries.get(entry.key) ?? []), entry]);
    }
    await this.store.write(job, change);
  }

  /** Calls back when the lock is free; the returned function gives it, or the wait, up. */
  enqueue(name: string, take: () => void): () => void {
    const queue = this.#queues.get(name) ?? [];
    this.#queues.set(name, queue);
    queue.push(take);
    if (queue.length === 1) queueMicrotask(take);
    return () => {
      const index = queue.indexOf(take);
      if (index < 0) return;
      queue.splice(index, 1);
      if (index === 0 && queue[0]) queueMicrotask(queue[0]);
    };
  }

  post(from: Tab, message: TabMessage): void {
    for (const [tab, listeners] of this.#channels) {
      if (tab === from || !tab.isAlive) continue;
      for (const hear of listeners) hear(structuredClone(message));
    }
  }

  listen(tab: Tab, hear: (message: TabMessage) => void): () => void {
    const listeners = this.#channels.get(tab) ?? new Set();
    this.#channels.set(tab, listeners.add(hear));
    return () => listeners.delete(hear);
  }
}
