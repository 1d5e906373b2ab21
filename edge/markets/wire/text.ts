// Rows as JSON, NDJSON or CSV bytes, in chunks. What repeats from row to row is encoded once.

import { iso } from "../../../shared/time.ts";
import type { Batch, WrittenBy } from "../store/columns.ts";
import { ISO_BYTES, NUMBER_BYTES, writeIso, writeNumber } from "./bytes.ts";
import type { RecordShape } from "./record.ts";

/** The texts around a row's numbers. */
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

export type TextFormat = "json" | "ndjson" | "csv";

const CHUNK_BYTES = 128 * 1024;
/** Room for one row beyond a full chunk; grown when a row's constant texts are longer. */
const SLACK_BYTES = 16 * 1024;

const record: Omit<Dialect, "open" | "separator" | "close"> = {
  rowOpen: '{"Datetime":"',
  instrument: (id) => `","instrument_id":${JSON.stringify(id)}`,
  column: (name) => `,${JSON.stringify(name)}:`,
  missing: "null",
  tail: (writer, shape) => {
    const fields = Object.entries(tailFields(writer, shape)).map(
      ([name, value]) => `,"${name}":${JSON.stringify(value)}`,
    );
    return fields.join("") + (shape.history ? ',"known_to":' : "");
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

/** The rows of the batches in a text format, in chunks of about 128 KB. */
export async function* encodeText(
  format: TextFormat,
  batches: AsyncIterable<Batch>,
  shape: RecordShape,
): AsyncGenerator<Uint8Array> {
  const writer = new RowWriter(dialectOf(format, shape), shape);
  for await (const batch of batches) yield* writer.write(batch);
  yield writer.end();
}

class RowWriter {
  readonly #dialect: Dialect;
  readonly #shape: RecordShape;
  readonly #separator: Uint8Array;
  readonly #rowOpen: Uint8Array;
  readonly #missing: Uint8Array;
  readonly #rowClose: Uint8Array;
  readonly #columns: Uint8Array[];
  readonly #quote: Uint8Array;
  readonly #instruments = new Map<string, Uint8Array>();
  readonly #iso = new Uint8Array(ISO_BYTES);
  #out = new Uint8Array(CHUNK_BYTES + SLACK_BYTES);
  #end = 0;
  #first = true;

  constructor(dialect: Dialect, shape: RecordShape) {
    this.#dialect = dialect;
    this.#shape = shape;
    this.#separator = utf8(dialect.separator);
    this.#rowOpen = utf8(dialect.rowOpen);
    this.#missing = utf8(dialect.missing);
    this.#rowClose = utf8(dialect.rowClose);
    this.#quote = utf8(dialect.quote);
    this.#columns = shape.valueColumns.map((name) => utf8(dialect.column(name)));
    this.#put(utf8(dialect.open));
  }

  *write(batch: Batch): Generator<Uint8Array> {
    const { datetime, instrument, vintage, values, knownTo, length } = batch;
    const heads = batch.instruments.map((id) => this.#instrumentText(id));
    const tails: (Uint8Array | undefined)[] = new Array(batch.vintages.length);
    const columns = this.#columns;
    let last = NaN;
    for (let row = 0; row < length; row++) {
      const tailCode = vintage[row] as number;
      let tail = tails[tailCode];
      if (!tail) {
        tail = utf8(this.#dialect.tail(batch.vintages[tailCode] as WrittenBy, this.#shape));
        tails[tailCode] = tail;
      }
      const head = heads[instrument[row] as number] as Uint8Array;
      const fixed = head.length + tail.length + columns.length * (NUMBER_BYTES + 128) + 512;
      if (this.#end + fixed > this.#out.length) {
        yield this.#take(fixed);
      }
      if (this.#first) this.#first = false;
      else this.#put(this.#separator);
      this.#put(this.#rowOpen);
      const instant = datetime[row] as number;
      if (instant !== last) writeIso(this.#iso, 0, instant);
      last = instant;
      this.#put(this.#iso);
      this.#put(head);
      for (let column = 0; column < columns.length; column++) {
        this.#put(columns[column] as Uint8Array);
        const value = (values[column] as Float64Array)[row] as number;
        if (value === value) this.#end = writeNumber(this.#out, this.#end, value);
        else this.#put(this.#missing);
      }
      this.#put(tail);
      if (knownTo) this.#putInstant(knownTo[row] as number);
      this.#put(this.#rowClose);
    }
    if (this.#end >= CHUNK_BYTES) yield this.#take(0);
  }

  end(): Uint8Array {
    this.#put(utf8(this.#dialect.close));
    return this.#out.subarray(0, this.#end);
  }

  #instrumentText(id: string): Uint8Array {
    const known = this.#instruments.get(id) ?? utf8(this.#dialect.instrument(id));
    this.#instruments.set(id, known);
    return known;
  }

  #put(bytes: Uint8Array) {
    // A typed array's own `set` costs more than the loop for texts this short.
    const out = this.#out;
    let end = this.#end;
    for (let index = 0; index < bytes.length; index++) out[end++] = bytes[index] as number;
    this.#end = end;
  }

  #putInstant(instant: number) {
    if (instant !== instant) {
      this.#put(this.#missing);
      return;
    }
    this.#put(this.#quote);
    this.#end = writeIso(this.#out, this.#end, instant);
    this.#put(this.#quote);
  }

  /** Hands out what is written and makes room for at least `needed` bytes. */
  #take(needed: number): Uint8Array {
    const taken = this.#out.subarray(0, this.#end);
    this.#out = new Uint8Array(CHUNK_BYTES + Math.max(SLACK_BYTES, needed));
    this.#end = 0;
    return taken;
  }
}
