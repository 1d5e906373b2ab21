// Rows as JSON, NDJSON or CSV bytes, in chunks. What repeats from row to row is encoded once.

import { iso } from "../../../shared/time.ts";
import type { Batch, WrittenBy } from "../store/columns.ts";
import {
  DATE_BYTES,
  DAY_MS,
  ISO_BYTES,
  ISO_TEMPLATE,
  NUMBER_BYTES,
  writeIso,
  writeNumber,
  writeTime,
} from "./bytes.ts";
import type { RecordShape } from "./record.ts";

/** What a text format puts around a row's numbers. */
interface Dialect {
  open: string;
  separator: string;
  close: string;
  rowOpen: string;
  /** Between Datetime and the first value. */
  instrument: (id: string) => string;
  /** Between the values before and after a column's name. */
  column: (name: string) => string;
  missing: string;
  /** What follows the last value; ends where `known_to` begins, if there is one. */
  tail: (writer: WrittenBy, shape: RecordShape) => string;
  quote: string;
  rowClose: string;
}

/** The formats that are text. */
export type TextFormat = "json" | "ndjson" | "csv";

const CHUNK_BYTES = 128 * 1024;
/** A short answer takes no more memory than its rows. */
const FIRST_BYTES = 8 * 1024;
/** A row that does not fit any more begins the next chunk. */
const SLACK_BYTES = 4 * 1024;
/** Upper bound on the bytes of a value, or of `known_to` with its quotes and the row's end. */
const VALUE_BYTES = Math.max(NUMBER_BYTES, ISO_BYTES) + 8;

const record: Omit<Dialect, "open" | "separator" | "close"> = {
  rowOpen: '{"Datetime":"',
  instrument: (id) => `","instrument_id":${JSON.stringify(id)}`,
  column: (name) => `,${JSON.stringify(name)}:`,
  missing: "null",
  tail: (writer, shape) => {
    // The fields of an object's JSON, without its braces.
    const fields = `,${JSON.stringify(tailFields(writer, shape)).slice(1, -1)}`;
    return shape.history ? `${fields},"known_to":` : fields;
  },
  quote: '"',
  rowClose: "}",
};

/** The fields that a version has from its vintage, in their order. */
function tailFields(writer: WrittenBy, { history, provenance }: RecordShape) {
  const origin = provenance?.get(writer.seq);
  const published = origin?.sourcePublishedAt ?? null;
  return {
    as_of: iso(writer.asOf),
    vintage_reconstructed: writer.reconstructed,
    ...(provenance && {
      store_version: writer.seq,
      source_url: origin?.sourceUrl ?? null,
      source_published_at: published === null ? null : iso(published),
      run_id: origin?.runId ?? null,
    }),
    ...(history && { known_from: iso(writer.asOf) }),
  };
}

