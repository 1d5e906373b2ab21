// Bytes between this node and the object store, by presigned address. Nothing is followed
// elsewhere, lengths are checked, passing faults are tried again, and no address reaches a message.

import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { request as httpRequest } from "node:http";
import { request as httpsRequest } from "node:https";
import { pipeline } from "node:stream/promises";
import {
  PUT_BYTES_MAX,
  type TargetType,
  type WriteAddress,
} from "../../shared/tasks/node-protocol.ts";
import type { ObjectSource, ObjectTarget } from "../../shared/tasks/tasks.ts";
import { isDiskFull, TaskFailure } from "../base/failure.ts";

const ATTEMPTS = 4;
const IDLE_MS_MAX = 60_000;

/** A fault that may pass. */
class Passing extends Error {}

/** Tries again after faults that may pass, each time later. */
async function persistently<Result>(
  what: string,
  signal: AbortSignal | undefined,
  work: () => Promise<Result>,
): Promise<Result> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work();
    } catch (thrown) {
      signal?.throwIfAborted();
      if (thrown instanceof TaskFailure || isDiskFull(thrown)) throw thrown;
      if (attempt >= ATTEMPTS) {
        const reason = (thrown as Error).message;
        throw new TaskFailure("store_unavailable", `${what} failed: ${reason}`, {
          retryable: true,
          cause: thrown,
        });
      }
      await pause(150 * 3 ** (attempt - 1) * (0.5 + Math.random()), signal);
    }
  }
}

/** Resolves after so many milliseconds; fails with the signal's reason once it aborts. */
export function pause(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", end);
      resolve();
    }, milliseconds);
    if (signal?.aborted) end();
    signal?.addEventListener("abort", end, { once: true });
  });
}

function assertTaken(what: string, status: number) {
  if (status >= 200 && status < 300) return;
  if (status >= 500 || status === 429 || status === 408) throw new Passing(`status ${status}`);
  throw new TaskFailure("store_unavailable", `${what} was refused with status ${status}`, {
    retryable: status !== 404,
  });
}

/** An object to read, and who gives another address of it once this one ran out. */
export type ReadSource = Pick<ObjectSource, "url" | "bytes"> & {
  renew?: (() => Promise<Pick<ObjectSource, "url">>) | undefined;
};

/** Streams an object to `write`; fails unless exactly its bytes came. `restart` undoes a part. */
export function download(
  source: ReadSource,
  to: { restart(): Promise<void>; write(chunk: Buffer): Promise<void> },
  signal?: AbortSignal,
): Promise<void> {
  let { url } = source;
  return persistently("reading an object", signal, async () => {
    await to.restart();
    const idle = new AbortController();
    const both = signal ? AbortSignal.any([idle.signal, signal]) : idle.signal;
    const stall = () => setTimeout(() => idle.abort(new Error("it stalled")), IDLE_MS_MAX);
    let timer = stall();
    try {
      const response = await fetch(url, { redirect: "error", signal: both });
      if (response.status === 403 && source.renew) {
        await response.body?.cancel();
        url = (await source.renew()).url;
        throw new Passing("the address ran out");
      }
      assertTaken("reading an object", response.status);
      let bytes = 0;
      for await (const chunk of response.body ?? []) {
        clearTimeout(timer);
        timer = stall();
        bytes += chunk.length;
        if (bytes > source.bytes) break;
        await to.write(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength));
      }
      if (bytes !== source.bytes) throw new Passing(`${bytes} of ${source.bytes} bytes came`);
    } finally {
      clearTimeout(timer);
    }
  });
}

/** A new object of a task's own, for which its payload has no target. */
export interface NewObject {
  name: string;
  contentType: TargetType;
}

/** What a task writes: a target of its payload, by its key, or a new object. */
export type ObjectName = Pick<ObjectTarget, "key"> | NewObject;

/** Gives the address at which exactly these bytes may be written, once. */
export type AddressBook = (
  written: ObjectName,
  content: { bytes: number; md5: string },
) => Promise<WriteAddress>;

/** The object is there: an earlier try wrote it and its answer was lost. */
const ALREADY_THERE = 412;

/** Asks for an address, writes there, and gives the key of the object. */
function write(
  { address }: { address: AddressBook },
  written: ObjectName,
  content: { bytes: number; md5: string },
  { put, signal }: { put(to: WriteAddress): Promise<number>; signal?: AbortSignal | undefined },
): Promise<string> {
  return persistently("writing an object", signal, async () => {
    const to = await address(written, content).catch((thrown: unknown) => {
      if (thrown instanceof TaskFailure) throw thrown;
      // Whoever gives addresses has tried again already.
      const reason = thrown instanceof Error ? thrown.message : String(thrown);
      const options = { retryable: true, cause: thrown };
      throw new TaskFailure("store_unavailable", `no address to write at: ${reason}`, options);
    });
    const status = await put(to);
    if (status !== ALREADY_THERE) assertTaken("writing an object", status);
    return to.key;
  });
}

/** Writes an object from memory; gives its key. */
export function upload(
  context: { address: AddressBook },
  written: ObjectName,
  body: Uint8Array,
  signal?: AbortSignal,
): Promise<string> {
  const md5 = createHash("md5").update(body).digest("hex");
  const put = async ({ url, headers }: WriteAddress) => {
    const limit = AbortSignal.timeout(IDLE_MS_MAX);
    const response = await fetch(url, {
      method: "PUT",
      body: Buffer.from(body.buffer, body.byteOffset, body.byteLength),
      headers,
      redirect: "error",
      signal: signal ? AbortSignal.any([limit, signal]) : limit,
    });
    await response.body?.cancel();
    return response.status;
  };
  return write(context, written, { bytes: body.length, md5 }, { put, signal });
}

/** Writes an object from a file, as a stream whose length is announced; gives its key. */
export async function uploadFile(
  context: { address: AddressBook },
  written: ObjectName,
  path: string,
  signal?: AbortSignal,
): Promise<string> {
  const { size: bytes } = await stat(path);
  if (bytes > PUT_BYTES_MAX) {
    const gib = (bytes / 1024 ** 3).toFixed(1);
    throw new TaskFailure("file_too_large", `the archive has ${gib} GiB; one PUT takes 5`);
  }
  const hash = createHash("md5");
  await pipeline(createReadStream(path), hash);
  const put = async ({ url: address, headers }: WriteAddress) => {
    const url = new URL(address);
    const request = (url.protocol === "https:" ? httpsRequest : httpRequest)(url, {
      method: "PUT",
      headers: { ...headers, "Content-Length": bytes },
      timeout: IDLE_MS_MAX,
      ...(signal ? { signal } : {}),
    });
    request.on("timeout", () => request.destroy(new Passing("it stalled")));
    const answered = new Promise<number>((resolve, reject) => {
      request.on("error", reject);
      request.on("response", (response) => {
        response.resume();
        resolve(response.statusCode ?? 0);
      });
    });
    // An answer may come before the last byte was sent, such as a refusal.
    const sent = pipeline(createReadStream(path), request);
    sent.catch(() => {});
    try {
      const status = await answered;
      if (status >= 200 && status < 300) await sent;
      return status;
    } finally {
      request.destroy();
    }
  };
  return write(context, written, { bytes, md5: hash.digest("hex") }, { put, signal });
}
