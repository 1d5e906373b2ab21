// The state folder is ours alone, but for what other commands of ours leave there before a start.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { prepareState, stateAt } from "../../edge/local/state.ts";

function folderWith(name: string): string {
  const folder = mkdtempSync(join(tmpdir(), "vantage-state-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(join(folder, name), "{}");
  return folder;
}

describe("the state folder", () => {
  it("begins beside what a run of the tests left in it", () => {
    const state = stateAt(folderWith("test-durations.json"));
    expect(prepareState(state).credentials.superuser).not.toBe("");
  });

  it("does not begin beside what is somebody else's", () => {
    const state = stateAt(folderWith("thesis.txt"));
    expect(() => prepareState(state)).toThrow(/not empty and no state folder/);
  });
});
