// Twelve Data over real HTTP: the header, its pages, its ways to refuse, and bars that hold.

import { describe, expect, it, onTestFinished } from "vitest";

import type { Fault } from "../../edge/local/sandbox/answers.ts";
import { startSandbox } from "../../edge/local/sandbox/server.ts";
import { answerTwelveData } from "../../edge/local/sandbox/twelve-data.ts";
import { judgeCompleteness } from "../../edge/markets/ingest/completeness.ts";
import { gateIntraday, intradayBars } from "../../edge/markets/ingest/pipelines/intraday.ts";
import { BAR_MS, type Bar, fetchBars } from "../../edge/markets/ingest/sources/twelve-data.ts";
import type { Row } from "../../edge/markets/store/rows.ts";
import { Failure } from "../../shared/errors.ts";
import { Secret } from "../../shared/secret.ts";
import { DAY, HOUR, iso, isoDay, MINUTE } from "../../shared/time.ts";
import { type Reply, startUpstream } from "../support/recordings.ts";

const KEY = "hunter2-very-secret";
const FRIDAY = Date.UTC(2026, 6, 24);
const OPEN = FRIDAY + 13.5 * HOUR;
const query = { symbol: "UNG", window: { from: FRIDAY, to: FRIDAY + DAY }, now: FRIDAY + 2 * DAY };
const fetcher = { fetch: (url: string, init: object) => fetch(url, init), pause: async () => {} };

const bar = (index: number, change: object = {}) => ({
  datetime: iso(OPEN + index * BAR_MS)
    .slice(0, 19)
    .replace("T", " "),
  open: "100.0",
  high: "101.50000",
  low: "99",
  close: "100.25",
  volume: "1000",
  ...change,
});
const page = (values: object[], meta: object = {}) => ({
  meta: { symbol: "UNG", interval: "5min", exchange_timezone: "America/New_York", ...meta },
  values,
  status: "ok",
});
const refusal = (code: number, message = `no ${KEY}`) => ({ code, message, status: "error" });

async function fetchFrom(reply: (url: URL, count: number) => Reply, changed: object = {}) {
  const upstream = await startUpstream(reply);
  const headers: unknown[] = [];
  const noting = {
    ...fetcher,
    fetch: (url: string, init: { headers?: object }) => {
      headers.push(init.headers);
      return fetcher.fetch(url, init);
    },
  };
  const access = {
    baseUrl: upstream.url,
    apiKey: new Secret(KEY),
    shownAs: "https://twelve.example/",
  };
  const outcome: unknown = await fetchBars(access, { ...query, ...changed }, noting).catch(
    (thrown: unknown) => thrown,
  );
  return { outcome, upstream, headers };
}

const barsOf = async (body: unknown, changed?: object): Promise<Bar[]> => {
  const { outcome } = await fetchFrom(() => ({ body }), changed);
  if (outcome instanceof Failure) throw outcome;
  return (outcome as { bars: Bar[] }).bars;
};

async function failureOf(reply: Reply): Promise<Failure> {
  const { outcome } = await fetchFrom(() => reply);
  expect(outcome).toBeInstanceOf(Failure);
  const failure = outcome as Failure;
  expect(JSON.stringify([failure.message, failure.data, String(failure.cause)])).not.toContain(KEY);
  return failure;
}

