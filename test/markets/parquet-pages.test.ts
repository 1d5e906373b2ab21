// Parquet answers, page by page, against a reader that is not ours: hard numbers, uneven instants,
// columns without any value, and the bounds that let a reader skip a row group.

import { createHash } from "node:crypto";
import { parquetMetadata, parquetReadObjects } from "hyparquet";
import { expect, it } from "vitest";
import type { Batch } from "../../edge/markets/store/columns.ts";
import { PANEL_ENCODING, SERIES_ENCODING } from "../../edge/markets/wire/encodings.ts";
import { encodeRows } from "../../edge/markets/wire/formats.ts";
import { dice } from "../support/dice.ts";

const SHAPE = { valueColumns: ["value", "share"], history: true, provenance: null };
const GROUP_ROWS = 32_768;

interface Columns {
  rows: number;
  /** Milliseconds between one instant and the next. */
  step: () => number;
  value: (row: number) => number;
  share: (row: number) => number;
}

function drawn({ rows, step, value, share }: Columns): Batch {
  let instant = Date.UTC(1901, 1, 3);
  const column = (of: (row: number) => number) =>
    Float64Array.from({ length: rows }, (_, row) => of(row));
  return {
    length: rows,
    datetime: column(() => (instant += step())),
    instrument: Uint8Array.from({ length: rows }, (_, row) => row % 2),
    instruments: ["Zürich", "hub, \u{1f600}"],
    values: [column(value), column(share)],
    vintage: new Uint8Array(rows),
    vintages: [{ seq: 3, asOf: Date.UTC(2026, 0, 1), reconstructed: true }],
    retracted: null,
    knownTo: column((row) => (row % 3 === 0 ? NaN : Date.UTC(2026, 0, 1 + (row % 900)))),
  };
}

async function written(...batches: Batch[]): Promise<ArrayBuffer> {
  const source = async function* () {
    yield* batches;
  };
  const parts: Uint8Array[] = [];
  for await (const part of encodeRows("parquet", source(), SHAPE)) parts.push(part);
  return new Blob(parts as Uint8Array<ArrayBuffer>[]).arrayBuffer();
}

const orNull = (value: number) => (Number.isNaN(value) ? null : value);

async function expectRows(batch: Batch, file: ArrayBuffer) {
  const rows = await parquetReadObjects({ file });
  const [value, share] = batch.values as [Float64Array, Float64Array];
  const expected = Array.from({ length: batch.length }, (_, row) => ({
    Datetime: new Date(batch.datetime[row] as number),
    instrument_id: batch.instruments[batch.instrument[row] as number],
    value: orNull(value[row] as number),
    share: orNull(share[row] as number),
    as_of: new Date(Date.UTC(2026, 0, 1)),
    vintage_reconstructed: true,
    known_from: new Date(Date.UTC(2026, 0, 1)),
    known_to: Number.isNaN(batch.knownTo?.[row]) ? null : new Date(batch.knownTo?.[row] ?? NaN),
  }));
  expect(rows.length).toBe(expected.length);
  const differing = rows.findIndex(
    (row, at) => JSON.stringify(row) !== JSON.stringify(expected[at]),
  );
  expect(rows[differing]).toEqual(expected[differing]);
}

it.each([1, 2, 31, 32, 33, 127, 128, 129, 130, 257, 1_000])(
  "gives %i rows back with uneven instants and hard numbers",
  async (rows) => {
    const random = dice(rows);
    const hard = [0.1 + 0.2, 1e-300, 5e-324, Number.MAX_VALUE, -1 / 3, 2 ** 53, NaN, 0, -40_000];
    const batch = drawn({
      rows,
      step: () => Math.floor(2 ** (random() * 41)) + (random() < 0.1 ? 3_600_000 : 0),
      value: () => hard[Math.floor(random() * hard.length)] as number,
      share: () => NaN,
    });
    await expectRows(batch, await written(batch));
  },
);

it.each([
  ["the years 1 to 9999, which no double counts in microseconds", -62_135_596_800_000, 3_650],
  ["a thousand years, further apart than their differences can be told", Date.UTC(1400, 0, 1), 400],
  ["two centuries around 1970", Date.UTC(1880, 0, 1), 80],
])("gives instants of %s back to the millisecond", async (_, first, years) => {
  const random = dice(years);
  const batch = drawn({ rows: 999, step: () => 1, value: (row) => row, share: () => 1 });
  const span = years * 2.737 * 365.25 * 86_400_000;
  batch.datetime.set(
    Float64Array.from(batch.datetime, () => first + Math.floor(random() * span)).sort(),
  );
  await expectRows(batch, await written(batch));
});

