// System packages are installed only where that is allowed, in one visible line; elsewhere the
// command is printed, and nothing fails.

import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";

const MODULE = join(import.meta.dirname, "../../edge/local/packages.mjs");
const mayInstall = process.getuid?.() === 0 && existsSync("/etc/debian_version");
let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "vantage-packages-"));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

/** What it says on a machine whose only program is an apt-get of the test's. */
function ensure(command: string, apt: boolean, aptGet?: string, more = {}): string {
  if (aptGet) writeFileSync(join(dir, "apt-get"), `#!/bin/sh\n${aptGet}\n`, { mode: 0o755 });
  const script =
    `import { ensurePackages } from ${JSON.stringify(MODULE)};` +
    `await ensurePackages(${JSON.stringify(command)}, { apt: ${apt} });`;
  const args = ["--input-type=module", "-e", script];
  const ended = spawnSync(process.execPath, args, {
    encoding: "utf8",
    env: { PATH: dir, ...more },
  });
  expect(ended.status).toBe(0);
  return ended.stderr;
}

describe("a package that is missing", () => {
  it("is named with the command that installs it where --no-apt refuses", () => {
    expect(ensure("start", false, "exit 1")).toMatch(
      /^Without ffmpeg, no video can be read\. .+\nWithout libtorch and a C\+\+ compiler, .+ g\+\+/,
    );
    expect(ensure("job", true)).toBe("");
  });

  it.skipIf(!mayInstall)("is installed as root, after fetching lists where there are none", () => {
    const log = join(dir, "log");
    const aptGet = `echo "$@" >>${log}\n[ "$2" = update ] && : >${dir}/lists; [ -e ${dir}/lists ]`;
    const said = ensure("gpu-node", true, aptGet);
    expect(said).toMatch(/^Installing ffmpeg: apt-get install .* ffmpeg \(--no-apt refuses\) …\n/);
    expect(readFileSync(log, "utf8").trim().split("\n")).toEqual([
      "-q install -y --no-install-recommends ffmpeg",
      "-q update",
      "-q install -y --no-install-recommends ffmpeg",
      expect.stringMatching(/^-q install -y --no-install-recommends cmake make g\+\+/),
    ]);
  });

  it.skipIf(!mayInstall)("is said to be missing when it cannot be installed", () => {
    expect(ensure("gpu-node", true, "exit 100")).toMatch(/could not be installed: no video can be/);
  });

  it("is none when it is there", () => {
    for (const program of ["ffmpeg", "cmake", "make", "g++"]) writeFileSync(join(dir, program), "");
    const torch = join(dir, "torch");
    mkdirSync(join(torch, "lib"), { recursive: true });
    mkdirSync(join(torch, "include/ATen"), { recursive: true });
    for (const name of ["lib/libtorch_cpu.so", "include/ATen/ATen.h"])
      writeFileSync(join(torch, name), "");
    expect(ensure("start", true, undefined, { TORCH_ROOT: torch })).toBe("");
  });
});
