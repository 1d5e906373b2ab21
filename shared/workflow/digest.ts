// SHA-256 of a text at once: keys of values are made by the thousand, within steps that take
// microseconds, and what the platforms give (`crypto.subtle`) makes each of them wait its turn.

const PRIMES = (() => {
  const primes: number[] = [];
  for (let number = 2; primes.length < 64; number++)
    if (primes.every((prime) => number % prime !== 0)) primes.push(number);
  return primes;
})();

/** The first 32 bits of a root's fraction. */
const fraction = (root: number) => ((root - Math.floor(root)) * 2 ** 32) | 0;
const CONSTANTS = Int32Array.from(PRIMES, (prime) => fraction(Math.cbrt(prime)));
const INITIAL = Int32Array.from(PRIMES.slice(0, 8), (prime) => fraction(Math.sqrt(prime)));

const encoder = new TextEncoder();
const turned = (word: number, bits: number) => (word >>> bits) | (word << (32 - bits));

const WORDS = new Int32Array(64);

/** The block of 64 bytes at an offset into the eight words. */
function compress(hash: Int32Array, view: DataView, offset: number): void {
  const words = WORDS;
  for (let index = 0; index < 16; index++) words[index] = view.getInt32(offset + index * 4);
  for (let index = 16; index < 64; index++) {
    const early = words[index - 15] as number;
    const late = words[index - 2] as number;
    const first = turned(early, 7) ^ turned(early, 18) ^ (early >>> 3);
    const second = turned(late, 17) ^ turned(late, 19) ^ (late >>> 10);
    words[index] =
      ((words[index - 16] as number) + first + (words[index - 7] as number) + second) | 0;
  }
  let [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0] = hash;
  for (let index = 0; index < 64; index++) {
    const sum = turned(e, 6) ^ turned(e, 11) ^ turned(e, 25);
    const choice = (e & f) ^ (~e & g);
    const constant = (CONSTANTS[index] as number) + (words[index] as number);
    const added = (h + sum + choice + constant) | 0;
    const majority = (a & b) ^ (a & c) ^ (b & c);
    const started = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + majority;
    h = g;
    g = f;
    f = e;
    e = (d + added) | 0;
    d = c;
    c = b;
    b = a;
    a = (added + started) | 0;
  }
  const last = [a, b, c, d, e, f, g, h];
  for (let index = 0; index < 8; index++)
    hash[index] = ((hash[index] as number) + (last[index] as number)) | 0;
}

/** Bytes of a text that is short enough, with what stands behind it: made once for all of them. */
const SCRATCH = new Uint8Array(4_096);
const SCRATCH_VIEW = new DataView(SCRATCH.buffer);
/** Bytes that a character of a text takes in UTF-8. */
const CHARACTER_BYTES_MAX = 3;
const BLOCK_BYTES = 64;
/** Bytes of what ends a text, and of its length. */
const END_BYTES = 9;
const HASH = new Int32Array(8);

const wholeBlocks = (bytes: number) => Math.ceil((bytes + END_BYTES) / BLOCK_BYTES) * BLOCK_BYTES;

/** The SHA-256 of a text's UTF-8, in hexadecimal digits. */
export function digestOf(text: string): string {
  if (wholeBlocks(CHARACTER_BYTES_MAX * text.length) <= SCRATCH.length) {
    return digestOfFirst(encoder.encodeInto(text, SCRATCH).written, SCRATCH, SCRATCH_VIEW);
  }
  const bytes = encoder.encode(text);
  const padded = new Uint8Array(wholeBlocks(bytes.length));
  padded.set(bytes);
  return digestOfFirst(bytes.length, padded, new DataView(padded.buffer));
}

/** The digest of so many bytes in front; what stands behind them is overwritten. */
function digestOfFirst(bytes: number, padded: Uint8Array, view: DataView): string {
  const end = wholeBlocks(bytes);
  padded.fill(0, bytes, end);
  padded[bytes] = 0x80;
  view.setUint32(end - 8, Math.floor(bytes / 2 ** 29));
  view.setUint32(end - 4, (bytes * 8) >>> 0);
  HASH.set(INITIAL);
  for (let offset = 0; offset < end; offset += BLOCK_BYTES) compress(HASH, view, offset);
  let digits = "";
  for (const word of HASH) digits += (word >>> 0).toString(16).padStart(8, "0");
  return digits;
}
