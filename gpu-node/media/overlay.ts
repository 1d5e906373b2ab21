// Draws boxes, masks and names over an image.

import type { Detection } from "../../shared/tasks/tasks.ts";
import type { RgbImage } from "./image.ts";
import { toJpegUnder, under } from "./stills.ts";

/** Told apart also by people who see fewer colours (Okabe and Ito). */
export const COLOURS = [
  "#e69f00",
  "#56b4e9",
  "#009e73",
  "#f0e442",
  "#0072b2",
  "#d55e00",
  "#cc79a7",
];

/** A text within SVG, which is XML 1.0: it has no control characters, not even escaped. */
export const escaped = (text: string) =>
  text
    .replace(/\p{Cc}|[\ud800-\udfff]|[\ufffe\uffff]/gu, " ")
    .replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);

const rounded = (value: number) => value.toFixed(1);

/** How a name stands on an image: its background, pixels of its letters, and sides of the image. */
export interface TagStyle {
  colour: string;
  size: number;
  width: number;
}

/** Pixels of letters and lines that people can see on an image of these sides. */
export const drawingSizes = ({ width, height }: { width: number; height: number }) => ({
  stroke: Math.max(1.5, Math.max(width, height) / 400),
  size: Math.max(11, Math.round(Math.max(width, height) / 50)),
});

/** Height of a tag, in sizes of its letters. */
export const TAG_HEIGHT = 1.3;

/** A name on its background as SVG, its upper left corner there or so far left that it is seen. */
export function tagOf(
  name: string,
  { colour, size, width }: TagStyle,
  [x, top]: readonly [number, number],
) {
  // About the width of the letters; the tag stays within the image.
  const wide = Math.min(width, name.length * size * 0.6 + size * 0.5);
  const left = Math.max(0, Math.min(x, width - wide));
  return (
    `<rect x="${rounded(left)}" y="${rounded(top)}" width="${rounded(wide)}" ` +
    `height="${rounded(size * TAG_HEIGHT)}" fill="${colour}"/>` +
    `<text x="${rounded(left + size * 0.25)}" y="${rounded(top + size)}" fill="#000000" ` +
    `font-family="sans-serif" font-size="${size}">${escaped(name)}</text>`
  );
}

/** What a drawing shows of a detection. */
type OverlayObject = Pick<Detection, "bbox" | "class_name" | "confidence" | "polygon">;

/** The image as JPEG with each detection's box, mask and name, one colour a class. */
export const drawOver = (
  image: RgbImage,
  detections: readonly OverlayObject[],
  classes: readonly string[],
): Promise<Buffer> => toJpegUnder(image, overlayOf(image, detections, classes));

/** The same as pixels; the image itself without a detection. */
export const drawnOver = async (
  image: RgbImage,
  detections: readonly OverlayObject[],
  classes: readonly string[],
): Promise<RgbImage> =>
  detections.length === 0 ? image : under(image, overlayOf(image, detections, classes));

function overlayOf(
  image: RgbImage,
  detections: readonly OverlayObject[],
  classes: readonly string[],
): string {
  const { width, height } = image;
  const { stroke, size } = drawingSizes(image);
  const drawn = detections.map((detection) => {
    const index = Math.max(0, classes.indexOf(detection.class_name));
    const colour = COLOURS[index % COLOURS.length] ?? "#ffffff";
    return drawing(detection, { colour, stroke, size, width });
  });
  const open = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}">`;
  return `${open}${drawn.join("")}</svg>`;
}

function drawing(
  { bbox, class_name, confidence, polygon }: OverlayObject,
  style: { colour: string; stroke: number; size: number; width: number },
): string {
  const { colour, stroke, size } = style;
  const [x1, y1, x2, y2] = bbox;
  const mask =
    polygon && polygon.length >= 6
      ? `<polygon points="${polygon.map(rounded).join(" ")}" fill="${colour}" fill-opacity="0.35"/>`
      : "";
  const corners = `x="${rounded(x1)}" y="${rounded(y1)}"`;
  const sides = `width="${rounded(x2 - x1)}" height="${rounded(y2 - y1)}"`;
  const box = `<rect ${corners} ${sides} fill="none" stroke="${colour}" stroke-width="${stroke}"/>`;
  const name = `${class_name.slice(0, 60)} ${confidence.toFixed(2)}`;
  const top = Math.max(0, y1 - size * TAG_HEIGHT);
  return `${mask}${box}${tagOf(name, style, [x1, top])}`;
}
