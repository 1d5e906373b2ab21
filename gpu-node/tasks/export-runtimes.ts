// What opens a written file on this node: onnxruntime for ONNX, and for the formats of others what
// comes nearest to the runtimes that devices have.

import { PROTOTYPES } from "../../shared/detector/detector.ts";
import { INPUT } from "../../shared/detector/detector-onnx.ts";
import type { MaskedRows } from "../../shared/detector/letterbox.ts";
import type { TaskPayload } from "../../shared/tasks/tasks.ts";
import { openCoremlRunner } from "../export/coreml-runner.ts";
import type { FileForm, FileRunner } from "../export/file-runner.ts";
import { openTfliteRunner } from "../export/tflite-runner.ts";
import { type RawHeads, rowsOfHeads } from "../export/verification.ts";
import { float, floats, openSession, run, runtimeName } from "../onnx/runtime.ts";
import type { RunnerContext } from "./runner-context.ts";

type Payload = TaskPayload<"device_export">;

/** A file that is open in a runtime. */
export interface WrittenFile {
  /** Package and version of what opened it. */
  readonly runtime: string;
  /** What the file gives for images that it is run with together, each of planes in 0 to 1. */
  look(images: readonly Float32Array[]): Promise<MaskedRows[]>;
  close(): Promise<void>;
}

/** Opens a file as it lies on disk; fails with `RuntimeMissing` where nothing here can. */
export async function openWrittenFile(
  path: string,
  payload: Payload,
  context: RunnerContext,
): Promise<WrittenFile> {
  const { format } = payload;
  if (format === "tflite")
    return ofOne(await openTfliteRunner(path, formOf(payload, context)), payload);
  if (format === "coreml")
    return ofOne(await openCoremlRunner(path, formOf(payload, context)), payload);
  return openOnnx(path, payload, context);
}

const formOf = (
  { size, model, output }: Payload,
  { machine, cancel }: RunnerContext,
): FileForm => ({
  size,
  classes: model.classes.length,
  output: output === "raw" ? "raw" : "joined",
  cpuThreads: machine.cpuThreads,
  signal: cancel,
});

/** A file that takes one image a run. */
const ofOne = (runner: FileRunner, { model }: Payload): WrittenFile => ({
  runtime: runner.runtime,
  async look(images) {
    const rows: MaskedRows[] = [];
    for (const pixels of images) {
      const heads = await runner.look(pixels);
      const { values, width } = rowsOfHeads(heads, model.classes.length);
      rows.push({ values, width, prototypes: heads.prototypes ?? null });
    }
    return rows;
  },
  close: () => runner.close(),
});

async function openOnnx(
  path: string,
  payload: Payload,
  { machine, cancel }: RunnerContext,
): Promise<WrittenFile> {
  const [height, width] = payload.size;
  const session = await openSession(path, { cpuThreads: machine.cpuThreads, device: "cpu" });
  return {
    runtime: runtimeName(),
    async look(images) {
      const each = 3 * height * width;
      const pixels = new Float32Array(images.length * each);
      for (const [at, image] of images.entries()) pixels.set(image, at * each);
      const input = float(pixels, [images.length, 3, height, width]);
      const outputs = await run(session, { [INPUT]: input });
      // The runtime holds this thread while it works: hear what came meanwhile.
      await new Promise((resume) => setImmediate(resume));
      cancel.throwIfAborted();
      return images.map((_, at) => rowsIn(payload, outputs, { at, count: images.length }));
    },
    close: () => session.release(),
  };
}

/** The rows of one image of a run. */
function rowsIn(
  { model: { task, classes }, output }: Payload,
  outputs: Parameters<typeof floats>[0],
  { at, count }: { at: number; count: number },
): MaskedRows {
  const own = (name: string) => {
    const all = floats(outputs, name);
    return all.subarray((at * all.length) / count, ((at + 1) * all.length) / count);
  };
  const masks = task === "segmentation";
  const prototypes = masks ? own("output1") : null;
  if (output === "end_to_end") {
    return { values: own("output0"), width: masks ? 6 + PROTOTYPES : 6, prototypes };
  }
  const heads: RawHeads = { boxes: own("boxes"), scores: own("scores") };
  const { values, width } = rowsOfHeads(
    masks ? { ...heads, masks: own("masks") } : heads,
    classes.length,
  );
  return { values, width, prototypes };
}
