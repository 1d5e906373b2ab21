// The commands as they are typed: help that needs nothing, what is not understood, and how a
// failure that is expected reads.

import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { ROOT } from "../../edge/local/state.ts";
import { temporaryFolder } from "../support/postgres.ts";

const empty = temporaryFolder();
afterAll(() => rmSync(empty, { recursive: true, force: true }));

const COMMANDS = [
  ...["start", "job", "deploy", "demo", "gpu-node", "device", "models", "engine"],
  ...["backup", "test", "check", "golden", "bench", "peers"],
];
const run = (args: string[], environment: Record<string, string> = {}) =>
  spawnSync(process.execPath, args, {
    encoding: "utf8",
    env: { PATH: process.env.PATH, VANTAGE_STATE: join(empty, "state"), ...environment },
  });

describe("--help", () => {
  const bootstrap = join(empty, "edge/local/bootstrap.mjs");
  const FILES = [
    ...[
      "bootstrap.mjs",
      "engine.mjs",
      "packages.mjs",
      "start.txt",
      "job.txt",
      "deploy.txt",
      "backup.txt",
    ].map((name) => `edge/local/${name}`),
    ...[
      "edge/local/demo.txt",
      "edge/local/torch.txt",
      "gpu-node/main.txt",
      "gpu-node/models.txt",
      "test/run.txt",
      "test/check.txt",
      "test/golden.txt",
    ],
    "gpu-node/agent/device.txt",
    ...["test/bench/main.txt", "test/peers/main.txt", "package-lock.json"],
  ];
  for (const file of FILES) {
    mkdirSync(dirname(join(empty, file)), { recursive: true });
    cpSync(join(ROOT, file), join(empty, file));
  }

  it.each(COMMANDS)("of %s comes at once, where nothing is installed", (command) => {
    const { status, stdout, stderr } = run([bootstrap, command, "--help"]);
    expect([status, stderr]).toEqual([0, ""]);
    expect(stdout).toMatch(new RegExp(`^npm (run )?${command}\\b`));
    expect(existsSync(join(empty, "node_modules"))).toBe(false);
  });

  it("is there for every command of package.json, and no other is known", () => {
    const { scripts } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
    expect(Object.keys(scripts).sort()).toEqual(COMMANDS.toSorted());
    const { status, stderr } = run([bootstrap, "nope"]);
    expect([status, stderr]).toEqual([2, expect.stringContaining("there is no command nope")]);
  });
});

describe("what is not understood", () => {
  it.each([
    ["edge/local/start.ts", "--markets-prt", "--markets-port"],
    ["edge/local/backup.ts", "verfy", "verify"],
    ["edge/local/deploy.ts", "--dryrun", "--dry-run"],
    ["edge/local/deploy.ts", "marktes", "markets"],
    ["edge/local/job.ts", "--jsn", "--json"],
    ["edge/local/job.ts", "lanch", "launch"],
    ["edge/local/torch.ts", "remov", "remove"],
    ["test/bench/main.ts", "segmenter", "segmenters"],
    ["test/peers/main.ts", "contracts", "contract"],
  ])("%s %s ends with 2, one line and the nearest word", (entry, word, near) => {
    const { status, stdout, stderr } = run([join(ROOT, entry), word]);
    expect([status, stdout]).toEqual([2, ""]);
    expect(stderr).toContain(`${word}; did you mean ${near}?`);
    expect(stderr.trimEnd().split("\n")).toHaveLength(2);
  });

  it.each([
    ["edge/local/start.ts", "--markets-port=x", "--markets-port"],
    ["edge/local/demo.ts", "--fps=0", "--fps"],
    ["test/peers/main.ts", "--minutes=0x2", "--minutes"],
    ["gpu-node/main.ts", "--slots=2", "--slots"],
  ])("%s %s names what is wrong", (entry, word, name) => {
    const { status, stderr } = run([join(ROOT, entry), word]);
    expect([status, stderr]).toEqual([2, expect.stringContaining(name)]);
    expect(stderr).not.toContain("    at ");
  });
});

describe("an expected failure", () => {
  it.each([
    ["edge/local/job.ts", ["list"], "start one with npm start"],
    ["edge/local/backup.ts", ["verify"], "holds no stack's data"],
    ["gpu-node/main.ts", [], "VANTAGE_URL"],
  ])("of %s is a line without a stack, and exit code 1", (entry, args, words) => {
    const { status, stdout, stderr } = run([join(ROOT, entry), ...args]);
    expect([status, stdout]).toEqual([1, ""]);
    expect(stderr).toContain(words);
    expect(stderr).not.toContain("    at ");
  });
});

describe("colour", () => {
  const list = (environment: Record<string, string>) =>
    run([join(ROOT, "edge/local/job.ts"), "list"], environment).stderr;

  it("is for terminals, and NO_COLOR forbids it", () => {
    const red = "\u001b[";
    expect(list({})).not.toContain(red);
    expect(list({ FORCE_COLOR: "1" })).toContain(red);
    expect(list({ NO_COLOR: "1" })).not.toContain(red);
  });
});
