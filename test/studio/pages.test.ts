// The Studio in a real browser, as a newcomer uses it: an account, a project, files, a labeling
// job. Every page is looked at in two widths and two themes for what shuts people out.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Page } from "playwright-core";
import { beforeAll, describe, expect, it } from "vitest";
import type { Detection } from "../../shared/tasks/tasks.ts";
import { hasChromium, openWindow, type Window, type WindowOptions } from "../support/browser.ts";
import { form, mp4, png, text } from "../support/media.ts";
import {
  apiAs,
  labelAs,
  type Person,
  register,
  type ScriptedNode,
  scriptedNode,
} from "../support/scripted-node.ts";
import { createWorld, type World } from "../support/world.ts";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const PASSWORD = "a long enough password 1";
const CAR: Detection = {
  class_name: "car",
  bbox: [10, 10, 60, 60],
  confidence: 0.9,
  polygon: null,
  duplicate_of: null,
};
/** Names that a careless page would run, break on or turn around. */
const HOSTILE = `<img src=x onerror=alert(1)> "'&amp; \u202Egnp.exe 标签`;

const IMAGE = { field: "files", filename: `${HOSTILE}.png`, content: png() };

let world: World;
let admin: Person;
let node: ScriptedNode;
beforeAll(async () => {
  if (!hasChromium) return;
  world = await createWorld({ services: ["vision"] });
  admin = await register(world);
  node = await scriptedNode(world, admin, {
    label: labelAs(() => [CAR]),
  });
});

const at = (path: string) => `${world.urls.vision}${path}`.replace("127.0.0.1", "localhost");

/** A window of the Studio with a new account of a role in the administrator's workspace. */
async function signedIn(role: "viewer" | "engineer", options: WindowOptions = {}): Promise<Window> {
  const email = `${crypto.randomUUID()}@example.com`;
  const body = { email, password: PASSWORD, display_name: "Mara Olsen" };
  const { access_token: token } = await apiAs(world.urls.vision, "").ok<{ access_token: string }>(
    "POST",
    "/auth/register",
    body,
  );
  const { id } = await apiAs(world.urls.vision, token).ok<{ id: string }>("GET", "/auth/me");
  await admin.ok("PATCH", `/admin/users/${id}`, { role });
  const window = await openWindow(options);
  await window.page.goto(at("/studio"));
  await signIn(window.page, email);
  return window;
}

async function signIn(page: Page, email: string) {
  await page.getByLabel("Email").fill(email);
  await page.getByLabel("Password").fill(PASSWORD);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  await page.getByRole("dialog").waitFor({ state: "hidden" });
}

/** What a page complained about, but for the question who is signed in before anybody is. */
const complaintsOf = ({ complaints }: Window) => complaints.filter((one) => !/401/.test(one));

/** What axe finds on a page that keeps people out. */
async function barriers(page: Page): Promise<string[]> {
  await page.evaluate(AXE);
  return page.evaluate(async () => {
    // The library puts itself there.
    const { axe } = globalThis as unknown as {
      axe: { run(): Promise<{ violations: { id: string; impact: string; nodes: unknown[] }[] }> };
    };
    const { violations } = await axe.run();
    return violations
      .filter(({ impact }) => impact === "serious" || impact === "critical")
      .map(({ id, nodes }) => `${id} ${JSON.stringify(nodes).slice(0, 300)}`);
  });
}

