// The bitemporal traps that real market data sets, one test each (facts/markets.md, section 5): the
// states before and after the trap, asked over the read API, and all of them again from compacted
// objects.

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { followRun } from "../../edge/local/operator.ts";
import { answerEia } from "../../edge/local/sandbox/eia.ts";
import { type Sandbox, startSandbox } from "../../edge/local/sandbox/server.ts";
import { fetchEia } from "../../edge/markets/ingest/sources/eia.ts";
import type { CommitRequest, Vintage } from "../../edge/markets/store/commit.ts";
import { compact } from "../../edge/markets/store/compact.ts";
import { Secret } from "../../shared/secret.ts";
import { iso, systemClock } from "../../shared/time.ts";
import { SeriesRecord } from "../../shared/wire/markets.ts";
import { setKnowledgeTimes } from "../support/knowledge.ts";
import { type EiaRecord, eiaPage, startUpstream } from "../support/recordings.ts";
import { commitHours, createWorld, DAY, HOUR, type World } from "../support/world.ts";

const StoreVersions = z.object({ store_version: z.record(z.string(), z.number()) });
const FROM = Date.UTC(2026, 0, 10);
const NOW = systemClock();

let world: World;
let sandbox: Sandbox;
/** What the sandbox's rows become on their way; undefined leaves a row out. */
let distort: (row: EiaRecord) => EiaRecord | undefined = (row) => row;

beforeAll(async () => {
  sandbox = await startSandbox({
    fault: (url) => {
      const { status, body } = answerEia(withoutPages(url), NOW - 3 * HOUR);
      const rows = (body as { response: { data: EiaRecord[] } }).response.data;
      const kept = rows.flatMap((row) => distort(row) ?? []);
      return { status, body: eiaPage(kept, url) };
    },
  });
  world = await createWorld({
    services: ["markets", "console"],
    environment: { console: { SANDBOX_URL: sandbox.url } },
  });
});
afterAll(() => sandbox.close());

const AUTHORITIES = ["ERCO", "PJM", "MISO"];

/** The question for three authorities' rows, all of them in one page. */
function withoutPages(url: URL): URL {
  const asked = new URL(url);
  for (const name of AUTHORITIES) asked.searchParams.append("facets[respondent][]", name);
  asked.searchParams.set("offset", "0");
  return asked;
}

let asked = 0;

/** Rows of a series; a bound of its own keeps each answer from the cache at the edge. */
async function series(symbol: string, query = ""): Promise<SeriesRecord[]> {
  const url = `${world.urls.markets}/series?library=power.demand&symbol=${symbol}`;
  const bound = query.includes("end=") ? "" : `&end=${iso(Date.UTC(9999, 0, 1) + asked++)}`;
  const response = await fetch(`${url}${query}${bound}`);
  expect(response.status).toBe(200);
  return SeriesRecord.array().parse(await response.json());
}

/** The value of each hour from `FROM` on; `-` where there is no row. */
async function hours(symbol: string, asOf?: number | string, from = FROM) {
  const at = asOf === undefined ? "" : `&as_of=${typeof asOf === "number" ? iso(asOf) : asOf}`;
  const rows = await series(symbol, at);
  const found = new Map(
    rows.map((row) => [(Date.parse(row.Datetime) - from) / HOUR, row.value ?? null]),
  );
  expect(found.size).toBe(rows.length);
  return Array.from({ length: Math.max(-1, ...found.keys()) + 1 }, (_, hour) =>
    found.has(hour) ? (found.get(hour) ?? null) : "-",
  );
}

/** Commits hours that must change something; a gap is a row the source lacks. */
async function learn(
  symbol: string,
  values: readonly (number | null | "-")[],
  more: Partial<CommitRequest> = {},
): Promise<Vintage> {
  const vintage = await again(symbol, values, more);
  if (!vintage) throw new Error(`${symbol}: ${JSON.stringify(values)} changed nothing`);
  return vintage;
}

/** Commits hours, each time as another partition, so that no memory of the payload answers. */
function again(
  symbol: string,
  values: readonly (number | null | "-")[],
  more: Partial<CommitRequest> = {},
) {
  const rows = values.flatMap((value, hour) =>
    value === "-"
      ? []
      : [
          {
            datetime: FROM + hour * HOUR,
            instrumentId: `power.demand.${symbol}`,
            values: [value ?? NaN],
          },
        ],
  );
  return commitHours(world, symbol, FROM, [], {
    rows,
    covered: { from: FROM, to: FROM + values.length * HOUR },
    partition: crypto.randomUUID(),
    ...more,
  });
}

