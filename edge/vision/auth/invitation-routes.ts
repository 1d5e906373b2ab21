// Invitations over HTTP: admins make, list and revoke them, and people who have an account use
// them. Who has none sends the code as they register.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../shared/errors.ts";
import { whole } from "../../../shared/scalars.ts";
import { Role, User } from "../../../shared/wire/vision.ts";
import { json, jsonBody } from "../../http/route.ts";
import { pageQuery } from "../base/api.ts";
import { type Route, route } from "../base/route.ts";
import { breaksReference } from "../base/sql.ts";
import { accountGone, userRecord } from "./accounts.ts";
import { adminInPerson, inPerson, user } from "./audience.ts";
import { actOf } from "./audit.ts";
import { Email } from "./email.ts";
import {
  acceptInvitation,
  createInvitation,
  LISTED_DAYS,
  listInvitations,
  revokeInvitation,
} from "./invitations.ts";
import { allow, callerOf, realmOf, workspacesOf } from "./scope.ts";

const DAYS_MAX = 30;
const DAYS = 7;

/** The code of an invitation as a request sends it. */
export const InvitationCode = z.string().min(1).max(200);

const InvitationId = z.uuid().meta({ description: "an invitation" });

const Invitation = z
  .object({
    invitation_id: InvitationId,
    workspace_id: z.uuid(),
    workspace_name: z.string().meta({ description: "the workspace that it lets into" }),
    role: Role,
    email: z.string().nullable().meta({ description: "whose account may use it; null: anybody's" }),
    invited_by: z
      .string()
      .nullable()
      .meta({ description: "name of the account that made it; `deleted user` where it is gone" }),
    created_at: z.iso.datetime(),
    expires_at: z.iso.datetime(),
    status: z.enum(["open", "used", "expired", "revoked"]).meta({
      description: "revoked: by an admin, or because who made it is no admin any more",
    }),
  })
  .meta({ id: "Invitation" });
const NewInvitation = Invitation.extend({
  code: z.string().meta({ description: "shown only here; give it to the person" }),
}).meta({ id: "NewInvitation" });

/** Routes of invitations. */
export const invitationRoutes: readonly Route[] = [
  route(
    {
      call: "POST /admin/invitations",
      operationId: "makeInvitation",
      tag: "Administration",
      summary: "Invite somebody into a workspace",
      description:
        "Beyond the contract. Needs the role admin in the workspace, and no API token; without `workspace_id`, the one " +
        "that you are admin of. The code works once: at `POST /auth/register` for who has no account, " +
        "at `POST /auth/invitation` for who has one.",
      who: adminInPerson,
      body: jsonBody(
        z.strictObject({
          workspace_id: z.uuid().optional(),
          role: Role.default("viewer"),
          email: Email.optional().meta({
            description: "only the account of this email may use it",
          }),
          days: whole(1, DAYS_MAX).default(DAYS).meta({ description: "how long it may be used" }),
        }),
      ),
      answers: { 201: json("the invitation with its code", NewInvitation) },
      errors: ["not_found"],
    },
    async (context) => {
      const caller = callerOf(context);
      realmOf(caller);
      const { workspace_id: wanted, role, email = null, days } = context.req.valid("json");
      const ruled = workspacesOf(caller, "admin");
      const workspaceId = wanted ?? (ruled.length === 1 ? ruled[0] : undefined);
      if (!workspaceId) {
        throw new Failure("invalid_request", "workspace_id: required, as you are admin of several");
      }
      allow(caller, workspaceId, "admin");
      const act = actOf(context, "makeInvitation");
      const wish = { workspaceId, role, email, days, act };
      return context.json(await createInvitation(context.var.service, wish), 201);
    },
  ),
  route(
    {
      call: "GET /admin/invitations",
      operationId: "listInvitations",
      tag: "Administration",
      summary: "Invitations into the workspaces you are admin of",
      description: `Beyond the contract. Needs the role admin. The newest first, until ${LISTED_DAYS} days after their end.`,
      who: user,
      query: z.object(pageQuery(1_000)),
      answers: { 200: json("invitations", z.array(Invitation)) },
      errors: ["forbidden"],
    },
    async (context) => {
      const caller = callerOf(context);
      realmOf(caller);
      const workspaces = workspacesOf(caller, "admin");
      const page = context.req.valid("query");
      return context.json(await listInvitations(context.var.service, workspaces, page), 200);
    },
  ),
  route(
    {
      call: "DELETE /admin/invitations/{invitation_id}",
      operationId: "revokeInvitation",
      tag: "Administration",
      summary: "End an invitation that was not used",
      description: "Beyond the contract. Needs the role admin. Again changes nothing.",
      who: user,
      params: z.object({ invitation_id: InvitationId }),
      answers: { 204: { description: "it can be used no more" } },
      errors: ["state_conflict"],
    },
    async (context) => {
      const caller = callerOf(context);
      realmOf(caller);
      await revokeInvitation(context.var.service, {
        id: context.req.valid("param").invitation_id,
        workspaceIds: workspacesOf(caller, "admin"),
        act: actOf(context, "revokeInvitation"),
      });
      return context.body(null, 204);
    },
  ),
  route(
    {
      call: "POST /auth/invitation",
      operationId: "acceptInvitation",
      tag: "Accounts",
      summary: "Join a workspace by an invitation",
      description: "Beyond the contract. A role that you have there already is never lowered.",
      who: inPerson,
      body: jsonBody(
        z.strictObject({
          invitation: InvitationCode.meta({ description: "the code that an admin made" }),
        }),
      ),
      answers: { 200: json("you, with your workspaces", User) },
      errors: ["not_invited"],
    },
    async (context) => {
      const parts = context.var.service;
      const caller = callerOf(context);
      const { invitation: code } = context.req.valid("json");
      const act = actOf(context, "acceptInvitation");
      await acceptInvitation(parts, { caller, code, act }).catch((thrown: unknown) => {
        throw breaksReference(thrown) ? accountGone() : thrown;
      });
      return context.json(await userRecord(parts, caller.accountId), 200);
    },
  ),
];
