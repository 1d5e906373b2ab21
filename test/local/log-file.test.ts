// Log files: bounded in size and number whatever is written, in order, and no fault of the disk
// reaches who writes.

import * as fs from "node:fs";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { openLogFile } from "../../edge/local/log-file.ts";
import { temporaryFolder } from "../support/postgres.ts";
import { mountSmallDisk } from "../support/small-disk.ts";

function newFolder(): string {
  const folder = temporaryFolder();
  onTestFinished(() => fs.rmSync(folder, { recursive: true, force: true }));
  return folder;
}

const line = (number: number) => `${JSON.stringify({ number, text: "x".repeat(80) })}\n`;
const numbersIn = (path: string): number[] =>
  fs
    .readFileSync(path, "utf8")
    .trimEnd()
    .split("\n")
    .map((text) => (JSON.parse(text) as { number: number }).number);

describe("a log file", () => {
  it("is set aside at its size, keeps its newest lines in order, and never more files", async () => {
    const path = join(newFolder(), "services.log");
    const limits = { bytesMax: 10_000, filesMax: 3 };
    const files = [`${path}.2`, `${path}.1`, path];
    let number = 0;
    // Opened again and again, as by one start of a stack after the other.
    for (let start = 0; start < 40; start++) {
      const log = openLogFile(path, limits);
      for (const end = number + 20; number < end; number++) log.write(line(number));
      await log.close();
    }
    expect(fs.readdirSync(join(path, "..")).sort()).toEqual(
      ["", ".1", ".2"].map((end) => `services.log${end}`),
    );
    for (const file of files) expect(fs.statSync(file).size).toBeLessThanOrEqual(limits.bytesMax);
    const numbers = files.flatMap(numbersIn);
    expect(numbers).toEqual(numbers.map((_, index) => number - numbers.length + index));
    expect(fs.statSync(path).mode & 0o777).toBe(0o600);
  });

  it("holds back no more than a bounded amount for a disk that is slow, and says what it lost", async () => {
    const path = join(newFolder(), "services.log");
    const log = openLogFile(path);
    // All in one turn: nothing can be written meanwhile.
    for (let number = 0; number < 20_000; number++) log.write(line(number));
    await log.close();
    const again = openLogFile(path);
    again.write(line(-1));
    await again.close();
    expect(fs.statSync(path).size).toBeLessThan(1.1 * 1024 ** 2);
    const text = fs.readFileSync(path, "utf8");
    expect(text).toContain('"event":"log_lost"');
    expect(numbersIn(path)).toContain(0);
  });
});

const disk = mountSmallDisk(1024 ** 2);
if (!disk) console.warn("SKIPPED: a full disk needs the right to mount one");

it.skipIf(!disk)(
  "loses lines on a full disk, none in half, and goes on when there is room",
  async () => {
    if (!disk) return;
    onTestFinished(() => disk.unmount());
    const path = join(disk.dir, "services.log");
    const log = openLogFile(path, { bytesMax: 100_000, filesMax: 2 });
    const settled = () => new Promise((resolve) => setTimeout(resolve, 100));
    log.write(line(1));
    await expect.poll(() => fs.existsSync(path) && numbersIn(path)).toEqual([1]);
    disk.fill();
    for (let number = 2; number < 200; number++) {
      log.write(line(number));
      if (number % 20 === 0) await settled();
    }
    await settled();
    disk.empty();
    log.write(line(200));
    await log.close();
    const lines = fs.readFileSync(path, "utf8").trimEnd().split("\n");
    const parsed = lines.map((text) => JSON.parse(text) as { number?: number; event?: string });
    expect(parsed[0]).toMatchObject({ number: 1 });
    const noted = parsed.findLastIndex(({ event }) => event === "log_lost");
    // All that came since, the last lines for which there was no room apart.
    const since = parsed.slice(noted + 1).map(({ number }) => number);
    expect(since).toEqual(since.map((_, index) => 201 - since.length + index));
    expect([noted > 0, since.length > 0, since.length < 199]).toEqual([true, true, true]);
  },
);
