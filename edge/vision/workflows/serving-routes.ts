// Runs of deployed workflows.

import { z } from "@hono/zod-openapi";
import { json, jsonBody } from "../../http/route.ts";
import { user } from "../auth/audience.ts";
import { callerOf } from "../auth/scope.ts";
import { toItsEnd } from "../base/api.ts";
import { type Route, route } from "../base/route.ts";
import { WorkflowSlug } from "./definitions/bodies.ts";
import {
  dryRunQuery,
  FORMS,
  RUN_BODY_BYTES_MAX,
  RunAnswer,
  ServeBody,
  streamQuery,
  workspaceQuery,
} from "./runs/bodies.ts";
import { askedOfDeployed, broughtBy, deployedFor } from "./runs/requests.ts";
import { awaited, heldBody, RUN_ERRORS } from "./runs/routes.ts";
import { runWorkflow } from "./runs/runs.ts";

const body = jsonBody(ServeBody, { bytesMax: RUN_BODY_BYTES_MAX });

/** Routes of deployed workflows. */
export const servingRoutes: readonly Route[] = [
  route(
    {
      call: "POST /workflows/serve/{slug}",
      operationId: "serveWorkflow",
      tag: "Workflows",
      summary: "Run a deployed workflow",
      description:
        "Needs the role annotator; engineer where the run itself names a secret or a project. JSON with " +
        "images as data addresses, at most 9 MiB; or multipart/form-data with `inputs` as JSON and each " +
        "image as a file named as its input, at most 64 MiB together. With a `stream`, trackers, " +
        "counters and kept values go on from its last run; of two runs of one stream at once one is " +
        "answered 409 `revision_conflict`, and has done nothing. A new version begins every stream anew.",
      who: user,
      before: heldBody,
      params: z.object({ slug: WorkflowSlug }),
      query: z.object({ ...streamQuery, ...workspaceQuery, ...dryRunQuery }),
      body: {
        ...body,
        content: { ...body.content, "multipart/form-data": { schema: FORMS.serve } },
      },
      answers: { 200: json("what it came to", RunAnswer) },
      errors: ["state_conflict", "revision_conflict", ...RUN_ERRORS],
    },
    async (context) => {
      const parts = context.var.service;
      const caller = callerOf(context);
      const { stream = null, dry_run, ...query } = context.req.valid("query");
      const named = { ...context.req.valid("param"), ...query };
      const deployed = await deployedFor(parts, caller, named);
      const { workspaceId, version } = deployed;
      const work = async () => {
        const fields = ["inputs"];
        const { given, free } = await broughtBy(context, parts, { workspaceId, fields });
        try {
          const wish = { deployed, given, dryRun: dry_run === "true" };
          const asked = await askedOfDeployed(parts, caller, wish);
          const about = { served: { deployed, stream }, version, ...awaited(context) };
          return await runWorkflow(parts, asked, about);
        } finally {
          await free();
        }
      };
      return context.json(await toItsEnd(context, work()), 200);
    },
  ),
];
