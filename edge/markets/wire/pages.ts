// The encodings of a Parquet page, from typed arrays to bytes. Pure.

import type { Codes } from "../store/columns.ts";

const TWO_32 = 4_294_967_296;

/** Whole numbers, times a whole factor up to 1,000, as little-endian 64-bit integers. */
export function int64s(values: Float64Array, factor = 1): Uint8Array {
  const words = new Int32Array(values.length * 2);
  for (let index = 0; index < values.length; index++) {
    const value = values[index] as number;
    const high = Math.floor(value / TWO_32);
    // The product may be beyond a double's whole numbers; its halves are not.
    const low = (value - high * TWO_32) * factor;
    const carried = Math.floor(low / TWO_32);
    words[2 * index] = low - carried * TWO_32;
    words[2 * index + 1] = high * factor + carried;
  }
  return new Uint8Array(words.buffer);
}

/** One bit a row, least significant first. */
export function packedFlags(rows: number, isSet: (row: number) => boolean): Uint8Array {
  const bits = new Uint8Array(Math.ceil(rows / 8));
  for (let row = 0; row < rows; row++) {
    if (isSet(row)) bits[row >> 3] = (bits[row >> 3] as number) | (1 << (row & 7));
  }
  return bits;
}

/** As `packedFlags`, of an array of zeros and ones. */
export function packedBits(flags: Uint8Array): Uint8Array {
  const bits = new Uint8Array(Math.ceil(flags.length / 8));
  if (!flags.includes(1)) return bits;
  for (let row = 0; row < flags.length; row++) {
    bits[row >> 3] = (bits[row >> 3] as number) | ((flags[row] as number) << (row & 7));
  }
  return bits;
}

/** Flags of one bit as definition levels have them: a run where all are equal. */
export const flagLevels = (rows: number, set: number, isSet: (row: number) => boolean) =>
  set === 0 || set === rows
    ? repeated(rows, set === 0 ? 0 : 1)
    : joined(varint(Math.ceil(rows / 8) * 2 + 1), packedFlags(rows, isSet));

/** Codes into a dictionary of `entries`: one run where there is one entry, else bit-packed. */
export function packedCodes(codes: Codes, entries: number): Uint8Array {
  if (entries <= 1) return joined(Uint8Array.of(1), repeated(codes.length, 0));
  const width = 32 - Math.clz32(entries - 1);
  const groups = Math.ceil(codes.length / 8);
  const packed = new Uint8Array(groups * width);
  let [bits, held, at] = [0, 0, 0];
  for (let index = 0; index < codes.length; index++) {
    // Up to 7 bits wait: with a code of 25 bits at most they fit 32.
    held |= (codes[index] as number) << bits;
    for (bits += width; bits >= 8; bits -= 8) {
      packed[at++] = held & 255;
      held >>>= 8;
    }
  }
  if (bits > 0) packed[at] = held;
  return joined(Uint8Array.of(width), varint(groups * 2 + 1), packed);
}

/** The different ones of some numbers, in the order of their first occurrence. */
export interface NumberDictionary {
  entries: Float64Array;
  codes: Codes;
}

/** A dictionary will not pay where so many first rows hold more different values than this. */
const SAMPLE = { rows: 2_048, entriesMax: 1_843 };

/**
 * A dictionary of numbers, bit by bit; null where it would have more than `entriesMax` entries, or
 * where hardly a number of the first rows occurs twice.
 */
export function numberDictionary(
  values: Float64Array,
  entriesMax: number,
): NumberDictionary | null {
  // The sample is asked by itself: a table for all the rows is large.
  const isLong = values.length > SAMPLE.rows;
  const sample = values.subarray(0, SAMPLE.rows);
  if (isLong && !dictionaryOf(sample, SAMPLE.entriesMax)) return null;
  return dictionaryOf(values, entriesMax);
}

function dictionaryOf(values: Float64Array, entriesMax: number): NumberDictionary | null {
  const words = new Int32Array(values.buffer, values.byteOffset, values.length * 2);
  const slots = new Int32Array(2 ** (34 - Math.clz32(entriesMax)));
  const mask = slots.length - 1;
  const entries = new Float64Array(entriesMax);
  const entryWords = new Int32Array(entries.buffer);
  const codes = new Uint32Array(values.length);
  let count = 0;
  for (let row = 0; row < values.length; row++) {
    const [low, high] = [words[2 * row] as number, words[2 * row + 1] as number];
    const hash = Math.imul(low ^ Math.imul(high, 0x9e3779b1), 0x85ebca6b);
    let slot = (hash ^ (hash >>> 15)) & mask;
    for (;;) {
      const code = (slots[slot] as number) - 1;
      if (code < 0) {
        if (count === entriesMax) return null;
        entries[count] = values[row] as number;
        slots[slot] = ++count;
        codes[row] = count - 1;
        break;
      }
      if (entryWords[2 * code] === low && entryWords[2 * code + 1] === high) {
        codes[row] = code;
        break;
      }
      slot = (slot + 1) & mask;
    }
  }
  return { entries: entries.slice(0, count), codes };
}

