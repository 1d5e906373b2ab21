// Crops of annotations as a node cuts them, and the object that holds many of them: a crop pack.
// Nothing is imported, so that browsers and nodes share it.
//
// A pack, all numbers little-endian:
//
//   offset  bytes  content
//        0      4  "VCPK"
//        4      4  u32, version of the format: 1
//        8      4  u32, number of entries
//       12     28  of each entry, sorted by frame, then x1, y1, x2, y2, each of these once:
//                  u32 frame index; f32 x1, y1, x2, y2 in pixels of the frame, as the database
//                  stores them; u32 offset of the JPEG from the pack's first byte; u32 its bytes
//        …         the JPEGs in the order of the entries, without gaps, to the pack's last byte

/** Pixels of a crop's longest side. */
const CROP_SIDE = 128;
/** A crop is never larger than its pixels of the frame times this. */
const ENLARGEMENT_MAX = 2;
/** The margin around a box on each side, as a share of its longer side. */
const MARGIN = 0.15;

/** Bytes of a pack at most. */
export const CROP_PACK_BYTES_MAX = 4 * 1024 * 1024;
/** Bytes of one JPEG at most: noise of 128 by 128 pixels takes 12 KB. */
const CROP_BYTES_MAX = 64 * 1024;

const MAGIC = 0x4b504356;
const VERSION = 1;
const HEADER_BYTES = 12;
const ENTRY_BYTES = 28;
const LITTLE_ENDIAN = true;

/** Corners in pixels of the frame: x1, y1, x2, y2. */
export type CropBox = readonly [number, number, number, number];

/** A rectangle of whole pixels. */
interface Region {
  left: number;
  top: number;
  width: number;
  height: number;
}

/** The pixels of a frame that a box's crop shows: the box with its margin, cut at the frame. */
export function cropRegion(
  [x1, y1, x2, y2]: CropBox,
  { width, height }: Readonly<Record<"width" | "height", number>>,
): Region {
  const margin = MARGIN * Math.max(x2 - x1, y2 - y1);
  const within = (value: number, min: number, max: number) => Math.min(Math.max(value, min), max);
  const left = within(Math.floor(x1 - margin), 0, width - 1);
  const top = within(Math.floor(y1 - margin), 0, height - 1);
  return {
    left,
    top,
    width: within(Math.ceil(x2 + margin), left + 1, width) - left,
    height: within(Math.ceil(y2 + margin), top + 1, height) - top,
  };
}

/** The size of the crop of a region. */
export function cropSize({ width, height }: Pick<Region, "width" | "height">) {
  const scale = Math.min(ENLARGEMENT_MAX, CROP_SIDE / Math.max(width, height));
  const side = (length: number) => Math.max(1, Math.round(length * scale));
  return { width: side(width), height: side(height) };
}

/** Which crop it is. */
export interface CropOf {
  frame: number;
  bbox: CropBox;
}

/** A crop with its image. */
export interface Crop extends CropOf {
  jpeg: Uint8Array;
}

/** An entry of a pack: which crop it is, and which bytes of the pack hold its JPEG. */
export interface CropEntry extends CropOf {
  offset: number;
  length: number;
}

/** Names a crop: two boxes are one if the database stores them alike. */
export const cropKey = ({ frame, bbox }: CropOf): string =>
  [frame, ...bbox.map((value) => Math.fround(value))].join(" ");

/** Bytes of a pack before its first JPEG. */
export const cropIndexBytes = (entries: number): number => HEADER_BYTES + ENTRY_BYTES * entries;

/** Bytes of a pack that each crop takes. */
export const cropBytes = ({ jpeg }: Pick<Crop, "jpeg">): number => ENTRY_BYTES + jpeg.length;

const numbersOf = ({ frame, bbox }: CropOf) => [frame, ...bbox.map((value) => Math.fround(value))];

function compare(one: CropOf, other: CropOf): number {
  const theirs = numbersOf(other);
  const differences = numbersOf(one).map((value, at) => value - (theirs[at] ?? 0));
  return differences.find((difference) => difference !== 0) ?? 0;
}

/** The pack of crops in any order. Of two of the same frame and box it holds the first. */
export function writeCropPack(crops: readonly Crop[]): Uint8Array<ArrayBuffer> {
  const sorted = crops
    .toSorted(compare)
    .filter((crop, at, all) => at === 0 || compare(all[at - 1] ?? crop, crop) !== 0);
  const index = cropIndexBytes(sorted.length);
  const bytes = new Uint8Array(sorted.reduce((sum, { jpeg }) => sum + jpeg.length, index));
  const view = new DataView(bytes.buffer);
  [MAGIC, VERSION, sorted.length].forEach((value, at) => {
    view.setUint32(4 * at, value, LITTLE_ENDIAN);
  });
  let offset = index;
  for (const [position, { frame, bbox, jpeg }] of sorted.entries()) {
    const entry = cropIndexBytes(position);
    view.setUint32(entry, frame, LITTLE_ENDIAN);
    bbox.forEach((value, at) => {
      view.setFloat32(entry + 4 + 4 * at, value, LITTLE_ENDIAN);
    });
    view.setUint32(entry + 20, offset, LITTLE_ENDIAN);
    view.setUint32(entry + 24, jpeg.length, LITTLE_ENDIAN);
    bytes.set(jpeg, offset);
    offset += jpeg.length;
  }
  return bytes;
}

/**
 * The entries of a pack of so many bytes, of which `head` holds the index at least; null where it
 * is no pack of this version, or not one that `writeCropPack` makes.
 */
export function cropEntries(head: Uint8Array, packBytes: number): CropEntry[] | null {
  if (head.length < HEADER_BYTES) return null;
  const view = new DataView(head.buffer, head.byteOffset, head.byteLength);
  const [magic, version, count = 0] = [0, 4, 8].map((at) => view.getUint32(at, LITTLE_ENDIAN));
  if (magic !== MAGIC || version !== VERSION || head.length < cropIndexBytes(count)) return null;
  const entries: CropEntry[] = [];
  let end = cropIndexBytes(count);
  for (let position = 0; position < count; position += 1) {
    const at = cropIndexBytes(position);
    const corner = (number: number) => view.getFloat32(at + 4 + 4 * number, LITTLE_ENDIAN);
    const entry: CropEntry = {
      frame: view.getUint32(at, LITTLE_ENDIAN),
      bbox: [corner(0), corner(1), corner(2), corner(3)],
      offset: view.getUint32(at + 20, LITTLE_ENDIAN),
      length: view.getUint32(at + 24, LITTLE_ENDIAN),
    };
    const before = entries.at(-1);
    const isInOrder = before === undefined || compare(before, entry) < 0;
    const isWhole = entry.offset === end && entry.length > 0 && entry.length <= CROP_BYTES_MAX;
    if (!isInOrder || !isWhole || !entry.bbox.every(Number.isFinite)) return null;
    end += entry.length;
    entries.push(entry);
  }
  return end === packBytes ? entries : null;
}
