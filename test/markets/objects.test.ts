// What the store keeps and what the read API sends, opened by programs of others: DuckDB
// reads every object, and plain SQL over compacted ones answers as the API does.

import { sql } from "drizzle-orm";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { commit, type Vintage } from "../../edge/markets/store/commit.ts";
import { compact } from "../../edge/markets/store/compact.ts";
import type { Row as SourceRow } from "../../edge/markets/store/rows.ts";
import { iso } from "../../shared/time.ts";
import {
  type Duck,
  openDuck,
  type Row,
  readArrow,
  readCsv,
  readNdjson,
} from "../support/formats.ts";
import { createWorld, HOUR, type World } from "../support/world.ts";

const INSTANT = "TIMESTAMP WITH TIME ZONE";
const FROM = Date.UTC(2025, 10, 20);
const LIBRARY = "power.objects";
const FORMATS = ["ndjson", "csv", "parquet", "arrow"] as const;

let world: World;
let duck: Duck;
beforeAll(async () => {
  [world, duck] = await Promise.all([
    createWorld({ services: ["markets", "console"] }),
    openDuck(),
  ]);
});
afterAll(() => duck.close());

/** One commit of a scenario. */
interface Step {
  rows: SourceRow[];
  covered: { from: number; to: number };
  reconstructed?: boolean;
  sourcePublishedAt?: number;
}

interface Scenario {
  symbol: string;
  valueColumns: string[];
  steps: Step[];
}

/** A row of the model: what one state holds. */
interface ModelRow {
  values: readonly number[];
  asOf: number;
  reconstructed: boolean;
  seq: number;
}

interface ModelCommit {
  vintage: Vintage;
  /** By `Datetime|instrument`: every row known, and what of them this commit changed. */
  state: Map<string, ModelRow>;
  changes: Map<string, readonly number[] | "retracted">;
}

const keyOf = (datetime: number, instrumentId: string) => `${iso(datetime)}|${instrumentId}`;
const same = (left: readonly number[], right: readonly number[]) =>
  left.every(
    (value, index) => value === right[index] || (value !== value && right[index] !== right[index]),
  );

/** Commits a scenario step by step, beside a model that compares row by row; returns the new. */
async function play(
  { symbol, valueColumns, steps }: Scenario,
  inlineRowsMax: number,
  before: readonly ModelCommit[] = [],
) {
  const played: ModelCommit[] = [...before];
  for (const [index, step] of steps.entries()) {
    const { reconstructed = false, sourcePublishedAt = null } = step;
    const vintage = await commit(
      { ...world.writer, inlineRowsMax },
      {
        library: LIBRARY,
        symbol,
        valueColumns,
        sandbox: false,
        reconstructed,
        rows: step.rows,
        covered: step.covered,
        sourcePublishedAt,
        runId: `run-${index}`,
        partition: String(index),
        sourceUrl: `https://api.eia.gov/v2/?a=1,2&q="${index}"`,
      },
    );
    if (!vintage) throw new Error(`step ${index} of ${symbol} changes nothing`);
    const known = played.at(-1)?.state;
    const state = new Map(known);
    const changes: ModelCommit["changes"] = new Map();
    const incoming = new Map(step.rows.map((row) => [keyOf(row.datetime, row.instrumentId), row]));
    for (const [key, { values }] of incoming) {
      const old = state.get(key);
      if (old && same(old.values, values)) continue;
      changes.set(key, values);
      state.set(key, { values, asOf: vintage.asOf, reconstructed, seq: vintage.seq });
    }
    for (const key of known?.keys() ?? []) {
      const datetime = Date.parse(key.slice(0, 24));
      const { from, to } = step.covered;
      if (datetime < from || datetime >= to || incoming.has(key)) continue;
      changes.set(key, "retracted");
      state.delete(key);
    }
    played.push({ vintage, state, changes });
  }
  return played.slice(before.length);
}

