// Maps of a detector in a TensorFlow Lite file and what is done with them. A map [batch, rows,
// columns, channels] is there as floats, as int8, or as both where readers of both kinds follow: it
// is brought from one to the other once, when it is first asked for.
//
// In an int8 file convolutions, activations, sums and joins are int8. What integers do badly stays
// float: attention's products and the last convolution of each branch.

import type { ConvWeights } from "../../shared/detector/deployed-weights.ts";
import type { ConvNode } from "../../shared/detector/detector.ts";
import type { ExportPrecision } from "../../shared/detector/export-formats.ts";
import { type Affine, affineOf, quantizeBias, quantizeWeights } from "./affine.ts";
import { halvesOf } from "./half.ts";
import { isHead, linearNameOf, type MapRange, type MapRanges, SILU_FLOOR } from "./ranges.ts";
import type { TfliteFile } from "./tflite-file.ts";
import * as operators from "./tflite-schema.ts";

export type MapShape = readonly [batch: number, rows: number, columns: number, channels: number];

/** A map, known by its tensors' indices. */
export interface TfliteMap {
  readonly name: string;
  readonly shape: MapShape;
  float?: number;
  int8?: number;
  /** How its int8 stand for numbers; of an int8 file only. */
  affine?: Affine;
}

/** What a sigmoid gives lies in 0 to 1, in steps that the format prescribes. */
const UNIT_STEPS: Affine = { scale: 1 / 256, zero: -128 };
/** Steps of pixels as floats in 0 to 1. */
const PIXEL_STEPS: Affine = { scale: Math.fround(1 / 255), zero: -128 };

const quantizationOf = ({ scale, zero }: Affine) => ({ scales: [scale], zeros: [zero], axis: 0 });

/** Writes maps into a file, in its precision. */
export class MapWriter {
  readonly file: TfliteFile;
  readonly #precision: ExportPrecision;
  readonly #ranges: MapRanges;

  constructor(file: TfliteFile, precision: ExportPrecision, ranges: MapRanges) {
    this.file = file;
    this.#precision = precision;
    this.#ranges = ranges;
  }

