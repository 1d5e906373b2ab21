// Stand-ins for models that we may not carry: tiny graphs with the exact names and shapes of the
// exports, that truly look at the image: "on the object" is where red outweighs blue.

import { createHash } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { GraphWriter, tensorInfo } from "../../gpu-node/onnx/model-file.ts";

/** "disc" and "visual" become one token each: numbers 514 and 519 in CLIP's order. */
export const MERGES = [
  "#version: 0.2",
  ..."d i,s c</w>,di sc</w>,v i,s u,vi su,a l</w>,visu al</w>".split(","),
].join("\n");
const DISC = 514;
const VISUAL = 519;

const floats = (...values: number[]) => Float32Array.from(values);
const longs = (...values: number[]) => BigInt64Array.from(values.map(BigInt));

/** A 1x1 kernel whose first channel is red less blue, and the others the image's mean. */
function redness(writer: GraphWriter, name: string, channels: number): string {
  const kernel = new Float32Array(channels * 3).fill(1 / 3);
  kernel.set([1, 0, -1]);
  return writer.initializer(name, [channels, 3, 1, 1], kernel);
}

/** Scales the image and turns it into so many channels. */
function map(
  writer: GraphWriter,
  options: { image: string; output: string; channels: number; side: number },
): void {
  const { image, output, channels, side } = options;
  const sizes = writer.initializer(`${output}#sizes`, [4], longs(1, 3, side, side));
  const scaled = writer.node("Resize", [image, "", "", sizes], `${output}#scaled`, {
    mode: "linear",
  });
  const kernel = redness(writer, `${output}#kernel`, channels);
  writer.node("Conv", [scaled, kernel], output, { kernel_shape: [1, 1] });
}

export function sam2Encoder(side = 1024): Uint8Array {
  const writer = new GraphWriter();
  map(writer, { image: "image", output: "high_res_feats_0", channels: 32, side: side / 4 });
  map(writer, { image: "image", output: "high_res_feats_1", channels: 64, side: side / 8 });
  map(writer, { image: "image", output: "image_embed", channels: 256, side: side / 16 });
  return writer.encode(
    "sam2-encoder",
    [tensorInfo("image", [1, 3, side, side])],
    [
      tensorInfo("high_res_feats_0", [1, 32, side / 4, side / 4]),
      tensorInfo("high_res_feats_1", [1, 64, side / 8, side / 8]),
      tensorInfo("image_embed", [1, 256, side / 16, side / 16]),
    ],
  );
}

/** Columns and rows of a grid, in steps of `step` from half a step. */
function grids(writer: GraphWriter, side: number, step: number): { x: string; y: string } {
  const centers = Float32Array.from({ length: side }, (_, index) => (index + 0.5) * step);
  return {
    x: writer.initializer("grid_x", [1, 1, 1, side], centers),
    y: writer.initializer("grid_y", [1, 1, side, 1], centers),
  };
}

/** Red pixels within 300, 120 and 60 working pixels of the prompt's middle, as three masks. */
export function sam2Decoder(side = 1024): Uint8Array {
  const writer = new GraphWriter();
  const low = side / 4;
  const constant = (name: string, dims: number[], ...values: number[]) =>
    writer.initializer(name, dims, floats(...values));
  writer.node("Greater", ["point_labels", constant("half", [], 0.5)], "is_on");
  writer.node("Cast", ["is_on"], "on", { to: 1 });
  writer.node("Unsqueeze", ["on", writer.initializer("last", [1], longs(2))], "weights");
  writer.node("Mul", ["point_coords", "weights"], "weighted");
  writer.node("ReduceSum", ["weighted", writer.initializer("one", [1], longs(1))], "sum");
  writer.node("ReduceSum", ["weights", "one"], "count");
  writer.node("Div", ["sum", "count"], "middle");
  writer.node("Split", ["middle"], ["middle_x", "middle_y"], { axis: 2 });
  const { x, y } = grids(writer, low, 4);
  const shape = writer.initializer("scalar4", [4], longs(1, 1, 1, 1));
  for (const [axis, grid] of [
    ["x", x],
    ["y", y],
  ] as const) {
    writer.node("Reshape", [`middle_${axis}`, shape], `at_${axis}`);
    writer.node("Sub", [grid, `at_${axis}`], `off_${axis}`);
    writer.node("Mul", [`off_${axis}`, `off_${axis}`], `square_${axis}`);
  }
  writer.node("Add", ["square_x", "square_y"], "squares");
  writer.node("Sqrt", ["squares"], "distance");
  writer.node("Sub", [constant("radii", [1, 3, 1, 1], 120, 300, 60), "distance"], "near");
  const from = writer.initializer("from", [1], longs(0));
  const until = writer.initializer("until", [1], longs(1));
  writer.node("Slice", ["high_res_feats_0", from, until, "one"], "red");
  writer.node("Sub", ["red", constant("cut", [], 1)], "reddish");
  writer.node("Mul", ["reddish", constant("steep", [], 100)], "steep_red");
  writer.node("Min", ["near", "steep_red"], "masks");
  // Which mask is best is the scores' word, not the order's.
  writer.node("Identity", [constant("said", [1, 3], 0.7, 0.95, 0.6)], "iou_predictions");
  return writer.encode(
    "sam2-decoder",
    [
      tensorInfo("image_embed", [1, 256, side / 16, side / 16]),
      tensorInfo("high_res_feats_0", [1, 32, low, low]),
      tensorInfo("high_res_feats_1", [1, 64, side / 8, side / 8]),
      tensorInfo("point_coords", ["num_labels", "num_points", 2]),
      tensorInfo("point_labels", ["num_labels", "num_points"]),
      tensorInfo("mask_input", ["num_labels", 1, low, low]),
      tensorInfo("has_mask_input", ["num_labels"]),
    ],
    [
      tensorInfo("masks", ["num_labels", 3, low, low]),
      tensorInfo("iou_predictions", ["num_labels", 3]),
    ],
  );
}

