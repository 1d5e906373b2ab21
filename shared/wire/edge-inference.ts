// Inference at the edge, as the vision service and its inner Worker agree on it: which models it
// takes, which images, and the form of a request and of its answer, or an error of the table.

import { z } from "zod";
import { STRIDE_MAX } from "../detector/detector.ts";
import { EXPORT_PRECISIONS, type ExportPrecision } from "../detector/export-formats.ts";
import { joined, LineAnswer } from "../tasks/line.ts";
import { ModelSource } from "../tasks/tasks.ts";

/** Pixels a side of the square that is looked at, where nothing else is configured. */
export const EDGE_IMAGE_SIZE_DEFAULT = 320;
/** Beyond it an image costs over 0.3 s of CPU time and a third of an isolate's memory. */
export const EDGE_IMAGE_SIZE_MAX = 640;
/** Bytes of the image's file. */
export const EDGE_IMAGE_BYTES_MAX = 8 * 1024 * 1024;
/**
 * Pixels of an image: 1920 × 1080, and a little more. Decoding one of them takes up to 14 bytes at
 * once (RGBA twice, and a progressive JPEG's coefficients), beside a runtime of 33 to 52 MiB in an
 * isolate of 128 MB. At twice as many, a decoder outgrew what may be kept from image to image, and
 * those that were let go filled 500 MiB before they were collected.
 */
export const EDGE_PIXELS_MAX = 2_100_000;
/**
 * Bytes of a model's weights. The file, its folded copy and the runtime's own are there at once
 * while a model is opened; a det26n has 11 MB, the next variant 40.
 */
export const EDGE_WEIGHTS_BYTES_MAX = 16 * 1024 * 1024;

/** Whether a side of the square is one that detectors take: 0, or a multiple of 32. */
export const isEdgeImageSize = (side: number) =>
  side % STRIDE_MAX === 0 && side <= EDGE_IMAGE_SIZE_MAX;

/** Why a model cannot be served at the edge, for people; null where it can. */
export function edgeRefusal({ variant, bytes }: { variant: string; bytes: number }): string | null {
  if (bytes <= EDGE_WEIGHTS_BYTES_MAX) return null;
  const size = Math.ceil(bytes / 1024 ** 2);
  const max = EDGE_WEIGHTS_BYTES_MAX / 1024 ** 2;
  return `its weights have ${size} MiB, and the edge opens at most ${max}: train det26n, not ${variant}`;
}

/** What is wanted of an image. */
export const EdgeHead = z.object({
  /** Its weights are read from the store by their key. */
  model: ModelSource.extend({ weights: z.object({ key: z.string(), bytes: z.number().int() }) }),
  /** An ONNX file that was made of the model for the size, opened in place of its weights. */
  file: z
    .object({
      key: z.string(),
      bytes: z.number().int(),
      sha256: z.string(),
      precision: z.enum(EXPORT_PRECISIONS),
    })
    .nullable(),
  /** Pixels a side of the square that is looked at, in place of the model's own. */
  image_size: z.number().int().min(STRIDE_MAX).max(EDGE_IMAGE_SIZE_MAX).multipleOf(STRIDE_MAX),
  /** The lowest confidence of a detection that is told. */
  confidence: z.number().min(0).max(1),
});
export type EdgeHead = z.infer<typeof EdgeHead>;

/** What is on the image: an answer of the direct line, without what concerns a node. */
export const EdgeFindings = LineAnswer.pick({ predictions: true, width: true, height: true });
export type EdgeFindings = z.infer<typeof EdgeFindings>;

/** The header of an answer that says in which precision the model looked. */
export const PRECISION_HEADER = "X-Model-Precision";
/** Precision of weights, as nodes open them, and the edge where it has no file. */
export const WEIGHTS_PRECISION: ExportPrecision = "fp32";

const LENGTH_BYTES = 4;

/** A request: the length of its head as JSON, in four bytes, the head, and the image's file. */
export function encodeEdgeRequest(head: EdgeHead, image: readonly Uint8Array[]): Uint8Array {
  const text = new TextEncoder().encode(JSON.stringify(head));
  const length = new Uint8Array(LENGTH_BYTES);
  new DataView(length.buffer).setUint32(0, text.length);
  return joined([length, text, ...image]);
}

/** The parts of a request; throws for bytes that are none. */
export function decodeEdgeRequest(bytes: Uint8Array): { head: EdgeHead; image: Uint8Array } {
  const length = new DataView(bytes.buffer, bytes.byteOffset, bytes.length).getUint32(0);
  const end = LENGTH_BYTES + length;
  const text = new TextDecoder().decode(bytes.subarray(LENGTH_BYTES, end));
  return { head: EdgeHead.parse(JSON.parse(text)), image: bytes.subarray(end) };
}

/** Where the edge says what an image looks like, in place of what is on it. */
export const EDGE_HASH_PATH = "/hash";
