// The console without what it leans on: the read API, its key, the database.

import { describe, expect, it } from "vitest";
import { systemClock } from "../../shared/time.ts";
import { hasChromium, openWindow } from "../support/browser.ts";
import {
  commitHours,
  createWorld,
  HOUR,
  REFUSING_URL,
  type WorldOptions,
} from "../support/world.ts";

describe("a console whose database is gone", () => {
  it("says on a page that it does not answer, and no more", async () => {
    const gone = await createWorld({
      services: ["console"],
      environment: { console: { DATABASE_URL: REFUSING_URL } },
    });
    const response = await fetch(`${gone.urls.console}/login`, {
      method: "POST",
      body: new URLSearchParams({ token: gone.operatorToken }),
      headers: { Accept: "text/html" },
    });
    expect([response.status, response.headers.get("Retry-After")]).toEqual([503, "5"]);
    const text = await response.text();
    expect(text).toContain("Not answering");
    expect(text).not.toMatch(/hunter2|127\.0\.0\.1:1/);
  });
});

describe.skipIf(!hasChromium)("a console without the read API", () => {
  it("shows everything but series, and says what is missing", async () => {
    const alone = await createWorld({ services: ["console"] });
    const { page, complaints } = await openWindow();
    await page.goto(`${alone.urls.console}/series`);
    await page.fill("input[name=token]", alone.operatorToken);
    await page.click("button[type=submit]");
    expect(await page.locator("main").textContent()).toContain("MARKETS");
    await page.goto(`${alone.urls.console}/overview`);
    const overview = await page.locator("main").textContent();
    expect(overview).toContain("Nothing has run yet");
    // Its first minute has not come: that is said, and is no alarm.
    expect(overview).toContain("has not ticked yet");
    expect(overview).toContain("Nothing: no failure, nothing late, every schedule on");
    expect(await page.getByRole("alert").count()).toBe(0);
    expect(complaints).toEqual([]);
  });
});

describe("a console that has an address of the read API and no binding", () => {
  it("shows series from there, and the address in its snippets", async () => {
    const other = await createWorld({ services: ["markets", "console"] });
    await commitHours(other, "erco", Date.UTC(2026, 0, 10), [1, 2, 3]);
    const SERVICE_API_URL = other.urls.markets;
    const alone = await createWorld({
      services: ["console"],
      environment: { console: { SERVICE_API_URL } },
    });
    const login = await fetch(`${alone.urls.console}/login`, {
      method: "POST",
      body: new URLSearchParams({ token: alone.operatorToken }),
      redirect: "manual",
    });
    const Cookie = (login.headers.get("Set-Cookie") ?? "").split(";")[0] ?? "";
    const path = "/series?library=power.demand&symbol=erco&start=2026-01-10&end=2026-01-11";
    const page = await fetch(alone.urls.console + path, {
      headers: { Cookie, Accept: "text/html" },
    });
    const text = await page.text();
    expect(page.status).toBe(200);
    expect(text).toContain("data-chart");
    expect(text).toContain(`${SERVICE_API_URL}/series`);
  });
});

describe("a read API that asks for a key", () => {
  const key = "the key of the readers";
  const open = async (environment: WorldOptions["environment"]) => {
    const guarded = await createWorld({
      services: ["markets", "console"],
      environment: { markets: { SERVICE_READ_API_KEY: key }, ...environment },
    });
    await commitHours(
      guarded,
      "erco",
      systemClock() - (systemClock() % HOUR) - 5 * HOUR,
      [1, 2, 3],
    );
    const answer = await fetch(`${guarded.urls.console}/login`, {
      method: "POST",
      body: new URLSearchParams({ token: guarded.operatorToken }),
      redirect: "manual",
    });
    const Cookie = (answer.headers.get("Set-Cookie") ?? "").split(";")[0] ?? "";
    const path = "/series?library=power.demand&symbol=erco";
    const headers = { Cookie, Accept: "text/html" };
    const page = await fetch(guarded.urls.console + path, { headers });
    return { page, text: await page.text(), logs: guarded.logs.join("\n") };
  };

  it("is sent it, and the page never shows it", async () => {
    const { page, text, logs } = await open({ console: { SERVICE_READ_API_KEY: key } });
    expect(page.status).toBe(200);
    expect(text).toContain("data-chart");
    expect(text + logs).not.toContain(key);
  });

  it("is not read without it, and the page says so", async () => {
    const { page, text } = await open({});
    expect(page.status).toBe(401);
    expect(text).toContain("X-API-Key");
  });
});
