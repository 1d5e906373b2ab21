// The engine's build. Goal: what is loaded is what the sources say and lacks nothing; it is built
// once however many ask, again when something changed, and a failure costs the capability alone.

import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ADDON, loadEngine } from "../../native/load.ts";
import { native } from "./engine.ts";

const ROOT = resolve(import.meta.dirname, "../..");
const ENGINE = join(ROOT, "edge/local/engine.mjs");

it("does not fail: without an engine here, the other tests of native/ would only be skipped", () => {
  const stamp = join(ROOT, "native/build/stamp");
  if (existsSync(stamp)) expect(readFileSync(stamp, "utf8")).not.toContain("failed");
});

describe.skipIf(!native)("the addon", () => {
  it("has everything that it calls, but what Node gives", () => {
    const { stdout, stderr } = spawnSync("ldd", ["-r", ADDON], { encoding: "utf8" });
    const lacking = `${stdout}${stderr}`
      .split("\n")
      .filter((line) => /undefined symbol|not found/.test(line) && !/\bnapi_/.test(line));
    expect(lacking).toEqual([]);
  });

  it("says what it can do here", () => {
    const { torch, torchSource, cudaKernels, gpus, bf16, cpuBf16 } = native.describe();
    expect(torch).toMatch(/^\d+\.\d+\.\d+/);
    expect(["system", "wheel"]).toContain(torchSource);
    expect(typeof cudaKernels).toBe("boolean");
    expect(bf16).toBe(gpus.length > 0);
    const flags = readFileSync("/proc/cpuinfo", "utf8");
    expect(cpuBf16).toBe(/\b(avx512_bf16|bf16)\b/.test(flags));
  });

  it("comes with kernels that compile, wherever there is a compiler for them", (context) => {
    if (spawnSync("nvcc", ["--version"]).status !== 0) context.skip("no nvcc here");
    const [library] = ["Release/libvantage_kernels.so", "libvantage_kernels.so"]
      .map((name) => join(ROOT, "native/build/cmake", name))
      .filter(existsSync);
    const { stdout } = spawnSync("nm", ["-DC", library ?? ""], { encoding: "utf8" });
    expect(stdout).toMatch(/ T vantage::render/);
  });
});

it("an addon that is not there or no addon is told, with what would help", () => {
  const dir = mkdtempSync(join(tmpdir(), "vantage-addon-"));
  expect(loadEngine(join(dir, "none.node"))).toEqual({
    missing: expect.stringMatching(/not built.+libtorch-dev libopenblas0-pthread/),
  });
  writeFileSync(join(dir, "wrong.node"), "no library");
  expect(loadEngine(join(dir, "wrong.node"))).toEqual({
    missing: expect.stringMatching(/does not load \(.+\): install torch/),
  });
  rmSync(dir, { recursive: true });
});

