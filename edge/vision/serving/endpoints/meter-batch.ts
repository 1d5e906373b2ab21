// What an isolate has to tell a meter: how its requests ended goes there at most once a second, and
// what keys allow comes from there in advance. A meter hears a few calls a second of each isolate,
// whatever the isolate serves; one that is lost takes what it counted in its last second with it.

import { MINUTE } from "../../../../shared/time.ts";
import type { Parts } from "../../base/parts.ts";
import { type FaultFigures, noteFaults } from "./faults.ts";
import {
  type KeyGate,
  type MeterParts,
  type MeterReport,
  type MeterRequest,
  type MeterRpc,
  type MeterShadow,
  meterCalled,
  tell,
} from "./meter.ts";
import { LOST } from "./rollups.ts";

/** Milliseconds between two reports of an isolate to a meter. */
const BATCH_MS = 1_000;
/** How long requests that were taken of a key in advance may be used. */
const ADVANCE_MS = 1_000;
/** What a key waits whose meter has too much to do. */
const OVERLOADED_MS = 1_000;
/** Requests taken of a key at once, and which share of its burst: others take of it too. */
const ADVANCE_MAX = 1_000;
const BURST_SHARE_MAX = 1 / 4;
/** A request that is under way for so long was cut off, and nobody knows how it ended. */
const RUNNING_MS_MAX = 5 * MINUTE;
/** Reports that a request sends at most: the platform lets none go on for longer than 30 s. */
const ROUNDS_MAX = 20;
/** Batches of meters that are held before those are let go that nobody used for so long. */
const HELD_MAX = 1_000;
const UNUSED_MS = 60_000;

type BatchParts = MeterParts & Pick<Parts, "clock" | "database">;
/** Takes what a meter tells of faults. */
type FaultNews = (parts: BatchParts, figures: FaultFigures) => Promise<void>;

/** Requests of a key that were taken in advance. */
interface Advance {
  gate: KeyGate;
  left: number;
  until: number;
  /** Requests let in since it began. */
  used: number;
}

type Untold = Pick<MeterReport, "ended" | "shadows" | "givenBack">;
const nothing = (): Untold => ({ ended: [], shadows: [], givenBack: [] });

/** Whether a request is let in; where it is not, when its key opens again. */
export interface Admission {
  waitMs: number;
  /** Names the request in its isolate; null where it was not let in. */
  number: number | null;
}

/** An isolate's side of a meter. Its promises belong to the requests that called it. */
export class MeterBatch {
  readonly #meter: (parts: MeterParts) => MeterRpc;
  readonly #onFaults: FaultNews | null;
  readonly #isolate = crypto.randomUUID();
  readonly #advances = new Map<string, Advance>();
  /** Keys of which the meter is asked now. */
  readonly #asked = new Set<string>();
  /** When each request that is under way began. */
  readonly #running = new Map<number, number>();
  #begun = 0;
  #untold = nothing();
  #reports = 0;
  #sentAt = Number.NEGATIVE_INFINITY;
  /** When the next report goes; null where none is due. */
  #dueAt: number | null = null;
  #usedAt = 0;

  constructor(meter: (parts: MeterParts) => MeterRpc, onFaults: FaultNews | null) {
    this.#meter = meter;
    this.#onFaults = onFaults;
  }

  /** Whether nobody needs it any more. */
  isUnused(now: number): boolean {
    return this.#running.size === 0 && this.#usedAt < now - UNUSED_MS;
  }