/** Holds now, and again when the series lies in compacted objects. */
async function holdsCompacted(symbol: string, check: () => Promise<void>) {
  await check();
  expect(await compact(world.writer, { library: "power.demand", symbol })).toBeGreaterThan(0);
  await check();
}

describe("trap 1: A-B-A", () => {
  it("keeps the third state although it equals the first, and a fourth that equals the second", async () => {
    const a = [1.92, 2.01, 2.39];
    const b = [2.13, 1.93, 2.39];
    const vintages: Vintage[] = [];
    // Each state comes with a partition that saw it before: the memory of that must not answer.
    const partition = (state: readonly number[]) => ({ partition: state === a ? "a" : "b" });
    for (const state of [a, b, a]) {
      vintages.push(await learn("aba", state, partition(state)));
      expect(await again("aba", state)).toBeNull();
    }
    expect(vintages.map(({ seq, revised }) => [seq, revised])).toEqual([
      [1, 0],
      [2, 2],
      [3, 2],
    ]);
    await holdsCompacted("aba", async () => {
      const states = vintages.map(({ asOf }) => hours("aba", asOf));
      expect(await Promise.all(states)).toEqual([a, b, a]);
      expect(await hours("aba")).toEqual(a);
      expect(await again("aba", a)).toBeNull();
    });
    const fourth = await learn("aba", b, partition(b));
    expect([fourth.seq, fourth.revised]).toEqual([4, 2]);
    await holdsCompacted("aba", async () => {
      expect(await hours("aba", fourth.asOf - 1)).toEqual(a);
      expect(await hours("aba")).toEqual(b);
    });
  });

  it("keeps every state of rows that vanish, return and vanish", async () => {
    const states = [
      [1, 2, 3],
      [1, "-", "-"],
      [1, 2, 3],
      [1, "-", "-"],
    ] as const;
    const vintages: Vintage[] = [];
    for (const state of states) vintages.push(await learn("vanishing", state));
    expect(vintages.map(({ inserted, retracted }) => [inserted, retracted])).toEqual([
      [3, 0],
      [0, 2],
      [2, 0],
      [0, 2],
    ]);
    await holdsCompacted("vanishing", async () => {
      const found = await Promise.all(vintages.map(({ asOf }) => hours("vanishing", asOf)));
      expect(found).toEqual([[1, 2, 3], [1], [1, 2, 3], [1]]);
    });
  });
});

describe("trap 2: canonical numbers", () => {
  it("sees no change in another spelling of a number or of nothing, and every change of value", async () => {
    const period = (hour: number) => iso(FROM + (hour + 1) * HOUR).slice(0, 13);
    const commitText = async (values: readonly unknown[]) => {
      const data = values.map((value, hour) => ({
        period: period(hour),
        respondent: "ERCO",
        type: "D",
        value,
        "value-units": "megawatthours",
      }));
      const { url } = await startUpstream((asked) => ({ body: eiaPage(data, asked) }));
      const { rows } = await fetchEia(
        { baseUrl: url, apiKey: new Secret("REDACTED"), shownAs: "https://api.eia.gov/v2/" },
        {
          route: "electricity/rto/region-data",
          frequency: "hourly",
          facets: { type: ["D"] },
          keyFields: ["respondent", "type"],
          window: { from: FROM, to: FROM + values.length * HOUR },
        },
        { fetch: (one: string, init: object) => fetch(one, init), pause: async () => {} },
      );
      return again(
        "spelling",
        rows.map(({ value }) => (Number.isNaN(value) ? null : value)),
      );
    };
    const first = await commitText(["29", "28.4", "3.82", "0", "1000", null]);
    expect(first).toMatchObject({ seq: 1, inserted: 6 });
    const spellings = [
      ["29.0", " 28.4", "3.8199999999999998", "-0", "1000.0", "."],
      [29, 28.4, 3.82, -0, 1000, "NA"],
      ["29.000", "28.40 ", "3.820", "0.0", "1000.", ""],
      [29.0, "0028.4", 3.8199999999999998, "-0.0", "1000.00", null],
    ];
    const known = [29, 28.4, 3.82, 0, 1000, null];
    for (const spelling of spellings) expect(await commitText(spelling)).toBeNull();
    const revised = await commitText(["29", "28.4", "3.8199999", "0", "1000", null]);
    expect(revised).toMatchObject({ seq: 2, inserted: 0, revised: 1, retracted: 0 });
    await holdsCompacted("spelling", async () => {
      expect(await hours("spelling", first?.asOf)).toEqual(known);
      expect(await hours("spelling")).toEqual(known.with(2, 3.8199999));
      for (const spelling of spellings) {
        expect(await commitText(spelling.with(2, "3.81999990"))).toBeNull();
      }
    });
    expect(await commitText(["29", "28.4", "3.82", "0", "1000", "0"])).toMatchObject({
      seq: 3,
      inserted: 0,
      revised: 2,
    });
  });
});

