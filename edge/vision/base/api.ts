// What the routes of every room share: the prefix of their paths, lists that are read in pages, and
// how work goes on that nobody waits for any more.

import type { Context } from "hono";
import { whole } from "../../../shared/scalars.ts";

/** Every path of the contract begins with it. */
export const API = "/api/v1";

/** Which part of a list is asked for. */
export interface Page {
  /** Entries that are passed over. */
  offset: number;
  /** Entries that are given, at most. */
  limit: number;
}

/** The query of a list that is read in pages: of so many entries at most, and without a limit. */
export const pageQuery = (max: number, usual = 100) => ({
  offset: whole(0, 2_147_483_647).default(0),
  limit: whole(1, max).default(usual),
});

/** Scheme and host that a request was sent to, for absolute addresses in its answer. */
export const originOf = (context: { req: { url: string } }): string =>
  new URL(context.req.url).origin;

/** Lets the work end in order also when the sender goes away and nobody reads its answer. */
export async function toItsEnd<Result>(context: Context, work: Promise<Result>): Promise<Result> {
  context.executionCtx.waitUntil(work.catch(() => {}));
  return work;
}