const FEATURES = [
  ["fpn_feat_0", 288],
  ["fpn_feat_1", 144],
  ["fpn_feat_2", 72],
  ["fpn_pos_2", 72],
] as const;
const featureInfos = () => FEATURES.map(([name, side]) => tensorInfo(name, ["b", 256, side, side]));

export function sam3Vision(side = 1008): Uint8Array {
  const writer = new GraphWriter();
  for (const [output, cells] of FEATURES)
    map(writer, { image: "images", output, channels: 256, side: cells });
  return writer.encode("sam3-vision", [tensorInfo("images", ["b", 3, side, side])], featureInfos());
}

/** Each token's number, 256 times. */
export function sam3Text(): Uint8Array {
  const writer = new GraphWriter();
  writer.node("Cast", ["input_ids"], "numbers", { to: 1 });
  writer.node("Unsqueeze", ["numbers", writer.initializer("last", [1], longs(2))], "column");
  const shape = writer.initializer("shape", [3], longs(1, 32, 256));
  writer.node("Expand", ["column", shape], "text_features");
  writer.node("Cast", ["attention_mask"], "text_mask", { to: 9 });
  return writer.encode(
    "sam3-text",
    [tensorInfo("input_ids", ["b", 32], "int64"), tensorInfo("attention_mask", ["b", 32], "int64")],
    [tensorInfo("text_features", ["b", 32, 256]), tensorInfo("text_mask", ["b", 32], "bool")],
  );
}

/** Where the stand-in cuts an image in two: its first two queries are what is red on each side. */
export const SPLIT = 213;
export const SAM3_LOGIT = 3;
export const PRESENCE = { text: 2, example: 1 };

/**
 * Query 0 is what is red left of the split, query 1 right of it, where an example is pasted. Both
 * answer "disc" and "visual" only. The presence tells whether a box was given.
 */
export function sam3Decoder(): Uint8Array {
  const writer = new GraphWriter();
  const side = 288;
  const constant = (name: string, dims: number[], ...values: number[]) =>
    writer.initializer(name, dims, floats(...values));
  const zero = writer.initializer("zero", [1], longs(0));
  const one = writer.initializer("one", [1], longs(1));
  writer.node("Slice", ["fpn_feat_0", zero, one, one], "red");
  writer.node("Sub", ["red", constant("cut", [], 0.6)], "reddish");
  const { x, y } = grids(writer, side, 1);
  writer.node("Less", [x, constant("split", [], SPLIT)], "is_left");
  writer.node("Not", ["is_left"], "is_right");
  const off = constant("off", [], -10);
  for (const half of ["left", "right"]) {
    writer.node("Where", [`is_${half}`, "reddish", off], `mask_${half}`);
    writer.node("Greater", [`mask_${half}`, constant("none", [], 0)], `on_${half}`);
    for (const [axis, grid] of [
      ["x", x],
      ["y", y],
    ] as const) {
      const min = `${half}_${axis}_min`;
      const max = `${half}_${axis}_max`;
      writer.node("Where", [`on_${half}`, grid, constant("far", [], side)], `${min}_all`);
      writer.node("Where", [`on_${half}`, grid, constant("near", [], 0)], `${max}_all`);
      const whole = { axes: [1, 2, 3], keepdims: 0 };
      writer.node("ReduceMin", [`${min}_all`], `${min}_at`, whole);
      writer.node("ReduceMax", [`${max}_all`], `${max}_at`, whole);
      writer.node("Sub", [`${min}_at`, "half_cell"], min);
      writer.node("Add", [`${max}_at`, "half_cell"], max);
    }
    const corners = ["x_min", "y_min", "x_max", "y_max"].map((name) => `${half}_${name}`);
    writer.node("Concat", corners, `${half}_cells`, { axis: 0 });
    writer.node("Div", [`${half}_cells`, constant("side", [], side)], `${half}_shares`);
    const row = writer.initializer("row", [3], longs(1, 1, 4));
    writer.node("Reshape", [`${half}_shares`, row], `box_${half}`);
  }
  constant("half_cell", [], 0.5);
  const restMasks = writer.initializer("rest_masks", [4], longs(1, 198, side, side));
  writer.node("Expand", [off, restMasks], "masks_rest");
  writer.node("Concat", ["mask_left", "mask_right", "masks_rest"], "pred_masks", { axis: 1 });
  const restBoxes = writer.initializer("rest_boxes", [3], longs(1, 198, 4));
  writer.node("Expand", [constant("half", [], 0.5), restBoxes], "boxes_rest");
  writer.node("Concat", ["box_left", "box_right", "boxes_rest"], "pred_boxes", { axis: 1 });
  decodeScores(writer, constant);
  return writer.encode(
    "sam3-decoder",
    [
      ...featureInfos(),
      tensorInfo("text_features", ["b", 32, 256]),
      tensorInfo("text_mask", ["b", 32], "bool"),
      tensorInfo("input_boxes", ["b", "n", 4]),
      tensorInfo("input_boxes_labels", ["b", "n"], "int64"),
    ],
    [
      tensorInfo("pred_masks", ["b", 200, side, side]),
      tensorInfo("pred_boxes", ["b", 200, 4]),
      tensorInfo("pred_logits", ["b", 200]),
      tensorInfo("presence_logits", ["b", 1]),
    ],
  );
}