const csvField = (value: unknown): string => {
  const text = value === null ? "" : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

function csv(shape: RecordShape): Dialect {
  const names = [
    ...["Datetime", "instrument_id", ...shape.valueColumns],
    ...Object.keys(tailFields({ seq: 0, asOf: 0, reconstructed: false }, shape)),
    ...(shape.history ? ["known_to"] : []),
  ];
  return {
    open: `${names.map(csvField).join()}\n`,
    separator: "",
    close: "",
    rowOpen: "",
    instrument: (id) => `,${csvField(id)}`,
    column: () => ",",
    missing: "",
    tail: (writer, one) => {
      const fields = Object.values(tailFields(writer, one)).map((value) => `,${csvField(value)}`);
      return fields.join("") + (one.history ? "," : "");
    },
    quote: "",
    rowClose: "\n",
  };
}

const dialectOf = (format: TextFormat, shape: RecordShape): Dialect =>
  format === "csv"
    ? csv(shape)
    : format === "ndjson"
      ? { ...record, open: "", separator: "", close: "", rowClose: "}\n" }
      : { ...record, open: "[", separator: ",", close: "]" };

const encoder = new TextEncoder();
const utf8 = (text: string) => encoder.encode(text);

/**
 * The rows of the batches in a text format, in chunks of about 128 KB. A chunk holds until the next
 * one is asked for: a buffer for each would cost as much as writing the numbers.
 */
export async function* encodeText(
  format: TextFormat,
  batches: AsyncIterable<Batch>,
  shape: RecordShape,
): AsyncGenerator<Uint8Array> {
  const writer = new RowWriter(dialectOf(format, shape), shape);
  for await (const batch of batches) yield* writer.write(batch);
  yield writer.end();
}

/** A text up to a row's first value. The date of the row that it opened last stands in it. */
interface Opening {
  bytes: Uint8Array;
  /** Where its instant begins. */
  instantAt: number;
  /** The date in it, days since the epoch; NaN before the first. */
  day: number;
}

/** The opening of an instrument's rows, from the separator on. */
interface Head extends Opening {
  /**
   * By the vintage of the row before one of its rows: that row's end and this opening as one text,
   * or how many times it came without. One copy of their bytes costs less than two.
   */
  seams: (Opening | number | undefined)[];
}

/** An opening pays for being joined to an end that comes before it so many times. */
const SEAM_TIMES = 4;
/** Places for joined texts, of all instruments of a batch: each takes one of every vintage. */
const SEAMS_MAX = 16_384;

/** The end of a vintage's row and the opening of the next as one text, where that pays. */
function seamOf(head: Head, vintage: number, tail: Uint8Array): Opening | null {
  const known = head.seams[vintage] ?? 0;
  if (typeof known === "object") return known;
  if (known + 1 < SEAM_TIMES) {
    head.seams[vintage] = known + 1;
    return null;
  }
  const bytes = new Uint8Array(tail.length + head.bytes.length);
  bytes.set(tail);
  bytes.set(head.bytes, tail.length);
  const seam = { bytes, instantAt: tail.length + head.instantAt, day: head.day };
  head.seams[vintage] = seam;
  return seam;
}

/** The encoded texts that rows of a batch share, each made when a row first needs it. */
interface Texts {
  /** By instrument. */
  heads: (Head | undefined)[];
  /** By vintage: from the last value to the end, or to `known_to`. */
  tails: (Uint8Array | undefined)[];
}

class RowWriter {
  readonly #dialect: Dialect;
  readonly #shape: RecordShape;
  /** Between one value and the next, by column; the first column's is part of the head. */
  readonly #columns: Uint8Array[];
  /** Upper bound on the bytes of a row's values, the names before them and `known_to`. */
  readonly #rowBytes: number;
  readonly #missing: Uint8Array;
  readonly #quote: Uint8Array;
  readonly #rowClose: Uint8Array;
  #out: Uint8Array;
  #end = 0;
  #first = true;

  constructor(dialect: Dialect, shape: RecordShape) {
    this.#dialect = dialect;
    this.#shape = shape;
    this.#columns = shape.valueColumns.map((name) => utf8(dialect.column(name)));
    const names = this.#columns.reduce((sum, { length }) => sum + length, 0);
    this.#rowBytes = names + (this.#columns.length + 1) * VALUE_BYTES;
    this.#missing = utf8(dialect.missing);
    this.#quote = utf8(dialect.quote);
    this.#rowClose = utf8(dialect.rowClose);
    const open = utf8(dialect.open);
    this.#out = new Uint8Array(FIRST_BYTES + open.length);
    this.#put(open);
  }

  *write(batch: Batch): Generator<Uint8Array> {
    const texts: Texts = { heads: [], tails: [] };
    for (let row = 0; row < batch.length; ) {
      row = this.#rows(batch, row, texts);
      if (row < batch.length) yield this.#take();
    }
    if (this.#end >= CHUNK_BYTES) yield this.#take();
  }

  end(): Uint8Array {
    this.#put(utf8(this.#dialect.close));
    return this.#out.subarray(0, this.#end);
  }

  /** Writes rows until the chunk is full; returns the first one not written. */
  #rows(batch: Batch, from: number, { heads, tails }: Texts): number {
    const { datetime, instrument, vintage, values, knownTo, length } = batch;
    const columns = this.#columns.length;
    const first = values[0] as Float64Array;
    // Thousands of instruments and of vintages leave hardly two that meet twice.
    const joinedMax = Math.floor(SEAMS_MAX / batch.instruments.length);
    // The end of the row before, of its vintage, is written with the opening of the next.
    let [before, beforeCode]: [Uint8Array | null, number] = [null, 0];
    for (let row = from; row < length; row++) {
      const instrumentCode = instrument[row] as number;
      let head = heads[instrumentCode];
      if (!head) {
        head = this.#head(batch.instruments[instrumentCode] as string);
        heads[instrumentCode] = head;
      }
      const vintageCode = vintage[row] as number;
      let tail = tails[vintageCode];
      if (!tail) {
        tail = this.#tail(batch.vintages[vintageCode] as WrittenBy);
        tails[vintageCode] = tail;
      }
      const needed = (before?.length ?? 0) + head.bytes.length + tail.length + this.#rowBytes;
      if (this.#end + needed > this.#out.length) {
        if (this.#out.length < CHUNK_BYTES) this.#grow(needed);
        else {
          if (before) this.#copy(before);
          if (this.#end > 0) return row;
          this.#out = new Uint8Array(CHUNK_BYTES + needed);
        }
      }
      const seam = before && beforeCode < joinedMax ? seamOf(head, beforeCode, before) : null;
      if (before && !seam) this.#copy(before);
      this.#putOpening(seam ?? head, datetime[row] as number);
      this.#putValue(first[row] as number);
      for (let column = 1; column < columns; column++) {
        this.#put(this.#columns[column] as Uint8Array);
        this.#putValue((values[column] as Float64Array)[row] as number);
      }
      before = tail;
      beforeCode = vintageCode;
      if (!knownTo) continue;
      this.#copy(tail);
      this.#putKnownTo(knownTo[row] as number);
      before = null;
    }
    if (before) this.#copy(before);
    return length;
  }

  #head(id: string): Head {
    const { separator, rowOpen, instrument, column } = this.#dialect;
    const name = column(this.#shape.valueColumns[0] ?? "");
    const bytes = utf8(separator + rowOpen + ISO_TEMPLATE + instrument(id) + name);
    const instantAt = separator.length + rowOpen.length;
    return { bytes, instantAt, day: NaN, seams: [] };
  }

  #tail(writer: WrittenBy): Uint8Array {
    const { tail, rowClose } = this.#dialect;
    return utf8(tail(writer, this.#shape) + (this.#shape.history ? "" : rowClose));
  }

  /** Writes all that opens a row. */
  #putOpening(opening: Opening, instant: number) {
    const day = Math.floor(instant / DAY_MS);
    if (day !== opening.day) {
      opening.day = day;
      writeIso(opening.bytes, opening.instantAt, day * DAY_MS);
    }
    const skipped = this.#first ? this.#dialect.separator.length : 0;
    this.#first = false;
    const timeAt = this.#end - skipped + opening.instantAt + DATE_BYTES + 1;
    this.#copy(skipped > 0 ? opening.bytes.subarray(skipped) : opening.bytes);
    writeTime(this.#out, timeAt, instant - day * DAY_MS);
  }

  #putValue(value: number) {
    if (value === value) this.#end = writeNumber(this.#out, this.#end, value);
    else this.#put(this.#missing);
  }

  #putKnownTo(instant: number) {
    if (instant === instant) {
      this.#put(this.#quote);
      this.#end = writeIso(this.#out, this.#end, instant);
      this.#put(this.#quote);
    } else {
      this.#put(this.#missing);
    }
    this.#put(this.#rowClose);
  }

  /** Room for more bytes: four times as much, or that of a whole chunk. */
  #grow(bytes: number) {
    const wanted = Math.max(this.#out.length * 4, this.#end + bytes);
    const grown = new Uint8Array(wanted < CHUNK_BYTES ? wanted : CHUNK_BYTES + SLACK_BYTES + bytes);
    grown.set(this.#out.subarray(0, this.#end));
    this.#out = grown;
  }

  #copy(bytes: Uint8Array) {
    this.#out.set(bytes, this.#end);
    this.#end += bytes.length;
  }

  #put(bytes: Uint8Array) {
    // A typed array's own `set` costs more than a loop for texts this short.
    const out = this.#out;
    let end = this.#end;
    for (let index = 0; index < bytes.length; index++) out[end++] = bytes[index] as number;
    this.#end = end;
  }

  /** Hands out what is written; the next rows are written over it. */
  #take(): Uint8Array {
    const chunk = this.#out.subarray(0, this.#end);
    this.#end = 0;
    return chunk;
  }
}