describe.skipIf(!hasChromium)("the Studio", () => {
  it("takes a newcomer from an account to a labeled clip, by keys where there are any", async () => {
    const window = await signedIn("engineer");
    const { page } = window;
    await page.getByText("No project yet").waitFor();
    await page.keyboard.press("n");
    await page.getByRole("textbox", { name: "Name" }).fill(HOSTILE);
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Choose files" }).waitFor();
    expect(await page.title()).toBe(`${HOSTILE} · Vantage Studio`);

    const [chooser] = await Promise.all([
      page.waitForEvent("filechooser"),
      page.keyboard.press("u"),
    ]);
    await chooser.setFiles([
      { name: "clip.mp4", mimeType: "video/mp4", buffer: Buffer.from(mp4()) },
      {
        name: `${HOSTILE.replaceAll("/", "")}.png`,
        mimeType: "image/png",
        buffer: Buffer.from(png()),
      },
      { name: "notes.mp4", mimeType: "video/mp4", buffer: Buffer.from(text()) },
    ]);
    await page.getByText("2 of 3 files, 1 failed").waitFor();
    const tray = page.getByRole("region", { name: "Uploads" });
    expect(await tray.getByText(/request [0-9a-f-]{36}/).count()).toBe(1);
    await node.work();
    await page.getByText("10 frames").first().waitFor();

    await page.keyboard.press("l");
    await page.getByLabel("What to look for").fill("zebroid");
    await page.getByRole("button", { name: "Start labeling" }).click();
    await page.getByRole("alert").waitFor();
    await page.getByLabel("What to look for").fill("car");
    await page.getByRole("button", { name: "Start labeling" }).click();
    await page.getByText("0 of", { exact: false }).waitFor();
    await node.work();
    await page.getByRole("row", { name: /car/ }).waitFor();
    await page.goBack();
    await page.goBack();
    await page.getByRole("link", { name: /car.*done/ }).waitFor();
    expect(complaintsOf(window).filter((one) => !/4(15|22)/.test(one))).toEqual([]);
  });

  it("tells who has no right, in words, and shows what may be seen", async () => {
    const project = await admin.ok<{ project_id: string }>("POST", "/projects", { name: "Shared" });
    const { page } = await signedIn("viewer");
    await page.getByRole("link", { name: /Shared/ }).click();
    await page.getByText("Somebody with the role engineer uploads them.").waitFor();
    expect(await page.getByRole("button", { name: "Upload" }).count()).toBe(0);
    await page.goto(at(`/studio/p/${crypto.randomUUID()}`));
    await page.getByText("There is nothing here for you.").first().waitFor();
    await page.goto(at("/studio/p/%zz"));
    await page.getByText("There is no such page").waitFor();
    await page.goto(at("/studio/nowhere"));
    await page.getByText("There is no such page").waitFor();
    await page.goto(at(`/studio/p/${project.project_id}`));
    await page.getByRole("heading", { name: "Shared" }).waitFor();
  });

  it("opens a sign-in over the page when the session is over, and goes on where it was", async () => {
    const window = await signedIn("engineer");
    const { page, context } = window;
    await page
      .getByRole("button", { name: /New project/ })
      .first()
      .click();
    await page.getByRole("textbox", { name: "Name" }).fill("Kept over the sign-in");
    await context.clearCookies();
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Sign in again" }).waitFor();
    await page.getByLabel("Password").fill(PASSWORD);
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Kept over the sign-in" }).waitFor();
  });

  it("keeps its sign-in over Escape, and takes a newer session of another tab", async () => {
    const { page } = await openWindow();
    await page.goto(at("/studio"));
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
    for (let times = 0; times < 3; times++) await page.keyboard.press("Escape");
    expect(await page.getByRole("heading", { name: "Sign in" }).isVisible()).toBe(true);

    const first = await signedIn("engineer");
    const email = await first.page.evaluate(
      "fetch('/api/v1/auth/me').then((answer) => answer.json()).then(({ email }) => email)",
    );
    const body = JSON.stringify({ email, password: PASSWORD });
    const headers = { "Content-Type": "application/json" };
    const init = JSON.stringify({ method: "POST", body, headers });
    // As another tab of this browser does: this one's form token is of a session that is over.
    await first.page.evaluate(`fetch("/api/v1/auth/session", ${init})`);
    await first.page
      .getByRole("button", { name: /New project/ })
      .first()
      .click();
    await first.page.getByRole("textbox", { name: "Name" }).fill("Made with a newer session");
    await first.page.keyboard.press("Enter");
    await first.page.getByRole("heading", { name: "Made with a newer session" }).waitFor();
  });

  it("says as of when it shows things while the service cannot be reached, and comes back", async () => {
    const { page, context } = await signedIn("engineer");
    await page
      .getByRole("button", { name: /New project/ })
      .first()
      .waitFor();
    await context.setOffline(true);
    await page.getByRole("searchbox").fill("nowhere to be found");
    await page.getByText("The service cannot be reached", { exact: false }).waitFor();
    await context.setOffline(false);
    await page.getByText("No project has this in its name").waitFor();
  });

  it.each([
    [1280, true],
    [1280, false],
    [390, true],
    [390, false],
  ] as const)("shuts nobody out at %d px, dark: %s, and asks nobody else", async (width, dark) => {
    const { project_id } = await admin.ok<{ project_id: string }>("POST", "/projects", {
      name: HOSTILE,
    });
    await admin.ok("POST", "/upload/images", form(["project_id", project_id], IMAGE));
    await node.work();
    const window = await signedIn("engineer", { width, dark });
    const { page } = window;
    const asked = new Set<string>();
    page.on("request", (request) => asked.add(new URL(request.url()).hostname));
    for (const path of [
      "/studio",
      `/studio/p/${project_id}`,
      `/studio/label?project=${project_id}`,
    ]) {
      await page.goto(at(path));
      await page.getByRole("heading").first().waitFor();
      await expect.poll(() => page.getByRole("status", { name: "Loading" }).count()).toBe(0);
      expect([path, await barriers(page)]).toEqual([path, []]);
      const overflow = await page.evaluate("document.documentElement.scrollWidth > innerWidth");
      expect([path, overflow]).toEqual([path, false]);
    }
    await page.keyboard.press("?");
    await page.getByRole("heading", { name: "Keys" }).waitFor();
    expect(await barriers(page)).toEqual([]);
    expect([...asked]).toEqual(["localhost"]);
  });
});

it("sends pages with a policy, files for ever, and no file that there is not", async () => {
  if (!hasChromium) world = await createWorld({ services: ["vision"] });
  const home = await fetch(`${world.urls.vision}/`, { redirect: "manual" });
  expect([home.status, home.headers.get("Location")]).toEqual([302, "/studio"]);
  const page = await fetch(`${world.urls.vision}/studio/p/anything?q=1`);
  expect(page.status).toBe(200);
  expect(page.headers.get("Content-Security-Policy")).toMatch(
    /default-src 'none'; script-src 'self'/,
  );
  expect(page.headers.get("Cache-Control")).toBe("no-cache");
  const [file = ""] = /\/studio\/assets\/main-\w+\.js/.exec(await page.text()) ?? [];
  const script = await fetch(world.urls.vision + file);
  expect(script.headers.get("Content-Type")).toMatch(/^text\/javascript/);
  expect(script.headers.get("Cache-Control")).toMatch(/immutable/);
  const missing = await fetch(`${world.urls.vision}/studio/assets/main-00000000.js`);
  expect([missing.status, missing.headers.get("Cache-Control")]).toEqual([404, "no-store"]);
});
