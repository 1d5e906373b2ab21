// Runs of definitions that come along with a request, and of one image: on a saved workflow, or on
// what the active model detects.

import { z } from "@hono/zod-openapi";
import type { Context, MiddlewareHandler } from "hono";
import { Failure } from "../../../../shared/errors.ts";
import { isForm, json, jsonBody } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { type Caller, callerOf, workspaceFor } from "../../auth/scope.ts";
import { toItsEnd } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { type Route, route } from "../../base/route.ts";
import { openShare } from "../../serving/predict/held-bytes.ts";
import { fileBody } from "../../serving/predict/image-requests.ts";
import { type Choice, chooseModel } from "../../serving/predict/model-choice.ts";
import { WorkflowSlug } from "../definitions/bodies.ts";
import { DEFAULT_DEFINITION } from "../definitions/default-definition.ts";
import {
  dryRunQuery,
  FORMS,
  RUN_BODY_BYTES_MAX,
  RunAnswer,
  RunBody,
  workspaceQuery,
} from "./bodies.ts";
import { askedAdHoc, askedOfSaved, broughtBy, savedFor } from "./requests.ts";
import { runWorkflow } from "./runs.ts";
import { imageInput } from "./video-runs.ts";

const tag = "Workflows";

/** Errors of a route that runs a workflow on what is sent along. */
export const RUN_ERRORS = [
  "file_too_large",
  "quota_exceeded",
  "unsupported_media",
  "invalid_workflow",
  "workflow_failed",
  "overloaded",
  "task_failed",
  "no_node",
] as const;

/** Holds the memory that a JSON body with images takes, while it is worked on. */
export const heldBody: MiddlewareHandler = async (context, next) => {
  if (isForm(context)) return next();
  const { clock } = context.get("service") as Parts;
  const announced = Number(context.req.header("Content-Length") ?? RUN_BODY_BYTES_MAX);
  const share = openShare(clock, Math.min(announced, RUN_BODY_BYTES_MAX));
  try {
    share.grow(Math.min(announced, RUN_BODY_BYTES_MAX));
    await next();
  } finally {
    share.free();
  }
};

/** Who waits for a run, and what goes on after its answer. */
export const awaited = (context: Context) => ({
  signal: context.req.raw.signal,
  defer: (work: Promise<unknown>) => context.executionCtx.waitUntil(work.catch(() => {})),
});

/** The workspace whose active model looks at an image; fails as `POST /predict/image` does. */
async function workspaceOfActive(parts: Parts, caller: Caller, choice: Choice): Promise<string> {
  return (await chooseModel(parts, caller, choice, "annotator")).workspaceId;
}

/** The `file` of a form that has no other. */
function onlyFile({ file, ...others }: Record<string, unknown>): unknown {
  const [other] = Object.keys(others);
  if (other !== undefined) throw new Failure("invalid_request", `${other}: unknown field`);
  if (file === undefined) throw new Failure("invalid_request", "file: required");
  return file;
}

const body = jsonBody(RunBody, { bytesMax: RUN_BODY_BYTES_MAX });

/** Routes of runs that are not of a deployed workflow. */
export const workflowRunRoutes: readonly Route[] = [
  route(
    {
      call: "POST /workflows/run",
      operationId: "runWorkflow",
      tag,
      summary: "Run a definition without saving it",
      description:
        "Needs the role annotator, and engineer where a sink of it sends or stores something and it is " +
        "no dry run. JSON with images as data addresses, at most 9 MiB; or multipart/form-data with " +
        "`definition` and `inputs` as JSON and each image as a file named as its input: JPEG, PNG or " +
        "WebP, at most 64 MiB together and 40 megapixels each. The definition is checked first: 422 " +
        "`invalid_workflow` lists all `problems`, each with step, port and fix. Where a step fails, 422 " +
        "`workflow_failed` names it. Nothing is done outside unless the whole run ended well.",
      who: user,
      before: heldBody,
      query: z.object({ ...workspaceQuery, ...dryRunQuery }),
      body: {
        ...body,
        content: { ...body.content, "multipart/form-data": { schema: FORMS.run } },
      },
      answers: { 200: json("what it came to", RunAnswer) },
      errors: ["not_found", ...RUN_ERRORS],
    },
    async (context) => {
      const parts = context.var.service;
      const caller = callerOf(context);
      const { workspace_id, dry_run } = context.req.valid("query");
      const workspaceId = workspaceFor(caller, workspace_id, "annotator");
      const work = async () => {
        const fields = ["definition", "inputs"];
        const { definition, given, free } = await broughtBy(context, parts, {
          workspaceId,
          fields,
        });
        try {
          const wish = { workspaceId, definition, given, dryRun: dry_run === "true" };
          const asked = await askedAdHoc(parts, caller, wish);
          const about = { served: null, version: null, ...awaited(context) };
          return await runWorkflow(parts, asked, about);
        } finally {
          await free();
        }
      };
      return context.json(await toItsEnd(context, work()), 200);
    },
  ),
  route(
    {
      call: "POST /workflows/run/image",
      operationId: "runWorkflowOnImage",
      tag,
      summary: "Run a saved workflow, or the active model, on an image",
      description:
        "multipart/form-data with `file`: JPEG, PNG or WebP, at most 64 MiB and 40 megapixels. Needs the " +
        "role annotator. Without `slug` the active model looks at the image: `outputs` has its " +
        "`predictions` and the `image` with their boxes and labels drawn. With `slug` the newest version " +
        "of the saved workflow runs, deployed or not, whose only input without a default is one image; " +
        "others take their defaults. Otherwise as `POST /workflows/run`.",
      who: user,
      before: heldBody,
      query: z.object({
        slug: WorkflowSlug.optional().meta({
          description: "the saved workflow; the active model alone when omitted",
        }),
        ...workspaceQuery,
        ...dryRunQuery,
      }),
      body: fileBody,
      answers: { 200: json("what it came to", RunAnswer) },
      errors: ["bad_body", "not_found", "state_conflict", ...RUN_ERRORS, "body_too_large"],
    },
    async (context) => {
      const parts = context.var.service;
      const caller = callerOf(context);
      const { dry_run, slug, workspace_id } = context.req.valid("query");
      const { workspaceId, version, definition } =
        slug === undefined
          ? {
              workspaceId: await workspaceOfActive(parts, caller, { workspace_id }),
              version: null,
              definition: DEFAULT_DEFINITION,
            }
          : await savedFor(parts, caller, { slug, workspace_id });
      const work = async () => {
        const brought = await broughtBy(context, parts, { workspaceId, fields: [] });
        try {
          const wish = { workspaceId, definition, dryRun: dry_run === "true" };
          const asked = await askedOfSaved(parts, caller, { ...wish, given: {} });
          const given = { [imageInput(asked.plan, {}, undefined)]: onlyFile(brought.given) };
          return await runWorkflow(
            parts,
            { ...asked, given },
            { served: null, version, ...awaited(context) },
          );
        } finally {
          await brought.free();
        }
      };
      return context.json(await toItsEnd(context, work()), 200);
    },
  ),
];
