// Runs an exported ONNX file on an image in Node and prints the objects, one a line:
//
//     npm install onnxruntime-node sharp
//     node node.mjs model.onnx image.jpg 0.25
//
// It takes files of both outputs, `end_to_end` and `raw`, for a batch of one or any. A raw file
// whose metadata have an `nms_iou` wants it behind the confidence: the runtime does not tell
// metadata.

import ort from "onnxruntime-node";
import sharp from "sharp";
import { inputOf, objectsOf, placementOf, rowsOfHeads } from "./detections.mjs";

const [modelPath, imagePath, confidence = "0.25", nmsIou = null] = process.argv.slice(2);
if (!modelPath || !imagePath) {
  process.stderr.write("node node.mjs model.onnx image.jpg [confidence [nms_iou]]\n");
  process.exit(2);
}

const session = await ort.InferenceSession.create(modelPath);
const [, , height, width] = session.inputMetadata[0].shape;
const input = { width, height };

// The right way up, what is transparent on white. As pixels: sharp would encode it again as what it
// was, a JPEG with other pixels than the file's.
const upright = await sharp(imagePath)
  .autoOrient()
  .flatten({ background: "#ffffff" })
  .toColourspace("srgb")
  .raw()
  .toBuffer({ resolveWithObject: true });
const placement = placementOf(upright.info, input);
const { data, info } = await sharp(upright.data, { raw: upright.info })
  .resize(placement.width, placement.height, { fit: "fill", kernel: "linear" })
  .raw()
  .toBuffer({ resolveWithObject: true });
const pixels = inputOf({ data, channels: info.channels }, placement, "planes");
const images = new ort.Tensor("float32", pixels, [1, 3, height, width]);
const outputs = await session.run({ images });

const rows = outputs.output0
  ? outputs.output0.data
  : rowsOfHeads(outputs.boxes.data, outputs.scores.data, nmsIou && Number(nmsIou));
const rowWidth = outputs.output0 ? outputs.output0.dims[2] : 6;
const options = { confidence: Number(confidence), width: rowWidth };
for (const object of objectsOf(rows, placement, options)) {
  process.stdout.write(`${JSON.stringify(object)}\n`);
}
