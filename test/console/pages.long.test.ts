// The console's pages in a real browser, as an operator uses them: every form, every link, with
// script and without, on a laptop and on a phone.

import { beforeAll, describe, expect, it } from "vitest";
import { Run } from "../../shared/wire/markets.ts";
import { hasChromium, openWindow, type Window, type WindowOptions } from "../support/browser.ts";
import {
  type ConsoleWorld,
  createConsoleWorld,
  impossible,
  seedConsole,
} from "../support/console-world.ts";
import { choiceTests } from "./choice-tests.ts";
import { glanceTests } from "./glance-tests.ts";

let world: ConsoleWorld;
let seeded: Awaited<ReturnType<typeof seedConsole>>;
beforeAll(async () => {
  if (!hasChromium) return;
  world = await createConsoleWorld();
  seeded = await seedConsole(world);
});

/** Runs of a backfill go one at a time, on however busy a machine. */
const SLOWLY = { interval: 100 };

const at = (path: string) => world.urls.console + path;

async function login(options: WindowOptions = {}): Promise<Window> {
  const window = await openWindow(options);
  await window.page.goto(at("/login"));
  await window.page.fill("input[name=token]", world.operatorToken);
  await window.page.click("button[type=submit]");
  await window.page.waitForURL(at("/overview"));
  return window;
}

/** Every page there is, by what it shows. */
const pages = () => [
  "/overview",
  "/pipelines/grid_region",
  `/pipelines/grid_region?partition=${world.day(12)}`,
  `/pipelines/grid_region?last=${world.day(100)}`,
  "/runs",
  "/runs?job=grid_region&state=failed&trigger=&partition=",
  `/runs?backfill=${seeded.backfillId}`,
  `/runs/${seeded.second.run_id}`,
  `/runs/${seeded.rejected.run_id}`,
  `/runs/${seeded.late.run_id}`,
  `/runs/${seeded.waiting.run_id}`,
  `/runs/${seeded.refused.run_id}`,
  `/refusals/${seeded.refusalId}`,
  "/runs?state=waiting",
  "/schedules",
  "/schedules/grid_region",
  "/checks",
  "/alerts",
  "/timeline",
  "/timeline?hours=1",
  "/calendar",
  "/calendar?month=2026-02&job=gas_storage",
  "/events",
  "/events?q=gate&level=error",
  "/graph",
  "/graph?label=BalancingAuthority",
  "/graph?instrument=power.demand.erco&depth=2",
  "/backfills",
  `/backfills/${seeded.backfillId}`,
  "/series",
  "/series?library=power.demand",
  "/series?library=power.demand&symbol=erco",
];

/** The cookies that a window sends to pages behind the login, to ask without a browser. */
async function cookieOf({ context }: Window): Promise<string> {
  const cookies = await context.cookies(at("/overview"));
  return cookies.map(({ name, value }) => `${name}=${value}`).join("; ");
}

describe.skipIf(!hasChromium)("the login", () => {
  it("is where everybody without a session is sent, and leads back to the page asked for", async () => {
    const { page, context } = await openWindow();
    await page.goto(at("/runs?state=failed"));
    expect(page.url()).toContain("/login?next=");
    await page.fill("input[name=token]", "wrong");
    await page.click("button[type=submit]");
    expect(await page.getByRole("alert").textContent()).toContain("not the operator token");
    expect(await context.cookies()).toEqual([]);
    await page.fill("input[name=token]", world.operatorToken);
    await page.click("button[type=submit]");
    expect(page.url()).toBe(at("/runs?state=failed"));
    const [cookie] = await context.cookies();
    expect(cookie).toMatchObject({ httpOnly: true, sameSite: "Strict" });
    expect(cookie?.value).not.toContain(world.operatorToken);
    await page.getByRole("button", { name: "Log out" }).click();
    await page.goto(at("/runs"));
    expect(page.url()).toContain("/login");
  });

  it("takes no session that is forged, changed or over", async () => {
    const window = await login();
    const cookie = await cookieOf(window);
    const status = async (given: string) =>
      (await fetch(at("/overview"), { headers: { Cookie: given }, redirect: "manual" })).status;
    expect(await status(cookie)).toBe(200);
    const longer = cookie.replace(/\.(\d+)\./, (_, until) => `.${Number(until) + 1}.`);
    for (const bad of ["", "vantage_session=x", `${cookie}x`, cookie.slice(0, -2), longer]) {
      expect([bad.length, await status(bad)]).toEqual([bad.length, 303]);
    }
  });

  it("leads nowhere but to our own pages", async () => {
    const window = await login();
    for (const next of ["//evil.example", "https://evil.example/", "/\\evil.example"]) {
      const response = await fetch(at(`/login?next=${encodeURIComponent(next)}`), {
        headers: { Cookie: await cookieOf(window) },
        redirect: "manual",
      });
      expect(response.headers.get("Location")).toBe("/overview");
    }
  });

  it("takes a form from whatever name the console is called by, and from no other", async () => {
    const called = world.urls.console.replace("127.0.0.1", "localhost");
    const status = async (origin: string) => {
      const response = await fetch(`${called}/login`, {
        method: "POST",
        body: new URLSearchParams({ token: world.operatorToken }),
        headers: { Origin: origin },
        redirect: "manual",
      });
      return response.status;
    };
    expect(await status(called)).toBe(303);
    expect(await status(world.urls.console)).toBe(403);
  });

  it("answers 429 to whoever goes on guessing, and to nobody else", async () => {
    const guess = (token: string, address: string) =>
      fetch(at("/login"), {
        method: "POST",
        body: new URLSearchParams({ token }),
        headers: { "CF-Connecting-IP": address },
        redirect: "manual",
      });
    for (let wrong = 0; wrong < 10; wrong++) {
      expect((await guess(`guess ${wrong}`, "192.0.2.7")).status).toBe(401);
    }
    expect((await guess("guess", "192.0.2.7")).status).toBe(429);
    // Not even the right one says anything any more.
    expect((await guess(world.operatorToken, "192.0.2.7")).status).toBe(429);
    expect((await guess(world.operatorToken, "192.0.2.8")).status).toBe(303);
  });
});