it("gives as many different numbers back as a group holds, and few of them as codes", async () => {
  const rows = GROUP_ROWS + 17;
  const random = dice(7);
  const batch = drawn({
    rows,
    step: () => 3_600_000,
    value: (row) => row * 1.1,
    share: () => Math.round(random() * 100) / 100,
  });
  const file = await written(batch);
  await expectRows(batch, file);
  const [first] = parquetMetadata(file).row_groups;
  const size = (at: number) => Number(first?.columns[at]?.meta_data?.total_compressed_size);
  expect(size(2)).toBeGreaterThan(GROUP_ROWS * 8);
  // 101 values: seven bits a row. Instants at an even pace: nothing to speak of.
  expect(size(3)).toBeLessThan(GROUP_ROWS);
  expect(size(0)).toBeLessThan(GROUP_ROWS / 8);
});

it("states bounds of every column that no value exceeds, and how many are missing", async () => {
  const batch = drawn({
    rows: 500,
    step: () => 900_000,
    value: (row) => (row === 7 ? NaN : row % 2 === 0 ? -0 : -row),
    share: (row) => row / 4,
  });
  const { row_groups: groups } = parquetMetadata(await written(batch));
  const bounds = Object.fromEntries(
    (groups[0]?.columns ?? []).map(({ meta_data }) => {
      const { min_value, max_value, null_count } = meta_data?.statistics ?? {};
      return [meta_data?.path_in_schema[0], [min_value, max_value, Number(null_count)]];
    }),
  );
  const date = (at: number) => new Date(batch.datetime[at] as number);
  expect(bounds).toEqual({
    Datetime: [date(0), date(499), 0],
    instrument_id: ["Zürich", "hub, \u{1f600}", 0],
    value: [-499, 0, 1],
    share: [-0, 499 / 4, 0],
    as_of: [new Date(Date.UTC(2026, 0, 1)), new Date(Date.UTC(2026, 0, 1)), 0],
    vintage_reconstructed: [true, true, 0],
    known_from: [new Date(Date.UTC(2026, 0, 1)), new Date(Date.UTC(2026, 0, 1)), 0],
    known_to: [expect.any(Date), expect.any(Date), 167],
  });
});

it("cuts row groups of one size, whatever the batches it is given", async () => {
  const rows = 2 * GROUP_ROWS + 5;
  const batch = drawn({ rows, step: () => 60_000, value: (row) => row % 97, share: () => 1 });
  const whole = await written(batch);
  expect(parquetMetadata(whole).row_groups.map((group) => Number(group.num_rows))).toEqual([
    GROUP_ROWS,
    GROUP_ROWS,
    5,
  ]);
  const piece = (from: number, to: number): Batch => ({
    ...batch,
    length: to - from,
    datetime: batch.datetime.subarray(from, to),
    instrument: batch.instrument.subarray(from, to),
    values: batch.values.map((column) => column.subarray(from, to)),
    vintage: batch.vintage.subarray(from, to),
    knownTo: (batch.knownTo as Float64Array).subarray(from, to),
  });
  const cuts = [0, 1, 1_000, 20_000, 50_001, GROUP_ROWS * 2, rows];
  const pieces = cuts.slice(1).map((to, at) => piece(cuts[at] as number, to));
  expect(Buffer.from(await written(...pieces)).equals(Buffer.from(whole))).toBe(true);
});

it("is told apart by its tag from what an earlier release wrote", async () => {
  const batch = drawn({ rows: 40, step: () => 900_000, value: (row) => row / 4, share: () => NaN });
  const digest = async (format: "json" | "ndjson" | "csv" | "parquet" | "arrow") => {
    const hash = createHash("sha256");
    const source = async function* () {
      yield batch;
    };
    for await (const part of encodeRows(format, source(), SHAPE)) hash.update(part);
    return hash.digest("hex").slice(0, 12);
  };
  // Where these bytes change, raise both numbers: a cache holds the old ones under the old tag.
  expect({
    series: SERIES_ENCODING,
    panel: PANEL_ENCODING,
    json: await digest("json"),
    ndjson: await digest("ndjson"),
    csv: await digest("csv"),
    parquet: await digest("parquet"),
    arrow: await digest("arrow"),
  }).toMatchInlineSnapshot(`
    {
      "arrow": "163ad4662bbb",
      "csv": "75c365b21cac",
      "json": "2c9ba1a959d8",
      "ndjson": "a3374c76be44",
      "panel": 3,
      "parquet": "cd53579b7001",
      "series": 4,
    }
  `);
});