describe("trap 3: retraction", () => {
  it("takes a row out of later states and leaves it in earlier ones, by a tombstone", async () => {
    const symbol = "retracted";
    const whole = await learn(symbol, [1, 2, 3]);
    const holed = await learn(symbol, [1, "-", 3]);
    expect(holed).toMatchObject({ inserted: 0, revised: 0, retracted: 1 });
    expect(await again(symbol, [1, "-", 3])).toBeNull();
    await holdsCompacted(symbol, async () => {
      expect(await hours(symbol, whole.asOf)).toEqual([1, 2, 3]);
      expect(await hours(symbol, holed.asOf - 1)).toEqual([1, 2, 3]);
      expect(await hours(symbol, holed.asOf)).toEqual([1, "-", 3]);
      const second = iso(FROM + HOUR);
      const ended = (await series(symbol, "&includeHistory=true")).filter(
        ({ Datetime }) => Datetime === second,
      );
      expect(ended).toMatchObject([
        { value: 2, known_from: iso(whole.asOf), known_to: iso(holed.asOf) },
      ]);
      const { versions } = await world.store.read({ library: "power.demand", symbol });
      const tombstones = [];
      for await (const batch of versions()) {
        for (let row = 0; row < batch.length; row++) {
          if (batch.retracted?.[row] !== 1) continue;
          const writer = batch.vintages[batch.vintage[row] as number];
          tombstones.push([batch.datetime[row], writer?.seq, batch.values[0]?.[row]]);
        }
      }
      expect(tombstones).toEqual([[FROM + HOUR, 2, NaN]]);
    });
    const returned = await learn(symbol, [1, 2, 3]);
    expect(returned).toMatchObject({ seq: 3, inserted: 1 });
    await holdsCompacted(symbol, async () => {
      const times = [whole.asOf, holed.asOf, returned.asOf];
      expect(await Promise.all(times.map((asOf) => hours(symbol, asOf)))).toEqual([
        [1, 2, 3],
        [1, "-", 3],
        [1, 2, 3],
      ]);
    });
  });
});

describe("trap 4: coverage", () => {
  it("retracts what is absent inside the covered range, never at its end or outside", async () => {
    const whole = await learn("covered", [0, 1, 2, 3, 4, 5]);
    const covered = { from: FROM + 2 * HOUR, to: FROM + 4 * HOUR };
    const none = await learn("covered", [], { rows: [], covered });
    expect(none).toMatchObject({ inserted: 0, retracted: 2 });
    expect(await again("covered", [], { rows: [], covered })).toBeNull();
    const beyond = { from: FROM + 6 * HOUR, to: FROM + 99 * HOUR };
    expect(await again("covered", [], { rows: [], covered: beyond })).toBeNull();
    const edge = { from: FROM + 5 * HOUR, to: FROM + 6 * HOUR };
    const last = await learn("covered", [], { rows: [], covered: edge });
    await holdsCompacted("covered", async () => {
      expect(await hours("covered", whole.asOf)).toEqual([0, 1, 2, 3, 4, 5]);
      expect(await hours("covered", none.asOf)).toEqual([0, 1, "-", "-", 4, 5]);
      expect(await hours("covered", last.asOf)).toEqual([0, 1, "-", "-", 4]);
      expect(await hours("covered")).toEqual([0, 1, "-", "-", 4]);
    });
    // The same rows, of which less was asked for, are no retraction either.
    expect(await again("covered", [0, 1])).toBeNull();
    expect(await hours("covered")).toEqual([0, 1, "-", "-", 4]);
  });
});

