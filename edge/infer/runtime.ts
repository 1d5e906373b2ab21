// onnxruntime within an isolate: one thread, its code imported as a module, its memory bounded. It
// is started once, by the first request; where that fails it stays failed until the platform makes
// another isolate. Everything here ends without waiting for anything outside, so that no two
// requests ever share a promise of which one could be canceled.

import runtimeModule from "onnxruntime-web/ort-wasm-simd-threaded.wasm";
import { env, InferenceSession, Tensor } from "onnxruntime-web/wasm";
import { INPUT } from "../../shared/detector/detector-onnx.ts";
import type { DetectionRows } from "../../shared/detector/letterbox.ts";
import { Failure } from "../../shared/errors.ts";

/**
 * 64 KiB each: 80 MiB of the 128 that an isolate has. Beyond it the runtime says that it has no
 * memory, where the platform would end the isolate with all its requests.
 */
const PAGES_MAX = 1_280;

type State = { is: "new" } | { is: "starting" } | { is: "ready" } | { is: "failed"; why: unknown };
let state: State = { is: "new" };
let memory: WebAssembly.Memory | null = null;

/** Bytes that the runtime has taken so far; it never gives any back. */
export const runtimeBytes = (): number => memory?.buffer.byteLength ?? 0;

/** Starts the runtime, once; fails with `no_node` where it does not run in this isolate. */
export async function startRuntime(): Promise<void> {
  if (state.is === "ready") return;
  if (state.is === "new") {
    state = { is: "starting" };
    try {
      await instantiate();
      state = { is: "ready" };
      return;
    } catch (why) {
      state = { is: "failed", why };
    }
  }
  const cause = state.is === "failed" ? state.why : undefined;
  throw new Failure("no_node", "inference at the edge could not be started", { cause });
}

/** What cannot be: the runtime's code broke off in its midst, and its memory with it. */
function giveUpAfter(thrown: unknown) {
  if (thrown instanceof WebAssembly.RuntimeError) state = { is: "failed", why: thrown };
}

/**
 * The runtime expects to load its code by its address and to take up to 4 GiB. While it starts it
 * is handed the imported module and a smaller memory instead; it finds its code by a buffer that
 * stands for it.
 */
async function instantiate() {
  const { instantiate: original, Memory } = WebAssembly;
  const { waitAsync } = Atomics as { waitAsync?: unknown };
  const stand = new ArrayBuffer(8);
  Object.assign(env.wasm, { numThreads: 1, proxy: false, wasmBinary: stand });
  env.logLevel = "error";
  Reflect.set(WebAssembly, "Memory", function BoundedMemory(wanted: WebAssembly.MemoryDescriptor) {
    const maximum = Math.min(wanted.maximum ?? PAGES_MAX, PAGES_MAX);
    memory = new Memory({ ...wanted, maximum });
    return memory;
  });
  Reflect.set(
    WebAssembly,
    "instantiate",
    async (source: BufferSource, imports: WebAssembly.Imports) => {
      const bytes = ArrayBuffer.isView(source) ? source.buffer : source;
      if (bytes !== stand) throw new Error("only the runtime's own module is instantiated");
      const instance = new WebAssembly.Instance(runtimeModule, imports);
      return { module: runtimeModule, instance };
    },
  );
  // Its mailbox between threads would wait for ever, and there is one thread.
  Reflect.set(Atomics, "waitAsync", undefined);
  try {
    await InferenceSession.create(new Uint8Array(0), { executionProviders: ["wasm"] });
  } catch (thrown) {
    // An empty model is no graph: to say so, the runtime must run.
    if (!String(thrown).includes("No graph")) throw thrown;
  } finally {
    Reflect.set(WebAssembly, "Memory", Memory);
    Reflect.set(WebAssembly, "instantiate", original);
    Reflect.set(Atomics, "waitAsync", waitAsync);
  }
}

/** Opens a model's file; throws what the runtime says of it. */
export async function openModel(onnx: Uint8Array): Promise<InferenceSession> {
  try {
    return await InferenceSession.create(onnx, {
      executionProviders: ["wasm"],
      graphOptimizationLevel: "all",
    });
  } catch (thrown) {
    giveUpAfter(thrown);
    throw thrown;
  }
}

/** Whether the runtime had too little memory for what it was asked. */
export const isOutOfMemory = (thrown: unknown): boolean =>
  /bad_alloc|out of memory|allocate|memory\.grow/i.test(String(thrown));

/** Looks at a square of so many pixels a side; the rows are a copy of the runtime's. */
export async function look(
  session: InferenceSession,
  pixels: Float32Array,
  side: number,
): Promise<DetectionRows> {
  const input = new Tensor("float32", pixels, [1, 3, side, side]);
  try {
    const outputs = await session.run({ [INPUT]: input }, ["output0"]);
    const { output0 } = outputs;
    if (!output0) throw new Error("the model has no output0");
    const values = Float32Array.from(output0.data as Float32Array);
    const width = output0.dims[2] ?? 0;
    output0.dispose();
    return { values, width };
  } catch (thrown) {
    giveUpAfter(thrown);
    throw thrown;
  } finally {
    input.dispose();
  }
}
