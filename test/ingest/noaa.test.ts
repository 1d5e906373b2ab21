// NOAA's directory and files: over the real ones recorded, over the sandbox, and over whatever can
// be wrong with them.

import { describe, expect, it, onTestFinished } from "vitest";
import type { Fault } from "../../edge/local/sandbox/answers.ts";
import { answerNoaa, appearsAt } from "../../edge/local/sandbox/noaa.ts";
import { startSandbox } from "../../edge/local/sandbox/server.ts";
import { degreeDays, gateWeather } from "../../edge/markets/ingest/pipelines/weather.ts";
import { LeftOut } from "../../edge/markets/ingest/sources/left-out.ts";
import {
  AREA_NAMES,
  type AreaYear,
  type Element,
  fetchDegreeDays,
  newestFiles,
  parseDegreeDays,
} from "../../edge/markets/ingest/sources/noaa.ts";
import type { Row } from "../../edge/markets/store/rows.ts";
import { addMonths, DAY, HOUR, iso, isoDay } from "../../shared/time.ts";
import {
  gunzippedRecording,
  hasRecordings,
  type Reply,
  recording,
  startUpstream,
} from "../support/recordings.ts";

const NOW = Date.UTC(2026, 10, 21);
const EVER = { from: Date.UTC(1895, 0, 1), to: NOW };
const fetcher = { fetch: (url: string, init: object) => fetch(url, init), pause: async () => {} };
const listingOf = (...files: string[]) =>
  `<html><body>${files.map((file) => `<a href="${file}">${file}</a>`).join("\n")}</body></html>\n`;
const file = (element: Element, stamp: string, version = "1.0.0") =>
  `climdiv-${element}cst-v${version}-${stamp}`;

async function fetchFrom(reply: (url: URL, count: number) => Reply, window = EVER) {
  const upstream = await startUpstream(reply);
  const access = { baseUrl: upstream.url, shownAs: "https://noaa.example/" };
  const outcome = fetchDegreeDays(access, window, fetcher);
  return { outcome, upstream, access };
}

/** The sandbox's directory as an upstream of the test's own, with some answers replaced. */
const sandboxed =
  (now: number, replaced: (path: string, body: string) => Reply | undefined = () => undefined) =>
  (url: URL): Reply => {
    const path = `/noaa/pub/data/cirs/climdiv${url.pathname}`;
    const { status, body } = answerNoaa(new URL(path, "http://sandbox"), now);
    return replaced(url.pathname.slice(1), String(body)) ?? { status, body };
  };

describe("the directory listing", () => {
  const both = (stamp: string) => [file("hdd", stamp), file("cdd", stamp)];

  it("gives the newest stamp", () => {
    const listing = listingOf(...both("20251204"), ...both("20260604"), ...both("20260107"));
    expect(newestFiles(listing)).toEqual({
      files: { hdd: file("hdd", "20260604"), cdd: file("cdd", "20260604") },
      publishedAt: Date.UTC(2026, 5, 4),
    });
  });

  it("gives the newest that both elements have, while one is ahead", () => {
    const listing = listingOf(file("hdd", "20261006"), ...both("20260904"));
    expect(newestFiles(listing).files.hdd).toBe(file("hdd", "20260904"));
    const apart = listingOf(file("hdd", "20261006"), file("cdd", "20260904"));
    expect(() => newestFiles(apart)).toThrow("no two degree-day files of one date");
  });

  it("gives the higher of two versions of a stamp", () => {
    const listing = listingOf(...both("20261006"), file("hdd", "20261006", "1.10.0"));
    expect(newestFiles(listing).files.hdd).toBe(file("hdd", "20261006", "1.10.0"));
  });

  it("is refused when it is cut, or names no file of an element", () => {
    const whole = listingOf(...both("20261006"));
    expect(() => newestFiles(whole.slice(0, -9))).toThrow("without its end");
    const renamed = listingOf(file("hdd", "20261006"), "climdiv-cdd-v1.0.0-20261006");
    expect(() => newestFiles(renamed)).toThrow("names no `climdiv-cddcst` file");
  });
});

