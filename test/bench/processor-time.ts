// Processor time of a stack by its processes: what an answer costs and whom, whatever else the
// machine does meanwhile.

import { readFileSync } from "node:fs";
import { descendants, nameOf } from "./soak-samples.ts";

/** Of a tick: the kernel tells a process's time in hundredths of a second. */
const TICK_MS = 10;
/** Whoever measures: it asks, and holds the database's endpoint and the object store. */
const OWN = "client, endpoint, store";

/** Milliseconds by the name of a process. */
export type ProcessorTime = ReadonlyMap<string, number>;

/** What the processes below this one, itself included, have taken so far. */
export function processorTime(): ProcessorTime {
  const all = new Map<string, number>();
  for (const pid of new Set(descendants(process.pid))) {
    const name = pid === process.pid ? OWN : nameOf(pid);
    all.set(name, (all.get(name) ?? 0) + millisecondsOf(pid));
  }
  return all;
}

/** Of all its threads. */
function millisecondsOf(pid: number): number {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // Its name may have blanks and brackets: the fields begin behind the last one.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return TICK_MS * (Number(fields[11]) + Number(fields[12]));
  } catch {
    // It has ended since.
    return 0;
  }
}

/** What was taken since, for each of so many answers; what is less than a tenth is left out. */
export function spentSince(before: ProcessorTime, answers: number): ProcessorTime {
  const spent = [...processorTime()].map(
    ([name, ms]) => [name, (ms - (before.get(name) ?? 0)) / answers] as const,
  );
  return new Map(spent.filter(([, ms]) => ms >= 0.1).sort(([, one], [, other]) => other - one));
}

/** Prints what answers of some loads took, a process a row and a load a column. */
export function printSpent(
  spent: ReadonlyMap<string, ProcessorTime>,
  print: (line: string) => void,
): void {
  const names = [...new Set([...spent.values()].flatMap((one) => [...one.keys()]))];
  print(`\n| processor time of an answer, ms | ${[...spent.keys()].join(" | ")} |`);
  print(`|---|${"---|".repeat(spent.size)}`);
  const row = (name: string, of: (one: ProcessorTime) => number) => {
    const cells = [...spent.values()].map((one) => of(one).toFixed(1));
    print(`| ${name} | ${cells.join(" | ")} |`);
  };
  for (const name of names) row(name, (one) => one.get(name) ?? 0);
  row("all", (one) => [...one.values()].reduce((sum, ms) => sum + ms, 0));
}
