// Bytes between this node and the object store, by presigned address. Nothing is followed
// elsewhere, lengths are checked, passing faults are tried again, and no address reaches a message.

import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { request as httpRequest } from "node:http";
import { request as httpsRequest } from "node:https";
import { pipeline } from "node:stream/promises";
import { isDiskFull, TaskFailure } from "../base/failure.ts";

const ATTEMPTS = 4;
const IDLE_MS_MAX = 60_000;
const PUT_BYTES_MAX = 5 * 1024 ** 3;

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
  // An address may have run out: the next attempt of the task has new ones.
  throw new TaskFailure("store_unavailable", `${what} was refused with status ${status}`, {
    retryable: status !== 404,
  });
}

/** Streams an object to `write`; fails unless exactly its bytes came. `restart` undoes a part. */
export function download(
  source: { url: string; bytes: number },
  to: { restart(): Promise<void>; write(chunk: Buffer): Promise<void> },
  signal?: AbortSignal,
): Promise<void> {
  return persistently("reading an object", signal, async () => {
    await to.restart();
    const idle = new AbortController();
    const both = signal ? AbortSignal.any([idle.signal, signal]) : idle.signal;
    const stall = () => setTimeout(() => idle.abort(new Error("it stalled")), IDLE_MS_MAX);
    let timer = stall();
    try {
      const response = await fetch(source.url, { redirect: "error", signal: both });
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

/** Writes an object from memory. */
export function upload(
  target: { url: string; content_type: string },
  body: Uint8Array,
  signal?: AbortSignal,
): Promise<void> {
  return persistently("writing an object", signal, async () => {
    const limit = AbortSignal.timeout(IDLE_MS_MAX);
    const response = await fetch(target.url, {
      method: "PUT",
      body: Buffer.from(body.buffer, body.byteOffset, body.byteLength),
      headers: { "content-type": target.content_type },
      redirect: "error",
      signal: signal ? AbortSignal.any([limit, signal]) : limit,
    });
    await response.body?.cancel();
    assertTaken("writing an object", response.status);
  });
}

/** Writes an object from a file, as a stream whose length is announced. */
export async function uploadFile(
  target: { url: string; content_type: string },
  path: string,
  signal?: AbortSignal,
): Promise<void> {
  const { size } = await stat(path);
  if (size > PUT_BYTES_MAX) {
    const gib = (size / 1024 ** 3).toFixed(1);
    throw new TaskFailure("file_too_large", `the archive has ${gib} GiB; one PUT takes 5`);
  }
  return persistently("writing an object", signal, async () => {
    const url = new URL(target.url);
    const request = (url.protocol === "https:" ? httpsRequest : httpRequest)(url, {
      method: "PUT",
      headers: { "content-type": target.content_type, "content-length": size },
      timeout: IDLE_MS_MAX,
      ...(signal ? { signal } : {}),
    });
    request.on("timeout", () => request.destroy(new Passing("it stalled")));
    const status = new Promise<number>((resolve, reject) => {
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
      assertTaken("writing an object", await status);
      await sent;
    } finally {
      request.destroy();
    }
  });
}
