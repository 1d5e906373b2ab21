// How many of an endpoint's requests failed by a fault of the service, of late. The meter keeps the
// counts and tells them only where they are many, and for an hour after: endpoints that are well
// cost the database nothing, and whoever looks for bad ones wakes no meter. The isolate whose
// report the meter answers writes them down.

import { sql } from "drizzle-orm";
import { ERRORS } from "../../../../shared/errors.ts";
import { HOUR, MINUTE } from "../../../../shared/time.ts";
import type { Parts } from "../../base/parts.ts";
import { instant } from "../../base/sql.ts";
import type { Counts } from "./rollups.ts";

/** Requests of so long are looked at together, to the minute. */
export const FAULT_WINDOW_MS = 15 * MINUTE;
/** No share of fewer requests is told. */
export const FAULT_REQUESTS_MIN = 50;
/** Above the one share an endpoint is bad, and below the other it is well again. */
export const BAD_SHARE = 0.05;
export const WELL_SHARE = 0.025;
/** For so long an endpoint that was bad is told of, each minute that it has requests. */
const TOLD_MS = HOUR;

/** Requests, and those of them that failed by a fault of the service. */
export interface FaultFigures {
  requests: number;
  faults: number;
}

/** How many errors are the service's: those of its codes that answer with a status of 5xx. */
export function faultsIn(errors: Readonly<Counts>): number {
  // What the caller did, or left, is none; nor is what nobody knows the end of.
  return Object.entries(errors).reduce((sum, [code, count]) => {
    const known: Readonly<Record<string, { status: number }>> = ERRORS;
    const status = Object.hasOwn(known, code) ? (known[code]?.status ?? 0) : 0;
    return sum + (status >= 500 ? count : 0);
  }, 0);
}

/** Counts of the last minutes, and when the endpoint was last bad. */
export class FaultWatch {
  readonly #minutes = new Map<number, FaultFigures>();
  #badAt: number | null;
  #told: { at: number; isBad: boolean } | null = null;

  constructor(badAt: number | null) {
    this.#badAt = badAt;
  }

  /** When it was last bad, or not yet well again; null where it never was. */
  get badAt(): number | null {
    return this.#badAt;
  }

  /** Counts requests that ended at an instant. */
  add(at: number, { requests, faults }: FaultFigures): void {
    const minute = at - (at % MINUTE);
    const sum = this.#minutes.get(minute) ?? { requests: 0, faults: 0 };
    this.#minutes.set(minute, {
      requests: sum.requests + requests,
      faults: sum.faults + faults,
    });
  }

  /** What is to be told at an instant; null where that is nothing, or nothing new. */
  news(now: number): FaultFigures | null {
    const { requests, faults } = this.#sum(now);
    const isBad = requests >= FAULT_REQUESTS_MIN && faults > requests * BAD_SHARE;
    const isWell = faults === 0 || faults < requests * WELL_SHARE;
    const isOfLate = this.#badAt !== null && now - this.#badAt <= TOLD_MS;
    if (isBad || (isOfLate && !isWell)) this.#badAt = now;
    else if (!isOfLate) return null;
    if (this.#told && this.#told.isBad === isBad && now - this.#told.at < MINUTE) return null;
    this.#told = { at: now, isBad };
    return { requests, faults };
  }

  #sum(now: number): FaultFigures {
    const sum = { requests: 0, faults: 0 };
    for (const [minute, { requests, faults }] of this.#minutes) {
      if (minute + MINUTE <= now - FAULT_WINDOW_MS) {
        this.#minutes.delete(minute);
        continue;
      }
      sum.requests += requests;
      sum.faults += faults;
    }
    return sum;
  }
}

/** Writes down what an endpoint's meter told. Never fails: the meter tells it again. */
export async function noteFaults(
  { database, clock, log }: Pick<Parts, "database" | "clock" | "log">,
  endpointId: string,
  { requests, faults }: FaultFigures,
): Promise<void> {
  try {
    await database.execute(sql`
      INSERT INTO endpoint_faults AS f (endpoint_id, requests, faults, at)
      SELECT id, ${requests}::int, ${faults}::int, ${instant(clock())}
        FROM endpoint WHERE id = ${endpointId}::uuid
      ON CONFLICT (endpoint_id) DO UPDATE SET requests = excluded.requests,
        faults = excluded.faults, at = excluded.at WHERE f.at < excluded.at`);
  } catch (error) {
    log.warning("endpoint_faults", { error });
  }
}
