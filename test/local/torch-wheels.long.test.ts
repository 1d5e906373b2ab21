// `npm run engine`. Goal: torch's wheels are there whole or not at all, are what is pinned, and the
// build finds them; whatever happens to an install, the next one gets them. Method: the real pip,
// with wheels of some hundred bytes in the place of gigabytes.

import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import * as fs from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { strToU8, zipSync } from "fflate";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { findPython } from "../../edge/local/python.ts";
import { providerText } from "../../edge/local/torch-provider.ts";
import {
  installedPins,
  installWheels,
  pinsOf,
  REQUIREMENTS,
  removeWheels,
  textOf,
} from "../../edge/local/torch-wheels.ts";

const ROOT = resolve(import.meta.dirname, "../..");
const python = await findPython();

let root: string;
let folder: string;
beforeEach(() => {
  root = fs.mkdtempSync(join(tmpdir(), "vantage-wheels-"));
  folder = join(root, ".vantage/engine");
});
afterEach(() => fs.rmSync(root, { recursive: true, force: true }));

/** A wheel that is as torch's to the build; its pin. */
const wheel = (version: string): string =>
  wheelOf("torch", version, {
    "torch/lib/libtorch_cpu.so": `torch ${version}`,
    "torch/include/ATen/ATen.h": "",
  });

/** A wheel of some files; its pin. */
function wheelOf(name: string, version: string, content: Record<string, string>): string {
  const stem = `${name.replaceAll("-", "_")}-${version}`;
  const info = `${stem}.dist-info`;
  const files: Record<string, string> = {
    ...content,
    [`${info}/METADATA`]: `Metadata-Version: 2.1\nName: ${name}\nVersion: ${version}\n`,
    [`${info}/WHEEL`]: "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
  };
  const names = [...Object.keys(files), `${info}/RECORD`];
  files[`${info}/RECORD`] = names.map((name) => `${name},,\n`).join("");
  const bytes = zipSync(
    Object.fromEntries(Object.entries(files).map(([name, text]) => [name, strToU8(text)])),
  );
  fs.writeFileSync(join(root, `${stem}-py3-none-any.whl`), bytes);
  return `${name}==${version} --hash=sha256:${createHash("sha256").update(bytes).digest("hex")}\n`;
}

function options(pins: string) {
  const requirements = join(root, "requirements.txt");
  fs.writeFileSync(requirements, pins);
  const environment = { ...process.env, PIP_NO_INDEX: "1", PIP_FIND_LINKS: root, PIP_QUIET: "2" };
  return { requirements, folder, environment };
}

/** The torch that the engine would be built with. */
function foundTorch(): { root: string; mark: string } | null {
  const script =
    `import { findTorch } from ${JSON.stringify(join(ROOT, "edge/local/engine.mjs"))};` +
    `process.stdout.write(JSON.stringify(await findTorch({}, ${JSON.stringify(root)})));`;
  const args = ["--input-type=module", "-e", script];
  return JSON.parse(spawnSync(process.execPath, args, { encoding: "utf8" }).stdout);
}

const beside = () => fs.readdirSync(join(root, ".vantage"));

describe.skipIf(!python)("torch's wheels", () => {
  it("are installed as pinned, found by the build before any other torch, and removed", async () => {
    const one = options(wheel("2.0"));
    expect(await installWheels(one)).toBe(true);
    const found = foundTorch();
    expect(found?.root).toMatch(`${folder}/lib/python3.`);
    expect(installedPins(folder)).toEqual(["torch==2.0"]);
    // Nothing is asked of an index for what is there.
    fs.rmSync(join(root, "torch-2.0-py3-none-any.whl"));
    expect(await installWheels(one)).toBe(false);
    expect(await installWheels(options(wheel("3.0")))).toBe(true);
    expect(foundTorch()?.mark).not.toBe(found?.mark);
    expect(installedPins(folder)).toEqual(["torch==3.0"]);
    expect(beside()).toEqual(["engine"]);
    expect(removeWheels(folder)).toBe(true);
    expect(removeWheels(folder)).toBe(false);
    expect(beside()).toEqual([]);
    expect(foundTorch()?.root).not.toBe(found?.root);
  });

  it("bring onnxruntime under the name by which the node's binding asks for it", async () => {
    const names = ["libonnxruntime.so.1.2.3", "libonnxruntime_providers_cuda.so"];
    const files = names.map((name) => [`onnxruntime/capi/${name}`, name] as const);
    const provider = wheelOf("onnxruntime-gpu", "1.2.3", Object.fromEntries(files));
    await installWheels(options(wheel("2.0") + provider));
    const [packages = ""] = fs.globSync("lib/python3.*/site-packages", { cwd: folder });
    const runtime = join(folder, packages, "onnxruntime/capi/libonnxruntime.so.1");
    expect(fs.readFileSync(runtime, "utf8")).toBe("libonnxruntime.so.1.2.3");
  });

  it("stay as they were where an install fails, as with other bytes than were pinned", async () => {
    await installWheels(options(wheel("2.0")));
    const pin = wheel("3.0");
    const wrong = pin.replace(/.{8}$/m, "00000000");
    await expect(installWheels(options(wrong))).rejects.toThrow(
      /^Nothing was installed: .+ failed/,
    );
    // A pin without a hash is none.
    await expect(installWheels(options("torch==3.0\n"))).rejects.toThrow(/Nothing was installed/);
    expect(beside()).toEqual(["engine"]);
    expect(installedPins(folder)).toEqual(["torch==2.0"]);
  });

  it("are begun again after an install that was killed", async () => {
    const asked = Promise.withResolvers<void>();
    const index = createServer(() => asked.resolve());
    await once(index.listen(0, "127.0.0.1"), "listening");
    const { port } = index.address() as AddressInfo;
    const given = options(wheel("2.0"));
    const script =
      `import { installWheels } from ${JSON.stringify(join(ROOT, "edge/local/torch-wheels.ts"))};` +
      `await installWheels(${JSON.stringify({ requirements: given.requirements, folder })});`;
    const address = `http://127.0.0.1:${port}`;
    const env = { ...process.env, PIP_INDEX_URL: address, PIP_NO_INDEX: "0", NO_PROXY: "*" };
    const args = ["--disable-warning=ExperimentalWarning", "--input-type=module", "-e", script];
    const child = spawn(process.execPath, args, { env, stdio: "ignore", detached: true });
    await asked.promise;
    expect(beside()).toEqual([expect.stringMatching(/^engine\.partial\.\d+$/)]);
    process.kill(-(child.pid as number), "SIGKILL");
    await once(child, "exit");
    index.closeAllConnections();
    index.close();
    expect(await installWheels(given)).toBe(true);
    expect(beside()).toEqual(["engine"]);
    expect(foundTorch()?.root).toMatch(folder);
  });
});

