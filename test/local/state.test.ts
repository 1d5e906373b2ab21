// The state folder is ours alone: the checkout's own holds whatever our commands leave in it, in
// any order, and one that somebody names begins new or empty.

import { spawnSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { prepareState, ROOT, removeState, stateAt, stateWithin } from "../../edge/local/state.ts";

function emptyFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "vantage-state-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** The permissions of a folder. */
const modeOf = (path: string) => statSync(path).mode & 0o777;

/** A checkout that has never been started, as far as the state folder's code needs one. */
function checkout(): string {
  const folder = emptyFolder();
  mkdirSync(join(folder, "edge/local"), { recursive: true });
  cpSync(join(ROOT, "edge/local/state.ts"), join(folder, "edge/local/state.ts"));
  writeFileSync(join(folder, "package.json"), '{"type":"module"}');
  symlinkSync(join(ROOT, "node_modules"), join(folder, "node_modules"));
  return folder;
}

/** What `npm start` does first in such a checkout: its exit status and its last words. */
function begin(folder: string) {
  const program =
    'import { prepareState, stateAt } from "./edge/local/state.ts"; prepareState(stateAt());';
  const { status, stderr } = spawnSync(
    process.execPath,
    ["--input-type=module", "--eval", program],
    { cwd: folder, encoding: "utf8", env: { PATH: process.env.PATH } },
  );
  return { status, stderr };
}

/** Every name that some file of ours puts into `.vantage`, by the texts of all of them. */
function namesUsed(): string[] {
  const files = globSync("{edge,gpu-node,native,test}/**/*.{ts,mjs}", { cwd: ROOT });
  const texts = files.map((file) => readFileSync(join(ROOT, file), "utf8"));
  const literal = /\.vantage(?:\/|", ")([\w.-]+)/g;
  const nested = /stateWithin\(stateAt\(\), "([\w.-]+)"\)/g;
  const names = texts.flatMap((text) =>
    [literal, nested].flatMap((pattern) => [...text.matchAll(pattern)].map(([, name]) => name)),
  );
  return [...new Set(names)].filter((name) => name !== undefined).sort();
}

describe("the state folder", () => {
  it("begins in the checkout after any other command of ours, however it left the folder", () => {
    const names = namesUsed();
    expect(names).toEqual(
      expect.arrayContaining([
        "blood-cells.safetensors",
        "compile-cache",
        "demo",
        "device",
        "gpu-node",
        "models",
        "peers",
        "test-durations.json",
      ]),
    );
    const folder = checkout();
    const state = join(folder, ".vantage");
    mkdirSync(state, { mode: 0o700 });
    for (const name of names) {
      if (name.includes(".")) writeFileSync(join(state, name), "{}");
      else mkdirSync(join(state, name), { mode: 0o700 });
    }
    expect(begin(folder)).toEqual({ status: 0, stderr: "" });
    // The database's own user has to pass through it.
    expect(modeOf(state)).toBe(0o711);
    expect(begin(folder)).toEqual({ status: 0, stderr: "" });
    expect(names.every((name) => existsSync(join(state, name)))).toBe(true);
  });

  it("begins in a folder that a demo has made before it, which it marked", () => {
    const parent = stateAt(join(emptyFolder(), "named"));
    const demo = stateWithin(parent, "demo");
    prepareState(demo);
    expect([modeOf(parent.dir), modeOf(demo.dir)]).toEqual([0o711, 0o711]);
    expect(prepareState(parent).credentials.superuser).not.toBe("");
  });

  it("takes up credentials that were laid into it, as before a restore, and nothing else", () => {
    const first = prepareState(stateAt(join(emptyFolder(), "first"))).credentials;
    const dir = emptyFolder();
    writeFileSync(join(dir, "credentials.json"), JSON.stringify(first));
    expect(prepareState(stateAt(dir)).credentials).toEqual(first);
    const other = emptyFolder();
    for (const name of ["credentials.json", "notes.txt"]) writeFileSync(join(other, name), "{}");
    expect(() => prepareState(stateAt(other))).toThrow(/is not empty and no state folder/);
  });

  it("is deleted whole by --reset, but for torch's wheels", () => {
    const state = stateAt(join(emptyFolder(), "named"));
    prepareState(state);
    const wheels = join(state.dir, "engine");
    mkdirSync(wheels);
    removeState(state);
    expect(readdirSync(state.dir)).toEqual(["engine"]);
    rmSync(wheels, { recursive: true });
    prepareState(state);
    removeState(state);
    expect(existsSync(state.dir)).toBe(false);
  });

  it.each(["thesis.txt", "models"])(
    "does not begin in a folder that somebody names where %s lies",
    (name) => {
      const folder = emptyFolder();
      writeFileSync(join(folder, name), "{}");
      const state = stateAt(folder);
      expect(() => prepareState(state)).toThrow(/not empty and no state folder/);
      expect(() => stateWithin(state, "demo")).toThrow(/not empty and no state folder/);
      expect(existsSync(join(folder, "demo"))).toBe(false);
    },
  );
});
