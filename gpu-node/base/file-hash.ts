// What a file is known by.

import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { pipeline } from "node:stream/promises";

/** A file's SHA-256 in lower-case hexadecimal, read as a stream; fails as the signal says. */
export async function sha256OfFile(path: string, signal?: AbortSignal): Promise<string> {
  const hash = createHash("sha256");
  await pipeline(createReadStream(path), hash, signal ? { signal } : {});
  return hash.digest("hex");
}
