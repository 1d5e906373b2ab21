// Objects of the store on this node's disk, by key: a key never changes meaning. Many processes use
// one folder. An object appears by renaming, whole and checked; each user holds a hard link of its
// own, so that making room takes nothing from anybody; what looks touched is fetched again.

import { createHash, randomUUID } from "node:crypto";
import * as fs from "node:fs/promises";
import { join } from "node:path";
import type { ObjectSource } from "../../shared/tasks.ts";
import { systemClock } from "../../shared/time.ts";
import { DISK_FULL, TaskFailure } from "../base/failure.ts";
import type { Log } from "../base/log.ts";
import { lives, ownName } from "../base/processes.ts";
import { download, pause } from "./transfer.ts";

/** A cached object: readable at its path until it is released. */
export interface Held {
  path: string;
  release(): Promise<void>;
}

export interface Cache {
  /** The object's bytes, fetched unless they are here. */
  open(source: ObjectSource, signal?: AbortSignal): Promise<Held>;
  /** Drops an object that turned out to be spoilt; the next open fetches it again. */
  forget(key: string): Promise<void>;
  /** What was derived from an object earlier and is still here, or null. */
  readDerived(key: string, name: string): Promise<Buffer | null>;
  writeDerived(key: string, name: string, bytes: Uint8Array): Promise<void>;
  /** A path for a file of the caller's own, which he removes; swept up when he died. */
  temporary(): string;
}

export interface CacheOptions {
  dir: string;
  bytesMax: number;
  log: Log;
  /** What the disk has left; for tests. */
  freeBytes?: () => Promise<number>;
}

/** What was known of a file when it was put here. */
interface Note {
  bytes: number;
  modified: number;
}

const LOCK_POLL_MS = 100;

const hashOf = (key: string) => createHash("sha256").update(key).digest("hex");

const ifThere = <Result>(work: Promise<Result>): Promise<Result | null> =>
  work.catch((thrown: { code?: string }) => {
    if (thrown.code === "ENOENT") return null;
    throw thrown;
  });

