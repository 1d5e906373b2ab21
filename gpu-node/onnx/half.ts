// Half-precision numbers, as IEEE 754 lays out their 16 bits.

const view = new DataView(new ArrayBuffer(4));

export function halfToFloat(half: number): number {
  const sign = half & 0x8000 ? -1 : 1;
  const exponent = (half >> 10) & 31;
  const fraction = half & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** The nearest half, ties to even; past the largest is infinity. */
export function floatToHalf(value: number): number {
  view.setFloat32(0, value);
  const bits = view.getUint32(0);
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;
  // 65520 and more round past the largest half.
  if (magnitude >= 0x477ff000) return sign | 0x7c00;
  if (magnitude < 0x38800000) {
    const scaled = Math.abs(Math.fround(value)) * 2 ** 24;
    const below = Math.floor(scaled);
    const rest = scaled - below;
    return sign | (below + Number(rest > 0.5 || (rest === 0.5 && below % 2 === 1)));
  }
  const rounded = magnitude + 0xfff + ((magnitude >>> 13) & 1);
  return sign | ((rounded - 0x38000000) >>> 13);
}
