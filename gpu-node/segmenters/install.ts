// Installs bundles from a folder, a zip, an npm package or an address, and checks installed ones. A
// bundle appears whole under its name or not at all; every byte is counted and hashed on the way.

import { createHash, randomUUID } from "node:crypto";
import { createReadStream } from "node:fs";
import { mkdir, open, readdir, rename, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { lives, ownName } from "../base/processes.ts";
import type { RgbImage } from "../media/image.ts";
import { BrokenZip, ZipReader } from "../objects/zip-reader.ts";
import type { Device, Log } from "../onnx/runtime.ts";
import {
  BUNDLE_FILE,
  type Bundle,
  type BundleFile,
  checkFile,
  MANIFEST_BYTES_MAX,
  parseManifest,
} from "./bundle.ts";
import { packageFolder } from "./embedded-files.ts";
import { BundleBroken, PromptUnknown, UnsupportedRequest } from "./failures.ts";
import { openSegmenter } from "./registry.ts";
import { checkWeights, type WeightsOptions, weightsSource } from "./weights.ts";

/** `.installing-<process>-<any>`, and what it replaces for a moment. */
const STAGING = ".installing-";
const OLD = "-old";

/** Where a bundle's files come from. */
interface Source {
  name: string;
  manifest: () => Promise<string>;
  file: (path: string) => Promise<AsyncIterable<Uint8Array>>;
  /** Called once nothing more is read. */
  close?: () => void;
}

export interface InstallOptions {
  modelsDir: string;
  /** What is to be said of a file of weights, which has no manifest. */
  weights?: WeightsOptions;
  fetch?: typeof fetch;
  /** Told of each file as it begins. */
  onFile?: (file: BundleFile) => void;
}

/** Installs a bundle over an older one of its name. Fails with BundleBroken, changing nothing. */
export async function installBundle(from: string, options: InstallOptions): Promise<Bundle> {
  const source = await findSource(from, options);
  try {
    return await installFrom(source, options);
  } finally {
    source.close?.();
  }
}

async function installFrom(source: Source, options: InstallOptions): Promise<Bundle> {
  const text = await source.manifest();
  const manifest = parseManifest(text, source.name);
  await mkdir(options.modelsDir, { recursive: true });
  await sweep(options.modelsDir);
  const staging = join(options.modelsDir, `${STAGING}${ownName()}-${randomUUID()}`);
  try {
    for (const file of manifest.files) {
      options.onFile?.(file);
      await copyFile(source, file, staging);
      await checkFile(staging, file);
    }
    if (manifest.kind === "weights") await checkWeights(staging, manifest);
    await writeWhole(join(staging, BUNDLE_FILE), [new TextEncoder().encode(text)]);
    const folder = join(options.modelsDir, manifest.name);
    await replaceFolder(staging, folder);
    return { folder, manifest };
  } finally {
    await rm(staging, { recursive: true, force: true });
  }
}

/** Gigabytes stay behind when an installation is killed. */
async function sweep(modelsDir: string): Promise<void> {
  for (const name of await readdir(modelsDir)) {
    // What was about to be replaced may be the last of its name.
    if (!name.startsWith(STAGING) || name.endsWith(OLD)) continue;
    const [owner = ""] = /^\d+-\d+/.exec(name.slice(STAGING.length)) ?? [];
    if (!lives(owner)) await rm(join(modelsDir, name), { recursive: true, force: true });
  }
}

async function findSource(
  from: string,
  { fetch: fetcher = fetch, weights = {} }: InstallOptions,
): Promise<Source> {
  if (/^https?:\/\//.test(from) && URL.canParse(from)) return webSource(from, fetcher);
  const found = await stat(from).catch(() => null);
  if (found?.isDirectory()) return folderSource(from);
  if (found?.isFile() && from.endsWith(BUNDLE_FILE)) return folderSource(dirname(from));
  if (found?.isFile() && from.endsWith(".zip")) return zipSource(from);
  if (found?.isFile() && from.endsWith(".safetensors")) return weightsSource(from, weights);
  if (found) {
    const kinds = `a folder, a zip, a ${BUNDLE_FILE} nor a .safetensors file`;
    throw new BundleBroken(from, `is neither ${kinds}`);
  }
  if (/^(?:@[\w.-]+\/)?[\w-][\w.-]*$/.test(from)) return folderSource(packageFolder(from));
  throw new BundleBroken(from, "there is no such folder, npm package or address");
}

function folderSource(folder: string): Source {
  const read = async (path: string) => {
    const file = join(folder, path);
    if (!(await stat(file).catch(() => null))?.isFile())
      throw new BundleBroken(folder, `${path} is missing`);
    return createReadStream(file);
  };
  return {
    name: folder,
    manifest: async () => readText(await read(BUNDLE_FILE), folder),
    file: read,
  };
}

/** A zip whose manifest lies at its top or in its one folder. */
async function zipSource(path: string): Promise<Source> {
  const asBundle = (thrown: unknown) =>
    thrown instanceof BrokenZip
      ? new BundleBroken(path, thrown.message, { cause: thrown })
      : thrown;
  const zip = await ZipReader.open(path).catch((thrown: unknown) => {
    throw asBundle(thrown);
  });
  const read = (name: string) =>
    zip.stream(name).catch((thrown: unknown) => {
      throw asBundle(thrown);
    });
  const [manifest, another] = zip.names.filter((name) =>
    new RegExp(`^([^/]+/)?${BUNDLE_FILE.replace(".", "\\.")}$`).test(name),
  );
  if (!manifest || another) {
    zip.close();
    throw new BundleBroken(path, `should hold one ${BUNDLE_FILE}`);
  }
  const folder = manifest.slice(0, -BUNDLE_FILE.length);
  return {
    name: path,
    manifest: async () => readText(toEnd(await read(manifest), `${path}: ${manifest}`), path),
    file: (file) => read(`${folder}${file}`),
    close: () => zip.close(),
  };
}

/** The address of a manifest, or of the folder that it lies in. */
function webSource(address: string, fetcher: typeof fetch): Source {
  const { pathname } = new URL(address);
  const base = new URL(address);
  if (!pathname.endsWith(".json")) base.pathname = `${pathname.replace(/\/$/, "")}/${BUNDLE_FILE}`;
  const read = async (url: URL) => {
    let reply: Response;
    try {
      reply = await fetcher(url);
    } catch (cause) {
      throw new BundleBroken(url.origin + url.pathname, "cannot be reached", { cause });
    }
    if (!reply.ok || !reply.body)
      throw new BundleBroken(url.origin + url.pathname, `answered ${reply.status}`);
    return reply.body;
  };
  return {
    name: base.origin + base.pathname,
    manifest: async () => readText(await read(base), base.origin + base.pathname),
    file: (path) => {
      const url = new URL(path, base);
      url.search = base.search;
      return read(url);
    },
  };
}

async function readText(chunks: AsyncIterable<Uint8Array>, where: string): Promise<string> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of chunks) {
    bytes += chunk.length;
    if (bytes > MANIFEST_BYTES_MAX) throw new BundleBroken(where, `${BUNDLE_FILE} is too large`);
    parts.push(chunk);
  }
  return Buffer.concat(parts).toString("utf8");
}

