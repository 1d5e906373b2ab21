// What a request of a browser is: whether it only reads, and whether a page of this service sent
// it, as browsers say in `Sec-Fetch-Site`, which no page can set itself.

import type { Context } from "hono";

type Request = Pick<Context, "req">;

const READING = new Set(["GET", "HEAD", "OPTIONS"]);

/** Whether a request changes nothing, by its method. */
export const isReading = ({ req }: Request): boolean => READING.has(req.method);

/** `Sec-Fetch-Site` of pages of the same origin, and of an address that a person opened. */
export const OWN_SITE = ["same-origin", "none"] as const;

/** Whether no page of another origin sent a request. Programs send no such header, and pass. */
export function isFromOwnSite({ req }: Request): boolean {
  const site = req.header("Sec-Fetch-Site");
  return site === undefined || OWN_SITE.some((own) => own === site);
}
