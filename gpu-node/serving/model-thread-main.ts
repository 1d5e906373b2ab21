// The thread in which a model runs: the runtime works through an image without giving its thread
// back, and whoever else has business in the process would wait for it. Masks are drawn here, too.

import { parentPort, workerData } from "node:worker_threads";
import { INPUT } from "../../shared/detector/detector-onnx.ts";
import { float, floats, openSession, run } from "../onnx/runtime.ts";
import type { FromThread, Opening, ToThread } from "./model-thread.ts";
import { tellMasks } from "./prototype-masks.ts";

/**
 * Where a machine has no more cores, what is beside the model needs them: images are decoded, and
 * the service or another model may be there. Of machines with more nothing was measured.
 */
const FEW_THREADS = 4;

const port = parentPort;
if (!port) throw new Error("this is the program of a thread");
const say = (message: FromThread, transfer: ArrayBuffer[] = []) =>
  port.postMessage(message, transfer);
const problemOf = (thrown: unknown) => (thrown instanceof Error ? thrown.message : String(thrown));

const { onnx, cpuThreads, device } = workerData as Opening;
try {
  const spinning = cpuThreads > FEW_THREADS;
  const session = await openSession(onnx, { cpuThreads, device, spinning });
  const look = async ({ id, pixels, shape, prototypesOf }: Extract<ToThread, { type: "run" }>) => {
    const outputs = await run(session, { [INPUT]: float(pixels, shape) });
    // A copy of its own: the runtime's memory is not for giving away.
    const values = floats(outputs, "output0").slice();
    const dims = [...(outputs.output0?.dims ?? [])];
    const prototypes: Float32Array<ArrayBuffer>[] = [];
    if (prototypesOf.length > 0) {
      const all = floats(outputs, "output1");
      const each = all.length / (shape[0] as number);
      for (const at of prototypesOf) prototypes.push(all.slice(at * each, (at + 1) * each));
    }
    const buffers = [values, ...prototypes].map(({ buffer }) => buffer);
    say({ type: "rows", id, values, dims, prototypes, pixels }, [...buffers, pixels.buffer]);
  };
  const answer = async (message: Exclude<ToThread, { type: "close" }>) => {
    if (message.type === "run") return look(message);
    say({ type: "masks", id: message.id, told: tellMasks(message.job) });
  };
  port.on("message", (message: ToThread) => {
    if (message.type === "close") {
      void session.release().finally(() => port.close());
      return;
    }
    answer(message).catch((thrown: unknown) => {
      say({ type: "failed", id: message.id, problem: problemOf(thrown) });
    });
  });
  say({ type: "open" });
} catch (thrown) {
  say({ type: "refused", problem: problemOf(thrown) });
  port.close();
}
