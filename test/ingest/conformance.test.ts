// What every pipeline owes, over its provider's sandbox: rows where they belong on ordinary days
// and on both daylight-saving days, the same answer to the same question, a gate that takes its own
// output, and named failures for every fault, none of which tells a secret.

import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { Fault } from "../../edge/local/sandbox/answers.ts";
import { type Sandbox, startSandbox } from "../../edge/local/sandbox/server.ts";
import { describeSymbol, unitOf } from "../../edge/markets/client/symbols.ts";
import type { FetchedSeries } from "../../edge/markets/ingest/gate.ts";
import { latestPartition, partitionRange } from "../../edge/markets/ingest/partition.ts";
import type { FetchRequest, Pipeline } from "../../edge/markets/ingest/pipeline.ts";
import { PIPELINES } from "../../edge/markets/ingest/pipelines.ts";
import { PROVIDERS, type Upstreams } from "../../edge/markets/ingest/providers.ts";
import type { Failure } from "../../shared/errors.ts";
import { DAY, HOUR } from "../../shared/time.ts";
import { upstreamsOf } from "../support/upstreams.ts";

/** A Friday, when every release of its week has come. */
const NOW = Date.parse("2026-11-20T18:00:00Z");
const SECRET = "operator-secret-of-the-test";

let sandbox: Sandbox;
let upstreams: Upstreams;
let requested: string[];
beforeAll(async () => {
  sandbox = await startSandbox({ clock: () => NOW });
  upstreams = upstreamsOf(
    { OPERATOR_TOKEN: SECRET, SANDBOX_URL: sandbox.url },
    {
      fetch: (url, init) => {
        requested.push(url);
        return fetch(url, init);
      },
    },
  );
});
afterAll(() => sandbox.close());
beforeEach(() => {
  requested = [];
});

/** What a forward run of a partition asks for. */
function requestFor(pipeline: Pipeline, key: string): FetchRequest {
  const partition = partitionRange(pipeline.partitions, key, NOW);
  const { lookbackMs, lookaheadMs = 0 } = pipeline;
  const window = { from: partition.from - lookbackMs, to: partition.to + lookaheadMs };
  return { partition, window, now: NOW };
}

it.each(PIPELINES)("$job is repaired, where it runs by schedule", ({ job, schedules }) => {
  const [first] = schedules;
  if (!first) return;
  expect(first.name, "the first schedule is named as the job").toBe(job);
  const repair = schedules.find(({ aim }) => aim === "unfinished");
  expect(repair?.name, "a schedule with the aim `unfinished`").toBe(`${job}_repair`);
});

/** The newest partition, and those of both changes where days are its unit. */
function keysOf({ partitions, schedules }: Pipeline): string[] {
  const newest = latestPartition(partitions, NOW);
  if (schedules.length === 0) return ["2026-11-19"];
  const daily = partitions.unit === "day" || partitions.unit === "operating_day";
  return daily ? [newest, "2026-11-01", "2026-03-08"] : [newest];
}

const cases = PIPELINES.flatMap((pipeline) =>
  keysOf(pipeline).map((key) => ({ job: pipeline.job, key, pipeline })),
);

/** Every symbol and column is known by name and unit, for the read API and the pages. */
function expectDescribed({ valueColumns, partitions }: Pipeline, series: FetchedSeries) {
  const { library, symbol, rows } = series;
  const described = describeSymbol(library, symbol);
  expect(described.name, `${library} ${symbol} in edge/markets/client/symbols.ts`).not.toBe(symbol);
  expect(described.columns.map(({ column }) => column)).toEqual(valueColumns);
  expect(described.step).toMatch(/^P/);
  if (partitions.unit === "operating_day") expect(described.time_zone).toBe(partitions.timeZone);
  for (const id of new Set(rows.map(({ instrumentId }) => instrumentId))) {
    for (const column of valueColumns) {
      expect(unitOf(described, id, column), `${id} ${column}`).toEqual(expect.any(String));
    }
    const isKnown = described.instruments.some(({ instrument_id }) => instrument_id === id);
    expect(isKnown || described.instruments.length === 0, id).toBe(true);
  }
}

