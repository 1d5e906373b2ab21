// ERCOT's documents: the archive's zips of CSVs, the public lists that need no login, and the
// display page of the day's load; broken, late, repeated and doubled.

import { zipSync } from "fflate";
import { describe, expect, it } from "vitest";
import type { SandboxAnswer, SandboxRequest } from "../../edge/local/sandbox/answers.ts";
import { recordsOfPage } from "../../edge/markets/ingest/sources/ercot-cdr.ts";
import { QUARTER } from "../../edge/markets/ingest/sources/ercot-hours.ts";
import { recordsOfCsv, SYSTEM_LOAD } from "../../edge/markets/ingest/sources/ercot-products.ts";
import { csvOf, unpack } from "../../edge/markets/ingest/sources/ercot-zip.ts";
import { LeftOut } from "../../edge/markets/ingest/sources/left-out.ts";
import { MINUTE } from "../../shared/time.ts";
import { type Ercot, failureOf, startErcot, valuesOf } from "../support/ercot.ts";

const NOON = "2026-11-21T19:25:00Z";
const JOBS = ["realtime_prices", "day_ahead_prices", "system_load"] as const;
const json = (body: unknown, status = 200): SandboxAnswer => ({ status, body });
const paths = ({ requests }: Ercot) => requests.map(({ url }) => url.pathname);

describe("the archive", () => {
  const DAY_KEY = "2026-11-01";
  const isList = ({ url }: SandboxRequest) =>
    /\/archive\/[\w-]+$/.test(url.pathname) && !url.searchParams.has("download");
  const isDownload = ({ url }: SandboxRequest) =>
    url.pathname.endsWith("/download") || url.searchParams.has("download");

  it("is downloaded at once: one listing, one zip of zips", async () => {
    const ercot = await startErcot(NOON);
    await ercot.run("realtime_prices", DAY_KEY);
    expect(ercot.requests.filter(isList)).toHaveLength(1);
    const [bulk, ...others] = ercot.requests.filter(isDownload);
    expect(others).toEqual([]);
    const { docIds } = JSON.parse(bulk?.body ?? "{}") as { docIds: number[] };
    expect(docIds.length).toBeGreaterThanOrEqual(100);
  });

  it("gives way to rows where it holds nothing", async () => {
    const empty = { _meta: { totalRecords: 0 }, archives: [] };
    const ercot = await startErcot(NOON, (request) => (isList(request) ? json(empty) : undefined));
    for (const job of JOBS) {
      const { fetched, report } = await ercot.run(job, DAY_KEY);
      expect(report.accepted.length).toBeGreaterThan(0);
      expect(fetched.sourceUrl).not.toContain("/archive/");
      expect(fetched.publishedAt).toBeUndefined();
    }
  });

  it("that lists a document before it can be downloaded is asked again later", async () => {
    const ercot = await startErcot(NOON, (request) =>
      isDownload(request) ? json({ message: "not found" }, 404) : undefined,
    );
    expect((await failureOf(ercot, "system_load", DAY_KEY)).code).toBe("upstream_unavailable");
  });

  it("that lists fewer documents than it announces, or zips fewer, is no answer", async () => {
    const short = await startErcot(NOON, (request) =>
      isList(request) ? json({ _meta: { totalRecords: 9 }, archives: [] }) : undefined,
    );
    expect((await failureOf(short, "system_load", DAY_KEY)).code).toBe("upstream_truncated");
    const lacking = await startErcot(NOON, (request) =>
      isDownload(request)
        ? { status: 200, body: zipSync({ "1.zip": new Uint8Array(3) }) }
        : undefined,
    );
    const failure = await failureOf(lacking, "realtime_prices", DAY_KEY);
    expect([failure.code, failure.message]).toEqual([
      "upstream_truncated",
      expect.stringMatching(/lacks document \d+/),
    ]);
  });
});

describe("zips and CSVs", () => {
  const columns = Object.values(SYSTEM_LOAD.columns).join(",");
  const row = "11/21/2026,01:00,1,1,1,1,1,1,1,1,8,N";
  const zip = (text: string) => zipSync({ "load.csv": new TextEncoder().encode(text) });
  const read = (text: string) =>
    recordsOfCsv(SYSTEM_LOAD, csvOf(zip(text)), { kept: () => true, leftOut: new LeftOut() });

  it("are read by column names", () => {
    expect(read(`${columns}\n${row}\n`)).toHaveLength(1);
    expect(() => read(`${columns.replace("FAR_WEST", "FARWEST")}\n${row}`)).toThrow(
      /missing `FAR_WEST`; new `FARWEST`/,
    );
  });

  it("that end in their middle are no answer", () => {
    expect(() => read(`${columns}\n11/21/2026,01:00,1`)).toThrow(
      expect.objectContaining({ code: "upstream_truncated" }),
    );
    expect(() => csvOf(zip(columns).slice(0, 80))).toThrow(
      expect.objectContaining({ code: "upstream_truncated" }),
    );
  });

  it("that would fill the memory are refused before they are unpacked", () => {
    const bomb = zipSync({ "bomb.csv": new Uint8Array(70 * 1024 * 1024) }, { level: 9 });
    expect(bomb.length).toBeLessThan(200_000);
    expect(() => unpack(bomb, () => true)).toThrow(
      expect.objectContaining({ code: "upstream_rejected" }),
    );
    const many = Object.fromEntries(
      Array.from({ length: 1_200 }, (_, index) => [`${index}.csv`, new Uint8Array(1)]),
    );
    expect(() => unpack(zipSync(many), () => true)).toThrow(/unpacks to more/);
  });
});

