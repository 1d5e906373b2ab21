// The outbox of a job: changes are stored, sent in batches by one tab, sent again until the server
// answered each, and shown as cards where people have to decide. Killed at any moment it goes on
// after a reload: every change keeps the id by which the server knows that it took it.

import { requestOf } from "./edit.ts";
import {
  answersOf,
  type EditsReply,
  type Exchange,
  type ExchangePorts,
  errorOf,
  exchangeEdits,
  isSignedOut,
  isTemporary,
} from "./edits-exchange.ts";
import type { StepChanges } from "./history.ts";
import { type OutboxEntry, OutboxQueue, type Outcome, type QueueChange } from "./outbox-queue.ts";
import type { OutboxStore, StoredOutbox } from "./outbox-store.ts";
import { StoreWriter } from "./store-writer.ts";

/** What tabs of one browser tell each other of a job's outbox. */
export type TabMessage =
  | ({ kind: "change"; edits_seq: number } & QueueChange)
  /** A tab was opened or left: stored entries may be unknown to the one that sends. */
  | { kind: "hello" }
  | { kind: "signed-out" }
  | { kind: "signed-in" };

/** Everything that the outbox needs of the world. */
export interface OutboxPorts extends ExchangePorts {
  store: OutboxStore;
  /** Calls `held` once this tab alone has the name's lock, and keeps it until `held` is done. */
  lock(name: string, held: () => Promise<void>, signal: AbortSignal): void;
  /** A channel to the other tabs, which does not echo. */
  channel: {
    post(message: TabMessage): void;
    listen(hear: (message: TabMessage) => void): () => void;
  };
  /** A number in [0, 1). */
  random(): number;
  /** A new UUID, greater than the ones before. */
  newId(): string;
}

/** The owner of an outbox. */
export interface OutboxOwner {
  /**
   * Takes what became of entries, before that is stored; `editsSeq`: number of the newest edit that
   * the answer knows.
   */
  takeOutcomes(outcomes: readonly Outcome[], editsSeq: number): void;
  /** Other tabs' entries came or the state changed. */
  changed(ids: readonly string[]): void;
  /** Changes of the server after a number were missed. */
  behind(since: number): void;
  /** Steps to store in the same transaction. */
  takeSteps(): StepChanges;
}

/** What people are told of the connection. */
export interface OutboxStatus {
  /** Changes that the server has not taken yet. */
  waiting: number;
  /** Requests that failed since the last answer; 0 while all is well. */
  failures: number;
  signedOut: boolean;
  /** False: this browser stores nothing, so what waits is lost with the page. */
  stored: boolean;
}

export const BATCH_MAX = 500;
/** From so many waiting changes on a batch is sent at once, else after the delay. */
const BATCH_EARLY = 50;
const BATCH_DELAY_MS = 80;
const BACKOFF_MS = 500;
const BACKOFF_MS_MAX = 60_000;

export class Outbox {
  readonly queue = new OutboxQueue();
  readonly #job: string;
  readonly #ports: OutboxPorts;
  readonly #owner: OutboxOwner;
  /** Entries whose newest form is not stored yet, by key. */
  readonly #unstored = new Map<string, OutboxEntry>();
  readonly #stop = new AbortController();
  readonly #writer: StoreWriter;
  #isSender = false;
  #isSending = false;
  #cancelTimer: (() => void) | undefined;
  /** Whether the timer is one of a failure, before which nothing is sent. */
  #isBackingOff = false;
  #failures = 0;
  #signedOut = false;
  #isReadable = true;
  #isStarted = false;
  /** Messages of other tabs from before the start. */
  readonly #unheard: TabMessage[] = [];
  /** Rises with each entry that leaves the queue. */
  #removed = 0;
  /** Rows a request may have: fewer while one that is refused as a whole is looked for. */
  #batchMax = BATCH_MAX;

  constructor(job: string, ports: OutboxPorts, owner: OutboxOwner) {
    this.#job = job;
    this.#ports = ports;
    this.#owner = owner;
    this.#writer = new StoreWriter(job, ports.store);
  }

