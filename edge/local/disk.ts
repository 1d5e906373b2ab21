// What the disk of the state folder has left. Postgres may not meet a full one: before that, writes
// are refused while reads go on, and taken again once there is room.

import { statfs } from "node:fs/promises";
import { dirname } from "node:path";
import { pause } from "./restarts.ts";

/** `low`: it should be seen to. `full`: nothing may be written. */
export type DiskState = "ample" | "low" | "full";

const MB = 1024 ** 2;
/** Below the first of them a state begins; at the second it ends, so that it does not flicker. */
const LOW_BYTES = [1_024 * MB, 1_280 * MB] as const;
/** Room for the log that Postgres writes ahead, and for all that ends in order. */
const FULL_BYTES = [128 * MB, 192 * MB] as const;
const WATCH_MS = 1_000;

/** The state of a disk with so many bytes free, after the one before. */
export function diskStateOf(freeBytes: number, before: DiskState = "ample"): DiskState {
  if (freeBytes < FULL_BYTES[before === "full" ? 1 : 0]) return "full";
  return freeBytes < LOW_BYTES[before === "ample" ? 0 : 1] ? "low" : "ample";
}

const inMb = (bytes: number) => `${Math.floor(bytes / MB)} MB`;

/** `the disk of … is full: 3 MB free`. */
export const sayFull = (dir: string, freeBytes: number): string =>
  `the disk of ${dir} is full: ${inMb(freeBytes)} free`;

/** What people are told when a disk's state changed: what it is, and what follows from it. */
export function sayChange(
  dir: string,
  { state, before, freeBytes }: { state: DiskState; before: DiskState; freeBytes: number },
): string {
  const room = `${inMb(freeBytes)} free`;
  if (state === "full") {
    const until = `nothing is written until ${inMb(FULL_BYTES[1])} are; reading goes on`;
    return `${sayFull(dir, freeBytes)}; ${until}`;
  }
  const goesOn = before === "full" ? "; writing goes on" : "";
  if (state === "ample") return `the disk of ${dir} has room again: ${room}${goesOn}`;
  const limit = `below ${inMb(FULL_BYTES[0])} nothing is written`;
  return `the disk of ${dir} is low on room: ${room}${goesOn}; ${limit}`;
}

/** Bytes that the disk of a folder has left, also of one that is not there yet. */
export async function freeBytesOf(dir: string): Promise<number> {
  try {
    const { bavail, bsize } = await statfs(dir);
    return bavail * bsize;
  } catch (thrown) {
    if ((thrown as { code?: string }).code !== "ENOENT") throw thrown;
    return freeBytesOf(dirname(dir));
  }
}

/** Fails, in words for people, where the disk of a folder has no room to start on. */
export async function assertRoom(dir: string): Promise<void> {
  const free = await freeBytesOf(dir);
  if (diskStateOf(free) !== "full") return;
  throw new Error(`${sayFull(dir, free)}; a start needs ${inMb(FULL_BYTES[0])}: make room first`);
}

/** Waits, where the disk of a folder is full, until it has room; `onFull` hears of it at once. */
export async function awaitRoom(
  dir: string,
  { signal, onFull }: { signal: AbortSignal; onFull: (told: string) => void },
): Promise<void> {
  let state: DiskState = "ample";
  while (!signal.aborted) {
    const free = await freeBytesOf(dir);
    const before = state;
    state = diskStateOf(free, before);
    if (state !== "full") return;
    if (before !== "full") onFull(sayFull(dir, free));
    await pause(WATCH_MS, signal);
  }
}

/**
 * Tells of each change of a disk's state, and of one that is not ample at first. Returns the way to
 * stop.
 */
export function watchDisk(
  dir: string,
  onChange: (change: { state: DiskState; before: DiskState; freeBytes: number }) => void,
): () => void {
  let known: DiskState = "ample";
  const look = async () => {
    const freeBytes = await freeBytesOf(dir);
    const [before, state] = [known, diskStateOf(freeBytes, known)];
    known = state;
    if (state !== before) onChange({ state, before, freeBytes });
  };
  const timer = setInterval(() => look().catch(() => {}), WATCH_MS);
  return () => clearInterval(timer);
}
