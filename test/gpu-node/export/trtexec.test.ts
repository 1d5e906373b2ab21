// Engines by NVIDIA's trtexec, which is not here: a program of its name that takes its arguments
// and leaves its traces stands in for it. No engine was ever built by these tests.

import { mkdirSync, readdirSync, readFileSync, utimesSync, writeFileSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { buildEngine, findTrtexec } from "../../../gpu-node/export/trtexec.ts";
import { describeNode } from "../../../gpu-node/node/capabilities.ts";
import { Capabilities } from "../../../shared/tasks/node-protocol.ts";

const dir = await mkdtemp(join(tmpdir(), "vantage-trtexec-"));

/** A folder of programs, by name; each is a shell's script. */
function programs(name: string, scripts: Record<string, string>): string {
  const folder = join(dir, name);
  mkdirSync(folder, { recursive: true });
  for (const [program, script] of Object.entries(scripts)) {
    writeFileSync(join(folder, program), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  }
  return folder;
}

const environmentOf = (folder: string) => ({ PATH: `${folder}:/usr/bin:/bin` });
const GPU = 'echo "NVIDIA T4"';
const running = (version: string) =>
  `echo "&&&& RUNNING TensorRT.trtexec [TensorRT ${version}] [b43] # trtexec $*"`;

describe("a node's trtexec", () => {
  it.each([
    ["v8601", "8.6.1"],
    ["v100800", "10.8.0"],
    ["v101303", "10.13.3"],
  ])("is known by what it prints: %s is %s", async (printed, version) => {
    const folder = programs(printed, { "nvidia-smi": GPU, trtexec: running(printed) });
    const found = await findTrtexec(environmentOf(folder));
    expect(found).toMatchObject({ version, gpu: "NVIDIA T4" });
  });

  it.each<[string, Record<string, string>]>([
    ["without a GPU", { "nvidia-smi": "exit 9", trtexec: running("v100800") }],
    ["without the program", { "nvidia-smi": GPU }],
    ["with a program that does not start", { "nvidia-smi": GPU, trtexec: "exit 127" }],
  ])("is none %s", async (name, scripts) => {
    expect(await findTrtexec(environmentOf(programs(name, scripts)))).toBeNull();
  });

  it("is told with what the node can do, and missed where there is a GPU only", async () => {
    const machinery = {
      version: "1",
      tools: null,
      segmenters: [],
      weights: [],
      segmenterProblem: null,
      slots: 1,
      modelsBytesMax: null,
      cudaProblem: null,
      engine: { missing: "nothing" },
    };
    const both = programs("both", { "nvidia-smi": GPU, trtexec: running("v100800") });
    const able = await describeNode({ ...machinery, environment: environmentOf(both) });
    expect(Capabilities.parse(able).trtexec).toEqual({ version: "10.8.0", gpu: "NVIDIA T4" });
    const bare = programs("bare", { "nvidia-smi": GPU });
    const unable = await describeNode({ ...machinery, environment: environmentOf(bare) });
    expect(unable.trtexec).toBeUndefined();
    expect(unable.missing.join()).toMatch(/install TensorRT/);
  });
});

describe("an engine", () => {
  const onnx = join(dir, "model.onnx");
  writeFileSync(onnx, "a file");
  const OPTIONS = { precision: "fp16", size: [64, 96], batch: 1 } as const;
  const never = new AbortController().signal;
  let builds = 0;

  /** A trtexec of this script, and a folder of its own for engines. */
  const machineOf = (script: string, more: Partial<{ version: string; gpu: string }> = {}) => {
    const folder = programs(`build-${++builds}`, { trtexec: script });
    const trtexec = { program: join(folder, "trtexec"), version: "10.8.0", gpu: "NVIDIA T4" };
    return {
      folder: join(dir, `engines-${builds}`),
      timeoutSeconds: 60,
      signal: never,
      trtexec: { ...trtexec, ...more },
    };
  };
  const log = join(dir, "asked.txt");
  const BUILDS = [
    `echo "$@" >> ${log}`,
    'for argument in "$@"; do case $argument in',
    '--saveEngine=*) echo "an engine" > "$(echo "$argument" | cut -d= -f2-)";; esac; done',
  ].join("\n");

  it("is built once for each file, version, GPU and options", async () => {
    const machine = machineOf(BUILDS);
    const first = await buildEngine(onnx, OPTIONS, machine);
    expect(first.isNew).toBe(true);
    expect(readFileSync(first.path, "utf8")).toBe("an engine\n");
    expect(readFileSync(log, "utf8")).toMatch(
      /^--onnx=\S+model\.onnx --saveEngine=\S+ --timingCacheFile=\S+ --fp16 --skipInference\n$/,
    );
    expect(await buildEngine(onnx, OPTIONS, machine)).toEqual({ path: first.path, isNew: false });

    const other = join(dir, "other.onnx");
    writeFileSync(other, "another file");
    const others = [
      await buildEngine(other, OPTIONS, machine),
      await buildEngine(onnx, { ...OPTIONS, precision: "fp32" }, machine),
      await buildEngine(onnx, { ...OPTIONS, batch: null }, machine),
      await buildEngine(onnx, OPTIONS, {
        ...machine,
        trtexec: { ...machine.trtexec, version: "10.9.0" },
      }),
      await buildEngine(onnx, OPTIONS, {
        ...machine,
        trtexec: { ...machine.trtexec, gpu: "NVIDIA L4" },
      }),
    ];
    expect(others.map(({ isNew }) => isNew)).toEqual([true, true, true, true, true]);
    expect(new Set([first, ...others].map(({ path }) => path)).size).toBe(6);
  });

  it("is dropped when sixteen others were used since", async () => {
    const machine = machineOf(BUILDS);
    mkdirSync(machine.folder);
    // A process that died while it built.
    writeFileSync(join(machine.folder, "a.plan.part-999999-1"), "half");
    const made: string[] = [];
    for (let file = 1; file <= 17; file++) {
      const path = join(dir, `${file}.onnx`);
      writeFileSync(path, `file ${file}`);
      const engine = (await buildEngine(path, OPTIONS, machine)).path;
      // The times of files are those of the kernel's clock: two engines may have the same.
      if (file === 1) utimesSync(engine, 1_000_000, 1_000_000);
      made.push(engine);
    }
    const left = readdirSync(machine.folder);
    expect(left).toHaveLength(16);
    expect(left.map((name) => join(machine.folder, name))).not.toContain(made[0]);
  });

  const failure = (script: string, more: Partial<Parameters<typeof buildEngine>[2]> = {}) => {
    const machine = { ...machineOf(script), ...more };
    return { machine, built: buildEngine(onnx, OPTIONS, machine) };
  };

  it("fails with the program's last errors, and leaves nothing behind", async () => {
    const script = [
      "echo '[I] reading'",
      "echo '[E] Error[4]: node TopK: too many'",
      "echo '[E] Engine set up failed' >&2",
      "echo '&&&& FAILED'",
      'for argument in "$@"; do case $argument in',
      '--saveEngine=*) echo half > "$(echo "$argument" | cut -d= -f2-)";; esac; done; exit 1',
    ].join("\n");
    const { machine, built } = failure(script);
    await expect(built).rejects.toMatchObject({
      name: "TaskFailure",
      code: "engine_not_built",
      retryable: false,
      message: expect.stringMatching(/exit status 1.*Error\[4\].*Engine set up failed/),
    });
    expect(readdirSync(machine.folder)).toEqual([]);
  });

  it("tells that it is being built until it is there", async () => {
    const go = join(dir, "go");
    const machine = machineOf(`until [ -e ${go} ]; do sleep 0.01; done\n${BUILDS}`);
    const told: number[] = [];
    const onBuilding = (seconds: number) => {
      told.push(seconds);
      // Once when it began, and twice while it works.
      if (told.length === 3) writeFileSync(go, "");
    };
    const built = await buildEngine(onnx, OPTIONS, { ...machine, onBuilding, everyMs: 5 });
    expect(built.isNew).toBe(true);
    expect(told.length).toBeGreaterThanOrEqual(3);
    expect(told).toEqual(told.toSorted((one, other) => one - other));
    // What is there already is not built.
    const count = told.length;
    await buildEngine(onnx, OPTIONS, { ...machine, onBuilding, everyMs: 5 });
    expect(told).toHaveLength(count);
  });

  it.each<[string, string, RegExp]>([
    ["that says it is done and writes nothing", "exit 0", /wrote no engine/],
    ["that is killed", "kill -9 $$", /SIGKILL/],
  ])("fails by a program %s", async (_, script, reason) => {
    await expect(failure(script).built).rejects.toThrow(reason);
  });

  it("fails when it takes too long, or by its signal", async () => {
    const slow = failure("exec sleep 600", { timeoutSeconds: 0.2 });
    await expect(slow.built).rejects.toThrow(/longer than 0.2 s/);
    const cancel = new AbortController();
    const canceled = failure("exec sleep 600", { signal: cancel.signal });
    cancel.abort(new Error("the task was canceled"));
    await expect(canceled.built).rejects.toThrow(/canceled|aborted/i);
  });
});
