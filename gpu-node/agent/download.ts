// A file of the store brought to the disk in as many parts as the line allows: what is there
// already is not asked for again, and what is there in the end is flushed. Whether it is the right
// file is for its hash to say.

import * as fs from "node:fs/promises";
import { isDiskFull } from "../base/failure.ts";
import { pause } from "../objects/transfer.ts";
import { ServiceRefusal } from "./device-service.ts";
import { ModelRefusal } from "./signed-manifest.ts";

const IDLE_MS_MAX = 60_000;
const RETRY_MS = 500;
const RETRY_MS_MAX = 60_000;
/** Refusals of the store in a row, over some three minutes, by which a file counts as gone. */
const REFUSALS_MAX = 10;

/** The store says that there is no such file, or that it is not to be had. */
class StoreRefusal extends Error {}

/** A file to bring, and where to. */
export interface Download {
  /** Gives an address of the file, each time another one. */
  address(): Promise<string>;
  path: string;
  /** Bytes that it has. */
  size: number;
  signal: AbortSignal;
  /** What is waited for after the first fault, twice as long after each other one. Default 500. */
  retryMs?: number;
  /** Hears of each part that was written. */
  onPart?: (bytes: number) => void;
  /** Hears of faults that may pass. */
  onFault?: (reason: string) => void;
}

/**
 * Brings the file, however often the line breaks, until the signal aborts; resolves to whether it
 * is of more than one answer. Fails with a ModelRefusal `disk_full` where there is no room,
 * `size_mismatch` where the file has another size, and `file_gone` where the store keeps saying
 * that it is not to be had.
 */
export async function downloadFile(download: Download): Promise<boolean> {
  const { path, size, signal, retryMs = RETRY_MS } = download;
  let isInParts = true;
  let refusals = 0;
  for (let attempt = 0; ; attempt++) {
    const before = await sizeOf(path);
    try {
      if (before > size) await fs.truncate(path, 0);
      if (before !== size) {
        isInParts = (await fetchRest(download, before > size ? 0 : before)) > 0;
      }
      if ((await sizeOf(path)) === size) {
        await flush(path);
        return isInParts;
      }
    } catch (thrown) {
      signal.throwIfAborted();
      if (isDiskFull(thrown)) {
        await fs.rm(path, { force: true });
        throw new ModelRefusal("disk_full", "the device's disk is full", { cause: thrown });
      }
      if (thrown instanceof ModelRefusal || isFinal(thrown)) throw thrown;
      refusals = thrown instanceof StoreRefusal ? refusals + 1 : 0;
      if (refusals >= REFUSALS_MAX) {
        const detail = `${(thrown as Error).message}, ${refusals} times`;
        throw new ModelRefusal("file_gone", detail, { cause: thrown });
      }
      download.onFault?.((thrown as Error).message);
    }
    // Whoever comes forward begins anew to wait.
    if ((await sizeOf(path)) > before) attempt = 0;
    const wait = Math.min(RETRY_MS_MAX, retryMs * 2 ** Math.min(attempt, 10));
    await pause(wait * (0.5 + Math.random() / 2), signal);
  }
}

/** The service says that the version is not wanted any more, or does not know the device. */
const isFinal = (thrown: unknown) =>
  thrown instanceof ServiceRefusal && [401, 404, 409].includes(thrown.status);

const sizeOf = async (path: string): Promise<number> =>
  (await fs.stat(path).catch(() => null))?.size ?? 0;

async function flush(path: string): Promise<void> {
  const handle = await fs.open(path, "r+");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Writes what is missing from `from` on, as far as the line carries; gives where it began. */
async function fetchRest(
  { address, path, size, signal, onPart }: Download,
  from: number,
): Promise<number> {
  const url = await address();
  const idle = new AbortController();
  const stall = () => setTimeout(() => idle.abort(new Error("it stalled")), IDLE_MS_MAX);
  let timer = stall();
  const handle = await fs.open(path, from > 0 ? "r+" : "w", 0o600);
  try {
    const headers: Record<string, string> = from > 0 ? { range: `bytes=${from}-` } : {};
    const response = await fetch(url, {
      headers,
      redirect: "error",
      signal: AbortSignal.any([idle.signal, signal]),
    });
    const start = beginning(response, { from, size });
    let at = start;
    if (start === 0) await handle.truncate(0);
    for await (const chunk of response.body ?? []) {
      clearTimeout(timer);
      timer = stall();
      if (at + chunk.length > size) throw tooLong(size);
      await handle.write(chunk, 0, chunk.length, at);
      at += chunk.length;
      onPart?.(at);
    }
    return start;
  } finally {
    clearTimeout(timer);
    await handle.close();
  }
}

const tooLong = (size: number) =>
  new ModelRefusal("size_mismatch", `the file has more than the ${size} bytes of its manifest`);

/**
 * Where in the file an answer begins: its range, or 0 where it is the whole file. Fails where the
 * answer says that the file has another size than it should.
 */
function beginning(response: Response, { from, size }: { from: number; size: number }): number {
  const whole = (total: number) => {
    if (total === size) return;
    const detail = `the file has ${total} bytes, and ${size} by its manifest`;
    throw new ModelRefusal("size_mismatch", detail);
  };
  if (response.status === 206) {
    const range = /^bytes (\d+)-\d+\/(\d+)$/.exec(response.headers.get("content-range") ?? "");
    if (Number(range?.[1]) !== from) throw new Error("another range came than was asked for");
    whole(Number(range?.[2]));
    return from;
  }
  if (response.status === 416) {
    const total = /^bytes \*\/(\d+)$/.exec(response.headers.get("content-range") ?? "")?.[1];
    const has = total === undefined ? `at most ${from}` : total;
    const detail = `the file has ${has} bytes, and ${size} by its manifest`;
    throw new ModelRefusal("size_mismatch", detail);
  }
  if ([403, 404, 410].includes(response.status)) {
    throw new StoreRefusal(`the store answered ${response.status}`);
  }
  if (response.status !== 200) throw new Error(`the store answered ${response.status}`);
  const length = response.headers.get("content-length");
  if (length !== null && response.headers.get("content-encoding") === null) whole(Number(length));
  return 0;
}
