// The page of `runners/javascript` in Chromium, as users have it: the runtimes come from where its
// import map says, out of node_modules in those very versions.

import { readFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { extname, join, resolve } from "node:path";
import type { Page } from "playwright-core";
import { afterAll, expect } from "vitest";
import { openWindow } from "./browser.ts";

const ROOT = resolve(import.meta.dirname, "../..");
const RUNNERS = join(ROOT, "runners/javascript");
const CDN = "https://cdn.jsdelivr.net/npm/";
const FILES = ["browser.html", "browser.mjs", "detections.mjs"];
const TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html",
  ".js": "text/javascript",
  ".mjs": "text/javascript",
  ".wasm": "application/wasm",
};
const typeOf = (path: string) => TYPES[extname(path)] ?? "application/octet-stream";

/** A line that a runner prints. */
export interface DetectedObject {
  class: number;
  score: number;
  box: number[];
}

/** The objects of a runner's lines. */
export const objectsPrinted = (text: string): DetectedObject[] =>
  text
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line));

export interface RunnerPage {
  page: Page;
  /** What the page complained about so far. */
  complaints: string[];
  /** The objects that the page prints for a file of this name and an image's path. */
  detect(name: string, file: Uint8Array, image: string): Promise<DetectedObject[]>;
}

let server: Server | undefined;
afterAll(() => server?.close());

async function portOfServer(): Promise<number> {
  if (!server) {
    const own = createServer((request, response) => {
      const name = request.url?.slice(1) ?? "";
      if (!FILES.includes(name)) {
        response.writeHead(name === "favicon.ico" ? 204 : 404).end();
        return;
      }
      response.setHeader("content-type", typeOf(name)).end(readFileSync(join(RUNNERS, name)));
    });
    server = own;
    await new Promise<void>((done) => own.listen(0, "127.0.0.1", done));
  }
  return (server.address() as AddressInfo).port;
}

/** Opens the page in a window of its own, with its own cut of scores unless another is given. */
export async function openRunnerPage(confidence?: number): Promise<RunnerPage> {
  const { page, context, complaints } = await openWindow();
  await context.route(`${CDN}**`, (route) => {
    const [, name = "", version = "", path = ""] =
      /^((?:@[^/]+\/)?[^@/]+)@([^/]+)\/(.*)$/.exec(route.request().url().slice(CDN.length)) ?? [];
    const folder = join(ROOT, "node_modules", name);
    const installed = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")).version;
    if (installed !== version) return route.fulfill({ status: 404 });
    return route.fulfill({
      body: readFileSync(join(folder, path)),
      contentType: typeOf(path),
      headers: { "access-control-allow-origin": "*" },
    });
  });
  await page.goto(`http://127.0.0.1:${await portOfServer()}/browser.html`);
  if (confidence !== undefined) await page.fill("[name=confidence]", String(confidence));
  const detect = async (name: string, file: Uint8Array, image: string) => {
    const model = { name, mimeType: "application/octet-stream", buffer: Buffer.from(file) };
    await page.setInputFiles("[name=model]", model);
    await page.setInputFiles("[name=image]", image);
    await page.click("button");
    await page.locator("[role=status]", { hasText: /objects|failed/ }).waitFor();
    expect(await page.textContent("[role=status]")).toMatch(/^\d+ objects$/);
    return objectsPrinted((await page.textContent("pre")) ?? "");
  };
  return { page, detect, complaints };
}