  get status(): OutboxStatus {
    const [waiting, failures] = [this.queue.size, this.#failures];
    const stored = this.#isReadable && this.#writer.isStored;
    return { waiting, failures, signedOut: this.#signedOut, stored };
  }

  /** Loads what is stored; nothing is sent before `start`. */
  async load(): Promise<StoredOutbox> {
    const { signal } = this.#stop;
    // What other tabs tell while the store is read is newer than what is read.
    const deaf = this.#ports.channel.listen((message) => {
      if (this.#isStarted) this.#hear(message);
      else this.#unheard.push(message);
    });
    signal.addEventListener("abort", deaf);
    const stored = await this.#readStore();
    for (const entry of stored.entries) this.queue.put({ ...entry, tried: true });
    return stored;
  }

  /** Sends from now on, once no other tab does. */
  start(): void {
    const { channel, lock } = this.#ports;
    const { signal } = this.#stop;
    this.#isStarted = true;
    for (const message of this.#unheard.splice(0)) this.#hear(message);
    channel.post({ kind: "hello" });
    const held = async () => {
      if (signal.aborted) return;
      await this.#readAgain();
      this.#isSender = true;
      // The tab that sent before may have ended before it could tell what was answered.
      channel.post({ kind: "hello" });
      this.#wake();
      await new Promise((done) => signal.addEventListener("abort", done));
    };
    lock(`outbox:${this.#job}`, held, signal);
  }

  /** Leaves the rest to other tabs, or to the next start. */
  stop(): void {
    this.#stop.abort();
    this.#cancelTimer?.();
    this.#isSender = false;
  }

  /** Takes up new entries, and forgets the cards that they stand for. */
  enqueue(entries: readonly OutboxEntry[], closed: readonly string[] = []): void {
    for (const entry of entries) this.queue.put(entry);
    for (const key of closed) this.queue.remove(key);
    const change = { put: [...entries], remove: [...closed], outcomes: [] };
    void this.#store(change).then(() => this.#tell(change, 0));
  }

  /** Goes on after somebody signed in. */
  signedIn(): void {
    this.#signedOut = false;
    this.#ports.channel.post({ kind: "signed-in" });
    this.retry();
  }

  /** Sends at once instead of after the rest of a delay: the connection is back. */
  retry(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    this.#isBackingOff = false;
    void this.#flush();
  }

  /** Resolves when all changes so far are stored. */
  written(): Promise<void> {
    return this.#writer.write({ put: [], remove: [], steps: { put: [], remove: [] } });
  }

  async #readStore(): Promise<StoredOutbox> {
    try {
      return await this.#ports.store.load(this.#job);
    } catch {
      this.#isReadable = false;
      return { entries: [], steps: [] };
    }
  }

  /**
   * Takes up stored entries that this tab does not know, and forgets those that another tab had
   * answered before it could tell.
   */
  async #readAgain(): Promise<void> {
    const removed = this.#removed;
    await this.written();
    const known = this.status.stored ? [...this.queue.waiting()] : [];
    const stored = known.filter(({ key }) => !this.#unstored.has(key));
    const { entries } = await this.#readStore();
    // What was answered while the store was read is no news.
    if (removed !== this.#removed) return this.#readAgain();
    const news = entries.filter(({ key }) => !this.queue.has(key));
    for (const entry of news) this.queue.put({ ...entry, tried: true });
    const keys = new Set(entries.map(({ key }) => key));
    const gone = stored.filter(({ key }) => this.#isReadable && !keys.has(key));
    for (const { key } of gone) this.queue.remove(key);
    this.#owner.changed([...news, ...gone].map(({ row }) => row.id));
    if (gone.length > 0) this.#owner.behind(Math.min(...gone.map(({ since }) => since)));
  }

  #hear(message: TabMessage): void {
    if (message.kind === "hello") {
      void this.#readAgain().then(() => this.#wake());
      return;
    }
    if (message.kind !== "change") {
      this.#signedOut = message.kind === "signed-out";
      if (!this.#signedOut) this.retry();
      this.#owner.changed([]);
      return;
    }
    for (const { key } of message.put) this.#unstored.delete(key);
    for (const key of message.remove) this.queue.remove(key);
    this.#removed += message.remove.length;
    for (const outcome of message.outcomes) {
      if (outcome.kind === "applied") this.queue.noteMade(outcome.entry.key, outcome.revision);
    }
    for (const entry of message.put) this.queue.put(entry);
    this.#owner.takeOutcomes(message.outcomes, message.edits_seq);
    const outcomes = message.outcomes.map(({ entry }) => entry.row.id);
    const ids = new Set([...message.put.map(({ row }) => row.id), ...outcomes]);
    // An own entry may follow one that was answered in the other tab.
    for (const id of ids) for (const entry of this.queue.waitingFor(id)) this.queue.put(entry);
    this.#owner.changed([...ids]);
    void this.#store({ put: [], remove: [], outcomes: [] });
    this.#wake();
  }

  #tell(change: QueueChange, editsSeq: number): void {
    if (this.#stop.signal.aborted) return;
    this.#ports.channel.post({ kind: "change", edits_seq: editsSeq, ...change });
  }

  /** Stores a change after those before it, with the steps that changed. */
  async #store({ put, remove }: QueueChange): Promise<void> {
    for (const entry of put) this.#unstored.set(entry.key, entry);
    this.#removed += remove.length;
    await this.#writer.write({ put, remove, steps: this.#owner.takeSteps() });
    // What cannot be stored is sent all the same.
    for (const entry of put) {
      if (this.#unstored.get(entry.key) === entry) this.#unstored.delete(entry.key);
    }
    this.#wake();
  }

  #ready(max: number): OutboxEntry[] {
    return this.queue.heads(max, ({ key }) => !this.#unstored.has(key));
  }

  /** Whether a request may go out now, as far as this tab is concerned. */
  get #maySend(): boolean {
    const isOn = this.#isSender && !this.#signedOut && !this.#stop.signal.aborted;
    return isOn && !this.#isSending && !this.#isBackingOff;
  }

  #wake(): void {
    if (!this.#maySend) return;
    const ready = this.#ready(BATCH_EARLY).length;
    if (ready >= BATCH_EARLY) this.retry();
    else if (ready > 0) this.#cancelTimer ??= this.#later(BATCH_DELAY_MS, () => this.#flush());
  }

  #later(milliseconds: number, call: () => void): () => void {
    return this.#ports.after(milliseconds, () => {
      this.#cancelTimer = undefined;
      call();
    });
  }

  async #flush(): Promise<void> {
    const batch = this.#maySend ? this.#ready(this.#batchMax) : [];
    if (batch.length === 0) return;
    this.#isSending = true;
    const requests = batch.map(({ row, edit_id }) => requestOf(row, edit_id));
    const reply = await exchangeEdits(this.#job, requests, this.#ports);
    this.#isSending = false;
    if (this.#stop.signal.aborted) return;
    this.#take(batch, reply);
    this.#wake();
  }

  #take(batch: readonly OutboxEntry[], reply: Exchange | null): void {
    if (!reply || isTemporary(reply)) this.#backOff(batch, reply?.wait ?? 0);
    else if (isSignedOut(reply)) {
      this.#signedOut = true;
      this.#ports.channel.post({ kind: "signed-out" });
      this.#owner.changed([]);
    } else if (reply.status >= 400) this.#refuse(batch, reply);
    else this.#answer(batch, answersOf(reply.body));
  }

  #backOff(batch: readonly OutboxEntry[], wait: number): void {
    // Part of it may have arrived.
    for (const { key } of batch) this.queue.markTried(key);
    const own = Math.min(BACKOFF_MS_MAX, BACKOFF_MS * 2 ** this.#failures);
    this.#failures += 1;
    this.#isBackingOff = true;
    this.#cancelTimer?.();
    const delay = Math.max(wait, own * (0.5 + this.#ports.random() / 2));
    this.#cancelTimer = this.#later(delay, () => this.retry());
    this.#owner.changed([]);
  }

  /** A request that is refused as a whole: for all its rows, or for one that is looked for. */
  #refuse(batch: readonly OutboxEntry[], { status, body }: Exchange): void {
    if (status !== 403 && status !== 404 && batch.length > 1) {
      this.#batchMax = Math.ceil(batch.length / 2);
      return;
    }
    const { code, detail } = errorOf(body);
    const result = { status: "refused" as const, code, detail };
    const results = batch.map(({ edit_id }) => ({ edit_id, ...result }));
    this.#answer(batch, { edits_seq: 0, results });
  }

  #answer(batch: readonly OutboxEntry[], { edits_seq, results }: EditsReply): void {
    const byId = new Map(results.map((result) => [result.edit_id, result]));
    const all: QueueChange = { put: [], remove: [], outcomes: [] };
    let answered = 0;
    for (const { key, edit_id } of batch) {
      const result = byId.get(edit_id);
      const entry = this.queue.get(key);
      if (!result || entry?.edit_id !== edit_id || entry.card) continue;
      answered += 1;
      const change = this.queue.answer(entry, result, this.#ports.newId);
      all.put.push(...change.put);
      all.remove.push(...change.remove);
      all.outcomes.push(...change.outcomes);
    }
    if (answered === 0) {
      this.#backOff(batch, 0);
      return;
    }
    this.#failures = 0;
    this.#batchMax = Math.min(BATCH_MAX, this.#batchMax * 2);
    this.#owner.takeOutcomes(all.outcomes, edits_seq);
    // Stored first: a tab that opens meanwhile finds it there, or hears of it.
    void this.#store(all).then(() => this.#tell(all, edits_seq));
    this.#owner.changed(all.outcomes.map(({ entry }) => entry.row.id));
  }
}
