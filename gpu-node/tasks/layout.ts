// What a dataset format is to an export: where its images and labels lie in the archive.

import type { ExportManifest } from "../../shared/tasks/export-manifest.ts";
import type { ZipWriter } from "../objects/zip-writer.ts";

type Frame = ExportManifest["videos"][number]["frames"][number];

/** An annotation of the manifest: corners and ring in pixels of its frame. */
export type Annotation = Frame["annotations"][number];

/** A video that the dataset has frames of; a still is one of one frame. */
export interface Sequence {
  /** Its file name without extension, made safe; unique in the archive. */
  name: string;
  filename: string;
  frameCount: number;
  /** Frames a second in the mean, of all its frames. */
  fps: number;
  /** Indices of its frames in the dataset, ascending. */
  frames: readonly number[];
}

/** An image of the dataset as it was put into the archive. */
export interface ExportedImage {
  /**
   * Path below the folder of images: a file name, after the still's own folders where names are
   * original. Without its extension, too, it is unique in the archive.
   */
  name: string;
  split: Frame["split"];
  sequence: Sequence;
  /** Index of the frame in its video, and its position among the images of that, from 0. */
  index: number;
  position: number;
  /** Id of the frame that it shows. */
  frameId: string;
  /** Pixels. */
  width: number;
  height: number;
  /** Those that lie inside the image, cut to it. */
  annotations: readonly Annotation[];
}

/** What a layout is made with. */
export interface LayoutOptions {
  /** Whether a box without a mask gets its rectangle as polygon. */
  rectangles: boolean;
}

export interface Layout {
  /** Path of an image in the archive. */
  imagePath(image: ExportedImage): string;
  /** Takes an image's annotations; called once an image, after its pixels were written. */
  add(image: ExportedImage, zip: ZipWriter): Promise<void>;
  /** Writes what the format keeps once a dataset. */
  end(zip: ZipWriter): Promise<void>;
}

/** An image's name with another extension, which has its dot. */
export const renamed = ({ name }: ExportedImage, extension: string): string =>
  name.replace(/\.[^.]*$/, extension);

/** The ring of an annotation's mask, x and y in turn; null without one. */
export const ringOf = ({ polygon }: Annotation): readonly number[] | null =>
  polygon && polygon.length >= 6 ? polygon : null;

/** The ring, or where rectangles are wanted that of the box. */
export function outlineOf(
  one: Annotation,
  { rectangles }: LayoutOptions,
): readonly number[] | null {
  const [x1, y1, x2, y2] = one.bbox;
  return ringOf(one) ?? (rectangles ? [x1, y1, x2, y1, x2, y2, x1, y2] : null);
}

const ESCAPES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

/** A text inside XML, in an element or an attribute; what XML cannot hold becomes `?`. */
export const xmlText = (text: string): string =>
  text
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what XML cannot hold
    .replace(/[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]/g, "?")
    .replace(/[&<>"]/g, (sign) => ESCAPES[sign] ?? sign)
    .replace(/[\t\n\r]/g, (sign) => `&#${sign.charCodeAt(0)};`);

/** Pixels in thousandths, without zeros at the end. */
export const pixels = (value: number): string => String(Math.round(value * 1_000) / 1_000);
