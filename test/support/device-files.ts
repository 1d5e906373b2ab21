// Files that devices are asked to run: the smallest detector as a node exports it, and the same
// with weights under which it passes every check of its bytes and gives no numbers.

import { deployedModel } from "../../gpu-node/export/deployed-model.ts";
import { describeModel, writeOnnx } from "../../gpu-node/export/detector-onnx.ts";
import { readTensors } from "../../gpu-node/export/weights-file.ts";
import { detectorGraph } from "../../shared/detector/detector.ts";
import { CLASSES, type DeviceFile, describedFile, SIDE } from "./described-files.ts";
import { generatedModel, randomWeights, tensorFile } from "./weights.ts";

const made = new Map<string, DeviceFile>();

/** An exported model; another seed is another one. A `blind` one gives no numbers. */
export function deviceFile(seed = 1, { blind = false } = {}): DeviceFile {
  const name = `${seed} ${blind}`;
  const known = made.get(name);
  if (known) return known;
  const tensors = randomWeights(detectorGraph("det26n", CLASSES.length, "detection"), seed);
  if (blind) {
    // Boxes overflow within the graph: weights themselves are all numbers, or none could be made.
    for (const [tensor, { values }] of tensors) {
      if (/\.box\.\d\.2\.bias$/.test(tensor)) values.fill(3e38);
    }
  }
  let file: Buffer = Buffer.alloc(0);
  const model = generatedModel(
    (key, bytes) => {
      file = bytes;
      return { url: "", key, bytes: bytes.length };
    },
    { file: tensorFile(tensors), classes: CLASSES, image_size: SIDE },
  );
  const onnx = writeOnnx(deployedModel(model, readTensors(file)), {
    output: "detections",
    size: [SIDE, SIDE],
    batch: null,
    metadata: describeModel(model),
  });
  const bytes = Buffer.from(onnx);
  const one = { bytes, file: describedFile(bytes) };
  made.set(name, one);
  return one;
}
