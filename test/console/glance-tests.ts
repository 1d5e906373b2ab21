// What an operator sees at a glance, in a real browser: what needs somebody, waiting, the
// heartbeat, and the series page's form, names and units. `pages.test.ts` runs it over its world.

import { sql } from "drizzle-orm";
import { describe, expect, it } from "vitest";
import { followRun } from "../../edge/local/operator.ts";
import { systemClock } from "../../shared/time.ts";
import { hasChromium, type Window, type WindowOptions } from "../support/browser.ts";
import {
  type ConsoleWorld,
  impossible,
  type seedConsole,
  waitingReason,
} from "../support/console-world.ts";

interface Pages {
  world: () => ConsoleWorld;
  seeded: () => Awaited<ReturnType<typeof seedConsole>>;
  login: (options?: WindowOptions) => Promise<Window>;
  /** The address of a path. */
  at: (path: string) => string;
  /** Every page's path. */
  pages: () => string[];
}

/** Registers the tests. */
export function glanceTests({ world, seeded, login, at, pages }: Pages) {
  it("metrics are none where nobody was given a token for them", async () => {
    const headers = { Authorization: `Bearer ${world().operatorToken}` };
    expect((await fetch(at("/metrics"), { headers })).status).toBe(404);
  });

  describe.skipIf(!hasChromium)("a run that the gate refused", () => {
    it("shows the offending rows with their unit", async () => {
      const { page } = await login();
      await page.goto(at(`/runs/${seeded().rejected.run_id}`));
      const row = page.locator("#findings ~ table details tbody tr").first();
      expect(await row.innerText()).toMatch(/power\.demand\.\w+\s+0 MWh/);
    });
  });

  describe.skipIf(!hasChromium)("the overview", () => {
    const needs = async ({ page }: Window) => {
      await page.goto(at("/overview"));
      return page.locator("#needs ~ *").first().innerText();
    };

    it("is topped by what needs somebody, each with a way to act on it", async () => {
      world().spoil(impossible);
      const launched = await world().operator.launch("grid_region", world().day(6));
      await followRun(world().operator, launched);
      world().spoil(undefined);
      const window = await login();
      const text = await needs(window);
      expect(text).toMatch(/late\s+Grid region series 1 late: /);
      expect(text).toMatch(/failed\s+Grid region series \d failed: /);
      // Only one schedule is on in this world().
      expect(text).toMatch(/off\s+Gas storage its schedule is switched off: gas_storage/);
      const { page } = window;
      await page.locator(".needs a").filter({ hasText: "Gas storage its schedule" }).click();
      await page.getByRole("button", { name: "Switch gas_storage on" }).waitFor();
      await page.goto(at("/overview"));
      const row = page.locator(".overview tr").filter({ hasText: "Gas storage" });
      expect(await row.innerText()).toContain("schedule off");
      const grid = page.locator(".overview tr").filter({ hasText: "Grid region series" });
      expect(await grid.innerText()).toMatch(/ahead to/);
      const sizes = await page
        .locator(".strip a")
        .evaluateAll((cells) =>
          cells
            .map((cell) => cell.getBoundingClientRect())
            .map(({ width, height }) => [width, height]),
        );
      expect(Math.min(...sizes.flat())).toBeGreaterThanOrEqual(24);
    });

    it("counts what waits, and leads to the cells that say so", async () => {
      const { page } = await login();
      await page.goto(at("/overview"));
      const total = page.locator(".totals a").filter({ hasText: "waiting for a release" });
      const waiting = page.locator(`${await total.getAttribute("href")} ~ * .strip .waiting`);
      expect(await total.innerText()).toContain(String(await waiting.count()));
      expect(await waiting.count()).toBeGreaterThan(0);
    });

    it("says when the scheduler ticked last, and every page says when it is silent", async () => {
      const { page } = await login();
      const beat = (age: string) =>
        world().database.execute(sql`UPDATE housekeeping SET last_at = now() - ${age}::interval
          WHERE chore = 'minute'`);
      await beat("1 minute");
      await page.goto(at("/overview"));
      expect(await page.locator(".heartbeat").innerText()).toMatch(/ticked last at .* ago/);
      expect(await page.getByRole("alert").count()).toBe(0);
      await beat("12 minutes");
      for (const path of pages()) {
        await page.goto(at(path));
        const banner = await page.getByRole("alert").first().innerText();
        expect([path, banner]).toEqual([path, expect.stringContaining("12 min ago")]);
      }
      await world().tick(systemClock());
      await page.goto(at("/overview"));
      expect(await page.locator(".heartbeat").innerText()).toMatch(/just now|\d s ago/);
      expect(await page.getByRole("alert").count()).toBe(0);
    });
  });

  describe.skipIf(!hasChromium)("a run that waits for its release", () => {
    it("is waiting on every page, with its own colour and its reason", async () => {
      const { page } = await login();
      const day = world().day(11);
      const reason = waitingReason(day);
      const colour = (selector: string) =>
        page.evaluate(`getComputedStyle(document.querySelector("${selector}")).backgroundColor`);
      await page.goto(at("/pipelines/grid_region"));
      const cell = page.locator(`#partition-${day}`);
      expect(await cell.locator(".told").textContent()).toBe(`${day}: waiting. ${reason}`);
      const waits = await colour(`#partition-${day}`);
      for (const state of ["queued", "late", "running", "materialized", "failed"]) {
        expect([state, await colour(`.legend .cell.${state}`)]).not.toEqual([state, waits]);
      }
      await page.goto(at(`/runs/${seeded().waiting.run_id}`));
      const card = await page.locator(".card").first().innerText();
      expect(card).toContain("waiting");
      expect(card).toContain(reason);
      expect(card).toContain("Cancel");
      await page.goto(at("/runs?state=waiting"));
      expect(await page.locator("tbody tr").count()).toBe(1);
      await page.goto(at("/runs?state=queued"));
      expect(await page.getByText("No run is like this").count()).toBe(1);
      const run = await world().operator.run(seeded().waiting.run_id);
      expect(run.state).toBe("waiting");
    });
  });

  describe.skipIf(!hasChromium)("the form of the series page", () => {
    it("keeps a form that cannot be read, and says what is wrong with it", async () => {
      const { page } = await login({ javaScript: false });
      await page.goto(at(`/series?library=power.demand&symbol=${seeded().revised}`));
      await page.fill("input[name=as_of]", "last tuesday");
      await page.fill("input[name=compare]", "2026-01-31");
      await page.getByRole("button", { name: "Show" }).click();
      expect(await page.locator("#problems").innerText()).toContain('"last tuesday" is no instant');
      expect(await page.inputValue("input[name=as_of]")).toBe("last tuesday");
      expect(await page.inputValue("input[name=compare]")).toBe("2026-01-31");
      await page.fill("input[name=as_of]", "");
      await page.getByRole("button", { name: "Show" }).click();
      await page.locator("[data-chart]").waitFor();
      for (const preset of ["yesterday", "a week ago", "nothing", "before the last revision"]) {
        await page.getByRole("link", { name: preset, exact: true }).click();
        await page.locator(".facts").first().waitFor();
      }
      expect(await page.locator(".facts").first().innerText()).toMatch(/Changed since\s+[1-9]/);
      expect(await page.locator("tr.revised").count()).toBeGreaterThan(0);
    });

    it("names what it shows, with its unit and its market's clock", async () => {
      const { page } = await login();
      await page.goto(at("/series?library=power.demand"));
      await page.getByRole("link", { name: "erco Demand, ERCOT" }).click();
      await page.locator("[data-chart] canvas").waitFor();
      expect(await page.locator(".lead").innerText()).toBe("Demand, ERCOT, MWh · America/Chicago");
      const data = JSON.parse(
        (await page.locator("[data-chart]").getAttribute("data-chart")) ?? "",
      );
      expect(data).toMatchObject({ unit: "MWh", clocks: ["UTC", "America/Chicago"] });
      expect(await page.locator("#vintages ~ table .local").first().innerText()).toMatch(/C[SD]T/);
    });

    it("compares a vintage with the one before it", async () => {
      const { page } = await login();
      await page.goto(at(`/series?library=power.demand&symbol=${seeded().revised}`));
      const vintages = await page
        .locator("#vintages ~ table tbody time")
        .evaluateAll((times) =>
          times.map((one) => one.getAttribute("datetime")).filter((_, index) => index % 2 === 0),
        );
      await page.locator("#vintages ~ table tbody tr").first().getByText("Compare").click();
      expect(await page.inputValue("input[name=as_of]")).toBe(vintages[0]);
      expect(await page.inputValue("input[name=compare]")).toBe(vintages[1]);
    });
  });

  describe.skipIf(!hasChromium)("a page", () => {
    it("asks for news while it is looked at, and not otherwise", async () => {
      const { page } = await login();
      await page.clock.install();
      await page.goto(at("/runs"));
      // Counted where it is asked: events of requests come later.
      const counting = "(...given) => { asked += 1; return send(...given); }";
      await page.evaluate(`asked = 0; const send = fetch; globalThis.fetch = ${counting}`);
      const asked = async () => Number(await page.evaluate("globalThis.asked"));
      await page.clock.runFor(30_000);
      await page.evaluate("Object.defineProperty(document, 'hidden', { value: true })");
      await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))");
      const before = await asked();
      expect(before).toBeGreaterThan(0);
      await page.clock.runFor(600_000);
      expect(await asked()).toBe(before);
    });
  });
}
