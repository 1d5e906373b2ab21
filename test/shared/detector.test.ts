// The family's graphs against its published figures: every layer, every total, every shape.

import { describe, expect, it } from "vitest";
import { deployed } from "../../shared/detector/deployed-detector.ts";
import {
  type DetectorGraph,
  detectorGraph,
  flops,
  LEVEL_STRIDES,
  parameterCount,
  stateTensors,
  VARIANT_NAMES,
  type Variant,
} from "../../shared/detector/detector.ts";

/** Learned values of the layers 0 to 22 that have any, then one branch of the head. */
const LAYERS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 16, 17, 19, 20, 22] as const;
const PER_LAYER: Record<Variant, readonly number[]> = {
  det26n: [
    464, 4_672, 6_640, 36_992, 26_080, 147_712, 87_040, 295_424, 346_112, 164_608, 249_728, 119_808,
    34_304, 36_992, 95_232, 147_712, 463_104,
  ],
  det26s: [
    928, 18_560, 26_080, 147_712, 103_360, 590_336, 346_112, 1_180_672, 1_380_352, 656_896, 990_976,
    477_184, 136_192, 147_712, 378_880, 590_336, 1_843_712,
  ],
  det26m: [
    1_856, 73_984, 111_872, 590_336, 444_928, 2_360_320, 1_380_352, 2_360_320, 1_380_352, 656_896,
    990_976, 1_642_496, 542_720, 590_336, 1_511_424, 2_360_320, 1_974_784,
  ],
  det26l: [
    1_856, 73_984, 173_824, 590_336, 691_712, 2_360_320, 2_234_368, 2_360_320, 2_234_368, 656_896,
    1_455_616, 2_496_512, 756_736, 590_336, 2_365_440, 2_360_320, 1_974_784,
  ],
  det26x: [
    2_784, 166_272, 389_760, 1_327_872, 1_553_664, 5_309_952, 5_022_720, 5_309_952, 5_022_720,
    1_476_864, 3_264_768, 5_612_544, 1_700_352, 1_327_872, 5_317_632, 5_309_952, 4_436_736,
  ],
};

interface Figures {
  train: number;
  deployed: number;
  gflopsDeployed: number;
  gflopsTrained: number;
  tensors: readonly [state: number, learned: number];
  head: number;
  backbone: number;
  neck: number;
  segmentation: readonly [train: number, deployedMillions: number];
}

const FIGURES: Record<Variant, Figures> = {
  det26n: {
    train: 2_572_280,
    deployed: 2_408_932,
    gflopsDeployed: 5.36,
    gflopsTrained: 6.0,
    tensors: [708, 366],
    head: 154_828,
    backbone: 1_365_472,
    neck: 897_152,
    segmentation: [3_126_280, 2.723],
  },
  det26s: {
    train: 10_009_784,
    deployed: 9_496_140,
    gflopsDeployed: 20.69,
    gflopsTrained: 22.5,
    tensors: [708, 366],
    head: 496_892,
    backbone: 5_441_984,
    neck: 3_574_016,
    segmentation: [11_505_800, 10.396],
  },
  det26m: {
    train: 21_896_248,
    deployed: 20_411_132,
    gflopsDeployed: 68.18,
    gflopsTrained: 74.8,
    tensors: [768, 396],
    head: 1_460_988,
    backbone: 10_352_192,
    neck: 8_622_080,
    segmentation: [27_112_072, 23.569],
  },
  det26l: {
    train: 26_299_704,
    deployed: 24_807_420,
    gflopsDeployed: 86.43,
    gflopsTrained: 93.0,
    tensors: [1092, 558],
    head: 1_460_988,
    backbone: 12_833_600,
    neck: 10_544_128,
    segmentation: [31_515_528, 27.965],
  },
  det26x: {
    train: 58_993_368,
    deployed: 55_725_948,
    gflopsDeployed: 193.87,
    gflopsTrained: 208.4,
    tensors: [1092, 558],
    head: 3_220_476,
    backbone: 28_847_328,
    neck: 23_705_088,
    segmentation: [70_693_800, 62.819],
  },
};

const product = (shape: readonly number[]) => shape.reduce((one, other) => one * other, 1);

function learnedByLayer(graph: DetectorGraph): Map<number, number> {
  const sums = new Map<number, number>();
  for (const { layer, shape, learned } of stateTensors(graph)) {
    if (learned) sums.set(layer, (sums.get(layer) ?? 0) + product(shape));
  }
  return sums;
}

