// Images of frames on their way from a node to where they are read. A node writes under its
// attempt's own keys; the service looks at what lies there and copies it once, so that nothing that
// a node writes later is ever shown, and no image that is shown changes.

import type { Parts } from "../base/parts.ts";
import { type Attempt, attemptKey } from "../tasks/objects.ts";

/** Images at once: each is held in memory while it is copied. */
const COPIES_MAX = 4;
/** A JPEG of a frame of the largest video is far smaller. */
const BYTES_MAX = 16 * 1024 * 1024;
const JPEG_HEAD = [0xff, 0xd8, 0xff];

/** A frame's image: where it is read by everybody, and which frame it is of. */
export interface FrameImage {
  frame: number;
  key: string;
}

/**
 * Copies the images that an attempt wrote, which is none of a frame unless `required`; says which
 * one cannot be taken, or null.
 */
export async function sealImages(
  { bucket }: Pick<Parts, "bucket">,
  attempt: Attempt,
  images: readonly FrameImage[],
  { required }: { required: boolean },
): Promise<string | null> {
  const seal = async ({ frame, key }: FrameImage): Promise<string | null> => {
    const object = await bucket.get(attemptKey(key, attempt));
    if (!object) return required ? `the image of frame ${frame} is not in the store` : null;
    if (object.size > BYTES_MAX) return `the image of frame ${frame} has ${object.size} bytes`;
    const bytes = new Uint8Array(await object.arrayBuffer());
    if (JPEG_HEAD.some((byte, at) => bytes[at] !== byte)) {
      return `the image of frame ${frame} is no JPEG`;
    }
    const httpMetadata = { contentType: "image/jpeg" };
    await bucket.put(key, bytes, { httpMetadata, onlyIf: { etagDoesNotMatch: "*" } });
    return null;
  };
  for (let from = 0; from < images.length; from += COPIES_MAX) {
    const problems = await Promise.all(images.slice(from, from + COPIES_MAX).map(seal));
    const problem = problems.find((one) => one !== null);
    if (problem) return problem;
  }
  if (images.length > 0) await bucket.delete(images.map(({ key }) => attemptKey(key, attempt)));
  return null;
}
