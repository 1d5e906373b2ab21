// The node's cache. Goal: only whole and untouched objects are ever served, each is fetched once
// however many want it, in one process or several, and making room takes nothing from a user.

import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import {
  closeSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  utimesSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  afterAll,
  afterEach,
  beforeAll,
  beforeEach,
  describe,
  expect,
  it,
  onTestFinished,
} from "vitest";
import { createLog } from "../../../gpu-node/base/log.ts";
import { type Cache, openCache, renewingCache } from "../../../gpu-node/objects/cache.ts";
import { download } from "../../../gpu-node/objects/transfer.ts";
import { type NodeService, startNodeService } from "../../support/node-service.ts";
import { mountSmallDisk, type SmallDisk } from "../../support/small-disk.ts";

const disk = mountSmallDisk(8 * 1024 ** 2);
if (!disk) console.warn("SKIPPED: a full disk needs the right to mount one");

let service: NodeService;
let dir: string;
const log = createLog(() => {});

beforeAll(async () => {
  service = await startNodeService();
});
afterAll(() => service.close());
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "vantage-cache-"));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

const open = (bytesMax = 1_000_000) => openCache({ dir, bytesMax, log });
const object = (content: string) =>
  service.source(`ws/a/${crypto.randomUUID()}`, Buffer.from(content));
const hashOf = (key: string) => createHash("sha256").update(key).digest("hex");

async function readThrough(cache: Cache, source: ReturnType<typeof object>) {
  const held = await cache.open(source);
  const text = readFileSync(held.path, "utf8");
  await held.release();
  return text;
}

