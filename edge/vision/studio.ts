// The Studio over HTTP: every address below `/studio` is one page, whose program reads the address,
// but for the program's own files.

import { Failure } from "../../shared/errors.ts";
import type { App } from "../http/app.ts";
import type { Parts } from "./base/parts.ts";

/** Where the Studio begins. */
export const STUDIO = "/studio";
const PAGE = `${STUDIO}/index.html`;
const ASSETS = `${STUDIO}/assets/*`;

/** What the page may load, and whom it may ask: the service itself, and the store for uploads. */
const policyOf = (storeOrigin: string, { host, protocol }: URL): string => {
  const socket = `${protocol === "https:" ? "wss:" : "ws:"}//${host}`;
  return [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "font-src 'self'",
    "img-src 'self' blob:",
    `connect-src 'self' ${socket} ${storeOrigin}`,
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join("; ");
};

/** Adds the pages of the Studio and their files. */
export function addStudio(app: App<Parts>): void {
  app.get(ASSETS, async (context) => {
    const file = await context.var.service.studio.fetch(context.req.url);
    if (!file.ok)
      throw new Failure("not_found", "the Studio has no such file; load the page again");
    // The platform types its streams apart from the DOM's.
    const body = file.body as unknown as ReadableStream<Uint8Array>;
    return context.body(body, 200, {
      "Content-Type": file.headers.get("Content-Type") ?? "application/octet-stream",
      // A file's name holds a digest of its content.
      "Cache-Control": "public, max-age=31536000, immutable",
    });
  });
  for (const path of [STUDIO, `${STUDIO}/*`]) {
    app.get(path, async (context) => {
      const { studio, s3 } = context.var.service;
      const url = new URL(context.req.url);
      const page = await studio.fetch(new URL(PAGE, url).href);
      return context.body(await page.text(), 200, {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": policyOf(new URL(s3.url).origin, url),
        "Cache-Control": "no-cache",
      });
    });
  }
}
