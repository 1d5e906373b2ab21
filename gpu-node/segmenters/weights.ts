// First weights of trainings as bundles: what a file has to be to count as a detector's, how a file
// becomes a bundle, and which are installed.

import { createReadStream } from "node:fs";
import { readFile, rm, stat } from "node:fs/promises";
import { basename, join } from "node:path";
import {
  detectorGraph,
  stateTensors,
  VARIANT_NAMES,
  type Variant,
} from "../../shared/detector/detector.ts";
import {
  parseTensors,
  SafetensorsError,
  type TensorFile,
} from "../../shared/detector/safetensors.ts";
import type { InstalledWeights } from "../../shared/tasks/node-protocol.ts";
import { type Bundle, checkFile, Manifest, type WeightsManifest } from "./bundle.ts";
import { digestOf } from "./embedded-files.ts";
import { BundleBroken, BundleMissing, WeightsMissing } from "./failures.ts";
import { listBundles } from "./registry.ts";

const BYTES_MAX = 2 * 1024 ** 3;
/** Layers of the backbone: those before the first that looks at two others. */
const BACKBONE_LAYERS = 11;
/** What `npm run models -- pretrain` writes into its files. */
export const PRETRAINED_FORMAT = "vantage-pretrained";

/** The tensors of a file, which is read whole. Fails with BundleBroken. */
async function readWeights(path: string): Promise<TensorFile> {
  const { size } = await stat(path);
  if (size > BYTES_MAX) throw new BundleBroken(path, "the weights have more than 2 GiB");
  try {
    return parseTensors(await readFile(path));
  } catch (cause) {
    if (!(cause instanceof SafetensorsError)) throw cause;
    throw new BundleBroken(path, `it is no safetensors file: ${cause.message}`, { cause });
  }
}

/** Why a file is not a variant's backbone, or null where it is. Whatever else it holds may be. */
function misfit({ tensors }: TensorFile, variant: Variant): string | null {
  const backbone = stateTensors(detectorGraph(variant, 1)).filter(
    // Not every file counts the batches.
    ({ layer, name }) => layer < BACKBONE_LAYERS && !name.endsWith("norm.batches"),
  );
  for (const { name, shape } of backbone) {
    const found = tensors.get(name);
    if (!found) return `${variant} has a tensor ${name}, which it lacks`;
    if (found.shape.join() !== shape.join())
      return `its ${name} is [${found.shape}], and [${shape}] in ${variant}`;
    if (!/^(?:F16|BF16|F32|F64)$/.test(found.dtype)) return `its ${name} holds no floats`;
  }
  return null;
}

/** Fails with BundleBroken where a bundle's file is no backbone of the variant that it names. */
export async function checkWeights(folder: string, manifest: WeightsManifest): Promise<void> {
  const reason = misfit(await readWeights(join(folder, manifest.weights)), manifest.variant);
  if (reason) throw new BundleBroken(folder, `${manifest.weights} does not fit: ${reason}`);
}

/** What an operator says of a file of weights. */
export interface WeightsOptions {
  /** The set's name; runs ask for it. */
  name?: string | undefined;
  title?: string | undefined;
  licence?: string | undefined;
  source?: string | undefined;
}

/** A bundle's manifest and files, from a file of weights alone. Fails with BundleBroken. */
export async function weightsSource(path: string, given: WeightsOptions) {
  const file = await readWeights(path);
  const { metadata } = file;
  const isOurs = metadata.format === PRETRAINED_FORMAT;
  const {
    name,
    licence = isOurs ? "your own; made with MobileSAM's encoder (MIT and Apache-2.0)" : undefined,
    source = isOurs
      ? `npm run models -- pretrain on ${metadata.images} pictures, ${metadata.images_sha256}`
      : undefined,
  } = given;
  if (!name) throw new BundleBroken(path, "say how runs are to ask for the weights: --name");
  if (!licence) throw new BundleBroken(path, "say what licence they come under: --licence");
  if (!source) throw new BundleBroken(path, "say where they come from: --source");
  const variant = VARIANT_NAMES.find((one) => misfit(file, one) === null);
  if (!variant) {
    const reasons = VARIANT_NAMES.map((one) => misfit(file, one));
    throw new BundleBroken(path, `it is no backbone of a det26 variant: ${reasons.join("; ")}`);
  }
  const weights = basename(path)
    .replaceAll(/[^\w.-]/g, "-")
    .replace(/^[^A-Za-z0-9]+/, "");
  const { size: bytes } = await stat(path);
  const parsed = Manifest.safeParse({
    kind: "weights",
    name: `${name}-${variant}`,
    dataset: name,
    variant,
    title: given.title ?? `${name}, ${variant}`,
    licence,
    source,
    weights,
    files: [{ path: weights, sha256: await digestOf(path), bytes }],
  });
  if (!parsed.success)
    throw new BundleBroken(path, parsed.error.issues.map(({ message }) => message).join("; "));
  return {
    name: path,
    manifest: async () => JSON.stringify(parsed.data, null, 2),
    file: async () => createReadStream(path),
  };
}

/** First weights that are installed, as a node tells of them. */
export async function listWeights(modelsDir: string): Promise<InstalledWeights[]> {
  return (await listBundles(modelsDir)).weights.map(({ manifest }) => {
    const { dataset, variant, title, licence, source } = manifest;
    return { dataset, variant, title, licence, source };
  });
}

/**
 * The bundle of a set's weights for a variant. Fails with WeightsMissing; the file itself is looked
 * at by `checkedWeights` alone.
 */
export async function findWeights(
  modelsDir: string,
  dataset: string,
  variant: Variant,
): Promise<Bundle<WeightsManifest>> {
  const found = (await listBundles(modelsDir)).weights.find(
    ({ manifest }) => manifest.dataset === dataset && manifest.variant === variant,
  );
  if (!found) throw new WeightsMissing(dataset, variant);
  return found;
}

/** The path of a bundle's weights, once they are what was promised. Fails with BundleBroken. */
export async function checkedWeights({ folder, manifest }: Bundle<WeightsManifest>) {
  for (const file of manifest.files) await checkFile(folder, file);
  return join(folder, manifest.weights);
}

/** Takes a bundle of any kind away. Fails with BundleMissing. */
export async function removeBundle(modelsDir: string, name: string): Promise<void> {
  const { bundles, weights } = await listBundles(modelsDir);
  const all = [...bundles, ...weights];
  const found = all.find(({ manifest }) => manifest.name === name);
  if (!found) {
    const names = all.map(({ manifest }) => manifest.name);
    throw new BundleMissing(name, names.length > 0 ? names : ["none that can be removed"]);
  }
  await rm(found.folder, { recursive: true });
}
