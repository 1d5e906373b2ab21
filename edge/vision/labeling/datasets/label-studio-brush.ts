// Label Studio's brush strokes as rings: the alpha of an image of four channels, row by row, whose
// values are packed into runs and lists as thi.ng's rle-pack does it.

import {
  BrokenMask,
  type MaskBudget,
  RUNS_MAX,
  ringOfRows,
} from "../../../../shared/detector/rings.ts";

/** Values of a pixel; the last one is its alpha. */
const CHANNELS = 4;
const ENDS_EARLY = "its run lengths end too early";

/** Reads numbers of so many bits from bytes, the highest bit first. */
class BitReader {
  readonly #bytes: readonly number[];
  #offset = 0;

  constructor(bytes: readonly number[]) {
    this.#bytes = bytes;
  }

  read(bits: number): number {
    if (this.#offset + bits > 8 * this.#bytes.length) throw new BrokenMask(ENDS_EARLY);
    let value = 0;
    for (let left = bits; left > 0; ) {
      const byte = this.#bytes[this.#offset >> 3] ?? 0;
      const here = 8 - (this.#offset & 7);
      const taken = Math.min(left, here);
      value = value * 2 ** taken + ((byte >> (here - taken)) & (2 ** taken - 1));
      this.#offset += taken;
      left -= taken;
    }
    return value;
  }
}

/** Run lengths of zeros and ones in turn, zeros first. */
class Runs {
  readonly counts: number[] = [];
  #isOn = false;
  #run = 0;

  add(isOn: boolean, length: number) {
    if (length > 0 && isOn !== this.#isOn) {
      if (this.counts.push(this.#run) > RUNS_MAX) throw new BrokenMask("it is too detailed");
      this.#isOn = isOn;
      this.#run = 0;
    }
    this.#run += length;
  }

  end(): number[] {
    return [...this.counts, this.#run];
  }
}

/** Pixels whose alpha is one of the first `values` values. */
const pixelsBefore = (values: number) => Math.floor(values / CHANNELS);

/**
 * The ring of a stroke on an image of these sides; null where it covers nothing. Fails with
 * BrokenMask.
 */
export function ringOfBrush(
  rle: readonly number[],
  { width, height }: { width: number; height: number },
  budget: MaskBudget,
): number[] | null {
  const input = new BitReader(rle);
  const values = input.read(32);
  if (values !== width * height * CHANNELS) {
    throw new BrokenMask(`its run lengths are not of ${width} × ${height} pixels`);
  }
  const wordBits = input.read(5) + 1;
  const lengthBits = [0, 0, 0, 0].map(() => input.read(4) + 1);
  const runs = new Runs();
  for (let at = 0; at < values; ) {
    const isRun = input.read(1) === 1;
    const end = at + 1 + input.read(lengthBits[input.read(2)] ?? 0);
    if (end > values) throw new BrokenMask("its run lengths are of more pixels than it has");
    if (isRun) {
      runs.add(input.read(wordBits) > 0, pixelsBefore(end) - pixelsBefore(at));
      at = end;
    }
    for (; at < end; at++) {
      const value = input.read(wordBits);
      if (at % CHANNELS === CHANNELS - 1) runs.add(value > 0, 1);
    }
  }
  return ringOfRows({ size: [height, width], counts: runs.end() }, budget);
}
