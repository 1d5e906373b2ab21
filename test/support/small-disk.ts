// A disk of so many bytes, mounted in a folder of its own, which a test can fill and empty.

import { spawnSync } from "node:child_process";
import * as fs from "node:fs";
import { join } from "node:path";
import { temporaryFolder } from "./postgres.ts";

export interface SmallDisk {
  dir: string;
  freeBytes(): number;
  /** Takes what is free but for so many bytes; `empty` gives it back. */
  fill(leaveBytes?: number): void;
  empty(): void;
  unmount(): void;
}

/** Mounts one, or returns null where that is not allowed: then a test must say that it skips. */
export function mountSmallDisk(bytes: number): SmallDisk | null {
  const dir = temporaryFolder();
  const options = ["-t", "tmpfs", "-o", `size=${bytes},mode=0711`, "tmpfs", dir];
  if (spawnSync("mount", options).status !== 0) {
    fs.rmdirSync(dir);
    return null;
  }
  const ballast = join(dir, "ballast");
  const freeBytes = () => {
    const { bavail, bsize } = fs.statfsSync(dir);
    return bavail * bsize;
  };
  return {
    dir,
    freeBytes,
    fill: (leaveBytes = 0) => {
      const file = fs.openSync(ballast, "a");
      const block = Buffer.alloc(64 * 1024);
      try {
        while (freeBytes() > leaveBytes) {
          fs.writeSync(file, block, 0, Math.min(block.length, freeBytes() - leaveBytes));
        }
      } catch (thrown) {
        if ((thrown as { code?: string }).code !== "ENOSPC") throw thrown;
      } finally {
        fs.closeSync(file);
      }
    },
    empty: () => fs.rmSync(ballast, { force: true }),
    unmount: () => {
      spawnSync("umount", ["--lazy", dir]);
      fs.rmdirSync(dir);
    },
  };
}
