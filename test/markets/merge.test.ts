// Merging runs of versions and choosing what answers, against a naive model: all versions in one
// sorted list, and one look at it per row.

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Batch, Codes, WrittenBy } from "../../edge/markets/store/columns.ts";
import {
  applyView,
  mergeSorted,
  type SortedBatches,
  sortTogether,
  type View,
} from "../../edge/markets/store/merge.ts";

const seed = process.env.SEED ? { seed: Number(process.env.SEED) } : {};
const COLUMNS = 2;
const INSTRUMENTS = ["a", "B", "ä", "b.1"];

interface Version {
  datetime: number;
  instrumentId: string;
  seq: number;
  values: number[];
  retracted: boolean;
  /** Which run holds it. */
  run: number;
}

const order = (left: Version, right: Version) =>
  left.datetime - right.datetime ||
  (left.instrumentId < right.instrumentId ? -1 : left.instrumentId > right.instrumentId ? 1 : 0) ||
  left.seq - right.seq;

const rowKey = ({ datetime, instrumentId }: Version) => `${datetime} ${instrumentId}`;

/** Knowledge time rises with the version, and lies among the valid times so that offsets bite. */
const writerOf = (seq: number): WrittenBy => ({ seq, asOf: seq * 3, reconstructed: seq % 3 === 0 });

/** A batch with dictionaries of its own: entries in the order met, after some that nobody uses. */
function batchOf(versions: readonly Version[], Kind: new (codes: number[]) => Codes): Batch {
  const [instruments, seqs] = [["unused"], [999]];
  const code = <Entry>(dictionary: Entry[], entry: Entry) => {
    if (!dictionary.includes(entry)) dictionary.push(entry);
    return dictionary.indexOf(entry);
  };
  const instrument = versions.map(({ instrumentId }) => code(instruments, instrumentId));
  const vintage = versions.map(({ seq }) => code(seqs, seq));
  return {
    length: versions.length,
    datetime: Float64Array.from(versions, ({ datetime }) => datetime),
    instrument: new Kind(instrument),
    instruments,
    values: Array.from({ length: COLUMNS }, (_, column) =>
      Float64Array.from(versions, ({ values }) => values[column] ?? NaN),
    ),
    vintage: new Kind(vintage),
    vintages: seqs.map(writerOf),
    retracted: versions.some(({ retracted }) => retracted)
      ? Uint8Array.from(versions, ({ retracted }) => (retracted ? 1 : 0))
      : null,
  };
}

const KINDS = [Uint8Array, Uint16Array, Uint32Array];

/** The versions of one run in batches of about the given sizes; no row is torn. */
function* batchesOf(versions: readonly Version[], sizes: readonly number[]): Generator<Batch> {
  let [from, turn] = [0, 0];
  while (from < versions.length) {
    let to = Math.min(from + (sizes[turn % sizes.length] ?? 1), versions.length);
    const torn = (at: number) => {
      const [before, now] = [versions[at - 1], versions[at]];
      return before && now && rowKey(before) === rowKey(now);
    };
    while (to < versions.length && torn(to)) to++;
    yield batchOf(versions.slice(from, to), KINDS[turn % KINDS.length] ?? Uint8Array);
    from = to;
    turn++;
  }
}

async function* inTurn(batches: Iterable<Batch>): AsyncGenerator<Batch> {
  yield* batches;
}

function runsOf(versions: readonly Version[], sizes: readonly number[]): SortedBatches[] {
  const runs = [...new Set(versions.map(({ run }) => run))];
  return runs.map((run) => {
    const mine = versions.filter((version) => version.run === run).toSorted(order);
    return inTurn(batchesOf(mine, sizes));
  });
}

async function collect(batches: AsyncIterable<Batch>): Promise<Batch[]> {
  const all: Batch[] = [];
  for await (const batch of batches) all.push(batch);
  return all;
}