describe("the Twelve Data source", () => {
  it("asks in UTC, both ends included, with the key in a header and nowhere else", async () => {
    const { outcome, upstream, headers } = await fetchFrom(() => ({ body: page([bar(0)]) }));
    expect(Object.fromEntries(upstream.requests[0]?.searchParams ?? [])).toEqual({
      symbol: "UNG",
      interval: "5min",
      start_date: "2026-07-24 00:00:00",
      end_date: "2026-07-24 23:55:00",
      timezone: "UTC",
      order: "ASC",
      outputsize: "5000",
    });
    expect(headers).toEqual([{ Authorization: `apikey ${KEY}` }]);
    expect(JSON.stringify([outcome, upstream.requests])).not.toContain(KEY);
    expect(outcome).toMatchObject({
      sourceUrl: expect.stringMatching(/^https:\/\/twelve\.example\/time_series\?symbol=UNG&/),
      bars: [{ datetime: OPEN, open: 100, high: 101.5, low: 99, close: 100.25, volume: 1_000 }],
    });
  });

  it("puts bars in order, whatever order they come in", async () => {
    const bars = await barsOf(page([bar(2), bar(0), bar(1)]));
    expect(bars.map(({ datetime }) => (datetime - OPEN) / BAR_MS)).toEqual([0, 1, 2]);
  });

  it("drops the bar that is still in progress, and keeps it once it is over", async () => {
    const body = page([bar(0), bar(1)]);
    expect(await barsOf(body, { now: OPEN + 2 * BAR_MS - 1 })).toHaveLength(1);
    expect(await barsOf(body, { now: OPEN + 2 * BAR_MS })).toHaveLength(2);
  });

  it("goes on from a full page, by date", async () => {
    const window = { from: FRIDAY - 60 * DAY, to: FRIDAY + DAY };
    const all = Array.from({ length: 5_003 }, (_, index) => {
      const datetime = iso(window.from + index * BAR_MS)
        .slice(0, 19)
        .replace("T", " ");
      return bar(0, { datetime });
    });
    const { outcome, upstream } = await fetchFrom(
      (url) => {
        const from = url.searchParams.get("start_date") ?? "";
        return { body: page(all.filter(({ datetime }) => datetime >= from).slice(0, 5_000)) };
      },
      { window },
    );
    expect((outcome as { bars: Bar[] }).bars).toHaveLength(5_003);
    expect(upstream.requests).toHaveLength(2);
  });

  it("takes a day without data for one without bars", async () => {
    const message =
      "No data is available on the specified dates. Try setting different start/end dates.";
    expect(await barsOf(refusal(400, message))).toEqual([]);
  });

  it.each([
    [{ body: refusal(401) }, "upstream_unauthorized", "TWELVE_DATA_API_KEY"],
    [{ status: 401, body: refusal(401) }, "upstream_unauthorized", "TWELVE_DATA_API_KEY"],
    [{ body: refusal(429) }, "upstream_unavailable", "credits"],
    [{ status: 429, body: refusal(429) }, "upstream_unavailable", "HTTP 429"],
    [{ body: refusal(500) }, "upstream_unavailable", "code 500"],
    [{ status: 502, body: "Bad Gateway" }, "upstream_unavailable", "HTTP 502"],
    [{ body: refusal(404) }, "upstream_rejected", "code 404"],
    [{ body: refusal(400) }, "upstream_rejected", "code 400"],
    [{ status: 403, body: "no" }, "upstream_rejected", "code 403"],
    [{ body: '{"meta":{"symbol":"UNG","int' }, "upstream_truncated", "not whole JSON"],
    [{ body: { status: "ok" } }, "upstream_schema_drift", "meta"],
    [{ body: page([bar(0)], { interval: "1min" }) }, "upstream_schema_drift", "meta.interval"],
    [{ body: page([bar(0)], { symbol: "XLE" }) }, "upstream_schema_drift", "meta.symbol"],
    [{ body: page([bar(0, { close: undefined })]) }, "upstream_schema_drift", "`close` is missing"],
    [{ body: page([bar(0, { close: 100 })]) }, "upstream_schema_drift", "`close` is 100"],
    [{ body: page([bar(0, { high: "n/a" })]) }, "upstream_schema_drift", "`high`"],
    [{ body: page([bar(0, { volume: "" })]) }, "upstream_schema_drift", "`volume`"],
    [{ body: page([bar(0, { datetime: "2026-07-24" })]) }, "upstream_schema_drift", "`datetime`"],
    [{ body: page([bar(-288)]) }, "upstream_schema_drift", "was the first"],
  ] as [Reply, string, string][])("turns %j into %s", async (reply, code, named) => {
    const failure = await failureOf(reply);
    expect([failure.code, failure.message]).toEqual([code, expect.stringContaining(named)]);
  });

  it.each([
    [{ volume: undefined }, "`volume` is missing in the bar of 2026-07-24"],
    [{ close: null }, "`close` is null"],
    [{ close: "1e3" }, '`close` is "1e3"'],
  ])("leaves out the bar of %j, and names it", async (change, named) => {
    const bars = [...Array(30).keys()].map((index) => bar(index, index === 9 ? change : {}));
    const { outcome } = await fetchFrom(() => ({ body: page(bars) }), { now: OPEN + DAY });
    const { bars: read, leftOut } = outcome as Awaited<ReturnType<typeof fetchBars>>;
    expect(read).toHaveLength(29);
    expect(leftOut.findings()).toMatchObject([
      { severity: "warning", rule: "unreadable_rows", count: 1 },
    ]);
    expect(leftOut.findings()[0]?.where).toContain(named);
  });

  it("asks to come back in a minute when the credits are used up", async () => {
    expect((await failureOf({ body: refusal(429) })).data).toEqual({ retry_after_s: 60 });
  });

  it.each([
    ["down", "upstream_unavailable"],
    ["storm", "upstream_unavailable"],
    ["truncated", "upstream_truncated"],
    ["drifted", "upstream_schema_drift"],
    ["refused", "upstream_unauthorized"],
  ] as [Fault, string][])("fails with a code when the sandbox is %s", async (fault, code) => {
    const sandbox = await startSandbox({ clock: () => query.now });
    onTestFinished(() => sandbox.close());
    sandbox.break("twelve_data", fault);
    const baseUrl = `${sandbox.url}/twelve_data/`;
    const access = { baseUrl, apiKey: new Secret("sandbox"), shownAs: "" };
    await expect(fetchBars(access, query, fetcher)).rejects.toMatchObject({ code });
  });
});

