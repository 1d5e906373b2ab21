// What of a provider's answer is left out, and what is stored all the same. Goal: one bad cell or
// document stops nothing else, and what an answer is known to lack takes nothing back.

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Finding } from "../../edge/markets/ingest/gate.ts";
import { listExecutions } from "../../edge/markets/ingest/ledger.ts";
import type { MaterializationMetadata } from "../../edge/markets/ingest/materialization.ts";
import { launch } from "../../edge/markets/ingest/operate.ts";
import type { FetchResult, Pipeline } from "../../edge/markets/ingest/pipeline.ts";
import { decimalOf, LeftOut } from "../../edge/markets/ingest/sources/left-out.ts";
import { Failure } from "../../shared/errors.ts";
import { DAY, HOUR, iso, MINUTE } from "../../shared/time.ts";
import { startErcot } from "../support/ercot.ts";
import { type ScriptedIngest, scriptedIngest } from "../support/ingest.ts";
import { daily } from "../support/scripted-pipelines.ts";

const NOON = Date.parse("2026-06-18T12:00:00Z");
const FROM = NOON - (NOON % DAY);
const LIBRARY = "power.daily";

let ingest: ScriptedIngest;
let answer: Partial<FetchResult> & { hours: Record<number, number> };
/** What the gate says; a test changes it. */
let gate: Pipeline["gate"] = (fetched) => ({ accepted: [...fetched], findings: [] });
const pipeline: Pipeline = {
  ...daily,
  fetch: async () => {
    const { hours, ...more } = answer;
    const rows = Object.entries(hours).map(([hour, value]) => ({
      datetime: FROM + Number(hour) * HOUR,
      instrumentId: `${LIBRARY}.a`,
      values: [value],
    }));
    const series = [{ library: LIBRARY, symbol: "a", rows }];
    return { series, sourceUrl: "sandbox://x", sandbox: true, ...more };
  },
  gate: (...given) => gate(...given),
};
beforeAll(async () => {
  ingest = await scriptedIngest({ pipelines: [pipeline], now: NOON });
});
afterAll(() => ingest.close());

/** Runs the newest partition with an answer, and tells its record and the stored values. */
async function ran(given: typeof answer) {
  answer = given;
  ingest.now += MINUTE;
  await launch(ingest.parts, pipeline.job);
  await ingest.consume();
  const [run] = await listExecutions(ingest.parts.database, { job: pipeline.job, limit: 1 });
  const reading = await ingest.parts.store.read({ library: LIBRARY, symbol: "a" });
  const rows = await reading.rows();
  return {
    state: run?.state,
    // What `materialize` tells of an execution.
    metadata: run?.metadata as unknown as MaterializationMetadata,
    stored: rows.map(({ values }) => values[0]),
  };
}

const unreadable = (severity: Finding["severity"]): Finding => ({
  severity,
  rule: "unreadable_rows",
  count: 1,
  where: "`value` is null in the row of …",
});

describe("an answer without a row that could not be read", () => {
  it("is stored, takes nothing back, and its check warns of it", async () => {
    const whole = await ran({ hours: { 0: 1, 1: 2, 2: 3, 3: 4 } });
    expect(whole.stored).toEqual([1, 2, 3, 4]);
    expect(whole.metadata.left_out).toBe(0);
    const short = await ran({ hours: { 0: 1, 1: 9, 3: 4 }, leftOut: [unreadable("warning")] });
    expect(short.stored).toEqual([1, 9, 3, 4]);
    expect(short.state).toBe("succeeded");
    expect(short.metadata).toMatchObject({ left_out: 1, findings: [unreadable("warning")] });
    expect(short.metadata.check).toMatchObject({
      passed: true,
      warnings: [expect.stringMatching(/^1 row could not be read: /)],
    });
  });

  it("fails its check where much was left out, and is stored all the same", async () => {
    const much = await ran({ hours: { 0: 5 }, leftOut: [unreadable("error")] });
    expect(much.stored).toEqual([5, 9, 3, 4]);
    expect(much.metadata.check).toMatchObject({ passed: false });
    expect(much.metadata.check.reason).toContain("could not be read");
  });

  it("takes back what a whole answer lacks, though it has the same rows as a partial one", async () => {
    const hours = { 0: 5, 1: 9, 3: 4 };
    expect((await ran({ hours, isPartial: true })).stored).toEqual([5, 9, 3, 4]);
    expect((await ran({ hours })).stored).toEqual([5, 9, 4]);
  });

  it("takes nothing back where the gate refuses a part of it, and is judged alike when read back", async () => {
    const { stored } = await ran({ hours: { 0: 5, 1: 9, 3: 4 } });
    const heard: unknown[] = [];
    gate = (fetched, { hasLeftOut }) => {
      heard.push(hasLeftOut);
      return { accepted: [...fetched], findings: [], isPartial: true };
    };
    const short = await ran({ hours: { 0: 5, 3: 4 }, leftOut: [unreadable("warning")] });
    expect(short.stored).toEqual(stored);
    expect(heard).toEqual([true, true]);
    const refused = await ran({ hours: { 0: 5 } });
    expect(refused.stored).toEqual(stored);
    gate = (fetched) => ({ accepted: [...fetched], findings: [] });
  });

  it("is dated by now where it says to be published in the future, and a finding says so", async () => {
    const { metadata } = await ran({ hours: { 0: 6, 1: 9, 3: 4 }, publishedAt: NOON + DAY });
    expect(metadata.findings).toMatchObject([
      { severity: "warning", rule: "published_ahead", where: iso(NOON + DAY) },
    ]);
    const query = { library: LIBRARY, symbol: "a", limit: 100 };
    const vintage = (await ingest.parts.store.vintages(query)).at(-1);
    expect(vintage?.sourcePublishedAt).toBe(ingest.now);
  });
});

