// Rows as columns: what an object decodes to, what a merge yields and what the wire writers read.
// Half a million rows are a few typed arrays here; as JavaScript objects they would not fit.

/** The vintage that wrote a row. */
export interface WrittenBy {
  seq: number;
  /** Knowledge time, epoch milliseconds. */
  asOf: number;
  reconstructed: boolean;
}

/** Indexes into a dictionary. */
export type Codes = Uint8Array | Uint16Array | Uint32Array;

/**
 * Rows in the store's order: valid time, instrument, then version. All versions of a row are in one
 * batch, so each batch can be judged by itself.
 */
export interface Batch {
  length: number;
  /** Valid times, epoch milliseconds. */
  datetime: Float64Array;
  instrument: Codes;
  instruments: readonly string[];
  /** One array per value column; NaN is the wire's null. */
  values: readonly Float64Array[];
  vintage: Codes;
  vintages: readonly WrittenBy[];
  /** 1 where a vintage ended a row; null when none did. */
  retracted: Uint8Array | null;
  /** For histories: when a version was superseded or retracted; NaN while it holds. */
  knownTo?: Float64Array;
}

/** The rows `[from, to)` of a batch, without copying. */
export function sliceBatch(batch: Batch, from: number, to: number): Batch {
  if (from === 0 && to === batch.length) return batch;
  return {
    ...batch,
    length: to - from,
    datetime: batch.datetime.subarray(from, to),
    instrument: batch.instrument.subarray(from, to),
    values: batch.values.map((column) => column.subarray(from, to)),
    vintage: batch.vintage.subarray(from, to),
    retracted: batch.retracted?.subarray(from, to) ?? null,
    ...(batch.knownTo && { knownTo: batch.knownTo.subarray(from, to) }),
  };
}

/** The rows of a batch at the given positions. */
export function pickRows(batch: Batch, positions: Uint32Array): Batch {
  const { length } = positions;
  // One instrument: every code is the same.
  const single = batch.instruments.length === 1;
  return {
    ...batch,
    length,
    datetime: pickFloats(batch.datetime, positions),
    instrument: single ? new Uint8Array(length) : pickCodes(batch.instrument, positions),
    values: batch.values.map((column) => pickFloats(column, positions)),
    vintage: pickCodes(batch.vintage, positions),
    retracted: batch.retracted && (pickCodes(batch.retracted, positions) as Uint8Array),
  };
}

function pickFloats(from: Float64Array, positions: Uint32Array): Float64Array {
  const to = new Float64Array(positions.length);
  for (let row = 0; row < to.length; row++) to[row] = from[positions[row] as number] as number;
  return to;
}

function pickCodes(from: Codes, positions: Uint32Array): Codes {
  const to = new (from.constructor as new (length: number) => Codes)(positions.length);
  for (let row = 0; row < to.length; row++) to[row] = from[positions[row] as number] as number;
  return to;
}

/**
 * A dictionary of the entries that rows refer to, and of nothing else: the batch's own dictionary
 * may hold entries that were learned after its reader's knowledge time.
 */
export function usedEntries<Entry>(
  codes: Codes,
  entries: readonly Entry[],
): { codes: Codes; entries: readonly Entry[] } {
  if (entries.length === 1 && codes.length > 0) return { codes, entries };
  const used: Entry[] = [];
  const codeOf = new Int32Array(entries.length).fill(-1);
  const recoded = new Uint32Array(codes.length);
  for (let row = 0; row < codes.length; row++) {
    const code = codes[row] as number;
    if (codeOf[code] === -1) codeOf[code] = used.push(entries[code] as Entry) - 1;
    recoded[row] = codeOf[code] as number;
  }
  return { codes: recoded, entries: used };
}

