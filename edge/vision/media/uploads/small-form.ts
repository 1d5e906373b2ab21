// A small form of one file, as every client writes it: its body is read whole and the file found in
// it at once, where the parser of all forms takes a tenth of what a prediction takes in a Worker.
// What is written in any other way is that parser's, from the same bytes.

import { Buffer } from "node:buffer";
import { joined } from "../../../../shared/tasks/line.ts";
import { byteReader, CHUNK_BYTES, malformed } from "./form.ts";

/** Bytes of a whole form. */
export const SMALL_FORM_BYTES_MAX = 1024 * 1024;
/** Bytes of the boundary and of the headers of its part. */
const HEAD_BYTES_MAX = 2_048;

const PLAIN_TYPE = /^multipart\/form-data; ?boundary=([\w-]{1,70})$/i;
// Names of headers have any case, that of the field has one.
const PLAIN_HEAD =
  /^[Cc]ontent-[Dd]isposition: form-data; name="file"; filename="[ !#$&-[\]-~]+"(\r\n[Cc]ontent-[Tt]ype: [!-~]+)?$/;

/** A small form as it is taken in. */
interface SmallBody {
  /** Bytes that its sender announced. */
  announced: number;
  /** Hears of each piece before it is kept. */
  hold: (bytes: number) => void;
  /** Says that nobody wants it any more. */
  unwanted?: AbortSignal | undefined;
}

/**
 * The whole body of a small form. Where `hold` fails, or the signal comes, nothing is kept, the
 * rest passes, and the body fails so.
 */
export async function readSmallBody(
  body: ReadableStream<Uint8Array>,
  { announced, hold, unwanted }: SmallBody,
): Promise<Uint8Array<ArrayBuffer>> {
  const reader = byteReader(body);
  const pieces: Uint8Array[] = [];
  let left = announced;
  let failure: { cause: unknown } | null = null;
  const letGo = (cause: unknown) => {
    failure ??= { cause };
    pieces.length = 0;
  };
  const leave = () => letGo(unwanted?.reason);
  unwanted?.addEventListener("abort", leave);
  try {
    while (left > 0) {
      const wanted = Math.min(CHUNK_BYTES, left);
      const { done, value } = await reader.readAtLeast(wanted, new Uint8Array(wanted));
      if (done || !value) break;
      left -= value.length;
      if (failure) continue;
      try {
        hold(value.length);
        pieces.push(value);
      } catch (cause) {
        letGo(cause);
      }
    }
  } catch (thrown) {
    throw malformed(thrown);
  } finally {
    unwanted?.removeEventListener("abort", leave);
  }
  // Only what is called in the loop sets it, which the compiler does not follow.
  const failed = failure as { cause: unknown } | null;
  if (failed) throw failed.cause;
  // The reader's pieces are of memory that was made for them here.
  return joined(pieces) as Uint8Array<ArrayBuffer>;
}

/** Whether a form of this type may be a plain one. */
export const maybePlain = (contentType: string | null): contentType is string =>
  PLAIN_TYPE.test(contentType ?? "");

/**
 * The bytes of the file of a form that has the one part `file`, with its two usual headers; null
 * for any other form, also one that is broken or whose file is empty.
 */
export function plainFile(
  whole: Uint8Array<ArrayBuffer>,
  contentType: string,
): Uint8Array<ArrayBuffer> | null {
  const boundary = `--${PLAIN_TYPE.exec(contentType)?.[1] ?? ""}`;
  const bytes = Buffer.from(whole.buffer, whole.byteOffset, whole.length);
  const head = bytes.toString("latin1", 0, HEAD_BYTES_MAX);
  const opening = `${boundary}\r\n`;
  const headEnd = head.indexOf("\r\n\r\n");
  if (!head.startsWith(opening) || headEnd < opening.length) return null;
  if (!PLAIN_HEAD.test(head.slice(opening.length, headEnd))) return null;
  const from = headEnd + 4;
  // From the line's end before the file on, which a boundary may take for its own.
  const to = bytes.indexOf(`\r\n${boundary}`, from - 2, "latin1");
  if (to <= from) return null;
  const closing = bytes.toString("latin1", to + 2 + boundary.length);
  return closing === "--\r\n" || closing === "--" ? whole.subarray(from, to) : null;
}
