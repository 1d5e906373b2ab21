// Chromium for tests that drive real pages. Whatever a page complains about is kept: refused by its
// policy, thrown by a script, or not found.

import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";
import { afterAll, afterEach } from "vitest";
import { hasProgram } from "./programs.ts";

export const hasChromium = hasProgram("chromium");

let browser: Browser | undefined;
const opened: BrowserContext[] = [];
// Pages go on asking for news while they are open, which costs the tests that follow.
afterEach(async () => {
  await Promise.all(opened.splice(0).map((context) => context.close()));
});
afterAll(() => browser?.close());

export interface Window {
  context: BrowserContext;
  page: Page;
  /** What pages of this window complained about so far. */
  complaints: string[];
}

export interface WindowOptions {
  width?: number;
  dark?: boolean;
  javaScript?: boolean;
  /** Its IANA time zone; that of this machine when omitted. */
  timezone?: string;
}

/** A window of its own, with its own cookies; it is closed when its test ends. */
export async function openWindow({
  width = 1280,
  dark = false,
  javaScript = true,
  timezone,
}: WindowOptions = {}): Promise<Window> {
  browser ??= await chromium.launch({
    executablePath: "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
  });
  const context = await browser.newContext({
    viewport: { width, height: width < 600 ? 844 : 800 },
    colorScheme: dark ? "dark" : "light",
    javaScriptEnabled: javaScript,
    ...(timezone ? { timezoneId: timezone } : {}),
  });
  opened.push(context);
  const page = await context.newPage();
  // A busy machine is slow, not wrong: limits are against hanging.
  page.setDefaultTimeout(180_000);
  const complaints: string[] = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("response", (response) => {
    const { pathname } = new URL(response.url());
    if (response.status() >= 400) complaints.push(`${response.status()} ${pathname}`);
  });
  return { context, page, complaints };
}
