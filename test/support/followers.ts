// The processes that this one started to train as one with it.

import { readdirSync, readFileSync } from "node:fs";

export const followers = (): number[] =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => {
      try {
        const parent = Number(/\) \S (\d+)/.exec(readFileSync(`/proc/${pid}/stat`, "utf8"))?.[1]);
        const command = readFileSync(`/proc/${pid}/cmdline`, "utf8");
        return parent === process.pid && command.includes("follower-main");
      } catch {
        // It ended meanwhile.
        return false;
      }
    })
    .map(Number);
