// What opens a written file to hold it against its model, whatever the format.

import type { OnnxSize } from "../../shared/detector/detector-onnx.ts";
import { NOT_VERIFIED_CHARACTERS_MAX } from "../../shared/wire/exports.ts";
import type { RawHeads } from "./verification.ts";

/** A file that is open in its runtime. */
export interface FileRunner {
  /** Package and version of what opened the file. */
  readonly runtime: string;
  /**
   * What the file gives for one image, before top-k: planes [3, height, width] of RGB in 0 to 1;
   * boxes in pixels of the input.
   */
  look(pixels: Float32Array): Promise<RawHeads>;
  close(): Promise<void>;
}

/** What is known of a file before it is opened. */
export interface FileForm {
  size: OnnxSize;
  classes: number;
  output: "raw" | "joined";
  cpuThreads: number;
  /** Aborts when the task has to stop. */
  signal: AbortSignal;
}

/**
 * What would open the file is not on this node; the file is then offered as not verified, with the
 * message as the reason, which is cut to what a reason may have.
 */
export class RuntimeMissing extends Error {
  override readonly name = "RuntimeMissing";

  constructor(message: string) {
    super(message.slice(0, NOT_VERIFIED_CHARACTERS_MAX).toWellFormed());
  }
}
