// Crops of boxes, cut from decoded frames and gathered into a pack.

import {
  CROP_PACK_BYTES_MAX,
  type Crop,
  type CropBox,
  cropBytes,
  cropIndexBytes,
  cropKey,
  writeCropPack,
} from "../../shared/crop-pack.ts";
import type { RgbImage } from "../media/image.ts";
import { toCrop } from "../media/stills.ts";

/** Crops of a frame that are cut at once. */
const CUT_AT_ONCE = 8;

/** Gathers crops up to the bound of a pack. */
export class CropPacker {
  readonly #crops = new Map<string, Crop>();
  #bytes = cropIndexBytes(0);
  /** Boxes that the pack had no room for. */
  leftOut = 0;

  /** How many crops there are; boxes of a frame that are the same have one. */
  get count(): number {
    return this.#crops.size;
  }

  /** Cuts the crops of a frame's boxes. */
  async add(frame: number, image: RgbImage, boxes: readonly CropBox[]): Promise<void> {
    const all = new Map(boxes.map((bbox) => [cropKey({ frame, bbox }), { frame, bbox }] as const));
    const wanted = [...all].filter(([key]) => !this.#crops.has(key));
    for (let from = 0; from < wanted.length; from += CUT_AT_ONCE) {
      if (this.#bytes >= CROP_PACK_BYTES_MAX) {
        this.leftOut += wanted.length - from;
        return;
      }
      const some = wanted.slice(from, from + CUT_AT_ONCE);
      const jpegs = await Promise.all(some.map(([, { bbox }]) => toCrop(image, bbox)));
      for (const [at, [key, of]] of some.entries()) this.#keep(key, { ...of, jpeg: jpegs[at] });
    }
  }

  /** The pack. */
  pack(): Uint8Array {
    return writeCropPack([...this.#crops.values()]);
  }

  #keep(key: string, { frame, bbox, jpeg }: Omit<Crop, "jpeg"> & { jpeg: Uint8Array | undefined }) {
    if (!jpeg || this.#bytes + cropBytes({ jpeg }) > CROP_PACK_BYTES_MAX) {
      this.leftOut += 1;
      this.#bytes = CROP_PACK_BYTES_MAX;
      return;
    }
    this.#bytes += cropBytes({ jpeg });
    this.#crops.set(key, { frame, bbox, jpeg });
  }
}
