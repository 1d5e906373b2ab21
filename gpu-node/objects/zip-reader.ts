// Reads single files out of a zip archive on disk, as streams, through its central directory. Names
// in the archive are only looked up, never used as paths, so they cannot lead anywhere.

import { createReadStream } from "node:fs";
import { open } from "node:fs/promises";
import { createInflateRaw } from "node:zlib";
import { BundleBroken } from "../segmenters/failures.ts";

const END = { signature: 0x06054b50, bytes: 22, commentMax: 65_535 };
const END64_LOCATOR = { signature: 0x07064b50, bytes: 20 };
const END64 = { signature: 0x06064b50, bytes: 56 };
const ENTRY = { signature: 0x02014b50, bytes: 46 };
const LOCAL = { signature: 0x04034b50, bytes: 30 };
const DIRECTORY_BYTES_MAX = 1_000_000;
const FULL = 0xffffffff;

interface Entry {
  offset: number;
  packed: number;
  method: number;
}

export class ZipFile {
  readonly #path: string;
  readonly #entries: ReadonlyMap<string, Entry>;

  private constructor(path: string, entries: ReadonlyMap<string, Entry>) {
    this.#path = path;
    this.#entries = entries;
  }

  static async open(path: string): Promise<ZipFile> {
    const file = await open(path);
    try {
      const { size } = await file.stat();
      const read = async (at: number, length: number) => {
        if (at < 0 || length < 0 || at + length > size)
          throw new BundleBroken(path, "is a broken zip");
        const bytes = Buffer.alloc(length);
        await file.read(bytes, 0, length, at);
        return bytes;
      };
      return new ZipFile(path, await readDirectory(path, size, read));
    } finally {
      await file.close();
    }
  }

  /** Names of its files. */
  get names(): string[] {
    return [...this.#entries.keys()];
  }

  /** A file's bytes. Nothing says here how many they will be: count them. */
  async stream(name: string): Promise<AsyncIterable<Uint8Array>> {
    const entry = this.#entries.get(name);
    if (!entry) throw new BundleBroken(this.#path, `${name} is missing`);
    const file = await open(this.#path);
    const local = Buffer.alloc(LOCAL.bytes);
    await file.read(local, 0, LOCAL.bytes, entry.offset).finally(() => file.close());
    if (local.readUInt32LE(0) !== LOCAL.signature)
      throw new BundleBroken(this.#path, "is a broken zip");
    // The local header has its own lengths of name and extra field.
    const start = entry.offset + LOCAL.bytes + local.readUInt16LE(26) + local.readUInt16LE(28);
    if (entry.packed === 0) return empty();
    const bytes = createReadStream(this.#path, { start, end: start + entry.packed - 1 });
    if (entry.method === 0) return bytes;
    if (entry.method !== 8)
      throw new BundleBroken(this.#path, `${name} is packed in a way that is not read`);
    const inflated = createInflateRaw();
    bytes.on("error", (error) => inflated.destroy(error));
    return bytes.pipe(inflated);
  }
}

async function* empty(): AsyncGenerator<Uint8Array> {}

type Read = (at: number, length: number) => Promise<Buffer>;

async function readDirectory(
  path: string,
  size: number,
  read: Read,
): Promise<ReadonlyMap<string, Entry>> {
  const tailBytes = Math.min(size, END.bytes + END.commentMax);
  const tail = await read(size - tailBytes, tailBytes);
  let at = tail.length - END.bytes;
  while (at >= 0 && tail.readUInt32LE(at) !== END.signature) at--;
  if (at < 0) throw new BundleBroken(path, "is no zip");
  let [bytes, offset] = [tail.readUInt32LE(at + 12), tail.readUInt32LE(at + 16)];
  if (bytes === FULL || offset === FULL) {
    const locator = await read(size - tailBytes + at - END64_LOCATOR.bytes, END64_LOCATOR.bytes);
    if (locator.readUInt32LE(0) !== END64_LOCATOR.signature)
      throw new BundleBroken(path, "is a broken zip");
    const end = await read(Number(locator.readBigUInt64LE(8)), END64.bytes);
    if (end.readUInt32LE(0) !== END64.signature) throw new BundleBroken(path, "is a broken zip");
    [bytes, offset] = [Number(end.readBigUInt64LE(40)), Number(end.readBigUInt64LE(48))];
  }
  if (bytes > DIRECTORY_BYTES_MAX) throw new BundleBroken(path, "holds too many files");
  return readEntries(path, await read(offset, bytes));
}

function readEntries(path: string, directory: Buffer): Map<string, Entry> {
  const entries = new Map<string, Entry>();
  for (let at = 0; at + ENTRY.bytes <= directory.length; ) {
    if (directory.readUInt32LE(at) !== ENTRY.signature)
      throw new BundleBroken(path, "is a broken zip");
    const nameBytes = directory.readUInt16LE(at + 28);
    const extraBytes = directory.readUInt16LE(at + 30);
    const nameAt = at + ENTRY.bytes;
    const name = directory.toString("utf8", nameAt, nameAt + nameBytes);
    const extra = directory.subarray(nameAt + nameBytes, nameAt + nameBytes + extraBytes);
    if (directory.readUInt16LE(at + 8) & 1)
      throw new BundleBroken(path, `${name} is encrypted, which is not read`);
    entries.set(name, {
      method: directory.readUInt16LE(at + 10),
      ...largeSizes(extra, {
        unpacked: directory.readUInt32LE(at + 24),
        packed: directory.readUInt32LE(at + 20),
        offset: directory.readUInt32LE(at + 42),
      }),
    });
    at = nameAt + nameBytes + extraBytes + directory.readUInt16LE(at + 32);
  }
  return entries;
}

/** Sizes past 4 GiB lie in the extra field 1, in this order, only those that did not fit. */
function largeSizes(
  extra: Buffer,
  sizes: { unpacked: number; packed: number; offset: number },
): { packed: number; offset: number } {
  for (let at = 0; at + 4 <= extra.length; at += 4 + extra.readUInt16LE(at + 2)) {
    if (extra.readUInt16LE(at) !== 1) continue;
    let from = at + 4;
    const large = (value: number) => {
      if (value !== FULL || from + 8 > extra.length) return value;
      from += 8;
      return Number(extra.readBigUInt64LE(from - 8));
    };
    large(sizes.unpacked);
    return { packed: large(sizes.packed), offset: large(sizes.offset) };
  }
  return sizes;
}