describe("a file's line", () => {
  const line =
    "1100252025   955.   695.   476.   283.   138.    19.     4.    10. -9999. -9999. -9999. -9999.   ";

  it("is an area's year, in which -9999 is no value", () => {
    const [year] = parseDegreeDays(`${line}\n`, "hdd", new LeftOut());
    expect(year).toMatchObject({ area: "us", year: 2025 });
    expect(year?.months.slice(0, 9)).toEqual([955, 695, 476, 283, 138, 19, 4, 10, NaN]);
  });

  const changed = (from: number, cell: string) =>
    `${line.slice(0, from)}${cell}${line.slice(from + cell.length)}\n`;
  it.each([
    [changed(0, "1A0"), '`area` (columns 1-3) of line 1 is "1A0"'],
    [changed(3, "1"), '`division` (column 4) of line 1 is "1"'],
    [changed(4, "26"), '`element` (columns 5-6) of line 1 is "26"'],
    [changed(6, " 202"), '`year` (columns 7-10) of line 1 is " 202"'],
    [changed(38, "   13.8"), '`may` (columns 39-45) of line 1 is "   13.8"'],
    [changed(87, "      x"), "`december` (columns 88-94)"],
    [changed(94, "  1"), "`end of line` (columns 95-97)"],
    [`${line} \n`, "line 1 has 98 columns, not 97"],
  ])("names the column that drifted: %#", (text, named) => {
    expect(() => parseDegreeDays(text, "hdd", new LeftOut())).toThrow(named);
    expect(() => parseDegreeDays(text, "hdd", new LeftOut())).toThrow(
      expect.objectContaining({ code: "upstream_schema_drift" }),
    );
  });

  it("is left out by name where it cannot be read, among those that can", () => {
    const leftOut = new LeftOut();
    const years = [...Array(30).keys()].map((year) => line.replace("2025", String(1990 + year)));
    const text = `${years.join("\n")}\n${changed(38, "   13.8")}`;
    expect(parseDegreeDays(text, "hdd", leftOut)).toHaveLength(30);
    expect(leftOut.findings()).toMatchObject([
      { severity: "warning", rule: "unreadable_rows", count: 1 },
    ]);
    expect(leftOut.findings()[0]?.where).toContain("`may` (columns 39-45) of line 31");
    // A line that comes twice is one line.
    expect(parseDegreeDays(`${line}\n${line}\n`, "hdd", new LeftOut())).toHaveLength(1);
  });

  it("is never taken from a text that ends within one", () => {
    for (const text of ["", line, `${line}\n${line.slice(0, 50)}`]) {
      expect(() => parseDegreeDays(text, "hdd", new LeftOut())).toThrow(
        expect.objectContaining({ code: "upstream_truncated" }),
      );
    }
  });
});

describe("the NOAA source", () => {
  it("reads listing and two files, and reads no file twice", async () => {
    const { outcome, upstream, access } = await fetchFrom(sandboxed(NOW));
    const { values, sourceUrl, publishedAt } = await outcome;
    const months = (2026 - 1895) * 12 + 10;
    expect(values).toHaveLength(2 * AREA_NAMES.length * months);
    expect(sourceUrl).toMatch(/^https:\/\/noaa\.example\/climdiv-hddcst-v1\.0\.0-\d{8}$/);
    expect(sourceUrl.endsWith(isoDay(publishedAt).replaceAll("-", ""))).toBe(true);
    const window = { from: Date.UTC(2026, 8, 1), to: Date.UTC(2026, 9, 1) };
    const again = await fetchDegreeDays(access, window, fetcher);
    expect(again.values).toHaveLength(2 * AREA_NAMES.length);
    expect(upstream.requests).toHaveLength(4);
  });

  it.each([
    ["a file cut within a line", (body: string) => body.slice(0, body.length >> 1)],
    ["a file cut between lines", (body: string) => body.slice(0, 98 * 7_500)],
    ["a file without an area", (body: string) => body.replaceAll(/^041.*\n/gm, "")],
  ])("never takes %s for a whole one", async (_, spoil) => {
    const { outcome } = await fetchFrom(
      sandboxed(NOW, (path, body) => (path.includes("cdd") ? { body: spoil(body) } : undefined)),
    );
    await expect(outcome).rejects.toMatchObject({ code: "upstream_truncated" });
  });

  it.each([
    [404, (path: string) => path !== "", "upstream_unavailable", "withdrawn climdiv-hddcst"],
    [404, (path: string) => path === "", "upstream_rejected", "HTTP 404"],
    [403, () => true, "upstream_rejected", "HTTP 403"],
    [503, (path: string) => path !== "", "upstream_unavailable", "HTTP 503"],
  ])("turns HTTP %i into %s", async (status, matches, code, detail) => {
    const { outcome } = await fetchFrom(
      sandboxed(NOW, (path) => (matches(path) ? { status, body: "no" } : undefined)),
    );
    await expect(outcome).rejects.toMatchObject({
      code,
      message: expect.stringContaining(detail),
    });
  });

  it.each([
    ["down", "upstream_unavailable"],
    ["storm", "upstream_unavailable"],
    ["truncated", "upstream_truncated"],
    ["drifted", "upstream_schema_drift"],
  ] as [Fault, string][])("fails with a code when the sandbox is %s", async (fault, code) => {
    const sandbox = await startSandbox({ clock: () => NOW });
    onTestFinished(() => sandbox.close());
    sandbox.break("noaa", fault);
    const access = { baseUrl: `${sandbox.url}/noaa/pub/data/cirs/climdiv/`, shownAs: "" };
    await expect(fetchDegreeDays(access, EVER, fetcher)).rejects.toMatchObject({ code });
  });
});