const FUELS = ["fuel.sun", 'fuel."wnd"', "fuel.wat,river", "fuel.Öl\nund Gas", "fuel.☀️"];
const EXTREMES = [
  ...[Number.MAX_VALUE, -Number.MAX_VALUE, Number.MIN_VALUE, -1e-300, 0.1 + 0.2, -1.23456789e-6],
  ...[Number.MAX_SAFE_INTEGER, -123456.789, 1e21, 0, -0, 28.4, -0.01],
];

/** Rows of a few instruments over some hours that differ from vintage to vintage. */
function hours(
  { from, count, round }: { from: number; count: number; round: number },
  { instruments, columns }: { instruments: readonly string[]; columns: number },
): Step {
  const rows: SourceRow[] = [];
  for (let hour = from; hour < from + count; hour++) {
    for (const [index, instrumentId] of instruments.entries()) {
      if ((hour * 5 + index + round * 3) % 17 === 0) continue;
      const revised = (hour + index) % 7 === round % 7 ? round : 0;
      const values = Array.from({ length: columns }, (_, column) => {
        if ((hour * 3 + column + index + revised) % 13 === 0) return NaN;
        const extreme = EXTREMES[(hour + column * 5 + index * 3 + revised) % 40];
        return extreme ?? Math.round(hour * 100.7 + column * 13 + revised) / 100;
      });
      rows.push({ datetime: FROM + hour * HOUR, instrumentId, values });
    }
  }
  return { rows, covered: { from: FROM + from * HOUR, to: FROM + (from + count) * HOUR } };
}

function scenario(
  symbol: string,
  valueColumns: string[],
  instruments: readonly string[],
): Scenario {
  const shape = { instruments, columns: valueColumns.length };
  return {
    symbol,
    valueColumns,
    steps: [
      { ...hours({ from: 0, count: 900, round: 0 }, shape), sourcePublishedAt: FROM - 1 },
      hours({ from: 400, count: 300, round: 1 }, shape),
      { ...hours({ from: -100, count: 150, round: 2 }, shape), reconstructed: true },
      { ...hours({ from: 850, count: 100, round: 3 }, shape), sourcePublishedAt: FROM + 7 },
      { rows: [], covered: { from: FROM + 10 * HOUR, to: FROM + 40 * HOUR } },
      { ...hours({ from: 0, count: 36, round: 4 }, shape), reconstructed: true },
    ],
  };
}

const SCENARIOS = [
  scenario("single", ["value"], ["power.demand.erco"]),
  scenario("bars", ["open", "high", "low", "close", "volume"], ["prices.intraday.ung"]),
  scenario("fuels", ["value"], FUELS),
];

/** The series' live objects of one level, oldest first. */
async function liveObjects(symbol: string, level: number) {
  const { rows } = await world.database.execute<{ key: string; seq: number; rows: number }>(sql`
    SELECT g.object_key AS key, g.seq_min::int AS seq, g.rows FROM segment g
      JOIN series s ON s.id = g.series_id
     WHERE s.library = ${LIBRARY} AND s.symbol = ${symbol} AND g.level = ${level}
       AND g.retired_at IS NULL ORDER BY g.seq_min, g.valid_min`);
  return Promise.all(
    rows.map(async (object) => {
      const stored = await world.bucket.get(object.key);
      return { ...object, bytes: new Uint8Array((await stored?.arrayBuffer()) ?? []) };
    }),
  );
}

const NAN = "NaN";
/** Values as text that tells NaN from null. */
const cells = (values: readonly unknown[]) =>
  values.map((value) => (Number.isNaN(value) ? NAN : String(value === null ? "null" : value)));

