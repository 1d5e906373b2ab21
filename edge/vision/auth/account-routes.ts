// How a person gets in: register, log in, refresh, log out, change the password.
//
// A registered email is told from an unknown one by register alone, with 409: the contract's answer
// to register is a token pair, so it cannot be the same for both. It is throttled for that.

import { z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { Failure } from "../../../shared/errors.ts";
import { SignedInUser, TokenPair } from "../../../shared/wire/vision.ts";
import { json, jsonBody } from "../../http/route.ts";
import { title } from "../../http/texts.ts";
import { clientAddress } from "../../http/throttle.ts";
import type { Parts } from "../base/parts.ts";
import { anybody, type Route, route } from "../base/route.ts";
import { deleteAccount } from "./account-deletion.ts";
import {
  type Account,
  accountByEmail,
  accountById,
  createAccount,
  replaceHash,
  userRecord,
} from "./accounts.ts";
import { inPerson, loggedIn } from "./audience.ts";
import { actOf } from "./audit.ts";
import { formTokenOf } from "./browser-cookie.ts";
import { Email } from "./email.ts";
import { InvitationCode } from "./invitation-routes.ts";
import {
  checkPassword,
  hashPassword,
  PASSWORD_MAX,
  PASSWORD_MIN,
  verifyNothing,
  verifyPassword,
} from "./passwords.ts";
import { callerOf } from "./scope.ts";
import {
  changePassword,
  endAllSessions,
  endSession,
  openSession,
  refreshSession,
} from "./sessions.ts";
import {
  type Attempt,
  checkedPassword,
  countRegistration,
  PER_ADDRESS,
  PER_PAIR,
} from "./throttle.ts";
import { formerClaims } from "./tokens.ts";

const tag = "Accounts";

/** Bytes of a body that anybody may send: an email and a password. */
export const OPEN_BODY = { bytesMax: 16 * 1024 };

// Longer than what is accepted, so that the policy's own words answer; short enough to be hashed.
/** A password that is to be verified. */
export const PASSWORD = z.string().max(4 * PASSWORD_MAX);
/** A password that is to be set. */
export const NEW_PASSWORD = PASSWORD.meta({
  minLength: PASSWORD_MIN,
  maxLength: PASSWORD_MAX,
  description:
    `${PASSWORD_MIN} to ${PASSWORD_MAX} characters of any kind, not among the 3,600 most common ones ` +
    "that long, not your email address",
});

/** Longer than any token of ours. */
const DEVICE_MAX = 4_000;
const device = z
  .string()
  .max(DEVICE_MAX)
  .optional()
  .meta({
    description:
      "the last access token that the client had of this account, also one that expired within 180 " +
      "days or whose session ended: wrong passwords that others send then do not delay this login; " +
      "any other text is as none",
  });

const rotate = z.boolean().default(false).meta({
  description: "answer a new refresh token that replaces the one sent; for browsers",
});

/** A request's attempt at the account of an email. */
const attemptOf = (
  { req, var: { service } }: Pick<Context, "req"> & { var: { service: Parts } },
  email: string,
): Attempt => ({ email, address: clientAddress(req, service.behindCloudflare) });

/** The account, if this is its password, and whether its hash is to be replaced; else null. */
async function verifiedOf(account: Account, password: string) {
  const { matches, outdated } = await verifyPassword(password, account.passwordHash);
  return matches ? { account, outdated } : null;
}

/** The caller's account, if this is its password; fails with `bad_credentials`. */
async function verifiedCaller(
  context: Pick<Context, "req" | "get"> & { var: { service: Parts } },
  password: string,
): Promise<Account> {
  const parts = context.var.service;
  const { accountId, email, session } = callerOf(context);
  const attempt = { ...attemptOf(context, email), session };
  const found = await checkedPassword(parts, attempt, async () => {
    const account = await accountById(parts, accountId);
    return account && verifiedOf(account, password);
  });
  if (!found) throw new Failure("bad_credentials", "the current password is another");
  return found.account;
}

/**
 * The account of a login. Fails with `bad_credentials`, in the same time whether or not the account
 * exists, and with `too_many_attempts`.
 */
export async function verifiedLogin(
  context: Pick<Context, "req"> & { var: { service: Parts } },
  { email, password, device }: { email: string; password: string; device?: string | undefined },
): Promise<Account> {
  const parts = context.var.service;
  const former = await formerClaims(parts, { email, token: device });
  const isOwn = former && (await accountById(parts, former.accountId)) !== null;
  const session = isOwn ? former.session : null;
  const attempt = { ...attemptOf(context, email), session };
  const found = await checkedPassword(parts, attempt, async () => {
    const account = await accountByEmail(parts, email);
    if (!account) await verifyNothing(password);
    return account && verifiedOf(account, password);
  });
  if (!found) throw new Failure("bad_credentials", "email and password do not match an account");
  const { account, outdated } = found;
  if (outdated) await replaceHash(parts, account, await hashPassword(password));
  return account;
}

/** Routes of accounts and sessions. */
export const accountRoutes: readonly Route[] = [
  route(
    {
      call: "POST /auth/register",
      operationId: "makeAccount",
      tag,
      summary: "Make an account",
      description:
        "The user joins the default workspace as viewer; the first account of an installation is its " +
        "admin. Where `REGISTRATION` is `invited`, an account is made by an invitation alone, " +
        "where it is `closed` by none; where there is a `BOOTSTRAP_TOKEN`, whoever sends it as `invitation` becomes the " +
        "first admin, once.",
      who: anybody,
      body: jsonBody(
        z.strictObject({
          email: Email,
          password: NEW_PASSWORD,
          display_name: title(),
          invitation: InvitationCode.optional().meta({
            description:
              "beyond the contract: a code that an admin made, whose workspace is joined as well; " +
              "needed where registration is by invitation",
          }),
        }),
        OPEN_BODY,
      ),
      answers: { 201: json("the new user's tokens", TokenPair) },
      errors: ["not_invited", "email_taken", "too_many_attempts"],
    },
    async (context) => {
      const parts = context.var.service;
      const body = context.req.valid("json");
      checkPassword(body.password, body.email);
      await countRegistration(parts, attemptOf(context, body.email));
      const account = await createAccount(parts, {
        email: body.email,
        displayName: body.display_name,
        passwordHash: await hashPassword(body.password),
        invitation: body.invitation,
        requestId: context.var.requestId,
      });
      return context.json(await openSession(parts, account), 201);
    },
  ),
  route(
    {
      call: "POST /auth/login",
      operationId: "openSession",
      tag,
      summary: "Log in",
      description:
        `At most ${PER_PAIR} wrong passwords a minute for an email from one address, and ${PER_ADDRESS} ` +
        "from one address. Wrong ones for an email, from wherever they come, are checked one after " +
        "another: ten at once, then one in two seconds; who would wait over 8 s is answered 429. The " +
        "owner is not locked out by that: an address at which they logged in within 30 days has a " +
        "line of its own, and so has each of the account's sessions, for whoever sends a token of it " +
        `as \`device\` (beyond the contract), which is counted instead of the address, ${PER_PAIR} ` +
        "wrong passwords a minute.",
      who: anybody,
      body: jsonBody(z.strictObject({ email: Email, password: PASSWORD, device }), OPEN_BODY),
      answers: { 200: json("tokens", TokenPair) },
      errors: ["bad_credentials", "too_many_attempts"],
    },
    async (context) => {
      const account = await verifiedLogin(context, context.req.valid("json"));
      return context.json(await openSession(context.var.service, account), 200);
    },
  ),
  route(
    {
      call: "POST /auth/refresh",
      operationId: "refreshTokens",
      tag,
      summary: "A fresh access token",
      description:
        "The refresh token stays the same, and is valid for 30 days from the login, until logout or a " +
        "change of the password. With `rotate` (beyond the contract) a new one replaces it, valid for " +
        "30 days from now; the replaced one, sent again more than 10 s later, is 401 and ends the " +
        "session, since somebody copied it.",
      who: anybody,
      body: jsonBody(z.strictObject({ refresh_token: z.string().max(200), rotate }), OPEN_BODY),
      answers: { 200: json("tokens", TokenPair) },
      errors: ["unauthorized"],
    },
    async (context) => {
      const { refresh_token: refreshToken, rotate } = context.req.valid("json");
      return context.json(await refreshSession(context.var.service, { refreshToken, rotate }), 200);
    },
  ),
  route(
    {
      call: "GET /auth/me",
      operationId: "readAccount",
      tag,
      summary: "Who you are",
      who: loggedIn,
      description: "An API token sees its workspaces alone, with the roles that it has in them.",
      answers: { 200: json("the caller", SignedInUser) },
    },
    async (context) => {
      const parts = context.var.service;
      const { accountId, apiToken, byCookie, memberships, session } = callerOf(context);
      const form_token = byCookie ? await formTokenOf(parts, session) : null;
      const own = { ...(await userRecord(parts, accountId)), form_token };
      if (!apiToken) return context.json(own, 200);
      const workspaces = own.workspaces.flatMap((one) => {
        const role = memberships.get(one.workspace_id);
        return role ? [{ ...one, role }] : [];
      });
      return context.json({ ...own, workspaces }, 200);
    },
  ),
  route(
    {
      call: "POST /auth/logout",
      operationId: "endSession",
      tag,
      summary: "End this session, or with `everywhere` all of yours",
      description:
        "Beyond the contract. Refresh tokens end at once, access tokens within a minute. The body may " +
        "be left out.",
      who: inPerson,
      body: {
        content: {
          "application/json": {
            schema: z.strictObject({ everywhere: z.boolean().default(false) }),
          },
        },
        required: false,
      },
      answers: { 204: { description: "ended" } },
    },
    async (context) => {
      const parts = context.var.service;
      const { accountId, session } = callerOf(context);
      // Without a body nothing was validated.
      const { everywhere = false } = context.req.valid("json") ?? {};
      if (everywhere) await endAllSessions(parts, accountId);
      else await endSession(parts, accountId, session);
      return context.body(null, 204);
    },
  ),
  route(
    {
      call: "POST /auth/password",
      operationId: "changePassword",
      tag,
      summary: "Change the password",
      description:
        "Beyond the contract. Ends every session of the account and answers the tokens of a new one.",
      who: inPerson,
      body: jsonBody(z.strictObject({ current_password: PASSWORD, new_password: NEW_PASSWORD })),
      answers: { 200: json("tokens", TokenPair) },
      errors: ["bad_credentials", "state_conflict", "too_many_attempts"],
    },
    async (context) => {
      const parts = context.var.service;
      const body = context.req.valid("json");
      checkPassword(body.new_password, callerOf(context).email);
      const account = await verifiedCaller(context, body.current_password);
      const hash = await hashPassword(body.new_password);
      const sessionVersion = await changePassword(parts, account, hash);
      if (sessionVersion === null) {
        throw new Failure("state_conflict", "the password was changed by another request");
      }
      return context.json(await openSession(parts, { ...account, sessionVersion }), 200);
    },
  ),
  route(
    {
      call: "POST /auth/me/delete",
      operationId: "deleteAccount",
      tag,
      summary: "Delete your account",
      description:
        "Beyond the contract. Sessions, API tokens, codes and memberships end, as after a logout; " +
        "name and email are erased. What you made stays, under an id that leads to nobody. The " +
        "email may register anew, as another account without the rights of this one. The last admin " +
        "of a workspace cannot be deleted: `workspaces` names those that would have none.",
      who: inPerson,
      body: jsonBody(z.strictObject({ password: PASSWORD })),
      answers: { 204: { description: "the account is gone" } },
      errors: ["bad_credentials", "state_conflict", "too_many_attempts"],
    },
    async (context) => {
      const parts = context.var.service;
      const account = await verifiedCaller(context, context.req.valid("json").password);
      const act = actOf(context, "deleteAccount");
      await deleteAccount(parts, { ...account, act });
      return context.body(null, 204);
    },
  ),
];