describe("the sandbox's bars", () => {
  async function bars(day: number, now = day + 2 * DAY): Promise<Bar[]> {
    const { bars } = await fetchSandbox(day, now);
    return bars;
  }
  async function fetchSandbox(day: number, now: number, symbol = "UNG") {
    const answering = {
      ...fetcher,
      fetch: async (url: string, init: { headers?: Record<string, string> }) => {
        const headers = { authorization: init.headers?.Authorization };
        const { status, body } = answerTwelveData({ url: new URL(url), headers }, now);
        return new Response(JSON.stringify(body), { status });
      },
    };
    const baseUrl = "http://sandbox/twelve_data/";
    const access = { baseUrl, apiKey: new Secret("sandbox"), shownAs: "" };
    return fetchBars(access, { symbol, window: { from: day, to: day + DAY }, now }, answering);
  }
  const span = (list: Bar[]) =>
    [list[0], list.at(-1)].map((one) => iso(one?.datetime ?? 0).slice(11, 16));

  it("span New York's session, in winter and in summer", async () => {
    const [winter, summer] = [await bars(Date.UTC(2026, 0, 15)), await bars(FRIDAY)];
    expect([winter.length, span(winter)]).toEqual([78, ["14:30", "20:55"]]);
    expect([summer.length, span(summer)]).toEqual([78, ["13:30", "19:55"]]);
  });

  it("are none on weekends and holidays, and fewer on the day after Thanksgiving", async () => {
    expect(await bars(FRIDAY + DAY)).toEqual([]);
    expect(await bars(Date.UTC(2026, 10, 26))).toEqual([]);
    expect(span(await bars(Date.UTC(2026, 10, 27)))).toEqual(["14:30", "17:55"]);
  });

  it("pass the gate, come again the same, and are corrected within the day", async () => {
    for (const symbol of ["UNG", "USO", "XLE", "XLU"]) {
      const settled = await fetchSandbox(FRIDAY, FRIDAY + 2 * DAY, symbol);
      expect(settled).toEqual(await fetchSandbox(FRIDAY, FRIDAY + 9 * DAY, symbol));
      const young = await fetchSandbox(FRIDAY, OPEN + 3 * HOUR + 3 * MINUTE, symbol);
      expect(young.bars).toHaveLength(36);
      const revised = young.bars.filter((one, n) => one.volume !== settled.bars[n]?.volume);
      expect(revised.length).toBeLessThan(10);
      const rows = settled.bars.map((one) => rowOf(one));
      const window = { from: FRIDAY, to: FRIDAY + DAY };
      const series = { library: "prices.intraday", symbol: symbol.toLowerCase(), rows };
      const context = { partition: window, window, now: FRIDAY + 2 * DAY };
      expect(gateIntraday([series], context)).toEqual({ accepted: [series], findings: [] });
    }
  });
});

