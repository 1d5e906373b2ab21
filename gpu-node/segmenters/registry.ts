// The segmenters that are installed: the embedded default and the bundles of the models folder.

import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { BUILTIN, builtinInfo } from "./builtin-info.ts";
import {
  BUNDLE_FILE,
  type Bundle,
  bundleInfo,
  readBundle,
  type SegmenterManifest,
  type WeightsManifest,
} from "./bundle.ts";
import { BundleBroken, BundleMissing } from "./failures.ts";
import type { OpenOptions, Segmenter, SegmenterInfo } from "./segmenter.ts";

/** Opens an installed segmenter; null is the embedded default. Fails with BundleMissing. */
export async function openSegmenter(name: string | null, options: OpenOptions): Promise<Segmenter> {
  if (name === null || name === BUILTIN) {
    const { openBuiltin } = await import("./builtin.ts");
    return openBuiltin(options);
  }
  const bundle = await findBundle(options.modelsDir, name);
  if (bundle.manifest.kind === "sam3") {
    const { openSam3 } = await import("./sam3.ts");
    return openSam3(bundle, options);
  }
  const { openSam2 } = await import("./sam2.ts");
  return openSam2(bundle, options);
}

/** Installed segmenters, the embedded default first. Reads manifests only, loads no model. */
export async function listSegmenters(modelsDir: string): Promise<SegmenterInfo[]> {
  const { bundles } = await listBundles(modelsDir);
  return [builtinInfo("cpu"), ...bundles.map((bundle) => bundleInfo(bundle, "cpu"))];
}

/** What a folder of models holds. */
export interface InstalledBundles {
  /** Segmenters, by name. */
  bundles: Bundle<SegmenterManifest>[];
  /** First weights of trainings, by name. */
  weights: Bundle<WeightsManifest>[];
  /** Those that cannot be read, with the reason. */
  broken: { folder: string; reason: string }[];
}

/** Bundles of a folder, by their manifests. */
export async function listBundles(modelsDir: string): Promise<InstalledBundles> {
  const bundles: Bundle<SegmenterManifest>[] = [];
  const weights: Bundle<WeightsManifest>[] = [];
  const broken: { folder: string; reason: string }[] = [];
  for (const folder of await bundleFolders(modelsDir)) {
    try {
      const { manifest } = await readBundle(folder);
      if (manifest.kind === "weights") weights.push({ folder, manifest });
      else bundles.push({ folder, manifest });
    } catch (error) {
      if (!(error instanceof BundleBroken)) throw error;
      broken.push({ folder, reason: error.message });
    }
  }
  return { bundles, weights, broken };
}

async function bundleFolders(modelsDir: string): Promise<string[]> {
  const entries = await readdir(modelsDir, { withFileTypes: true }).catch((error) => {
    if (error.code === "ENOENT") return [];
    throw error;
  });
  const folders: string[] = [];
  for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    if (!entry.isDirectory() || entry.name.startsWith(".")) continue;
    const names = await readdir(join(modelsDir, entry.name));
    if (names.includes(BUNDLE_FILE)) folders.push(join(modelsDir, entry.name));
  }
  return folders;
}

/** The bundle of this name. Fails with BundleMissing, or BundleBroken when it cannot be read. */
export async function findBundle(
  modelsDir: string,
  name: string,
): Promise<Bundle<SegmenterManifest>> {
  const { bundles, broken } = await listBundles(modelsDir);
  const bundle = bundles.find(({ manifest }) => manifest.name === name);
  if (bundle) return bundle;
  const unreadable = broken.find(({ folder }) => folder === join(modelsDir, name));
  if (unreadable) throw new BundleBroken(unreadable.folder, unreadable.reason);
  throw new BundleMissing(name, [BUILTIN, ...bundles.map(({ manifest }) => manifest.name)]);
}
