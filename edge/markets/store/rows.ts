// The bitemporal rules of a commit, pure: what it changes, and its canonical form.
// No I/O, no clock. Ranges of valid time are half-open `[from, to)` unless a name says `last`.

/**
 * One observation. `values` has one number per value column of the series; NaN is the wire's null.
 */
export interface Row {
  /** Valid time, epoch milliseconds. */
  datetime: number;
  instrumentId: string;
  values: readonly number[];
}

/** A row as one vintage wrote it; `retracted` rows end an earlier one. */
export interface ChangedRow extends Row {
  retracted: boolean;
}

/** A row of a state, with the vintage that last wrote it. */
export interface StoredRow extends Row {
  asOf: number;
  reconstructed: boolean;
}

/** Valid time, epoch milliseconds, half-open `[from, to)`. */
export interface Range {
  from: number;
  to: number;
}

/** What a commit changes, with counts of rows. */
export interface Changes {
  rows: ChangedRow[];
  inserted: number;
  revised: number;
  retracted: number;
  /** Valid times of the rows revised or retracted. */
  changedAt: number[];
}

/** What identifies a row within a series. */
export const keyOf = (row: Row) => `${row.datetime} ${row.instrumentId}`;

const byDatetime = (left: Row, right: Row) =>
  left.datetime - right.datetime ||
  (left.instrumentId < right.instrumentId ? -1 : left.instrumentId > right.instrumentId ? 1 : 0);

/**
 * Whether a row that is learned at `asOf` is later than its first publication can be: the one rule
 * that tells a reconstructed row from a true vintage outside backfills.
 */
export const isLate = (
  { datetime }: Pick<Row, "datetime">,
  asOf: number,
  publishedWithinMs: number,
): boolean => asOf > datetime + publishedWithinMs;

/** Rows in the store's order: valid time, then instrument. */
export const sorted = <R extends Row>(rows: Iterable<R>): R[] => [...rows].sort(byDatetime);

/** −0 and 0 are one value; every NaN is null. */
const sameValues = (left: readonly number[], right: readonly number[]) =>
  left.length === right.length &&
  left.every(
    (value, index) => value === right[index] || (value !== value && right[index] !== right[index]),
  );

/**
 * The changes that turn `current` into `incoming` over the covered range. Only the latest state is
 * compared, since real data goes A → B → A. A current row that is absent from `incoming` is a
 * retraction inside the range and untouched outside it.
 */
export function diff(current: readonly Row[], incoming: readonly Row[], covered: Range): Changes {
  const before = new Map(current.map((row) => [keyOf(row), row]));
  const changes: Changes = { rows: [], inserted: 0, revised: 0, retracted: 0, changedAt: [] };
  for (const row of incoming) {
    const old = before.get(keyOf(row));
    before.delete(keyOf(row));
    if (old && sameValues(old.values, row.values)) continue;
    if (old) {
      changes.revised++;
      changes.changedAt.push(row.datetime);
    } else changes.inserted++;
    changes.rows.push({ ...row, retracted: false });
  }
  for (const row of before.values()) {
    if (row.datetime < covered.from || row.datetime >= covered.to) continue;
    const { datetime, instrumentId, values } = row;
    changes.rows.push({ datetime, instrumentId, values: values.map(() => NaN), retracted: true });
    changes.retracted++;
    changes.changedAt.push(datetime);
  }
  changes.rows = sorted(changes.rows);
  return changes;
}

/** Changes that insert these rows and do nothing else. */
export const insertionsOf = (rows: ChangedRow[]): Changes => ({
  rows,
  inserted: rows.length,
  revised: 0,
  retracted: 0,
  changedAt: [],
});

/**
 * Rows as canonical text, for hashes: equal economic content over an equal range gives equal text,
 * whatever the spelling of its numbers.
 */
export const canonicalText = (rows: readonly (Row & { retracted?: boolean })[], range: Range) =>
  [
    `${range.from}|${range.to}\n`,
    ...rows.map((row) => {
      const values = row.values.map((value) => (value !== value ? "null" : String(value + 0)));
      return `${row.datetime}|${row.instrumentId}|${row.retracted ? "x" : values.join("|")}\n`;
    }),
  ].join("");
