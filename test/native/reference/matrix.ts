// Products of matrices in doubles: panels of four rows and four columns, so that the inner loop
// works on registers. A matrix is a view with steps, so a transposed one costs nothing.

export interface View {
  values: Float64Array;
  /** Index of its first value. */
  offset: number;
  /** From a row to the next one, and from a column to the next one. */
  row: number;
  column: number;
}

export interface Extent {
  rows: number;
  inner: number;
  columns: number;
}

export const rowMajor = (values: Float64Array, columns: number, offset = 0): View => ({
  values,
  offset,
  row: columns,
  column: 1,
});
export const transposed = ({ values, offset, row, column }: View): View => ({
  values,
  offset,
  row: column,
  column: row,
});

/** Adds a · b to `out`. With `lower`, only panels that touch the lower triangle are worked out. */
export function multiplyAdd(a: View, b: View, out: View, extent: Extent, lower = false): void {
  const { rows, inner, columns } = extent;
  const right = packed(transposed(b), columns, inner);
  const left = new Float64Array(inner * 4);
  const sums = new Float64Array(16);
  for (let row = 0; row < rows; row += 4) {
    const height = Math.min(4, rows - row);
    pack(left, { ...a, offset: a.offset + row * a.row }, height, inner);
    for (let column = 0; column < columns; column += 4) {
      if (lower && column > row + 3) break;
      panel(left, right, column * inner, inner, sums);
      const width = Math.min(4, columns - column);
      for (let y = 0; y < height; y++) {
        let offset = out.offset + (row + y) * out.row + column * out.column;
        for (let x = 0; x < width; x++) {
          out.values[offset] = (out.values[offset] as number) + (sums[4 * y + x] as number);
          offset += out.column;
        }
      }
    }
  }
}

/** Four rows of a view as inner × 4; missing rows are zero. */
function pack(into: Float64Array, view: View, height: number, inner: number, offset = 0): void {
  const { values, row, column } = view;
  for (let y = 0; y < 4; y++) {
    let from = view.offset + y * row;
    for (let k = 0, to = offset + y; k < inner; k++, to += 4) {
      into[to] = y < height ? (values[from] as number) : 0;
      from += column;
    }
  }
}

function packed(view: View, rows: number, inner: number): Float64Array {
  const out = new Float64Array(Math.ceil(rows / 4) * 4 * inner);
  for (let row = 0; row < rows; row += 4) {
    pack(
      out,
      { ...view, offset: view.offset + row * view.row },
      Math.min(4, rows - row),
      inner,
      row * inner,
    );
  }
  return out;
}

function panel(
  a: Float64Array,
  b: Float64Array,
  bAt: number,
  inner: number,
  sums: Float64Array,
): void {
  for (let half = 0; half < 4; half += 2) {
    let [s00, s01, s02, s03, s10, s11, s12, s13] = [0, 0, 0, 0, 0, 0, 0, 0];
    for (let k = 0, p = half, q = bAt; k < inner; k++, p += 4, q += 4) {
      const a0 = a[p] as number;
      const a1 = a[p + 1] as number;
      const b0 = b[q] as number;
      const b1 = b[q + 1] as number;
      const b2 = b[q + 2] as number;
      const b3 = b[q + 3] as number;
      s00 += a0 * b0;
      s01 += a0 * b1;
      s02 += a0 * b2;
      s03 += a0 * b3;
      s10 += a1 * b0;
      s11 += a1 * b1;
      s12 += a1 * b2;
      s13 += a1 * b3;
    }
    const offset = 4 * half;
    sums[offset] = s00;
    sums[offset + 1] = s01;
    sums[offset + 2] = s02;
    sums[offset + 3] = s03;
    sums[offset + 4] = s10;
    sums[offset + 5] = s11;
    sums[offset + 6] = s12;
    sums[offset + 7] = s13;
  }
}
