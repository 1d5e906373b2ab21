// The timeline, the search over events and the catalog graph, as pages without a script.

import { sql } from "drizzle-orm";
import { parse } from "node-html-parser";
import { beforeAll, describe, expect, it } from "vitest";
import { followRun } from "../../edge/local/operator.ts";
import { pipelineOf } from "../../edge/markets/ingest/pipelines.ts";
import { iso, isoDay, systemClock } from "../../shared/time.ts";
import { type ConsoleWorld, createConsoleWorld, impossible } from "../support/console-world.ts";
import { beginTransaction } from "../support/transactions.ts";
import { DAY, HOUR } from "../support/world.ts";

let world: ConsoleWorld;
let cookie: string;
let good: string;
let refused: string;
beforeAll(async () => {
  world = await createConsoleWorld();
  const login = await fetch(`${world.urls.console}/login`, {
    method: "POST",
    body: new URLSearchParams({ token: world.operatorToken }),
    redirect: "manual",
  });
  cookie = login.headers.get("Set-Cookie")?.split(";")[0] ?? "";
  const launch = async (partition?: string) =>
    followRun(world.operator, await world.operator.launch("grid_region", partition));
  world.spoil(undefined);
  good = (await launch()).run_id;
  world.spoil(impossible);
  refused = (await launch(world.day(3))).run_id;
  world.spoil(undefined);
});

async function open(path: string) {
  const response = await fetch(world.urls.console + path, {
    headers: { Cookie: cookie, Accept: "text/html" },
  });
  return { status: response.status, page: parse(await response.text()) };
}

describe("the timeline", () => {
  const bars = (page: ReturnType<typeof parse>) =>
    page.querySelectorAll(".lane a[aria-label]").map((one) => ({
      href: one.getAttribute("href"),
      label: one.getAttribute("aria-label") ?? "",
      state: one.querySelector("rect")?.getAttribute("class"),
    }));

  it("has a bar for each run, which leads to it and says what it shows", async () => {
    const { status, page } = await open("/timeline");
    expect(status).toBe(200);
    const found = bars(page);
    expect(found).toHaveLength(2);
    expect(found.find(({ href }) => href === `/runs/${good}`)?.state).toBe("bar succeeded");
    const bad = found.find(({ href }) => href === `/runs/${refused}`);
    expect(bad?.state).toBe("bar failed");
    expect(bad?.label).toMatch(new RegExp(`^${world.day(3)} failed, began [\\d:]{8} UTC, `));
    const lane = page.querySelectorAll(".lane").find((one) => one.text.includes("1 ✕"));
    expect(lane?.text).toContain("1 ✓");
    expect(page.querySelectorAll("#listed tbody tr")).toHaveLength(2);
    expect(page.querySelectorAll("[style]")).toEqual([]);
  });

  it("puts runs at their time, those that overlap below one another", async () => {
    const day = "2026-03-02";
    const at = (hour: number) => iso(Date.parse(day) + hour * HOUR);
    const insert = (job: string, from: number, to: number) =>
      world.database.execute(sql`
        INSERT INTO run (id, job, partition, trigger, reconstructed, state, created_at,
          available_at, attempts_max, started_at, finished_at)
        VALUES (${crypto.randomUUID()}::uuid, ${job}, ${day}::date, 'schedule', false, 'succeeded',
          ${at(from)}::timestamptz, ${at(from)}::timestamptz, 5, ${at(from)}::timestamptz,
          ${at(to)}::timestamptz)`);
    await insert("grid_region", 6, 12);
    await insert("grid_region", 9, 10);
    await insert("grid_region", 18, 30);
    await insert("gone_job", -3, 1);
    const { page } = await open(`/timeline?day=${day}&hours=24`);
    const box = (title: string) =>
      page
        .querySelectorAll("svg")
        .find((one) => one.querySelector("title")?.text === `Runs of ${title}`)
        ?.querySelectorAll("rect")
        .map((one) => ["x", "y", "width"].map((name) => Number(one.getAttribute(name))));
    expect(box(pipelineOf("grid_region")?.title ?? "")).toEqual([
      [250, 2, 250],
      [375, 20, 41.7],
      [750, 2, 250],
    ]);
    expect(box("gone_job")).toEqual([[0, 2, 41.7]]);
    const next = page.querySelector("a[rel=next]")?.getAttribute("href");
    expect(next).toBe("/timeline?day=2026-03-03&hour=0&hours=24");
    // The run that ends the next morning is there, too.
    expect(bars((await open(next ?? "")).page)).toHaveLength(1);
    expect(bars((await open(`/timeline?day=${day}&hour=9&hours=1`)).page)).toHaveLength(2);
  });

  it("shows so many runs and says that there are more", async () => {
    const day = "2026-04-01";
    await world.database.execute(sql`
      INSERT INTO run (id, job, partition, trigger, reconstructed, state, created_at, available_at,
        attempts_max, started_at, finished_at)
      SELECT gen_random_uuid(), 'grid_region', ${day}::date, 'schedule', false, 'succeeded', t, t, 5,
        t, t + interval '20 seconds'
        FROM generate_series(${day}::timestamptz, ${day}::timestamptz + interval '1001 minutes',
          '1 minute') t`);
    const { page } = await open(`/timeline?day=${day}`);
    expect(bars(page)).toHaveLength(1_000);
    expect(page.text).toContain("the newest 1,000 are shown");
  });

  it("refuses what is no time", async () => {
    for (const query of ["day=2026-02-31", "hour=24", "hours=7"]) {
      expect([query, (await open(`/timeline?${query}`)).status]).toEqual([query, 422]);
    }
  });
});