const sum = (values: Iterable<number>) => [...values].reduce((one, other) => one + other, 0);

describe.each(VARIANT_NAMES)("%s", (variant) => {
  const figures = FIGURES[variant];
  const graph = detectorGraph(variant, 80);

  it("has the published parameters in every layer", () => {
    const layers = learnedByLayer(graph);
    expect([...layers.keys()].sort((a, b) => a - b)).toEqual([...LAYERS, 23]);
    expect(LAYERS.map((layer) => layers.get(layer))).toEqual(PER_LAYER[variant]);
    expect(layers.get(23)).toBe(2 * figures.head);
    const of = (from: number, to: number) =>
      sum([...layers].filter(([layer]) => layer >= from && layer <= to).map(([, count]) => count));
    expect([of(0, 10), of(11, 22)]).toEqual([figures.backbone, figures.neck]);
  });

  it("has the published totals, tensors and operations", () => {
    expect(parameterCount(graph)).toBe(figures.train);
    expect(parameterCount(deployed(graph))).toBe(figures.deployed);
    const tensors = stateTensors(graph);
    expect([tensors.length, tensors.filter(({ learned }) => learned).length]).toEqual(
      figures.tensors,
    );
    expect(flops(deployed(graph), 640) / 1e9).toBeCloseTo(figures.gflopsDeployed, 2);
    expect(Math.abs(flops(graph, 640) / 1e9 - figures.gflopsTrained)).toBeLessThan(0.06);
    expect(new Set(tensors.map(({ name }) => name)).size).toBe(tensors.length);
  });

  it("has the published totals as a segmentation model", () => {
    const segmenting = detectorGraph(variant, 80, "segmentation");
    const [train, millions] = figures.segmentation;
    expect(parameterCount(segmenting)).toBe(train);
    expect(parameterCount(deployed(segmenting)) / 1e6).toBeCloseTo(millions, 3);
    const prototypes = segmenting.nodes[segmenting.prototypes ?? -1];
    expect([prototypes?.channels, prototypes?.stride]).toEqual([32, 4]);
  });

  it.each([320, 640, 1280])("gives three levels of the right cells at %i px", (size) => {
    for (const shape of [graph, deployed(graph)]) {
      const outputs = [...shape.o2o.box, ...shape.o2o.cls].map((at) => shape.nodes[at]);
      expect(outputs.map((node) => node?.stride)).toEqual([...LEVEL_STRIDES, ...LEVEL_STRIDES]);
      expect(outputs.map((node) => node?.channels)).toEqual([4, 4, 4, 80, 80, 80]);
      const anchors = sum(shape.o2o.box.map((at) => (size / (shape.nodes[at]?.stride ?? 0)) ** 2));
      expect(anchors).toBe({ 320: 2_100, 640: 8_400, 1280: 33_600 }[size]);
    }
  });
});

it("counts one class as an independent report does", () => {
  expect(parameterCount(detectorGraph("det26n", 1))).toBe(2_504_190);
});

it("names in every node only nodes before it", () => {
  for (const task of ["detection", "segmentation"] as const) {
    const graph = detectorGraph("det26l", 3, task);
    for (const shape of [graph, deployed(graph)]) {
      for (const [at, node] of shape.nodes.entries()) {
        const inputs = "inputs" in node ? node.inputs : "input" in node ? [node.input] : [];
        expect(inputs.every((input) => input >= 0 && input < at)).toBe(true);
        if (node.op === "concat") {
          expect(sum(inputs.map((input) => shape.nodes[input]?.channels ?? 0))).toBe(node.channels);
        }
        if (node.op === "add") {
          const both = inputs.map((input) => shape.nodes[input]);
          expect(both.map((one) => one?.channels)).toEqual([node.channels, node.channels]);
          expect(both.map((one) => one?.stride)).toEqual([node.stride, node.stride]);
        }
      }
    }
  }
});

it("deploys the one-to-one branch alone, without batch norm", () => {
  const graph = deployed(detectorGraph("det26s", 4));
  const convs = graph.nodes.filter((node) => node.op === "conv");
  expect(graph.o2m).toBeUndefined();
  expect(convs.some((node) => node.name.includes(".o2m.") || node.normalized)).toBe(false);
  expect(graph.nodes.some((node) => node.op === "detach")).toBe(false);
});
