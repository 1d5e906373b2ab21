// What a TensorFlow Lite file gives, from the maps that the branches end in: boxes and scores of
// every anchor before the two top-k steps, or both in one output as the field's readers of this
// format take them.

import { type DetectorGraph, PROTOTYPES } from "../../shared/detector/detector.ts";
import { anchorsOf, type OnnxSize } from "../../shared/detector/detector-onnx.ts";
import { anchorCells } from "./anchor-cells.ts";
import type { MapWriter, TfliteMap } from "./tflite-maps.ts";
import * as operators from "./tflite-schema.ts";
import { reshaped, transposed } from "./tflite-shapes.ts";

/** Batch is one: a file of this format is not for another. */
const BATCH = 1;

export interface TfliteHeads {
  maps: MapWriter;
  graph: DetectorGraph;
  size: OnnxSize;
  /** The maps of the graph's nodes. */
  values: readonly TfliteMap[];
}

/**
 * Adds `boxes` [1, anchors, 4] (corners in pixels), `scores` [1, anchors, classes] and, of a
 * segmentation model, `masks` [1, anchors, 32] and `prototypes` [1, height / 4, width / 4, 32].
 */
export function addRawOutputs(heads: TfliteHeads): number[] {
  const { boxes, scores, masks } = addAnchors(heads, "");
  return [boxes, scores, ...masks, ...addPrototypes(heads, "prototypes")];
}

/**
 * Adds `output0` [1, 4 + classes, anchors] (of a segmentation model 32 more), in which boxes are
 * centre and size as parts of the image, and of a segmentation model `output1`, its prototypes.
 */
export function addJoinedOutputs(heads: TfliteHeads): number[] {
  const { maps, graph, size } = heads;
  const { file } = maps;
  const { boxes, scores, masks } = addAnchors(heads, "anchors/");
  const anchors = anchorsOf(size);
  const turned = (tensor: number, channels: number) =>
    transposed(file, tensor, {
      name: `turned.${tensor}`,
      shape: [BATCH, channels, anchors],
      order: [0, 2, 1],
    });
  const corners = turned(boxes, 4);
  const [height, width] = size;
  const [x, y] = [1 / width, 1 / height];
  const centres = [x / 2, 0, x / 2, 0, 0, y / 2, 0, y / 2, -x, 0, x, 0, 0, -y, 0, y];
  const matrix = file.constant("centres.of.corners", [1, 4, 4], Float32Array.from(centres));
  const parts = [
    file.apply(
      operators.matmul({ transposeSecond: false }),
      [matrix, corners],
      file.tensor("anchors/centres", [BATCH, 4, anchors], "float32"),
    ),
    turned(scores, graph.classes),
    ...masks.map((mask) => turned(mask, PROTOTYPES)),
  ];
  const channels = 4 + graph.classes + PROTOTYPES * masks.length;
  const output = file.tensor("output0", [BATCH, channels, anchors], "float32");
  file.apply(operators.concatenate(false, 1), parts, output);
  return [output, ...addPrototypes(heads, "output1")];
}

function addAnchors(heads: TfliteHeads, prefix: string) {
  const { o2o, classes } = heads.graph;
  const { file } = heads.maps;
  const logits = perAnchor(heads, o2o.cls, { name: `${prefix}logits`, channels: classes });
  const scores = file.tensor(`${prefix}scores`, file.shapeOf(logits), "float32");
  return {
    boxes: addBoxes(heads, `${prefix}boxes`),
    scores: file.apply(operators.logistic(false), [logits], scores),
    masks: o2o.mask
      ? [perAnchor(heads, o2o.mask, { name: `${prefix}masks`, channels: PROTOTYPES })]
      : [],
  };
}

function addBoxes(heads: TfliteHeads, name: string): number {
  const { file } = heads.maps;
  const { reach, centres } = anchorCells(heads.size);
  const channels = { name: `${name}/distances`, channels: 4 };
  const distances = perAnchor(heads, heads.graph.o2o.box, channels);
  const shape = file.shapeOf(distances);
  const scaled = file.apply(
    operators.multiply(false),
    [distances, file.constant("reach", shape, reach)],
    file.tensor(`${name}/reach`, shape, "float32"),
  );
  return file.apply(
    operators.add(false),
    [scaled, file.constant("centres", shape, centres)],
    file.tensor(name, shape, "float32"),
  );
}

/** Maps of all levels, finest first, as [1, anchors, channels]. */
function perAnchor(
  { maps, values, size }: TfliteHeads,
  nodes: readonly number[],
  { name, channels }: { name: string; channels: number },
): number {
  const { file } = maps;
  const levels = nodes.map((node, level) => {
    const map = values[node] as TfliteMap;
    const [, rows, columns] = map.shape;
    const shape = [BATCH, rows * columns, channels];
    return reshaped(file, maps.floatsOf(map), { name: `${name}.${level}`, shape });
  });
  const all = file.tensor(name, [BATCH, anchorsOf(size), channels], "float32");
  return file.apply(operators.concatenate(false, 1), levels, all);
}

/** The last map again, in a tensor of the output's name. */
function addPrototypes({ maps, graph, values }: TfliteHeads, name: string): number[] {
  if (graph.prototypes === undefined) return [];
  const map = values[graph.prototypes] as TfliteMap;
  return [reshaped(maps.file, maps.floatsOf(map), { name, shape: map.shape })];
}
