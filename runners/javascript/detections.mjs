// What every runner in JavaScript does beside its runtime: an image laid into the input of a file,
// and the objects of what the file gives. It imports nothing, so it can be copied as it is.

/** Rows that a detector gives at most. */
const ROWS_MAX = 300;
/** Grey of what the image leaves free, in 0 to 255. */
const GREY = 114;
/** Numbers of a row: x1, y1, x2, y2 in pixels of the input, score, class. */
const WIDTH = 6;

/**
 * Where an image lies in the input: as large as fits, in the middle.
 * @param {{ width: number, height: number }} image
 * @param {{ width: number, height: number }} input
 */
export function placementOf(image, input) {
  const scale = Math.min(input.width / image.width, input.height / image.height);
  const width = Math.max(1, Math.round(image.width * scale));
  const height = Math.max(1, Math.round(image.height * scale));
  return {
    image,
    input,
    width,
    height,
    // An odd pixel that is left over goes to the right or the bottom.
    left: Math.max(0, Math.round((input.width - width) / 2 - 0.1)),
    top: Math.max(0, Math.round((input.height - height) / 2 - 0.1)),
  };
}

/**
 * Pixels of an image, already of the size that it is laid at, as the input of a file: float32, RGB
 * in 0 to 1; ONNX takes three planes, TensorFlow Lite one pixel after the other.
 * @param {{ data: ArrayLike<number>, channels: number }} pixels
 * @param {ReturnType<typeof placementOf>} placement
 * @param {"planes" | "pixels"} layout
 */
export function inputOf({ data, channels }, { input, width, height, left, top }, layout) {
  const cells = input.width * input.height;
  const [step, plane] = layout === "planes" ? [1, cells] : [3, 1];
  const values = new Float32Array(3 * cells).fill(GREY / 255);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const from = (y * width + x) * channels;
      const to = ((top + y) * input.width + left + x) * step;
      for (let channel = 0; channel < 3; channel++) {
        values[to + channel * plane] = data[from + channel] / 255;
      }
    }
  }
  return values;
}

/** Indices of the greatest numbers, the greatest first; of equals the first comes first. */
const topIndices = (values) =>
  Array.from(values, (_, index) => index)
    .sort((one, other) => values[other] - values[one] || one - other)
    .slice(0, ROWS_MAX);

/**
 * The two top-k steps of a raw file: the best 300 anchors by their best class, then the best 300 of
 * those anchors' scores, so that an anchor may come with several classes. Then suppression, where
 * the file's metadata have an `nms_iou`.
 * @param {Float32Array} boxes [anchors, 4]
 * @param {Float32Array} scores [anchors, classes]
 * @param {number | null} nmsIou
 * @returns {Float32Array} rows of six
 */
export function rowsOfHeads(boxes, scores, nmsIou = null) {
  const anchors = boxes.length / 4;
  const classes = scores.length / anchors;
  const best = new Float32Array(anchors).fill(Number.NEGATIVE_INFINITY);
  for (let at = 0; at < scores.length; at++) {
    const anchor = Math.floor(at / classes);
    best[anchor] = Math.max(best[anchor], scores[at]);
  }
  const candidates = topIndices(best).flatMap((anchor) =>
    Array.from({ length: classes }, (_, index) => anchor * classes + index),
  );
  const surest = topIndices(candidates.map((at) => scores[at])).slice(0, anchors);
  const rows = new Float32Array(surest.length * WIDTH);
  for (const [row, index] of surest.entries()) {
    const at = candidates[index];
    const anchor = Math.floor(at / classes);
    rows.set(boxes.subarray(4 * anchor, 4 * anchor + 4), row * WIDTH);
    rows.set([scores[at], at % classes], row * WIDTH + 4);
  }
  return nmsIou === null ? rows : suppressed(rows, nmsIou);
}

/** The rows, surest first, that no surer one of their class overlaps by more than this IoU. */
function suppressed(rows, nmsIou) {
  const kept = [];
  for (let at = 0; at < rows.length; at += WIDTH) {
    const row = rows.subarray(at, at + WIDTH);
    if (!kept.some((surer) => surer[5] === row[5] && overlap(surer, row) > nmsIou)) kept.push(row);
  }
  return Float32Array.from(kept.flatMap((row) => [...row]));
}

/** The shared part of two boxes of both together; corners count in whichever order they are. */
function overlap(one, other) {
  const low = (box, axis) => Math.min(box[axis], box[axis + 2]);
  const high = (box, axis) => Math.max(box[axis], box[axis + 2]);
  const shared = (axis) =>
    Math.min(high(one, axis), high(other, axis)) - Math.max(low(one, axis), low(other, axis));
  const [across, down] = [shared(0), shared(1)];
  if (!(across > 0 && down > 0)) return 0;
  const area = (box) => (high(box, 0) - low(box, 0)) * (high(box, 1) - low(box, 1));
  return (across * down) / (area(one) + area(other) - across * down);
}

/**
 * The output of a `joined` file of a detection model, [4 + classes, anchors] with centre and size
 * as parts of the image, as boxes and scores of a raw one.
 * @param {Float32Array} values
 * @param {number} classes
 * @param {{ width: number, height: number }} input
 */
export function headsOfJoined(values, classes, { width, height }) {
  const anchors = values.length / (4 + classes);
  const boxes = new Float32Array(4 * anchors);
  const scores = new Float32Array(classes * anchors);
  for (let anchor = 0; anchor < anchors; anchor++) {
    const [x, y, across, down] = [0, 1, 2, 3].map((row) => values[row * anchors + anchor]);
    const corners = [x - across / 2, y - down / 2, x + across / 2, y + down / 2];
    boxes.set(
      corners.map((value, side) => value * (side % 2 === 0 ? width : height)),
      4 * anchor,
    );
    for (let index = 0; index < classes; index++) {
      scores[anchor * classes + index] = values[(4 + index) * anchors + anchor];
    }
  }
  return { boxes, scores };
}

/**
 * The objects of rows, surest first, in pixels of the image.
 * @param {ArrayLike<number>} rows of `width` numbers each; what follows the sixth is not looked at
 * @param {ReturnType<typeof placementOf>} placement
 * @param {{ confidence: number, width?: number }} options
 */
export function objectsOf(rows, placement, { confidence, width = WIDTH }) {
  const { image, left, top } = placement;
  const scales = [placement.width / image.width, placement.height / image.height];
  const objects = [];
  for (let at = 0; at < rows.length; at += width) {
    const [x1, y1, x2, y2, score, index] = Array.from(
      { length: WIDTH },
      (_, one) => rows[at + one],
    );
    // Suppression leaves a score of 0.
    if (!(score > 0 && score >= confidence)) continue;
    const box = [x1, y1, x2, y2].map((value, side) => {
      const isAcross = side % 2 === 0;
      const inImage = (value - (isAcross ? left : top)) / scales[side % 2];
      return Math.min(isAcross ? image.width : image.height, Math.max(0, inImage));
    });
    if (box[2] > box[0] && box[3] > box[1]) objects.push({ class: index, score, box });
  }
  return objects;
}
