// Images of frames on their way from a node to where they are read. A node writes under its
// attempt's own keys; the service looks at what lies there and copies it once, so that nothing that
// a node writes later is ever shown, and no image that is shown changes.

import { imageHeader } from "../../../../shared/image-header.ts";
import type { Parts } from "../../base/parts.ts";
import { type Attempt, attemptKey } from "../../tasks/objects.ts";

/** Images that are copied at once. */
const COPIES_MAX = 4;
const JPEG_HEAD = [0xff, 0xd8, 0xff];
/** Bytes of a node's JPEG within which its size stands. */
const SIZE_BYTES = 1_024;

/** A frame's image: where it is read by everybody, and which frame it is of. */
export interface FrameImage {
  frame: number;
  key: string;
}

/**
 * Copies the images that an attempt wrote, which is none of a frame unless `required`; says which
 * one cannot be taken, or null. With `width`, an image of any other cannot.
 */
export async function sealImages(
  { bucket }: Pick<Parts, "bucket">,
  attempt: Attempt,
  images: readonly FrameImage[],
  { required, width }: { required: boolean; width?: number | undefined },
): Promise<string | null> {
  const sealed: string[] = [];
  const seal = async ({ frame, key }: FrameImage): Promise<string | null> => {
    const written = attemptKey(key, attempt);
    const length = width === undefined ? JPEG_HEAD.length : SIZE_BYTES;
    const head = await bucket.get(written, { range: { offset: 0, length } });
    if (!head) {
      // A report that comes again finds its images taken at its first time.
      const isKnown = !required || (await bucket.head(key)) !== null;
      return isKnown ? null : `the image of frame ${frame} is not in the store`;
    }
    const bytes = new Uint8Array(await head.arrayBuffer());
    if (JPEG_HEAD.some((byte, at) => bytes[at] !== byte)) {
      return `the image of frame ${frame} is no JPEG`;
    }
    if (width !== undefined && imageHeader(bytes)?.width !== width) {
      return `the image of frame ${frame} is not ${width} pixels wide`;
    }
    const object = await bucket.get(written);
    if (!object) return null;
    const httpMetadata = { contentType: "image/jpeg" };
    await bucket.put(key, object.body, { httpMetadata, onlyIf: { etagDoesNotMatch: "*" } });
    sealed.push(written);
    return null;
  };
  for (let from = 0; from < images.length; from += COPIES_MAX) {
    const problems = await Promise.all(images.slice(from, from + COPIES_MAX).map(seal));
    const problem = problems.find((one) => one !== null);
    if (problem) return problem;
  }
  // One that is still on its way is taken when the attempt reports the next time.
  if (sealed.length > 0) await bucket.delete(sealed);
  return null;
}