let asked = 0;
async function get(symbol: string, query: string): Promise<Uint8Array> {
  // A bound of its own keeps each answer from the cache at the edge.
  const bound = `end=${iso(Date.UTC(9990, 0, 1) + asked++)}`;
  const response = await fetch(
    `${world.urls.markets}/series?library=${LIBRARY}&symbol=${symbol}&${bound}&${query}`,
  );
  const bytes = new Uint8Array(await response.arrayBuffer());
  if (response.status !== 200) throw new Error(new TextDecoder().decode(bytes));
  return bytes;
}
const text = (bytes: Uint8Array) => new TextDecoder("utf-8", { fatal: true }).decode(bytes);
const json = async (symbol: string, query: string) =>
  JSON.parse(text(await get(symbol, query))) as Row[];

/** A state of the model as the API answers it. */
const expected = ({ state }: ModelCommit, valueColumns: readonly string[]): Row[] =>
  [...state]
    .sort(([left], [right]) => (left < right ? -1 : 1))
    .map(([key, { values, asOf, reconstructed }]) => ({
      Datetime: key.slice(0, 24),
      instrument_id: key.slice(25),
      ...Object.fromEntries(
        valueColumns.map((name, column) => {
          const value = values[column] ?? NaN;
          // −0 and 0 are one value, and its text is 0.
          return [name, Number.isNaN(value) ? null : value + 0];
        }),
      ),
      as_of: iso(asOf),
      vintage_reconstructed: reconstructed,
    }));

const doubles = (valueColumns: readonly string[]) =>
  Object.fromEntries(valueColumns.map((name) => [name, "DOUBLE"]));

describe.each(SCENARIOS)("the objects of $symbol", (scene) => {
  const { symbol, valueColumns } = scene;
  let played: ModelCommit[];
  beforeAll(async () => {
    played = await play(scene, 0);
  });

  it("hold, at level 0, exactly what each commit changed, under typed columns", async () => {
    const objects = await liveObjects(symbol, 0);
    expect(objects.map(({ seq }) => seq)).toEqual(played.map(({ vintage }) => vintage.seq));
    for (const [index, { bytes, rows: count }] of objects.entries()) {
      const { columns, rows } = await duck.parquet(bytes);
      expect(columns).toEqual({
        Datetime: INSTANT,
        instrument_id: "VARCHAR",
        ...doubles(valueColumns),
        retracted: "BOOLEAN",
      });
      const changes = played[index]?.changes ?? new Map();
      expect([rows.length, count]).toEqual([changes.size, changes.size]);
      const found = rows.map((row) => [
        `${row.Datetime}|${row.instrument_id}`,
        row.retracted ? "retracted" : cells(valueColumns.map((name) => row[name])).join(),
      ]);
      const wanted = [...changes].map(([key, values]) => [
        key,
        values === "retracted" ? values : cells(values).join(),
      ]);
      expect(Object.fromEntries(found)).toEqual(Object.fromEntries(wanted));
    }
  });

  it("answer plain SQL, at level 1, as the API answers at every vintage", async () => {
    const states = played.map((one) => expected(one, valueColumns));
    const answers = async () => {
      const found = await Promise.all(
        played.map(({ vintage }) => json(symbol, `as_of=${iso(vintage.asOf)}`)),
      );
      for (const [index, rows] of found.entries()) expectRows(rows, states[index]);
    };
    await answers();
    expect(await compact(world.writer, { library: LIBRARY, symbol })).toBeGreaterThan(0);
    await answers();
    expect(await liveObjects(symbol, 0)).toEqual([]);
    const objects = await liveObjects(symbol, 1);
    const files: string[] = [];
    for (const { bytes } of objects) {
      const { columns } = await duck.parquet(bytes);
      expect(columns).toEqual({
        Datetime: INSTANT,
        instrument_id: "VARCHAR",
        ...doubles(valueColumns),
        retracted: "BOOLEAN",
        as_of: INSTANT,
        vintage_reconstructed: "BOOLEAN",
        store_version: "BIGINT",
      });
      files.push(`'${duck.file(bytes)}'`);
    }
    const instant = (name: string) => `strftime("${name}", '%Y-%m-%dT%H:%M:%S.%gZ') AS "${name}"`;
    for (const [index, { vintage }] of played.entries()) {
      const rows = await duck.query(`
        WITH known AS (SELECT * FROM read_parquet([${files.join()}])
          WHERE as_of <= make_timestamp_ms(${vintage.asOf})
          QUALIFY row_number() OVER (PARTITION BY "Datetime", instrument_id
            ORDER BY store_version DESC) = 1)
        SELECT ${instant("Datetime")}, instrument_id, ${valueColumns.join()}, ${instant("as_of")},
            vintage_reconstructed
          FROM known WHERE NOT retracted ORDER BY "Datetime", instrument_id`);
      const withNulls = rows.map((row) =>
        Object.fromEntries(
          Object.entries(row).map(([name, cell]) => [name, Number.isNaN(cell) ? null : cell]),
        ),
      );
      expectRows(withNulls as Row[], states[index]);
    }
  });
});

