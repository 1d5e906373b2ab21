// Personal API tokens over HTTP: each person makes, lists and revokes their own.

import { z } from "@hono/zod-openapi";
import { whole } from "../../../shared/scalars.ts";
import { Role } from "../../../shared/wire/vision.ts";
import { json, jsonBody } from "../../http/route.ts";
import { title } from "../../http/texts.ts";
import { type Route, route } from "../base/route.ts";
import { API_TOKENS_MAX, createApiToken, listApiTokens, revokeApiToken } from "./api-tokens.ts";
import { inPerson } from "./audience.ts";
import { actOf } from "./audit.ts";
import { allow, callerOf } from "./scope.ts";

const tag = "Accounts";
const DAYS_MAX = 365;
const DAYS = 90;

const TokenId = z.uuid().meta({ description: "an API token" });
const ApiToken = z
  .object({
    token_id: TokenId,
    name: z.string(),
    prefix: z.string().meta({ description: "the token's first characters, to recognise it by" }),
    role: Role.meta({
      description:
        "a ceiling: in each workspace the token has the lower of this role and its owner's there",
    }),
    workspace_id: z
      .uuid()
      .nullable()
      .meta({ description: "the only workspace that it sees; null: all of its owner's" }),
    created_at: z.iso.datetime(),
    expires_at: z.iso.datetime(),
    last_used_at: z.iso
      .datetime()
      .nullable()
      .meta({ description: "when it was last used, up to an hour late; null: never" }),
  })
  .meta({ id: "ApiToken" });
const NewApiToken = ApiToken.extend({
  token: z.string().meta({ description: "for `Authorization: Bearer`; shown only here" }),
}).meta({ id: "NewApiToken" });

/** Routes of API tokens. */
export const apiTokenRoutes: readonly Route[] = [
  route(
    {
      call: "POST /auth/tokens",
      operationId: "makeApiToken",
      tag,
      summary: "Make an API token for a program of yours",
      description:
        "Beyond the contract. A program sends the token in place of an access token, on every route " +
        "but those that manage accounts. The token ends when it expires, when you revoke it, when " +
        "your password is reset by a code, and with your account. A logout and a change of the " +
        "password leave it alone. Where it has the role engineer or admin, an entry in the audit log " +
        `of the workspace says so. An account has at most ${API_TOKENS_MAX}.`,
      who: inPerson,
      body: jsonBody(
        z.strictObject({
          name: title().meta({ description: "what the token is for" }),
          role: Role.meta({
            description:
              "a ceiling: in each workspace the token has the lower of this role and yours there",
          }),
          workspace_id: z.uuid().optional().meta({
            description: "the only workspace that it sees; all of yours when left out",
          }),
          expires_in_days: whole(1, DAYS_MAX).default(DAYS).meta({
            description: "days until it expires",
          }),
        }),
      ),
      answers: { 201: json("the API token with its secret", NewApiToken) },
      errors: ["not_found", "quota_exceeded"],
    },
    async (context) => {
      const caller = callerOf(context);
      const { name, role, workspace_id, expires_in_days: days } = context.req.valid("json");
      if (workspace_id !== undefined) allow(caller, workspace_id, "viewer");
      const workspaceId = workspace_id ?? null;
      const act = actOf(context, "makeApiToken");
      const wish = { caller, name, role, workspaceId, days, act };
      return context.json(await createApiToken(context.var.service, wish), 201);
    },
  ),
  route(
    {
      call: "GET /auth/tokens",
      operationId: "listApiTokens",
      tag,
      summary: "Your API tokens",
      description: "Beyond the contract. The newest first, without those that have expired.",
      who: inPerson,
      answers: { 200: json("API tokens", z.array(ApiToken)) },
    },
    async (context) => {
      const { accountId } = callerOf(context);
      return context.json(await listApiTokens(context.var.service, accountId), 200);
    },
  ),
  route(
    {
      call: "DELETE /auth/tokens/{token_id}",
      operationId: "revokeApiToken",
      tag,
      summary: "Revoke an API token of yours",
      description: "Beyond the contract. The token is refused everywhere within a minute.",
      who: inPerson,
      params: z.object({ token_id: TokenId }),
      answers: { 204: { description: "revoked" } },
    },
    async (context) => {
      await revokeApiToken(context.var.service, {
        accountId: callerOf(context).accountId,
        tokenId: context.req.valid("param").token_id,
        act: actOf(context, "revokeApiToken"),
      });
      return context.body(null, 204);
    },
  ),
];
