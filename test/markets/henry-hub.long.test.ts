// Two years of the Henry Hub daily file as its packager published it, replayed through the real
// commit: every state it ever had must be read back exactly, however it is stored. What each state
// was is worked out beside the store, from the base file and the recorded events, and checked
// against the raw files that exist for seven of the states.

import { readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { gunzipSync } from "node:zlib";
import { beforeAll, describe, expect, it } from "vitest";
import { commit, type Vintage } from "../../edge/markets/store/commit.ts";
import { compact } from "../../edge/markets/store/compact.ts";
import { iso } from "../../shared/time.ts";
import { SeriesRecord } from "../../shared/wire/markets.ts";
import { hasRecordings, recording } from "../support/recordings.ts";
import { createWorld, DAY, type World } from "../support/world.ts";

const FOLDER = "vintages-henry-hub";
const SERIES = { library: "prices.spot", symbol: "rngwhhd" };
const INSTRUMENT = "prices.spot.rngwhhd";
/** No recorded event is of an earlier date. */
const FIRST_CHANGED = "2020-03-01";
const COVERED = { from: Date.UTC(1997, 0, 1), to: Date.UTC(2027, 0, 1) };

interface Event {
  as_of: string;
  commit: string;
  op: "insert" | "revise" | "retract";
  date: string;
  value: string | null;
}

/** A file at one of the packager's commits: price by date, null where the cell is empty. */
type Prices = Map<string, number | null>;

interface SourceState {
  /** Eight hexadecimal digits. */
  commit: string;
  publishedAt: number;
  prices: Prices;
}

const price = (text: string | null) => (text ? Number(text) : null);

/** The raw files by commit; a folder without them is met by `hasRecordings` first. */
function readSnapshots(): Map<string, Prices> {
  const folder = resolve(import.meta.dirname, "../../../shared/data/markets", FOLDER);
  const files = readdirSync(folder).filter((name) => name.endsWith(".csv.gz"));
  return new Map(
    files.map((name) => {
      const [header, ...lines] = gunzipSync(readFileSync(join(folder, name)))
        .toString("utf8")
        .trim()
        .split(/\r?\n/);
      expect(header).toBe("Date,Price");
      const cells = lines.map((line) => line.split(",") as [string, string]);
      return [name.slice(-15, -7), new Map(cells.map(([date, text]) => [date, price(text)]))];
    }),
  );
}

/** Every state in order: the base file, then each commit that changed it. */
function reconstruct(snapshots: ReadonlyMap<string, Prices>): SourceState[] {
  const events = recording(`${FOLDER}/vintage_events.jsonl`)
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Event);
  const base = { commit: "81e42862", publishedAt: Date.UTC(2024, 9, 15) };
  const states: SourceState[] = [{ ...base, prices: snapshots.get(base.commit) ?? new Map() }];
  for (const event of events) {
    const commit = event.commit.slice(0, 8);
    let state = states.at(-1) as SourceState;
    if (state.commit !== commit) {
      state = { commit, publishedAt: Date.parse(event.as_of), prices: new Map(state.prices) };
      states.push(state);
    }
    if (event.op === "retract") state.prices.delete(event.date);
    else state.prices.set(event.date, price(event.value));
  }
  return states;
}

const rowsOf = ({ prices }: SourceState) =>
  [...prices].map(([date, value]) => ({
    datetime: Date.parse(`${date}T00:00:00Z`),
    instrumentId: INSTRUMENT,
    values: [value ?? NaN],
  }));

interface StoreState extends SourceState {
  vintage: Vintage;
  /** The knowledge time of the vintage that last wrote each date. */
  writtenAt: Map<string, string>;
}

