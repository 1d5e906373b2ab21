// Who may use an endpoint: a member of its workspace, or, for predictions and the status, whoever
// has one of its keys.

import type { Context, MiddlewareHandler } from "hono";
import { Failure } from "../../../../shared/errors.ts";
import type { Role } from "../../../../shared/wire/vision.ts";
import type { Audience } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { allow, authenticate, type Caller, callerOf, workspacesOf } from "../../auth/scope.ts";
import type { Parts } from "../../base/parts.ts";
import { findEndpoint, type ServedEndpoint } from "./endpoints.ts";
import { endpointOfKey, KEY_PREFIX, type OpenedEndpoint } from "./keys.ts";

/** A context of the service's routes, as far as access is decided by it. */
type Access = Pick<Context, "get"> & { var: { service: Parts } };

/** How an endpoint is named in a request. */
export interface EndpointName {
  slug: string;
  workspace_id?: string | undefined;
}

const keyOf = (context: Pick<Context, "req">): string | undefined =>
  new RegExp(`^Bearer (${KEY_PREFIX}[\\w-]+)$`, "i").exec(
    context.req.header("Authorization") ?? "",
  )?.[1];

/** Lets a request pass with an access token, or with a key of the endpoint in its path. */
const authenticateKey: MiddlewareHandler = async (context, next) => {
  const key = keyOf(context);
  if (key === undefined) return authenticate(context, next);
  const { database } = context.get("service") as Parts;
  const opened = await endpointOfKey(database, { slug: context.req.param("slug") ?? "", key });
  if (!opened) {
    context.header("WWW-Authenticate", 'Bearer realm="vantage"');
    throw new Failure("unauthorized", "the key opens no endpoint of this slug");
  }
  context.set("openedEndpoint", opened);
  await next();
};

/** Members of the endpoint's workspace, and whoever has one of its keys. */
export const keyHolder: Audience = {
  schemes: {
    ...user.schemes,
    endpointKey: {
      type: "http",
      scheme: "bearer",
      description: "a key of a named endpoint, which opens its predictions and its status",
    },
  },
  guards: [authenticateKey],
  description: user.description,
  errorsOfChanges: user.errorsOfChanges,
};

/** The workspaces in which a request looks for an endpoint. */
function lookedIn(caller: Caller, named: string | undefined): string[] {
  if (named !== undefined) allow(caller, named, "viewer");
  return named === undefined ? workspacesOf(caller) : [named];
}

/** The endpoint of a request, if its caller has at least the role in its workspace. */
export async function endpointFor(
  context: Access,
  { slug, workspace_id, orFormer = false }: EndpointName & { orFormer?: boolean },
  role: Role,
): Promise<ServedEndpoint> {
  const caller = callerOf(context);
  const workspaces = lookedIn(caller, workspace_id);
  const row = await findEndpoint(context.var.service.database, workspaces, { slug, orFormer });
  allow(caller, row.workspaceId, role);
  return row;
}

/** The endpoint of a request that a key may open, too. */
export async function openedFor(
  context: Access,
  name: EndpointName,
  role: Role,
): Promise<OpenedEndpoint> {
  const opened = context.get("openedEndpoint") as OpenedEndpoint | undefined;
  if (!opened) return { row: await endpointFor(context, name, role), gate: null };
  if (name.workspace_id === undefined || name.workspace_id === opened.row.workspaceId) {
    return opened;
  }
  throw new Failure("not_found", "nothing by this id in your workspaces");
}
