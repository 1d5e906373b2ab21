// What admins do with people: list them, set their roles, make workspaces. An admin sees the
// members of the workspaces that he is admin of, and no others.

import { createRoute, z } from "@hono/zod-openapi";
import type { MiddlewareHandler } from "hono";
import { Failure } from "../../../shared/errors.ts";
import { Role, User } from "../../../shared/wire/vision.ts";
import { type App, errorResponses, json, jsonBody, title } from "../../http/app.ts";
import { API, bearer, pageQuery } from "../base/api.ts";
import type { Parts } from "../base/parts.ts";
import { createWorkspace, listUsers, listWorkspaces, setRole } from "./accounts.ts";
import { actOf } from "./audit.ts";
import { addAuditRoutes } from "./audit-routes.ts";
import { allow, authenticate, callerOf, realmOf, workspacesOf } from "./scope.ts";

const tags = ["Administration"];
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

const adminErrors = errorResponses("unauthorized", "forbidden", "store_unavailable");

/** Lets only those pass who are admin of at least one workspace. Comes after `authenticate`. */
function requireAdmin(): MiddlewareHandler {
  return async (context, next) => {
    realmOf(callerOf(context));
    await next();
  };
}

/** Registers the routes of users, roles and workspaces. */
export function addAdminRoutes(app: App<Parts>) {
  for (const path of ["users", "workspaces"]) {
    app.use(`${API}/admin/${path}/*`, authenticate(), requireAdmin());
  }
  addUsers(app);
  addRoles(app);
  addWorkspaces(app);
  addAuditRoutes(app);
}

function addUsers(app: App<Parts>) {
  const route = createRoute({
    method: "get",
    path: `${API}/admin/users`,
    operationId: "listMembers",
    tags,
    summary: "Members of the workspaces you are admin of",
    description:
      "Beyond the contract. Needs the role admin. By email; only their roles in those workspaces are " +
      "shown.",
    security: bearer,
    request: {
      query: z.object({
        ...pageQuery(1_000),
      }),
    },
    responses: {
      200: json("users", z.array(User)),
      ...adminErrors,
      ...errorResponses("invalid_request"),
    },
  });
  app.openapi(route, async (context) => {
    const workspaces = workspacesOf(callerOf(context), "admin");
    const page = context.req.valid("query");
    return context.json(await listUsers(context.var.service, workspaces, page), 200);
  });
}

function addRoles(app: App<Parts>) {
  const route = createRoute({
    method: "patch",
    path: `${API}/admin/users/{user_id}`,
    operationId: "setRole",
    tags,
    summary: "Set a user's role in a workspace",
    description:
      "Beyond the contract. Needs the role admin. `role: null` takes the user out of the workspace. The user's access " +
      "tokens end; a refresh gives new ones. Without `workspace_id`, the one workspace you are admin " +
      "of. The last admin of a workspace stays one: 409.",
    security: bearer,
    request: {
      params: z.object({ user_id: z.uuid() }),
      ...jsonBody(z.strictObject({ workspace_id: z.uuid().optional(), role: Role.nullable() })),
    },
    responses: {
      200: json("the user", User),
      ...adminErrors,
      ...errorResponses("bad_body", "not_found", "state_conflict", "invalid_request"),
    },
  });
  app.openapi(route, async (context) => {
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
  });
}

function addWorkspaces(app: App<Parts>) {
  const list = createRoute({
    method: "get",
    path: `${API}/admin/workspaces`,
    operationId: "listWorkspaces",
    tags,
    summary: "The workspaces you are admin of",
    description: "Beyond the contract. Needs the role admin.",
    security: bearer,
    responses: { 200: json("workspaces, the default first", z.array(Workspace)), ...adminErrors },
  });
  app.openapi(list, async (context) => {
    const workspaces = workspacesOf(callerOf(context), "admin");
    return context.json(await listWorkspaces(context.var.service, workspaces), 200);
  });

  const create = createRoute({
    method: "post",
    path: `${API}/admin/workspaces`,
    operationId: "makeWorkspace",
    tags,
    summary: "Make a workspace; you are its admin",
    description:
      "Beyond the contract. Needs the role admin in any workspace. Members are given to it by PATCH /admin/users/{user_id}.",
    security: bearer,
    request: { ...jsonBody(z.strictObject({ name: title() })) },
    responses: {
      201: json("the workspace", Workspace),
      ...adminErrors,
      ...errorResponses("bad_body", "quota_exceeded", "invalid_request"),
    },
  });
  app.openapi(create, async (context) => {
    const { accountId } = callerOf(context);
    const { name: wanted } = context.req.valid("json");
    const made = { act: actOf(context, "makeWorkspace"), accountId, name: wanted };
    return context.json(await createWorkspace(context.var.service, made), 201);
  });
}
