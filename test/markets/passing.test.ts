// Long reads write one batch after another into the same memory, and their pages come straight from
// it: against a model of a few lines over random vintages in objects, compacted or not, and inline.

import fc from "fast-check";
import { parquetMetadata, parquetReadObjects } from "hyparquet";
import { describe, expect, it } from "vitest";
import type { Plan, PlannedSegment } from "../../edge/markets/store/catalog.ts";
import { type Batch, NEW_ARRAYS, ReusedArrays } from "../../edge/markets/store/columns.ts";
import { applyView, sortTogether } from "../../edge/markets/store/merge.ts";
import type { ChangedRow } from "../../edge/markets/store/rows.ts";
import {
  batchOf,
  encodeChanges,
  encodeHistory,
  encodeInline,
  indexOf,
} from "../../edge/markets/store/segment.ts";
import { versionsOf } from "../../edge/markets/store/store.ts";
import { encodeRows } from "../../edge/markets/wire/formats.ts";
import { iso } from "../../shared/time.ts";
import { dice } from "../support/dice.ts";

const HOUR = 3_600_000;
const FROM = Date.UTC(2020, 0, 1);
const AS_OF = Date.UTC(2026, 0, 1);
const INSTRUMENTS = ["hub", "node \u{1f600}"];
const SHAPE = { valueColumns: ["value", "share"], history: false, provenance: null };

interface Vintage {
  seq: number;
  asOf: number;
  reconstructed: boolean;
  rows: ChangedRow[];
}

/** A first vintage of all rows, and later ones of some; instants are sometimes at no even pace. */
function drawnVintages(roll: () => number, rows: number): Vintage[] {
  const pick = (size: number) => Math.floor(roll() * size);
  const few = roll() < 0.5;
  const value = () => (roll() < 0.05 ? NaN : few ? pick(40) / 4 : roll() * 1e6);
  let instant = FROM;
  const instants = Array.from({ length: rows }, () => {
    instant += roll() < 0.9 ? HOUR : pick(40) * 60_001 + 1;
    return instant;
  });
  const single = roll() < 0.5;
  return Array.from({ length: 3 + pick(5) }, (_, index) => {
    const part = index === 0 ? 1 : roll();
    const first = index === 0 ? 0 : pick(rows);
    const changed = instants.slice(first, first + 1 + pick(rows)).flatMap((datetime) =>
      INSTRUMENTS.slice(0, single ? 1 : 2).flatMap((instrumentId): ChangedRow[] => {
        if (roll() > part) return [];
        const retracted = index > 0 && roll() < 0.02;
        return [{ datetime, instrumentId, values: [value(), value()], retracted } as ChangedRow];
      }),
    );
    const seq = index + 1;
    return { seq, asOf: AS_OF + seq * HOUR, reconstructed: roll() < 0.3, rows: changed };
  }).filter((vintage) => vintage.rows.length > 0);
}

/** The vintages as the store holds them: the first compacted, then objects, the last inline. */
function stored(vintages: readonly Vintage[], seq: number, compactedTo: number) {
  const files = new Map<string, ArrayBuffer>();
  const put = (bytes: Uint8Array, level: number, { datetime, length }: Batch, from: Vintage) => {
    const objectKey = `${files.size}`;
    files.set(objectKey, bytes.buffer as ArrayBuffer);
    const index = indexOf(bytes.buffer as ArrayBuffer);
    const [validMin, validMax] = [datetime[0] as number, datetime[length - 1] as number];
    const { seq, asOf, reconstructed } = from;
    const range = { validMin, validMax, rows: length };
    return { objectKey, level, index, seq, asOf, reconstructed, ...range } as PlannedSegment;
  };
  const batchFrom = ({ rows, ...writer }: Vintage) => ({ ...batchOf(rows, 2), vintages: [writer] });
  const compacted = vintages.filter((one) => one.seq <= compactedTo);
  const recent = vintages.filter((one) => one.seq > compactedTo && one.seq <= seq);
  const history = sortTogether(compacted.map(batchFrom), 2);
  const segments = [
    ...(compacted[0]
      ? [put(encodeHistory(history, SHAPE.valueColumns), 1, history, compacted[0])]
      : []),
    ...recent.slice(0, -1).map((one) => {
      const batch = batchFrom(one);
      return put(encodeChanges(batch, SHAPE.valueColumns), 0, batch, one);
    }),
  ];
  const inline = recent.slice(-1).map(({ rows, ...writer }) => ({
    ...writer,
    rows: encodeInline(rows, SHAPE.valueColumns),
  }));
  const bucket = {
    get: async (key: string, options?: { range: { offset: number; length: number } }) => {
      const file = files.get(key) as ArrayBuffer;
      const { offset, length } = options?.range ?? { offset: 0, length: file.byteLength };
      return { arrayBuffer: async () => file.slice(offset, offset + length) };
    },
  };
  const plan = { valueColumns: SHAPE.valueColumns, seq, segments, inline };
  // A read opens objects by their plan and bucket alone.
  return { plan: plan as unknown as Plan, parts: { bucket } as never };
}

type Range = { from: number; to: number };

