// Whether models could run on a GPU, told without loading their runtime.

import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";

/** Whether the runtime was installed with its CUDA libraries. */
export function cudaInstalled(): boolean {
  const folder = dirname(createRequire(import.meta.url).resolve("onnxruntime-node/package.json"));
  const library = "linux/x64/libonnxruntime_providers_cuda.so";
  return ["napi-v6", "napi-v3"].some((napi) => existsSync(join(folder, "bin", napi, library)));
}
