// The hash of an image file, by which one that looks the same is told.

import { Failure } from "../../shared/errors.ts";
import { EDGE_IMAGE_BYTES_MAX } from "../../shared/wire/edge-inference.ts";
import { decode, judge } from "./decode.ts";
import { differenceHash, HASH_SIZE } from "./difference-hash.ts";
import { orientationOf, turn, turnedSize } from "./orientation.ts";
import { resample } from "./resample.ts";

/** The hash of an image file; fails with `unsupported_media` and `file_too_large`. */
export async function hashImage(file: Uint8Array): Promise<string> {
  if (file.length > EDGE_IMAGE_BYTES_MAX) {
    throw new Failure("file_too_large", "the image is larger than the edge takes");
  }
  const header = judge(file);
  const image = await decode(file, header);
  const orientation = orientationOf(file, header.type);
  const laid = turnedSize(HASH_SIZE, orientation);
  return differenceHash(turn(resample(image, laid), laid, orientation));
}