/** Stops at the first byte too many, and at the end unless size and digest are as promised. */
async function copyFile(source: Source, file: BundleFile, staging: string): Promise<void> {
  const hash = createHash("sha256");
  let bytes = 0;
  const chunks = await source.file(file.path);
  async function* counted() {
    for await (const chunk of toEnd(chunks, `${source.name}: ${file.path}`)) {
      bytes += chunk.length;
      if (bytes > file.bytes)
        throw new BundleBroken(source.name, `${file.path} has more than ${file.bytes} bytes`);
      hash.update(chunk);
      yield chunk;
    }
  }
  await writeWhole(join(staging, file.path), counted());
  if (bytes !== file.bytes)
    throw new BundleBroken(source.name, `${file.path} has ${bytes} bytes, not ${file.bytes}`);
  const digest = hash.digest("hex");
  if (digest !== file.sha256)
    throw new BundleBroken(
      source.name,
      `${file.path} has the sha256 ${digest}, not ${file.sha256}`,
    );
}

/** What breaks off midway, or cannot be unpacked, is the source's fault. */
async function* toEnd(chunks: AsyncIterable<Uint8Array>, where: string) {
  try {
    yield* chunks;
  } catch (cause) {
    throw new BundleBroken(where, "cannot be read to its end", { cause });
  }
}

async function writeWhole(
  path: string,
  chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  const file = await open(path, "wx");
  try {
    for await (const chunk of chunks) await file.write(chunk);
    await file.sync();
  } finally {
    await file.close();
  }
}

async function replaceFolder(staging: string, folder: string): Promise<void> {
  const old = `${staging}${OLD}`;
  const replaced = await rename(folder, old).then(
    () => true,
    (error) => {
      if (error.code === "ENOENT") return false;
      throw error;
    },
  );
  try {
    await rename(staging, folder);
  } catch (error) {
    if (replaced) await rename(old, folder);
    throw error;
  }
  await rm(old, { recursive: true, force: true });
}

/** What one look with an installed segmenter gave. */
export interface Verification {
  name: string;
  device: Device;
  openSeconds: number;
  lookSeconds: number;
}

/** Checks a bundle's files, opens its models, and looks at a drawn image once. */
export async function verifySegmenter(
  name: string,
  options: { modelsDir: string; cpuThreads: number; device?: Device; log: Log },
): Promise<Verification> {
  const started = performance.now();
  const segmenter = await openSegmenter(name, options);
  const opened = performance.now();
  try {
    const encoded = await segmenter.encode(disc());
    const { text, points, vocabulary } = segmenter.info;
    if (text !== "none") {
      const prompt = segmenter.resolve(vocabulary[0] ?? "disc");
      await segmenter.detect(encoded, [prompt], { confidenceMin: 0.05, masks: true });
    }
    if (points) await segmenter.segment(encoded, { points: [], box: [80, 40, 240, 200] });
    encoded.dispose();
    return {
      name,
      device: segmenter.info.device,
      openSeconds: (opened - started) / 1000,
      lookSeconds: (performance.now() - opened) / 1000,
    };
  } catch (cause) {
    if (cause instanceof PromptUnknown || cause instanceof UnsupportedRequest) throw cause;
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new BundleBroken(name, `its models fail on a picture: ${reason}`, { cause });
  } finally {
    await segmenter.dispose();
  }
}

/** A bright disc on grey. */
function disc(): RgbImage {
  const [width, height] = [320, 240];
  const data = new Uint8Array(width * height * 3).fill(90);
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++)
      if (Math.hypot(x - 160, y - 120) < 70) data.set([230, 60, 40], (y * width + x) * 3);
  return { data, width, height };
}
