// What a node says that it can do, what it lacks, and where it looks for its models.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { describeNode, type Machinery } from "../../../gpu-node/node/capabilities.ts";
import { modelsDirOf, parseConfig } from "../../../gpu-node/node/config.ts";
import { Capabilities } from "../../../shared/tasks/node-protocol.ts";
import { TASK_KIND_NAMES, TASK_KINDS, type TaskNeed } from "../../../shared/tasks/tasks.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "vantage-capabilities-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const torch = { torch: "2", torchSource: "wheel" as const };
const engine = {
  engine: { ...torch, cudaKernels: false, gpus: [], bf16: false, cpuBf16: false },
};
const segmenter = {
  name: "s",
  title: "S",
  text: "closed" as const,
  vocabulary: ["red"],
  meanings: { crimson: { classes: ["red"], narrower: true } },
  exemplar: "none" as const,
  points: true,
  licence: "MIT",
  device: "cpu" as const,
  limits: [],
};
const whole: Machinery = {
  version: "1",
  tools: { ffmpeg: "ffmpeg", ffprobe: "ffprobe", version: "7", wrap: [] } as never, // unused here
  segmenters: [segmenter],
  weights: [],
  segmenterProblem: null,
  slots: 1,
  modelsBytesMax: null,
  environment: {},
  cudaProblem: "not installed",
  engine,
};

describe("the kinds that a node offers", () => {
  // Neither is here: programs of their names say that they are.
  beforeEach(() => {
    const scripts = {
      "nvidia-smi": "echo 'NVIDIA T4, 15360'",
      trtexec: "echo '[TensorRT v100800]'",
    };
    for (const [name, script] of Object.entries(scripts)) {
      writeFileSync(join(folder, name), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
    }
    whole.environment = { PATH: `${folder}:/usr/bin:/bin` };
  });

  it("are all of the table where it has everything", async () => {
    expect((await describeNode(whole)).kinds).toEqual(TASK_KIND_NAMES);
  });

  it.each<[TaskNeed, Partial<Machinery>]>([
    ["ffmpeg", { tools: null }],
    ["segmenter", { segmenters: [] }],
    ["engine", { engine: { missing: "no torch" } }],
    ["trtexec", { environment: {} }],
  ])("are those that need no %s where it has none", async (need, less) => {
    const rest = TASK_KIND_NAMES.filter(
      (kind) => !(TASK_KINDS[kind].needs as readonly TaskNeed[]).includes(need),
    );
    expect((await describeNode({ ...whole, ...less })).kinds).toEqual(rest);
    expect(rest.length).toBeLessThan(TASK_KIND_NAMES.length);
  });
});

it("lets open models take a quarter of the memory, or what it was told", async () => {
  const bound = async (modelsBytesMax: number | null) => {
    const { memory_bytes, models_bytes_max } = await describeNode({ ...whole, modelsBytesMax });
    return models_bytes_max / memory_bytes;
  };
  expect(await bound(null)).toBeCloseTo(0.25);
  expect(await bound(0)).toBe(0);
});

describe("a machine with a GPU", () => {
  it("is told to install CUDA libraries only where they are not", async () => {
    const smi = join(folder, "nvidia-smi");
    writeFileSync(smi, "#!/bin/sh\necho 'NVIDIA L4, 23034'\n", { mode: 0o755 });
    const gpus = [{ name: "NVIDIA L4", memoryBytes: 1 }];
    const engine = { engine: { ...torch, cudaKernels: true, gpus, bf16: true, cpuBf16: true } };
    const found = {
      version: "1",
      tools: null,
      segmenters: [],
      weights: [],
      segmenterProblem: null,
      slots: 1,
      modelsBytesMax: null,
      engine,
    };
    const environment = { PATH: folder };
    const told = async (cudaProblem: string | null) =>
      (await describeNode({ ...found, environment, cudaProblem })).missing.join(" ");
    expect(await told("libx.so.1 not found")).toMatch(
      /run on the CPU, since the GPU is not used for models: libx.so.1 not found; npm run engine --/,
    );
    expect(await told(null)).not.toMatch(/GPU/);
    // Models are kept in the GPU's memory.
    const { models_bytes_max, memory_bytes } = await describeNode({
      ...found,
      environment,
      cudaProblem: null,
    });
    expect([memory_bytes, models_bytes_max]).toEqual([23_034 * 1024 ** 2, 5_758.5 * 1024 ** 2]);
  });
});

describe("the engine that a node reports", () => {
  const reported = async (more: object, environment: Record<string, string>) =>
    Capabilities.parse(
      await describeNode({
        ...whole,
        environment,
        engine: { engine: { ...engine.engine, ...more } },
      }),
    ).engine;

  it("says which torch it has, and its precision with the reason", async () => {
    const cpu = await reported({}, {});
    expect(cpu).toEqual({
      torch: "2",
      source: "wheel",
      precision: "fp32",
      reason: "training runs on the CPU",
      devices: availableParallelism(),
    });
    expect(await reported({ cpuBf16: true }, {})).toMatchObject({ precision: "measured" });
    writeFileSync(join(folder, "nvidia-smi"), "#!/bin/sh\necho 'NVIDIA T4, 15360'\n", {
      mode: 0o755,
    });
    const gpus = [{ name: "NVIDIA T4", memoryBytes: 1 }];
    const environment = { PATH: folder };
    const onGpu = { precision: "fp32", devices: 1 };
    expect(await reported({ gpus }, environment)).toMatchObject(onGpu);
    expect(await reported({ gpus, bf16: true }, environment)).toMatchObject({ precision: "bf16" });
    // The GPU is there, and this torch does not see it.
    expect(await reported({}, environment)).toEqual(cpu);
    const { missing } = await describeNode({ ...whole, environment });
    expect(missing.join(" ")).toMatch(/runs on the CPU: .+ npm run engine -- install --cuda/);
  });

  it("is none where there is none", async () => {
    const { engine: none } = await describeNode({ ...whole, engine: { missing: "no torch" } });
    expect(none).toBeUndefined();
  });
});

describe("segmenter bundles", () => {
  it("are looked for where npm run models puts them", () => {
    const modelsOf = (more: Record<string, string>) =>
      parseConfig({ VANTAGE_URL: "http://localhost:8787", VANTAGE_NODE_DIR: "/a", ...more }, "name")
        .modelsDir;
    for (const environment of [{}, { VANTAGE_MODELS: "" }, { VANTAGE_MODELS: "/elsewhere" }]) {
      expect(modelsOf(environment)).toBe(modelsDirOf(environment));
    }
  });
});
