// A detector's ONNX file in half precision: weights and maps are float16, the input and the outputs
// stay float32. From the last maps of the branches on it is single precision again, since steps of
// half precision are half a pixel from 512 pixels on.

import type { DetectorGraph } from "../../shared/detector/detector.ts";
import { INPUT } from "../../shared/detector/detector-onnx.ts";
import { decodeModel, encodeModel, GraphWriter } from "../onnx/model-file.ts";
import type { OnnxMessage } from "../onnx/schema.ts";
import { mapNameOf } from "./ranges.ts";

/** Numbers of TensorProto.DataType. */
const [FLOAT, HALF] = [1, 10];
const HALF_INPUT = `${INPUT}/half`;
/** Resize takes its scales in single precision, whatever it resizes. */
const RESIZE_SCALES = "times.";

type OnnxNode = OnnxMessage<"NodeProto">;

/** The bits of numbers in half precision, rounded to the nearest. */
export const halvesOf = (values: Float32Array): Uint16Array =>
  new Uint16Array(Float16Array.from(values).buffer);

/** The maps that the branches and the prototypes end in, as the file names them. */
const headsOf = ({ nodes, o2o, prototypes }: DetectorGraph): Set<string> => {
  const ends = [...o2o.box, ...o2o.cls, ...(o2o.mask ?? [])];
  if (prototypes !== undefined) ends.push(prototypes);
  return new Set(
    ends.map((index) => {
      const node = nodes[index];
      if (!node) throw new Error(`the graph has no node ${index}`);
      return mapNameOf(node, index);
    }),
  );
};

/** The file of a graph, as `writeOnnx` wrote it, in half precision. */
export function halveOnnx(file: Uint8Array, graph: DetectorGraph): Uint8Array {
  const model = decodeModel(file);
  if (!model.graph) throw new Error("the file has no graph");
  const { node: nodes, initializer: initializers } = model.graph;
  const heads = headsOf(graph);
  const inside = nodesBefore(nodes, heads);
  const halved = new Set([...inside].flatMap(({ input }) => input));
  for (const one of initializers) {
    if (one.dataType !== FLOAT || !halved.has(one.name)) continue;
    if (one.name.startsWith(RESIZE_SCALES)) continue;
    const { buffer } = Uint8Array.from(one.rawData);
    one.rawData = new Uint8Array(halvesOf(new Float32Array(buffer)).buffer);
    one.dataType = HALF;
  }
  const writer = new GraphWriter();
  writer.node("Cast", [INPUT], HALF_INPUT, { to: HALF });
  const widened = new Map<string, string>();
  for (const node of nodes) {
    const isInside = inside.has(node);
    node.input = node.input.map((name) => {
      if (!isInside) return widened.get(name) ?? name;
      return name === INPUT ? HALF_INPUT : name;
    });
    writer.nodes.push(node);
    for (const name of node.output) {
      if (!heads.has(name)) continue;
      widened.set(name, writer.node("Cast", [name], `${name}/wide`, { to: FLOAT }));
    }
  }
  model.graph.node = writer.nodes;
  return encodeModel(model);
}

/** The nodes that lead to these outputs. */
function nodesBefore(nodes: readonly OnnxNode[], outputs: ReadonlySet<string>): Set<OnnxNode> {
  const producers = new Map(
    nodes.flatMap((node) => node.output.map((name) => [name, node] as const)),
  );
  const before = new Set<OnnxNode>();
  const wanted = [...outputs];
  for (let name = wanted.pop(); name !== undefined; name = wanted.pop()) {
    const node = producers.get(name);
    if (!node || before.has(node)) continue;
    before.add(node);
    wanted.push(...node.input);
  }
  return before;
}