/** A row as text: what one answers, with the vintage that wrote it. */
const shown = (version: Version, knownTo?: number) =>
  [
    ...[version.datetime, version.instrumentId, version.seq, ...version.values],
    ...(knownTo === undefined ? [version.retracted] : [knownTo]),
  ].join("|");

const rowsOf = (batches: readonly Batch[]) =>
  batches.flatMap((batch) =>
    Array.from({ length: batch.length }, (_, row) =>
      shown(
        {
          datetime: batch.datetime[row] ?? NaN,
          instrumentId: batch.instruments[batch.instrument[row] ?? -1] ?? "?",
          seq: batch.vintages[batch.vintage[row] ?? -1]?.seq ?? NaN,
          values: batch.values.map((column) => column[row] ?? NaN),
          retracted: batch.retracted?.[row] === 1,
          run: 0,
        },
        batch.knownTo?.[row],
      ),
    ),
  );

/** What a view of a list of versions answers, worked out row by row. */
function answer(versions: readonly Version[], view: View): string[] {
  const rows = Map.groupBy(versions.toSorted(order), rowKey);
  return [...rows.values()].flatMap((all) => {
    const seen = all.filter(
      ({ seq, datetime }) =>
        seq <= view.seq &&
        !(view.trueOnly && writerOf(seq).reconstructed) &&
        (view.knownBy === undefined || writerOf(seq).asOf <= datetime + view.knownBy),
    );
    if (view.history) {
      return seen.flatMap((version, index) => {
        const next = seen[index + 1];
        return version.retracted ? [] : [shown(version, next ? writerOf(next.seq).asOf : NaN)];
      });
    }
    const last = seen.at(-1);
    return last && !last.retracted ? [shown(last)] : [];
  });
}

/** Merges, checks that no row is torn between two batches, and applies every view to each. */
async function check(versions: readonly Version[], sizes: readonly number[], views: View[]) {
  const merged = await collect(mergeSorted(runsOf(versions, sizes), COLUMNS));
  const sorted = versions.toSorted(order);
  expect(rowsOf(merged)).toEqual(sorted.map((version) => shown(version)));
  expect(merged.every(({ length }) => length > 0)).toBe(true);
  const ends = merged.map((batch) => [
    `${batch.datetime[0]} ${batch.instruments[batch.instrument[0] ?? -1]}`,
    `${batch.datetime.at(-1)} ${batch.instruments[batch.instrument.at(-1) ?? -1]}`,
  ]);
  expect(ends.every(([first], index) => first !== ends[index - 1]?.[1])).toBe(true);
  for (const view of views) {
    const got = rowsOf(merged.map((batch) => applyView(batch, view)));
    expect(got, JSON.stringify(view)).toEqual(answer(versions, view));
  }
  return merged;
}

const value = fc.constantFrom(NaN, 0, -1.5, 7);
const version = (datetimes: number, seqs: number, runs: number): fc.Arbitrary<Version> =>
  fc
    .record({
      datetime: fc.nat(datetimes - 1),
      instrumentId: fc.constantFrom(...INSTRUMENTS),
      seq: fc.integer({ min: 1, max: seqs }),
      values: fc.tuple(value, value),
      retracted: fc.boolean(),
      run: fc.nat(runs - 1),
    })
    // A retraction has no values, as a commit writes it.
    .map((one) => (one.retracted ? { ...one, values: [NaN, NaN] } : one));

const view = (seqs: number): fc.Arbitrary<View> =>
  fc.oneof(
    fc.record({ seq: fc.integer({ min: 0, max: seqs + 1 }), trueOnly: fc.boolean() }),
    fc.record({
      seq: fc.integer({ min: 0, max: seqs + 1 }),
      trueOnly: fc.boolean(),
      knownBy: fc.integer({ min: -20, max: 40 }),
    }),
    fc.record({
      seq: fc.integer({ min: 0, max: seqs + 1 }),
      trueOnly: fc.boolean(),
      history: fc.constant(true),
    }),
  );

const unique = { selector: (one: Version) => `${rowKey(one)} ${one.seq}` };