describe.skipIf(!hasChromium)("a form", () => {
  it("is refused without its session's token, or from another site", async () => {
    const [mine, other] = [await login(), await login()];
    const tokenOf = ({ page }: Window) =>
      page.locator("input[name=form_token]").first().getAttribute("value");
    const cookie = await cookieOf(mine);
    const post = async (token: string, headers: Record<string, string> = {}) => {
      const response = await fetch(at("/schedules/grid_region/switch"), {
        method: "POST",
        body: new URLSearchParams({ form_token: token, enabled: "true" }),
        headers: { Cookie: cookie, Accept: "text/html", ...headers },
        redirect: "manual",
      });
      return response.status;
    };
    const right = (await tokenOf(mine)) ?? "";
    expect(await post(right)).toBe(303);
    for (const bad of ["", "x", `${right}x`, (await tokenOf(other)) ?? ""]) {
      expect(await post(bad)).toBe(403);
    }
    expect(await post(right, { "Sec-Fetch-Site": "cross-site" })).toBe(403);
    expect(await post(right, { Origin: "https://evil.example" })).toBe(403);
  });

  it("launches a run and shows it succeed by itself", async () => {
    const { page, complaints } = await login();
    await page.goto(at("/pipelines/grid_region"));
    await page.getByRole("button", { name: "Launch" }).click();
    await page.waitForURL(/\/runs\/[\w-]{36}$/);
    expect(await page.getByRole("status").first().textContent()).toContain("queued");
    await page.locator(".card .state.succeeded").first().waitFor();
    const run = Run.parse(await world.operator.run(page.url().split("/").at(-1) ?? ""));
    expect(run).toMatchObject({ state: "succeeded", trigger: "manual", reconstructed: false });
    await page.getByText("Read-back check").waitFor();
    expect(await page.locator(".journal").textContent()).toContain("committed");
    expect(complaints).toEqual([]);
  });

  it("backfills a range, with progress that moves without a reload", async () => {
    const { page, complaints } = await login();
    await page.goto(at("/pipelines/grid_region"));
    // The provider answers for two more partitions once the page has shown those before.
    const asked: string[] = [];
    const gates = Array.from({ length: 4 }, () => Promise.withResolvers<undefined>());
    world.spoil((url) => {
      const start = url.searchParams.get("start") ?? "";
      if (!asked.includes(start)) asked.push(start);
      return gates[Math.floor(asked.indexOf(start) / 2)]?.promise;
    });
    await page.evaluate("globalThis.sameDocument = true");
    await page.fill("#backfill input[name=first]", world.day(53));
    await page.fill("#backfill input[name=last]", world.day(46));
    await page.getByRole("button", { name: "Start backfill" }).click();
    await page.waitForURL(/\/backfills\/[\w-]{36}$/);
    await page.evaluate("globalThis.sameDocument = true");
    const done = () => page.locator("progress").getAttribute("value");
    for (const [index, gate] of gates.entries()) {
      await expect.poll(done, SLOWLY).toBe(String(2 * index));
      gate.resolve(undefined);
    }
    await expect.poll(() => page.locator(".grid .cell.succeeded").count(), SLOWLY).toBe(8);
    world.spoil(undefined);
    expect(await page.evaluate("globalThis.sameDocument")).toBe(true);
    await page.locator(".facts .state.succeeded").waitFor();
    // Every partition leads to its run.
    await page.locator(".grid .cell").first().click();
    await page.waitForURL(/\/runs\//);
    expect(complaints).toEqual([]);
  });

  it("asks before more than a hundred runs, without JavaScript too", async () => {
    const { page } = await login({ javaScript: false });
    await page.goto(at("/pipelines/grid_region"));
    expect(await page.locator("#backfill").innerText()).toMatch(/the 90 proposed take about \d/);
    await page.fill("#backfill input[name=first]", world.day(400));
    await page.fill("#backfill input[name=last]", world.day(300));
    await page.getByRole("button", { name: "Start backfill" }).click();
    expect(await page.locator("h1").innerText()).toBe("Start 101 runs?");
    expect(await page.locator(".facts").innerText()).toMatch(/Time\s+about \d+ (s|min)/);
    const before = await world.operator.runs({ limit: 1 });
    await page.getByRole("link", { name: "Do not start it" }).click();
    expect((await world.operator.runs({ limit: 1 }))[0]?.run_id).toBe(before[0]?.run_id);
    await page.fill("#backfill input[name=first]", world.day(400));
    await page.fill("#backfill input[name=last]", world.day(300));
    await page.getByRole("button", { name: "Start backfill" }).click();
    await page.getByRole("button", { name: "Start 101 runs" }).click();
    await page.waitForURL(/\/backfills\/[\w-]{36}$/);
    expect(await page.getByRole("status").first().innerText()).toContain("101 runs, about");
    await page.getByRole("button", { name: "Cancel what is left" }).click();
    const said = await page.locator(".progress").innerText();
    expect(said).toMatch(/canceled, \d+ of 101 done/);
  });

  it("cancels a run, cancels a backfill, and runs again only what had failed", async () => {
    const { page } = await login();
    let release = () => {};
    const held = new Promise<void>((done) => {
      release = done;
    });
    world.spoil(() => held.then(() => undefined));
    await page.goto(at("/pipelines/grid_region"));
    await page.fill("#launch input[name=partition]", world.day(80));
    await page.getByRole("button", { name: "Launch" }).click();
    await page.locator(".card .state.running").first().waitFor();
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.locator(".card .state.canceled").first().waitFor();

    await page.goto(at("/pipelines/grid_region"));
    await page.fill("#backfill input[name=first]", world.day(84));
    await page.fill("#backfill input[name=last]", world.day(82));
    await page.getByRole("button", { name: "Start backfill" }).click();
    await page.getByRole("button", { name: "Cancel what is left" }).click();
    await page.getByText("3 runs were canceled").waitFor();
    expect(await page.locator(".grid .cell.canceled").count()).toBe(3);
    world.spoil(undefined);
    release();
    await page.getByRole("button", { name: "Run 3 failed or canceled again" }).click();
    await expect.poll(() => page.locator(".grid .cell.succeeded").count(), SLOWLY).toBe(3);
  });

  it("shows what failed in a backfill with its reason, and leaves the rest alone", async () => {
    const { page } = await login();
    const bad = world.day(87);
    const isBad = (url: URL) => (url.searchParams.get("start") ?? "").startsWith(bad);
    world.spoil((url) => (isBad(url) ? impossible() : undefined));
    await page.goto(at("/pipelines/grid_region"));
    await page.fill("#backfill input[name=first]", world.day(88));
    await page.fill("#backfill input[name=last]", world.day(86));
    await page.getByRole("button", { name: "Start backfill" }).click();
    await page.getByRole("button", { name: "Run 1 failed or canceled again" }).waitFor();
    await page.locator(".facts .state.failed").waitFor();
    expect(await page.locator("#troubles + table").textContent()).toContain("gate_rejected");
    world.spoil(undefined);
    await page.getByRole("button", { name: "Run 1 failed or canceled again" }).click();
    await expect.poll(() => page.locator(".grid .cell.succeeded").count(), SLOWLY).toBe(3);
    const runs = await world.operator.runs({
      limit: 10,
      backfill_id: page.url().split("/").at(-1) ?? "",
    });
    expect(runs.map(({ attempt }) => attempt).toSorted()).toEqual([1, 1, 2]);
  });

  it("runs a partition again from its run's page", async () => {
    const { page } = await login();
    await page.goto(at(`/runs/${seeded.drifted.run_id}`));
    expect(await page.locator(".trouble").textContent()).toContain("upstream_schema_drift");
    // The row that could not be read.
    expect(await page.locator("#arrived + pre").innerText()).toBe("{}");
    await page.getByRole("button", { name: "Run it again" }).click();
    await page.locator(".card .state.succeeded").first().waitFor();
    expect(page.url()).not.toContain(seeded.drifted.run_id);
  });

  it("switches a schedule off and on", async () => {
    const { page } = await login();
    const isOn = async () => {
      const schedules = (await world.operator.jobs()).flatMap((job) => job.schedules);
      return schedules.find(({ schedule }) => schedule === "grid_region")?.enabled;
    };
    await page.goto(at("/schedules"));
    await page.getByRole("button", { name: "Switch grid_region off" }).click();
    await page.getByText("grid_region is off.").waitFor();
    expect(page.url()).toBe(at("/schedules"));
    expect(await isOn()).toBe(false);
    await page.getByRole("button", { name: "Switch grid_region on" }).click();
    await page.getByText("grid_region is on.").waitFor();
    expect(await isOn()).toBe(true);
  });

  it("that cannot be done says why on a page", async () => {
    const { page } = await login();
    await page.goto(at("/pipelines/grid_region"));
    await page.evaluate("document.querySelector('#backfill form').noValidate = true");
    await page.fill("#backfill input[name=first]", "2031-01-01");
    await page.fill("#backfill input[name=last]", "2031-01-02");
    await page.getByRole("button", { name: "Start backfill" }).click();
    await page.getByText(/2031-01-0\d lies outside/).waitFor();
    expect((await page.goto(at(`/runs/${crypto.randomUUID()}`)))?.status()).toBe(404);
    expect(await page.locator("main").textContent()).toContain("no such run");
    expect((await page.goto(at("/no/such/page")))?.status()).toBe(404);
    expect(await page.locator("h1").textContent()).toBe("Not here");
  });
});

choiceTests({ world: () => world, login, at });
glanceTests({ world: () => world, seeded: () => seeded, login, at, pages });

describe.skipIf(!hasChromium)("the series page", () => {
  it("draws two knowledge times on one axis, and says how they differ", async () => {
    const { page, complaints } = await login();
    await page.goto(at(`/series?library=power.demand&symbol=${seeded.revised}`));
    await page.locator("[data-chart] canvas").waitFor();
    const { times, lines } = JSON.parse(
      (await page.locator("[data-chart]").getAttribute("data-chart")) ?? "",
    );
    expect(times.length).toBeGreaterThan(100);
    expect(lines).toHaveLength(2);
    expect(lines[0].values).not.toEqual(lines[1].values);
    const legend = await page.locator(".u-legend").textContent();
    for (const { name } of lines) expect(legend).toContain(name);
    await page.locator("#values summary").click();
    expect(await page.locator("#values thead th").count()).toBe(4);
    expect(await page.locator(".triangle [class*=heat-]").count()).toBeGreaterThan(20);
    expect(await page.locator(".facts").textContent()).toMatch(/Changed since[1-9]/);
    await page.getByRole("link", { name: "Compare" }).last().click();
    await page.locator("[data-chart] canvas").waitFor();
    expect(complaints).toEqual([]);
  });

  it("gives snippets that answer what the page shows", async () => {
    const { page } = await login();
    await page.goto(at("/series?library=power.demand&symbol=erco"));
    const curl = (await page.locator("#snippet-curl").textContent()) ?? "";
    const [, query] = /'http:\/\/localhost:8000(\/series\?[^']+)'/.exec(curl) ?? [];
    const response = await fetch(`${world.urls.markets}${query}`);
    expect(response.status).toBe(200);
    expect((await response.text()).split("\n").length).toBeGreaterThan(200);
    for (const language of ["Python", "R"]) {
      expect(await page.locator(`#snippet-${language}`).textContent()).toContain("power.demand");
    }
  });
});

