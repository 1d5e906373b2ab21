// The thread in which a model runs: the runtime works through an image without giving its thread
// back, and whoever else has business in the process would wait for it.

import { parentPort, workerData } from "node:worker_threads";
import { INPUT } from "../../shared/detector-onnx.ts";
import { float, floats, openSession, run } from "../onnx/runtime.ts";
import type { FromThread, Opening, ToThread } from "./model-thread.ts";

const port = parentPort;
if (!port) throw new Error("this is the program of a thread");
const say = (message: FromThread, transfer: ArrayBuffer[] = []) =>
  port.postMessage(message, transfer);
const problemOf = (thrown: unknown) => (thrown instanceof Error ? thrown.message : String(thrown));

const { onnx, cpuThreads, device } = workerData as Opening;
try {
  const session = await openSession(onnx, { cpuThreads, device });
  const look = async ({ id, pixels, shape }: Extract<ToThread, { type: "run" }>) => {
    const outputs = await run(session, { [INPUT]: float(pixels, shape) });
    // A copy of its own: the runtime's memory is not for giving away.
    const values = floats(outputs, "output0").slice();
    const dims = [...(outputs.output0?.dims ?? [])];
    say({ type: "rows", id, values, dims }, [values.buffer]);
  };
  port.on("message", (message: ToThread) => {
    if (message.type === "close") {
      void session.release().finally(() => port.close());
      return;
    }
    look(message).catch((thrown: unknown) => {
      say({ type: "failed", id: message.id, problem: problemOf(thrown) });
    });
  });
  say({ type: "open" });
} catch (thrown) {
  say({ type: "refused", problem: problemOf(thrown) });
  port.close();
}
