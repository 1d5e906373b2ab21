// The weights' file of a Core ML package (MILBlob's storage format, version 2): a header, then for
// each blob 64 bytes about it and its values, all of it at multiples of 64 bytes.

const ALIGNMENT = 64;
const VERSION = 2;
const SENTINEL = 0xdead_beef;
/** Numbers of BlobDataType. */
const TYPES = { float16: 1, float32: 2 } as const;
const BYTES = { float16: 2, float32: 4 } as const;
export type BlobType = keyof typeof TYPES;

/** Gathers the file. */
export class BlobWriter {
  readonly #parts: Uint8Array[] = [];
  #count = 0;
  #length = ALIGNMENT;

  /** Appends floats, or the bits of halves; returns the offset of what is said about them. */
  add(values: Float32Array | Uint16Array): number {
    const offset = this.#length;
    const type = values instanceof Float32Array ? "float32" : "float16";
    const about = new DataView(new ArrayBuffer(ALIGNMENT));
    about.setUint32(0, SENTINEL, true);
    about.setUint32(4, TYPES[type], true);
    about.setBigUint64(8, BigInt(values.byteLength), true);
    about.setBigUint64(16, BigInt(offset + ALIGNMENT), true);
    const bytes = new Uint8Array(Math.ceil(values.byteLength / ALIGNMENT) * ALIGNMENT);
    bytes.set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
    this.#parts.push(new Uint8Array(about.buffer), bytes);
    this.#length += ALIGNMENT + bytes.length;
    this.#count += 1;
    return offset;
  }

  /** The file's bytes. */
  encode(): Uint8Array {
    const header = new DataView(new ArrayBuffer(ALIGNMENT));
    header.setUint32(0, this.#count, true);
    header.setUint32(4, VERSION, true);
    return Buffer.concat([new Uint8Array(header.buffer), ...this.#parts]);
  }
}

/** A blob's values as floats; fails where none of that type and count begins at the offset. */
export function readBlob(
  file: Uint8Array,
  offset: number,
  { type, count }: { type: BlobType; count: number },
): Float32Array {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  if (offset % ALIGNMENT || offset + ALIGNMENT > file.length) {
    throw new Error(`no blob can begin at byte ${offset}`);
  }
  if (view.getUint32(4, true) !== VERSION || view.getUint32(offset, true) !== SENTINEL) {
    throw new Error(`no blob begins at byte ${offset}`);
  }
  const bytes = Number(view.getBigUint64(offset + 8, true));
  const from = Number(view.getBigUint64(offset + 16, true));
  if (view.getUint32(offset + 4, true) !== TYPES[type] || bytes !== count * BYTES[type]) {
    throw new Error(`the blob at byte ${offset} is not ${count} of ${type}`);
  }
  if (from % ALIGNMENT || from + bytes > file.length) {
    throw new Error(`the blob at byte ${offset} is cut off`);
  }
  // A copy, whose floats begin where floats may.
  const { buffer } = Uint8Array.from(file.subarray(from, from + bytes));
  return type === "float32"
    ? new Float32Array(buffer)
    : Float32Array.from(new Float16Array(buffer));
}
