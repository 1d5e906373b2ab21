// Programs of the machine that tests hold our work against; without one, its tests skip loudly.

import { existsSync } from "node:fs";

/** Whether a program is there; says so where it is not. */
export function hasProgram(name: string): boolean {
  const there = (process.env.PATH ?? "")
    .split(":")
    .some((folder) => existsSync(`${folder}/${name}`));
  if (!there) process.stderr.write(`SKIPPED: no ${name} here (apt-get install ${name})\n`);
  return there;
}
