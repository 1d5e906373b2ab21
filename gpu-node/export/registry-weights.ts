// The weights of a model of the registry, from the store by way of the cache.

import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import type { ModelSource } from "../../shared/tasks/tasks.ts";
import { TaskFailure } from "../base/failure.ts";
import type { Log } from "../base/log.ts";
import type { Cache } from "../objects/cache.ts";

/** A file's bytes, which must be those that the registry knows; fails with `bad_weights`. */
export async function readWeights(
  { cache, log }: { cache: Cache; log: Log },
  { model_id, weights, sha256 }: Pick<ModelSource, "model_id" | "weights" | "sha256">,
  signal?: AbortSignal,
): Promise<Buffer> {
  const held = await cache.open(weights, signal);
  try {
    const bytes = await readFile(held.path);
    const found = createHash("sha256").update(bytes).digest("hex");
    if (found === sha256) return bytes;
    log.error("weights_refused", { model_id, expected: sha256, found });
  } finally {
    await held.release();
  }
  // A disk may have spoilt them: the next attempt fetches them again.
  await cache.forget(weights.key);
  throw new TaskFailure(
    "bad_weights",
    "the weights are not those that the registry has: their sha256 differs",
    { retryable: true },
  );
}
