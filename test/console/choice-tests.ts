// What an operator chooses in a real browser: to accept a change that was refused, the clock that
// pages show, a month of releases, the instruments on a chart, a day, filters on a phone.
// `pages.long.test.ts` runs it over its world.

import { describe, expect, it } from "vitest";
import { followRun } from "../../edge/local/operator.ts";
import { systemClock } from "../../shared/time.ts";
import { hasChromium, type Window, type WindowOptions } from "../support/browser.ts";
import type { ConsoleWorld } from "../support/console-world.ts";
import { distorted, isErcotDemand } from "../support/provider-faults.ts";

interface Pages {
  world: () => ConsoleWorld;
  login: (options?: WindowOptions) => Promise<Window>;
  /** The address of a path. */
  at: (path: string) => string;
}

/** Registers the tests. */
export function choiceTests({ world, login, at }: Pages) {
  describe.skipIf(!hasChromium)("a change that was refused", () => {
    const withdrawn = distorted(
      (row) => (isErcotDemand(row) ? { ...row, value: null } : row),
      systemClock,
    );

    it("is told of on the overview, shown row by row, and accepted once", async () => {
      const { operator } = world();
      await followRun(operator, await operator.launch("grid_region"));
      world().spoil(withdrawn);
      const refused = await followRun(operator, await operator.launch("grid_region"));
      expect(refused.state).toBe("partial");
      const { page, complaints } = await login();
      await page.goto(at(`/runs/${refused.run_id}`));
      expect(await page.locator(".card .state").first().innerText()).toContain("partial");
      await page.goto(at("/overview"));
      await page.locator(".needs a").filter({ hasText: "was refused" }).click();
      await page.getByRole("link", { name: /^erco would lose/ }).click();
      await page.locator("[data-chart] canvas").waitFor();
      expect(await page.locator("#rows ~ table tbody tr").count()).toBeGreaterThan(100);
      expect(await page.locator("main").innerText()).toContain("null");
      await page.getByRole("button", { name: "Accept, and run it" }).click();
      await page.waitForURL(/\/runs\/[\w-]{36}$/);
      expect(await page.getByRole("status").first().innerText()).toContain("Accepted for erco");
      const ended = await followRun(operator, page.url().split("/").at(-1) ?? "");
      expect(ended.state).toBe("succeeded");
      const rows = await fetch(
        `${world().urls.markets}/series?library=power.demand&symbol=erco&start=${world().day(2)}`,
      );
      const values = ((await rows.json()) as { value: number | null }[]).map(({ value }) => value);
      expect(new Set(values)).toEqual(new Set([null]));
      await page.goto(at(`/runs/${refused.run_id}`));
      expect(await page.locator(".journal").innerText()).toContain("retraction_accepted");
      world().spoil(undefined);
      await followRun(operator, await operator.launch("grid_region"));
      expect(complaints).toEqual([]);
    });

    it("that there is none of is said to be none, in words", async () => {
      const { page } = await login();
      for (const path of ["/runs/not-a-run", "/refusals/1", "/backfills/none"]) {
        const response = await page.goto(at(path));
        expect([path, response?.status()]).toEqual([path, 404]);
        expect(await page.locator("main").innerText()).toMatch(/there is no .*an id looks like/is);
      }
    });
  });

  describe.skipIf(!hasChromium)("the clock", () => {
    it("is UTC's, the market's or the reader's own, also on the next page", async () => {
      const { page, complaints } = await login({ timezone: "Europe/Berlin" });
      const first = () => page.locator(".heartbeat time").innerText();
      expect(await first()).toMatch(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$/);
      const choose = async (text: RegExp) => {
        const option = page.locator("select[name=clock] option").filter({ hasText: text });
        const value = (await option.getAttribute("value")) ?? "";
        await page.locator("select[name=clock]").selectOption(value);
        await page.getByRole("button", { name: "Set" }).click();
        await page.waitForURL(at("/overview"));
      };
      await choose(/^mine \(Europe\/Berlin\)$/);
      expect(await first()).toMatch(/(GMT\+[12]|CES?T)\s+(\d{4}-\d\d-\d\d )?\d\d:\d\d UTC$/);
      await page.goto(at("/schedules"));
      const tick = page.locator("tbody time").first();
      expect(await tick.innerText()).toMatch(/GMT\+[12]|CES?T/);
      await page.goto(at("/overview"));
      await choose(/^the market$/);
      await page.goto(at("/schedules"));
      expect(await tick.innerText()).toMatch(/ E[SD]T\s+(\d{4}-\d\d-\d\d )?\d\d:\d\d UTC$/);
      expect(complaints).toEqual([]);
    });

    it("is refused where it is none, and a cookie that names none is UTC's", async () => {
      const { page, context } = await login();
      await page.locator("select[name=clock]").evaluate((select) => {
        const option = select.ownerDocument.createElement("option");
        option.value = "Mars/Olympus";
        select.append(option);
        // The page's own element, which this test's types do not know.
        (select as unknown as { value: string }).value = "Mars/Olympus";
      });
      await page.getByRole("button", { name: "Set" }).click();
      expect(await page.locator("main").innerText()).toContain("is no time zone");
      await context.addCookies([{ name: "vantage_clock", value: "Mars/Olympus", url: at("/") }]);
      await page.goto(at("/overview"));
      expect(await page.locator(".heartbeat time").innerText()).toMatch(/ UTC$/);
    });
  });

  describe.skipIf(!hasChromium)("the release calendar", () => {
    it("shows a month of releases, moved for holidays, and what is still to come", async () => {
      const { page, complaints } = await login();
      await page.goto(at("/calendar?month=2026-11&job=gas_storage"));
      const day = async (date: string) => page.locator(`.calendar li:has([datetime="${date}"])`);
      // The publisher announced these two; the others are out on Thursdays.
      expect(await (await day("2026-11-13")).innerText()).toContain("15:30 UTC");
      expect(await (await day("2026-11-25")).innerText()).toContain("17:00 UTC");
      expect(await (await day("2026-11-19")).innerText()).toContain("15:35 UTC");
      expect(await page.locator(".release").count()).toBe(4);
      await page.getByRole("link", { name: "Earlier" }).click();
      await page.waitForURL(/month=2026-10/);
      await page.goto(at("/calendar?month=2031-11&job=gas_storage"));
      const later = await page.locator(".calendar").innerText();
      expect([later.includes("by rule"), later.includes("in ")]).toEqual([true, true]);
      await page.goto(at("/calendar?month=2031-13"));
      expect(await page.locator("main").innerText()).toContain("must be a YYYY-MM month");
      expect(complaints.filter((one) => !one.includes("422"))).toEqual([]);
    });
  });

  describe.skipIf(!hasChromium)("a day", () => {
    it("is written as pages write it, and picked from a calendar with script", async () => {
      const { page } = await login();
      await page.goto(at("/runs"));
      const field = page.locator("input[name=partition]");
      expect(await field.getAttribute("type")).toBe("text");
      await page.getByRole("button", { name: "Pick Partition from a calendar" }).click();
      await page.locator(".picker").evaluate((picker) => {
        // The page's own element, which this test's types do not know.
        const input = picker as unknown as { value: string; dispatchEvent: (event: Event) => void };
        input.value = "2026-01-31";
        input.dispatchEvent(new Event("change"));
      });
      expect(await field.inputValue()).toBe("2026-01-31");
      await page.getByRole("button", { name: "Filter" }).click();
      await page.waitForURL(/partition=2026-01-31/);
    });
  });

  describe.skipIf(!hasChromium)("on a phone", () => {
    it("filters fold, and a page of runs is no endless list", async () => {
      const { page } = await login({ width: 390 });
      await page.goto(at("/runs"));
      const form = page.locator("form.filters");
      expect(await form.isVisible()).toBe(false);
      await page.getByRole("button", { name: "Filters" }).click();
      expect(await form.isVisible()).toBe(true);
      const rows = await page.locator("table.compact tbody tr").count();
      const height = await page.evaluate("document.documentElement.scrollHeight");
      expect(Number(height) / rows).toBeLessThan(220);
    });

    it("filters stay where there is no script", async () => {
      const { page } = await login({ width: 390, javaScript: false });
      await page.goto(at("/runs"));
      expect(await page.locator("form.filters").isVisible()).toBe(true);
    });
  });

  describe.skipIf(!hasChromium)("a cell of a grid", () => {
    it("says what it is when keys reach it, and when it is pointed at", async () => {
      const { page } = await login();
      await page.goto(at("/pipelines/grid_region"));
      const cell = page.locator("[data-grid] a.cell[tabindex='0']");
      const box = async () => (await cell.locator(".told").boundingBox())?.height ?? 0;
      expect(await box()).toBeLessThan(2);
      await cell.focus();
      // Focus by script counts as a key's once one was pressed.
      await page.keyboard.press("ArrowLeft");
      const reached = page.locator("[data-grid] a.cell:focus .told");
      expect((await reached.boundingBox())?.height).toBeGreaterThan(10);
      expect(await reached.innerText()).toMatch(/^\d{4}-\d\d-\d\d: /);
      await page.locator("[data-grid] a.cell").last().hover();
      const pointed = page.locator("[data-grid] a.cell:hover .told");
      expect((await pointed.boundingBox())?.height).toBeGreaterThan(10);
    });
  });
}