describe("the public documents", () => {
  it.each([
    ["the current day", "2026-11-21T19:25:00Z", undefined],
    ["a day of 25 hours", "2026-11-04T20:25:00Z", "2026-11-01"],
    ["a day of 23 hours", "2026-03-11T20:25:00Z", "2026-03-08"],
  ])("give the API's rows for %s, without a login", async (_, now, day) => {
    for (const job of JOBS) {
      // Corrections are the API's alone.
      const ercot = await startErcot(now, ({ url }) =>
        /np4-19[67]-m/.test(url.pathname) ? json({}, 404) : undefined,
      );
      const { fetched } = await ercot.run(job, day);
      ercot.requests.length = 0;
      ercot.withoutCredentials();
      const keyless = await ercot.run(job, day);
      expect(keyless.report.findings.filter(({ severity }) => severity === "error")).toEqual([]);
      const sorted = (series: typeof fetched.series) =>
        series
          .map(({ symbol, rows }) => ({
            symbol,
            rows: rows.toSorted((left, right) => left.datetime - right.datetime),
          }))
          .toSorted((left, right) => (left.symbol < right.symbol ? -1 : 1));
      expect(sorted(keyless.fetched.series)).toEqual(sorted(fetched.series));
      expect(paths(ercot).every((path) => path.startsWith("/ercot/www/"))).toBe(true);
      if (keyless.fetched.publishedAt && job === "realtime_prices") {
        const newest = [...valuesOf(keyless, "hb_north").keys()].map((text) => Date.parse(text));
        expect(keyless.fetched.publishedAt).toBeGreaterThan(Math.max(...newest) + QUARTER - 1);
      }
    }
  });

  it("are downloaded once, and only those about the window", async () => {
    const ercot = await startErcot(NOON);
    ercot.withoutCredentials();
    await ercot.run("realtime_prices");
    const downloads = () => paths(ercot).filter((path) => path.endsWith("/mirDownload")).length;
    const first = downloads();
    expect(first).toBeGreaterThan(4 * 96 + 50);
    expect(first).toBeLessThan(4 * 96 + 56);
    ercot.now += 15 * MINUTE;
    await ercot.run("realtime_prices");
    expect(downloads() - first).toBe(1);
  });

  it("are refused by name when the list drifts, and when the site refuses", async () => {
    const ercot = await startErcot(NOON);
    ercot.withoutCredentials();
    ercot.sandbox.break("ercot", "drifted");
    const failure = await failureOf(ercot);
    expect([failure.code, failure.message]).toEqual([
      "upstream_schema_drift",
      expect.stringContaining("DocID"),
    ]);
    const closed = await startErcot(NOON, () => ({ status: 403, body: "no" }));
    closed.withoutCredentials();
    expect((await failureOf(closed)).code).toBe("upstream_rejected");
  });
});

describe("the display page", () => {
  const page = (title: string, ...rows: string[][]) =>
    `<html><body><table>${[[title, ...TITLES], ...rows]
      .map((row) => `<tr>${row.map((cell) => `<td>${cell}</td>`).join("")}</tr>`)
      .join("")}</table></body></html>`;
  const TITLES = [
    "Hour Ending",
    "COAST",
    "EAST",
    "FAR_WEST",
    "NORTH",
    "NORTH_C",
    "SOUTHERN",
    "SOUTH_C",
    "WEST",
    "TOTAL",
  ];
  const hour = (label: string) => [
    "11/01/2026",
    label,
    ...Array.from({ length: 8 }, () => "1,000.50"),
    "8,004.00",
  ];

  it("marks the repeated hour with a star, and has thousands in commas", () => {
    const records = recordsOfPage(
      page("Oper Day", hour("0100"), hour("0200"), hour("0200*")),
      new LeftOut(),
    );
    expect(records.map(({ hourEnding, DSTFlag, total }) => [hourEnding, DSTFlag, total])).toEqual([
      ["0100", false, "8004.00"],
      ["0200", false, "8004.00"],
      ["0200", true, "8004.00"],
    ]);
  });

  it("may have no rows yet, and never other columns", () => {
    expect(recordsOfPage(page("Oper Day"), new LeftOut())).toEqual([]);
    expect(() => recordsOfPage(page("Day", hour("0100")), new LeftOut())).toThrow(
      /missing `operatingDay`/,
    );
    expect(() =>
      recordsOfPage("<html><body>Under maintenance</body></html>", new LeftOut()),
    ).toThrow(expect.objectContaining({ code: "upstream_schema_drift" }));
    expect(() =>
      recordsOfPage(page("Oper Day", hour("0100")).slice(0, 300), new LeftOut()),
    ).toThrow(expect.objectContaining({ code: "upstream_truncated" }));
  });

  it("is refused when it is about another day", async () => {
    const ercot = await startErcot(NOON, ({ url }) =>
      url.pathname.endsWith(".html")
        ? { status: 200, body: page("Oper Day", hour("0100")) }
        : undefined,
    );
    expect((await failureOf(ercot, "system_load")).message).toContain("the page of 2026-11-2");
  });

  it("that is not there leaves the load to the settled report", async () => {
    const ercot = await startErcot(NOON, ({ url }) =>
      url.pathname.endsWith(".html") ? json("gone", 404) : undefined,
    );
    const { report } = await ercot.run("system_load");
    expect(report.accepted[0]?.rows).toHaveLength(24);
  });
});
