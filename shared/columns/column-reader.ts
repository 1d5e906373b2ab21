// Reads the binary answer that column-layout.ts lays out, whole or as it arrives, into one table of
// columns. Bytes of another layout, and an answer that breaks off, are refused.

import {
  BLOCK_HEAD_BYTES,
  BLOCK_ROWS_MAX,
  BLOCKS,
  COLUMNS_VERSION,
  type ColumnsHeader,
  ID_BYTES,
  MAGIC,
  newColumns,
  PROLOGUE_BYTES,
  type RowColumns,
  rowsBytes,
  rowViews,
  SOURCES,
  STATES,
} from "./column-layout.ts";

/** A longer header is none of ours: a job has at most 900 videos. */
const HEADER_BYTES_MAX = 16 * 1024 * 1024;

/** All rows of an answer, sorted by video, frame and id. */
export interface ColumnTable {
  header: ColumnsHeader;
  rows: number;
  columns: RowColumns;
  /** Ids of what a difference tells as deleted, sixteen bytes each; empty for a whole job. */
  deleted: Uint8Array<ArrayBuffer>;
}

/** The failure to read bytes that are no answer of this layout. */
export class ColumnsError extends Error {
  override name = "ColumnsError";
}

/** Where bytes come from: all at once, or in chunks of any length. */
export type ColumnSource =
  | Uint8Array
  | ReadableStream<Uint8Array>
  | AsyncIterable<Uint8Array>
  | Iterable<Uint8Array>;

/** Reads an answer to its end. Fails with `ColumnsError` where it is cut off, or is none. */
export async function readColumns(source: ColumnSource): Promise<ColumnTable> {
  const parser = parse();
  let wanted = parser.next();
  // The bytes that the parser waits for, in a buffer of their own, so that columns are aligned.
  let part = newPart(wanted);
  let filled = 0;
  const feed = () => {
    while (!wanted.done && filled === part.length) {
      wanted = parser.next(part);
      part = newPart(wanted);
      filled = 0;
    }
  };
  for await (const chunk of chunksOf(source)) {
    for (let from = 0; from < chunk.length; ) {
      if (wanted.done) throw new ColumnsError("the annotations go on after their end");
      const taken = chunk.subarray(from, from + part.length - filled);
      part.set(taken, filled);
      filled += taken.length;
      from += taken.length;
      feed();
    }
  }
  if (!wanted.done) throw new ColumnsError("the annotations broke off before their end");
  return wanted.value;
}

const newPart = (wanted: IteratorResult<number>) => new Uint8Array(wanted.done ? 0 : wanted.value);

async function* chunksOf(source: ColumnSource): AsyncGenerator<Uint8Array> {
  if (source instanceof Uint8Array) yield source;
  else if ("getReader" in source) {
    // Not every browser iterates over its streams.
    const reader = source.getReader();
    try {
      for (let next = await reader.read(); !next.done; next = await reader.read()) yield next.value;
    } finally {
      await reader.cancel();
    }
  } else yield* source;
}

/** Yields how many bytes it needs next, one at least, and is given exactly these. */
function* parse(): Generator<number, ColumnTable, Uint8Array<ArrayBuffer>> {
  const header = headerOf(yield headerLength(yield PROLOGUE_BYTES));
  const blocks: { rows: number; columns: RowColumns }[] = [];
  const deleted: Uint8Array<ArrayBuffer>[] = [];
  let rows = 0;
  for (;;) {
    const [kind, count = 0] = numbersOf(yield BLOCK_HEAD_BYTES, 0);
    if (kind === BLOCKS.end) {
      if (count !== rows) throw new ColumnsError(`${rows} of ${count} annotations arrived`);
      const columns = joined(blocks, rows);
      return { header, rows, columns, deleted: concatenated(deleted) };
    }
    if (count < 1 || count > BLOCK_ROWS_MAX) {
      throw new ColumnsError(`a block names ${count} rows, and may have 1 to ${BLOCK_ROWS_MAX}`);
    }
    if (kind === BLOCKS.deleted) deleted.push(yield count * ID_BYTES);
    else if (kind === BLOCKS.rows) {
      const columns = rowViews((yield rowsBytes(count)).buffer, 0, count);
      requireKnown(columns, header);
      blocks.push({ rows: count, columns });
      rows += count;
    } else throw new ColumnsError(`a block is of the unknown kind ${kind}`);
  }
}

const numbersOf = (bytes: Uint8Array<ArrayBuffer>, offset: number) =>
  new Uint32Array(bytes.buffer, offset, 2);

function headerLength(prologue: Uint8Array<ArrayBuffer>): number {
  const magic = String.fromCharCode(...prologue.subarray(0, MAGIC.length));
  if (magic !== MAGIC) throw new ColumnsError("these bytes are no columns of annotations");
  const [version = 0, length = 0] = numbersOf(prologue, MAGIC.length);
  if (version !== COLUMNS_VERSION) {
    throw new ColumnsError(`the columns are of version ${version}, not ${COLUMNS_VERSION}`);
  }
  if (length < 1 || length > HEADER_BYTES_MAX) {
    throw new ColumnsError(`the header has the impossible length ${length}`);
  }
  return length;
}

function headerOf(bytes: Uint8Array): ColumnsHeader {
  let header: Partial<Record<keyof ColumnsHeader, unknown>> | null;
  try {
    header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (cause) {
    throw new ColumnsError("the header is no JSON", { cause });
  }
  const isHeader =
    header?.version === COLUMNS_VERSION &&
    typeof header.job_id === "string" &&
    typeof header.edits_seq === "number" &&
    (header.after_seq === null || typeof header.after_seq === "number") &&
    typeof header.threshold === "number" &&
    Array.isArray(header.classes) &&
    Array.isArray(header.videos);
  if (!isHeader) throw new ColumnsError("the header lacks a field, or has one of another type");
  // Looked at as far as this file reads it.
  return header as ColumnsHeader;
}

/** Fails where a row refers to nothing. */
function requireKnown({ video, state, source }: RowColumns, { videos }: ColumnsHeader): void {
  const below = (limit: number) => (value: number) => value < limit;
  if (!video.every(below(videos.length))) throw new ColumnsError("a row is of an unknown video");
  if (!state.every(below(STATES.length))) throw new ColumnsError("a row has an unknown state");
  if (!source.every(below(SOURCES.length))) throw new ColumnsError("a row has an unknown source");
}

function joined(blocks: readonly { rows: number; columns: RowColumns }[], rows: number) {
  const all = newColumns(rows);
  let before = 0;
  for (const block of blocks) {
    for (const name of Object.keys(all) as (keyof RowColumns)[]) {
      const column = block.columns[name];
      all[name].set(column, before * (column.length / block.rows));
    }
    before += block.rows;
  }
  return all;
}

function concatenated(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let before = 0;
  for (const part of parts) {
    all.set(part, before);
    before += part.length;
  }
  return all;
}
