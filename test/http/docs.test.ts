// The API page in a real browser, made of the golden descriptions: on a phone and a laptop, light
// and dark, with its search and without scripts.

import { readFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { apiPage, pagePolicy } from "../../edge/http/docs.ts";
import type { Description } from "../../edge/http/example-request.ts";
import { hasChromium, openWindow } from "../support/browser.ts";

const SERVICES = ["markets", "console", "vision"];
const NONCE = "a-nonce";
const documentOf = (service: string) =>
  JSON.parse(
    readFileSync(join(import.meta.dirname, `../golden/openapi.${service}.json`), "utf8"),
  ) as Description;

let server: Server;
const at = (service: string) =>
  `http://127.0.0.1:${(server.address() as AddressInfo).port}/${service}`;
beforeAll(async () => {
  const pages = new Map<string, string>();
  for (const service of SERVICES) {
    const options = { baseUrl: "http://localhost:8000", nonce: NONCE };
    pages.set(`/${service}`, String(await apiPage(documentOf(service), options)));
  }
  server = createServer((request, response) => {
    response.setHeader("Content-Type", "text/html; charset=utf-8");
    response.setHeader("Content-Security-Policy", pagePolicy(NONCE));
    response.end(pages.get(request.url ?? "") ?? "");
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
});
afterAll(() => server.close());

describe.skipIf(!hasChromium).each(SERVICES)("the API page of %s", (service) => {
  it.each([
    [390, false],
    [390, true],
    [1280, false],
    [1280, true],
  ])("fits a window of %i px (dark: %s), and breaks no rule of its policy", async (width, dark) => {
    const { page, complaints } = await openWindow({ width, dark });
    await page.goto(at(service));
    expect(await page.evaluate("document.documentElement.scrollWidth")).toBe(width);
    expect(complaints.filter((one) => !one.includes("favicon"))).toEqual([]);
  });

  it("is the whole list without scripts, with no search that could not work", async () => {
    const { page } = await openWindow({ javaScript: false });
    await page.goto(at(service));
    expect(await page.isVisible("input")).toBe(false);
    const operations = Object.values(documentOf(service).paths ?? {}).flatMap((one) =>
      Object.keys(one as object),
    );
    expect(await page.locator("section:visible").count()).toBe(operations.length);
    expect(await page.locator("nav li:visible").count()).toBe(operations.length);
  });
});

describe.skipIf(!hasChromium)("the API page's search", () => {
  it("leaves the routes that hold every word, and their groups", async () => {
    const { page } = await openWindow();
    await page.goto(at("markets"));
    const headings = () => page.locator("section:visible h3").allInnerTexts();
    await page.fill("input", "REVISION triangle");
    expect(await headings()).toEqual(["GET /revisions"]);
    expect(await page.locator("nav li:visible").allInnerTexts()).toHaveLength(1);
    expect(await page.locator(".group:visible h2").allInnerTexts()).toEqual(["History"]);
    await page.fill("input", "no such words");
    expect(await headings()).toEqual([]);
    await page.fill("input", "");
    expect((await headings()).length).toBeGreaterThan(10);
  });
});

describe("the API page", () => {
  const pageOf = async (service: string) =>
    String(await apiPage(documentOf(service), { baseUrl: "http://localhost:8000", nonce: NONCE }));

  it("shows a request that works as it stands, with the header of its credential", async () => {
    const markets = await pageOf("markets");
    expect(markets).toContain("/panel?symbols=power.demand/erco,power.demand/pjm&#39;");
    expect(markets).toContain("-H &quot;X-API-Key: $API_KEY&quot;");
    expect(markets).toContain("&quot;power.demand.pjm&quot;: 92310");
    const operator = await pageOf("console");
    expect(operator).toContain("-H &quot;Authorization: Bearer $TOKEN&quot;");
    expect(operator).toContain("-d &#39;{&quot;job&quot;:&quot;grid_region&quot;}&#39;");
  });

  it.each(SERVICES)("leaves no meaning blank in %s", async (service) => {
    const blank = (await pageOf(service)).replace(/\s+/g, "").match(/.{0,200}<dd><\/dd>/);
    expect(blank).toBeNull();
  });
});