/** The rows known at a vintage, by a map. */
function modelled(vintages: readonly Vintage[], seq: number, { from, to }: Range) {
  const state = new Map<string, { row: ChangedRow; vintage: Vintage }>();
  for (const vintage of vintages) {
    if (vintage.seq > seq) break;
    for (const row of vintage.rows) {
      if (row.datetime < from || row.datetime >= to) continue;
      state.set(`${row.datetime} ${row.instrumentId}`, { row, vintage });
    }
  }
  return [...state.values()]
    .filter(({ row }) => !row.retracted)
    .sort(
      ({ row: a }, { row: b }) =>
        a.datetime - b.datetime || (a.instrumentId < b.instrumentId ? -1 : 1),
    )
    .map(({ row, vintage }) => {
      const [value = null, share = null] = row.values.map((one) => (one !== one ? null : one + 0));
      return {
        Datetime: iso(row.datetime),
        instrument_id: row.instrumentId,
        value,
        share,
        as_of: iso(vintage.asOf),
        vintage_reconstructed: vintage.reconstructed,
      };
    });
}

async function written(format: "json" | "parquet", batches: AsyncIterable<Batch>) {
  const parts: Uint8Array[] = [];
  // A part holds until the next one is asked for.
  for await (const part of encodeRows(format, batches, SHAPE)) parts.push(part.slice());
  return Buffer.concat(parts);
}

type Bounds = [min: unknown, max: unknown, nulls: number];

function boundsOf(values: readonly (string | number | boolean | null)[]): Bounds {
  const present = values.filter((value) => value !== null).sort((a, b) => (a < b ? -1 : 1));
  return [present[0], present.at(-1), values.length - present.length];
}

describe("a long read in reused memory", () => {
  it("answers as a map does, in rows and in the bounds of each row group", async () => {
    const property = fc.asyncProperty(
      fc.integer({ min: 0, max: 1e9 }),
      fc.constantFrom(1, 50, 700, 4_097),
      async (seed, rows) => {
        const roll = dice(seed);
        const vintages = drawnVintages(roll, rows);
        const last = vintages.at(-1)?.seq ?? 1;
        const seq = last - Math.floor(roll() * roll() * last);
        const bound = () => FROM + Math.floor(roll() * rows * 1.1) * HOUR;
        const [from = 0, to = 0] = [bound(), bound()].sort((a, b) => a - b);
        const range = roll() < 0.5 ? { from: -Infinity, to: Infinity } : { from, to };
        const { plan, parts } = stored(vintages, seq, Math.floor(roll() * last));
        const viewed = async function* () {
          const arrays = new ReusedArrays();
          for await (const batch of versionsOf(parts, plan, range, true)) {
            yield applyView(batch, { seq }, arrays);
          }
        };
        const expected = modelled(vintages, seq, range);
        expect(JSON.parse((await written("json", viewed())).toString())).toEqual(expected);
        const body = await written("parquet", viewed());
        const file = body.buffer.slice(body.byteOffset, body.byteOffset + body.length);
        const found = await parquetReadObjects({ file: file as ArrayBuffer });
        expect(JSON.parse(JSON.stringify(found))).toEqual(expected);
        let first = 0;
        for (const group of parquetMetadata(file as ArrayBuffer).row_groups) {
          const own = expected.slice(first, first + Number(group.num_rows));
          first += own.length;
          for (const { meta_data: meta } of group.columns) {
            const name = meta?.path_in_schema[0] as keyof (typeof own)[0];
            const { min_value: min, max_value: max, null_count: nulls } = meta?.statistics ?? {};
            const plainly = (bound: unknown) => (bound instanceof Date ? iso(+bound) : bound);
            const [least, most] = [plainly(min), plainly(max)];
            const stated = [least === 0 ? 0 : least, most === 0 ? 0 : most, Number(nulls)];
            expect([name, ...stated]).toEqual([name, ...boundsOf(own.map((row) => row[name]))]);
          }
        }
      },
    );
    await fc.assert(property, { numRuns: 25 });
  });

  it("takes its memory once", () => {
    const arrays = new ReusedArrays();
    const first = arrays.floats("value", 4_096);
    expect(arrays.floats("value", 4_000).buffer).toBe(first.buffer);
    expect(arrays.floats("share", 4_096).buffer).not.toBe(first.buffer);
    expect(NEW_ARRAYS.floats("value", 4).buffer).not.toBe(NEW_ARRAYS.floats("value", 4).buffer);
    const codes = arrays.codes("value", 2, 4_096);
    expect(codes.buffer).not.toBe(first.buffer);
    expect(arrays.codes("value", 300, 8)).toBeInstanceOf(Uint16Array);
  });
});

it("leaves the numbers of an object unpacked, which readers would spend most of their time on", () => {
  const [vintage] = drawnVintages(dice(3), 100);
  const batch = batchOf(vintage?.rows ?? [], 2);
  const { columns } = indexOf(encodeHistory(batch, SHAPE.valueColumns).buffer as ArrayBuffer);
  const codecs = columns.filter(({ name }) => SHAPE.valueColumns.includes(name));
  expect(codecs.map(({ codec }) => codec)).toEqual(["UNCOMPRESSED", "UNCOMPRESSED"]);
});
