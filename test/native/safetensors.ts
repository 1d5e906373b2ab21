// Files of weights made by hand, right and wrong ones. Written beside
// shared/detector/safetensors.ts on purpose: what the engine reads and writes is checked by code
// that the product does not use.

export interface Entry {
  dtype: string;
  shape: number[];
  bytes: Uint8Array;
}

export const f32 = (shape: number[], values: number[]): Entry => ({
  dtype: "F32",
  shape,
  bytes: new Uint8Array(Float32Array.from(values).buffer),
});

/** A file of a header as it is given and a body. */
export function fileOf(header: string, body: Uint8Array): Uint8Array {
  const text = new TextEncoder().encode(header);
  const file = new Uint8Array(8 + text.length + body.length);
  new DataView(file.buffer).setBigUint64(0, BigInt(text.length), true);
  file.set(text, 8);
  file.set(body, 8 + text.length);
  return file;
}

export function safetensors(
  entries: Record<string, Entry>,
  metadata?: Record<string, string>,
): Uint8Array {
  const header: Record<string, unknown> = metadata ? { __metadata__: metadata } : {};
  const parts: Uint8Array[] = [];
  let offset = 0;
  for (const [name, { dtype, shape, bytes }] of Object.entries(entries)) {
    header[name] = { dtype, shape, data_offsets: [offset, offset + bytes.length] };
    offset += bytes.length;
    parts.push(bytes);
  }
  return fileOf(JSON.stringify(header), Buffer.concat(parts));
}

export interface Header {
  [name: string]: { dtype: string; shape: number[]; data_offsets: [number, number] };
}

/** The header of a file, without its metadata. */
export function headerOf(file: Buffer): Header {
  const length = Number(file.readBigUInt64LE(0));
  const { __metadata__, ...tensors } = JSON.parse(file.toString("utf8", 8, 8 + length));
  return tensors;
}