/** Equal rows, cell by cell; only a row that differs is worth a matcher's time. */
function expectRows(found: readonly Row[], wanted: readonly Row[] | undefined = []) {
  const differs = found.findIndex((row, index) => {
    const other = wanted[index] ?? {};
    const names = Object.keys(row);
    return (
      names.length !== Object.keys(other).length ||
      names.some((name) => !Object.is(row[name], other[name]))
    );
  });
  if (differs >= 0) expect(found[differs]).toStrictEqual(wanted[differs]);
  expect([found.length, differs]).toEqual([wanted.length, -1]);
}

/** One question in every format: all of them hold the rows of the JSON answer. */
async function compareFormats(
  { symbol, valueColumns }: Pick<Scenario, "symbol" | "valueColumns">,
  query: string,
) {
  const rows = await json(symbol, `format=json&${query}`);
  const [ndjson, csv, parquet, arrow] = (await Promise.all(
    FORMATS.map((format) => get(symbol, `format=${format}&${query}`)),
  )) as [Uint8Array, Uint8Array, Uint8Array, Uint8Array];
  expectRows(readNdjson(text(ndjson)), rows);
  const numbers = [...valueColumns, "store_version"].map((name) => [name, "number"] as const);
  const kinds = { ...Object.fromEntries(numbers), vintage_reconstructed: "flag" as const };
  const tables = {
    csv: readCsv(text(csv), kinds),
    parquet: await duck.parquet(parquet),
    arrow: readArrow(arrow),
  };
  const full = query.includes("provenance=full");
  const history = query.includes("includeHistory=true");
  const columns = (names: Record<"instant" | "text" | "number" | "flag" | "count", string>) => ({
    Datetime: names.instant,
    instrument_id: names.text,
    ...Object.fromEntries(valueColumns.map((name) => [name, names.number])),
    as_of: names.instant,
    vintage_reconstructed: names.flag,
    ...(full && { store_version: names.count, source_url: names.text }),
    ...(full && { source_published_at: names.instant, run_id: names.text }),
    ...(history && { known_from: names.instant, known_to: names.instant }),
  });
  const types = {
    csv: columns({ instant: "text", text: "text", number: "text", flag: "text", count: "text" }),
    parquet: columns({
      instant: INSTANT,
      text: "VARCHAR",
      number: "DOUBLE",
      flag: "BOOLEAN",
      count: "BIGINT",
    }),
    arrow: columns({
      instant: "Timestamp<MICROSECOND, UTC>",
      text: "Utf8",
      number: "Float64",
      flag: "Bool",
      count: "Int64",
    }),
  };
  for (const [name, table] of Object.entries(tables)) {
    expect(table.columns, name).toEqual(types[name as keyof typeof types]);
    expect(Object.keys(table.columns), name).toEqual(Object.keys(types.csv));
    expectRows(table.rows, rows);
  }
  if (rows[0]) expect(Object.keys(rows[0])).toEqual(Object.keys(types.csv));
  return { rows, parquet: tables.parquet.parts, arrow: tables.arrow.parts };
}