it("every wheel is pinned by version and hash, the compiler's of one version", () => {
  for (const path of Object.values(REQUIREMENTS)) {
    const lines = textOf(path).replaceAll("\\\n", "").split("\n");
    for (const line of lines.filter((one) => one && !/^(#|-r )/.test(one)))
      expect(line).toMatch(
        /^[a-z0-9-]+==[0-9.]+( ; python_version < "3\.15")?( +--hash=sha256:[0-9a-f]{64})+$/,
      );
  }
  expect(pinsOf(textOf(REQUIREMENTS.cpu)).map((pin) => pin.split("==")[0])).toEqual([
    "torch",
    "nvidia-cuda-cupti",
    "nvidia-cuda-runtime",
  ]);
  const pins = pinsOf(textOf(REQUIREMENTS.cuda));
  const compiler = pins.filter((pin) => /-(nvcc|crt|cccl|nvvm|runtime)==/.test(pin));
  expect(compiler).toHaveLength(5);
  expect(new Set(compiler.map((pin) => pin.split("==")[1])).size).toBe(1);
  // The binding of another version would not load with the wheel's runtime.
  const { dependencies } = JSON.parse(fs.readFileSync(join(ROOT, "package.json"), "utf8"));
  expect(pins).toContain(`onnxruntime-gpu==${dependencies["onnxruntime-node"]}`);
});

describe("what is said of the inference provider", () => {
  const here = {
    device: "cpu" as const,
    problem: "a reason",
    isInstalled: true,
    libraries: { found: 9, missing: [] as string[] },
  };
  it.each([
    [
      { ...here, device: "cuda" as const },
      /^onnxruntime's CUDA provider works: all 9 libraries/,
      true,
    ],
    [
      { ...here, libraries: { found: 9, missing: ["libcuda.so.1"] } },
      /is whole: all 9 libraries .+ but NVIDIA's driver .+ run on the CPU here, as one just did/,
      true,
    ],
    [{ ...here, isInstalled: false }, /has no wheel for this Python .+ run on the CPU here/, true],
    // The driver is too old, or there is no card.
    [here, /does not use the GPU: a reason; models run on the CPU here/, true],
    [
      { ...here, libraries: { found: 9, missing: ["libcublas.so.13", "libcuda.so.1"] } },
      /does not use the GPU: a reason/,
      false,
    ],
  ])("is one line, and a failure where an install left something out", (answer, text, isWhole) => {
    expect(providerText(answer)).toEqual({ text: expect.stringMatching(text), isWhole });
  });
});

describe("the command", () => {
  const engine = (...args: string[]) =>
    spawnSync(process.execPath, [join(ROOT, "edge/local/torch.ts"), ...args], { encoding: "utf8" });

  it("explains itself without arguments, and says what is there", () => {
    const { stdout, status } = engine();
    expect(stdout).toMatch(/^npm run engine -- install \[--cuda\][\s\S]+\nNow: .+\.\n$/);
    expect(status).toBe(0);
  });

  it.each([
    [["instal"], /did you mean install\?/],
    [["install", "torch"], /install takes no torch/],
    [["remove", "--cuda"], /remove takes no --cuda/],
  ])("does nothing for %j", (args, said) => {
    const { stdout, stderr, status } = engine(...args);
    expect(stderr).toMatch(said);
    expect([stdout, status]).toEqual(["", 2]);
  });
});
