// Still images in and out of pixels. What comes from a stranger is decoded within limits and turned
// as its EXIF says. What leaves here was encoded again, but for the files of a dataset.

import { readFile } from "node:fs/promises";
import sharp, { type Sharp } from "sharp";
import { type CropBox, cropRegion, cropSize } from "../../shared/crop-pack.ts";
import { type ImageSize, placementOf } from "../../shared/detector/letterbox.ts";
import { BrokenMedia } from "../base/failure.ts";
import { type RgbImage, resize, resized } from "./image.ts";
import { SNIFFED_BYTES, sniff } from "./video.ts";

const PIXELS_MAX = 100_000_000;
export const JPEG_QUALITY = 90;

// Every file is read once; what libvips would keep of it is of no use.
sharp.cache(false);

const wrap = ({ data, width, height }: RgbImage) =>
  sharp(Buffer.from(data.buffer, data.byteOffset, data.byteLength), {
    raw: { width, height, channels: 3 },
  });

/** The pixels of an image file, or of its bytes; BrokenMedia when it cannot be decoded. */
export function readStill(
  file: string | Buffer,
  options: { longestSide?: number | null } = {},
): Promise<RgbImage> {
  const side = options.longestSide ?? null;
  return decoded(file, () => {
    const image = asPeopleSeeIt(file);
    if (side === null) return pixelsOf(image);
    return pixelsOf(image.resize(side, side, { fit: "inside", withoutEnlargement: true }));
  });
}

/** A still that was brought to a size, and its own size as people see it. */
export interface SizedStill {
  image: RgbImage;
  of: ImageSize;
}

/**
 * The pixels of an image file as `letterbox` lays them within a square of so many pixels a side,
 * and the sides that it has. A JPEG that is four times as large or more is decoded at a half to an
 * eighth of its size, so that the last halving at least is always the same kernel's.
 */
export function readStillWithin(file: string, side: number): Promise<SizedStill> {
  return decoded(file, async () => {
    const { autoOrient } = await opened(file).metadata();
    const { laid } = placementOf(autoOrient, { width: side, height: side });
    const image = decodedNear(asPeopleSeeIt(file), laid);
    const of = { width: autoOrient.width, height: autoOrient.height };
    return { image: await pixelsOf(image), of };
  });
}

/** An image at a size, its decoder's own halvings before the kernel's, which has the last one. */
const decodedNear = (image: Sharp, { width, height }: ImageSize): Sharp =>
  image.resize(width, height, { fit: "fill", kernel: "linear", fastShrinkOnLoad: false });

/**
 * The pixels of an image's bytes at the size that `sizeOf` gives for its own, without all of its
 * pixels in memory where that can be: of an upright JPEG the same as `readStillWithin` gives a
 * training, of any other image those that `resize` makes of the whole.
 */
export function readStillAt(
  file: Buffer,
  sizeOf: (own: ImageSize) => ImageSize,
): Promise<SizedStill> {
  return decoded(file, async () => {
    const {
      format,
      width,
      height,
      orientation = 1,
      space,
      hasAlpha,
    } = await opened(file).metadata();
    // What is turned, or in other colours, is so before it gets smaller: the order shows.
    if (orientation !== 1 || hasAlpha || !ORDERLESS.includes(space)) {
      const whole = await pixelsOf(asPeopleSeeIt(file));
      const of = { width: whole.width, height: whole.height };
      return { image: await resize(whole, sizeOf(of)), of };
    }
    const of = { width, height };
    const whole = asPeopleSeeIt(file);
    const image =
      format === "jpeg"
        ? decodedNear(whole, sizeOf(of))
        : // The pipeline's colours keep a decoder from making it smaller by its own, coarser rule.
          resized(whole.pipelineColourspace("srgb"), sizeOf(of));
    return { image: await pixelsOf(image), of };
  });
}

/** Colours that mean the same before and after a change of size. */
const ORDERLESS: readonly (string | undefined)[] = ["srgb", "b-w"];

const opened = (file: string | Buffer) =>
  sharp(file, { limitInputPixels: PIXELS_MAX, failOn: "truncated" });

const asPeopleSeeIt = (file: string | Buffer) =>
  opened(file).rotate().flatten({ background: "#ffffff" }).toColourspace("srgb");

async function pixelsOf(image: Sharp): Promise<RgbImage> {
  const { data, info } = await image.raw().toBuffer({ resolveWithObject: true });
  if (info.channels === 3) return { data, width: info.width, height: info.height };
  throw new BrokenMedia(`the image has ${info.channels} channels`);
}

