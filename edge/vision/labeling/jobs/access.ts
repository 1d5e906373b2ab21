// The job of a request's path, for the routes of every room that works on one.

import { z } from "@hono/zod-openapi";
import type { Context } from "hono";
import type { Role } from "../../../../shared/wire/vision.ts";
import { allow, callerOf, workspacesOf } from "../../auth/scope.ts";
import type { Parts } from "../../base/parts.ts";
import { findJob, type JobRow } from "./jobs.ts";

/** The parameters of a path that names a job. */
export const jobId = z.object({ job_id: z.uuid() });

/**
 * The job of this id, if the caller has at least the role in its workspace. Fails with `not_found`
 * for another workspace's, and with `forbidden` where the role is too small.
 */
export async function jobFor(
  context: Pick<Context, "get"> & { var: { service: Parts } },
  id: string,
  role: Role,
): Promise<JobRow> {
  const caller = callerOf(context);
  const job = await findJob(context.var.service.database, workspacesOf(caller), id);
  allow(caller, job.workspaceId, role);
  return job;
}
