// Where the anchors of an input lie: the cells of all levels, finest first, row by row.

import { LEVEL_STRIDES } from "../../shared/detector/detector.ts";
import { anchorsOf, type OnnxSize } from "../../shared/detector/detector-onnx.ts";

/** Four numbers an anchor, in pixels of the input: a corner is `distance · reach + centre`. */
export interface AnchorCells {
  /** Pixels of a distance of one: left and top are subtracted, right and bottom added. */
  reach: Float32Array;
  /** The cell's centre: x, y, x, y. */
  centres: Float32Array;
}

/** The anchors of an input of this height and width, multiples of the coarsest stride. */
export function anchorCells(size: OnnxSize): AnchorCells {
  const [height, width] = size;
  const reach = new Float32Array(4 * anchorsOf(size));
  const centres = new Float32Array(reach.length);
  let offset = 0;
  for (const stride of LEVEL_STRIDES) {
    for (let row = 0; row < height / stride; row++) {
      for (let column = 0; column < width / stride; column++, offset += 4) {
        const [x, y] = [(column + 0.5) * stride, (row + 0.5) * stride];
        reach.set([-stride, -stride, stride, stride], offset);
        centres.set([x, y, x, y], offset);
      }
    }
  }
  return { reach, centres };
}
