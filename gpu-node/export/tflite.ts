// A detector as a TensorFlow Lite file (LiteRT's, too), written from the graph and the folded
// weights. Input `images`: float32 [1, height, width, 3], RGB in 0 to 1, letterboxed. Size and
// batch are fixed: a file resized to a batch of two answers the first image alone, silently.

import type { ConvWeights, DeployedModel } from "../../shared/detector/deployed-weights.ts";
import { type GraphNode, STRIDE_MAX } from "../../shared/detector/detector.ts";
import { INPUT, type OnnxSize } from "../../shared/detector/detector-onnx.ts";
import type { ExportPrecision } from "../../shared/detector/export-formats.ts";
import { zipBytes } from "../objects/zip-writer.ts";
import { classLines } from "./class-lines.ts";
import { type MapRanges, mapNameOf } from "./ranges.ts";
import { AttentionWriter } from "./tflite-attention.ts";
import { TfliteFile } from "./tflite-file.ts";
import { addJoinedOutputs, addRawOutputs } from "./tflite-heads.ts";
import { type MapShape, MapWriter, type TfliteMap } from "./tflite-maps.ts";

export interface TfliteOptions {
  size: OnnxSize;
  /** `joined` is what Ultralytics reads; `raw` what `addRawOutputs` says. */
  output: "raw" | "joined";
  precision: ExportPrecision;
  /** Ranges of every map, for an int8 file only. */
  ranges?: MapRanges;
  /** In the order of their indices. */
  classes: readonly string[];
  /** What a file says of its model, as `describeModel` gives it. */
  metadata: Readonly<Record<string, string>>;
}

/** Writes a deployed model as a file's bytes; the same model and options give the same bytes. */
export function writeTflite(model: DeployedModel, options: TfliteOptions): Uint8Array {
  const { size, output, precision, ranges = new Map(), metadata } = options;
  for (const side of size) {
    if (side < STRIDE_MAX || side % STRIDE_MAX) throw new Error(`a side of ${side} pixels`);
  }
  const file = new TfliteFile();
  const maps = new MapWriter(file, precision, ranges);
  const { graph } = model;
  const walk = new TfliteWalk(model, maps, size);
  const heads = { maps, graph, size, values: walk.values };
  const outputs = output === "raw" ? addRawOutputs(heads) : addJoinedOutputs(heads);
  const description = metadata.description ?? `${graph.variant}-${graph.task}`;
  const bytes = file.encode([walk.input], outputs, description);
  return Buffer.concat([bytes, zipBytes(appendix(options), bytes.length)]);
}

/** Lays the graph's nodes in turn; `values` are their maps by index. */
class TfliteWalk {
  readonly values: TfliteMap[] = [];
  readonly #model: DeployedModel;
  readonly #maps: MapWriter;
  readonly #attention: AttentionWriter;
  readonly #size: OnnxSize;

  constructor(model: DeployedModel, maps: MapWriter, size: OnnxSize) {
    this.#model = model;
    this.#maps = maps;
    this.#attention = new AttentionWriter(maps);
    this.#size = size;
    for (const [index, node] of model.graph.nodes.entries()) {
      this.values.push(this.#map(node, mapNameOf(node, index)));
    }
  }

  /** The tensor of the image. */
  get input(): number {
    return this.#maps.floatsOf(this.values[0] as TfliteMap);
  }

  #map(node: GraphNode, name: string): TfliteMap {
    const maps = this.#maps;
    const shape = this.#shapeOf(node);
    const of = (index: number) => this.values[index] as TfliteMap;
    switch (node.op) {
      case "input":
        return maps.input(INPUT, shape);
      case "conv":
        return maps.conv(node, of(node.input), this.#weightsOf(name));
      case "conv_transpose":
        return maps.convTranspose(node, of(node.input), this.#weightsOf(name));
      case "add":
        return maps.add(name, shape, node.inputs.map(of));
      case "concat":
        return maps.concat(name, shape, node.inputs.map(of));
      case "slice":
        return maps.slice(name, shape, of(node.input), node.from);
      case "max_pool":
        return maps.maxPool(name, of(node.input), node.kernel);
      case "upsample":
        return maps.upsample(name, of(node.input), node.factor);
      case "attention":
        return this.#attention.attention(name, node, of(node.input));
      case "values":
        return this.#attention.values(name, node, of(node.input));
      case "detach":
        return of(node.input);
    }
  }

  #shapeOf({ stride, channels }: GraphNode): MapShape {
    const [height, width] = this.#size;
    return [1, height / stride, width / stride, channels];
  }

  #weightsOf(name: string): ConvWeights {
    const folded = this.#model.weights.get(name);
    if (!folded) throw new Error(`the model has no weights of ${name}`);
    return folded;
  }
}

/** Values that are more than texts in `metadata.json`; their texts are JSON. */
const LITERALS = new Set(["names", "stride", "channels"]);

/** What readers of the format look for behind the file's end, as the format's own tools put it. */
function appendix({ size, classes, metadata }: TfliteOptions): [string, string][] {
  const said = Object.entries(metadata).map(([key, text]) => [
    key,
    LITERALS.has(key) ? JSON.parse(text) : text,
  ]);
  const own = { imgsz: size, batch: 1, end2end: false };
  const document = { ...Object.fromEntries(said), ...own };
  return [
    ["metadata.json", JSON.stringify(document)],
    ["labels.txt", classLines(classes)],
  ];
}
