// Objects of the store on this node's disk, by key: a key never changes meaning. Many processes use
// one folder. An object appears by renaming, whole and checked; each user holds a hard link of its
// own, so that making room takes nothing from anybody; what looks touched is fetched again.

import { createHash, randomUUID } from "node:crypto";
import * as fs from "node:fs/promises";
import { join } from "node:path";
import type { ObjectSource } from "../../shared/tasks/tasks.ts";
import { systemClock } from "../../shared/time.ts";
import { DISK_FULL, isDiskFull, TaskFailure } from "../base/failure.ts";
import type { Log } from "../base/log.ts";
import { lives, ownName } from "../base/processes.ts";
import { tally } from "../base/tally.ts";
import { download, pause, type ReadSource } from "./transfer.ts";

/** A cached object: readable at its path until it is released. */
export interface CachedObject {
  path: string;
  release(): Promise<void>;
}

/** An object of the store, by its key, and how it is fetched. */
export type CacheSource = ObjectSource & ReadSource;

export interface Cache {
  /** The object's bytes, fetched unless they are here. */
  open(source: CacheSource, signal?: AbortSignal): Promise<CachedObject>;
  /** Drops an object that turned out to be spoilt; the next open fetches it again. */
  forget(key: string): Promise<void>;
  /** What was derived from an object earlier and is still here, or null. */
  readDerived(key: string, name: string): Promise<Buffer | null>;
  /** Keeps what can be derived again; where the disk is full, it does not. */
  writeDerived(key: string, name: string, bytes: Uint8Array): Promise<void>;
  /** A path for a file of the caller's own, which he removes; swept up when he died. */
  temporary(): string;
}

export interface CacheOptions {
  dir: string;
  bytesMax: number;
  log: Log;
  /** What is left to others on the disk, bytes. Default 0. */
  reserveBytes?: number;
  /** What the disk has left; for tests. */
  freeBytes?: () => Promise<number>;
}

/** What was known of a file when it was put here. */
interface Note {
  bytes: number;
  modified: number;
}

const LOCK_POLL_MS = 100;

const inMb = (bytes: number) => (bytes / 1024 ** 2).toFixed(1);

const hashOf = (key: string) => createHash("sha256").update(key).digest("hex");

const ifThere = <Result>(work: Promise<Result>): Promise<Result | null> =>
  work.catch((thrown: { code?: string }) => {
    if (thrown.code === "ENOENT") return null;
    throw thrown;
  });

/** Opens a cache folder, creating it, and removes what processes that died left in it. */
export async function openCache(options: CacheOptions): Promise<Cache> {
  const folders: Folders = {
    objects: join(options.dir, "objects"),
    notes: join(options.dir, "notes"),
    held: join(options.dir, "held"),
    parts: join(options.dir, "parts"),
  };
  for (const path of Object.values(folders)) await fs.mkdir(path, { recursive: true, mode: 0o700 });
  await sweep([folders.held, folders.parts]);
  return new FolderCache(folders, options);
}

/** The cache as one task has it: the task asks for another address where one ran out. */
export const renewingCache = (
  cache: Cache,
  source: (key: string) => Promise<ObjectSource>,
): Cache => ({
  open: (one, signal) => cache.open({ ...one, renew: () => source(one.key) }, signal),
  forget: (key) => cache.forget(key),
  readDerived: (key, name) => cache.readDerived(key, name),
  writeDerived: (key, name, bytes) => cache.writeDerived(key, name, bytes),
  temporary: () => cache.temporary(),
});

interface Folders {
  /** The objects themselves, by the hash of their key. */
  objects: string;
  /** What each object was when it was put here; its time says when it was used last. */
  notes: string;
  /** Links of those who use an object. */
  held: string;
  /** What is being written, and locks. */
  parts: string;
}

class FolderCache implements Cache {
  readonly #folders: Folders;
  readonly #options: CacheOptions;
  readonly #me = ownName();
  /** Fetches under way in this process, by hash. */
  readonly #fetching = new Map<string, Promise<void>>();

  constructor(folders: Folders, options: CacheOptions) {
    this.#folders = folders;
    this.#options = options;
  }

