// The EIA source over real HTTP: paging, typing, faults, and a key that never gets out.

import { describe, expect, it } from "vitest";
import { startSandbox } from "../../edge/local/sandbox/server.ts";
import { type EiaQuery, type EiaRows, fetchEia } from "../../edge/markets/ingest/sources/eia.ts";
import { Failure } from "../../shared/errors.ts";
import { Secret } from "../../shared/secret.ts";
import { HOUR } from "../../shared/time.ts";
import { type EiaRecord, eiaPage, type Reply, startUpstream } from "../support/recordings.ts";

const KEY = "hunter2-very-secret";
const FROM = Date.UTC(2026, 0, 10);
const query: EiaQuery = {
  route: "electricity/rto/region-data",
  frequency: "hourly",
  facets: { type: ["D"] },
  keyFields: ["respondent", "type"],
  window: { from: FROM, to: FROM + 24 * HOUR },
};

const record = (hour: number, value: unknown, more: Partial<EiaRecord> = {}): EiaRecord => ({
  period: new Date(FROM + (hour + 1) * HOUR).toISOString().slice(0, 13),
  respondent: "ERCO",
  type: "D",
  value,
  "value-units": "megawatthours",
  ...more,
});

async function fetchFrom(reply: (url: URL, count: number) => Reply, apiKey = KEY) {
  const upstream = await startUpstream(reply);
  const pauses: number[] = [];
  const fetcher = {
    fetch: (url: string, init: object) => fetch(url, init),
    pause: async (milliseconds: number) => void pauses.push(milliseconds),
  };
  const access = {
    baseUrl: upstream.url,
    apiKey: new Secret(apiKey),
    shownAs: "https://api.eia.gov/v2/",
  };
  const outcome = await fetchEia(access, query, fetcher).catch((thrown: unknown) => thrown);
  return { outcome, upstream, pauses };
}

async function failureOf(reply: (url: URL, count: number) => Reply): Promise<Failure> {
  const { outcome } = await fetchFrom(reply);
  expect(outcome).toBeInstanceOf(Failure);
  const failure = outcome as Failure;
  expect(JSON.stringify([failure.message, failure.data, String(failure.cause)])).not.toContain(KEY);
  return failure;
}

