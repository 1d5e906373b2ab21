// The ERCOT sources over HTTP: login, rows and corrections, which upstream is chosen, and every way
// in which they fail. No secret ever gets out.

import { describe, expect, it } from "vitest";
import type { SandboxAnswer, SandboxRequest } from "../../edge/local/sandbox/answers.ts";
import { answerErcot } from "../../edge/local/sandbox/ercot.ts";
import {
  correctionOf,
  finalLoad,
  realtimePostedAt,
} from "../../edge/local/sandbox/ercot-market.ts";
import { requestIntervalsMs } from "../../edge/markets/ingest/providers.ts";
import { SETTLEMENT_SYMBOLS } from "../../edge/markets/ingest/settlement-points.ts";
import { fetchRealtimePrices } from "../../edge/markets/ingest/sources/ercot.ts";
import { dayOfLabel, QUARTER } from "../../edge/markets/ingest/sources/ercot-hours.ts";
import { operatingDay } from "../../edge/markets/store/operating-day.ts";
import { DAY, HOUR, iso, MINUTE } from "../../shared/time.ts";
import { type Ercot, failureOf, startErcot, valuesOf } from "../support/ercot.ts";
import { providerConfigOf, upstreamsOf } from "../support/upstreams.ts";

const NOON = "2026-11-21T19:25:00Z";
const JOBS = ["realtime_prices", "day_ahead_prices", "system_load"] as const;
const isLogin = ({ url }: SandboxRequest) => url.pathname.endsWith("/token");
const isRows = ({ url }: SandboxRequest) => url.pathname.includes("/spp_node_zone_hub");
const json = (body: unknown, status = 200): SandboxAnswer => ({ status, body });
const logins = ({ requests }: Ercot) => requests.filter(isLogin).length;
const paths = ({ requests }: Ercot) => requests.map(({ url }) => url.pathname);

/** What the sandbox would answer, changed. */
const changed = (request: SandboxRequest, now: string, change: (body: never) => unknown) =>
  // Each change knows the shape of the answer that it changes.
  json(change(structuredClone(answerErcot(request, Date.parse(now)).body) as never));

describe("logging in", () => {
  it("posts the form, sends the token and the key, and shows neither", async () => {
    const ercot = await startErcot(NOON);
    const { fetched } = await ercot.run("realtime_prices");
    const [login, rows] = ercot.requests;
    expect(login?.method).toBe("POST");
    expect(Object.fromEntries(new URLSearchParams(login?.body))).toEqual({
      grant_type: "password",
      username: "sandbox",
      password: "sandbox",
      response_type: "id_token",
      client_id: "fec253ea-0d06-4272-a5e6-b478baeecd70",
      scope: "openid fec253ea-0d06-4272-a5e6-b478baeecd70 offline_access",
    });
    expect(rows?.headers.authorization).toBe(`Bearer sandbox-token-${ercot.now}`);
    expect(rows?.headers["ocp-apim-subscription-key"]).toBe("sandbox");
    expect(JSON.stringify(fetched)).not.toContain("sandbox-token");
    expect(fetched.sourceUrl).toMatch(
      /^sandbox:\/\/ercot\/api\/public-reports\/np6-905-cd\/spp_node_zone_hub\?deliveryDateFrom=/,
    );
  });

  it("happens once in 59 minutes, however many runs", async () => {
    const ercot = await startErcot(NOON);
    await ercot.run("realtime_prices");
    ercot.now += 58 * MINUTE;
    await Promise.all(JOBS.map((job) => ercot.run(job)));
    expect(logins(ercot)).toBe(1);
    ercot.now += 2 * MINUTE;
    await Promise.all(JOBS.map((job) => ercot.run(job)));
    expect(logins(ercot)).toBe(2);
  });

  it("happens again, once, when the token is refused before its time", async () => {
    let refusals = 1;
    const ercot = await startErcot(NOON, (request) =>
      isRows(request) && refusals-- > 0
        ? json({ message: "Token hunter2 expired." }, 401)
        : undefined,
    );
    await ercot.run("realtime_prices");
    expect(logins(ercot)).toBe(2);
  });

  it("fails when a fresh token is refused, too", async () => {
    const ercot = await startErcot(NOON, (request) =>
      isLogin(request) ? undefined : json({ message: "Access denied for key hunter2." }, 401),
    );
    const failure = await failureOf(ercot);
    expect([failure.code, failure.message]).toEqual([
      "upstream_unauthorized",
      expect.stringContaining("ERCOT_SUBSCRIPTION_KEY"),
    ]);
    expect(logins(ercot)).toBe(2);
  });

  it("fails by the keys' names when user or password is wrong, and tries again next time", async () => {
    let isDown = true;
    const error_description = "AADB2C90225: hunter2 is wrong.";
    const ercot = await startErcot(NOON, (request) =>
      isLogin(request) && isDown
        ? json({ error: "access_denied", error_description }, 400)
        : undefined,
    );
    const failure = await failureOf(ercot);
    expect([failure.code, failure.message]).toEqual([
      "upstream_unauthorized",
      "ERCOT refused ERCOT_USERNAME or ERCOT_PASSWORD (HTTP 400, access_denied)",
    ]);
    isDown = false;
    expect((await ercot.run("realtime_prices")).report.accepted).toHaveLength(15);
  });

  it("fails by name when the answer has no token", async () => {
    const ercot = await startErcot(NOON, (request) =>
      isLogin(request) ? json({ access_token: "hunter2" }) : undefined,
    );
    const failure = await failureOf(ercot);
    expect([failure.code, failure.message]).toEqual([
      "upstream_schema_drift",
      expect.stringContaining("id_token"),
    ]);
  });
});

