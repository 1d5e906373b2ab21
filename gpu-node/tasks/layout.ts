// What a dataset format is to an export: where its images and labels lie in the archive.

import type { ExportManifest } from "../../shared/tasks.ts";
import type { ZipWriter } from "../objects/zip-writer.ts";

type Frame = ExportManifest["videos"][number]["frames"][number];

/** An annotation of the manifest: corners and ring in pixels of its frame. */
export type Annotation = Frame["annotations"][number];

/** An image of the dataset as it was put into the archive. */
export interface ExportedImage {
  /** File name without its folder, unique in the archive. */
  name: string;
  split: Frame["split"];
  /** Pixels. */
  width: number;
  height: number;
  /** Those that lie inside the image, cut to it. */
  annotations: readonly Annotation[];
}

export interface Layout {
  /** Path of an image in the archive. */
  imagePath(image: ExportedImage): string;
  /** Takes an image's annotations; called once an image, after its pixels were written. */
  add(image: ExportedImage, zip: ZipWriter): Promise<void>;
  /** Writes what the format keeps once a dataset. */
  end(zip: ZipWriter): Promise<void>;
}