describe("the EIA source", () => {
  it("asks for hour-ending periods and returns interval starts", async () => {
    const rows = [record(0, "41234"), record(1, 41000.5)];
    const { outcome, upstream } = await fetchFrom((url) => ({ body: eiaPage(rows, url) }));
    const asked = upstream.requests[0]?.searchParams;
    expect([asked?.get("start"), asked?.get("end")]).toEqual(["2026-01-10T01", "2026-01-11T00"]);
    expect(asked?.getAll("facets[type][]")).toEqual(["D"]);
    expect(outcome).toMatchObject({
      rows: [
        { datetime: FROM, value: 41234, key: { respondent: "ERCO", type: "D" } },
        { datetime: FROM + HOUR, value: 41000.5 },
      ],
    });
  });

  it("reads every way to say missing as null", async () => {
    const missing = [null, "", ".", "NA"].map((value, hour) => record(hour, value));
    const { outcome } = await fetchFrom((url) => ({ body: eiaPage(missing, url) }));
    const { rows } = outcome as { rows: { value: number }[] };
    expect(rows.map((row) => row.value)).toEqual([NaN, NaN, NaN, NaN]);
  });

  it("follows pages shorter than it asked for, with a total order", async () => {
    const all = Array.from({ length: 24 }, (_, hour) => record(hour, hour));
    const { outcome, upstream } = await fetchFrom((url) => {
      url.searchParams.set("length", "10");
      return { body: eiaPage(all, url) };
    });
    expect((outcome as { rows: unknown[] }).rows).toHaveLength(24);
    expect(upstream.requests.map((url) => url.searchParams.get("offset"))).toEqual([
      "0",
      "10",
      "20",
    ]);
    const sort = upstream.requests[0]?.searchParams;
    expect([0, 1, 2].map((index) => sort?.get(`sort[${index}][column]`))).toEqual([
      "period",
      "respondent",
      "type",
    ]);
  });

  it("sends the key, and shows it nowhere", async () => {
    const { outcome, upstream } = await fetchFrom((url) => ({
      body: eiaPage([record(0, 1)], url),
    }));
    expect(upstream.requests[0]?.searchParams.get("api_key")).toBe(KEY);
    expect(JSON.stringify(outcome)).not.toContain(KEY);
    const { sourceUrl } = outcome as { sourceUrl: string };
    expect(sourceUrl).toMatch(
      /^https:\/\/api\.eia\.gov\/v2\/electricity\/rto\/region-data\/data\/\?/,
    );
  });

  it.each([
    [
      403,
      { error: { code: "API_KEY_INVALID", message: `bad key ${KEY}` } },
      "upstream_unauthorized",
    ],
    [403, { error: { code: "API_KEY_MISSING" } }, "upstream_unauthorized"],
    [200, { error: { code: "API_KEY_INVALID" } }, "upstream_unauthorized"],
    [403, { error: { code: "OVER_RATE_LIMIT" } }, "upstream_unavailable"],
    [400, { error: `Invalid 'start' ${KEY}`, code: 400 }, "upstream_rejected"],
    [404, { error: "Not found." }, "upstream_rejected"],
    [200, '{"response":{"total":"2","da', "upstream_truncated"],
    [
      200,
      { response: { total: "1", data: [{ period: "2026-01-10T01" }] } },
      "upstream_schema_drift",
    ],
    [200, { response: { data: [] } }, "upstream_schema_drift"],
  ])("turns HTTP %i %j into %s", async (status, body, code) => {
    expect((await failureOf(() => ({ status, body }))).code).toBe(code);
  });

  it.each([
    [{ respondent: undefined }, "`respondent` is missing"],
    [{ period: "2026-01-10T01-06" }, "`period`"],
    [{ value: "12,5" }, "`value`"],
    [{ "value-units": undefined }, "value-units"],
  ])("names the drifted field of %j", async (change, named) => {
    const drifted = { ...record(0, 1), ...change };
    const failure = await failureOf((url) => ({ body: eiaPage([drifted], url) }));
    expect([failure.code, failure.message]).toEqual([
      "upstream_schema_drift",
      expect.stringContaining(named),
    ]);
  });

  it("shows the names and types that arrived, and no value but the first that did not fit", async () => {
    const body = {
      request: { params: { api_key: KEY } },
      response: { total: "1", data: [{ period: 20260110, respondent: "ERCO", value: 41 }] },
    };
    const changed = await failureOf(() => ({ body }));
    expect(changed.message).toContain("`period` is unexpected 20260110");
    expect(changed.data.arrived).toBe("{period: number, respondent: string, value: number}");
    const odd = { ...record(0, 1), value: "12,5" };
    const row = await failureOf((url) => ({ body: eiaPage([odd], url) }));
    expect(row.message).toContain('`value` is unexpected "12,5"');
    expect(row.data.arrived).toContain("respondent: string");
    const hostile = { [`x${"y".repeat(99)}`]: KEY, response: Array(9_999).fill({ token: KEY }) };
    const huge = await failureOf(() => ({ body: hostile }));
    expect(String(huge.data.arrived).length).toBeLessThan(200);
    for (const failure of [changed, row, huge]) {
      expect(JSON.stringify([failure.message, failure.data])).not.toContain(KEY);
    }
  });

  it("never takes a short answer for a whole one", async () => {
    const stops = await failureOf((url) => {
      const page = eiaPage([record(0, 1)], url) as { response: { total: string } };
      page.response.total = "3";
      return { body: page };
    });
    expect([stops.code, stops.message]).toEqual([
      "upstream_truncated",
      "EIA announced 3 rows and sent 1",
    ]);
  });

  it("leaves out the row that cannot be read, and names it", async () => {
    const others = [...Array(40).keys()].map((hour) => record(hour, hour));
    for (const [change, named] of [
      [{ respondent: null }, "`respondent` is unexpected null in the row of 2026-01-"],
      [{ value: "--" }, '`value` is unexpected "--"'],
      [{ value: "W" }, '`value` is unexpected "W"'],
      [{ value: "0x10" }, '`value` is unexpected "0x10"'],
      [{ value: "1e3" }, '`value` is unexpected "1e3"'],
      [{ value: true }, "`value` is unexpected true"],
      [{ value: undefined }, "`value` is missing"],
      [{ period: "2026-01-10T01-06" }, "`period` is unexpected"],
    ] as const) {
      const rows = others.with(7, { ...record(7, 7), ...change } as ReturnType<typeof record>);
      const { outcome } = await fetchFrom((url) => ({ body: eiaPage(rows, url) }));
      const { rows: read, leftOut } = outcome as EiaRows;
      expect(read.map(({ value }) => value)).toEqual(
        [...Array(40).keys()].filter((hour) => hour !== 7),
      );
      expect(leftOut.findings()).toEqual([
        expect.objectContaining({
          severity: "warning",
          rule: "unreadable_rows",
          count: 1,
          where: expect.stringContaining(named),
        }),
      ]);
    }
  });

  it("fails the check where more than a twentieth is left out, and the run where most is", async () => {
    const rows = (wrong: number) =>
      [...Array(40).keys()].map((hour) => record(hour, hour < wrong ? "--" : hour));
    const fetched = await fetchFrom((url) => ({ body: eiaPage(rows(3), url) }));
    const { leftOut } = fetched.outcome as EiaRows;
    expect(leftOut.findings()).toMatchObject([{ severity: "error", count: 3 }]);
    const failure = await failureOf((url) => ({ body: eiaPage(rows(21), url) }));
    expect(failure.code).toBe("upstream_schema_drift");
  });

  it("takes an error under a status of success for one of the agency's, which passes", async () => {
    const passing = await failureOf(() => ({ body: { error: "Internal error", code: 500 } }));
    expect(passing.code).toBe("upstream_unavailable");
    const ours = await failureOf(() => ({ body: { error: "no such facet", code: 400 } }));
    expect(ours.code).toBe("upstream_rejected");
  });

  it("takes a row that a page repeats once, and leaves it out with two values", async () => {
    const twice = await fetchFrom((url) => ({
      body: eiaPage([record(0, 1), record(0, "1")], url),
    }));
    expect((twice.outcome as { rows: unknown[] }).rows).toHaveLength(1);
    const sent = [record(0, 1), record(0, 2), record(1, 3)];
    const torn = await fetchFrom((url) => ({ body: eiaPage(sent, url) }));
    const { rows, leftOut } = torn.outcome as EiaRows;
    expect(rows.map(({ value }) => value)).toEqual([3]);
    expect(leftOut.findings()).toMatchObject([
      {
        rule: "contradicting_rows",
        count: 1,
        where: "two values for ERCO D at 2026-01-10T00:00:00.000Z",
      },
    ]);
  });

  it("leaves a long wait to the queue", async () => {
    const throttled = await failureOf(() => ({
      status: 429,
      headers: { "Retry-After": "240" },
      body: "",
    }));
    expect(throttled).toMatchObject({ code: "upstream_unavailable", data: { retry_after_s: 240 } });
  });

  it("starts again when a row is withdrawn or inserted between two pages", async () => {
    const all = Array.from({ length: 24 }, (_, hour) => record(hour, hour));
    for (const changed of [all.toSpliced(3, 1), all.toSpliced(3, 0, record(50, 50))]) {
      const { outcome, upstream } = await fetchFrom((url, count) => {
        url.searchParams.set("length", "16");
        return { body: eiaPage(count === 1 ? all : changed, url) };
      });
      expect((outcome as { rows: unknown[] }).rows).toHaveLength(changed.length);
      expect(upstream.requests).toHaveLength(4);
    }
  });

  it("retries 429, 5xx and dropped connections with backoff, as long as Retry-After asks", async () => {
    const { outcome, upstream, pauses } = await fetchFrom((url, count) => {
      if (count === 1) return { status: 429, headers: { "Retry-After": "7" }, body: "" };
      if (count === 2) return { status: 503, body: "" };
      if (count === 3) return { drop: true, body: "" };
      return { body: eiaPage([record(0, 1)], url) };
    });
    expect((outcome as { rows: unknown[] }).rows).toHaveLength(1);
    expect(upstream.requests).toHaveLength(4);
    expect(pauses).toEqual([7_000, 2_000, 4_000]);
  });

  it.each([
    ["daily", "2026-01-10", "2026-01-10", "2026-01-12", Date.UTC(2026, 0, 10)],
    ["weekly", "2026-01-10", "2026-01-10", "2026-01-12", Date.UTC(2026, 0, 10)],
    ["monthly", "2026-02", "2026-02", "2026-03", Date.UTC(2026, 1, 1)],
  ] as const)("asks for %s periods as they are written, both ends included", async (...asked) => {
    const [frequency, period, start, end, datetime] = asked;
    const series = { period, seriesId: "NGHHUUS", value: "3.1", unit: "dollars" };
    const upstream = await startUpstream((url) => ({ body: eiaPage([series], url) }));
    // From the middle of a month: three days, or to the start of April.
    const to = frequency === "monthly" ? Date.UTC(2026, 3, 1) : FROM + 72 * HOUR;
    const window = { from: FROM, to };
    const outcome = await fetchEia(
      { baseUrl: upstream.url, apiKey: new Secret(KEY), shownAs: "https://api.eia.gov/v2/" },
      {
        route: "steo",
        frequency,
        facets: { seriesId: ["NGHHUUS"] },
        keyFields: ["seriesId"],
        window,
      },
      { fetch: (url: string, init: object) => fetch(url, init), pause: async () => {} },
    );
    const { searchParams } = upstream.requests[0] as URL;
    expect(searchParams.get("frequency")).toBe(frequency);
    expect(searchParams.getAll("facets[seriesId][]")).toEqual(["NGHHUUS"]);
    expect([searchParams.get("start"), searchParams.get("end")]).toEqual([start, end]);
    expect(outcome.rows).toEqual([
      { datetime, key: { seriesId: "NGHHUUS" }, value: 3.1, unit: "dollars" },
    ]);
  });

  it("refuses a period of another frequency", async () => {
    const failure = await failureOf((url) => ({
      body: eiaPage([record(0, 1, { period: "2026-01-10" })], url),
    }));
    expect(failure.message).toContain("`period` is unexpected");
  });

  it.each([
    [{ "value-units": "megawatthours" }, "megawatthours"],
    [{ "value-units": undefined, units: "BCF" }, "BCF"],
    [{ "value-units": undefined, unit: "dollars per barrel" }, "dollars per barrel"],
    [{ "value-units": undefined, units: null }, ""],
  ])("reads the unit by any of its names: %j", async (named, unit) => {
    const { outcome } = await fetchFrom((url) => ({
      body: eiaPage([{ ...record(0, 1), ...named }], url),
    }));
    expect(outcome).toMatchObject({ rows: [{ unit }] });
  });

  it("gives up after four attempts, naming the last status", async () => {
    const { outcome, upstream } = await fetchFrom(() => ({ status: 502, body: "<html>" }));
    expect(upstream.requests).toHaveLength(4);
    expect(outcome).toMatchObject({
      code: "upstream_unavailable",
      message: expect.stringContaining("502"),
    });
  });

  it("reads the sandbox as it reads EIA, years back", async () => {
    const sandbox = await startSandbox();
    const fetcher = {
      fetch: (url: string, init: object) => fetch(url, init),
      pause: async () => {},
    };
    const access = {
      baseUrl: `${sandbox.url}/eia/v2/`,
      apiKey: new Secret("sandbox"),
      shownAs: "sandbox://",
    };
    const old = { from: Date.UTC(2023, 5, 1), to: Date.UTC(2023, 5, 8) };
    const { rows } = await fetchEia(access, { ...query, window: old }, fetcher);
    await sandbox.close();
    expect(rows.length).toBeGreaterThan(10_000);
    expect(new Set(rows.map((row) => row.key.respondent)).size).toBeGreaterThanOrEqual(68);
    const wrong = { ...access, apiKey: new Secret("wrong") };
    await expect(fetchEia(wrong, query, fetcher)).rejects.toBeInstanceOf(Error);
  });
});
