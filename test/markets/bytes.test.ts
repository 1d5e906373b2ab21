// The byte loops that replace the platform's own: numbers and instants against JavaScript's texts,
// Parquet pages against a writer that knows nothing of the decoder.

import fc from "fast-check";
import { type ColumnMetaData, parquetMetadata } from "hyparquet";
import { parquetWriteBuffer } from "hyparquet-writer";
import { describe, expect, it } from "vitest";
import { codesFor } from "../../edge/markets/store/columns.ts";
import { type Column, chunkOf, decodeColumn } from "../../edge/markets/store/parquet.ts";
import { decodeSegment, indexOf } from "../../edge/markets/store/segment.ts";
import { ISO_BYTES, writeIso, writeNumber } from "../../edge/markets/wire/bytes.ts";

const seed = process.env.SEED ? { seed: Number(process.env.SEED) } : {};

const MARGIN = 5;
const UNTOUCHED = 7;

/** The text that a writer leaves at an offset; it may use one byte after it, and none before. */
function written(write: (out: Uint8Array, at: number) => number): string {
  const out = new Uint8Array(64).fill(UNTOUCHED);
  const end = write(out, MARGIN);
  expect(out.subarray(0, MARGIN).every((byte) => byte === UNTOUCHED)).toBe(true);
  expect(out.subarray(end + 1).every((byte) => byte === UNTOUCHED)).toBe(true);
  return new TextDecoder().decode(out.subarray(MARGIN, end));
}

const isoText = (instant: number) => written((out, at) => writeIso(out, at, instant));
const numberText = (value: number) => written((out, at) => writeNumber(out, at, value));

describe("an instant as bytes", () => {
  const year = (number: number, month = 0, day = 1) =>
    new Date(0).setUTCFullYear(number, month, day);
  const FIRST = year(0);
  const END = year(10_000);

  it("is what Date writes, for any millisecond of the years 0000 to 9999", () => {
    const instants = fc.integer({ min: FIRST, max: END - 1 });
    fc.assert(
      fc.property(instants, (instant) => {
        expect(isoText(instant)).toBe(new Date(instant).toISOString());
      }),
      { numRuns: 20_000, examples: [[FIRST], [END - 1], [-1], [0], [1]], ...seed },
    );
  });

  it("is what Date writes around every turn of a month, leap days and years before 1970 included", () => {
    const years = [0, 1, 3, 4, 99, 100, 399, 400, 1582, 1600, 1899, 1900, 1968, 1969, 1970, 1999];
    const recent = Array.from({ length: 110 }, (_, index) => 1995 + index);
    const late = [2399, 2400, 2401, 4000, 9996, 9999];
    for (const one of [...years, ...recent, ...late]) {
      for (let month = 0; month < 12; month++) {
        for (const around of [year(one, month), year(one, month, 28), year(one, month, 29)]) {
          for (const instant of [around - 1, around, around + 1, around + 86_399_999]) {
            if (instant < FIRST || instant >= END) continue;
            if (isoText(instant) !== new Date(instant).toISOString()) {
              expect(isoText(instant)).toBe(new Date(instant).toISOString());
            }
          }
        }
      }
    }
    expect(isoText(Date.UTC(2024, 1, 29))).toBe("2024-02-29T00:00:00.000Z");
    expect(isoText(-1)).toBe("1969-12-31T23:59:59.999Z");
    expect(isoText(FIRST)).toHaveLength(ISO_BYTES);
  });
});