  /**
   * Lets a request in, which is under way until `end` is told its number; or says after how many
   * milliseconds its key opens again.
   */
  async begin(parts: BatchParts, gate: KeyGate | null): Promise<Admission> {
    const waitMs = gate ? await this.#take(parts, gate).catch(waitFor(parts)) : 0;
    if (waitMs > 0) return { waitMs, number: null };
    this.#begun += 1;
    this.#running.set(this.#begun, parts.clock());
    return { waitMs: 0, number: this.#begun };
  }

  /** Tells, within a second, that requests are under way. */
  tellBegun(parts: BatchParts): Promise<void> {
    return this.#sendBy(parts, parts.clock() + BATCH_MS);
  }

  /** Counts how a request ended, by its number where it was let in. Never fails. */
  end(parts: BatchParts, request: MeterRequest, number: number | null): Promise<void> {
    // Whoever took longer than any request does has been counted.
    if (number !== null && !this.#running.delete(number)) return Promise.resolve();
    this.#untold.ended.push(request);
    return this.#send(parts);
  }

  /** Counts what a shadow's look came to. Never fails. */
  shadow(parts: BatchParts, shadow: MeterShadow): Promise<void> {
    this.#untold.shadows.push(shadow);
    return this.#send(parts);
  }

  async #take(parts: BatchParts, gate: KeyGate): Promise<number> {
    const { keyId, limit } = gate;
    const began = parts.clock();
    if (this.#useAdvance(gate, began)) return 0;
    const before = this.#advances.get(keyId);
    // As many as came of late are expected again; one request asks for all of them.
    const isOfLate = before !== undefined && began < before.until + ADVANCE_MS;
    const expected = isOfLate && !this.#asked.has(keyId) ? before.used : 1;
    const shareMax = Math.min(ADVANCE_MAX, Math.floor(limit.burst * BURST_SHARE_MAX));
    const wanted = Math.max(1, Math.min(shareMax, expected));
    if (wanted > 1) this.#asked.add(keyId);
    const { count, waitMs } = await this.#meter(parts)
      .take(gate, wanted)
      .finally(() => wanted > 1 && this.#asked.delete(keyId));
    const now = parts.clock();
    // Another request may have taken some meanwhile.
    if (count === 0) return this.#useAdvance(gate, now) ? 0 : waitMs;
    const held = this.#advances.get(keyId);
    if (held && now < held.until && sameLimit(held.gate, gate)) {
      held.left += count - 1;
      held.used += 1;
      return 0;
    }
    if (held && held.left > 0) this.#untold.givenBack.push({ gate: held.gate, count: held.left });
    this.#advances.set(keyId, { gate, left: count - 1, until: now + ADVANCE_MS, used: 1 });
    return 0;
  }

  /** Lets a request in by what was taken in advance, if there is any. */
  #useAdvance(gate: KeyGate, now: number): boolean {
    const held = this.#advances.get(gate.keyId);
    if (!held || held.left === 0 || now >= held.until || !sameLimit(held.gate, gate)) return false;
    held.left -= 1;
    held.used += 1;
    return true;
  }

  #send(parts: BatchParts): Promise<void> {
    return this.#sendBy(parts, this.#sentAt + BATCH_MS);
  }

  /**
   * Sends a report by an instant, unless somebody does so anyway, and further ones while something
   * that was taken in advance may have to go back.
   */
  async #sendBy(parts: BatchParts, instant: number): Promise<void> {
    let due: number | null = instant;
    for (let round = 0; due !== null && round < ROUNDS_MAX; round++) {
      if (!(await this.#isMine(parts, due))) return;
      await this.#report(parts);
      const open = [...this.#advances.values()].filter(({ left }) => left > 0);
      due = open.length > 0 ? Math.max(...open.map(({ until }) => until)) : null;
    }
  }

  /** Waits until an instant; whether the report that is due then is still the caller's to send. */
  async #isMine(parts: BatchParts, instant: number): Promise<boolean> {
    const now = parts.clock();
    this.#usedAt = now;
    const due = Math.max(now, instant);
    const before = this.#dueAt;
    // Whoever was to send it may have been cut off.
    if (before !== null && before <= due && before > now - BATCH_MS) return false;
    this.#dueAt = due;
    if (due > now) await new Promise((done) => setTimeout(done, due - now));
    if (this.#dueAt !== due) return false;
    this.#dueAt = null;
    return true;
  }

  async #report(parts: BatchParts): Promise<void> {
    const now = parts.clock();
    this.#sentAt = now;
    this.#countLost(now);
    this.#endAdvances(now);
    const untold = this.#untold;
    this.#untold = nothing();
    this.#reports += 1;
    const told = { isolate: this.#isolate, number: this.#reports, running: this.#running.size };
    const faults = await tell(parts, () => this.#meter(parts).report({ ...told, ...untold }));
    if (faults) await this.#onFaults?.(parts, faults);
  }

  /** Counts requests that were cut off with their context: they never told how they ended. */
  #countLost(now: number) {
    for (const [number, began] of this.#running) {
      if (began > now - RUNNING_MS_MAX) break;
      this.#running.delete(number);
      this.#untold.ended.push({ ...LOST, at: began, modelId: null });
    }
  }

  /** Gives back what is left of advances whose time is over. */
  #endAdvances(now: number) {
    for (const [keyId, advance] of this.#advances) {
      const { gate, left, until } = advance;
      if (until > now) continue;
      if (left > 0) this.#untold.givenBack.push({ gate, count: left });
      advance.left = 0;
      if (until + ADVANCE_MS <= now) this.#advances.delete(keyId);
    }
  }
}

/** What a key waits whose meter fails: one that is away stops nobody, a limit is for a busy one. */
const waitFor =
  ({ log }: BatchParts) =>
  (error: unknown): number => {
    log.warning("meter", { error });
    return (error as { overloaded?: boolean }).overloaded ? OVERLOADED_MS : 0;
  };

const sameLimit = ({ limit: one }: KeyGate, { limit: other }: KeyGate) =>
  one.burst === other.burst && one.requestsPerMinute === other.requestsPerMinute;

/** The batches of an isolate, by the namespace of their meters. */
const batches = new WeakMap<object, Map<string, MeterBatch>>();

function batchCalled(
  { meters, clock }: BatchParts,
  name: string,
  onFaults: FaultNews | null = null,
): MeterBatch {
  const held = batches.get(meters) ?? new Map<string, MeterBatch>();
  batches.set(meters, held);
  const found = held.get(name);
  if (found) return found;
  if (held.size >= HELD_MAX) {
    for (const [other, batch] of held) if (batch.isUnused(clock())) held.delete(other);
  }
  const made = new MeterBatch((parts) => meterCalled(parts, name), onFaults);
  held.set(name, made);
  return made;
}

/** This isolate's side of an endpoint's meter. */
export const endpointBatch = (parts: BatchParts, endpointId: string): MeterBatch =>
  batchCalled(parts, `endpoint:${endpointId}`, (own, faults) =>
    noteFaults(own, endpointId, faults),
  );

/** This isolate's side of the meter of a workspace's default routes. */
export const defaultBatch = (parts: BatchParts, workspaceId: string): MeterBatch =>
  batchCalled(parts, `workspace:${workspaceId}`);
