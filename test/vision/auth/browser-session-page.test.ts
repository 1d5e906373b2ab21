// A browser's session in Chromium, whose rules of cookies and origins it relies on: a page of the
// service's own origin works by the cookie, over plain HTTP on this machine too, and the pages of
// other origins in the same window do not.

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { sql } from "drizzle-orm";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { API } from "../../../edge/vision/base/api.ts";
import { hasChromium, openWindow } from "../../support/browser.ts";
import { everything, type Ids } from "../../support/everything.ts";
import { newTenant, PASSWORD, type Person, register } from "../../support/vision.ts";
import { createWorld, type World } from "../../support/world.ts";

const PIXEL =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

let world: World;
let url: string;
let owner: Person;
let ids: Ids;
/** A server of pages of another origin. */
const elsewhere = createServer((_, response) => {
  response.setHeader("Content-Type", "text/html").end("<!doctype html><title>Elsewhere</title>");
});

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  url = world.urls.vision;
  const tenant = await newTenant(url, await register(url), "admin");
  owner = tenant.member;
  ids = await everything(world, tenant);
  const key = `ws/${ids.workspace_id}/videos/${ids.video_id}/thumbnail.jpg`;
  await world.media.put(key, Buffer.from(PIXEL, "base64"));
  await world.visionDatabase.execute(sql`
    UPDATE video SET thumbnail_key = ${key} WHERE id = ${ids.video_id ?? ""}::uuid`);
  await new Promise<void>((done) => elsewhere.listen(0, done));
});
afterAll(() => elsewhere.close());

interface PageAnswer {
  status: number;
  body: Record<string, unknown> | null;
}

/** What a page's own script is answered; null where the browser lets it read nothing. */
const askFrom = (
  page: Page,
  path: string,
  options: { method?: string; headers?: Record<string, string>; body?: string; mode?: string } = {},
): Promise<PageAnswer | null> => {
  const given = JSON.stringify({ credentials: "include", ...options });
  return page.evaluate(`fetch(${JSON.stringify(url + API + path)}, ${given}).then(async (answer) =>
    ({ status: answer.status, body: await answer.json().catch(() => null) })).catch(() => null)`);
};

/** Whether a page shows the video's thumbnail. */
const showsImage = (page: Page): Promise<boolean> =>
  page.evaluate(`new Promise((done) => {
    const image = new Image();
    image.onload = () => done(image.naturalWidth === 1);
    image.onerror = () => done(false);
    image.src = ${JSON.stringify(`${url}${API}/videos/${ids.video_id}/thumbnail.jpg`)};
  })`);

const JSON_TYPE = { "Content-Type": "application/json" };
const signInAt = (page: Page) =>
  askFrom(page, "/auth/session", {
    method: "POST",
    headers: JSON_TYPE,
    body: JSON.stringify({ email: owner.email, password: PASSWORD }),
  });
const projectNames = async () => JSON.stringify((await owner.ask("GET", "/projects")).body);

describe.skipIf(!hasChromium)("a page in Chromium", () => {
  it("of the same origin reads, shows images and writes, and no script sees the cookie", async () => {
    const { page, context } = await openWindow();
    await page.goto(`${url}/healthz`);
    expect(await showsImage(page)).toBe(false);
    const signedIn = await signInAt(page);
    expect(signedIn?.status).toBe(201);
    expect(await page.evaluate("document.cookie")).toBe("");
    expect(await showsImage(page)).toBe(true);
    const make = (headers: Record<string, string>) => {
      const body = JSON.stringify({ name: "by page" });
      return askFrom(page, "/projects", { method: "POST", headers, body });
    };
    expect(await make(JSON_TYPE)).toMatchObject({ status: 403, body: { code: "form_refused" } });
    // A second tab has the cookie, and learns the form token.
    const tab = await context.newPage();
    await tab.goto(`${url}/healthz`);
    const me = await askFrom(tab, "/auth/me");
    expect(me).toMatchObject({ status: 200, body: { id: owner.id } });
    const token = String(me?.body?.form_token);
    expect(token).toBe(signedIn?.body?.form_token);
    expect((await make({ ...JSON_TYPE, "X-Form-Token": token }))?.status).toBe(201);
    const headers = { "X-Form-Token": token };
    expect((await askFrom(tab, "/auth/session", { method: "DELETE", headers }))?.status).toBe(204);
    expect(await context.cookies()).toEqual([]);
    expect((await askFrom(page, "/auth/me"))?.status).toBe(401);
  });

  it.each(["127.0.0.1", "localhost"])("of another origin does none of it: %s", async (host) => {
    const { page, context } = await openWindow();
    await page.goto(`${url}/healthz`);
    const token = String((await signInAt(page))?.body?.form_token);
    const foreign = await context.newPage();
    await foreign.goto(`http://${host}:${(elsewhere.address() as AddressInfo).port}/`);
    expect(await showsImage(foreign)).toBe(false);
    expect(await askFrom(foreign, "/auth/me")).toBeNull();
    const body = JSON.stringify({ name: "forged" });
    const headers = { ...JSON_TYPE, "X-Form-Token": token };
    expect(await askFrom(foreign, "/projects", { method: "POST", headers, body })).toBeNull();
    // What needs no preflight arrives, and does nothing.
    await askFrom(foreign, "/projects", { method: "POST", mode: "no-cors", body });
    await askFrom(foreign, "/auth/logout", { method: "POST", mode: "no-cors" });
    expect(await signInAt(foreign)).toBeNull();
    expect(await projectNames()).not.toContain("forged");
    expect((await askFrom(page, "/auth/me"))?.body?.form_token).toBe(token);
  });
});
