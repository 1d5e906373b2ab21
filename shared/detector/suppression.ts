// Non-maximum suppression, where a model is served with it: of boxes of one class that overlap by
// more than its IoU the surest stays, as torchvision's `batched_nms` and ONNX's `NonMaxSuppression`
// do it. Whether, above which IoU, and by which of its heads, a run chooses on its validation
// split; the choice lies in the metadata of the weights, so that whoever opens them serves it.
// Models without it are served as they are, by the head that needs none.

import { HEADS, type Head } from "./detector.ts";
import type { DetectionRows } from "./letterbox.ts";

/** How a model is served: by a head, whose boxes of a class stay up to an overlap. */
export interface Suppression {
  head: Head;
  /** 0 to 1. */
  nmsIou: number;
}

/** Keys of the metadata of weights, and of exported files. */
const [HEAD_KEY, IOU_KEY] = ["head", "nms_iou"];

/** The metadata are not those of a model that can be served here; the message says why. */
export class SuppressionError extends Error {
  override readonly name = "SuppressionError";
}

const isHead = (word: string): word is Head => (HEADS as readonly string[]).includes(word);

/**
 * How a model's boxes are suppressed, by its metadata; null is no suppression. Fails with
 * SuppressionError for an IoU that is none, and for a head that no graph has.
 */
export function suppressionOf(metadata: Readonly<Record<string, string>>): Suppression | null {
  const { [HEAD_KEY]: head = "one_to_one", [IOU_KEY]: text } = metadata;
  // Without a limit another program's word for a head is of no account.
  if (text === undefined) return null;
  if (!isHead(head)) {
    throw new SuppressionError(`the weights are to be served by the unknown head ${head}`);
  }
  const nmsIou = text.trim() === "" ? Number.NaN : Number(text);
  if (nmsIou > 0 && nmsIou < 1) return { head, nmsIou };
  throw new SuppressionError(`nms_iou is ${text}, and no number between 0 and 1`);
}

/** Metadata with this choice, in place of the one that they had. */
export function withSuppression(
  metadata: Readonly<Record<string, string>>,
  suppression: Suppression | null,
): Record<string, string> {
  const { [HEAD_KEY]: _head, [IOU_KEY]: _iou, ...others } = metadata;
  if (!suppression) return others;
  return { ...others, [HEAD_KEY]: suppression.head, [IOU_KEY]: String(suppression.nmsIou) };
}

const { fround } = Math;

/**
 * Whether two boxes, whose corners begin at these offsets, overlap by more than an IoU. In single
 * precision, step by step as onnxruntime computes it, so that both find the same; corners count in
 * whichever order they are.
 */
function isOver(values: Float32Array, [one, other]: [number, number], nmsIou: number): boolean {
  const sides = (at: number, axis: number): [low: number, high: number] => {
    const [from, to] = [values[at + axis] as number, values[at + axis + 2] as number];
    return from < to ? [from, to] : [to, from];
  };
  const shared = (axis: number) => {
    const [[low, high], [otherLow, otherHigh]] = [sides(one, axis), sides(other, axis)];
    return fround(Math.min(high, otherHigh) - Math.max(low, otherLow));
  };
  const [across, down] = [shared(0), shared(1)];
  if (!(across > 0 && down > 0)) return false;
  const areaOf = (at: number) => {
    const [[left, right], [top, bottom]] = [sides(at, 0), sides(at, 1)];
    return fround(fround(right - left) * fround(bottom - top));
  };
  const common = fround(across * down);
  const both = fround(fround(areaOf(one) + areaOf(other)) - common);
  return fround(common / both) > fround(nmsIou);
}

/**
 * Rows after suppression: what stays, by falling score, and behind it what is suppressed, with a
 * score of 0. There are as many rows as before; of equal scores the first comes first. A model's
 * rows are by falling logits, of which a runtime's sigmoid may turn two that are next to each
 * other.
 */
export function suppress({ values, width }: DetectionRows, nmsIou: number): DetectionRows {
  const kept: number[] = [];
  const left: number[] = [];
  const scoreOf = (row: number) => values[row + 4] as number;
  const rows = Array.from({ length: values.length / width }, (_, index) => index * width);
  for (const row of rows.sort((one, other) => scoreOf(other) - scoreOf(one))) {
    const isCovered = kept.some(
      (surer) => values[surer + 5] === values[row + 5] && isOver(values, [surer, row], nmsIou),
    );
    (isCovered ? left : kept).push(row);
  }
  const ordered = new Float32Array(values.length);
  for (const [at, row] of [...kept, ...left].entries()) {
    ordered.set(values.subarray(row, row + width), at * width);
    if (at >= kept.length) ordered[at * width + 4] = 0;
  }
  return { values: ordered, width };
}