describe("documents of an archive that came late", () => {
  const DAY_KEY = "2026-11-10";
  const withoutDocuments = async (missing: number, rowsToo: boolean) => {
    const ercot = await startErcot("2026-11-21T19:25:00Z", ({ url }) =>
      rowsToo && url.pathname.endsWith("spp_node_zone_hub")
        ? { status: 200, body: { _meta: { totalRecords: 0, totalPages: 0 }, fields: [], data: [] } }
        : undefined,
    );
    const { fetch } = ercot.upstreams.fetcher;
    const fetcher = {
      ...ercot.upstreams.fetcher,
      fetch: async (url: string, init: Parameters<typeof fetch>[1]) => {
        const response = await fetch(url, init);
        if (!/\/archive\/np6-905-cd$/i.test(new URL(url).pathname)) return response;
        const body = (await response.json()) as {
          archives: { docId: number }[];
          _meta: { totalRecords: number };
        };
        const sorted = body.archives.toSorted((one, other) => one.docId - other.docId);
        body.archives = sorted.toSpliced(40, missing);
        body._meta.totalRecords = body.archives.length;
        return Response.json(body);
      },
    };
    ercot.upstreams = { ...ercot.upstreams, fetcher };
    return ercot.run("realtime_prices", DAY_KEY);
  };

  it("are made up for by the rows", async () => {
    const { fetched, report } = await withoutDocuments(8, false);
    expect(fetched.series.map(({ rows }) => rows.length)).toEqual(Array(15).fill(96));
    expect(fetched).toMatchObject({
      isPartial: false,
      findings: [{ severity: "warning", rule: "archive_incomplete", count: 8 * 15 }],
    });
    expect(report.findings).toEqual([]);
  });

  it("take nothing back where the rows lack them too", async () => {
    const { fetched, report } = await withoutDocuments(8, true);
    expect(fetched.isPartial).toBe(true);
    expect(report.accepted.map(({ rows }) => rows.length)).toEqual(Array(15).fill(88));
  });
});

describe("the rows of a reading", () => {
  const drift = new Failure("upstream_schema_drift", "EIA changed its format: `x` is 1");
  const read = (value: number) => {
    if (value < 0) throw drift;
    return value === 0 ? null : value;
  };

  it("are judged where they are all, and where they are a part of all together", () => {
    const leftOut = new LeftOut();
    expect(() => leftOut.rows([1, -1, -1], read)).toThrow(drift);
    const whole = new LeftOut();
    expect(whole.rows([1, 2, 0, -1], read, { isPart: true })).toEqual([1, 2]);
    expect(whole.rows([-1], read, { isPart: true })).toEqual([]);
    expect(() => whole.assertFormat()).not.toThrow();
    whole.rows([-1], read, { isPart: true });
    expect(() => whole.assertFormat()).toThrow(drift);
  });

  it("are a share of those that are wanted", () => {
    const leftOut = new LeftOut();
    leftOut.rows([...Array(1_000).fill(0), ...Array(10).fill(1), -1], read);
    expect(leftOut.findings()).toMatchObject([{ severity: "error", count: 1 }]);
  });
});

describe("the documents of a reading", () => {
  const broken = new Failure("upstream_truncated", "ERCOT sent an empty document");
  const drifted = new Failure("upstream_schema_drift", "ERCOT changed its format: new `x`");
  const entries = [...Array(10).keys()].map((index) => ({
    index,
    publishedAt: NOON - (10 - index) * DAY,
  }));
  const reading = (fails: Record<number, Failure>, leftOut = new LeftOut(), now = NOON) =>
    leftOut.documents(entries, now, async ({ index }) => {
      if (fails[index]) throw fails[index];
      return index;
    });

  it("are taken without one that is broken or odd", async () => {
    const leftOut = new LeftOut();
    expect(await reading({ 3: broken, 5: drifted }, leftOut)).toEqual([0, 1, 2, 4, 6, 7, 8, 9]);
    expect(leftOut.findings()).toMatchObject([
      { severity: "error", rule: "unreadable_documents", count: 2 },
    ]);
  });

  it.each([
    ["the newest has another format", { 9: drifted }, NOON],
    ["one was posted a moment ago", { 9: broken }, NOON - DAY + 10 * MINUTE],
    ["most are broken", Object.fromEntries([0, 1, 2, 3, 4, 5].map((one) => [one, broken])), NOON],
    ["the provider does not answer", { 2: new Failure("upstream_unavailable", "no") }, NOON],
  ])("are none where %s", async (_, fails, now) => {
    await expect(reading(fails, new LeftOut(), now)).rejects.toThrow(Failure);
  });
});

it.each([
  ["28.4", 28.4],
  [" -3.20 ", -3.2],
  [".5", 0.5],
  ["007", 7],
  ["-0", 0],
  ["0x10", null],
  ["1e3", null],
  ["12,345", null],
  ["NaN", null],
  ["", null],
  ["--", null],
])("reads %j as %j", (text, value) => {
  expect(decimalOf(text)).toBe(value);
});