/** The first position whose valid time is not before `instant`. */
export function lowerBound(datetime: Float64Array, instant: number): number {
  let [low, high] = [0, datetime.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((datetime[middle] as number) < instant) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Translates a batch's codes to a builder's. */
interface CodeMap {
  instrument(code: number): number;
  vintage(code: number): number;
}

/** The least that arrays of a builder grow to. */
const BUILDER_ROWS_MIN = 256;

/** Collects rows of any batches, under dictionaries of its own; without rows it takes no memory. */
export class BatchBuilder {
  length = 0;
  #datetime = new Float64Array(0);
  #instrument = new Uint32Array(0);
  #values: Float64Array[];
  #vintage = new Uint32Array(0);
  #retracted = new Uint8Array(0);
  #anyRetracted = false;
  /** Until when each row was known, in histories only. */
  #knownTo: Float64Array | null = null;
  readonly #instruments = new Map<string, number>();
  /** Position in `#writers` by `seq`. */
  readonly #vintages = new Map<number, number>();
  #writers: WrittenBy[] = [];
  #known: { batch: Batch; codes: CodeMap } | null = null;

  constructor(columns: number) {
    this.#values = Array.from({ length: columns }, () => new Float64Array(0));
  }

  /** Valid time of the newest row; NaN when there is none. */
  get lastDatetime(): number {
    return this.length === 0 ? NaN : (this.#datetime[this.length - 1] as number);
  }

  /** Appends the rows `[from, to)` of a batch. */
  append(batch: Batch, from: number, to: number) {
    this.#reserve(this.length + to - from);
    const codes = this.#codesOf(batch);
    for (let row = from, at = this.length; row < to; row++, at++) {
      this.#datetime[at] = batch.datetime[row] as number;
      this.#instrument[at] = codes.instrument(batch.instrument[row] as number);
      this.#vintage[at] = codes.vintage(batch.vintage[row] as number);
      this.#retracted[at] = batch.retracted?.[row] ?? 0;
    }
    for (let column = 0; column < this.#values.length; column++) {
      const [theirs, mine] = [batch.values[column] as Float64Array, this.#values[column]];
      for (let row = from, at = this.length; row < to; row++, at++) {
        (mine as Float64Array)[at] = theirs[row] as number;
      }
    }
    if (batch.retracted) this.#anyRetracted = true;
    if (batch.knownTo) {
      this.#knownTo ??= new Float64Array(this.#datetime.length);
      this.#knownTo.set(batch.knownTo.subarray(from, to), this.length);
    }
    this.length += to - from;
  }

  /** Hands the rows over and starts afresh. */
  take(): Batch {
    const { length } = this;
    const batch: Batch = {
      length,
      datetime: this.#datetime.slice(0, length),
      instrument: this.#instrument.slice(0, length),
      instruments: [...this.#instruments.keys()],
      values: this.#values.map((column) => column.slice(0, length)),
      vintage: this.#vintage.slice(0, length),
      vintages: this.#writers,
      retracted: this.#anyRetracted ? this.#retracted.slice(0, length) : null,
      ...(this.#knownTo && { knownTo: this.#knownTo.slice(0, length) }),
    };
    this.length = 0;
    this.#anyRetracted = false;
    this.#instruments.clear();
    this.#vintages.clear();
    this.#writers = [];
    this.#known = null;
    return batch;
  }

  #codesOf(batch: Batch) {
    // Consecutive appends come mostly from one batch.
    if (this.#known?.batch !== batch) this.#known = { batch, codes: this.#remap(batch) };
    return this.#known.codes;
  }

  /** A batch's codes in the builder's dictionaries, each looked up once. */
  #remap(batch: Batch): CodeMap {
    const instruments = new Int32Array(batch.instruments.length).fill(-1);
    const vintages = new Int32Array(batch.vintages.length).fill(-1);
    return {
      instrument: (code: number): number => {
        let mine = instruments[code] as number;
        if (mine < 0) {
          const name = batch.instruments[code] as string;
          mine = this.#instruments.get(name) ?? this.#instruments.size;
          this.#instruments.set(name, mine);
          instruments[code] = mine;
        }
        return mine;
      },
      vintage: (code: number): number => {
        let mine = vintages[code] as number;
        if (mine < 0) {
          const writer = batch.vintages[code] as WrittenBy;
          mine = this.#vintages.get(writer.seq) ?? this.#writers.length;
          if (mine === this.#writers.length) this.#writers.push(writer);
          this.#vintages.set(writer.seq, mine);
          vintages[code] = mine;
        }
        return mine;
      },
    };
  }

  #reserve(capacity: number) {
    if (capacity <= this.#datetime.length) return;
    const grown = Math.max(capacity, this.#datetime.length * 2, BUILDER_ROWS_MIN);
    const grow = <Column extends Float64Array | Uint32Array | Uint8Array>(from: Column): Column => {
      const to = new (from.constructor as new (length: number) => Column)(grown);
      to.set(from);
      return to;
    };
    this.#datetime = grow(this.#datetime);
    this.#instrument = grow(this.#instrument);
    this.#values = this.#values.map(grow);
    this.#vintage = grow(this.#vintage);
    this.#retracted = grow(this.#retracted);
    this.#knownTo &&= grow(this.#knownTo);
  }
}
