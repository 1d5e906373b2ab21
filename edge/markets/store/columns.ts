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

/** The narrowest array that holds indexes into `size` entries. */
const arrayOf = (size: number) =>
  size <= 256 ? Uint8Array : size <= 65_536 ? Uint16Array : Uint32Array;

/** The narrowest codes that index `size` entries. */
export const codesFor = (size: number, rows: number): Codes => new (arrayOf(size))(rows);

/** Where the arrays of a batch come from; what is in them before they are written counts not. */
export interface Arrays {
  floats(name: string, rows: number): Float64Array;
  /** The narrowest codes that index `size` entries. */
  codes(name: string, size: number, rows: number): Codes;
}

/** New arrays each time. */
export const NEW_ARRAYS: Arrays = {
  floats: (_, rows) => new Float64Array(rows),
  codes: (_, size, rows) => codesFor(size, rows),
};

/**
 * The same arrays again by their names: a batch in them holds until the next one. A long read would
 * else take more time for new ones, and for collecting them, than for some of its columns.
 */
export class ReusedArrays implements Arrays {
  readonly #floats = new Map<string, ArrayBuffer>();
  readonly #codes = new Map<string, ArrayBuffer>();

  floats(name: string, rows: number): Float64Array {
    return new Float64Array(reserved(this.#floats, name, rows * 8), 0, rows);
  }

  codes(name: string, size: number, rows: number): Codes {
    const array = arrayOf(size);
    return new array(reserved(this.#codes, name, rows * array.BYTES_PER_ELEMENT), 0, rows);
  }
}

function reserved(buffers: Map<string, ArrayBuffer>, name: string, bytes: number): ArrayBuffer {
  const known = buffers.get(name);
  if (known && known.byteLength >= bytes) return known;
  const grown = new ArrayBuffer(bytes);
  buffers.set(name, grown);
  return grown;
}

/** The rows of a batch at the given positions. */
export function pickRows(batch: Batch, positions: Uint32Array, arrays = NEW_ARRAYS): Batch {
  const { length } = positions;
  const { instruments, vintages } = batch;
  const codes = (name: string, size: number, from: Codes) =>
    pick(from, positions, arrays.codes(name, size, length));
  return {
    ...batch,
    length,
    datetime: pick(batch.datetime, positions, arrays.floats("datetime", length)),
    instrument:
      instruments.length === 1
        ? arrays.codes("instrument", 1, length).fill(0)
        : codes("instrument", instruments.length, batch.instrument),
    values: batch.values.map((column, index) =>
      pick(column, positions, arrays.floats(`value ${index}`, length)),
    ),
    vintage: codes("vintage", vintages.length, batch.vintage),
    retracted: batch.retracted && (codes("retracted", 2, batch.retracted) as Uint8Array),
  };
}

function pick<Column extends Codes | Float64Array>(
  from: Column,
  positions: Uint32Array,
  to: Column,
): Column {
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

/** Translates a batch's codes of one column to a builder's. */
interface CodeMap {
  /** By the batch's code; below zero where no row had it yet. */
  mine: Int32Array;
  /** Finds the builder's code of one that no row had yet. */
  add: (code: number) => number;
}

/** Writes codes into a builder's column, translated. */
function recode(theirs: Codes, { mine, add }: CodeMap, out: Uint32Array, at: number) {
  if (mine.length === 1 && theirs.length > 0) {
    mine[0] = add(0);
    out.fill(mine[0], at, at + theirs.length);
    return;
  }
  for (let row = 0; row < theirs.length; row++) {
    const code = theirs[row] as number;
    let known = mine[code] as number;
    if (known < 0) {
      known = add(code);
      mine[code] = known;
    }
    out[at + row] = known;
  }
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
  #known: { batch: Batch; instruments: CodeMap; vintages: CodeMap } | null = null;

  constructor(columns: number) {
    this.#values = Array.from({ length: columns }, () => new Float64Array(0));
  }

  /** Valid time of the newest row; NaN when there is none. */
  get lastDatetime(): number {
    return this.length === 0 ? NaN : (this.#datetime[this.length - 1] as number);
  }

  /** Appends the rows `[from, to)` of a batch. */
  append(batch: Batch, from: number, to: number) {
    const at = this.length;
    this.#reserve(at + to - from);
    // Consecutive appends come mostly from one batch.
    if (this.#known?.batch !== batch) this.#known = { batch, ...this.#mapsOf(batch) };
    const { instruments, vintages } = this.#known;
    recode(batch.instrument.subarray(from, to), instruments, this.#instrument, at);
    recode(batch.vintage.subarray(from, to), vintages, this.#vintage, at);
    this.#datetime.set(batch.datetime.subarray(from, to), at);
    for (let column = 0; column < this.#values.length; column++) {
      const [theirs, mine] = [batch.values[column] as Float64Array, this.#values[column]];
      mine?.set(theirs.subarray(from, to), at);
    }
    if (batch.retracted) this.#retracted.set(batch.retracted.subarray(from, to), at);
    else this.#retracted.fill(0, at, at + to - from);
    if (batch.retracted) this.#anyRetracted = true;
    if (batch.knownTo) {
      this.#knownTo ??= new Float64Array(this.#datetime.length);
      this.#knownTo.set(batch.knownTo.subarray(from, to), at);
    }
    this.length += to - from;
  }

  /** Hands the rows over and starts afresh. */
  take(): Batch {
    return this.#end((column) => column.slice(0, this.length) as typeof column);
  }

  /** As `take`, but the rows hold until the next append only: nothing is copied. */
  lend(): Batch {
    return this.#end((column) => column.subarray(0, this.length) as typeof column);
  }

  #end(rowsOf: <Column extends Float64Array | Uint32Array | Uint8Array>(from: Column) => Column) {
    const batch: Batch = {
      length: this.length,
      datetime: rowsOf(this.#datetime),
      instrument: rowsOf(this.#instrument),
      instruments: [...this.#instruments.keys()],
      values: this.#values.map((column) => rowsOf(column)),
      vintage: rowsOf(this.#vintage),
      vintages: this.#writers,
      retracted: this.#anyRetracted ? rowsOf(this.#retracted) : null,
      ...(this.#knownTo && { knownTo: rowsOf(this.#knownTo) }),
    };
    this.length = 0;
    this.#anyRetracted = false;
    this.#instruments.clear();
    this.#vintages.clear();
    this.#writers = [];
    this.#known = null;
    return batch;
  }

  #mapsOf({ instruments, vintages }: Batch): { instruments: CodeMap; vintages: CodeMap } {
    return {
      instruments: {
        mine: new Int32Array(instruments.length).fill(-1),
        add: (code) => {
          const name = instruments[code] as string;
          const mine = this.#instruments.get(name) ?? this.#instruments.size;
          this.#instruments.set(name, mine);
          return mine;
        },
      },
      vintages: {
        mine: new Int32Array(vintages.length).fill(-1),
        add: (code) => {
          const writer = vintages[code] as WrittenBy;
          const mine = this.#vintages.get(writer.seq) ?? this.#writers.length;
          if (mine === this.#writers.length) this.#writers.push(writer);
          this.#vintages.set(writer.seq, mine);
          return mine;
        },
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