describe.skipIf(!hasRecordings(FOLDER))("two recorded years of Henry Hub", () => {
  let world: World;
  let snapshots: Map<string, Prices>;
  const states: StoreState[] = [];

  beforeAll(async () => {
    world = await createWorld({ services: ["markets", "console"] });
    snapshots = readSnapshots();
    const request = {
      ...SERIES,
      valueColumns: ["value"],
      covered: COVERED,
      reconstructed: false,
      sandbox: false,
      sourceUrl: "https://github.com/datasets/natural-gas",
    };
    for (const state of reconstruct(snapshots)) {
      const vintage = await commit(world.writer, {
        ...request,
        rows: rowsOf(state),
        runId: state.commit,
        partition: iso(state.publishedAt).slice(0, 10),
        sourcePublishedAt: state.publishedAt,
      });
      if (!vintage) throw new Error(`${state.commit} changes the file, the store saw no change`);
      const before = states.at(-1);
      const writtenAt = new Map(
        [...state.prices].map(([date, value]) => {
          const same = before?.prices.get(date) === value && before.prices.has(date);
          const known = same ? before.writtenAt.get(date) : iso(vintage.asOf);
          return [date, known ?? ""] as const;
        }),
      );
      states.push({ ...state, vintage, writtenAt });
    }
  });

  /** How many rows from a date on the read API answered, and what of them is not as expected. */
  async function compareState(
    { prices, writtenAt, vintage }: StoreState,
    { asOf, start, end }: { asOf: number; start: string; end: string },
  ): Promise<{ rows: number; mismatches: string[] }> {
    const series = `library=${SERIES.library}&symbol=${SERIES.symbol}`;
    const response = await fetch(
      `${world.urls.markets}/series?${series}&as_of=${iso(asOf)}&start=${start}&end=${end}`,
    );
    expect([response.status, response.headers.get("X-As-Of")]).toEqual([200, iso(vintage.asOf)]);
    const rows = (await response.json()) as SeriesRecord[];
    if (rows[0]) SeriesRecord.parse(rows[0]);
    const mismatches = rows.flatMap((row) => {
      const date = row.Datetime.slice(0, 10);
      const expected = { value: prices.get(date), as_of: writtenAt.get(date) };
      const right =
        row.Datetime === `${date}T00:00:00.000Z` &&
        row.instrument_id === INSTRUMENT &&
        row.value === expected.value &&
        row.as_of === expected.as_of &&
        row.vintage_reconstructed === false;
      return right ? [] : [`${JSON.stringify(row)} is not ${JSON.stringify(expected)}`];
    });
    const rising = rows.every((row, index) => row.Datetime > (rows[index - 1]?.Datetime ?? ""));
    if (!rising) mismatches.push("rows are not in order, or one is there twice");
    const count = [...prices.keys()].filter((date) => date >= start).length;
    if (rows.length !== count) mismatches.push(`${rows.length} rows, not ${count}`);
    return { rows: rows.length, mismatches };
  }

  /** Each state whole at its first millisecond, and all that ever changed of it at its last. */
  async function compareAll(what: string, end: string) {
    let compared = 0;
    const wrong: string[] = [];
    for (const [index, state] of states.entries()) {
      const next = states[index + 1]?.vintage.asOf ?? state.vintage.asOf + DAY;
      const compare = async (at: { asOf: number; start: string }) => {
        const { rows, mismatches } = await compareState(state, { ...at, end });
        compared += rows;
        const where = `${state.commit} at ${iso(at.asOf)}`;
        wrong.push(...mismatches.map((mismatch) => `${where}: ${mismatch}`));
      };
      await Promise.all([
        compare({ asOf: state.vintage.asOf, start: "1997-01-01" }),
        compare({ asOf: next - 1, start: FIRST_CHANGED }),
      ]);
    }
    console.info(
      `Henry Hub ${what}: ${states.length} vintages, ${compared} rows compared, ` +
        `${wrong.length} mismatches`,
    );
    expect(wrong.slice(0, 5)).toEqual([]);
    expect(compared).toBeGreaterThan(105 * 8_000);
  }

  it("is 105 states, seven of them equal to the raw files of their commits", () => {
    expect(states).toHaveLength(105);
    const raw = states.filter(({ commit }) => snapshots.has(commit));
    expect(raw).toHaveLength(7);
    for (const { commit, prices } of raw) {
      const sorted = (map: Prices) => [...map].sort(([a], [b]) => (a < b ? -1 : 1));
      expect(sorted(prices)).toEqual(sorted(snapshots.get(commit) ?? new Map()));
    }
  });

  it("becomes vintages that count exactly what the packager changed", () => {
    const total = (name: "inserted" | "revised" | "retracted") =>
      states.slice(1).reduce((sum, { vintage }) => sum + vintage[name], 0);
    expect(states[0]?.vintage).toMatchObject({ seq: 1, inserted: 6_980, retracted: 0 });
    expect([total("inserted"), total("revised"), total("retracted")]).toEqual([481, 3, 24]);
    expect(states.map(({ vintage }) => vintage.seq)).toEqual(states.map((_, index) => index + 1));
    const stamps = states.map(({ vintage }) => vintage.asOf);
    expect(stamps.every((asOf, index) => index === 0 || asOf > (stamps[index - 1] ?? 0))).toBe(
      true,
    );
  });

  it("gives back each of its states, at its first and at its last millisecond", async () => {
    await compareAll("as committed", "2026-12-31");
  });

  it("gives back each of its states from compacted objects, and takes the last one for known", async () => {
    expect(await compact(world.writer, SERIES)).toBe(1);
    // A window of its own keeps the cache at the edge from answering for the objects.
    await compareAll("compacted", "2027-12-31");
    const last = states.at(-1) as StoreState;
    const again = {
      ...SERIES,
      valueColumns: ["value"],
      covered: COVERED,
      reconstructed: false,
      sandbox: false,
      sourceUrl: "https://github.com/datasets/natural-gas",
      runId: "again",
      partition: "again",
      rows: rowsOf(last),
    };
    expect(await commit(world.writer, again)).toBeNull();
  });
});