function decodeScores(
  writer: GraphWriter,
  constant: (name: string, dims: number[], ...values: number[]) => string,
): void {
  const first = writer.initializer("first", [3], longs(0, 1, 0));
  const until = writer.initializer("until", [3], longs(1, 2, 1));
  writer.node("Slice", ["text_features", first, until], "word3");
  const flat = writer.initializer("flat", [2], longs(1, 1));
  writer.node("Reshape", ["word3", flat], "word");
  writer.node("Equal", ["word", constant("disc", [], DISC)], "is_disc");
  writer.node("Equal", ["word", constant("visual", [], VISUAL)], "is_visual");
  writer.node("Or", ["is_disc", "is_visual"], "is_known");
  const yes = constant("yes", [], SAM3_LOGIT);
  writer.node("Where", ["is_known", yes, constant("no", [], -9)], "logit");
  const rest = writer.initializer("rest_logits", [2], longs(1, 198));
  writer.node("Expand", [constant("never", [], -9), rest], "logits_rest");
  writer.node("Concat", ["logit", "logit", "logits_rest"], "pred_logits", { axis: 1 });
  writer.node("Cast", ["input_boxes_labels"], "labels", { to: 1 });
  writer.node("ReduceMax", ["labels"], "label", { axes: [1], keepdims: 1 });
  writer.node("Less", ["label", constant("origin", [], 0)], "no_box");
  const text = constant("by_text", [], PRESENCE.text);
  const example = constant("by_example", [], PRESENCE.example);
  writer.node("Where", ["no_box", text, example], "presence_logits");
}

type Json = Record<string, unknown>;

/** Writes a bundle folder with the manifest that its files need; `change` may spoil it. */
export function writeBundle(
  folder: string,
  manifest: Json,
  files: Readonly<Record<string, Uint8Array | string>>,
  change: (manifest: Json) => Json = (same) => same,
): string {
  const listed = Object.entries(files).map(([path, content]) => {
    const bytes = Buffer.from(content);
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), bytes);
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    return { path, sha256, bytes: bytes.length };
  });
  const text = JSON.stringify(change({ ...manifest, files: listed }));
  writeFileSync(join(folder, "bundle.json"), text);
  return folder;
}

export const sam2Manifest = (name = "sam2-stand-in") => ({
  name,
  title: "SAM 2.1 stand-in",
  licence: "Apache-2.0",
  kind: "sam2",
  models: { encoder: "encoder.onnx", decoder: "decoder.onnx" },
});

export const sam2Files = () => ({ "encoder.onnx": sam2Encoder(), "decoder.onnx": sam2Decoder() });

export const sam3Manifest = (name = "sam3-stand-in") => ({
  name,
  title: "SAM 3 stand-in",
  licence: "SAM License",
  kind: "sam3",
  models: {
    vision: "vision-encoder.onnx",
    text: "text-encoder.onnx",
    decoder: "geo-encoder-mask-decoder.onnx",
  },
  tokenizer: { merges: "tokenizer/merges.txt" },
});

export const sam3Files = () => ({
  "vision-encoder.onnx": sam3Vision(),
  "text-encoder.onnx": sam3Text(),
  "geo-encoder-mask-decoder.onnx": sam3Decoder(),
  "tokenizer/merges.txt": MERGES,
});