describe("trap 5: the knowledge clock", () => {
  it("stamps at commit, whatever time the source claims, and rises strictly", async () => {
    const started = systemClock();
    const claims = [null, 0, started - 365 * DAY, started + 365 * DAY, started];
    const vintages = [];
    for (const [index, sourcePublishedAt] of claims.entries()) {
      vintages.push(await learn("clock", [index], { sourcePublishedAt }));
    }
    const stamps = vintages.map(({ asOf }) => asOf);
    expect(stamps).toEqual([...new Set(stamps)].sort((a, b) => a - b));
    expect(stamps[0]).toBeGreaterThanOrEqual(started);
    expect(stamps.at(-1)).toBeLessThanOrEqual(systemClock() + claims.length);
    await holdsCompacted("clock", async () => {
      for (const [index, asOf] of stamps.entries()) {
        expect(await hours("clock", asOf - 1)).toEqual(index === 0 ? [] : [index - 1]);
        expect(await hours("clock", asOf)).toEqual([index]);
        const [row] = await series("clock", `&provenance=full&as_of=${iso(asOf)}`);
        const claim = claims[index] ?? null;
        const published = claim === null ? null : iso(claim);
        expect(row).toMatchObject({ as_of: iso(asOf), source_published_at: published });
      }
      expect(await hours("clock", started - 365 * DAY)).toEqual([]);
      expect(await hours("clock", started - 1)).toEqual([]);
    });
  });

  it("rises by at least a millisecond when commits race and when the machine's clock was ahead", async () => {
    const values = Array.from({ length: 6 }, (_, index) => index + 1);
    await Promise.all(
      values.map((value, hour) => {
        const from = FROM + hour * HOUR;
        return commitHours(world, "ahead", from, [value], { partition: String(hour) });
      }),
    );
    const ahead = systemClock() + HOUR;
    const raced = await setKnowledgeTimes(world.owner, "ahead", { 6: ahead });
    expect(raced).toEqual([...new Set(raced)].sort((a, b) => a - b));
    const next = await learn("ahead", [9]);
    const after = await learn("ahead", [10]);
    expect([next.asOf, after.asOf]).toEqual([ahead + 1, ahead + 2]);
    await holdsCompacted("ahead", async () => {
      expect(await hours("ahead", ahead)).toEqual(values);
      expect((await hours("ahead", ahead - 1)).filter((value) => value !== "-")).toHaveLength(5);
      expect(await hours("ahead", ahead + 1)).toEqual(values.with(0, 9));
      expect(await hours("ahead")).toEqual(values.with(0, 10));
    });
  });
});

describe("trap 6: partial upstream failure", () => {
  const launch = async (state = "succeeded") => {
    const run = await followRun(world.operator, await world.operator.launch("grid_region"));
    expect(run.state).toBe(state);
    return run;
  };

  // That no answer can blank a series or take many rows is in test/console/ingest.test.ts.
  it("leaves a respondent that a page lacks as it was, and still learns of the others", async () => {
    const whole = (await launch()).metadata;
    expect(whole).toMatchObject({ check: { passed: true } });
    // One, or two where rows of its look-back were learned long after their publication.
    const pjmVersions = StoreVersions.parse(whole).store_version["power.demand.pjm"] ?? 0;
    const [erco, pjm] = [await series("erco"), await series("pjm")];
    expect(Math.min(erco.length, pjm.length)).toBeGreaterThan(200);
    distort = (row) =>
      row.respondent === "ERCO" && row.type === "D"
        ? undefined
        : { ...row, value: row.respondent === "PJM" ? Number(row.value) + 1 : row.value };
    const partial = await launch("partial");
    expect(partial.metadata).toMatchObject({
      check: { passed: false, reason: "1 series missing from the answer in ERCO" },
      store_version: { "power.demand.pjm": pjmVersions + 1 },
    });
    distort = (row) => row;
    const before =
      pjm
        .map(({ as_of }) => as_of)
        .toSorted()
        .at(-1) ?? "";
    const check = async () => {
      expect(await series("erco")).toEqual(erco);
      expect(await series("pjm", `&as_of=${before}`)).toEqual(pjm);
      const raised = pjm.map(({ value }) => (value ?? 0) + 1);
      expect((await series("pjm")).map(({ value }) => value)).toEqual(raised);
    };
    await holdsCompacted("erco", check);
    await holdsCompacted("pjm", check);
    expect((await launch()).metadata).toMatchObject({
      check: { passed: true },
      store_version: { "power.demand.pjm": pjmVersions + 2 },
    });
    expect(await series("erco")).toEqual(erco);
  });
});