describe("a number as bytes", () => {
  it("is what String writes, for any finite double", () => {
    const finite = fc.double({ noNaN: true, noDefaultInfinity: true });
    fc.assert(
      fc.property(finite, (value) => {
        expect(numberText(value)).toBe(String(value));
      }),
      { numRuns: 20_000, ...seed },
    );
  });

  it("is what String writes, for prices, megawatts and whole numbers of any size and sign", () => {
    const decimals = fc
      .tuple(
        fc.integer({ min: -4_000_000_000, max: 4_000_000_000 }),
        fc.constantFrom(1, 10, 100, 1e3),
      )
      .map(([whole, scale]) => whole / scale);
    const whole = fc.maxSafeInteger();
    const nextTo = decimals.chain((value) =>
      fc.constantFrom(value * (1 + Number.EPSILON), value * (1 - Number.EPSILON), value + 1e-9),
    );
    fc.assert(
      fc.property(fc.oneof(decimals, whole, nextTo), (value) => {
        expect(numberText(value)).toBe(String(value));
      }),
      { numRuns: 30_000, ...seed },
    );
  });

  it.each([
    [0, "0"],
    [-0, "0"],
    [0.01, "0.01"],
    [-0.01, "-0.01"],
    [-0.1, "-0.1"],
    [0.005, "0.005"],
    [1.1, "1.1"],
    [-1, "-1"],
    [19_999_999.99, "19999999.99"],
    [20_000_000, "20000000"],
    [20_000_000.01, "20000000.01"],
    [0.1 + 0.2, "0.30000000000000004"],
    [3.8199999999999998, "3.82"],
    [1e21, "1e+21"],
    [1e-7, "1e-7"],
    [-1.2345678901234567e-6, "-0.0000012345678901234567"],
    [Number.MIN_VALUE, "5e-324"],
    [-2.2250738585072009e-308, "-2.225073858507201e-308"],
    [-Number.MAX_VALUE, "-1.7976931348623157e+308"],
    [Number.MAX_SAFE_INTEGER, "9007199254740991"],
  ])("writes %d as %s, which reads back as itself", (value, text) => {
    expect(numberText(value)).toBe(text);
    expect(Number(text)).toBe(value + 0);
  });
});

type Cell = bigint | number | boolean | string;

interface ColumnCase {
  /** One array a row group. */
  groups: Cell[][];
  type: "INT64" | "INT32" | "DOUBLE" | "BOOLEAN" | "BYTE_ARRAY";
  encoding: "PLAIN" | "DELTA_BINARY_PACKED" | "RLE_DICTIONARY" | "RLE";
  pageBytes: number;
  codec: "SNAPPY" | "UNCOMPRESSED";
}

/** Writes one REQUIRED column and decodes each of its chunks. */
function roundTrip({ groups, type, encoding, pageBytes, codec }: ColumnCase) {
  const text = type === "BYTE_ARRAY" ? { converted_type: "UTF8" as const } : {};
  const file = parquetWriteBuffer({
    schema: [
      { name: "root", num_children: 1 },
      { name: "column", type, repetition_type: "REQUIRED", ...text },
    ],
    columnData: [{ name: "column", data: groups.flat(), encoding }],
    rowGroupSize: groups.map(({ length }) => length),
    pageSize: pageBytes,
    codec,
  });
  const chunks = parquetMetadata(file).row_groups.map((group) => {
    const meta = group.columns[0]?.meta_data as ColumnMetaData;
    return {
      meta,
      column: decodeColumn(new Uint8Array(file), chunkOf(meta), Number(group.num_rows)),
    };
  });
  expect(chunks.map(({ column }) => column.values?.length ?? column.codes?.length)).toEqual(
    groups.map(({ length }) => length),
  );
  return { bytes: file.byteLength, chunks };
}

const plain = (column: Column): (number | string)[] => {
  if (column.values) return [...column.values];
  return Array.from(column.codes, (code) => column.dictionary[code] as number | string);
};

const expectSame = (written: ColumnCase) => {
  const { chunks } = roundTrip(written);
  for (const [index, { column, meta }] of chunks.entries()) {
    expect(meta.encodings).toContain(written.encoding);
    const cells = written.groups[index] ?? [];
    expect(plain(column)).toEqual(
      cells.map((cell) => (typeof cell === "string" ? cell : Number(cell))),
    );
  }
  return chunks;
};

const shape = fc.record({
  pageBytes: fc.constantFrom(64, 300, 4_096, 16 << 20),
  codec: fc.constantFrom("SNAPPY" as const, "UNCOMPRESSED" as const),
});
const groupsOf = <T extends Cell>(cells: fc.Arbitrary<T>, maxLength = 700) =>
  fc.array(fc.array(cells, { minLength: 1, maxLength, size: "max" }), {
    minLength: 1,
    maxLength: 2,
  });

/** Numbers of every magnitude up to 2^51, as differences too. */
const wide = fc
  .tuple(fc.integer({ min: 0, max: 51 }), fc.double({ min: -1, max: 1, noNaN: true }))
  .map(([bits, share]) => BigInt(Math.round(share * 2 ** bits)));