describe("the search over events", () => {
  const entries = (page: ReturnType<typeof parse>) =>
    page.querySelectorAll(".events > li").map((one) => ({
      href: one.querySelector(".what > a")?.getAttribute("href"),
      marks: one.querySelectorAll("mark").map(({ text }) => text),
    }));

  it("finds entries by a part of what they say, marks it, and leads to their runs", async () => {
    const { page } = await open("/events?q=GATE_REJECTED");
    const found = entries(page);
    expect(found.length).toBeGreaterThan(0);
    expect(found.every(({ href }) => href === `/runs/${refused}`)).toBe(true);
    expect(new Set(found.flatMap(({ marks }) => marks))).toEqual(new Set(["gate_rejected"]));
    expect(entries((await open("/events?q=no+such+text")).page)).toEqual([]);
    expect(entries((await open("/events?q=%25")).page)).toEqual([]);
    expect(entries((await open("/events?q=gate_rejected&level=info")).page)).toEqual([]);
    expect(entries((await open("/events?q=started&job=degree_days")).page)).toEqual([]);
    expect(
      entries((await open("/events?job=grid_region&level=error")).page).length,
    ).toBeGreaterThan(0);
  });

  it("shows what was written as text, and nothing of it as markup", async () => {
    await world.database.execute(sql`
      INSERT INTO run_event (run_id, attempt, at, level, event, detail)
      VALUES (${good}::uuid, 1, ${iso(systemClock())}::timestamptz, 'info', 'odd.(name)',
        ${JSON.stringify({ reason: "<b>bold</b> a.(b" })}::jsonb)`);
    const { page } = await open(`/events?q=${encodeURIComponent(".(")}`);
    expect(page.querySelectorAll(".events b")).toEqual([]);
    expect(entries(page)[0]?.marks).toEqual([".(", ".("]);
    expect(page.querySelector(".events .detail")?.text).toContain("<b>bold</b> a.(b");
  });

  it("goes back page by page, each entry once", async () => {
    await world.database.execute(sql`
      INSERT INTO run_event (run_id, attempt, at, level, event, detail)
      SELECT ${good}::uuid, 1, '2026-03-02T10:00:00Z'::timestamptz + n * interval '0 s', 'info',
        'counted', jsonb_build_object('n', n) FROM generate_series(1, 250) n`);
    const seen: string[] = [];
    let path: string | undefined = "/events?q=counted&from=2026-03-01&to=2026-03-05";
    for (; path; ) {
      const { page } = await open(path);
      seen.push(...page.querySelectorAll(".events .detail").map(({ text }) => text.trim()));
      path = page.querySelector("a[rel=next]")?.getAttribute("href")?.replaceAll("&amp;", "&");
    }
    expect([seen.length, new Set(seen).size]).toEqual([250, 250]);
  });

  it("gives up after some seconds and says what to do", async () => {
    // A lock stands for a search through too much.
    const other = await beginTransaction(world.database);
    await other.query("LOCK TABLE run_event IN ACCESS EXCLUSIVE MODE");
    const { status, page } = await open("/events?q=x");
    expect(status).toBe(422);
    expect(page.text).toContain("the search took too long");
    await other.commit();
  });

  it("takes no stretch that is too long or ends before it begins", async () => {
    const today = isoDay(systemClock());
    for (const query of [
      "from=2026-01-01&to=2026-03-01",
      "from=2026-03-02&to=2026-03-01",
      "from=x",
      `to=${today}&from=${isoDay(systemClock() - 31 * DAY)}`,
    ]) {
      expect([query, (await open(`/events?${query}`)).status]).toEqual([query, 422]);
    }
    expect((await open("/events?from=2026-01-01&to=")).status).toBe(200);
  });
});

describe("the catalog graph", () => {
  it("lists entities by kind and shows what an instrument is connected to", async () => {
    const { page } = await open("/graph?label=BalancingAuthority&q=erc");
    const keys = page.querySelectorAll("tbody th").map(({ text }) => text.trim());
    expect(keys).toEqual(["erco"]);
    const { page: own } = await open("/graph?instrument=power.demand.erco");
    const relations = own.querySelectorAll("tbody tr code").map(({ text }) => text);
    expect(relations).toContain("LOCATED_AT");
    expect(own.querySelector('a[href*="symbol=erco"]')).not.toBeNull();
    expect(own.querySelectorAll("svg.star circle").length).toBeGreaterThan(1);
    const { page: unknown } = await open("/graph?instrument=power.demand.nowhere");
    expect(unknown.text).toContain("does not know it");
  });

  it("refuses a depth that the read API does not take", async () => {
    expect((await open("/graph?instrument=x&depth=9")).status).toBe(422);
  });
});