describe.skipIf(!hasRecordings("nclimdiv"))("recorded nClimDiv files", () => {
  // The body of a skipped suite runs too, to list its tests.
  if (!hasRecordings("nclimdiv")) return;
  const [heating, cooling] = (["hdd", "cdd"] as const).map((element) => {
    const path = `nclimdiv/climdiv-${element}cst-v1.0.0-20250905`;
    return { element, whole: gunzippedRecording(`${path}.gz`), trim: recording(`${path}.trim`) };
  });
  const files = [heating, cooling].filter((one) => one !== undefined);
  const byKey = (years: readonly AreaYear[]) =>
    new Map(years.map((one) => [`${one.area} ${one.year}`, one.months]));

  it.each(files)("reads all of the file of $element, cell by cell", ({ element, whole }) => {
    const years = parseDegreeDays(whole, element, new LeftOut());
    expect(new Set(years.map(({ area }) => area))).toEqual(new Set([...AREA_NAMES, "ak"]));
    expect(years).toHaveLength(AREA_NAMES.length * 131 + 101);
    // Another reading: words, not columns.
    const words = whole
      .trimEnd()
      .split("\n")
      .filter((line) => !/^12[1-4]/.test(line))
      .map((line) => [line.slice(6, 10), ...line.slice(10).trim().split(/\s+/)].map(Number));
    const read = years.map(({ year, months }) => [
      year,
      ...months.map((value) => (Number.isNaN(value) ? -9999 : value)),
    ]);
    expect(read).toEqual(words);
    const present = years.flatMap(({ months }) => months).filter((value) => !Number.isNaN(value));
    expect(present).toHaveLength(AREA_NAMES.length * (130 * 12 + 8));
  });

  it.each(files)("reads the same from the trimmed file of $element", ({ element, whole, trim }) => {
    const [all, some] = [
      byKey(parseDegreeDays(whole, element, new LeftOut())),
      parseDegreeDays(trim, element, new LeftOut()),
    ];
    expect(some).toHaveLength(11 * 11);
    for (const { area, year, months } of some) expect(months).toEqual(all.get(`${area} ${year}`));
  });

  it("has Census divisions in areas 101 to 109: each lies between its states, in every month", () => {
    const members = {
      new_england: "ct ma me nh ri vt",
      middle_atlantic: "nj ny pa",
      east_north_central: "il in mi oh wi",
      west_north_central: "ia ks mn mo nd ne sd",
      south_atlantic: "de fl ga md nc sc va wv",
      east_south_central: "al ky ms tn",
      west_south_central: "ar la ok tx",
      mountain: "az co id mt nm nv ut wy",
      pacific: "ca or wa",
    };
    for (const { element, whole } of files) {
      const all = byKey(parseDegreeDays(whole, element, new LeftOut()));
      const outside = Object.entries(members).flatMap(([division, states]) =>
        Array.from({ length: 130 * 12 }, (_, index) => {
          const [year, month] = [1895 + Math.floor(index / 12), index % 12];
          const at = (area: string) => all.get(`${area} ${year}`)?.[month] ?? NaN;
          const values = states.split(" ").map(at);
          const [least, most] = [Math.min(...values), Math.max(...values)];
          return at(division) >= least - 1 && at(division) <= most + 1 ? [] : [division];
        }).flat(),
      );
      expect(outside).toEqual([]);
    }
  });

  it("passes the gate whole", () => {
    const series = files.map(({ element, whole }) => ({
      library: "weather",
      symbol: element,
      rows: rowsOf(element, parseDegreeDays(whole, element, new LeftOut())),
    }));
    const window = { from: Date.UTC(1895, 0, 1), to: Date.UTC(2025, 8, 1) };
    const report = gateWeather(series, { partition: window, window, now: Date.UTC(2025, 8, 6) });
    expect(report.findings).toEqual([]);
    expect(report.accepted).toEqual(series);
  });

  it("finds the seven real revisions between two stamps, all in the last two calendar years", () => {
    const before = rowsOf("hdd", parseDegreeDays(heating?.trim ?? "", "hdd", new LeftOut()));
    const path = "nclimdiv/climdiv-hddcst-v1.0.0-20260604.national.trim";
    const after = rowsOf("hdd", parseDegreeDays(recording(path), "hdd", new LeftOut()));
    const known = new Map(
      before
        .filter(({ instrumentId }) => instrumentId === "weather.hdd.us")
        .map((row) => [row.datetime, row.values[0]]),
    );
    const revised = after
      .filter(({ datetime, values }) => known.has(datetime) && known.get(datetime) !== values[0])
      .map(({ datetime, values }) => [isoDay(datetime), known.get(datetime), values[0]]);
    expect(revised).toEqual(REVISED);
    expect(known.size).toBe(128);
  });
});

