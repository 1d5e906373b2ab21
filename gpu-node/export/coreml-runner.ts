// Runs a Core ML package where Apple's runtime is not: what is read back from its bytes, as an ONNX
// graph in onnxruntime. Weights are those of the file; maps are single precision, so it does not
// show what half-precision maps lose.

import { PROTOTYPES } from "../../shared/detector/detector.ts";
import { anchorsOf, INPUT } from "../../shared/detector/detector-onnx.ts";
import { ZipReader } from "../objects/zip-reader.ts";
import { float, floats, openSession, run, runtimeName } from "../onnx/runtime.ts";
import { PACKAGE_FOLDER } from "./coreml.ts";
import { readCoreml } from "./coreml-reader.ts";
import type { FileForm, FileRunner } from "./file-runner.ts";

/** Opens the zip of a package. Fails where it is not what Core ML takes, or of another size. */
export async function openCoremlRunner(path: string, form: FileForm): Promise<FileRunner> {
  const { onnx, size, outputs } = readCoreml(await packageFiles(path));
  if (size.join() !== form.size.join()) throw new Error(`the package is for ${size} pixels`);
  form.signal.throwIfAborted();
  const session = await openSession(onnx, { cpuThreads: form.cpuThreads, device: "cpu" });
  const [height, width] = form.size;
  return {
    runtime: `a reader of ML programs, ${runtimeName()}`,
    look: async (pixels) => {
      form.signal.throwIfAborted();
      // The package takes an image, whose numbers go to 255.
      const image = float(
        pixels.map((value) => value * 255),
        [1, 3, height, width],
      );
      const given = await run(session, { [INPUT]: image });
      const anchors = anchorsOf(form.size);
      const sized = (name: string, channels: number) => {
        const values = floats(given, name);
        if (values.length !== channels * anchors) {
          throw new Error(`${name} has ${values.length} numbers`);
        }
        return values;
      };
      const heads = { boxes: sized("boxes", 4), scores: sized("scores", form.classes) };
      if (!outputs.includes("masks")) return heads;
      const prototypes = floats(given, "prototypes");
      return { ...heads, masks: sized("masks", PROTOTYPES), prototypes };
    },
    close: () => session.release(),
  };
}

async function packageFiles(path: string): Promise<Map<string, Uint8Array>> {
  const zip = await ZipReader.open(path);
  try {
    const files = new Map<string, Uint8Array>();
    for (const name of zip.names) {
      const chunks: Uint8Array[] = [];
      for await (const chunk of await zip.stream(name)) chunks.push(chunk);
      files.set(name.replace(`${PACKAGE_FOLDER}/`, ""), Buffer.concat(chunks));
    }
    return files;
  } finally {
    zip.close();
  }
}
