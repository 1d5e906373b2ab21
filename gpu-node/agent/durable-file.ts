// Files that are there whole or not at all, whenever the power goes: written beside, flushed to the
// disk, renamed, and the folder flushed.

import * as fs from "node:fs";
import { dirname } from "node:path";

/** Flushes a folder's entries, such as a rename, to the disk. */
export function flushFolder(dir: string): void {
  const handle = fs.openSync(dir, "r");
  try {
    fs.fsyncSync(handle);
  } finally {
    fs.closeSync(handle);
  }
}

/** Moves a file that was flushed to its own name, for good. */
export function renameDurably(from: string, to: string): void {
  fs.renameSync(from, to);
  flushFolder(dirname(to));
}

/** Writes a file of this user's own, whole. */
export function writeDurably(path: string, text: string): void {
  const beside = `${path}.new`;
  const handle = fs.openSync(beside, "w", 0o600);
  try {
    fs.writeFileSync(handle, text);
    fs.fsyncSync(handle);
  } finally {
    fs.closeSync(handle);
  }
  renameDurably(beside, path);
}

/** A file's text; null where there is none. */
export function readIfThere(path: string): string | null {
  try {
    return fs.readFileSync(path, "utf8");
  } catch (thrown) {
    if ((thrown as { code?: string }).code === "ENOENT") return null;
    throw thrown;
  }
}