const rowOf = ({ datetime, open, high, low, close, volume }: Bar): Row => ({
  datetime,
  instrumentId: "prices.intraday.ung",
  values: [close, open, high, low, close, volume],
});

describe("the intraday gate", () => {
  const window = { from: FRIDAY, to: FRIDAY + DAY };
  const rows = Array.from({ length: 78 }, (_, index) =>
    rowOf({ datetime: OPEN + index * BAR_MS, open: 10, high: 12, low: 9, close: 11, volume: 5 }),
  );
  const judged = (changed: Row[], now = FRIDAY + 2 * DAY) => {
    const series = { library: "prices.intraday", symbol: "ung", rows: changed };
    const { accepted, findings } = gateIntraday([series], { partition: window, window, now });
    const found = findings.map(({ severity, rule, count }) => `${severity} ${rule} ${count}`);
    return { accepted, found };
  };
  const first = (values: number[], datetime = OPEN) =>
    rows.map((row, index) => (index === 0 ? { ...row, values, datetime } : row));

  it("takes a session", () => {
    expect(judged(rows)).toMatchObject({ found: [], accepted: [{ symbol: "ung" }] });
  });

  it.each([
    [first([11, 10, 12, 10.5, 11, 5]), "error incoherent_bar 1"],
    [first([11, 10, 10.9, 9, 11, 5]), "error incoherent_bar 1"],
    [first([10, 10, 12, 9, 11, 5]), "error incoherent_bar 1"],
    [first([1, 1, 1, 0, 1, 5]), "error price_not_positive 1"],
    [first([11, 10, 12, 9, 11, -1]), "error negative_volume 1"],
    [first([11, 10, 12, 9, 11, 5], OPEN + MINUTE), "error off_grid 1"],
    [first([11, 10, 12, 9, 11, 5], OPEN + BAR_MS), "error duplicate_key 1"],
    [first([11, 10, 12, 9, 11, 5], FRIDAY - BAR_MS), "error outside_window 1"],
  ])("refuses what cannot be: %#", (changed, finding) => {
    const { found, accepted } = judged(changed);
    expect(found).toContain(finding);
    expect(accepted).toEqual([]);
  });

  it("tells of holes inside a session, and takes the rest", () => {
    const { found, accepted } = judged(rows.filter((_, index) => index !== 10 && index !== 40));
    expect([found, accepted.length]).toEqual([["warning missing_bars 2"], 1]);
  });

  it("takes nothing for an answer: told of where there was a session, normal where there was none", () => {
    expect(judged([]).found).toEqual(["warning no_rows 1"]);
    expect(judged([], OPEN).found).toEqual([]);
    const judgedOn = (day: number, now: number) => {
      const partition = { from: day, to: day + DAY };
      return judgeCompleteness(intradayBars, [], { key: isoDay(day), partition }, now);
    };
    const over = FRIDAY + 21.5 * HOUR;
    expect(judgedOn(FRIDAY, over - 1)).toMatchObject({ complete: false, until: over });
    expect(judgedOn(Date.UTC(2026, 10, 26), Date.UTC(2026, 11, 1))).toMatchObject({
      complete: true,
      reason: "2026-11-26 has no rows: the exchange is closed on this day",
    });
  });
});