const REVISED = [
  ["2024-01-01", 846, 847],
  ["2024-02-01", 579, 580],
  ["2024-03-01", 493, 494],
  ["2024-10-01", 187, 188],
  ["2024-11-01", 433, 434],
  ["2025-01-01", 955, 954],
  ["2025-04-01", 283, 284],
];

function rowsOf(element: Element, years: readonly AreaYear[]): Row[] {
  return years.flatMap(({ area, year, months }) =>
    months.flatMap((value, month) =>
      Number.isNaN(value)
        ? []
        : [
            {
              datetime: Date.UTC(year, month, 1),
              instrumentId: `weather.${element}.${area}`,
              values: [value],
            },
          ],
    ),
  );
}

describe("the weather gate", () => {
  const october = Date.UTC(2026, 9, 1);
  const window = { from: Date.UTC(2026, 8, 1), to: Date.UTC(2026, 10, 1) };
  const context = { partition: { from: october, to: window.to }, window, now: NOW };
  const rows = AREA_NAMES.map((area) => ({
    datetime: october,
    instrumentId: `weather.cdd.${area}`,
    values: [12],
  }));
  const judged = (changed: Row[], symbol = "cdd") =>
    gateWeather([{ library: "weather", symbol, rows: changed }], context);
  const found = (changed: Row[], symbol?: string) =>
    judged(changed, symbol).findings.map(({ severity, rule }) => `${severity} ${rule}`);
  const first = (change: Partial<Row>) =>
    rows.map((row, n) => (n === 0 ? { ...row, ...change } : row));

  it("takes a whole month", () => {
    expect(judged(rows)).toEqual({
      accepted: [{ library: "weather", symbol: "cdd", rows }],
      findings: [],
    });
  });

  it.each([
    [first({ values: [-1] }), "error out_of_bounds"],
    [first({ values: [1_501] }), "error out_of_bounds"],
    [first({ values: [NaN] }), "error out_of_bounds"],
    [first({ datetime: october + DAY }), "error off_grid"],
    [first({ datetime: window.to }), "error outside_window"],
    [[...rows, ...rows.slice(0, 1)], "error duplicate_key"],
    [rows.slice(1), "warning areas_missing"],
    [[], "error no_rows"],
  ])("finds what is wrong: %#", (changed, finding) => {
    expect(found(changed)).toContain(finding);
    expect(judged(changed).accepted).toHaveLength(
      finding.startsWith("error") && changed.length > 0 ? 0 : 1,
    );
  });

  it("allows heating what it forbids cooling, up to 2,500", () => {
    expect(found(first({ values: [2_389] }), "hdd")).toEqual([]);
    expect(found(first({ values: [2_501] }), "hdd")).toEqual(["error out_of_bounds"]);
  });

  it("refuses a stamp older than the last", () => {
    const at = (day: number) => ({ publishedAt: day, sourceUrl: "x-v1.0.0-20261006" });
    const rules = (answer: number, last: number) =>
      degreeDays.publications?.judge(at(answer), at(last)).map(({ rule }) => rule);
    expect(rules(NOW - DAY, NOW)).toEqual(["older_than_last"]);
    expect([rules(NOW, NOW), rules(NOW + DAY, NOW)]).toEqual([[], []]);
  });

  it("tells of changes before the last two calendar years, unless the version changed", () => {
    const url = (version: string) => ({
      publishedAt: NOW,
      sourceUrl: `https://noaa.example/climdiv-hddcst-v${version}-20261106`,
    });
    const rules = (instant: number, last: string, now = NOW) =>
      degreeDays.publications
        ?.judgeChanges([instant], { answer: url("1.0.0"), last: url(last), now })
        .map(({ severity, rule }) => `${severity} ${rule}`);
    expect(rules(Date.UTC(2024, 11, 1), "1.0.0")).toEqual(["warning settled_months_changed"]);
    expect(rules(Date.UTC(2025, 0, 1), "1.0.0")).toEqual([]);
    expect(rules(Date.UTC(1950, 0, 1), "0.9.0")).toEqual([]);
    // In January the newest month is still the old year's.
    expect(rules(Date.UTC(2025, 0, 1), "1.0.0", Date.UTC(2027, 0, 20))).toEqual([]);
    expect(rules(Date.UTC(2025, 0, 1), "1.0.0", Date.UTC(2027, 1, 20))).toHaveLength(1);
  });
});