describe.each(cases)("$job, partition $key", ({ pipeline, key }) => {
  it("is fetched as rows of known libraries, unique, inside the window, and passes its gate", async () => {
    const request = requestFor(pipeline, key);
    const fetched = await pipeline.fetch(upstreams, request);
    expect(fetched.series.length).toBeGreaterThan(0);
    expect(fetched).toMatchObject({ sandbox: true, sourceUrl: expect.stringMatching(/^sandbox:/) });
    for (const { library, symbol, rows } of fetched.series) {
      expect(pipeline.libraries).toContain(library);
      expect(symbol).toMatch(/^[a-z0-9_]+$/);
      expect(pipeline.owns?.(symbol) ?? true).toBe(true);
      const keys = new Set(rows.map(({ datetime, instrumentId }) => `${datetime} ${instrumentId}`));
      expect(keys.size, `${library} ${symbol}`).toBe(rows.length);
      expectDescribed(pipeline, { library, symbol, rows });
      // One assertion for all rows: there are a million of them.
      const strange = rows.filter(
        ({ datetime, instrumentId, values }) =>
          !(datetime >= request.window.from && datetime < request.window.to) ||
          !/^[a-z_]+(\.[a-z0-9_]+)+$/.test(instrumentId) ||
          values.length !== pipeline.valueColumns.length,
      );
      expect(strange).toEqual([]);
    }
    const errors = (report: { findings: { severity: string }[] }) =>
      report.findings.filter(({ severity }) => severity === "error");
    const report = pipeline.gate(fetched.series, request);
    expect([...errors({ findings: fetched.findings ?? [] }), ...errors(report)]).toEqual([]);
    expect(report.accepted.length).toBeGreaterThan(0);
    expect(errors(pipeline.gate(report.accepted, request))).toEqual([]);
    const isInside = ({ datetime }: { datetime: number }) =>
      datetime >= request.partition.from && datetime < request.partition.to;
    if (pipeline.job !== "spot_prices")
      expect(report.accepted.some(({ rows }) => rows.some(isInside))).toBe(true);
    const again = await pipeline.fetch(upstreams, request);
    expect(again.series).toEqual(fetched.series);
  });

  it("reads a closed day whole: 23, 24 or 25 hours of it", async () => {
    const { unit } = pipeline.partitions;
    const stepMs = pipeline.job === "realtime_prices" ? HOUR / 4 : HOUR;
    const request = requestFor(pipeline, key);
    const { from, to } = request.partition;
    if (unit !== "operating_day" || to > NOW - DAY) return;
    const { series } = await pipeline.fetch(upstreams, request);
    for (const { rows } of series) {
      const inside = rows.filter(({ datetime }) => datetime >= from && datetime < to);
      expect(inside.map(({ datetime }) => datetime).toSorted((a, b) => a - b)).toEqual(
        Array.from({ length: (to - from) / stepMs }, (_, step) => from + step * stepMs),
      );
    }
  });
});

const FAILURES: Readonly<Partial<Record<Fault, RegExp>>> = {
  down: /^upstream_unavailable$/,
  storm: /^upstream_unavailable$/,
  truncated: /^upstream_(truncated|schema_drift)$/,
  drifted: /^upstream_schema_drift$/,
  refused: /^upstream_unauthorized$/,
};

describe.each(PIPELINES.map((pipeline) => ({ job: pipeline.job, pipeline })))(
  "$job, when its provider fails",
  ({ pipeline }) => {
    const [key = ""] = keysOf(pipeline);
    const keyless = Object.keys(PROVIDERS[pipeline.provider].settings).length === 0;

    it.each(Object.keys(FAILURES) as Fault[])(
      "by being %s, fails by name and tells no secret",
      async (fault) => {
        if (keyless && fault === "refused") return;
        sandbox.break(pipeline.provider, fault);
        const failed = await pipeline
          .fetch(upstreams, requestFor(pipeline, key))
          .then(() => null)
          .catch((thrown: Failure) => thrown);
        sandbox.break(pipeline.provider, null);
        expect(failed?.code).toMatch(FAILURES[fault] ?? /never/);
        // The field that drifted is named.
        if (fault === "drifted") expect(failed?.message).toMatch(/`[^`]+`|: \w+/);
        const told = JSON.stringify([failed?.message, failed?.data]);
        expect(told).not.toMatch(/sandbox-(password|key|token)|api_key=|apikey=|Bearer /);
        expect(told).not.toContain(SECRET);
      },
    );

    it("once, is asked again and answers", async () => {
      sandbox.break(pipeline.provider, "down", 1);
      const { series } = await pipeline.fetch(upstreams, requestFor(pipeline, key));
      expect(series.length).toBeGreaterThan(0);
      expect(requested.length).toBeGreaterThan(1);
    });
  },
);
