// Processor time of workerd and of Postgres, below this process, whatever else the machine does.

import { readFileSync } from "node:fs";
import { descendants, nameOf, processesOf } from "./soak-samples.ts";

/** Of a tick: the kernel tells a process's time in hundredths of a second. */
const TICK_MS = 10;

/** Milliseconds of processor time. */
export interface Cost {
  workerd: number;
  postgres: number;
}

/** Ticks of a process, the kernel's for it included, and those of its children that ended. */
function ticksOf(pid: number): { own: number; ended: number } {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // Its name may have blanks and brackets: the fields begin behind the last one.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const [user = 0, system = 0, children = 0, theirs = 0] = fields.slice(11, 15).map(Number);
    return { own: user + system, ended: children + theirs };
  } catch {
    // It has ended since.
    return { own: 0, ended: 0 };
  }
}

/** What the stack below this process has taken so far, in milliseconds, each time it is asked. */
export function stackMeter(): () => Cost {
  const workerd = processesOf(process.pid, "workerd");
  const all = descendants(process.pid).filter((pid) => nameOf(pid).startsWith("Postgres"));
  // Backends come and go; the one that starts them stays, and has the time of those that went.
  const [main] = all.filter((pid) => descendants(pid).length > 1);
  return () => {
    const backends = main === undefined ? [] : descendants(main);
    const ended = main === undefined ? 0 : ticksOf(main).ended;
    const sum = (pids: readonly number[]) => pids.reduce((ms, pid) => ms + ticksOf(pid).own, 0);
    return {
      workerd: TICK_MS * sum(workerd),
      postgres: TICK_MS * (sum(backends) + ended),
    };
  };
}
