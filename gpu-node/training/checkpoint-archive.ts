// A checkpoint as it is uploaded: the trainer's state, the best weights so far and their scores in
// one object, so that a node that has never seen the run goes on with it. Every part is checked by
// its hash before it is used.

import { createHash } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import * as fs from "node:fs/promises";
import { pipeline } from "node:stream/promises";
import { z } from "zod";
import { TaskFailure } from "../base/failure.ts";

const FORMAT = "vantage-run-1";
const HEADER_BYTES_MAX = 64 * 1024;

const Header = z.object({
  format: z.literal(FORMAT),
  parts: z.array(
    z.object({
      name: z.string().regex(/^[\w.-]{1,100}$/),
      bytes: z.number().int().min(0),
      sha256: z.string(),
    }),
  ),
});

const broken = (reason: string, cause?: unknown) =>
  new TaskFailure("bad_checkpoint", `the checkpoint cannot be read: ${reason}`, { cause });

/** A file's SHA-256 in lower-case hexadecimal. */
export async function hashOf(path: string): Promise<string> {
  const hash = createHash("sha256");
  for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer);
  return hash.digest("hex");
}

/** Packs files under names into one. */
export async function pack(
  path: string,
  files: readonly { name: string; path: string }[],
): Promise<void> {
  const parts = [];
  for (const { name, path: from } of files) {
    const { size: bytes } = await fs.stat(from);
    parts.push({ name, bytes, sha256: await hashOf(from) });
  }
  const header = Buffer.from(JSON.stringify({ format: FORMAT, parts }));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  await fs.writeFile(path, Buffer.concat([length, header]), { mode: 0o600 });
  for (const { path: from } of files) {
    await pipeline(createReadStream(from), createWriteStream(path, { flags: "a" }));
  }
}

/** Unpacks into files of a folder; all of them are whole, or it fails with `bad_checkpoint`. */
export async function unpack(path: string, fileOf: (name: string) => string): Promise<string[]> {
  const file = await fs.open(path);
  try {
    const { size } = await file.stat();
    const { parts, from } = await readHeader(file, size);
    const end = parts.reduce((sum, { bytes }) => sum + bytes, from);
    if (end !== size) throw broken("it is not as long as it says");
    let start = from;
    for (const { name, bytes, sha256 } of parts) {
      const to = fileOf(name);
      const end = start + bytes - 1;
      if (bytes === 0) await fs.writeFile(to, "");
      else await pipeline(createReadStream(path, { start, end }), createWriteStream(to));
      if ((await hashOf(to)) !== sha256) throw broken(`${name} is damaged`);
      start += bytes;
    }
    return parts.map(({ name }) => name);
  } finally {
    await file.close();
  }
}

async function readHeader(file: fs.FileHandle, size: number) {
  const length = Buffer.alloc(8);
  await file.read(length, 0, 8, 0);
  const bytes = Number(length.readBigUInt64LE());
  if (size < 8 || bytes > Math.min(HEADER_BYTES_MAX, size - 8)) throw broken("it is too short");
  const text = Buffer.alloc(bytes);
  await file.read(text, 0, bytes, 8);
  try {
    return { ...Header.parse(JSON.parse(text.toString("utf8"))), from: 8 + bytes };
  } catch (thrown) {
    throw broken("it is no checkpoint of ours", thrown);
  }
}
