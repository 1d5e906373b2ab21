// The page's script: opens the file with onnxruntime-web or LiteRT, both WebAssembly on one thread,
// and draws the objects. Nothing is sent anywhere. Of TensorFlow Lite files it takes those of a
// detection model.

import { headsOfJoined, inputOf, objectsOf, placementOf, rowsOfHeads } from "./detections.mjs";

const form = document.querySelector("form");
const status = document.querySelector("[role=status]");
const printed = document.querySelector("pre");

/** Where a package's files lie, by its entry in the import map. */
const folderOf = (name, up) => new URL(up, import.meta.resolve(name)).href;

/** An ONNX file: its input's size, and the rows that it gives for an image. */
async function openOnnx(bytes) {
  const ort = await import("onnxruntime-web");
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmPaths = folderOf("onnxruntime-web", "./");
  const session = await ort.InferenceSession.create(bytes, { executionProviders: ["wasm"] });
  const [, , height, width] = session.inputMetadata[0].shape;
  return {
    input: { width, height },
    layout: "planes",
    rows: async (pixels) => {
      const images = new ort.Tensor("float32", pixels, [1, 3, height, width]);
      const { output0, boxes, scores } = await session.run({ images });
      if (output0) return { rows: output0.data, width: output0.dims[2] };
      return { rows: rowsOfHeads(boxes.data, scores.data), width: 6 };
    },
  };
}

/** The runtime is loaded once a page. */
let litert;

/** A TensorFlow Lite file, the same. */
async function openTflite(bytes) {
  const runtime = await import("@litertjs/core");
  litert ??= runtime.loadLiteRt(folderOf("@litertjs/core", "../wasm/"));
  await litert;
  const model = await runtime.loadAndCompile(bytes, { accelerator: "wasm" });
  const [, height, width] = model.getInputDetails()[0].shape;
  const input = { width, height };
  return {
    input,
    layout: "pixels",
    rows: async (pixels) => {
      const images = new runtime.Tensor(pixels, [1, height, width, 3]);
      const outputs = await model.run({ images });
      const values = {};
      for (const [name, tensor] of Object.entries(outputs)) {
        values[name] = tensor.toTypedArray().slice();
        // What is not deleted stays in the module's memory.
        tensor.delete();
      }
      images.delete();
      if (values.boxes) return { rows: rowsOfHeads(values.boxes, values.scores), width: 6 };
      const [, channels] = model.getOutputDetails()[0].shape;
      const { boxes, scores } = headsOfJoined(values.output0, channels - 4, input);
      return { rows: rowsOfHeads(boxes, scores), width: 6 };
    },
  };
}

/** The image's pixels at a size, by the browser's own scaling, what is transparent on white. */
function pixelsOf(bitmap, { width, height }) {
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  context.fillStyle = "white";
  context.fillRect(0, 0, width, height);
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, width, height);
  return { data: context.getImageData(0, 0, width, height).data, channels: 4 };
}

function draw(bitmap, objects) {
  const canvas = document.querySelector("canvas");
  canvas.width = bitmap.width;
  canvas.height = bitmap.height;
  const context = canvas.getContext("2d");
  context.drawImage(bitmap, 0, 0);
  context.lineWidth = Math.max(2, bitmap.width / 300);
  context.font = `${Math.max(12, bitmap.width / 40)}px system-ui`;
  for (const { class: index, score, box } of objects) {
    const [x1, y1, x2, y2] = box;
    const colour = `hsl(${(index * 137) % 360} 90% 45%)`;
    context.strokeStyle = colour;
    context.fillStyle = colour;
    context.strokeRect(x1, y1, x2 - x1, y2 - y1);
    context.fillText(`${index} ${score.toFixed(2)}`, x1, y1 - 4);
  }
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const { model, image, confidence } = form.elements;
  status.textContent = "Opening the file …";
  printed.textContent = "";
  try {
    const [file] = model.files;
    const bytes = new Uint8Array(await file.arrayBuffer());
    const open = file.name.endsWith(".tflite") ? openTflite : openOnnx;
    const { input, layout, rows: look } = await open(bytes);
    const bitmap = await createImageBitmap(image.files[0]);
    const placement = placementOf(bitmap, input);
    const { rows, width } = await look(inputOf(pixelsOf(bitmap, placement), placement, layout));
    const options = { confidence: Number(confidence.value), width };
    const objects = objectsOf(rows, placement, options);
    draw(bitmap, objects);
    printed.textContent = objects.map((object) => JSON.stringify(object)).join("\n");
    status.textContent = `${objects.length} objects`;
  } catch (error) {
    status.textContent = `It failed: ${error.message}`;
  }
});