describe("choosing the upstream", () => {
  const all = {
    ERCOT_USERNAME: "hunter2",
    ERCOT_PASSWORD: "hunter2",
    ERCOT_SUBSCRIPTION_KEY: "hunter2",
  };

  it("takes the real API with all three credentials, even beside a sandbox", () => {
    const { api, site, sandbox } = upstreamsOf({
      ...all,
      SANDBOX_URL: "http://localhost:1",
    }).ercot();
    expect(sandbox).toBe(false);
    expect(api?.baseUrl).toBe("https://api.ercot.com/api/public-reports/");
    expect(new URL(api?.tokenUrl ?? "").host).toBe("ercotb2c.b2clogin.com");
    expect(site.baseUrl).toBe("https://www.ercot.com/");
    expect(JSON.stringify(api)).not.toContain("hunter2");
  });

  it.each(Object.keys(all))("names %s when it alone is missing", (name) => {
    const environment: Record<string, string> = { ...all, SANDBOX_URL: "http://localhost:1" };
    delete environment[name];
    expect(upstreamsOf(environment).ercot).toThrow(
      expect.objectContaining({
        code: "credential_missing",
        message: expect.stringMatching(new RegExp(`not set: ${name};`)),
      }),
    );
  });

  it("asks each real host no faster than it allows", () => {
    const { api, site } = upstreamsOf(all).ercot();
    const intervals = [api?.baseUrl, api?.tokenUrl, site.baseUrl].map((url) =>
      requestIntervalsMs(providerConfigOf(all)).get(new URL(url ?? "").host),
    );
    expect(intervals).toEqual([2_000, 2_000, 1_000]);
  });

  it("takes the sandbox without any, and the public documents without a sandbox", () => {
    expect(upstreamsOf({ SANDBOX_URL: "http://localhost:1" }).ercot()).toMatchObject({
      sandbox: true,
      api: { baseUrl: "http://localhost:1/ercot/api/public-reports/" },
    });
    expect(upstreamsOf({ ERCOT_PUBLIC_LISTS: "true" }).ercot()).toMatchObject({
      sandbox: false,
      api: null,
    });
  });
});