describe("merging runs", () => {
  it("agrees with one sorted list, whatever runs and batches hold the versions", async () => {
    const property = fc.asyncProperty(
      fc.uniqueArray(version(12, 9, 6), { ...unique, maxLength: 120, size: "max" }),
      fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 3 }),
      fc.array(view(9), { minLength: 3, maxLength: 6 }),
      async (versions, sizes, views) => void (await check(versions, sizes, views)),
    );
    await fc.assert(property, { numRuns: 300, ...seed });
  });

  it("agrees with it where long stretches are passed on whole between scattered revisions", async () => {
    const long = fc.integer({ min: 1_024, max: 3_000 });
    const scattered = fc.uniqueArray(version(6_000, 9, 4), {
      ...unique,
      maxLength: 6,
      size: "max",
    });
    let passedOn = 0;
    const property = fc.asyncProperty(
      fc.array(fc.tuple(long, fc.integer({ min: 0, max: 900 })), { minLength: 1, maxLength: 2 }),
      scattered,
      fc.array(fc.integer({ min: 900, max: 6_000 }), { minLength: 1, maxLength: 2 }),
      fc.array(view(9), { minLength: 2, maxLength: 3 }),
      async (stretches, revisions, sizes, views) => {
        const base: Version[] = [];
        let datetime = 0;
        for (const [rows, gap] of stretches) {
          for (let row = 0; row < rows; row++, datetime++) {
            const values = [datetime, -datetime];
            base.push({ datetime, instrumentId: "b.1", seq: 1, values, retracted: false, run: 99 });
          }
          datetime += gap;
        }
        const later = revisions.map((one) => ({ ...one, seq: one.seq + 1 }));
        const merged = await check([...base, ...later], sizes, views);
        // Only a stretch that was passed on whole still has its run's dictionary.
        passedOn += merged.filter(
          ({ length, instruments }) => length >= 1_024 && instruments[0] === "unused",
        ).length;
      },
    );
    await fc.assert(property, { numRuns: 40, ...seed });
    expect(passedOn).toBeGreaterThan(20);
  });

  it("hands out what it collects in pieces, and tears no row where runs interleave for long", async () => {
    const versions = Array.from(
      { length: 36_000 },
      (_, index): Version => ({
        datetime: Math.floor(index / 6),
        instrumentId: index % 6 < 3 ? "a" : "ä",
        seq: 1 + (index % 3),
        values: [index, NaN],
        retracted: index % 7 === 0,
        run: index % 3,
      }),
    );
    const views = [{ seq: 2 }, { seq: 3, history: true }, { seq: 3, trueOnly: true, knownBy: 2 }];
    const merged = await check(versions, [5_000], views);
    expect(merged.map(({ length }) => length)).toEqual([32_772, 3_228]);
  });

  it("gives nothing for no runs, and for runs without rows", async () => {
    expect(await collect(mergeSorted([], COLUMNS))).toEqual([]);
    const empty = [inTurn([]), inTurn([batchOf([], Uint8Array), batchOf([], Uint16Array)])];
    expect(await collect(mergeSorted(empty, COLUMNS))).toEqual([]);
  });
});

describe("sorting vintages together", () => {
  it("agrees with one sorted list, and with the views of it", () => {
    const property = fc.property(
      fc.uniqueArray(version(8, 6, 1), { ...unique, minLength: 1, maxLength: 60, size: "max" }),
      view(6),
      (versions, one) => {
        const bySeq = [...Map.groupBy(versions, ({ seq }) => seq).values()];
        const batches = bySeq.map((mine) => batchOf(mine.toSorted(order), Uint32Array));
        const together = sortTogether(batches, COLUMNS);
        expect(rowsOf([together])).toEqual(versions.toSorted(order).map((row) => shown(row)));
        expect(rowsOf([applyView(together, one)])).toEqual(answer(versions, one));
      },
    );
    fc.assert(property, { numRuns: 300, ...seed });
  });
});
