// Files of models as manifests describe them; whether they are models is not asked here.

import { createHash } from "node:crypto";
import type { RolloutFile } from "../../shared/wire/rollouts.ts";

/** A file, and what its manifest says of it. */
export interface DeviceFile {
  bytes: Buffer;
  file: RolloutFile;
}

export const CLASSES = ["disc", "square", "star"];
/** Pixels a side of what the files' models look at. */
export const SIDE = 96;

/** What a manifest says of bytes that are, or are not, such a file. */
export const describedFile = (bytes: Uint8Array): RolloutFile => ({
  format: "onnx",
  runtime: "onnxruntime",
  sha256: createHash("sha256").update(bytes).digest("hex"),
  size: bytes.length,
  task: "detection",
  classes: CLASSES,
  image_size: [SIDE, SIDE],
});

/** Bytes that no scripted device opens. */
export function smallFile(text = `a file ${crypto.randomUUID()}`): DeviceFile {
  const bytes = Buffer.from(text);
  return { bytes, file: describedFile(bytes) };
}
