// What a run keeps on its node: checkpoints, the best weights so far, images and the log. It lies
// under the run's id, so that a later attempt on this node goes on from here; folders that nobody
// touched for a week are removed.

import * as fs from "node:fs/promises";
import { join } from "node:path";
import { DAY, systemClock } from "../../shared/time.ts";

const KEPT_MS = 7 * DAY;

export interface RunFolder {
  path: string;
  /** A file of the run's. */
  file(name: string): string;
  /** Appends lines to the log. */
  log(lines: readonly string[]): Promise<void>;
  /** A file that appears whole or not at all. */
  write(name: string, content: string | Uint8Array): Promise<void>;
  remove(): Promise<void>;
}

/** Opens a run's folder, creating it, and removes those of runs that are long dead. */
export async function openRunFolder(trainingDir: string, runId: string): Promise<RunFolder> {
  if (!/^[\w-]{1,100}$/.test(runId)) throw new Error("a run's id is no file name");
  const runs = join(trainingDir, "runs");
  const path = join(runs, runId);
  await fs.mkdir(join(path, "weights"), { recursive: true, mode: 0o700 });
  await sweepRuns(runs, runId);
  // What an attempt was writing when it was killed. One training at a time: nobody writes it now.
  for (const name of await fs.readdir(join(path, "weights"))) {
    if (name.includes(".part")) await fs.rm(join(path, "weights", name), { force: true });
  }
  const file = (name: string) => join(path, name);
  return {
    path,
    file,
    log: (lines) => fs.appendFile(file("train.log"), lines.map((line) => `${line}\n`).join("")),
    write: async (name, content) => {
      await fs.writeFile(file(`${name}.part`), content, { mode: 0o600, flush: true });
      await fs.rename(file(`${name}.part`), file(name));
    },
    remove: () => fs.rm(path, { recursive: true, force: true }),
  };
}

/** Removes folders in which nothing was written for a week. */
export async function sweepRuns(runs: string, ownRunId: string, now = systemClock()) {
  for (const name of await fs.readdir(runs)) {
    if (name === ownRunId) continue;
    const path = join(runs, name);
    const touched = await Promise.all(
      [path, join(path, "weights"), join(path, "train.log")].map(async (one) => {
        const stat = await fs.stat(one).catch(() => null);
        return stat?.mtimeMs ?? 0;
      }),
    );
    if (Math.max(...touched) < now - KEPT_MS) await fs.rm(path, { recursive: true, force: true });
  }
}
