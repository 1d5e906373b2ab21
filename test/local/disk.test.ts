// When a disk is low and when it is full, and what people are told of it.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { type DiskState, diskStateOf, freeBytesOf, sayChange } from "../../edge/local/disk.ts";

const MB = 1024 ** 2;

it("changes its state at a limit, and back only well beyond it", () => {
  const free = [5_000, 1_000, 1_100, 1_300, 130, 127, 150, 191, 192, 1_279, 1_280];
  let state: DiskState = "ample";
  const states = free.map((megabytes) => {
    state = diskStateOf(megabytes * MB, state);
    return state;
  });
  expect(states).toEqual([
    ...["ample", "low", "low", "ample", "low", "full", "full", "full", "low", "low", "ample"],
  ]);
});

it("says what the disk has, and what follows", () => {
  const said = (before: DiskState, state: DiskState, megabytes: number) =>
    sayChange("/data", { state, before, freeBytes: megabytes * MB });
  expect(said("low", "full", 90)).toBe(
    "the disk of /data is full: 90 MB free; nothing is written until 192 MB are; reading goes on",
  );
  expect(said("full", "low", 200)).toBe(
    "the disk of /data is low on room: 200 MB free; writing goes on; below 128 MB nothing is written",
  );
  expect(said("full", "ample", 5_000)).toBe(
    "the disk of /data has room again: 5000 MB free; writing goes on",
  );
  expect(said("low", "ample", 5_000)).toBe("the disk of /data has room again: 5000 MB free");
});

it("is that of the nearest folder that is there", async () => {
  const folder = mkdtempSync(join(tmpdir(), "vantage-disk-"));
  expect(await freeBytesOf(join(folder, "not", "there", "yet"))).toBeGreaterThan(0);
  rmSync(folder, { recursive: true });
});