/** Opens a cache folder, creating it, and removes what processes that died left in it. */
export async function openCache(options: CacheOptions): Promise<Cache> {
  const folder = (name: string) => join(options.dir, name);
  const [objects, notes, held, parts] = ["objects", "notes", "held", "parts"].map(folder) as [
    string,
    string,
    string,
    string,
  ];
  for (const path of [objects, notes, held, parts]) {
    await fs.mkdir(path, { recursive: true, mode: 0o700 });
  }
  const me = ownName();
  const mine = () => `${me}.${randomUUID()}`;
  await sweep([held, parts]);

  const onDisk = async () => {
    const { bavail, bsize } = await fs.statfs(objects);
    return bavail * bsize;
  };
  const freeBytes = options.freeBytes ?? onDisk;
  const fetching = new Map<string, Promise<void>>();

  /** A link of one's own to the object, or null when it is not here or not as it was put. */
  async function take(hash: string, bytes: number): Promise<Held | null> {
    const path = join(held, mine());
    const linked = await ifThere(fs.link(join(objects, hash), path).then(() => true));
    if (!linked) return null;
    const release = async () => void (await ifThere(fs.unlink(path)));
    const [now, text] = await Promise.all([
      fs.stat(path),
      ifThere(fs.readFile(join(notes, hash), "utf8")),
    ]);
    const note = parseNote(text);
    if (note && note.bytes === bytes && now.size === bytes && now.mtimeMs === note.modified) {
      const used = new Date(systemClock());
      await ifThere(fs.utimes(join(notes, hash), used, used));
      return { path, release };
    }
    options.log.warning("cache_object_refused", { bytes: now.size, expected: bytes });
    await release();
    await ifThere(fs.unlink(join(objects, hash)));
    return null;
  }

  /** Fetches an object unless another process does; then waits for that one. */
  async function fetchObject(source: ObjectSource, hash: string, signal?: AbortSignal) {
    const lock = join(parts, `${hash}.lock`);
    while (!(await lockBy(lock, me))) {
      await pause(LOCK_POLL_MS, signal);
      if (await ifThere(fs.stat(join(objects, hash)))) return;
    }
    const part = join(parts, mine());
    try {
      if (await ifThere(fs.stat(join(objects, hash)))) return;
      await makeRoom(source.bytes);
      const file = await fs.open(part, "w", 0o600);
      try {
        await download(source, overwriting(file), signal);
        await file.sync();
      } finally {
        await file.close();
      }
      await put(part, hash);
    } finally {
      await ifThere(fs.unlink(part));
      await ifThere(fs.unlink(lock));
    }
  }

  /** Notes what a file is, then gives it its place. */
  async function put(part: string, hash: string) {
    const { size, mtimeMs } = await fs.stat(part);
    const note = join(parts, mine());
    await fs.writeFile(note, JSON.stringify({ bytes: size, modified: mtimeMs } satisfies Note));
    await fs.rename(note, join(notes, hash));
    await fs.rename(part, join(objects, hash));
  }

  /** Removes what was used longest ago until so many bytes fit, into the cache and on its disk. */
  async function makeRoom(bytes: number) {
    const entries = await Promise.all(
      (await fs.readdir(objects)).map(async (hash) => {
        const [object, note] = await Promise.all([
          ifThere(fs.stat(join(objects, hash))),
          ifThere(fs.stat(join(notes, hash))),
        ]);
        return { hash, bytes: object?.size ?? 0, used: note?.mtimeMs ?? 0 };
      }),
    );
    const cached = entries.reduce((sum, entry) => sum + entry.bytes, 0);
    let free = await freeBytes();
    // Nothing is given up for what would not fit all the same.
    if (bytes > free + cached) {
      throw new TaskFailure("node_disk_full", DISK_FULL, { retryable: true });
    }
    let total = cached + bytes;
    for (const entry of entries.sort((one, other) => one.used - other.used)) {
      if (total <= options.bytesMax && bytes <= free) return;
      await ifThere(fs.unlink(join(objects, entry.hash)));
      await ifThere(fs.unlink(join(notes, entry.hash)));
      total -= entry.bytes;
      free += entry.bytes;
    }
  }

  return {
    open: async (source, signal) => {
      const hash = hashOf(source.key);
      for (;;) {
        signal?.throwIfAborted();
        const found = await take(hash, source.bytes);
        if (found) return found;
        const running = fetching.get(hash);
        if (running) {
          // Its failure is its starter's; whoever waited tries for himself.
          await running.catch(() => {});
          continue;
        }
        const started = fetchObject(source, hash, signal);
        fetching.set(hash, started);
        await started.finally(() => fetching.delete(hash));
      }
    },
    forget: async (key) => {
      await ifThere(fs.unlink(join(objects, hashOf(key))));
    },
    readDerived: async (key, name) => {
      const hash = hashOf(`${key}\n${name}`);
      const object = await ifThere(fs.stat(join(objects, hash)));
      const found = object && (await take(hash, object.size));
      if (!found) return null;
      try {
        return await fs.readFile(found.path);
      } finally {
        await found.release();
      }
    },
    writeDerived: async (key, name, bytes) => {
      const part = join(parts, mine());
      await makeRoom(bytes.length);
      try {
        await fs.writeFile(part, bytes, { mode: 0o600, flush: true });
        await put(part, hashOf(`${key}\n${name}`));
      } finally {
        await ifThere(fs.unlink(part));
      }
    },
    temporary: () => join(parts, mine()),
  };
}

/** Writes from the start on, and again from the start. */
function overwriting(file: fs.FileHandle) {
  let at = 0;
  return {
    restart: async () => {
      at = 0;
      await file.truncate(0);
    },
    write: async (chunk: Buffer) => {
      for (let done = 0; done < chunk.length; ) {
        const { bytesWritten } = await file.write(chunk, done, chunk.length - done, at);
        done += bytesWritten;
        at += bytesWritten;
      }
    },
  };
}

function parseNote(text: string | null): Note | null {
  try {
    return text === null ? null : (JSON.parse(text) as Note);
  } catch {
    return null;
  }
}

/**
 * Takes a lock file, also over from a process that died; false when another has it. Two that take
 * over at once may both get it: then both fetch, and the later rename wins.
 */
async function lockBy(path: string, me: string): Promise<boolean> {
  const draft = `${path}.${randomUUID()}`;
  await fs.writeFile(draft, me, { mode: 0o600 });
  try {
    // A link appears with its content; a file that is created is empty at first.
    await fs.link(draft, path);
    return true;
  } catch (thrown) {
    if ((thrown as { code?: string }).code !== "EEXIST") throw thrown;
  } finally {
    await fs.unlink(draft);
  }
  const holder = await ifThere(fs.readFile(path, "utf8"));
  if (holder !== null && !lives(holder)) await ifThere(fs.unlink(path));
  return false;
}

/** Removes files of processes that are gone. */
async function sweep(folders: readonly string[]) {
  for (const folder of folders) {
    for (const name of await fs.readdir(folder)) {
      const path = join(folder, name);
      const owner = name.includes(".lock")
        ? await ifThere(fs.readFile(path, "utf8"))
        : name.split(".")[0];
      if (owner && !lives(owner)) await ifThere(fs.unlink(path));
    }
  }
}