/** Counters that step by few, often by the same, sometimes back. */
const walk = fc
  .tuple(
    wide,
    fc.array(fc.tuple(fc.integer({ min: -40, max: 4_000_000 }), fc.integer({ min: 1, max: 90 })), {
      minLength: 1,
      maxLength: 25,
    }),
  )
  .map(([start, steps]) => {
    let value = start / 2n;
    return steps.flatMap(([step, times]) =>
      Array.from({ length: times }, () => {
        value += BigInt(step);
        return value;
      }),
    );
  });

describe("a Parquet column chunk", () => {
  const property = (written: fc.Arbitrary<ColumnCase>, numRuns: number) =>
    fc.assert(
      fc.property(written, (one) => void expectSame(one)),
      { numRuns, ...seed },
    );

  it("of delta-coded integers decodes to what was written, negative and wide steps included", () => {
    const groups = fc.oneof(groupsOf(wide), fc.array(walk, { minLength: 1, maxLength: 2 }));
    property(
      fc.tuple(groups, shape).map(([cells, more]) => ({
        groups: cells,
        type: "INT64" as const,
        encoding: "DELTA_BINARY_PACKED" as const,
        ...more,
      })),
      120,
    );
  });

  it("of runs and bits of booleans decodes to what was written", () => {
    const stretches = fc
      .array(fc.tuple(fc.boolean(), fc.integer({ min: 1, max: 60 })), { minLength: 1 })
      .map((runs) => runs.flatMap(([value, times]) => new Array<boolean>(times).fill(value)));
    const groups = fc.oneof(
      groupsOf(fc.boolean()),
      fc.array(stretches, { minLength: 1, maxLength: 2 }),
    );
    property(
      fc
        .tuple(groups, fc.constantFrom("RLE" as const, "PLAIN" as const), shape)
        .map(([cells, encoding, more]) => ({
          groups: cells,
          type: "BOOLEAN" as const,
          encoding,
          ...more,
        })),
      120,
    );
  });

  it("of plain numbers decodes to what was written, bit by bit", () => {
    const doubles = fc.tuple(groupsOf(fc.double()), shape).map(
      ([groups, more]): ColumnCase => ({
        groups,
        type: "DOUBLE",
        encoding: "PLAIN",
        ...more,
      }),
    );
    const longs = fc.tuple(groupsOf(wide), shape).map(
      ([groups, more]): ColumnCase => ({
        groups,
        type: "INT64",
        encoding: "PLAIN",
        ...more,
      }),
    );
    const ints = fc.tuple(groupsOf(fc.integer()), shape).map(
      ([groups, more]): ColumnCase => ({
        groups,
        type: "INT32",
        encoding: "PLAIN",
        ...more,
      }),
    );
    property(fc.oneof(doubles, longs, ints), 120);
  });

  it("of dictionary codes decodes to what was written, text, integers and doubles", () => {
    const some = <T extends Cell>(entries: fc.Arbitrary<T>) =>
      fc
        .uniqueArray(entries, { minLength: 1, maxLength: 40 })
        .chain((dictionary) => groupsOf(fc.constantFrom(...dictionary)));
    const text = fc.tuple(
      some(fc.string({ unit: "grapheme" })),
      fc.constant("BYTE_ARRAY" as const),
    );
    const longs = fc.tuple(some(wide), fc.constant("INT64" as const));
    const doubles = fc.tuple(
      some(fc.double({ noNaN: true }).map((value) => value + 0)),
      fc.constant("DOUBLE" as const),
    );
    property(
      fc.tuple(fc.oneof(text, longs, doubles), shape).map(([[groups, type], more]) => ({
        groups,
        type,
        encoding: "RLE_DICTIONARY" as const,
        ...more,
      })),
      120,
    );
  });

  it.each([
    [1, Uint8Array],
    [2, Uint8Array],
    [255, Uint8Array],
    [256, Uint8Array],
    [257, Uint16Array],
    [4_000, Uint16Array],
    [65_536, Uint16Array],
    [65_537, Uint32Array],
    [70_001, Uint32Array],
  ])("of %d dictionary entries decodes to codes of the narrowest kind", (entries, Kind) => {
    const scattered = Array.from({ length: Math.max(entries, 900) }, (_, row) => row * 7_919);
    // The last entries again, each in a run.
    const runs = Array.from({ length: 900 }, (_, row) => entries - 1 - Math.floor(row / 90));
    const cells = [...scattered, ...runs].map((entry) => `i.${Math.abs(entry) % entries}`);
    for (const pageBytes of [1_000, 16 << 20]) {
      const [chunk] = expectSame({
        groups: [cells],
        type: "BYTE_ARRAY",
        encoding: "RLE_DICTIONARY",
        pageBytes,
        codec: "SNAPPY",
      });
      expect(chunk?.column.codes).toBeInstanceOf(Kind);
      expect(codesFor(entries, 1)).toBeInstanceOf(Kind);
    }
  });

  it("is cut into pages where the pages are small, and reads the same", () => {
    const cells = Array.from({ length: 5_000 }, (_, row) => BigInt(row) ** 3n - 60_000_000_000n);
    const sizes = [64, 1_000, 16 << 20].map((pageBytes) => {
      const column: ColumnCase = {
        groups: [cells],
        type: "INT64",
        encoding: "DELTA_BINARY_PACKED",
        pageBytes,
        codec: "UNCOMPRESSED",
      };
      expectSame(column);
      return roundTrip(column).bytes;
    });
    // More pages, more headers.
    expect(sizes.toSorted((a, b) => b - a)).toEqual(sizes);
    expect(new Set(sizes).size).toBe(3);
  });

  it("is refused when it may hold nulls, or lacks values that its file announces", () => {
    const file = parquetWriteBuffer({
      schema: [
        { name: "root", num_children: 1 },
        { name: "column", type: "DOUBLE", repetition_type: "OPTIONAL" },
      ],
      columnData: [{ name: "column", data: [null, 1, 2, 3], encoding: "PLAIN" }],
      codec: "UNCOMPRESSED",
    });
    const meta = parquetMetadata(file).row_groups[0]?.columns[0]?.meta_data as ColumnMetaData;
    expect(() => decodeColumn(new Uint8Array(file), chunkOf(meta), 4)).toThrow(
      "columns are REQUIRED",
    );
    const whole = parquetWriteBuffer({
      schema: [
        { name: "root", num_children: 1 },
        { name: "column", type: "DOUBLE", repetition_type: "REQUIRED" },
      ],
      columnData: [{ name: "column", data: [1, 2, 3], encoding: "PLAIN" }],
    });
    const chunk = parquetMetadata(whole).row_groups[0]?.columns[0]?.meta_data as ColumnMetaData;
    expect(() => decodeColumn(new Uint8Array(whole), chunkOf(chunk), 4)).toThrow(
      "holds its 4 values",
    );
  });
});

