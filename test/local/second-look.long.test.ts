// What `npm test` makes of a test that fails in the crowd: it is looked at once more, and told.

import { spawn } from "node:child_process";
import { existsSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { expect, it } from "vitest";
import { ROOT } from "../../edge/local/state.ts";
import { temporaryFolder } from "../support/postgres.ts";
import { countsOfRun, withSecondLook } from "../support/vitest-runs.ts";

/** Where the times of this checkout's own files are kept. */
const DURATIONS = join(ROOT, ".vantage/test-durations.json");

/** A project of test files by name; its folder. */
function projectOf(files: Record<string, string>): string {
  const dir = temporaryFolder();
  symlinkSync(join(ROOT, "node_modules"), join(dir, "node_modules"));
  writeFileSync(join(dir, "vitest.config.mjs"), "export default {};");
  for (const [name, body] of Object.entries(files)) {
    const text = `import { expect, it } from "vitest";\nimport fs from "node:fs";\n${body}`;
    writeFileSync(join(dir, `${name}.test.mjs`), text);
  }
  return dir;
}

/** What runs of a project's files came to. */
async function runOf(files: Record<string, string>, shares: string[][] = [[]], until?: number) {
  const dir = projectOf(files);
  const options = { shares, output: "ignore", until } as const;
  const run = await withSecondLook(temporaryFolder(), ["--root", dir], options);
  const { failures, ...counts } = countsOfRun(run);
  const unsteady = run.unsteady.map((failure) => failure.split("\n")[0]);
  if (until) return { ...counts, cut: run.cut.map((path) => basename(path)).sort() };
  return { ...counts, failures: failures.map((failure) => failure.split("\n")[0]), unsteady };
}

const STEADY = `it("is steady", () => {}); it.skip("is left out", () => {});`;
const ONCE = `it("fails once", () => {
  const mark = import.meta.dirname + "/mark";
  const isSecond = fs.existsSync(mark);
  fs.writeFileSync(mark, "");
  expect(isSecond).toBe(true);
}); it("stands beside it", () => {});`;
const ALWAYS = `it("fails always", () => expect(1).toBe(2));`;

it("a test that passes alone has passed, and is told; one that fails again has failed", async () => {
  expect(await runOf({ steady: STEADY, once: ONCE, always: ALWAYS })).toEqual({
    passed: 3,
    failed: 1,
    skipped: 1,
    failures: [expect.stringMatching(/always\.test\.mjs · fails always$/)],
    unsteady: [expect.stringMatching(/once\.test\.mjs · fails once$/)],
  });
});

it("runs beside one another count as one, and each of their failures is looked at", async () => {
  const files = { steady: STEADY, once: ONCE, always: ALWAYS };
  expect(await runOf(files, [["steady", "once"], ["always"]])).toEqual({
    passed: 3,
    failed: 1,
    skipped: 1,
    failures: [expect.stringMatching(/always\.test\.mjs · fails always$/)],
    unsteady: [expect.stringMatching(/once\.test\.mjs · fails once$/)],
  });
  // None of these files is the checkout's, and none's time is kept beside those of its own.
  if (!existsSync(DURATIONS)) return;
  const measured = Object.keys(JSON.parse(readFileSync(DURATIONS, "utf8")) as object);
  expect(measured.filter((path) => !path.startsWith("test/"))).toEqual([]);
});

it("a test that is left out the second time has still failed", async () => {
  const once = `it("fails once", ({ skip }) => {
    const mark = import.meta.dirname + "/left";
    if (fs.existsSync(mark)) skip();
    fs.writeFileSync(mark, "");
    expect(1).toBe(2);
  });`;
  expect(await runOf({ once })).toMatchObject({
    failed: 1,
    failures: [expect.stringMatching(/once\.test\.mjs · fails once$/)],
    unsteady: [],
  });
});

it("what fails outside a test, or in its file's own lines, is never lost", async () => {
  const outside = `it("goes", () => void Promise.reject(new Error("nobody waits")));`;
  expect(await runOf({ steady: STEADY, outside, once: ONCE })).toEqual({
    passed: 4,
    failed: 1,
    skipped: 1,
    failures: [expect.stringMatching(/^outside a test: nobody waits/)],
    unsteady: [expect.stringMatching(/once\.test\.mjs · fails once$/)],
  });
  expect(await runOf({ steady: STEADY, broken: `throw new Error("spoilt");` })).toEqual({
    passed: 1,
    failed: 1,
    skipped: 1,
    failures: [expect.stringMatching(/broken\.test\.mjs$/)],
    unsteady: [],
  });
});

it("many failed files are no chance, and are not looked at again", async () => {
  const files = Object.fromEntries(
    ["a", "b", "c", "d"].map((name) => [name, ONCE.replace("/mark", `/${name}`)]),
  );
  expect(await runOf(files)).toMatchObject({ passed: 4, failed: 4, unsteady: [] });
});

it("what the deadline cuts off is skipped and named, and what ran before it counts", async () => {
  // What is given up goes on while what it uses is taken down, which fails no run.
  const waits = `import { afterAll } from "vitest";
    afterAll(() => { throw new Error("taken down"); });
    it("waits", () => new Promise(() => {}), 0); it("follows", () => {});`;
  // Longer than vitest takes to begin on busy cores.
  const until = Date.now() + 25_000;
  const files = { steady: STEADY, waits, later: waits };
  const shares = [["steady"], ["waits", "later", "--maxWorkers=1"]];
  // Skipped: one by its own word, the two of the file that waits, and both files that were cut.
  expect(await runOf(files, shares, until)).toEqual({
    passed: 1,
    failed: 0,
    skipped: 5,
    cut: ["later.test.mjs", "waits.test.mjs"],
  });
});

/** Whether a process still runs. */
function isThere(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

it("whoever ends it by a signal ends all that it began", async () => {
  const dir = projectOf({
    waits: `it("waits", async () => {
      fs.writeFileSync(import.meta.dirname + "/pids", process.pid + " " + process.ppid);
      await new Promise(() => {});
    }, 0);`,
  });
  const run = spawn(process.execPath, [join(ROOT, "test/run.ts"), "--root", dir], {
    stdio: "ignore",
  });
  const ended = new Promise((resolve) => run.once("exit", resolve));
  const pids = join(dir, "pids");
  await expect.poll(() => existsSync(pids) && readFileSync(pids, "utf8")).toMatch(/^\d+ \d+$/);
  run.kill("SIGTERM");
  expect(await ended).toBe(143);
  const began = readFileSync(pids, "utf8").split(" ").map(Number);
  await expect.poll(() => began.filter(isThere)).toEqual([]);
});