describe("the sandbox, read as ERCOT is", () => {
  it.each([
    ["2026-03-08", 92, 23],
    ["2026-11-01", 100, 25],
    ["2025-03-09", 92, 23],
    ["2025-11-02", 100, 25],
    ["2024-02-29", 96, 24],
    ["2023-01-02", 96, 24],
  ])("fills %s with %i quarters and %i hours, from the archive", async (day, quarters, hours) => {
    const ercot = await startErcot(NOON);
    const { from, to } = dayOfLabel(day);
    for (const [job, count, step] of [
      ["realtime_prices", quarters, QUARTER],
      ["day_ahead_prices", hours, HOUR],
      ["system_load", hours, HOUR],
    ] as const) {
      const { fetched, report } = await ercot.run(job, day);
      expect(report.findings.filter(({ severity }) => severity === "error")).toEqual([]);
      expect(report.accepted).toHaveLength(job === "system_load" ? 1 : 15);
      for (const { rows } of report.accepted) {
        const expected = Array.from({ length: count }, (_, index) => from + index * step);
        expect(rows.map(({ datetime }) => datetime)).toEqual(expected);
      }
      expect(fetched.sourceUrl).toContain("/archive/");
      const published = fetched.publishedAt ?? 0;
      if (job === "day_ahead_prices") {
        expect(published).toBeGreaterThan(from - 12 * HOUR);
        expect(published).toBeLessThan(from - 6 * HOUR);
      } else expect(published).toBeGreaterThan(to);
    }
    expect(paths(ercot).some((path) => path.endsWith("/np6-905-cd/spp_node_zone_hub"))).toBe(false);
  });

  it("gives the current day as far as it is posted, with the days before for their revisions", async () => {
    const ercot = await startErcot(NOON);
    const { from } = dayOfLabel("2026-11-21");
    const prices = await ercot.run("realtime_prices");
    expect(new Set(prices.report.accepted.map(({ symbol }) => symbol))).toEqual(SETTLEMENT_SYMBOLS);
    expect(prices.report.findings).toEqual([]);
    const newest = [...valuesOf(prices, "hb_north").keys()].at(-1) ?? "";
    expect(realtimePostedAt(Date.parse(newest))).toBeLessThanOrEqual(ercot.now);
    expect(ercot.now - Date.parse(newest)).toBeLessThan(30 * MINUTE);
    const load = await ercot.run("system_load");
    const hours = [...valuesOf(load, "ercot").keys()];
    expect(hours[0]).toBe(iso(from - DAY));
    expect(hours.at(-1)).toBe("2026-11-21T18:00:00.000Z");
  });

  it("restates a page's load when the settled report comes, at ten to six", async () => {
    const ercot = await startErcot("2026-11-21T10:00:00Z");
    const day = await ercot.run("system_load", "2026-11-20");
    expect(day.fetched.sourceUrl).toContain("20261120_actual_loads_of_weather_zones.html");
    ercot.now = Date.parse("2026-11-21T12:00:00Z");
    const settled = await ercot.run("system_load", "2026-11-20");
    expect(settled.fetched.sourceUrl).toContain("np6-345-cd");
    const [before, after] = [valuesOf(day, "ercot"), valuesOf(settled, "ercot")];
    expect([...before.keys()]).toEqual([...after.keys()]);
    expect([...before.values()]).not.toEqual([...after.values()]);
    for (const [instant, load] of after) {
      expect(load).toBe(finalLoad(Date.parse(instant)).total);
    }
  });

  it("gives nothing of a day ahead until it is posted, and is silent about a day that just began", async () => {
    const ercot = await startErcot("2026-11-21T18:30:00Z");
    const { report, window } = await ercot.run("day_ahead_prices");
    const { from } = dayOfLabel("2026-11-22");
    const rows = report.accepted.flatMap((series) => series.rows);
    expect(rows.length).toBe(15 * ((from - window.from) / HOUR));
    ercot.now = Date.parse("2026-11-21T06:02:00Z");
    expect((await ercot.run("system_load")).report.findings).toEqual([]);
  });

  it("repairs a day that has settled from the archive, with the days it looks back on", async () => {
    const ercot = await startErcot("2026-11-06T18:00:00Z");
    const { from, to } = dayOfLabel("2026-11-02");
    const window = { from: from - 4 * DAY, to };
    const { rows, sourceUrl } = await fetchRealtimePrices(
      ercot.upstreams.ercot(),
      { fetcher: ercot.upstreams.fetcher, now: ercot.now },
      window,
    );
    expect(sourceUrl).toContain("/archive/");
    expect(rows).toHaveLength((15 * (to - window.from)) / QUARTER);
    expect(ercot.requests).toHaveLength(4);
  });

  it("keeps to the same answer for the same question", async () => {
    const ercot = await startErcot(NOON);
    const [first, second] = [await ercot.run(JOBS[0]), await ercot.run(JOBS[0])];
    expect(first.fetched).toEqual(second.fetched);
  });
});