describe("trap 7: an as_of that is a date", () => {
  it("means midnight UTC at its start, and start and end are both inclusive", async () => {
    const midnight = Date.UTC(2026, 2, 1);
    const times = [midnight - 1, midnight, midnight + 1, midnight + DAY, midnight + DAY + HOUR];
    for (const index of times.keys()) await learn("dated", [index, 10 + index, 20, 30]);
    const moved = Object.fromEntries(times.map((time, index) => [index + 1, time]));
    expect(await setKnowledgeTimes(world.owner, "dated", moved)).toEqual(times);
    const states = (index: number) => [index, 10 + index, 20, 30];
    await holdsCompacted("dated", async () => {
      expect(await hours("dated", "2026-02-28")).toEqual([]);
      expect(await hours("dated", "2026-02-28T23:59:59.999Z")).toEqual(states(0));
      expect(await hours("dated", "2026-03-01")).toEqual(states(1));
      expect(await hours("dated", "2026-03-01T00:00:00Z")).toEqual(states(1));
      expect(await hours("dated", "2026-03-01T00:00:00.001")).toEqual(states(2));
      expect(await hours("dated", "2026-03-01T23:59:59.999Z")).toEqual(states(2));
      expect(await hours("dated", "2026-03-02")).toEqual(states(3));
      expect(await hours("dated", "2026-03-03")).toEqual(states(4));
      const window = async (start: string, end: string) => {
        const rows = await series("dated", `&as_of=2026-03-01&start=${start}&end=${end}`);
        return rows.map(({ value }) => value);
      };
      expect(await window("2026-01-10", "2026-01-10")).toEqual([1]);
      expect(await window("2026-01-10T01:00Z", "2026-01-10T02:00Z")).toEqual([11, 20]);
      expect(await window("2026-01-10T01:00:00.001Z", "2026-01-10T02:59Z")).toEqual([20]);
      expect(await window("2026-01-10T01:00Z", "2026-01-10T01:59:59.999Z")).toEqual([11]);
      expect(await window("2026-01-10T02:00Z", "2026-01-11")).toEqual([20, 30]);
      expect(await window("2026-01-09", "2026-01-09T23:59:59.999Z")).toEqual([]);
    });
  });
});

describe("trap 8: a backfill", () => {
  it("moves no other row of the latest state and flags only the rows it writes", async () => {
    const live = await learn("filled", [1, 2, 3]);
    const latest = await series("filled");
    const symbols = async () => {
      const newest = await world.store.newestDatetime("power.demand", "filled", systemClock());
      expect(newest).toBe(FROM + 2 * HOUR);
      return world.store.symbols("power.demand");
    };
    const before = await symbols();
    // Two hours of the day before, and the live series' first hour once more, unchanged.
    const filled = await commitHours(world, "filled", FROM - 2 * HOUR, [8, 9, 1], {
      partition: "2026-01-09",
      reconstructed: true,
    });
    expect(filled).toMatchObject({ seq: 2, inserted: 2, revised: 0, retracted: 0 });
    await holdsCompacted("filled", async () => {
      const rows = await series("filled");
      expect(
        rows.map(({ value, as_of, vintage_reconstructed }) => [
          ...[value, as_of, vintage_reconstructed],
        ]),
      ).toEqual([
        [8, iso(filled?.asOf ?? 0), true],
        [9, iso(filled?.asOf ?? 0), true],
        [1, iso(live.asOf), false],
        [2, iso(live.asOf), false],
        [3, iso(live.asOf), false],
      ]);
      expect(rows.slice(2)).toEqual(latest);
      expect(await series("filled", `&as_of=${iso((filled?.asOf ?? 0) - 1)}`)).toEqual(latest);
      expect(await series("filled", "&vintage=true_only")).toEqual(latest);
      expect(await symbols()).toEqual(before);
    });
    // A later true vintage takes over the row it revises, and only that one.
    await learn("filled", [8.5], {
      rows: [{ datetime: FROM - HOUR, instrumentId: "power.demand.filled", values: [8.5] }],
      covered: { from: FROM - HOUR, to: FROM },
    });
    await holdsCompacted("filled", async () => {
      const flags = (await series("filled")).map((row) => row.vintage_reconstructed);
      expect(flags).toEqual([true, false, false, false, false]);
    });
  });
});