describe.skipIf(!hasChromium)("every page", () => {
  it.each([
    { width: 1280, dark: false },
    { width: 1280, dark: true },
    { width: 390, dark: false },
    { width: 390, dark: true },
  ])("fits its screen and complains of nothing: %j", async (options) => {
    const { page, complaints } = await login(options);
    for (const path of pages()) {
      const response = await page.goto(at(path));
      expect([path, response?.status()]).toEqual([path, 200]);
      const policy = response?.headers()["content-security-policy"];
      expect(policy).toContain("script-src 'self'; style-src 'self'");
      const width = await page.evaluate("document.documentElement.scrollWidth");
      expect([path, Number(width) <= options.width]).toEqual([path, true]);
      expect([path, await page.locator("h1").count()]).toEqual([path, 1]);
      // The level of an entry is a line of text, not as high as what stands beside it.
      const highest = await page.evaluate(
        "Math.max(0, ...[...document.querySelectorAll('.journal .state')].map((one) => one.offsetHeight))",
      );
      expect([path, Number(highest) < 36]).toEqual([path, true]);
    }
    expect(complaints).toEqual([]);
  });

  it("has only links that answer", async () => {
    const window = await login();
    const { page } = window;
    const links = new Set<string>();
    for (const path of pages()) {
      await page.goto(at(path));
      const found = (await page.evaluate(
        "[...document.querySelectorAll('[href], [src]')].map((one) =>" +
          " new URL(one.getAttribute('href') ?? one.getAttribute('src'), location).href)",
      )) as string[];
      for (const link of found) {
        if (link.startsWith(at("/"))) links.add(link.replace(/#.*/, ""));
      }
    }
    expect(links.size).toBeGreaterThan(50);
    const bad: string[] = [];
    const headers = { Cookie: await cookieOf(window) };
    const left = [...links];
    const follow = async () => {
      for (let link = left.pop(); link; link = left.pop()) {
        const { status, body } = await fetch(link, { headers, redirect: "manual" });
        await body?.cancel();
        if (status !== 200) bad.push(`${status} ${link}`);
      }
    };
    await Promise.all(Array.from({ length: 6 }, follow));
    expect(bad).toEqual([]);
  });

  it("works without JavaScript, forms and all", async () => {
    const { page } = await login({ javaScript: false });
    for (const path of pages()) {
      const response = await page.goto(at(path));
      expect([path, response?.status()]).toEqual([path, 200]);
      expect((await page.locator("main").textContent())?.length).toBeGreaterThan(50);
    }
    await page.goto(at(`/pipelines/grid_region?partition=${world.day(90)}`));
    await page.getByRole("button", { name: `Run ${world.day(90)}` }).click();
    await expect
      .poll(async () => {
        await page.reload();
        return page.locator(".card .state.succeeded").count();
      }, SLOWLY)
      .toBeGreaterThan(0);
  });

  it("enters the grid at its newest partition", async () => {
    const { page } = await login();
    await page.goto(at("/pipelines/grid_region"));
    const entries = page.locator("[data-grid] a[tabindex='0']");
    expect(await entries.count()).toBe(1);
    expect(await entries.getAttribute("id")).toBe(`partition-${world.day(0)}`);
  });

  it("moves through the grid by arrow keys, and opens a partition by Enter", async () => {
    const { page } = await login();
    await page.goto(at("/pipelines/grid_region"));
    const focused = () => page.evaluate("document.activeElement.id");
    await page.locator(`#partition-${world.day(14)}`).focus();
    await page.keyboard.press("ArrowLeft");
    expect(await focused()).toBe(`partition-${world.day(15)}`);
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("ArrowRight");
    expect(await focused()).toBe(`partition-${world.day(13)}`);
    await page.keyboard.press("Home");
    expect(await focused()).not.toBe(`partition-${world.day(13)}`);
    await page.locator(`#partition-${world.day(13)}`).focus();
    await page.keyboard.press("Enter");
    await page.waitForURL(/\/runs\//);
  });

  it("keeps what cannot change for ever, and no page at all", async () => {
    const { page, context } = await login();
    const style = await page.locator("link[rel=stylesheet]").first().getAttribute("href");
    const asset = await context.request.get(at(style ?? ""));
    expect(asset.headers()["cache-control"]).toContain("immutable");
    const response = await context.request.get(at("/overview"));
    expect(response.headers()).toMatchObject({
      "cache-control": "no-store",
      "x-frame-options": "DENY",
      "x-content-type-options": "nosniff",
      "referrer-policy": "no-referrer",
    });
  });

  it("says so when the console is silent, and goes on when it is back", async () => {
    const { page, context } = await login();
    await page.goto(at("/runs"));
    const look = () => page.evaluate("document.dispatchEvent(new Event('visibilitychange'))");
    await context.setOffline(true);
    await look();
    await page.getByText("The console does not answer").waitFor();
    await context.setOffline(false);
    await look();
    await expect.poll(() => page.locator("#live-state").textContent(), SLOWLY).toBe("");
  });
});
