// Hands the device's log over, batch by batch. What the service refuses for good is found by
// halves, counts as dropped and is stepped over, so that no line keeps those behind it waiting.

import { setTimeout as pause } from "node:timers/promises";
import type { Log } from "../base/log.ts";
import { type DeviceService, ServiceAway, ServiceRefusal } from "./device-service.ts";
import type { LogPart, LogRing } from "./log-ring.ts";

/** Lines of one batch. */
const LINES_MAX = 500;
/** Statuses that are about the batch; others are about the device, and nothing is dropped. */
const REFUSED = [400, 409, 413, 415, 422];
/** Where the device's room is full, the service forgets its oldest lines by the minute. */
const FULL = "quota_exceeded";
/** Lines that are given up one by one, before more are at once. */
const SINGLES_MAX = 8;
/** Batches in a row that bring nothing forward before it rests until the next heartbeat. */
const STUCK_MAX = 2;
/**
 * Batches in a row that were lost on the way before it rests until the next heartbeat, and the time
 * before the first is sent again, which doubles: a way that cuts each third request would else
 * carry a batch or two an interval, less than a device writes.
 */
const LOST_MAX = 4;
const LOST_PAUSE_MS = 250;

/** What hands a ring over to a service. */
export class LogSender {
  readonly #ring: LogRing;
  readonly #service: Pick<DeviceService, "syncLogs">;
  readonly #log: Log;
  /** Lines that the next batch has at most. */
  #linesMax = LINES_MAX;
  /** Times in a row that lines were given up. */
  #givenUp = 0;

  constructor(ring: LogRing, service: Pick<DeviceService, "syncLogs">, log: Log) {
    this.#ring = ring;
    this.#service = service;
    this.#log = log;
  }

  /**
   * Hands over what the service lacks of the log, but for lines that are written meanwhile; begins
   * no further batch once it is `until` by the monotonic clock. So a device that writes faster than
   * its line carries is heard of no less often. What is lost on the way is sent again a few times.
   * Fails with ServiceAway, and with a ServiceRefusal that is not about a batch.
   */
  async sync(until: number, signal: AbortSignal): Promise<void> {
    const ring = this.#ring;
    const { last } = ring;
    let stuck = 0;
    let lost = 0;
    for (let part = ring.next(this.#linesMax); part; part = ring.next(this.#linesMax)) {
      const first = part.lines[0]?.seq ?? 0;
      if (part.bootId === ring.bootId && first > last) return;
      let acked: number | null;
      try {
        acked = await this.#send(part, signal);
        lost = 0;
      } catch (thrown) {
        if (!isLost(thrown)) throw thrown;
        // What a slow way does not carry in a request's time it may carry in two.
        if (thrown.wasSlow) this.#linesMax = Math.max(1, Math.ceil(part.lines.length / 2));
        if (++lost > LOST_MAX) throw thrown;
        await pause(LOST_PAUSE_MS * 2 ** (lost - 1), undefined, { signal });
        if (performance.now() >= until) throw thrown;
        continue;
      }
      // A batch that brought nothing forward is not sent for ever.
      stuck = acked !== null && acked < first ? stuck + 1 : 0;
      if (stuck > STUCK_MAX || performance.now() >= until) return;
    }
  }

  /** Sends a batch; the line up to which all is known then, or null where it was refused. */
  async #send(part: LogPart, signal: AbortSignal): Promise<number | null> {
    const { bootId, lines, dropped } = part;
    try {
      const sent = { boot_id: bootId, lines, dropped };
      const { acked_seq: ackedSeq, gaps } = await this.#service.syncLogs(sent, signal);
      const known = this.#ring.ack(part, { ackedSeq, gaps });
      this.#givenUp = 0;
      this.#linesMax = Math.min(LINES_MAX, 2 * this.#linesMax);
      return known;
    } catch (thrown) {
      if (!isAboutBatch(thrown)) throw thrown;
      this.#narrow(part, thrown);
      return null;
    }
  }

  /** Halves what is sent next, and gives up what is small enough. */
  #narrow(part: LogPart, { message: reason }: ServiceRefusal) {
    const count = part.lines.length;
    const givenUpMax = 2 ** Math.max(0, this.#givenUp - SINGLES_MAX);
    if (count > givenUpMax) {
      this.#linesMax = Math.max(givenUpMax, Math.floor(count / 2));
      return;
    }
    this.#ring.refuse(part);
    this.#givenUp += 1;
    this.#linesMax = Math.min(LINES_MAX, 2 ** Math.max(0, this.#givenUp - SINGLES_MAX));
    this.#log.error("lines_refused", { reason, boot_id: part.bootId, lines: count });
  }
}

const isLost = (thrown: unknown): thrown is ServiceAway =>
  thrown instanceof ServiceAway && !thrown.wasAnswered;

const isAboutBatch = (thrown: unknown): thrown is ServiceRefusal =>
  thrown instanceof ServiceRefusal && REFUSED.includes(thrown.status) && thrown.code !== FULL;
