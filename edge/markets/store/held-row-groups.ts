// What an isolate keeps of objects between reads. An object never changes, so a row group that is
// held needs no check: which ones a read opens, and which of their versions it may see, the catalog
// says each time.

import type { Batch } from "./columns.ts";
import type { RowGroup } from "./segment.ts";

/** About what an entry of a dictionary takes. */
const ENTRY_BYTES = 128;

/** The row groups that short reads opened last, decoded, up to so many bytes. */
export class HeldRowGroups {
  /** In the order of their last use. */
  readonly #batches = new Map<string, Batch>();
  readonly #bytesMax: number;
  #bytes = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  has(objectKey: string, group: RowGroup): boolean {
    return this.#batches.has(nameOf(objectKey, group));
  }

  find(objectKey: string, group: RowGroup): Batch | undefined {
    const name = nameOf(objectKey, group);
    const batch = this.#batches.get(name);
    if (!batch) return undefined;
    this.#batches.delete(name);
    this.#batches.set(name, batch);
    return batch;
  }

  keep(objectKey: string, group: RowGroup, batch: Batch) {
    const name = nameOf(objectKey, group);
    // Another request may have opened it meanwhile.
    if (this.#batches.has(name)) return;
    this.#batches.set(name, batch);
    this.#bytes += bytesOf(batch);
    for (const [oldest, rows] of this.#batches) {
      if (this.#bytes <= this.#bytesMax) return;
      this.#batches.delete(oldest);
      this.#bytes -= bytesOf(rows);
    }
  }
}

const nameOf = (objectKey: string, { offset }: RowGroup) => `${objectKey} ${offset}`;

function bytesOf(batch: Batch): number {
  const { datetime, instrument, values, vintage, retracted, instruments, vintages } = batch;
  const columns = [datetime, instrument, ...values, vintage, ...(retracted ? [retracted] : [])];
  const rows = columns.reduce((sum, { byteLength }) => sum + byteLength, 0);
  return rows + ENTRY_BYTES * (instruments.length + vintages.length);
}
