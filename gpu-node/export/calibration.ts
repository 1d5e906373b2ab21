// The ranges of a detector's maps on images like those that it is for, found by running its graph
// with every map as an output. The same images give the same ranges on every machine, whatever its
// threads: see `outward`.

import type { DeployedModel } from "../../shared/detector/deployed-weights.ts";
import { INPUT, type OnnxSize } from "../../shared/detector/detector-onnx.ts";
import { decodeModel, encodeModel, tensorInfo } from "../onnx/model-file.ts";
import { float, floats, openSession, run } from "../onnx/runtime.ts";
import { writeOnnx } from "./detector-onnx.ts";
import { Histogram } from "./histogram.ts";
import {
  type MapRange,
  type MapRanges,
  type MeasuredMap,
  measuredMaps,
  outward,
} from "./ranges.ts";

/**
 * The share of a map's numbers that is left out on either side. Ten times as many cost .008 of
 * AP50 where it was measured.
 */
const CUT = 1e-5;
/** Numbers of all maps that one run gives; a larger model's images are run several times. */
const NUMBERS_MAX = 2 ** 27;

export interface CalibrationOptions {
  size: OnnxSize;
  cpuThreads: number;
  signal?: AbortSignal;
  /** Hears of each image, and of each time that it was run. */
  onImage?: () => void;
}

/** How often each image of a calibration is run. */
export const passesOf = ({ graph }: DeployedModel, size: OnnxSize): number =>
  groupsOf(measuredMaps(graph), size).length;

/** The ranges of a model's maps over images, each of planes [3, height, width] in 0 to 1. */
export async function measureRanges(
  model: DeployedModel,
  images: () => AsyncIterable<Float32Array> | Iterable<Float32Array>,
  { size, cpuThreads, signal, onImage }: CalibrationOptions,
): Promise<MapRanges> {
  const ranges = new Map<string, MapRange>();
  for (const group of groupsOf(measuredMaps(model.graph), size)) {
    const names = group.map(({ name }) => name);
    const file = withOutputs(model, size, names);
    // Without fusing: the input of a fused activation would not be there to look at.
    const session = await openSession(file, { cpuThreads, device: "cpu", fusing: "basic" });
    try {
      const histograms = new Map(names.map((name) => [name, new Histogram()]));
      for await (const pixels of images()) {
        signal?.throwIfAborted();
        const outputs = await run(session, { [INPUT]: float(pixels, [1, 3, ...size]) });
        for (const [name, histogram] of histograms) histogram.add(floats(outputs, name));
        onImage?.();
      }
      for (const [name, histogram] of histograms) {
        const [low, high] = histogram.range(CUT);
        ranges.set(name, [outward(low), outward(high)]);
      }
    } finally {
      await session.release();
    }
  }
  return ranges;
}

/** The maps in groups that one run gives together. */
function groupsOf(maps: readonly MeasuredMap[], [height, width]: OnnxSize): MeasuredMap[][] {
  const groups: MeasuredMap[][] = [];
  let left = 0;
  for (const map of maps) {
    const numbers = map.share * height * width;
    if (numbers > left) {
      groups.push([]);
      left = NUMBERS_MAX;
    }
    groups.at(-1)?.push(map);
    left -= numbers;
  }
  return groups;
}

/** The model's graph with these maps as its outputs. */
function withOutputs(model: DeployedModel, size: OnnxSize, names: readonly string[]): Uint8Array {
  const file = decodeModel(writeOnnx(model, { output: "raw", size, batch: 1, metadata: {} }));
  if (!file.graph) throw new Error("the file has no graph");
  file.graph.output = names.map((name) => {
    const info = tensorInfo(name, []);
    // As large as it turns out to be.
    if (info.type?.tensorType) delete info.type.tensorType.shape;
    return info;
  });
  return encodeModel(file);
}
