// The session of a browser: signing in sets a cookie that pages of this origin are sent with, and
// signing out removes it. Pages of other sites can do neither.

import { z } from "@hono/zod-openapi";
import type { Context, MiddlewareHandler } from "hono";
import { SignedInUser } from "../../../shared/wire/vision.ts";
import { headers } from "../../http/description.ts";
import { json, jsonBody } from "../../http/route.ts";
import type { Parts } from "../base/parts.ts";
import { anybody, type Route, route } from "../base/route.ts";
import { OPEN_BODY, PASSWORD, verifiedLogin } from "./account-routes.ts";
import { userRecord } from "./accounts.ts";
import {
  cookieOf,
  formTokenOf,
  removeCookie,
  requireForm,
  requireOwnSite,
  sendCookie,
} from "./browser-cookie.ts";
import { cookieState } from "./caller-state.ts";
import { Email } from "./email.ts";
import { endSession, openBrowserSession } from "./sessions.ts";

const tag = "Accounts";

const fromOwnSite: MiddlewareHandler = async (context, next) => {
  requireOwnSite(context);
  await next();
};

/** Anybody but pages of other sites. */
const ownPages = {
  ...anybody,
  guards: [fromOwnSite],
  errors: ["form_refused"],
} as const;

/** The living session of a request's cookie; null where there is none. */
async function sessionOf(context: Context, parts: Parts) {
  const value = cookieOf(context);
  return value === null ? null : cookieState(parts, value);
}

/** Routes of browsers' sessions. */
export const browserSessionRoutes: readonly Route[] = [
  route(
    {
      call: "POST /auth/session",
      operationId: "openBrowserSession",
      tag,
      summary: "Log in with a browser",
      description:
        "Beyond the contract. Opens a session whose secret is in the cookie `__Host-vantage`, which " +
        "pages of this origin are sent with, images too, and scripts cannot read. It lasts until 30 " +
        "days after its last use, and ends the session of the cookie that the browser had. Passwords " +
        "are limited as for `POST /auth/login`.",
      who: ownPages,
      body: jsonBody(z.strictObject({ email: Email, password: PASSWORD }), OPEN_BODY),
      answers: {
        201: json("who you are, and the form token", SignedInUser, headers("Set-Cookie")),
      },
      errors: ["bad_credentials", "too_many_attempts"],
    },
    async (context) => {
      const parts = context.var.service;
      const account = await verifiedLogin(context, context.req.valid("json"));
      const { session, cookie } = await openBrowserSession(parts, account);
      const replaced = await sessionOf(context, parts);
      if (replaced) await endSession(parts, replaced.accountId, replaced.session);
      const user = await userRecord(parts, account.accountId);
      sendCookie(context, cookie);
      return context.json({ ...user, form_token: await formTokenOf(parts, session) }, 201);
    },
  ),
  route(
    {
      call: "DELETE /auth/session",
      operationId: "endBrowserSession",
      tag,
      summary: "Log a browser out",
      description:
        "Beyond the contract. Ends the session of the cookie, within a minute everywhere, and removes " +
        "the cookie. A session that has not ended needs the header `X-Form-Token`.",
      who: ownPages,
      answers: { 204: { description: "ended", headers: headers("Set-Cookie") } },
    },
    async (context) => {
      const parts = context.var.service;
      const known = await sessionOf(context, parts);
      if (known) {
        await requireForm(context, parts, known.session);
        await endSession(parts, known.accountId, known.session);
      }
      removeCookie(context);
      return context.body(null, 204);
    },
  ),
];