  get #isInt8(): boolean {
    return this.#precision === "int8";
  }

  /** The image: floats in 0 to 1. */
  input(name: string, shape: MapShape): TfliteMap {
    const float = this.file.tensor(name, shape, "float32");
    return this.#isInt8 ? { name, shape, float, affine: PIXEL_STEPS } : { name, shape, float };
  }

  /** A map of floats that was computed; int8 readers of it take the range of its name. */
  computed(name: string, shape: MapShape, float: number): TfliteMap {
    return this.#isInt8
      ? { name, shape, float, affine: this.#affineOf(name) }
      : { name, shape, float };
  }

  /** The tensor of a map's floats. */
  floatsOf(map: TfliteMap): number {
    map.float ??= this.file.apply(
      operators.dequantize("int8"),
      [map.int8 as number],
      this.file.tensor(`${map.name}/float`, map.shape, "float32"),
    );
    return map.float;
  }

  /** The tensor of a map's int8. */
  #int8Of(map: TfliteMap): number {
    if (map.int8 === undefined) {
      const { name, shape, affine = UNIT_STEPS, float } = map;
      const tensor = this.file.tensor(`${name}/int8`, shape, "int8", quantizationOf(affine));
      const quantize = operators.quantize({ fromInt8: false });
      map.int8 = this.file.apply(quantize, [float as number], tensor);
    }
    return map.int8;
  }

  add(name: string, shape: MapShape, inputs: readonly TfliteMap[]): TfliteMap {
    if (!this.#isInt8) return this.#floatMap(name, shape, operators.add(false), inputs);
    const tensors = inputs.map((input) => this.#int8Of(input));
    const out = this.#int8Map(name, shape, this.#affineOf(name));
    this.file.apply(operators.add(true), tensors, out.int8);
    return out;
  }

  /** Channels after one another. int8 are brought to the steps of the whole. */
  concat(name: string, shape: MapShape, inputs: readonly TfliteMap[]): TfliteMap {
    if (!this.#isInt8) return this.#floatMap(name, shape, operators.concatenate(false, 3), inputs);
    const affine = this.#affineOf(name);
    const tensors = inputs.map((input) => {
      const tensor = this.#int8Of(input);
      const { scale, zero } = input.affine as Affine;
      if (scale === affine.scale && zero === affine.zero) return tensor;
      const same = this.#int8Map(`${input.name}/for/${name}`, input.shape, affine);
      return this.file.apply(operators.quantize({ fromInt8: true }), [tensor], same.int8);
    });
    const out = this.#int8Map(name, shape, affine);
    this.file.apply(operators.concatenate(true, 3), tensors, out.int8);
    return out;
  }

  /** Channels from `from` on. */
  slice(name: string, shape: MapShape, input: TfliteMap, from: number): TfliteMap {
    const bounds = [this.file.numbers([0, 0, 0, from]), this.file.numbers(shape)];
    const [operator, out] = this.#like(input, name, shape, operators.slice);
    this.file.apply(operator, [this.#valuesOf(input), ...bounds], this.#valuesOf(out));
    return out;
  }

  maxPool(name: string, input: TfliteMap, kernel: number): TfliteMap {
    const pool = (isInt8: boolean) => operators.maxPool(isInt8, kernel);
    const [operator, out] = this.#like(input, name, input.shape, pool);
    this.file.apply(operator, [this.#valuesOf(input)], this.#valuesOf(out));
    return out;
  }

  /**
   * Each cell `factor` times in both directions, by joins and other shapes for the same values:
   * XNNPACK has no resizing to the nearest, and would be left and entered again.
   */
  upsample(name: string, input: TfliteMap, factor: number): TfliteMap {
    const [batch, rows, columns, channels] = input.shape;
    const wide = this.#repeat(`${name}/wide`, input, factor);
    const row = [batch, rows, 1, columns * factor * channels] as const;
    const tall = this.#repeat(`${name}/tall`, this.#reshape(`${name}/row`, row, wide), factor);
    return this.#reshape(name, [batch, rows * factor, columns * factor, channels], tall);
  }

  /** The channels `times` times after one another. */
  #repeat(name: string, input: TfliteMap, times: number): TfliteMap {
    const [batch, rows, columns, channels] = input.shape;
    const shape = [batch, rows, columns, channels * times] as const;
    const join = (isInt8: boolean) => operators.concatenate(isInt8, 3);
    const [operator, out] = this.#like(input, name, shape, join);
    const tensor = this.#valuesOf(input);
    this.file.apply(operator, Array(times).fill(tensor), this.#valuesOf(out));
    return out;
  }

  #reshape(name: string, shape: MapShape, input: TfliteMap): TfliteMap {
    const [operator, out] = this.#like(input, name, shape, () => operators.reshape(shape));
    const inputs = [this.#valuesOf(input), this.file.numbers(shape)];
    this.file.apply(operator, inputs, this.#valuesOf(out));
    return out;
  }

  /** A convolution with its activation. */
  conv(
    node: Pick<ConvNode, "name" | "kernel" | "step" | "groups" | "channels" | "silu">,
    input: TfliteMap,
    folded: ConvWeights,
  ): TfliteMap {
    const { name, step, groups, channels, silu } = node;
    const isInt8 = this.#isInt8 && !isHead(node);
    const source = step > 1 ? this.#padded(input, isInt8) : input;
    const [batch, rows, columns, inputs] = input.shape;
    const shape = [batch, rows / step, columns / step, channels] as const;
    const options = { step, padding: step > 1 ? "valid" : "same" } as const;
    const operator =
      groups > 1
        ? operators.convolveDepthwise(isInt8, options)
        : operators.convolve(isInt8, options);
    const taps = { name, kernel: node.kernel, channels, inputs: inputs / groups, groups };
    const linearName = silu ? linearNameOf(name) : name;
    if (isInt8) {
      const affine = silu ? this.#linearAffineOf(linearName) : this.#affineOf(name);
      const linear = this.#int8Map(linearName, shape, affine);
      const tensor = this.#int8Of(source);
      const weights = this.#int8Weights(taps, folded, source.affine as Affine);
      this.file.apply(operator, [tensor, ...weights], linear.int8);
      return silu ? this.#int8Silu(name, linear) : linear;
    }
    const float = this.file.tensor(linearName, shape, "float32");
    const weights = this.#floatWeights(taps, folded);
    this.file.apply(operator, [this.floatsOf(source), ...weights], float);
    return silu ? this.#floatSilu(name, shape, float) : this.#ofFloats(linearName, shape, float);
  }

  /** Twice the size. In floats in every file: one small layer, which few runtimes have in int8. */
  convTranspose(
    { name, channels }: { name: string; channels: number },
    input: TfliteMap,
    folded: ConvWeights,
  ): TfliteMap {
    const [batch, rows, columns, inputs] = input.shape;
    const shape = [batch, rows * 2, columns * 2, channels] as const;
    const values = new Float32Array(folded.weight.length);
    // From [in, out, kernel, kernel] to [out, kernel, kernel, in].
    for (let index = 0; index < values.length; index++) {
      const [tap, out] = [index % 4, Math.floor(index / 4) % channels];
      const from = Math.floor(index / (4 * channels));
      values[(out * 4 + tap) * inputs + from] = folded.weight[index] as number;
    }
    const weight = this.#floatConstant(`${name}.weight`, [channels, 2, 2, inputs], values);
    const bias = this.#floatConstant(`${name}.bias`, [channels], folded.bias);
    const tensors = [this.file.numbers(shape), weight, this.floatsOf(input), bias];
    const float = this.file.tensor(name, shape, "float32");
    this.file.apply(operators.convolveTransposed(2), tensors, float);
    return this.computed(name, shape, float);
  }

  /**
   * A row or column of zeros on each side, for a step of two: the format's own padding would lay
   * both on the same side.
   */
  #padded(input: TfliteMap, isInt8: boolean): TfliteMap {
    const [batch, rows, columns, channels] = input.shape;
    const shape = [batch, rows + 2, columns + 2, channels] as const;
    const sides = this.file.constant("padding", [4, 2], Int32Array.of(0, 0, 1, 1, 1, 1, 0, 0));
    const name = `${input.name}/padded`;
    if (isInt8) {
      const tensor = this.#int8Of(input);
      const out = this.#int8Map(name, shape, input.affine as Affine);
      this.file.apply(operators.pad(true), [tensor, sides], out.int8);
      return out;
    }
    const float = this.file.tensor(name, shape, "float32");
    this.file.apply(operators.pad(false), [this.floatsOf(input), sides], float);
    return { name, shape, float };
  }

  #floatSilu(name: string, shape: MapShape, linear: number): TfliteMap {
    const gate = this.file.tensor(`${name}/gate`, shape, "float32");
    this.file.apply(operators.logistic(false), [linear], gate);
    const float = this.file.tensor(name, shape, "float32");
    this.file.apply(operators.multiply(false), [linear, gate], float);
    return this.#ofFloats(name, shape, float);
  }

  #int8Silu(name: string, linear: Int8Map): TfliteMap {
    const gate = this.#int8Map(`${name}/gate`, linear.shape, UNIT_STEPS);
    this.file.apply(operators.logistic(true), [linear.int8], gate.int8);
    const out = this.#int8Map(name, linear.shape, this.#affineOf(name));
    this.file.apply(operators.multiply(true), [linear.int8, gate.int8], out.int8);
    return out;
  }

  #int8Weights(taps: Taps, { weight, bias }: ConvWeights, input: Affine): [number, number] {
    const { values, scales } = quantizeWeights(weight, taps.channels);
    const zeros = scales.map(() => 0);
    const biasScales = scales.map((scale) => Math.fround(scale * input.scale));
    return [
      this.file.constant(
        `${taps.name}.weight`,
        shapeOf(taps),
        laid(values, new Int8Array(values.length), taps),
        { scales, zeros, axis: taps.groups > 1 ? 3 : 0 },
      ),
      this.file.constant(
        `${taps.name}.bias`,
        [taps.channels],
        quantizeBias(bias, input.scale, scales),
        { scales: biasScales, zeros, axis: 0 },
      ),
    ];
  }

  #floatWeights(taps: Taps, { weight, bias }: ConvWeights): [number, number] {
    const values = laid(weight, new Float32Array(weight.length), taps);
    return [
      this.#floatConstant(`${taps.name}.weight`, shapeOf(taps), values),
      this.#floatConstant(`${taps.name}.bias`, [taps.channels], bias),
    ];
  }

  /**
   * In a half-precision file biases are halves too: where one input of a convolution is a plain
   * constant, LiteRT does not hand it to XNNPACK, and a run takes four times as long.
   */
  #floatConstant(name: string, shape: readonly number[], values: Float32Array): number {
    if (this.#precision !== "fp16") return this.file.constant(name, shape, values);
    const half = this.file.constant(`${name}/half`, shape, halvesOf(values));
    const whole = this.file.tensor(name, shape, "float32");
    return this.file.apply(operators.dequantize("float16"), [half], whole);
  }

  #floatMap(
    name: string,
    shape: MapShape,
    operator: operators.Operator,
    inputs: readonly TfliteMap[],
  ): TfliteMap {
    const tensors = inputs.map((input) => this.floatsOf(input));
    return { name, shape, float: this.file.apply(operator, tensors, this.#floats(name, shape)) };
  }

  #floats = (name: string, shape: MapShape) => this.file.tensor(name, shape, "float32");

  /** Floats among int8 are heads, which nothing quantizes. */
  #ofFloats = (name: string, shape: MapShape, float: number): TfliteMap => ({ name, shape, float });

  #int8Map(name: string, shape: MapShape, affine: Affine): Int8Map {
    const int8 = this.file.tensor(name, shape, "int8", quantizationOf(affine));
    return { name, shape, int8, affine };
  }

  /** The operator and the output of what only moves values: it has the input's steps. */
  #like(
    input: TfliteMap,
    name: string,
    shape: MapShape,
    operator: (isInt8: boolean) => operators.Operator,
  ): [operators.Operator, TfliteMap] {
    const out: TfliteMap = input.affine
      ? this.#int8Map(name, shape, input.affine)
      : { name, shape, float: this.#floats(name, shape) };
    return [operator(input.affine !== undefined), out];
  }

  /** The tensor by which a map is moved: int8 where it may be. */
  #valuesOf = (map: TfliteMap) => (map.affine ? this.#int8Of(map) : this.floatsOf(map));

  /** How the int8 of a map stand for numbers. */
  #affineOf = (name: string) => affineOf(this.#rangeOf(name));

  /** The same before a SiLU, which is nearly nothing below the floor. */
  #linearAffineOf(name: string): Affine {
    const [low, high] = this.#rangeOf(name);
    return affineOf([Math.max(low, SILU_FLOOR), high]);
  }

  #rangeOf(name: string): MapRange {
    const range = this.#ranges.get(name);
    if (!range) throw new Error(`the range of ${name} is not known`);
    return range;
  }
}

interface Int8Map extends TfliteMap {
  int8: number;
  affine: Affine;
}

/** What a convolution's weights are, as the graph has them. */
interface Taps {
  name: string;
  kernel: number;
  channels: number;
  /** Channels that one output channel reads. */
  inputs: number;
  groups: number;
}

/** [out, kernel, kernel, in]; or, each channel by itself, [1, kernel, kernel, out]. */
const shapeOf = ({ kernel, channels, inputs, groups }: Taps): number[] =>
  groups > 1 ? [1, kernel, kernel, channels] : [channels, kernel, kernel, inputs];

/** Weights from [out, in, kernel, kernel] into the order of the format. */
function laid<Values extends Float32Array | Int8Array>(
  from: Values,
  to: Values,
  { kernel, channels, inputs, groups }: Taps,
): Values {
  const cells = kernel * kernel;
  let index = 0;
  for (let out = 0; out < channels; out++) {
    for (let input = 0; input < inputs; input++) {
      for (let tap = 0; tap < cells; tap++, index++) {
        const offset = groups > 1 ? tap * channels + out : (out * cells + tap) * inputs + input;
        to[offset] = from[index] as number;
      }
    }
  }
  return to;
}
