// onnxruntime's CUDA provider on machines without a GPU. Goal: processes find the libraries that
// `npm run engine -- install --cuda` brought and no others, and a provider that does not load costs
// one line and the GPU, never a model. Method: stand-ins of a few bytes in the place of the wheels;
// the runtime is the real one.

import { execFile } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { freePorts } from "../../edge/local/ports.ts";
import {
  providerFolders,
  providerLibrary,
  resolveLibraries,
  withProvider,
} from "../../gpu-node/onnx/cuda.ts";
import { probeProvider } from "../../gpu-node/onnx/provider-probe.ts";
import type { Capabilities } from "../../shared/tasks/node-protocol.ts";
import { startNode } from "../support/gpu-node.ts";
import { startNodeService, until } from "../support/node-service.ts";

const ROOT = join(import.meta.dirname, "../..");
const BINDING = join(ROOT, "node_modules/onnxruntime-node");
const PROVIDER = "libonnxruntime_providers_cuda.so";
const { version } = JSON.parse(readFileSync(join(BINDING, "package.json"), "utf8"));

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "vantage-provider-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** An environment as `npm run engine` makes it, with empty files; its folder of packages. */
function engine(name: string, runtime: string): { root: string; packages: string } {
  const root = join(folder, name);
  const packages = join(root, "lib/python3.11/site-packages");
  const files = ["libonnxruntime.so.1", `libonnxruntime.so.${runtime}`, PROVIDER].map(
    (file) => `onnxruntime/capi/${file}`,
  );
  for (const file of [
    ...files,
    "nvidia/cu13/lib/x",
    "nvidia/cudnn/lib/x",
    "nvidia/nccl/include/x",
  ]) {
    mkdirSync(dirname(join(packages, file)), { recursive: true });
    writeFileSync(join(packages, file), "");
  }
  return { root, packages };
}

describe("the library path", () => {
  it("begins with the wheel's runtime and CUDA's folders, where the engine has them", () => {
    const { root, packages } = engine("engine", version);
    const folders = ["onnxruntime/capi", "nvidia/cu13/lib", "nvidia/cudnn/lib"].map((name) =>
      join(packages, name),
    );
    expect(providerFolders(root)).toEqual(folders);
    const given = withProvider({ PATH: "/bin", LD_LIBRARY_PATH: "/opt/lib" }, root);
    expect(given).toEqual({ PATH: "/bin", LD_LIBRARY_PATH: [...folders, "/opt/lib"].join(":") });
    // A child of a child has the folders once, and a path of the operator's stays.
    expect(withProvider(given, root)).toEqual(given);
    expect(providerLibrary(given)).toBe(join(packages, "onnxruntime/capi", PROVIDER));
  });

  it("is left alone without a provider, and by one of another version", () => {
    const environment = { PATH: "/bin" };
    expect(withProvider(environment, join(folder, "nothing"))).toEqual(environment);
    // The binding would find the other runtime and not load at all.
    expect(withProvider(environment, engine("old", "1.2.3").root)).toEqual(environment);
    expect(providerLibrary(environment)).toBeNull();
  });
});

/** A folder of the real runtime with a provider that does not load; an environment that has it. */
function broken(provider: string | { like: string }): { PATH: string; LD_LIBRARY_PATH: string } {
  const runtime = join(BINDING, "bin/napi-v6/linux/x64/libonnxruntime.so.1");
  copyFileSync(runtime, join(folder, "libonnxruntime.so.1"));
  for (const name of [PROVIDER, "libonnxruntime_providers_shared.so"]) {
    if (typeof provider === "string") writeFileSync(join(folder, name), provider);
    else copyFileSync(provider.like, join(folder, name));
  }
  return { PATH: process.env.PATH ?? "", LD_LIBRARY_PATH: folder };
}

/** Opens models in a process of its own, two at once; its lines of log and its devices. */
async function openModels(environment: Record<string, string>) {
  const script =
    `import { runTrial, usableDevice } from ${JSON.stringify(join(ROOT, "gpu-node/onnx/runtime.ts"))};` +
    "const told = [];" +
    "const ask = () => usableDevice('cuda', (level, event, fields) => told.push({ level, event, ...fields }));" +
    "const devices = [...(await Promise.all([ask(), ask()])), await ask()];" +
    "for (const device of devices) await runTrial(device);" +
    "process.stdout.write(JSON.stringify({ told, devices }));";
  const args = ["--disable-warning=ExperimentalWarning", "--input-type=module", "-e", script];
  const { stdout } = await promisify(execFile)(process.execPath, args, { env: environment });
  return JSON.parse(stdout) as { told: Record<string, string>[]; devices: string[] };
}

describe.skipIf(process.arch !== "x64")("a provider that does not load", () => {
  it.each<[string, string | { like: string }, RegExp]>([
    ["is no library", "no library", /does not load, since libonnxruntime_providers_\S+, .+ broken/],
    // It loads, and is no provider.
    [
      "is another library",
      { like: join(BINDING, "bin/napi-v6/linux/x64/libonnxruntime.so.1") },
      /does not work: /,
    ],
  ])("as it %s leaves models on the CPU, in one line of log", async (_, provider, reason) => {
    const environment = broken(provider);
    const { told, devices } = await openModels(environment);
    expect(devices).toEqual(["cpu", "cpu", "cpu"]);
    expect(told).toEqual([
      {
        level: "warning",
        event: "cuda_provider_unusable",
        reason: expect.stringMatching(reason),
        advice: expect.stringMatching(/^Models run on the CPU\. npm run engine -- install --cuda/),
      },
    ]);
    expect(await probeProvider(environment)).toMatchObject({
      device: "cpu",
      problem: expect.stringMatching(reason),
    });
  });

  it("is named by the libraries that it lacks, also those that it opens later", () => {
    const { LD_LIBRARY_PATH } = broken("no library");
    const { missing } = resolveLibraries(
      join(folder, PROVIDER),
      { all: true },
      { LD_LIBRARY_PATH },
    );
    expect(missing).toEqual(
      expect.arrayContaining([PROVIDER, "libcudnn.so.9", "libcufft.so.12", "libnvrtc.so.13"]),
    );
  });

  it("is in a node's report and in its log once, and the node works", async () => {
    const service = await startNodeService();
    const [port = 0] = await freePorts(1);
    writeFileSync(join(folder, "nvidia-smi"), "#!/bin/sh\necho 'NVIDIA L4, 23034'\n", {
      mode: 0o755,
    });
    const { LD_LIBRARY_PATH, PATH } = broken("no library");
    const node = startNode({
      VANTAGE_URL: service.url,
      VANTAGE_NODE_TOKEN: service.token,
      VANTAGE_NODE_STATUS_PORT: String(port),
      LD_LIBRARY_PATH,
      PATH: `${folder}:${PATH}`,
    });
    try {
      await until("it started", () => node.lines().some(({ event }) => event === "node_started"));
      const answer = await fetch(`http://127.0.0.1:${port}/status.json`);
      const report = (await answer.json()) as { capabilities: Capabilities };
      const sentence = /^Labeling and predictions run on the CPU, .+ is missing or broken; npm run/;
      expect(report.capabilities.device.kind).toBe("cuda");
      expect(report.capabilities.missing).toContainEqual(expect.stringMatching(sentence));
      expect(node.output().match(/Labeling and predictions run on the CPU/g)).toHaveLength(1);
      node.signal("SIGTERM");
      expect(await node.ended).toMatchObject({ code: 0 });
    } finally {
      await service.close();
    }
  });
});