describe("objects of the first release", () => {
  it("still open: instants without a zone, encodings of the writer's own choice", () => {
    const rows = 40_000;
    const data = <Cell>(cell: (row: number) => Cell) =>
      Array.from({ length: rows }, (_, row) => cell(row));
    const from = Date.UTC(2020, 0, 1);
    const file = parquetWriteBuffer({
      rowGroupSize: 32_768,
      columnData: [
        {
          name: "Datetime",
          type: "TIMESTAMP",
          nullable: false,
          data: data((row) => new Date(from + row * 3_600_000)),
        },
        {
          name: "instrument_id",
          type: "STRING",
          nullable: false,
          data: data(() => "power.demand.erco"),
        },
        { name: "value", type: "DOUBLE", nullable: false, data: data((row) => row / 4) },
        { name: "retracted", type: "BOOLEAN", nullable: false, data: data((row) => row === 7) },
      ],
    });
    const writer = { seq: 3, asOf: from, reconstructed: true };
    const part = { ...indexOf(file), bytes: new Uint8Array(file), offset: 0 };
    const batches = [...decodeSegment(part, ["value"], writer)];
    expect(batches.map(({ length }) => length)).toEqual([32_768, 7_232]);
    const [first, second] = batches;
    expect(second?.datetime[0]).toBe(from + 32_768 * 3_600_000);
    expect(first?.values[0]?.[41]).toBe(10.25);
    expect([...(first?.retracted ?? [])].indexOf(1)).toBe(7);
    expect(first?.instruments).toEqual(["power.demand.erco"]);
    expect(first?.vintages).toEqual([writer]);
  });
});
