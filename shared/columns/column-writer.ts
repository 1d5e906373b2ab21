// Writes the binary answer that column-layout.ts lays out, part by part: the service sends each as
// soon as it has it.

import {
  aligned,
  BLOCK_HEAD_BYTES,
  BLOCKS,
  COLUMNS_VERSION,
  type ColumnsHeader,
  ID_BYTES,
  MAGIC,
  PROLOGUE_BYTES,
  type RowColumns,
  rowsBytes,
  rowViews,
} from "./column-layout.ts";

const SPACE = 0x20;

/** What an answer begins with: magic, version and the header. */
export function headerBytes(header: ColumnsHeader): Uint8Array<ArrayBuffer> {
  const text = new TextEncoder().encode(JSON.stringify(header));
  const length = aligned(text.length);
  const bytes = new Uint8Array(PROLOGUE_BYTES + length).fill(SPACE, PROLOGUE_BYTES);
  bytes.set(new TextEncoder().encode(MAGIC));
  new Uint32Array(bytes.buffer, MAGIC.length, 2).set([COLUMNS_VERSION, length]);
  bytes.set(text, PROLOGUE_BYTES);
  return bytes;
}

function newBlock(kind: number, count: number, bodyBytes: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(BLOCK_HEAD_BYTES + bodyBytes);
  new Uint32Array(bytes.buffer, 0, 2).set([kind, count]);
  return bytes;
}

/** A block of rows to be filled: what is written to its columns is in its bytes. */
export function newRowsBlock(rows: number): {
  bytes: Uint8Array<ArrayBuffer>;
  columns: RowColumns;
} {
  const bytes = newBlock(BLOCKS.rows, rows, rowsBytes(rows));
  return { bytes, columns: rowViews(bytes.buffer, BLOCK_HEAD_BYTES, rows) };
}

/** A block of the ids of what was deleted, sixteen bytes each. */
export function deletedBlock(ids: Uint8Array): Uint8Array<ArrayBuffer> {
  const bytes = newBlock(BLOCKS.deleted, ids.length / ID_BYTES, ids.length);
  bytes.set(ids, BLOCK_HEAD_BYTES);
  return bytes;
}

/** The last block, with the number of rows that were sent. */
export const endBlock = (rows: number): Uint8Array<ArrayBuffer> => newBlock(BLOCKS.end, rows, 0);
