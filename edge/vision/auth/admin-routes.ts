// What admins do with people: list them, set their roles, make workspaces. An admin sees the
// members of the workspaces that he is admin of, and no others.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../shared/errors.ts";
import { Role, User } from "../../../shared/wire/vision.ts";
import { json, jsonBody } from "../../http/route.ts";
import { title } from "../../http/texts.ts";
import { pageQuery } from "../base/api.ts";
import { type Route, route } from "../base/route.ts";
import { deleteAccount } from "./account-deletion.ts";
import { createWorkspace, listUsers, listWorkspaces, setRole } from "./accounts.ts";
import { admin, adminInPerson, operatorInPerson } from "./audience.ts";
import { actOf } from "./audit.ts";
import { allow, callerOf, workspacesOf } from "./scope.ts";

const tag = "Administration";
const Workspace = z
  .object({
    workspace_id: z.uuid(),
    name: z.string(),
    is_default: z.boolean(),
    members: z.number().int(),
    bytes_stored: z.number(),
    created_at: z.iso.datetime(),
  })
  .meta({ id: "Workspace" });

/** Routes of users, roles and workspaces. */
export const adminRoutes: readonly Route[] = [
  route(
    {
      call: "GET /admin/users",
      operationId: "listMembers",
      tag,
      summary: "Members of the workspaces you are admin of",
      description:
        "Beyond the contract. Needs the role admin. By email; only their roles in those workspaces are " +
        "shown.",
      who: admin,
      query: z.object({
        ...pageQuery(1_000),
      }),
      answers: { 200: json("users", z.array(User)) },
    },
    async (context) => {
      const workspaces = workspacesOf(callerOf(context), "admin");
      const page = context.req.valid("query");
      return context.json(await listUsers(context.var.service, workspaces, page), 200);
    },
  ),
  route(
    {
      call: "PATCH /admin/users/{user_id}",
      operationId: "setRole",
      tag,
      summary: "Set a user's role in a workspace",
      description:
        "Beyond the contract. Needs the role admin, and no API token. `role: null` takes the user out of the workspace. The user's access " +
        "tokens end; a refresh gives new ones. Without `workspace_id`, the one workspace you are admin " +
        "of. The last admin of a workspace stays one: 409.",
      who: adminInPerson,
      params: z.object({ user_id: z.uuid() }),
      body: jsonBody(z.strictObject({ workspace_id: z.uuid().optional(), role: Role.nullable() })),
      answers: { 200: json("the user", User) },
      errors: ["state_conflict"],
    },
    async (context) => {
      const caller = callerOf(context);
      const body = context.req.valid("json");
      const visibleIn = workspacesOf(caller, "admin");
      const workspaceId = body.workspace_id ?? (visibleIn.length === 1 ? visibleIn[0] : undefined);
      if (!workspaceId) {
        throw new Failure("invalid_request", "workspace_id: required, as you are admin of several");
      }
      allow(caller, workspaceId, "admin");
      const user = await setRole(context.var.service, {
        act: actOf(context, "setRole"),
        accountId: context.req.valid("param").user_id,
        workspaceId,
        role: body.role,
        visibleIn,
      });
      const shown = user.workspaces.filter((one) => visibleIn.includes(one.workspace_id));
      return context.json({ ...user, workspaces: shown }, 200);
    },
  ),
  route(
    {
      call: "DELETE /admin/users/{user_id}",
      operationId: "deleteUser",
      tag,
      summary: "Delete an account",
      description:
        "Beyond the contract. Needs the role admin in the default workspace, and no API token; your " +
        "own account needs your password (`POST /auth/me/delete`). What that route says of a deleted " +
        "account holds for this one.",
      who: operatorInPerson,
      params: z.object({ user_id: z.uuid() }),
      answers: { 204: { description: "the account is gone" } },
      errors: ["state_conflict"],
    },
    async (context) => {
      const accountId = context.req.valid("param").user_id;
      if (accountId === callerOf(context).accountId) {
        const detail = "this is your own account: delete it by POST /auth/me/delete";
        throw new Failure("state_conflict", detail);
      }
      await deleteAccount(context.var.service, { accountId, act: actOf(context, "deleteUser") });
      return context.body(null, 204);
    },
  ),
  route(
    {
      call: "GET /admin/workspaces",
      operationId: "listWorkspaces",
      tag,
      summary: "The workspaces you are admin of",
      description: "Beyond the contract. Needs the role admin.",
      who: admin,
      answers: { 200: json("workspaces, the default first", z.array(Workspace)) },
    },
    async (context) => {
      const workspaces = workspacesOf(callerOf(context), "admin");
      return context.json(await listWorkspaces(context.var.service, workspaces), 200);
    },
  ),
  route(
    {
      call: "POST /admin/workspaces",
      operationId: "makeWorkspace",
      tag,
      summary: "Make a workspace; you are its admin",
      description:
        "Beyond the contract. Needs the role admin in any workspace, and no API token. Members are given to it by PATCH /admin/users/{user_id}.",
      who: adminInPerson,
      body: jsonBody(z.strictObject({ name: title() })),
      answers: { 201: json("the workspace", Workspace) },
      errors: ["quota_exceeded"],
    },
    async (context) => {
      const { accountId, apiToken } = callerOf(context);
      if (apiToken?.workspaceId) {
        throw new Failure("forbidden", "this API token sees one workspace, and makes no other");
      }
      const { name: wanted } = context.req.valid("json");
      const made = { act: actOf(context, "makeWorkspace"), accountId, name: wanted };
      return context.json(await createWorkspace(context.var.service, made), 201);
    },
  ),
];