/** What is read of a file, or of its bytes; BrokenMedia when it cannot be decoded. */
async function decoded<Read>(file: string | Buffer, read: () => Promise<Read>): Promise<Read> {
  // The decoder knows more kinds than we take, such as drawings that are programs.
  if (Buffer.isBuffer(file) && sniff(file.subarray(0, SNIFFED_BYTES))?.kind !== "still")
    throw new BrokenMedia("it is no image of a kind we take (JPEG, PNG, WebP, GIF, TIFF, AVIF)");
  try {
    return await read();
  } catch (thrown) {
    throw asBroken(thrown);
  }
}

function asBroken(thrown: unknown): BrokenMedia {
  if (thrown instanceof BrokenMedia) return thrown;
  const reason = (thrown as Error).message.split("\n")[0] ?? "";
  return new BrokenMedia(
    /pixel limit/.test(reason)
      ? "the image has more than 100 million pixels"
      : `the image cannot be decoded: ${reason.slice(0, 200)}`,
  );
}

/** A still's file as it came. */
export interface OriginalStill {
  bytes: Buffer;
  /** With its dot. */
  extension: string;
}

/** Kinds that the readers of datasets open, with the extension by which they know them. */
const EXTENSIONS: Record<string, string> = {
  jpeg: ".jpg",
  png: ".png",
  webp: ".webp",
  tiff: ".tif",
};

/**
 * The file of a still that was decoded; null where its bytes are not what other readers should
 * have: those of a kind that few of them open, and those that EXIF turns, which many do not follow
 * and whose boxes would lie elsewhere.
 */
export async function originalStill(path: string): Promise<OriginalStill | null> {
  const { format = "", orientation = 1 } = await sharp(path, {
    limitInputPixels: PIXELS_MAX,
  }).metadata();
  const extension = EXTENSIONS[format];
  return extension && orientation === 1 ? { bytes: await readFile(path), extension } : null;
}

export const toJpeg = (image: RgbImage): Promise<Buffer> =>
  wrap(image).jpeg({ quality: JPEG_QUALITY }).toBuffer();

const SMALL_QUALITY = 80;

/** A JPEG of a width, and of the height that goes with it; of its own size when it is smaller. */
export const toJpegOfWidth = (image: RgbImage, width: number): Promise<Buffer> =>
  wrap(image)
    .resize(width, null, { withoutEnlargement: true })
    .jpeg({ quality: SMALL_QUALITY })
    .toBuffer();

const CROP_QUALITY = 75;

/** The JPEG of a box with some of what is around it, small enough for a grid of hundreds. */
export function toCrop(image: RgbImage, bbox: CropBox): Promise<Buffer> {
  const region = cropRegion(bbox, image);
  const { width, height } = cropSize(region);
  return wrap(image)
    .extract(region)
    .resize(width, height, { fit: "fill" })
    .jpeg({ quality: CROP_QUALITY })
    .toBuffer();
}

/** A small JPEG whose longest side is at most `side`. */
export const toThumbnail = (image: RgbImage, side: number): Promise<Buffer> =>
  wrap(image)
    .resize(side, side, { fit: "inside", withoutEnlargement: true })
    .jpeg({ quality: SMALL_QUALITY })
    .toBuffer();

/** The image with its longest side at most `side`; itself when it is small enough. */
export async function shrink(image: RgbImage, side: number | null): Promise<RgbImage> {
  if (side === null || Math.max(image.width, image.height) <= side) return image;
  const { data, info } = await wrap(image)
    .resize(side, side, { fit: "inside" })
    .raw()
    .toBuffer({ resolveWithObject: true });
  return { data, width: info.width, height: info.height };
}

/** The image under a drawing of the same size. */
export async function under(image: RgbImage, svg: string): Promise<RgbImage> {
  const { width, height } = image;
  const drawn = wrap(image).composite([{ input: Buffer.from(svg) }]);
  return { data: await drawn.removeAlpha().raw().toBuffer(), width, height };
}

/** The image as JPEG under a drawing of the same size. */
export const toJpegUnder = (image: RgbImage, svg: string): Promise<Buffer> =>
  wrap(image)
    .composite([{ input: Buffer.from(svg) }])
    .jpeg({ quality: JPEG_QUALITY })
    .toBuffer();