describe("the sandbox's weather", () => {
  const years = (now: number, element: Element) => {
    const ask = (path: string) =>
      String(answerNoaa(new URL(`http://x/noaa/pub/data/cirs/climdiv/${path}`), now).body);
    const { files } = newestFiles(ask(""));
    return parseDegreeDays(ask(files[element]), element, new LeftOut());
  };

  it("publishes a month on the 4th to 9th of the next, the second element later", () => {
    const stamps = Array.from({ length: 48 }, (_, index) => {
      const month = addMonths(Date.UTC(2023, 0, 1), index);
      const [first, second] = [appearsAt(month, "hddcst"), appearsAt(month, "cddcst")];
      expect(isoDay(first)).toBe(isoDay(second));
      expect(second - first).toBeLessThan(2.1 * HOUR);
      expect(second).toBeGreaterThan(first);
      expect(isoDay(addMonths(month, 1)).slice(0, 7)).toBe(isoDay(first).slice(0, 7));
      return Number(isoDay(first).slice(8));
    });
    expect([Math.min(...stamps), Math.max(...stamps)]).toEqual([4, 9]);
  });

  it("revises a few months of the last two calendar years, and never an older one", () => {
    let before = years(Date.UTC(2025, 6, 20), "hdd");
    let revised = 0;
    for (let index = 0; index < 20; index++) {
      const now = addMonths(Date.UTC(2025, 7, 1), index) + 19 * DAY;
      const after = years(now, "hdd");
      const known = new Map(before.map((one) => [`${one.area} ${one.year}`, one.months]));
      const newest = new Date(addMonths(now, -1)).getUTCFullYear();
      for (const { area, year, months } of after) {
        const old = known.get(`${area} ${year}`) ?? [];
        const moved = months.filter(
          (value, month) => !Number.isNaN(old[month] ?? NaN) && old[month] !== value,
        );
        if (moved.length > 0)
          expect([area, iso(now), year >= newest - 1]).toEqual([area, iso(now), true]);
        revised += moved.length;
      }
      before = after;
    }
    expect(revised).toBeGreaterThan(500);
  });

  it("has winters and summers of the right size", () => {
    const at = (element: Element, area: string, month: number) =>
      years(NOW, element).find((one) => one.area === area && one.year === 2025)?.months[month] ??
      NaN;
    expect(at("hdd", "nd", 0)).toBeGreaterThan(2 * at("hdd", "tx", 0));
    expect(at("cdd", "tx", 6)).toBeGreaterThan(400);
    expect(at("hdd", "tx", 6)).toBeLessThan(10);
    expect(at("hdd", "ak", 0)).toBeNaN();
  });
});