describe("price corrections", () => {
  const days = Array.from(
    { length: 90 },
    (_, index) => dayOfLabel("2026-08-01").from + index * DAY,
  );
  /** The first correction that some hour of a day gets. */
  const correction = (from: number) =>
    Array.from({ length: 23 }, (_, hour) =>
      correctionOf("day_ahead", operatingDay(from), {
        start: from + hour * HOUR,
        price: 30,
        now: Infinity,
      }),
    ).find((one) => one !== null);

  it("replace what was first posted, within two days", async () => {
    const from = days.find((day) => correction(day)) ?? 0;
    const announcedAt = correction(from)?.at ?? 0;
    const { key, to } = operatingDay(from);
    expect(announcedAt - to).toBeLessThan(2 * DAY);
    const ercot = await startErcot(NOON);
    const pricesAt = async (now: number) => {
      ercot.now = now;
      const run = await ercot.run("day_ahead_prices", key);
      return { run, prices: [...valuesOf(run, "hb_west").values()] };
    };
    const early = await pricesAt(announcedAt - 1);
    const rows = await pricesAt(announcedAt + 1);
    const archived = await pricesAt(announcedAt + 5 * DAY);
    const differing = early.prices.filter((price, index) => price !== rows.prices[index]);
    expect(differing).toHaveLength(3);
    expect(archived.prices).toEqual(rows.prices);
    expect(archived.run.fetched.publishedAt).toBe(announcedAt);
  });

  it("that cannot be read are told of, and the prices taken as they were posted", async () => {
    const ercot = await startErcot(NOON, (request) =>
      request.url.pathname.includes("np4-197-m")
        ? changed(request, NOON, (body: { fields: { name: string }[] }) => {
            body.fields[6] = { name: "newPrice" };
            return body;
          })
        : undefined,
    );
    const { fetched, report } = await ercot.run("realtime_prices");
    expect(report.accepted).toHaveLength(15);
    expect(fetched.findings).toEqual([
      expect.objectContaining({
        severity: "warning",
        rule: "corrections_unread",
        where: expect.stringMatching(/missing `SPPCorrected`; new `newPrice`/),
      }),
    ]);
  });
});

