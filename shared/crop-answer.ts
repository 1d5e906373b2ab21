// The answer of `POST /jobs/{job_id}/crops`: the crops of annotations, in the order in which their
// ids were sent. Nothing is imported, so that browsers read it with this file.
//
// All numbers little-endian:
//
//   offset  bytes  content
//        0      4  "VCRA"
//        4      4  u32, version of the format: 1
//        8      4  u32, number of ids
//       12      4  u32, how many of the lacking crops are on their way: ask again for those
//       16      4  of each id: i32, bytes of its JPEG; 0: there is none yet; -1: the job has no
//                  such annotation
//        …         the JPEGs one after the other

/** Ids of one request at most. */
export const CROP_IDS_MAX = 64;

const MAGIC = 0x41524356;
const VERSION = 1;
const HEADER_BYTES = 16;
const LITTLE_ENDIAN = true;

/** A JPEG; null where there is none yet; undefined where the job has no such annotation. */
export type AnsweredCrop = Uint8Array | null | undefined;

/** Crops in the order of the ids, and how many more are on their way. */
export interface CropAnswer {
  crops: AnsweredCrop[];
  missing: number;
}

/** The bytes of an answer. */
export function writeCropAnswer({ crops, missing }: CropAnswer): Uint8Array<ArrayBuffer> {
  const head = HEADER_BYTES + 4 * crops.length;
  const bytes = new Uint8Array(crops.reduce((sum, crop) => sum + (crop?.length ?? 0), head));
  const view = new DataView(bytes.buffer);
  [MAGIC, VERSION, crops.length, missing].forEach((value, at) => {
    view.setUint32(4 * at, value, LITTLE_ENDIAN);
  });
  let offset = head;
  for (const [position, crop] of crops.entries()) {
    const length = crop === undefined ? -1 : (crop?.length ?? 0);
    view.setInt32(HEADER_BYTES + 4 * position, length, LITTLE_ENDIAN);
    if (!crop) continue;
    bytes.set(crop, offset);
    offset += crop.length;
  }
  return bytes;
}

/** What an answer holds; fails for bytes that are none of this version. The JPEGs are views. */
export function readCropAnswer(bytes: Uint8Array): CropAnswer {
  const refused = new Error("these bytes are no answer of crops");
  if (bytes.length < HEADER_BYTES) throw refused;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const [magic, version, count = 0, missing = 0] = [0, 4, 8, 12].map((at) =>
    view.getUint32(at, LITTLE_ENDIAN),
  );
  let offset = HEADER_BYTES + 4 * count;
  if (magic !== MAGIC || version !== VERSION || offset > bytes.length) throw refused;
  const crops: AnsweredCrop[] = [];
  for (let position = 0; position < count; position += 1) {
    const length = view.getInt32(HEADER_BYTES + 4 * position, LITTLE_ENDIAN);
    if (length < -1 || offset + length > bytes.length) throw refused;
    if (length > 0) crops.push(bytes.subarray(offset, offset + length));
    else crops.push(length === 0 ? null : undefined);
    offset += Math.max(0, length);
  }
  if (offset !== bytes.length) throw refused;
  return { crops, missing };
}
