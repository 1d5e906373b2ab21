// What the routes of every room share: the prefix of their paths, how a caller is known, the errors
// that most of them may answer, and how work goes on that nobody waits for any more.

import type { Context } from "hono";
import { whole } from "../../../shared/scalars.ts";
import { errorResponses } from "../../http/app.ts";

/** Every path of the contract begins with it. */
export const API = "/api/v1";

/** Security of a route that an access token opens. */
export const bearer = [{ accessToken: [] }];

const common = ["unauthorized", "not_found", "invalid_request", "store_unavailable"] as const;

/** Errors of a route that lists things of the caller's workspaces. */
export const listErrors = errorResponses("unauthorized", "invalid_request", "store_unavailable");
/** Errors of a route that reads one thing. */
export const readErrors = errorResponses(...common);
/** Errors of a route that changes something and takes no body. */
export const writeErrors = errorResponses(...common, "forbidden");
/** Errors of a route that changes something as its JSON body says. */
export const bodyErrors = errorResponses(...common, "forbidden", "bad_body");
/** The error of a route that something's state may forbid. */
export const conflict = errorResponses("state_conflict");

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
