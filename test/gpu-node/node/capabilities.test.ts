// What a node says that it can do, what it lacks, and where it looks for its models.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { describeNode, type Machinery } from "../../../gpu-node/node/capabilities.ts";
import { modelsDirOf, parseConfig } from "../../../gpu-node/node/config.ts";
import { TASK_KIND_NAMES, TASK_KINDS, type TaskNeed } from "../../../shared/tasks.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "vantage-capabilities-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

describe("the kinds that a node offers", () => {
  const engine = { engine: { torch: "2", cudaKernels: false, gpus: [], bf16: false } };
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
    segmenterProblem: null,
    slots: 1,
    environment: {},
    cuda: false,
    engine,
  };

  it("are all of the table where it has everything", async () => {
    expect((await describeNode(whole)).kinds).toEqual(TASK_KIND_NAMES);
  });

  it.each<[TaskNeed, Partial<Machinery>]>([
    ["ffmpeg", { tools: null }],
    ["segmenter", { segmenters: [] }],
    ["engine", { engine: { missing: "no torch" } }],
  ])("are those that need no %s where it has none", async (need, less) => {
    const rest = TASK_KIND_NAMES.filter(
      (kind) => !(TASK_KINDS[kind].needs as readonly TaskNeed[]).includes(need),
    );
    expect((await describeNode({ ...whole, ...less })).kinds).toEqual(rest);
    expect(rest.length).toBeLessThan(TASK_KIND_NAMES.length);
  });
});

describe("a machine with a GPU", () => {
  it("is told to install CUDA libraries only where they are not", async () => {
    const smi = join(folder, "nvidia-smi");
    writeFileSync(smi, "#!/bin/sh\necho 'NVIDIA L4, 23034'\n", { mode: 0o755 });
    const gpus = [{ name: "NVIDIA L4", memoryBytes: 1 }];
    const engine = { engine: { torch: "2", cudaKernels: true, gpus, bf16: true } };
    const found = {
      version: "1",
      protocol: 3,
      tools: null,
      segmenters: [],
      segmenterProblem: null,
      slots: 1,
      engine,
    };
    const environment = { PATH: folder };
    const told = async (cuda: boolean) =>
      (await describeNode({ ...found, environment, cuda })).missing.join(" ");
    expect(await told(false)).toMatch(/The GPU is not used/);
    expect(await told(true)).not.toMatch(/GPU/);
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