describe("building", () => {
  let root: string;
  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), "vantage-build-"));
    mkdirSync(join(root, "native/src"), { recursive: true });
    for (const name of ["CMakeLists.txt", "torch.cmake", "package.json", "src/engine.cpp"])
      writeFileSync(join(root, "native", name), name);
  });
  afterEach(() => rmSync(root, { recursive: true }));

  const addon = () => join(root, "native/build/vantage.node");
  const builds = () => readFileSync(join(root, "log"), "utf8").length;

  /** Asks for the engine in processes of their own, all at once; a build takes its time. */
  function ensure({
    command = "start",
    mark = "torch",
    code = 0,
    cudaCode = undefined as number | undefined,
    hasCuda = false,
    times = 1,
  } = {}): string {
    const script = `
      import { appendFileSync, mkdirSync, writeFileSync } from "node:fs";
      import { ensureEngine } from ${JSON.stringify(ENGINE)};
      const build = async ({ into, log, cuda }) => {
        const code = cuda ? ${cudaCode ?? code} : ${code};
        appendFileSync(${JSON.stringify(join(root, "log"))}, "b");
        mkdirSync(into, { recursive: true });
        writeFileSync(log, "one\\ntwo\\n");
        for (let turn = 0; turn < 500; turn++) await new Promise(setImmediate);
        if (code === 0) writeFileSync(into + "/vantage.node", cuda ? "made" : "made for the CPU");
        return code;
      };
      const root = ${JSON.stringify(root)};
      const torch = ${mark ? JSON.stringify({ root: "/", mark, hasCuda }) : null};
      await ensureEngine(${JSON.stringify(command)}, { root, torch, build });`;
    const one = `"$0" --input-type=module -e "$1"`;
    const shell = `${Array(times).fill(`${one} & `).join("")} wait`;
    // Without a compiler of kernels that this machine may have.
    const env = { PATH: "/usr/bin:/bin" };
    const args = ["-c", shell, process.execPath, script];
    return spawnSync("sh", args, { encoding: "utf8", timeout: 300_000, env }).stderr;
  }

  it("is done once, and again when the sources or torch change", () => {
    expect(ensure()).toMatch(/^Building the training engine \(.+\) …\nBuilt in \d+ s\.\n$/);
    expect(readFileSync(addon(), "utf8")).toBe("made");
    expect(ensure()).toBe("");
    writeFileSync(join(root, "native/src/more.cu"), "");
    expect(ensure()).toMatch(/Built/);
    expect(ensure({ mark: "another" })).toMatch(/Built/);
    expect(ensure({ mark: "another" })).toBe("");
    rmSync(addon());
    expect(ensure({ mark: "another" })).toMatch(/Built/);
    expect(builds()).toBe(4);
  });

  it("is left where its folder cannot be written, as in a container's image", () => {
    writeFileSync(join(root, "native/build"), "no folder");
    expect(ensure()).toMatch(/^No training engine can be built in \S+, which is read-only: .+\n$/);
    expect(existsSync(join(root, "log"))).toBe(false);
  });

  it("is left to commands that train, where there is torch", () => {
    expect(ensure({ command: "job" })).toBe("");
    expect(ensure({ mark: "" })).toBe("");
    expect(existsSync(addon())).toBe(false);
  });

  it("shows the log's end where it fails, leaves no old addon, and is not tried again", () => {
    ensure();
    writeFileSync(join(root, "native/src/engine.cpp"), "wrong");
    expect(ensure({ code: 1 })).toMatch(/one\ntwo\nThe training engine did not build in \d+ s/);
    expect(existsSync(addon())).toBe(false);
    expect(ensure({ code: 1 })).toMatch(
      /^The training engine does not build here .+ try again\.\n$/,
    );
    expect(builds()).toBe(2);
    writeFileSync(join(root, "native/src/engine.cpp"), "right");
    expect(ensure()).toMatch(/Built/);
  });

  it("is for the CPU, said in a line, where a torch with CUDA does not build for it", () => {
    const said = ensure({ hasCuda: true, cudaCode: 1 }).split("\n");
    expect(said).toEqual([
      expect.stringMatching(/^Building/),
      expect.stringMatching(/^It does not build for CUDA here \(.+build-cuda\.log\): .+ CPU …$/),
      expect.stringMatching(/^Built in \d+ s\.$/),
      "",
    ]);
    expect(readFileSync(addon(), "utf8")).toBe("made for the CPU");
    expect(readFileSync(join(root, "native/build/build-cuda.log"), "utf8")).toBe("one\ntwo\n");
    expect(ensure({ hasCuda: true, cudaCode: 1 })).toBe("");
    expect(builds()).toBe(2);
    // Whoever asks for it by name has CUDA tried again, in a folder that is configured anew.
    writeFileSync(join(root, "native/build/cmake/without-cuda"), "");
    expect(ensure({ command: "engine", hasCuda: true })).toMatch(/^Building .+ …\nBuilt/);
    expect(existsSync(join(root, "native/build/cmake/without-cuda"))).toBe(false);
    expect(readFileSync(addon(), "utf8")).toBe("made");
    // One that does not build for the CPU either.
    writeFileSync(join(root, "native/src/engine.cpp"), "wrong");
    expect(ensure({ hasCuda: true, code: 1 })).toMatch(/one\ntwo\n.+ did not build in \d+ s/);
  });

  it("is done once by several at once, and after one that was killed", () => {
    const said = ensure({ times: 4 });
    expect(said.match(/Built/g)).toHaveLength(1);
    expect(builds()).toBe(1);
    rmSync(addon());
    // A process that is gone, and one of whose number another lives.
    for (const holder of ["4194305 1", `${process.pid} 1`]) {
      writeFileSync(join(root, "native/build/lock"), holder);
      rmSync(addon(), { force: true });
      expect(ensure()).toMatch(/Built/);
    }
    expect(existsSync(join(root, "native/build/lock"))).toBe(false);
  });
});
