// Files that are there as a whole or not at all, whenever their writer is killed.

import { randomUUID } from "node:crypto";
import * as fs from "node:fs/promises";

/** Writes a file beside its place and renames it; nothing is left beside it where that fails. */
export async function writeWhole(path: string, bytes: Uint8Array): Promise<void> {
  const temporary = `${path}.${randomUUID()}`;
  try {
    await fs.writeFile(temporary, bytes);
    await fs.rename(temporary, path);
  } finally {
    await fs.rm(temporary, { force: true });
  }
}
