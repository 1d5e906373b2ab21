// Password resets over HTTP: an operator makes a code, and whoever forgot the password uses it.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../shared/errors.ts";
import { json, jsonBody } from "../../http/route.ts";
import { clientAddress } from "../../http/throttle.ts";
import { anybody, type Route, route } from "../base/route.ts";
import { NEW_PASSWORD, OPEN_BODY } from "./account-routes.ts";
import { operatorInPerson } from "./audience.ts";
import { actOf } from "./audit.ts";
import { createPasswordReset, RESET_HOURS, resetPassword } from "./password-resets.ts";
import { callerOf } from "./scope.ts";
import { countReset, PER_ADDRESS } from "./throttle.ts";

const PasswordReset = z
  .object({
    code: z.string().meta({ description: "shown only here; give it to the person" }),
    expires_at: z.iso.datetime(),
  })
  .meta({ id: "PasswordReset" });

/** Routes of password resets. */
export const passwordResetRoutes: readonly Route[] = [
  route(
    {
      call: "POST /admin/users/{user_id}/password-reset",
      operationId: "makePasswordReset",
      tag: "Administration",
      summary: "Make a code that sets the password of an account anew",
      description:
        "Beyond the contract. Needs the role admin in the default workspace, and no API token: an " +
        "account may have rights in many workspaces, so the admins of one cannot reset it. The code " +
        `works once, for ${RESET_HOURS} hours, at \`POST /auth/password-reset\`; a newer one replaces ` +
        "it, and it ends when its maker is no operator any more. An operator may reset another, as " +
        "operators may demote each other, but not their own account: that needs the password. The " +
        "audit log of each workspace that the account is in says who made the code.",
      who: operatorInPerson,
      params: z.object({ user_id: z.uuid() }),
      answers: { 201: json("the code", PasswordReset) },
      errors: ["state_conflict"],
    },
    async (context) => {
      const accountId = context.req.valid("param").user_id;
      if (accountId === callerOf(context).accountId) {
        const detail = "this is your own account: change its password by POST /auth/password";
        throw new Failure("state_conflict", detail);
      }
      const act = actOf(context, "makePasswordReset");
      return context.json(await createPasswordReset(context.var.service, { accountId, act }), 201);
    },
  ),
  route(
    {
      call: "POST /auth/password-reset",
      operationId: "resetPassword",
      tag: "Accounts",
      summary: "Set a new password by a code of an operator",
      description:
        "Beyond the contract. The code works once. It ends every session and every API token of the " +
        "account, since a reset is also the remedy after a theft; log in afterwards. A code that is " +
        "unknown, used, replaced or expired is the same 401. From one address at most " +
        `${PER_ADDRESS} tries a minute.`,
      who: anybody,
      body: jsonBody(
        z.strictObject({
          code: z.string().min(1).max(200).meta({ description: "the code that an operator made" }),
          password: NEW_PASSWORD,
        }),
        OPEN_BODY,
      ),
      answers: { 204: { description: "the password is set" } },
      errors: ["bad_credentials", "too_many_attempts"],
    },
    async (context) => {
      const parts = context.var.service;
      const { code, password } = context.req.valid("json");
      await countReset(parts, clientAddress(context.req, parts.behindCloudflare));
      await resetPassword(parts, { code, password, requestId: context.var.requestId });
      return context.body(null, 204);
    },
  ),
];
