// Models of the registry, opened in this isolate: weights from the object store, whose sha256 must
// be the registry's, folded and written as ONNX for the size that is looked at. The ones used last
// stay open. One is opened at a time: two would not fit into the isolate's memory.

import type { InferenceSession } from "onnxruntime-web/wasm";
import { foldWeights, WeightsError } from "../../shared/detector/deployed-weights.ts";
import { drawDetector } from "../../shared/detector/detector-onnx.ts";
import type { ExportPrecision } from "../../shared/detector/export-formats.ts";
import { parseTensors, SafetensorsError } from "../../shared/detector/safetensors.ts";
import { Failure } from "../../shared/errors.ts";
import { systemClock } from "../../shared/time.ts";
import {
  EDGE_WEIGHTS_BYTES_MAX,
  type EdgeHead,
  WEIGHTS_PRECISION,
} from "../../shared/wire/edge-inference.ts";
import { createLog } from "../http/log.ts";
import type { Config } from "./config.ts";
import { OnnxFile } from "./onnx-file.ts";
import { isOutOfMemory, openModel, startRuntime } from "./runtime.ts";

const log = createLog("infer");

/** Each takes 20 to 40 MB of the runtime's memory. */
const SESSIONS_MAX = 2;
/** Whoever finds another request opening a model looks again so often, for at most so long. */
const POLL_MS = 20;
const PATIENCE_MS = 5_000;
/** A request that began to open a model and was canceled meanwhile says nothing of its end. */
const OPENING_MS = 15_000;

/** A model that is open, and in which precision it looks. */
export interface OpenModel {
  session: InferenceSession;
  precision: ExportPrecision;
}

/** The one used longest ago first. */
const sessions = new Map<string, OpenModel>();
let opening: { since: number } | null = null;

type ModelAtSize = Pick<EdgeHead, "model" | "image_size" | "file">;

/**
 * The session of a model at a size, opened now or still open. Fails with `task_failed` for weights
 * that are not the registry's or not the model's, with `overloaded` where others are being opened
 * for too long, with `no_node` where the runtime does not run, or has no memory for it.
 *
 * Until the caller awaits anything outside, nobody closes the session.
 */
export async function sessionOf(
  config: Config,
  wanted: ModelAtSize,
): Promise<OpenModel & { opened: boolean }> {
  await startRuntime();
  const { model, image_size, file } = wanted;
  const form = `${model.variant} ${model.task} ${model.classes.length} ${image_size}`;
  const name = `${model.sha256} ${form} ${file?.sha256 ?? ""}`;
  const began = systemClock();
  for (;;) {
    const open = sessions.get(name);
    if (open) {
      sessions.delete(name);
      sessions.set(name, open);
      return { ...open, opened: false };
    }
    const now = systemClock();
    if (!opening || now - opening.since > OPENING_MS) break;
    if (now - began > PATIENCE_MS) {
      const detail = "the edge is opening other models";
      throw new Failure("overloaded", detail, { data: { retry_after_seconds: 1 } });
    }
    await new Promise<void>((done) => setTimeout(done, POLL_MS));
  }
  const mine = { since: systemClock() };
  opening = mine;
  try {
    const { session, precision } = await openFile(config, wanted);
    // Somebody whose opening took too long may have come to its end meanwhile.
    const other = sessions.get(name);
    if (other) {
      await session.release();
      return { ...other, opened: false };
    }
    const open = { session, precision };
    sessions.set(name, open);
    return { ...open, opened: true };
  } finally {
    if (opening === mine) opening = null;
  }
}

/** Opens the file that was made for the size, or else what the weights are drawn as. */
async function openFile(config: Config, wanted: ModelAtSize): Promise<OpenModel> {
  const { file, model } = wanted;
  const onnx = file && (await exportedFile(config, file));
  if (file && onnx) {
    try {
      return { session: await openBounded(onnx), precision: file.precision };
    } catch (thrown) {
      // A runtime without memory for the file has none for the larger weights either.
      if (!(thrown instanceof Failure) || thrown.code !== "task_failed") throw thrown;
      const { precision, sha256 } = file;
      const about = { model_sha256: model.sha256, sha256, precision, error: thrown.cause };
      log.warning("edge_file_not_opened", about);
    }
  }
  const weights = await weightsOf(config, wanted);
  return { session: await openBounded(onnxOf(wanted, weights)), precision: WEIGHTS_PRECISION };
}

/** A file's bytes; null for one that is gone, or is not what it was. */
async function exportedFile(
  { MEDIA }: Config,
  { key, bytes, sha256 }: NonNullable<EdgeHead["file"]>,
): Promise<Uint8Array | null> {
  if (bytes > EDGE_WEIGHTS_BYTES_MAX) return null;
  const object = await MEDIA.get(key).catch((cause: unknown) => {
    throw new Failure("store_unavailable", "the object store does not answer", { cause });
  });
  if (object?.size !== bytes) return null;
  const file = new Uint8Array(await object.arrayBuffer());
  return (await sha256Of(file)) === sha256 ? file : null;
}

/** The weights' bytes, which must be those that the registry knows. */
async function weightsOf({ MEDIA }: Config, { model }: ModelAtSize): Promise<Uint8Array> {
  const { key, bytes } = model.weights;
  if (bytes > EDGE_WEIGHTS_BYTES_MAX) {
    throw new Failure("task_failed", "the model's weights are too large for the edge");
  }
  const object = await MEDIA.get(key).catch((cause: unknown) => {
    throw new Failure("store_unavailable", "the object store does not answer", { cause });
  });
  if (!object) throw new Failure("task_failed", "the model's weights are not there any more");
  if (object.size !== bytes) throw differing("size");
  const file = new Uint8Array(await object.arrayBuffer());
  if ((await sha256Of(file)) !== model.sha256) throw differing("sha256");
  return file;
}

/** In hex. */
async function sha256Of(file: Uint8Array<ArrayBuffer>): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", file));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const differing = (what: string) =>
  new Failure(
    "task_failed",
    `the weights are not those that the registry has: their ${what} differs`,
  );

function onnxOf({ model, image_size }: ModelAtSize, weights: Uint8Array): Uint8Array {
  try {
    const file = new OnnxFile();
    const deployed = foldWeights(model, parseTensors(weights));
    const size = [image_size, image_size] as const;
    return file.encode(drawDetector(file, deployed, { output: "detections", size, batch: 1 }));
  } catch (thrown) {
    const known = thrown instanceof WeightsError || thrown instanceof SafetensorsError;
    if (!known) throw thrown;
    throw new Failure("task_failed", `the model cannot be opened: ${thrown.message}`, {
      cause: thrown,
    });
  }
}

/** Opens one more, in place of the one used longest ago where there is no room for all. */
async function openBounded(onnx: Uint8Array): Promise<InferenceSession> {
  while (sessions.size >= SESSIONS_MAX) await closeOldest();
  for (;;) {
    try {
      return await openModel(onnx);
    } catch (cause) {
      if (!isOutOfMemory(cause)) {
        throw new Failure("task_failed", "the runtime at the edge cannot open the model", {
          cause,
        });
      }
      if (sessions.size === 0) {
        throw new Failure("no_node", "the edge has too little memory for the model", { cause });
      }
      await closeOldest();
    }
  }
}

async function closeOldest() {
  for (const [name, { session }] of sessions) {
    sessions.delete(name);
    return session.release();
  }
}