describe("a cached object", () => {
  it("is fetched once, also for many who want it at once", async () => {
    const cache = await open();
    const source = object("x".repeat(200_000));
    const texts = await Promise.all(Array.from({ length: 20 }, () => readThrough(cache, source)));
    expect(texts.every((text) => text.length === 200_000)).toBe(true);
    expect(await readThrough(await open(), source)).toHaveLength(200_000);
    expect(service.reads.get(source.key)).toBe(1);
    expect(readdirSync(join(dir, "held"))).toEqual([]);
    expect(readdirSync(join(dir, "parts"))).toEqual([]);
  });

  it("is fetched once by several processes", async () => {
    const source = object("y".repeat(300_000));
    const script = `
      import { openCache } from ${JSON.stringify(join(import.meta.dirname, "../../../gpu-node/objects/cache.ts"))};
      const log = { info() {}, warning() {}, error() {} };
      const cache = await openCache({ dir: ${JSON.stringify(dir)}, bytesMax: 1e6, log });
      const held = await cache.open(${JSON.stringify(source)});
      await held.release();`;
    const codes = await Promise.all(
      Array.from({ length: 4 }, () => {
        const child = spawn(process.execPath, ["--input-type=module-typescript", "-e", script]);
        return new Promise((done) => child.on("exit", done));
      }),
    );
    expect(codes).toEqual([0, 0, 0, 0]);
    expect(service.reads.get(source.key)).toBe(1);
  });

  it("is tried again after faults that pass, and never served in part", async () => {
    const cache = await open();
    const source = object("whole");
    service.fault(/^\/objects\//, 500, "drop");
    expect(await readThrough(cache, source)).toBe("whole");
    const short = { ...object("short"), bytes: 6 };
    await expect(cache.open(short)).rejects.toMatchObject({
      code: "store_unavailable",
      retryable: true,
    });
    const long = { ...object("longer"), bytes: 3 };
    await expect(cache.open(long)).rejects.toThrow(/of 3 bytes came/);
    const gone = { ...object("gone") };
    service.objects.delete(gone.key);
    await expect(cache.open(gone)).rejects.toMatchObject({ retryable: false });
    expect(readdirSync(join(dir, "objects"))).toHaveLength(1);
    expect(readdirSync(join(dir, "parts"))).toEqual([]);
  });

  it("is fetched under another address where its own ran out, and only then", async () => {
    let asked = 0;
    const cache = renewingCache(await open(), async (key) => {
      asked += 1;
      return { ...late, url: late.url.replace("expired/", ""), key };
    });
    const late = object("z");
    late.url = late.url.replace("/objects/", "/objects/expired/");
    service.fault(/\/objects\/expired/, 403);
    expect(await readThrough(cache, late)).toBe("z");
    expect(await readThrough(cache, object("y"))).toBe("y");
    expect(asked).toBe(1);
  });

  it("is fetched again when its file was touched or cut", async () => {
    const cache = await open();
    const source = object("right");
    await readThrough(cache, source);
    const path = join(dir, "objects", hashOf(source.key));
    writeFileSync(path, "wrong");
    expect(await readThrough(cache, source)).toBe("right");
    writeFileSync(path, "");
    expect(await readThrough(cache, source)).toBe("right");
    expect(service.reads.get(source.key)).toBe(3);
  });

  it("makes room by age, and stays readable for whoever holds it", async () => {
    const cache = await open(250);
    const [first, second, third] = ["a", "b", "c"].map((letter) => object(letter.repeat(100)));
    if (!first || !second || !third) throw new Error("three objects");
    const held = await cache.open(first);
    await readThrough(cache, second);
    // Used an hour before the other.
    const past = new Date(0);
    utimesSync(join(dir, "notes", hashOf(first.key)), past, past);
    await readThrough(cache, third);
    expect(readFileSync(held.path, "utf8")).toBe("a".repeat(100));
    await held.release();
    await readThrough(cache, second);
    expect(service.reads.get(second.key)).toBe(1);
    await readThrough(cache, first);
    expect(service.reads.get(first.key)).toBe(2);
  });

  it("outlives a process that died with a lock, a part and a hold of it", async () => {
    const cache = await open();
    const source = object("still");
    await readThrough(cache, source);
    const dead = "4194303-1";
    writeFileSync(join(dir, "parts", `${dead}.x`), "part");
    writeFileSync(join(dir, "held", `${dead}.x`), "held");
    const other = object("other");
    writeFileSync(join(dir, "parts", `${hashOf(other.key)}.lock`), dead);
    expect(await readThrough(cache, other)).toBe("other");
    writeFileSync(join(dir, "parts", "left.lock"), dead);
    const again = await open();
    expect(readdirSync(join(dir, "parts"))).toEqual([]);
    expect(readdirSync(join(dir, "held"))).toEqual([]);
    expect(await readThrough(again, source)).toBe("still");
  });

  it("is not asked for again where the disk has no room for it", async () => {
    const source = object("z".repeat(1_000));
    const full = openSync("/dev/full", "w");
    const write = async (chunk: Buffer) => void writeSync(full, chunk);
    const reading = download(source, { restart: async () => {}, write });
    await expect(reading).rejects.toMatchObject({ code: "ENOSPC" });
    closeSync(full);
    expect(service.reads.get(source.key)).toBe(1);
  });

  it("makes room where the disk has less than the cache may take", async () => {
    let free = 1_000;
    const cache = await openCache({ dir, bytesMax: 1e6, log, freeBytes: async () => free });
    const [first, second] = ["a", "b"].map((letter) => object(letter.repeat(600)));
    if (!first || !second) throw new Error("two objects");
    await readThrough(cache, first);
    free = 400;
    await readThrough(cache, second);
    expect(readdirSync(join(dir, "objects"))).toEqual([hashOf(second.key)]);
    // Nothing is given up for what would not fit all the same.
    const vast = { ...object("vast"), bytes: 1e15 };
    await expect(cache.open(vast)).rejects.toMatchObject({ code: "node_disk_full" });
    expect(service.reads.has(vast.key)).toBe(false);
    expect(readdirSync(join(dir, "objects"))).toHaveLength(1);
  });

  it("leaves of the disk what it is told to", async () => {
    const free = 1_000;
    const options = { dir, bytesMax: 1e6, log, freeBytes: async () => free };
    const cache = await openCache({ ...options, reserveBytes: 500 });
    await readThrough(cache, object("a".repeat(400)));
    const vast = object("b".repeat(1_000));
    await expect(cache.open(vast)).rejects.toMatchObject({ code: "node_disk_full" });
  });

  it.skipIf(!disk)(
    "is given up for others on a full disk, then fails for now, then is there again",
    async () => {
      const small = disk as SmallDisk;
      onTestFinished(() => small.unmount());
      const cache = await openCache({ dir: join(small.dir, "cache"), bytesMax: 1e9, log });
      const MB = 1024 ** 2;
      const [first, second, third] = ["a", "b", "c"].map((letter) => object(letter.repeat(3 * MB)));
      if (!first || !second || !third) throw new Error("three objects");
      await readThrough(cache, first);
      await readThrough(cache, second);
      // 8 MB hold two of them.
      expect(await readThrough(cache, third)).toHaveLength(3 * MB);
      expect(service.reads.get(third.key)).toBe(1);
      // Others take the rest, and what is in use cannot be given up for another.
      const held = await cache.open(third);
      small.fill();
      await expect(cache.open(first)).rejects.toMatchObject({
        code: expect.stringMatching(/node_disk_full|ENOSPC/),
      });
      // What can be derived again is not kept, and costs nobody a task.
      await cache.writeDerived(third.key, "index", Buffer.alloc(4 * MB));
      expect(await cache.readDerived(third.key, "index")).toBeNull();
      expect(readFileSync(held.path)).toHaveLength(3 * MB);
      await held.release();
      small.empty();
      expect(await readThrough(cache, first)).toHaveLength(3 * MB);
    },
  );

  it("stops fetching when it is cancelled", async () => {
    const cache = await open();
    const cancel = new AbortController();
    cancel.abort(new Error("stop"));
    await expect(cache.open(object("never"), cancel.signal)).rejects.toThrow("stop");
    expect(readdirSync(join(dir, "parts"))).toEqual([]);
  });
});

describe("what was derived from an object", () => {
  it("is kept by key and name, and null when it is not there", async () => {
    const cache = await open();
    await cache.writeDerived("key", "index", Buffer.from("one"));
    expect(String(await cache.readDerived("key", "index"))).toBe("one");
    await cache.writeDerived("key", "index", Buffer.from("two"));
    expect(String(await (await open()).readDerived("key", "index"))).toBe("two");
    expect(await cache.readDerived("key", "other")).toBeNull();
    expect(await cache.readDerived("other", "index")).toBeNull();
  });
});
