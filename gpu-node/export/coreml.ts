// A detector as a Core ML package: an ML program, its weights beside it, and a manifest. Input
// `images`: an RGB image of the given size, letterboxed. Outputs, before the two top-k steps:
// `boxes` [1, anchors, 4] corners in pixels, `scores` [1, anchors, classes]; of a segmentation
// model also `masks` and `prototypes`, all single precision.

import { create, toBinary } from "@bufbuild/protobuf";
import type { DeployedModel } from "../../shared/detector/deployed-weights.ts";
import { STRIDE_MAX } from "../../shared/detector/detector.ts";
import { INPUT, type OnnxSize } from "../../shared/detector/detector-onnx.ts";
import { zipBytes } from "../objects/zip-writer.ts";
import {
  ARRAY_FLOAT32,
  COLOR_RGB,
  MODEL_PATH,
  Model,
  OPSET,
  SPECIFICATION_VERSION,
  WEIGHTS_FILE,
  WEIGHTS_FOLDER,
} from "./coreml-schema.ts";
import { CoremlWalk } from "./coreml-walk.ts";
import { type MilValue, milType } from "./mil-program.ts";

export interface CoremlOptions {
  size: OnnxSize;
  precision: "fp16" | "fp32";
  /** What a file says of its model, as `describeModel` gives it. */
  metadata: Readonly<Record<string, string>>;
  /** UUIDs of the manifest's two entries. */
  identifiers: readonly [model: string, weights: string];
}

/** The folder of an archive that a package travels in. */
export const PACKAGE_FOLDER = "model.mlpackage";

const DESCRIPTIONS: Readonly<Record<string, string>> = {
  boxes: "x1, y1, x2, y2 of each anchor in pixels of the input",
  scores: "of each anchor and class, 0 to 1",
  masks: "weights of the prototypes, of each anchor",
  prototypes: "maps of which a mask is the sigmoid of a weighted sum",
};

/** Writes a deployed model as a zip of its package; the same arguments give the same bytes. */
export function writeCoreml(model: DeployedModel, options: CoremlOptions): Uint8Array {
  const files = packageFiles(model, options);
  return zipBytes([...files].map(([path, content]) => [`${PACKAGE_FOLDER}/${path}`, content]));
}

function packageFiles(
  model: DeployedModel,
  { size, precision, metadata, identifiers }: CoremlOptions,
): Map<string, Uint8Array | string> {
  for (const side of size) {
    if (side < STRIDE_MAX || side % STRIDE_MAX) throw new Error(`a side of ${side} pixels`);
  }
  const walk = new CoremlWalk(model, size, precision === "fp16" ? "float16" : "float32");
  const outputs = [
    walk.boxes("boxes"),
    walk.scores("scores"),
    ...walk.masks("masks"),
    ...walk.prototypes("prototypes"),
  ];
  const said = {
    ...metadata,
    imgsz: JSON.stringify(size),
    batch: "1",
    end2end: "False",
  };
  const { variant, task } = model.graph;
  const message = create(Model, {
    specificationVersion: SPECIFICATION_VERSION,
    description: {
      ...interfaceOf(size, outputs),
      metadata: {
        shortDescription: metadata.description ?? `${variant}-${task}`,
        author: "vantage",
        userDefined: Object.entries(said).map(([key, value]) => ({ key, value })),
      },
    },
    mlProgram: programOf(walk, size, outputs),
  });
  return new Map<string, Uint8Array | string>([
    ["Manifest.json", manifest(identifiers)],
    [`Data/${MODEL_PATH}`, toBinary(Model, message)],
    [`Data/${WEIGHTS_FOLDER}/${WEIGHTS_FILE}`, walk.program.blobs.encode()],
  ]);
}

/** What a user of the model sees of it. */
function interfaceOf([height, width]: OnnxSize, outputs: readonly MilValue[]) {
  const imageType = { width: BigInt(width), height: BigInt(height), colorSpace: COLOR_RGB };
  return {
    input: [{ name: INPUT, shortDescription: "letterboxed image", type: { imageType } }],
    output: outputs.map(({ name, shape }) => ({
      name,
      shortDescription: DESCRIPTIONS[name] ?? "",
      type: { multiArrayType: { shape: shape.map(BigInt), dataType: ARRAY_FLOAT32 } },
    })),
  };
}

function programOf({ program }: CoremlWalk, size: OnnxSize, outputs: readonly MilValue[]) {
  const block = { outputs: outputs.map(({ name }) => name), operations: program.operations };
  const main = {
    inputs: [{ name: INPUT, type: milType("float32", [1, 3, ...size]) }],
    opset: OPSET,
    blockSpecializations: [{ key: OPSET, value: block }],
  };
  return { version: 1n, functions: [{ key: "main", value: main }] };
}

function manifest([model, weights]: CoremlOptions["identifiers"]): string {
  const entry = (path: string, description: string) => ({
    author: "com.apple.CoreML",
    description,
    name: path.split("/").at(-1),
    path,
  });
  return JSON.stringify(
    {
      fileFormatVersion: "1.0.0",
      itemInfoEntries: {
        [model]: entry(MODEL_PATH, "CoreML Model Specification"),
        [weights]: entry(WEIGHTS_FOLDER, "CoreML Model Weights"),
      },
      rootModelIdentifier: model,
    },
    null,
    2,
  );
}
