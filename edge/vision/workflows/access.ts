// Which workflow a request means, and whether its caller may do what it asks.

import type { Context } from "hono";
import type { Role } from "../../../shared/wire/vision.ts";
import { allow, type Caller, callerOf, workspacesOf } from "../auth/scope.ts";
import type { Parts } from "../base/parts.ts";
import { findWorkflow, type WorkflowRow } from "./definitions/workflows.ts";

/** How a workflow is named in a request. */
export interface WorkflowName {
  slug: string;
  workspace_id?: string | undefined;
  /** A deleted one, where there is no other. */
  orFormer?: boolean;
}

/** The workspaces in which a request looks for a workflow. */
export function lookedIn(caller: Caller, named: string | undefined): string[] {
  if (named === undefined) return workspacesOf(caller);
  allow(caller, named, "viewer");
  return [named];
}

/** The workflow of a request, if its caller has at least the role in its workspace. */
export async function workflowFor(
  context: Pick<Context, "get"> & { var: { service: Parts } },
  { slug, workspace_id, orFormer = false }: WorkflowName,
  role: Role,
): Promise<WorkflowRow> {
  const caller = callerOf(context);
  const { database } = context.var.service;
  const row = await findWorkflow(database, lookedIn(caller, workspace_id), { slug, orFormer });
  allow(caller, row.workspaceId, role);
  return row;
}
