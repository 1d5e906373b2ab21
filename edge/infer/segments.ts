// The parts that image files are made of, one after another. Whatever a part says of its length, a
// walk ends with the file.

const LITTLE_ENDIAN = true;

/** A part of a file: what it is called, and its payload. */
export interface Segment {
  name: string;
  payload: Uint8Array;
  /** Offset in the file at which the next one begins; beyond its end where the file is cut off. */
  end: number;
}

const ascii = (bytes: Uint8Array, from: number, to: number) =>
  String.fromCharCode(...bytes.subarray(from, to));

const viewOf = (bytes: Uint8Array) =>
  new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

/** A JPEG's segments up to its data, by their markers: `e1` is EXIF's, `da` the last. */
export function* jpegSegments(file: Uint8Array): Generator<Segment> {
  const view = viewOf(file);
  for (let offset = 2; offset + 4 <= file.length; ) {
    const marker = view.getUint16(offset);
    if (marker === 0xffff) {
      offset += 1;
      continue;
    }
    if (marker >> 8 !== 0xff) return;
    const end = offset + 2 + view.getUint16(offset + 2);
    const name = (marker & 0xff).toString(16);
    yield { name, payload: file.subarray(offset + 4, end), end };
    if (name === "da") return;
    offset = end;
  }
}

/** A PNG's chunks; each is followed by a sum of itself. */
export function* pngChunks(file: Uint8Array): Generator<Segment> {
  const view = viewOf(file);
  for (let offset = 8; offset + 8 <= file.length; ) {
    const end = offset + 12 + view.getUint32(offset);
    yield {
      name: ascii(file, offset + 4, offset + 8),
      payload: file.subarray(offset + 8, end - 4),
      end,
    };
    offset = end;
  }
}

/** A WebP's chunks; their lengths are even. */
export function* webpChunks(file: Uint8Array): Generator<Segment> {
  const view = viewOf(file);
  for (let offset = 12; offset + 8 <= file.length; ) {
    const length = view.getUint32(offset + 4, LITTLE_ENDIAN);
    const end = offset + 8 + length;
    yield {
      name: ascii(file, offset, offset + 4),
      payload: file.subarray(offset + 8, end),
      end,
    };
    offset = end + (length % 2);
  }
}
