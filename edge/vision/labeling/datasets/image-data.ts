// LabelMe's files hold their image as base64, which is most of their bytes and no label. It is left
// out while a text is read, so that bounds on texts are bounds on labels.

const KEY = Buffer.from('"imageData"');
const QUOTE = 0x22;
/** Blanks and the colon between a key and its value. */
const BETWEEN: readonly number[] = [0x20, 0x09, 0x0a, 0x0d, 0x3a];

/**
 * The bytes of a JSON text, where each `imageData` that is a text becomes an empty one. A key is
 * never mistaken: within a text its quotes would be escaped.
 */
export async function* withoutImageData(
  chunks: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array> {
  let state: "text" | "between" | "value" = "text";
  let held: Buffer = Buffer.alloc(0);
  for await (const chunk of chunks) {
    const bytes = Buffer.concat([held, chunk]);
    held = Buffer.alloc(0);
    for (let from = 0; from < bytes.length; ) {
      if (state === "text") {
        const key = bytes.indexOf(KEY, from);
        // A key may begin in this chunk and end in the next.
        const end = key < 0 ? Math.max(from, bytes.length - KEY.length + 1) : key + KEY.length;
        yield bytes.subarray(from, end);
        if (key < 0) held = bytes.subarray(end);
        else state = "between";
        from = key < 0 ? bytes.length : end;
      } else if (state === "between") {
        let end = from;
        while (end < bytes.length && BETWEEN.includes(bytes[end] ?? 0)) end += 1;
        if (end < bytes.length) {
          state = bytes[end] === QUOTE ? "value" : "text";
          if (state === "value") end += 1;
        }
        yield bytes.subarray(from, end);
        from = end;
      } else {
        const end = bytes.indexOf(QUOTE, from);
        if (end >= 0) state = "text";
        from = end < 0 ? bytes.length : end;
      }
    }
  }
  yield held;
}
