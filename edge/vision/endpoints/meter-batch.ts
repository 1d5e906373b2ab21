// What an isolate has to tell a meter: how its requests ended goes there at most once a second, and
// what keys allow comes from there in advance. A meter hears a few calls a second of each isolate,
// whatever the isolate serves; one that is lost takes what it counted in its last second with it.

import type { Parts } from "../base/parts.ts";
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

/** Milliseconds between two reports of an isolate to a meter. */
const BATCH_MS = 1_000;
/** How long requests that were taken of a key in advance may be used. */
const ADVANCE_MS = 1_000;
/** What a key waits whose meter has too much to do. */
const OVERLOADED_MS = 1_000;
/** Requests taken of a key at once. */
const ADVANCE_MAX = 1_000;
/** Batches of meters that are held before those are let go that nobody used for so long. */
const HELD_MAX = 1_000;
const UNUSED_MS = 60_000;

type BatchParts = MeterParts & Pick<Parts, "clock">;

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

/** An isolate's side of a meter. Its promises belong to the requests that called it. */
export class MeterBatch {
  readonly #meter: (parts: MeterParts) => MeterRpc;
  readonly #isolate = crypto.randomUUID();
  readonly #advances = new Map<string, Advance>();
  #untold = nothing();
  #running = 0;
  #reports = 0;
  #sentAt = Number.NEGATIVE_INFINITY;
  /** When the next report goes; null where none is due. */
  #dueAt: number | null = null;
  #usedAt = 0;

  constructor(meter: (parts: MeterParts) => MeterRpc) {
    this.#meter = meter;
  }

  /** Whether nobody needs it any more. */
  isUnused(now: number): boolean {
    return this.#running === 0 && this.#usedAt < now - UNUSED_MS;
  }

  /**
   * Lets a request in, or returns the milliseconds until its key opens again. One that was let in
   * is under way until `end`.
   */
  async begin(parts: BatchParts, gate: KeyGate | null): Promise<number> {
    const waitMs = gate ? await this.#take(parts, gate).catch(waitFor(parts)) : 0;
    if (waitMs === 0) this.#running += 1;
    return waitMs;
  }

  /** Tells, within a second, that requests are under way. */
  tellBegun(parts: BatchParts): Promise<void> {
    return this.#sendBy(parts, parts.clock() + BATCH_MS);
  }

  /** Counts how a request ended; `hasBegun` where it was let in. Never fails. */
  end(parts: BatchParts, request: MeterRequest, { hasBegun }: { hasBegun: boolean }) {
    if (hasBegun) this.#running -= 1;
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
    const before = this.#advances.get(keyId);
    const now = parts.clock();
    const isKnown = before !== undefined && sameLimit(before.gate, gate);
    if (isKnown && now < before.until && before.left > 0) {
      before.left -= 1;
      before.used += 1;
      return 0;
    }
    // As many as came of late are expected again.
    const expected = isKnown && now < before.until + ADVANCE_MS ? before.used : 0;
    const wanted = Math.min(ADVANCE_MAX, limit.burst, Math.max(1, expected));
    const { count, waitMs } = await this.#meter(parts).take(gate, wanted);
    if (count === 0) return waitMs;
    // Another request may have taken some meanwhile.
    const held = this.#advances.get(keyId);
    if (held && held.left > 0) this.#untold.givenBack.push({ gate: held.gate, count: held.left });
    const isOpen = held !== undefined && now < held.until;
    this.#advances.set(keyId, {
      gate,
      left: count - 1,
      until: isOpen ? held.until : now + ADVANCE_MS,
      used: isOpen ? held.used + 1 : 1,
    });
    return 0;
  }

  #send(parts: BatchParts): Promise<void> {
    return this.#sendBy(parts, this.#sentAt + BATCH_MS);
  }

  /** Sends a report by an instant, unless somebody does so anyway. */
  async #sendBy(parts: BatchParts, instant: number): Promise<void> {
    const now = parts.clock();
    this.#usedAt = now;
    const due = Math.max(now, instant);
    const before = this.#dueAt;
    // Whoever was to send it may have been cut off.
    if (before !== null && before <= due && before > now - BATCH_MS) return;
    this.#dueAt = due;
    if (due > now) await new Promise((done) => setTimeout(done, due - now));
    if (this.#dueAt !== due) return;
    this.#dueAt = null;
    this.#sentAt = parts.clock();
    this.#endAdvances(this.#sentAt);
    const untold = this.#untold;
    this.#untold = nothing();
    this.#reports += 1;
    const told = { isolate: this.#isolate, number: this.#reports, running: this.#running };
    await tell(parts, () => this.#meter(parts).report({ ...told, ...untold }));
    // What nobody comes for goes back by itself.
    const open = [...this.#advances.values()].filter(({ left }) => left > 0);
    if (open.length > 0) await this.#sendBy(parts, Math.max(...open.map(({ until }) => until)));
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

function batchCalled({ meters, clock }: BatchParts, name: string): MeterBatch {
  const held = batches.get(meters) ?? new Map<string, MeterBatch>();
  batches.set(meters, held);
  const found = held.get(name);
  if (found) return found;
  if (held.size >= HELD_MAX) {
    for (const [other, batch] of held) if (batch.isUnused(clock())) held.delete(other);
  }
  const made = new MeterBatch((parts) => meterCalled(parts, name));
  held.set(name, made);
  return made;
}

/** This isolate's side of an endpoint's meter. */
export const endpointBatch = (parts: BatchParts, endpointId: string): MeterBatch =>
  batchCalled(parts, `endpoint:${endpointId}`);

/** This isolate's side of the meter of a workspace's default routes. */
export const defaultBatch = (parts: BatchParts, workspaceId: string): MeterBatch =>
  batchCalled(parts, `workspace:${workspaceId}`);
