// Writes a zip archive to a file as its entries come: stored, not deflated, since JPEGs do not
// shrink. Archives of any size are right (zip64). The same entries give the same bytes.
// It is our own by decision: yazl 3.3.1 looks through all earlier entries at each new one (measured
// side by side, 20,000 small entries take it 18 times as long, and 70,000 some 100 times), keeps
// every buffer until the archive ends, and sums checksums in JavaScript.

import { type FileHandle, open } from "node:fs/promises";
import { crc32 } from "node:zlib";

export interface ZipWriter {
  /** Adds an entry; its name uses `/`. */
  add(name: string, content: Uint8Array | string): Promise<void>;
  /** Writes the directory and closes the file; returns the archive's length. */
  end(): Promise<number>;
  /** Closes the file without the directory. */
  abandon(): Promise<void>;
}

interface Entry {
  name: Buffer;
  crc: number;
  size: number;
  offset: number;
}

const U32_MAX = 0xffff_ffff;
const U16_MAX = 0xffff;
/** 4.5 reads zip64; the high byte says that the mode is Unix's. */
const VERSION = 45;
const MADE_BY = (3 << 8) | VERSION;
/** Names are UTF-8. */
const FLAGS = 0x0800;
/** 1980-01-01, the earliest there is: an archive does not depend on when it was made. */
const DATE = 0x0021;
const FILE_MODE = 0o100644 << 16;
/** Small writes are gathered up to this many bytes. */
const GATHERED_BYTES = 1024 * 1024;

/** A buffer of little-endian numbers; each is a value and its length in bytes. */
function numbers(...fields: readonly (readonly [value: number, bytes: 2 | 4 | 8])[]): Buffer {
  const buffer = Buffer.alloc(fields.reduce((sum, [, bytes]) => sum + bytes, 0));
  let at = 0;
  for (const [value, bytes] of fields) {
    if (bytes === 8) buffer.writeBigUInt64LE(BigInt(value), at);
    else buffer.writeUIntLE(value, at, bytes);
    at += bytes;
  }
  return buffer;
}

/** Begins an archive at a path, in place of what lies there. */
export async function createZip(path: string): Promise<ZipWriter> {
  const file = await open(path, "w", 0o600);
  return zipInto(file);
}

function zipInto(file: FileHandle): ZipWriter {
  const entries: Entry[] = [];
  let offset = 0;
  let gathered: Buffer[] = [];
  let gatheredBytes = 0;
  const flush = async () => {
    if (gatheredBytes > 0) await file.writeFile(Buffer.concat(gathered));
    gathered = [];
    gatheredBytes = 0;
  };
  const write = async (...parts: Buffer[]) => {
    for (const part of parts) {
      gathered.push(part);
      gatheredBytes += part.length;
      offset += part.length;
    }
    if (gatheredBytes >= GATHERED_BYTES) await flush();
  };
  return {
    add: async (name, content) => {
      const bytes =
        typeof content === "string"
          ? Buffer.from(content)
          : Buffer.from(content.buffer, content.byteOffset, content.byteLength);
      const entry = { name: Buffer.from(name), crc: crc32(bytes), size: bytes.length, offset };
      entries.push(entry);
      await write(localHeader(entry), bytes);
    },
    end: async () => {
      const start = offset;
      for (const entry of entries) await write(directoryEntry(entry));
      await write(directoryEnd(entries.length, start, offset - start));
      await flush();
      await file.close();
      return offset;
    },
    abandon: () => file.close(),
  };
}

/**
 * An archive in memory, its entries in the order given. One that is appended to other bytes is
 * given their length as `origin`: its offsets count from there, as readers of such files want it.
 */
export function zipBytes(
  files: Iterable<readonly [name: string, content: Uint8Array | string]>,
  origin = 0,
): Uint8Array {
  const parts: Uint8Array[] = [];
  const entries: Entry[] = [];
  let offset = origin;
  const append = (part: Uint8Array) => {
    parts.push(part);
    offset += part.length;
  };
  for (const [path, content] of files) {
    const bytes = typeof content === "string" ? Buffer.from(content) : content;
    const entry = { name: Buffer.from(path), crc: crc32(bytes), size: bytes.length, offset };
    entries.push(entry);
    append(localHeader(entry));
    append(bytes);
  }
  const start = offset;
  for (const entry of entries) append(directoryEntry(entry));
  append(directoryEnd(entries.length, start, offset - start));
  return Buffer.concat(parts);
}

/** No entry is as large as 4 GiB: it was in memory. */
const localHeader = ({ name, crc, size }: Entry): Buffer =>
  Buffer.concat([
    numbers([0x04034b50, 4], [VERSION, 2], [FLAGS, 2], [0, 2], [0, 2], [DATE, 2]),
    numbers([crc, 4], [size, 4], [size, 4], [name.length, 2], [0, 2]),
    name,
  ]);

function directoryEntry({ name, crc, size, offset }: Entry): Buffer {
  const far = offset >= U32_MAX;
  const extra = far ? numbers([1, 2], [8, 2], [offset, 8]) : Buffer.alloc(0);
  return Buffer.concat([
    numbers([0x02014b50, 4], [MADE_BY, 2], [VERSION, 2], [FLAGS, 2], [0, 2], [0, 2], [DATE, 2]),
    numbers([crc, 4], [size, 4], [size, 4], [name.length, 2], [extra.length, 2], [0, 2]),
    numbers([0, 2], [0, 2], [FILE_MODE >>> 0, 4], [far ? U32_MAX : offset, 4]),
    name,
    extra,
  ]);
}

function directoryEnd(count: number, start: number, size: number): Buffer {
  const end = numbers(
    ...([
      [0x06054b50, 4],
      [0, 2],
      [0, 2],
      [Math.min(count, U16_MAX), 2],
      [Math.min(count, U16_MAX), 2],
      [Math.min(size, U32_MAX), 4],
      [Math.min(start, U32_MAX), 4],
      [0, 2],
    ] as const),
  );
  if (count < U16_MAX && size < U32_MAX && start < U32_MAX) return end;
  const wide = numbers(
    ...([
      [0x06064b50, 4],
      [44, 8],
      [MADE_BY, 2],
      [VERSION, 2],
      [0, 4],
      [0, 4],
      [count, 8],
      [count, 8],
      [size, 8],
      [start, 8],
    ] as const),
  );
  const locator = numbers([0x07064b50, 4], [0, 4], [start + size, 8], [1, 4]);
  return Buffer.concat([wide, locator, end]);
}
