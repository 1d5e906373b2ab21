// The baseline of a new state folder: the last 30 days of every job, once in its life, so that a
// first start shows useful data within a minute. Interrupted, it is taken up again by the next
// start.

import type { Backfill } from "../../shared/markets.ts";
import { DAY, isoDay, systemClock } from "../../shared/time.ts";
import { followBackfill, type Operator } from "./operator.ts";

const BASELINE_DAYS = 30;
/** Without a terminal, a line is printed every so many days. */
const STEP_DAYS = 5;

/** Asks for the baseline; asking again sends on whatever of the first one was interrupted. */
export async function requestBaseline(operator: Operator): Promise<Backfill[]> {
  const yesterday = systemClock() - DAY;
  const first = isoDay(yesterday - (BASELINE_DAYS - 1) * DAY);
  const last = isoDay(yesterday);
  const requests = (await operator.jobs()).map(({ job }) =>
    operator.startBackfill({ job, first, last, idempotency_key: `first-start ${job}` }),
  );
  return Promise.all(requests);
}

/** Follows the baseline to its end, showing progress. False when it was complete already. */
export async function followBaseline(operator: Operator, say: (line: string) => void) {
  let followed = false;
  for (const backfill of await requestBaseline(operator)) {
    const { queued, running } = backfill.runs;
    if (queued + running === 0) continue;
    followed = true;
    let shown = 0;
    const label = `Backfill ${backfill.job} ${backfill.first} to ${backfill.last}`;
    const ended = await followBackfill(operator, backfill, (done, total, failed) => {
      const line = `${label}: ${done}/${total} days${failed ? `, ${failed} failed` : ""}`;
      if (process.stdout.isTTY) process.stdout.write(`\r${line}${done === total ? "\n" : ""}`);
      else if (done - shown >= STEP_DAYS || done === total) {
        say(line);
        shown = done;
      }
    });
    if (ended.runs.failed > 0) say("See why: npm run job -- runs");
  }
  return followed;
}