describe("an answer", () => {
  // Not compacted: what is inline and what is in objects answers together.
  const scene = scenario("answered", ["value", "share"], FUELS);
  let played: ModelCommit[];
  beforeAll(async () => {
    played = await play(scene, 200);
    const sizes = played.map(({ changes }) => changes.size);
    expect(sizes.filter((rows) => rows <= 200)).toHaveLength(2);
  });

  const check = async () => {
    const second = `as_of=${iso(played[1]?.vintage.asOf ?? 0)}`;
    for (const query of ["", second, "provenance=full", "includeHistory=true&provenance=full"]) {
      const { rows } = await compareFormats(scene, query);
      expect(rows.length).toBeGreaterThan(500);
      const missing = rows.filter(({ value, share }) => value === null || share === null);
      expect(missing.length).toBeGreaterThan(10);
    }
    expect((await compareFormats(scene, "includeHistory=true")).rows.length).toBe(
      played.flatMap(({ changes }) => [...changes.values()].filter((one) => one !== "retracted"))
        .length,
    );
    const { rows } = await compareFormats(scene, second);
    expectRows(rows, expected(played[1] as ModelCommit, scene.valueColumns));
  };

  it("holds the rows of the JSON answer in every format", check);

  it("holds nothing, under the same columns, when nothing was known", async () => {
    for (const more of ["", "&provenance=full", "&includeHistory=true"]) {
      const before = `as_of=${iso((played[0]?.vintage.asOf ?? 0) - 1)}${more}`;
      expect((await compareFormats(scene, before)).rows).toEqual([]);
      const outside = `start=2031-01-01${more}`;
      expect((await compareFormats(scene, outside)).rows).toEqual([]);
    }
  });

  it("holds them from compacted objects too, and from those and later vintages together", async () => {
    expect(await compact(world.writer, { library: LIBRARY, symbol: scene.symbol })).toBe(1);
    await check();
    const shape = { instruments: FUELS, columns: 2 };
    const steps = [
      hours({ from: 890, count: 20, round: 5 }, shape),
      hours({ from: 100, count: 200, round: 6 }, shape),
    ];
    played = [...played, ...(await play({ ...scene, steps }, 200, played))];
    expect(await liveObjects(scene.symbol, 0)).toHaveLength(1);
    await check();
    const latest = await json(scene.symbol, "");
    expectRows(latest, expected(played.at(-1) as ModelCommit, scene.valueColumns));
  });

  it("of many rows is several row groups and record batches of the same rows", async () => {
    const many: Scenario = {
      symbol: "many",
      valueColumns: ["value"],
      steps: [
        {
          rows: Array.from({ length: 41_000 }, (_, index) => ({
            datetime: FROM + Math.floor(index / 2) * HOUR,
            instrumentId: `many.${index % 2}`,
            values: [index % 1_001 === 0 ? NaN : index / 8],
          })),
          covered: { from: FROM, to: FROM + 20_500 * HOUR },
        },
        hours(
          { from: 16_000, count: 900, round: 1 },
          { instruments: ["many.0", "many.1"], columns: 1 },
        ),
      ],
    };
    const states = await play(many, 2_000);
    const [first, second] = states.map((state) => expected(state, ["value"]));
    const firstAsOf = `as_of=${iso(states[0]?.vintage.asOf ?? 0)}`;
    const whole = await compareFormats(many, firstAsOf);
    expect(whole).toMatchObject({ parquet: 2, arrow: 2 });
    expectRows(whole.rows, first);
    expectRows(await json("many", ""), second);
    expect(await compact(world.writer, { library: LIBRARY, symbol: "many" })).toBe(1);
    const latest = await compareFormats(many, "");
    expectRows(latest.rows, second);
    expect(latest.parquet).toBeGreaterThan(1);
    expectRows(await json("many", firstAsOf), first);
  });
});
