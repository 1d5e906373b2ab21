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

/** The SHA-256 of a text's UTF-8, in hexadecimal digits. */
export function digestOf(text: string): string {
  const bytes = encoder.encode(text);
  const blocks = Math.ceil((bytes.length + 9) / 64);
  const padded = new Uint8Array(blocks * 64);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setUint32(padded.length - 8, Math.floor(bytes.length / 2 ** 29));
  view.setUint32(padded.length - 4, (bytes.length * 8) >>> 0);
  const hash = INITIAL.slice();
  for (let offset = 0; offset < padded.length; offset += 64) compress(hash, view, offset);
  return Array.from(hash, (word) => (word >>> 0).toString(16).padStart(8, "0")).join("");
}
