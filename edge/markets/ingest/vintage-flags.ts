// A check of stored flags: rows that are flagged as true vintages although the publication rule of
// today flags them as reconstructed. It reads only; the flag of a stored vintage never changes.

import { Failure } from "../../../shared/errors.ts";
import { iso } from "../../../shared/time.ts";
import type { LateRows } from "../../../shared/wire/instruments.ts";
import type { Batch } from "../store/columns.ts";
import { isLate } from "../store/rows.ts";
import type { IngestParts } from "./parts.ts";
import { requirePipeline } from "./pipeline.ts";

/** A commit judges its rows when it begins; it takes no longer until its knowledge time. */
const COMMIT_MS_MAX = 10 * 60_000;

/**
 * The series of a job that hold such rows, with their number and their first and last valid times;
 * fails with `unknown_job`. It reads every version of every series of the job.
 */
export async function listLateRows(
  { pipelines, store }: Pick<IngestParts, "pipelines" | "store">,
  job: string,
): Promise<LateRows[]> {
  const { libraries, owns, publishedWithinMs } = requirePipeline(pipelines, job);
  const known = await store.libraries();
  const found: LateRows[] = [];
  for (const library of libraries.filter((one) => known.includes(one))) {
    for (const { symbol } of await store.symbols(library)) {
      if (owns && !owns(symbol)) continue;
      const reading = await store.read({ library, symbol });
      const late = await countLate(reading.versions(), publishedWithinMs);
      if (late) found.push({ job, library, symbol, ...late });
    }
  }
  return found;
}

/** Counts the rows whose first version is late and not flagged; null where there are none. */
async function countLate(batches: AsyncIterable<Batch>, publishedWithinMs: number) {
  let [rows, first, last] = [0, Infinity, -Infinity];
  let [datetimeBefore, instrumentBefore] = [NaN, ""];
  for await (const { length, datetime, instrument, instruments, vintage, vintages } of batches) {
    for (let row = 0; row < length; row++) {
      const at = datetime[row] as number;
      const id = instruments[instrument[row] as number] as string;
      // Versions of a row follow one another, the first one first.
      if (at === datetimeBefore && id === instrumentBefore) continue;
      [datetimeBefore, instrumentBefore] = [at, id];
      const writer = vintages[vintage[row] as number];
      if (!writer) throw new Failure("internal", "a version without its vintage");
      const judgedAt = writer.asOf - COMMIT_MS_MAX;
      if (writer.reconstructed || !isLate({ datetime: at }, judgedAt, publishedWithinMs)) continue;
      rows++;
      first = Math.min(first, at);
      last = Math.max(last, at);
    }
  }
  return rows === 0 ? null : { rows, first: iso(first), last: iso(last) };
}
