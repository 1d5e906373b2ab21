// Small files of the kinds that are taken: real headers, bodies of no meaning. What decodes them is
// tested with real clips, where a node is.

/** An MP4 by its first bytes, of this size. */
export function mp4(bytes = 1_000, brand = "isom"): Uint8Array<ArrayBuffer> {
  const file = new Uint8Array(bytes);
  file.set([0, 0, 0, 24]);
  file.set(new TextEncoder().encode(`ftyp${brand}`), 4);
  return file;
}

export const avi = () => new TextEncoder().encode(`RIFF____AVI ${"x".repeat(100)}`);
export const webm = () =>
  new Uint8Array([
    0x1a,
    0x45,
    0xdf,
    0xa3,
    ...new TextEncoder().encode(`____webm${"x".repeat(90)}`),
  ]);
export const text = () => new TextEncoder().encode("just a text, however it is called".repeat(9));

/** A PNG's header. */
export function png(width = 640, height = 480): Uint8Array<ArrayBuffer> {
  const file = new Uint8Array(200);
  file.set([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 13]);
  file.set(new TextEncoder().encode("IHDR"), 12);
  new DataView(file.buffer).setUint32(16, width);
  new DataView(file.buffer).setUint32(20, height);
  return file;
}

/** A JPEG's header after a segment of metadata of this size. */
export function jpeg(width = 640, height = 480, metadata = 1_000): Uint8Array<ArrayBuffer> {
  const file = new Uint8Array(metadata + 100);
  const view = new DataView(file.buffer);
  view.setUint32(0, 0xffd8ffe1);
  view.setUint16(4, metadata);
  const frame = 4 + metadata;
  view.setUint32(frame, 0xffc00011);
  file[frame + 4] = 8;
  view.setUint16(frame + 5, height);
  view.setUint16(frame + 7, width);
  return file;
}

export interface SentFile {
  field?: string;
  filename?: string;
  content: Uint8Array<ArrayBuffer>;
}

/** A form with its parts in the given order. */
export function form(...parts: ([name: string, value: string] | SentFile)[]): FormData {
  const body = new FormData();
  for (const part of parts) {
    if (Array.isArray(part)) body.append(part[0], part[1]);
    else {
      const blob = new Blob([part.content], { type: "application/x-lie" });
      body.append(part.field ?? "file", blob, part.filename ?? "clip.mp4");
    }
  }
  return body;
}

/** A streamed form of one MP4 of this size, never whole in memory; `send` says when to go on. */
export function streamedForm(
  projectId: string,
  bytes: number,
  { announced }: { announced: boolean } = { announced: true },
) {
  const boundary = `b${crypto.randomUUID()}`;
  const text = new TextEncoder();
  const opening = text.encode(
    `--${boundary}\r\nContent-Disposition: form-data; name="project_id"\r\n\r\n${projectId}\r\n` +
      `--${boundary}\r\nContent-Disposition: form-data; name="file"; filename="big.mp4"\r\n\r\n`,
  );
  const closing = text.encode(`\r\n--${boundary}--\r\n`);
  const block = new Uint8Array(256 * 1024);
  for (let index = 0; index < block.length; index += 1) block[index] = (index * 7919) >> 3;
  async function* chunks() {
    yield opening;
    yield mp4(64);
    for (let left = bytes - 64; left > 0; left -= block.length) {
      yield left < block.length ? block.subarray(0, left) : block;
    }
    yield closing;
  }
  const length = opening.length + bytes + closing.length;
  return {
    chunks,
    headers: {
      "Content-Type": `multipart/form-data; boundary=${boundary}`,
      ...(announced ? { "Content-Length": String(length) } : {}),
    } as Record<string, string>,
  };
}
