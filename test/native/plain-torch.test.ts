// What `npm run bench -- engine` says where plain PyTorch, which it measures beside the engine, is
// not there: what to install, where it used to print NaN and a traceback.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { pythonOf, torchProblem } from "../bench/plain-torch.ts";

/** A Python that says this and ends with that code. */
function python(text: string, code: number): string {
  const folder = mkdtempSync(join(tmpdir(), "vantage-python-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "python3");
  writeFileSync(path, `#!/bin/sh\necho "${text}" >&2\nexit ${code}\n`, { mode: 0o755 });
  return path;
}

it("names the package and the option where a Python has no torch, or is not there", () => {
  const traceback =
    "Traceback (most recent call last):\nModuleNotFoundError: No module named 'torch'";
  const without = torchProblem(python(traceback, 1));
  expect(without).toMatch(/^Plain PyTorch is not measured: ModuleNotFoundError: .+ 'torch' \(.+\)/);
  expect(without).toMatch(/apt-get install .+ python3-torch, or .+ --python FILE, .+ peers/);
  expect(torchProblem("/nowhere/python3")).toMatch(/not measured: .+ENOENT.+python3-torch/);
});

it("is nothing where one has it", () => {
  expect(torchProblem(python("a warning", 0))).toBeNull();
});

it("is measured by the engine's torch where a Python has that, else by any", () => {
  const saying = (words: string) => {
    const path = python("", 0);
    writeFileSync(path, `#!/bin/sh\necho "${words}"\n`);
    return path;
  };
  const [none, old, same] = [
    python("no torch", 1),
    saying("torch 1.13.1"),
    saying("torch 2.15.0+cu132"),
  ];
  expect(pythonOf("2.15.0", [none, old, same])).toBe(same);
  expect(pythonOf("2.16.0", [none, old, same])).toBe(old);
  expect(pythonOf("2.15.0", [none, "/nowhere/python3"])).toBe(none);
});
