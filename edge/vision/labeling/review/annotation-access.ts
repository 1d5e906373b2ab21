// The annotation of a request's path, for routes that change it or what belongs to it.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import type { Role } from "../../../../shared/wire/vision.ts";
import type { Database } from "../../../http/database.ts";
import { allow, type Caller, workspacesOf } from "../../auth/scope.ts";
import { findAnnotation } from "./annotations.ts";

/** The parameters of a path that names an annotation. */
export const annotationId = z.object({ annotation_id: z.uuid() });

/**
 * The annotation of this id, if the caller has at least the role in its workspace. Fails with
 * `not_found` for another workspace's, and with `forbidden` where the role is too small.
 */
export async function annotationFor(database: Database, caller: Caller, id: string, role: Role) {
  const found = await findAnnotation(database, id);
  if (!found || !workspacesOf(caller).includes(found.workspaceId)) {
    throw new Failure("not_found", "no such annotation in your workspaces");
  }
  allow(caller, found.workspaceId, role);
  return found;
}