const BLOCK = 128;
const MINIBLOCKS = 4;
const MINIBLOCK = BLOCK / MINIBLOCKS;

/**
 * Whole numbers, times a whole factor, in Parquet's delta encoding of 64-bit integers: instants at
 * an even pace take no space to speak of. `hasExactDeltas` says of which numbers it is exact.
 */
export function deltaInt64s(values: Float64Array, factor = 1): Uint8Array {
  const count = values.length;
  const head = [
    ...varint(BLOCK),
    ...varint(MINIBLOCKS),
    ...varint(count),
    ...exactZigzag(BigInt(values[0] ?? 0) * BigInt(factor)),
  ];
  // A block: at most nine bytes of the least difference, the widths, and 53 bits a value.
  const out = new Uint8Array(head.length + Math.ceil(count / BLOCK) * (9 + MINIBLOCKS + 53 * 16));
  out.set(head);
  let at = head.length;
  const deltas = new Float64Array(BLOCK);
  for (let from = 1; from < count; from += BLOCK) {
    const length = Math.min(BLOCK, count - from);
    let [least, largest] = [Infinity, -Infinity];
    for (let index = 0; index < length; index++) {
      const delta =
        ((values[from + index] as number) - (values[from + index - 1] as number)) * factor;
      deltas[index] = delta;
      if (delta < least) least = delta;
      if (delta > largest) largest = delta;
    }
    for (const byte of zigzag(least)) out[at++] = byte;
    const widths = at;
    at += MINIBLOCKS;
    if (least === largest) continue;
    for (let miniblock = 0; miniblock * MINIBLOCK < length; miniblock++) {
      const start = miniblock * MINIBLOCK;
      const end = Math.min(start + MINIBLOCK, length);
      at = packMiniblock(deltas.subarray(start, end), least, {
        out,
        at,
        widthAt: widths + miniblock,
      });
    }
  }
  return out.subarray(0, at);
}

/**
 * Whether all differences of numbers between two bounds, times a factor, and the differences of
 * those, are whole numbers that a double holds.
 */
export const hasExactDeltas = (min: number, max: number, factor: number): boolean =>
  (max - min) * factor <= Number.MAX_SAFE_INTEGER / 2;

/** Writes up to 32 differences over the least one, bit-packed; returns the end. */
function packMiniblock(
  deltas: Float64Array,
  least: number,
  { out, at, widthAt }: { out: Uint8Array; at: number; widthAt: number },
): number {
  let largest = 0;
  for (const delta of deltas) largest = Math.max(largest, delta - least);
  const width = bitWidth(largest);
  out[widthAt] = width;
  // Arithmetic where bits would do: a value may be wider than the 32 bits of an integer operation.
  let [held, bits, end] = [0, 0, at];
  for (const delta of deltas) {
    let value = delta - least;
    for (let left = width; left > 0; ) {
      const take = Math.min(8 - bits, left);
      const scale = 2 ** take;
      held += (value % scale) * 2 ** bits;
      value = Math.floor(value / scale);
      bits += take;
      left -= take;
      if (bits < 8) continue;
      out[end++] = held;
      [held, bits] = [0, 0];
    }
  }
  if (bits > 0) out[end] = held;
  // A miniblock is always whole.
  return at + width * (MINIBLOCK / 8);
}

const bitWidth = (value: number) =>
  value < TWO_32 ? 32 - Math.clz32(value) : 64 - Math.clz32(Math.floor(value / TWO_32));

/** A value that fits a byte, repeated, in Parquet's run-length form. */
const repeated = (length: number, value: number) =>
  joined(varint(length * 2), Uint8Array.of(value));

const zigzag = (value: number) => varint(value < 0 ? -2 * value - 1 : 2 * value);

function exactZigzag(value: bigint): number[] {
  const bytes: number[] = [];
  for (let left = value < 0n ? -2n * value - 1n : 2n * value; ; left >>= 7n) {
    if (left < 128n) return [...bytes, Number(left)];
    bytes.push(Number(left & 127n) + 128);
  }
}

function varint(value: number): Uint8Array {
  const bytes: number[] = [];
  for (let left = value; ; left = Math.floor(left / 128)) {
    if (left < 128) return Uint8Array.from([...bytes, left]);
    bytes.push((left % 128) + 128);
  }
}

/** Bytes one after the other. */
export function joined(...parts: Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
