// Frames that were clicked last, encoded, in this process's memory.

import type { EncodedImage } from "../segmenters/segmenter.ts";

/** The frames that were encoded last, so that a second click on one is answered at once. */
export class Encodings {
  static readonly FRAMES_MAX = 8;
  readonly #entries = new Map<string, EncodedImage>();

  /** The frame's encoding, made unless it is here; disposes of the one used longest ago. */
  async get(name: string, encode: () => Promise<EncodedImage>): Promise<EncodedImage> {
    const known = this.#entries.get(name);
    const encoded = known ?? (await encode());
    this.#entries.delete(name);
    this.#entries.set(name, encoded);
    const [oldest] = this.#entries;
    if (oldest && this.#entries.size > Encodings.FRAMES_MAX) {
      this.#entries.delete(oldest[0]);
      oldest[1].dispose();
    }
    return encoded;
  }

  clear() {
    for (const encoded of this.#entries.values()) encoded.dispose();
    this.#entries.clear();
  }
}