describe("rows", () => {
  type Page = {
    _meta: { totalRecords: number; totalPages: number };
    fields: { name: string }[];
    data: unknown[][];
  };
  /** Pages of the sandbox, changed; of at most so many rows. */
  const withRows = (change: (page: Page, request: SandboxRequest) => void, size = 100_000) =>
    startErcot(NOON, (request) => {
      if (!isRows(request)) return undefined;
      request.url.searchParams.set("size", String(size));
      return changed(request, NOON, (page: Page) => {
        change(page, request);
        return page;
      });
    });

  it("come on several pages, in whatever order their fields are named", async () => {
    const whole = await (await startErcot(NOON)).run("realtime_prices");
    const ercot = await withRows((page) => {
      page.fields.reverse();
      page.data = page.data.map((row) => row.toReversed());
    }, 300);
    expect((await ercot.run("realtime_prices")).fetched.series).toEqual(whole.fetched.series);
    const pages = ercot.requests.filter(isRows).map(({ url }) => url.searchParams.get("page"));
    expect(pages.slice(0, 9)).toEqual([..."12345678", "1"]);
  });

  it("are read again when they change between two pages, and given up after three readings", async () => {
    let readings = 0;
    let firstPage: unknown[][] = [];
    const growing = (until: number) =>
      withRows((page, { url }) => {
        if (url.searchParams.get("settlementPointType") !== "HU") return;
        if (url.searchParams.get("page") === "1") {
          readings++;
          firstPage = page.data;
        } else if (readings === 1) page._meta.totalRecords++;
        else if (readings < until) page.data = firstPage.slice(0, page.data.length);
      }, 300);
    expect((await (await growing(3)).run("realtime_prices")).report.accepted).toHaveLength(15);
    expect(readings).toBe(3);
    readings = 0;
    const failure = await failureOf(await growing(Infinity));
    expect([failure.code, failure.message]).toEqual([
      "upstream_truncated",
      expect.stringContaining("changed each time"),
    ]);
  });

  const field =
    (index: number, ...names: string[]) =>
    (page: Page) =>
      void page.fields.splice(index, 1, ...names.map((name) => ({ name })));
  const cell = (index: number, value: unknown) => (page: Page) =>
    void page.data.splice(0, 1, page.data[0]?.with(index, value) ?? []);

  it.each([
    [field(5, "price"), /missing `settlementPointPrice`; new `price`/],
    [field(7, "congestion"), /new `congestion`/],
    [field(6), /missing `DSTFlag`/],
  ])("of other columns are refused by name: %#", async (change, named) => {
    const failure = await failureOf(await withRows(change));
    expect([failure.code, failure.message]).toEqual([
      "upstream_schema_drift",
      expect.stringMatching(named),
    ]);
  });

  it.each([
    [(page: Page) => void page.data.splice(0, 1, ["2026-11-21", 1, 1]), /3 cells for 7 fields/],
    [cell(5, null), /`settlementPointPrice` is null in the row of 2026-11-\d+ 1 1 HB_/],
    [cell(5, "1e3"), /`settlementPointPrice` is "1e3"/],
    [cell(5, "0x10"), /`settlementPointPrice` is "0x10"/],
    [cell(5, "n/a"), /`settlementPointPrice` is "n\/a"/],
    [cell(6, 1), /`DSTFlag` is 1/],
    [cell(1, 25), /hour ending 25/],
    [cell(2, 5), /interval 5/],
    [cell(6, true), /hour ending \d+, repeated/],
  ])("that cannot be read are left out by name: %#", async (change, named) => {
    const { fetched, report } = await (await withRows(change)).run("realtime_prices");
    // One a type of points: each is asked for by itself.
    expect(fetched.leftOut).toEqual([
      expect.objectContaining({
        severity: "warning",
        rule: "unreadable_rows",
        where: expect.stringMatching(named),
      }),
    ]);
    expect(fetched.isPartial).toBe(true);
    expect(report.accepted).toHaveLength(15);
  });

  it("that are alike are one, and of two that are not none is taken", async () => {
    const whole = await (await startErcot(NOON)).run("realtime_prices");
    const twice = await withRows((page) => {
      page.data.push(page.data[0] ?? []);
      page._meta.totalRecords++;
    });
    const { fetched } = await twice.run("realtime_prices");
    expect(fetched.series).toEqual(whole.fetched.series);
    expect(fetched.leftOut).toEqual([]);
    const torn = await withRows((page) => {
      page.data.push((page.data[0] ?? []).with(5, 123));
      page._meta.totalRecords++;
    });
    const left = (await torn.run("realtime_prices")).fetched;
    expect(left.leftOut).toMatchObject([{ rule: "contradicting_rows", count: 4 }]);
  });

  it("that are fewer than announced are no answer", async () => {
    const failure = await failureOf(await withRows((page) => void page.data.pop()));
    expect([failure.code, failure.message]).toEqual([
      "upstream_truncated",
      expect.stringMatching(/announced \d+ rows and sent \d+/),
    ]);
  });

  it("keep text in cells trimmed", async () => {
    const ercot = await withRows((page) => {
      page.data = page.data.map((row) => row.with(3, ` ${row[3]} `));
    });
    expect((await ercot.run("realtime_prices")).report.accepted).toHaveLength(15);
  });

  it.each([
    [400, "upstream_rejected"],
    [403, "upstream_unauthorized"],
    [404, "upstream_rejected"],
  ])("answered with HTTP %i fail as %s", async (status, code) => {
    const ercot = await startErcot(NOON, (request) =>
      isRows(request) ? json({ status: "error", message: "hunter2" }, status) : undefined,
    );
    expect((await failureOf(ercot)).code).toBe(code);
  });

  it("are asked for again after 429 and 5xx, as long as Retry-After asks", async () => {
    let refusals = 3;
    const ercot = await startErcot(NOON, (request) => {
      if (!isRows(request) || refusals-- <= 0) return undefined;
      if (refusals > 1) return { status: 429, body: "", headers: { "Retry-After": "7" } };
      return { status: 503, body: "" };
    });
    await ercot.run("realtime_prices");
    expect(ercot.pauses).toEqual([7_000, 2_000, 4_000]);
  });

  it.each([
    ["down", "upstream_unavailable"],
    ["storm", "upstream_unavailable"],
    ["truncated", "upstream_truncated"],
    ["refused", "upstream_unauthorized"],
  ] as const)("of a provider that is %s fail as %s, whatever the job", async (fault, code) => {
    const ercot = await startErcot(NOON);
    ercot.sandbox.break("ercot", fault);
    for (const job of JOBS) expect((await failureOf(ercot, job)).code).toBe(code);
    ercot.sandbox.break("ercot", null);
    for (const job of JOBS) expect((await ercot.run(job)).report.findings).toEqual([]);
  });

  it.each([
    ["realtime_prices", /`settlementPointPrice`/],
    ["day_ahead_prices", /`settlementPointPrice`/],
    ["system_load", /`total`/],
  ])("of a provider that renamed a field fail %s by its name", async (job, named) => {
    const ercot = await startErcot(NOON);
    ercot.sandbox.break("ercot", "drifted");
    const failure = await failureOf(ercot, job);
    expect([failure.code, failure.message]).toEqual([
      "upstream_schema_drift",
      expect.stringMatching(named),
    ]);
  });
});
