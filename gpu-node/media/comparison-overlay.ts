// Draws what two models found over an image, and what people see there: three styles that can be
// told apart without colours too.

import type { ComparedObject, TruthObject } from "../../shared/tasks/comparison-task.ts";
import type { Bbox } from "../../shared/tasks/tasks.ts";
import type { RgbImage } from "./image.ts";
import { drawingSizes, TAG_HEIGHT, tagOf } from "./overlay.ts";
import { toJpegUnder } from "./stills.ts";

/** How one party's boxes look (colours by Okabe and Ito). */
interface BoxStyle {
  colour: string;
  /** Lengths of strokes and gaps, in widths of the line; empty is a solid line. */
  dashes: readonly number[];
  /** Width of the line, in widths of A's. */
  weight: number;
  /** Letters before the class. */
  mark: string;
  /** Whether its name stands below the box. */
  isBelow: boolean;
}

const STYLES: Record<"a" | "b" | "truth", BoxStyle> = {
  truth: { colour: "#009e73", dashes: [1, 2], weight: 2, mark: "", isBelow: false },
  a: { colour: "#e69f00", dashes: [], weight: 1, mark: "A ", isBelow: false },
  b: { colour: "#56b4e9", dashes: [4, 3], weight: 1, mark: "B ", isBelow: true },
};

/** What is drawn over a frame; boxes are in pixels of the frame. */
export interface ComparisonDrawing {
  objects: readonly ComparedObject[];
  truth: readonly TruthObject[];
  /** Size of the frame, of which the image may be a smaller copy. */
  frame: { width: number; height: number };
}

const rounded = (value: number) => value.toFixed(1);

/** The image as JPEG with the objects of both models and of the truth. */
export function drawComparison(image: RgbImage, drawing: ComparisonDrawing): Promise<Buffer> {
  const { width, height } = image;
  const { objects, truth, frame } = drawing;
  const scaled = ([x1, y1, x2, y2]: Bbox): Bbox => {
    const [across, down] = [width / frame.width, height / frame.height];
    return [x1 * across, y1 * down, x2 * across, y2 * down];
  };
  const boxes = [
    ...truth.map(({ bbox }) => boxOf(scaled(bbox), "", { style: STYLES.truth, image })),
    ...objects.flatMap((object) =>
      (["a", "b"] as const).flatMap((side) => {
        const found = object[side];
        if (!found) return [];
        const style = STYLES[side];
        const name = `${style.mark}${found.class.slice(0, 60)} ${found.confidence.toFixed(2)}`;
        return [boxOf(scaled(found.bbox), name, { style, image })];
      }),
    ),
  ];
  const open = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}">`;
  return toJpegUnder(image, `${open}${boxes.join("")}</svg>`);
}

function boxOf(
  [x1, y1, x2, y2]: Bbox,
  name: string,
  { style, image }: { style: BoxStyle; image: RgbImage },
): string {
  const { colour, dashes, weight, isBelow } = style;
  const { size, stroke: thin } = drawingSizes(image);
  const stroke = weight * thin;
  const dashed =
    dashes.length > 0
      ? ` stroke-dasharray="${dashes.map((dash) => rounded(dash * stroke)).join(" ")}"`
      : "";
  const box =
    `<rect x="${rounded(x1)}" y="${rounded(y1)}" width="${rounded(x2 - x1)}" ` +
    `height="${rounded(y2 - y1)}" fill="none" stroke="${colour}" stroke-width="${rounded(stroke)}"` +
    `${dashed}/>`;
  if (name === "") return box;
  const high = size * TAG_HEIGHT;
  const top = isBelow ? Math.min(image.height - high, y2) : Math.max(0, y1 - high);
  return `${box}${tagOf(name, { colour, size, width: image.width }, [x1, top])}`;
}
