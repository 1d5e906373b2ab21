// Pixels that datasets on this node hold already. A file of pixels lies beside a list of its
// images, each named by what it was made of, so that a dataset with a few frames more, or with
// others in its splits, decodes only what no file here has.

import * as fs from "node:fs/promises";
import { dirname, join } from "node:path";

/** An image of a file of pixels. */
export interface ListedImage {
  /** By its video and frame; the file's name says how it was made. */
  id: string;
  width: number;
  height: number;
  /** Sides of the frame that it was made of. */
  source: { width: number; height: number };
}

/** Files that are looked into, those used last first. */
const FILES_MAX = 20;

export const bytesOf = ({ width, height }: Pick<ListedImage, "width" | "height">) =>
  width * height * 3;

/** The list of a whole file of pixels; null where either is not there or not what it should be. */
export async function readList(path: string): Promise<ListedImage[] | null> {
  try {
    const images = JSON.parse(await fs.readFile(`${path}.json`, "utf8")) as ListedImage[];
    const { size } = await fs.stat(path);
    return images.reduce((sum, image) => sum + bytesOf(image), 0) === size ? images : null;
  } catch (thrown) {
    if ((thrown as { code?: string }).code === "ENOENT" || thrown instanceof SyntaxError)
      return null;
    throw thrown;
  }
}

interface StoredImage {
  file: fs.FileHandle;
  offset: number;
  image: ListedImage;
}

/** Images of other files, which stay readable when those are removed meanwhile. */
export class KeptPixels {
  readonly #stored = new Map<string, StoredImage>();
  readonly #files: fs.FileHandle[] = [];

  /** Looks for images in files beside `path` whose names begin alike. */
  static async find(path: string, prefix: string, ids: readonly string[]): Promise<KeptPixels> {
    const kept = new KeptPixels();
    const missing = new Set(ids);
    const folder = dirname(path);
    const names = (await fs.readdir(folder)).filter(
      (name) => name.startsWith(prefix) && name.endsWith(".rgb"),
    );
    const used = await Promise.all(
      names.map(async (name) => {
        const stat = await fs.stat(join(folder, name)).catch(() => null);
        return { path: join(folder, name), usedMs: stat?.mtimeMs ?? 0 };
      }),
    );
    used.sort((one, other) => other.usedMs - one.usedMs);
    for (const { path: other } of used.slice(0, FILES_MAX)) {
      if (missing.size === 0) break;
      if (other !== path) await kept.#take(other, missing);
    }
    return kept;
  }

  async #take(path: string, missing: Set<string>) {
    const images = await readList(path);
    if (!images?.some(({ id }) => missing.has(id))) return;
    const file = await fs.open(path).catch(() => null);
    if (!file) return;
    this.#files.push(file);
    let offset = 0;
    for (const image of images) {
      if (missing.delete(image.id)) this.#stored.set(image.id, { file, offset, image });
      offset += bytesOf(image);
    }
  }

  has(id: string): boolean {
    return this.#stored.has(id);
  }

  /** An image that is here, with its pixels. */
  async read(id: string): Promise<{ image: ListedImage; data: Uint8Array } | null> {
    const stored = this.#stored.get(id);
    if (!stored) return null;
    const { file, offset, image } = stored;
    const data = Buffer.allocUnsafeSlow(bytesOf(image));
    const { bytesRead } = await file.read(data, 0, data.length, offset);
    if (bytesRead !== data.length) throw new Error("a file of pixels became shorter");
    return { image, data };
  }

  async close(): Promise<void> {
    await Promise.all(this.#files.map((file) => file.close()));
  }
}