  async open(source: CacheSource, signal?: AbortSignal): Promise<CachedObject> {
    const hash = hashOf(source.key);
    for (let tries = 0; ; tries++) {
      signal?.throwIfAborted();
      const cached = await this.#take(hash, source.bytes);
      // What has to be fetched first, by whomever, is a miss.
      const result = cached ? "hit" : "miss";
      if (tries === 0) tally.count("vantage_node_cache_requests_total", { result });
      if (cached) return cached;
      const running = this.#fetching.get(hash);
      if (running) {
        // Its failure is its starter's; whoever waited tries for himself.
        await running.catch(() => {});
        continue;
      }
      const started = this.#fetch(source, hash, signal);
      this.#fetching.set(hash, started);
      await started.finally(() => this.#fetching.delete(hash));
    }
  }

  async forget(key: string): Promise<void> {
    await ifThere(fs.unlink(this.#object(hashOf(key))));
  }

  async readDerived(key: string, name: string): Promise<Buffer | null> {
    const hash = hashOf(`${key}\n${name}`);
    const object = await ifThere(fs.stat(this.#object(hash)));
    const cached = object && (await this.#take(hash, object.size));
    if (!cached) return null;
    try {
      return await fs.readFile(cached.path);
    } finally {
      await cached.release();
    }
  }

  async writeDerived(key: string, name: string, bytes: Uint8Array): Promise<void> {
    const part = this.temporary();
    try {
      await this.#makeRoom(bytes.length);
      await fs.writeFile(part, bytes, { mode: 0o600, flush: true });
      await this.#put(part, hashOf(`${key}\n${name}`));
    } catch (thrown) {
      const found = thrown instanceof TaskFailure && thrown.code === "node_disk_full";
      if (!found && !isDiskFull(thrown)) throw thrown;
      this.#options.log.warning("derived_not_kept", { name, bytes: bytes.length });
    } finally {
      await ifThere(fs.unlink(part));
    }
  }

  temporary(): string {
    return join(this.#folders.parts, this.#ownFile());
  }

  #object = (hash: string) => join(this.#folders.objects, hash);
  #note = (hash: string) => join(this.#folders.notes, hash);
  #ownFile = () => `${this.#me}.${randomUUID()}`;

  /** A link of one's own to the object, or null when it is not here or not as it was put. */
  async #take(hash: string, bytes: number): Promise<CachedObject | null> {
    const path = join(this.#folders.held, this.#ownFile());
    const linked = await ifThere(fs.link(this.#object(hash), path).then(() => true));
    if (!linked) return null;
    const release = async () => void (await ifThere(fs.unlink(path)));
    const [now, text] = await Promise.all([
      fs.stat(path),
      ifThere(fs.readFile(this.#note(hash), "utf8")),
    ]);
    const note = parseNote(text);
    if (note && note.bytes === bytes && now.size === bytes && now.mtimeMs === note.modified) {
      const used = new Date(systemClock());
      await ifThere(fs.utimes(this.#note(hash), used, used));
      return { path, release };
    }
    this.#options.log.warning("cache_object_refused", { bytes: now.size, expected: bytes });
    await release();
    await ifThere(fs.unlink(this.#object(hash)));
    return null;
  }

  /** Fetches an object unless another process does; then waits for that one. */
  async #fetch(source: CacheSource, hash: string, signal?: AbortSignal) {
    const lock = join(this.#folders.parts, `${hash}.lock`);
    while (!(await lockBy(lock, this.#me))) {
      await pause(LOCK_POLL_MS, signal);
      if (await ifThere(fs.stat(this.#object(hash)))) return;
    }
    const part = this.temporary();
    try {
      if (await ifThere(fs.stat(this.#object(hash)))) return;
      await this.#makeRoom(source.bytes);
      const file = await fs.open(part, "w", 0o600);
      try {
        await download(source, overwriting(file), signal);
        await file.sync();
      } finally {
        await file.close();
      }
      await this.#put(part, hash);
      tally.count("vantage_node_cache_fetched_bytes_total", {}, source.bytes);
    } finally {
      await ifThere(fs.unlink(part));
      await ifThere(fs.unlink(lock));
    }
  }

  /** Notes what a file is, then moves it to where it is found. */
  async #put(part: string, hash: string) {
    const { size, mtimeMs } = await fs.stat(part);
    const note = this.temporary();
    await fs.writeFile(note, JSON.stringify({ bytes: size, modified: mtimeMs } satisfies Note));
    await fs.rename(note, this.#note(hash));
    await fs.rename(part, this.#object(hash));
  }

  /** What the disk has left for objects. */
  async #freeBytes(): Promise<number> {
    const { freeBytes, reserveBytes = 0 } = this.#options;
    if (freeBytes) return (await freeBytes()) - reserveBytes;
    const { bavail, bsize } = await fs.statfs(this.#folders.objects);
    return bavail * bsize - reserveBytes;
  }

  /** Removes what was used longest ago until so many bytes fit, into the cache and on its disk. */
  async #makeRoom(bytes: number) {
    const entries = await Promise.all(
      (await fs.readdir(this.#folders.objects)).map(async (hash) => {
        const [object, note] = await Promise.all([
          ifThere(fs.stat(this.#object(hash))),
          ifThere(fs.stat(this.#note(hash))),
        ]);
        return { hash, bytes: object?.size ?? 0, used: note?.mtimeMs ?? 0 };
      }),
    );
    const cached = entries.reduce((sum, entry) => sum + entry.bytes, 0);
    let free = await this.#freeBytes();
    // Nothing is given up for what would not fit all the same.
    if (bytes > free + cached) {
      const needs = `${DISK_FULL}: an object of ${inMb(bytes)} MB, and room for`;
      const detail = `${needs} ${inMb(Math.max(0, free + cached))}`;
      throw new TaskFailure("node_disk_full", detail, { retryable: true });
    }
    let total = cached + bytes;
    for (const entry of entries.sort((one, other) => one.used - other.used)) {
      if (total <= this.#options.bytesMax && bytes <= free) return;
      await ifThere(fs.unlink(this.#object(entry.hash)));
      await ifThere(fs.unlink(this.#note(entry.hash)));
      total -= entry.bytes;
      free += entry.bytes;
    }
  }
}

/** What the objects of a cache's folder take, bytes; 0 of one that is not there yet. */
export async function cachedBytes(dir: string): Promise<number> {
  const objects = join(dir, "objects");
  const names = (await ifThere(fs.readdir(objects))) ?? [];
  const sizes = await Promise.all(names.map((name) => ifThere(fs.stat(join(objects, name)))));
  return sizes.reduce((sum, stat) => sum + (stat?.size ?? 0), 0);
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
