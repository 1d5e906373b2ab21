// What is seen of a backfill while it is followed.

import type { Backfill, Run } from "../../shared/wire/markets.ts";
import { barOf, detailOf, progressOf } from "./lines.ts";
import type { Operator } from "./operator.ts";

/** The operator API lists so many runs at once. */
const LISTED_MAX = 500;
const UNSOUND = ["partial", "failed", "late", "canceled"] as const;
const MARKS = 50;

/**
 * A bar on a terminal, with a line for each run that did not succeed; elsewhere a line for each run
 * that ended, or, of a backfill of very many, for those and for each fiftieth of the way.
 */
export function backfillView(
  operator: Pick<Operator, "runs">,
  { isTerminal, write }: { isTerminal: boolean; write: (text: string) => void },
) {
  const told = new Set<string>();
  let marked = 0;
  return async (backfill: Backfill): Promise<void> => {
    const { ended, total } = progressOf(backfill);
    const everyRun = !isTerminal && total <= LISTED_MAX;
    for (const run of await endedRuns(operator, backfill, everyRun)) {
      if (told.has(run.run_id)) continue;
      told.add(run.run_id);
      write(`${isTerminal ? "\r\x1b[K" : ""}${run.partition}  ${run.state}${detailOf(run)}\n`);
    }
    if (isTerminal) write(`\r\x1b[K${barOf(backfill)}${ended === total ? "\n" : ""}`);
    else if (!everyRun && (ended - marked >= total / MARKS || ended === total)) {
      marked = ended;
      write(`${barOf(backfill)}\n`);
    }
  };
}

/** The runs that ended, oldest end first: every one, or those that did not succeed. */
async function endedRuns(
  operator: Pick<Operator, "runs">,
  { backfill_id, runs: counts }: Backfill,
  everyRun: boolean,
): Promise<Run[]> {
  const states = everyRun ? [undefined] : UNSOUND.filter((state) => counts[state] > 0);
  const lists = states.map((state) => operator.runs({ backfill_id, state, limit: LISTED_MAX }));
  const ended = (await Promise.all(lists)).flat().filter(({ finished_at }) => finished_at !== null);
  const at = ({ finished_at }: Run) => finished_at ?? "";
  return ended.sort((left, right) => (at(left) < at(right) ? -1 : 1));
}
