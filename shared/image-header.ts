// What a still image is, by its header alone: nothing is decoded, so nothing that a header promises
// costs anything yet.

const LITTLE_ENDIAN = true;

const ascii = (bytes: Uint8Array, from: number, to: number) =>
  String.fromCharCode(...bytes.subarray(from, to));

/** What the header of an image says. */
export interface ImageHeader {
  type: "image/jpeg" | "image/png" | "image/webp";
  width: number;
  height: number;
}

/** Type and size of an image by its header, or null; nothing is decoded. */
export function imageHeader(head: Uint8Array): ImageHeader | null {
  if (head.length < 30) return null;
  const view = new DataView(head.buffer, head.byteOffset, head.byteLength);
  if (view.getUint32(0) === 0x89504e47 && view.getUint32(4) === 0x0d0a1a0a) {
    if (ascii(head, 12, 16) !== "IHDR") return null;
    return { type: "image/png", width: view.getUint32(16), height: view.getUint32(20) };
  }
  if (ascii(head, 0, 4) === "RIFF" && ascii(head, 8, 12) === "WEBP") return webpHeader(head, view);
  if (view.getUint16(0) === 0xffd8) return jpegHeader(view);
  return null;
}

function webpHeader(head: Uint8Array, view: DataView): ImageHeader | null {
  const type = "image/webp";
  const chunk = ascii(head, 12, 16);
  if (chunk === "VP8 ") {
    const side = (offset: number) => view.getUint16(offset, LITTLE_ENDIAN) & 0x3fff;
    return { type, width: side(26), height: side(28) };
  }
  if (chunk === "VP8L") {
    const packed = view.getUint32(21, LITTLE_ENDIAN);
    return { type, width: (packed & 0x3fff) + 1, height: ((packed >>> 14) & 0x3fff) + 1 };
  }
  if (chunk !== "VP8X") return null;
  const side = (offset: number) => 1 + (view.getUint32(offset, LITTLE_ENDIAN) & 0xffffff);
  // The upper byte of the second one would lie beyond 30 bytes.
  return { type, width: side(24), height: 1 + (view.getUint32(26, LITTLE_ENDIAN) >>> 8) };
}

/** Walks the segments up to the frame header, which alone holds the size. */
function jpegHeader(view: DataView): ImageHeader | null {
  let offset = 2;
  while (offset + 9 <= view.byteLength) {
    if (view.getUint8(offset) !== 0xff) return null;
    const marker = view.getUint8(offset + 1);
    if (marker === 0xff) {
      offset += 1;
      continue;
    }
    const isFrame =
      marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc;
    if (isFrame) {
      const [height, width] = [view.getUint16(offset + 5), view.getUint16(offset + 7)];
      return { type: "image/jpeg", width, height };
    }
    // The image's data, or its end, before any frame header; or none, which decoders pass over to
    // look for the next one elsewhere than here.
    if (marker === 0xda || marker === 0xd9 || marker === 0x00) return null;
    const standsAlone = marker === 0x01 || (marker >= 0xd0 && marker <= 0xd8);
    offset += standsAlone ? 2 : 2 + view.getUint16(offset + 2);
  }
  return null;
}
