// The masks of a written segmentation file beside those of the model: the prototypes that they are
// drawn of, the weights of those that its objects have, and the masks that come of both. Pure.

import { PROTOTYPES } from "../../shared/detector/detector.ts";
import { EXPORT_TOLERANCES, type ExportPrecision } from "../../shared/detector/export-formats.ts";
import type { MaskedRows } from "../../shared/detector/letterbox.ts";
import type { ExportMasks } from "../../shared/wire/exports.ts";
import type { Row, RowPair } from "./verification.ts";

/** Pixels of the input that a cell of a prototype is wide and high. */
const STRIDE = 4;
/** The surest objects of an image whose masks are drawn. */
const MASKS_OF_IMAGE = 32;

/** How far numbers lie from others, as a share of how large those are on the whole. */
class RelativeError {
  #difference = 0;
  #size = 0;

  /** Lists of other lengths are infinitely far apart. */
  add(one: Float32Array, wanted: Float32Array): void {
    if (one.length !== wanted.length) {
      this.#difference = Number.POSITIVE_INFINITY;
      return;
    }
    for (const [at, value] of wanted.entries()) {
      this.#difference += ((one[at] as number) - value) ** 2;
      this.#size += value ** 2;
    }
  }

  /** 0 where all are equal, also where all are 0. */
  get share(): number {
    return this.#difference === 0 ? 0 : Math.sqrt(this.#difference / this.#size);
  }
}

/** Compares masks image by image. */
export class MaskComparison {
  readonly #prototypes = new RelativeError();
  readonly #coefficients = new RelativeError();
  readonly #overlaps: number[] = [];

  /**
   * Adds an image of height and width `size`, with the objects that the file and the model both
   * found on it. A file without prototypes of their size differs infinitely.
   */
  add(
    { file, predictor }: { file: MaskedRows; predictor: MaskedRows },
    pairs: readonly RowPair[],
    size: readonly [number, number],
  ): void {
    const wanted = predictor.prototypes;
    if (!wanted) throw new Error("the predictor was opened without its prototypes");
    const found = file.prototypes ?? new Float32Array();
    this.#prototypes.add(found, wanted);
    for (const { row, partner } of pairs) this.#coefficients.add(row.rest, partner.rest);
    if (found.length !== wanted.length) return;
    const surest = pairs
      .toSorted((one, other) => other.partner.score - one.partner.score)
      .slice(0, MASKS_OF_IMAGE);
    for (const { row, partner } of surest) {
      const cells = cellsOf(partner.box, size);
      const overlap = overlapOf(
        maskOf(row, { prototypes: found, cells, size }),
        maskOf(partner, { prototypes: wanted, cells, size }),
      );
      if (overlap !== null) this.#overlaps.push(overlap);
    }
  }

  /** What it comes to, beside what is allowed in this precision. */
  end(precision: ExportPrecision): ExportMasks {
    const { masks } = EXPORT_TOLERANCES[precision];
    const sum = this.#overlaps.reduce((all, overlap) => all + overlap, 0);
    return {
      objects: this.#overlaps.length,
      prototype_error: this.#prototypes.share,
      prototype_tolerance: masks.prototypes,
      coefficient_error: this.#coefficients.share,
      coefficient_tolerance: masks.coefficients,
      iou: this.#overlaps.length > 0 ? sum / this.#overlaps.length : null,
      iou_min: masks.iouMin,
    };
  }
}

/**
 * The cells of a prototype whose middle lies in a box of the model. Both masks are cut to the one
 * box: how far boxes lie apart has a bound of its own.
 */
function cellsOf(box: Float32Array, [height, width]: readonly [number, number]): number[] {
  const [x1 = 0, y1 = 0, x2 = 0, y2 = 0] = box;
  const first = (low: number) => Math.max(0, Math.ceil(low / STRIDE - 0.5));
  const end = (high: number, side: number) => Math.min(side / STRIDE, high / STRIDE - 0.5);
  const cells: number[] = [];
  for (let row = first(y1); row < end(y2, height); row++) {
    for (let column = first(x1); column < end(x2, width); column++) {
      cells.push((row * width) / STRIDE + column);
    }
  }
  return cells;
}

/** Which cells are on: those whose weighted prototypes come to more than nothing. */
function maskOf(
  { rest }: Pick<Row, "rest">,
  drawn: { prototypes: Float32Array; cells: readonly number[]; size: readonly [number, number] },
): boolean[] {
  const { prototypes, cells, size } = drawn;
  const plane = (size[0] / STRIDE) * (size[1] / STRIDE);
  return cells.map((cell) => {
    let sum = 0;
    for (let index = 0; index < PROTOTYPES; index++) {
      sum += (rest[index] as number) * (prototypes[index * plane + cell] as number);
    }
    return sum > 0;
  });
}

/** Intersection over union; null where neither has a cell. */
function overlapOf(one: readonly boolean[], other: readonly boolean[]): number | null {
  const either = one.filter((isOn, at) => isOn || other[at]).length;
  return either === 0 ? null : one.filter((isOn, at) => isOn && other[at]).length / either;
}
