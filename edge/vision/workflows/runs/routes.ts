// Runs of definitions that come along with a request, and of one image: on a saved workflow, or on
// what the active model detects.

import { createRoute, z } from "@hono/zod-openapi";
import type { Context, MiddlewareHandler } from "hono";
import { Failure } from "../../../../shared/errors.ts";
import { type App, errorResponses, isForm, json, jsonBody } from "../../../http/app.ts";
import { type Caller, callerOf, guard, workspaceFor } from "../../auth/scope.ts";
import { API, bearer, conflict, toItsEnd } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { openShare } from "../../serving/predict/held-bytes.ts";
import { fileBody, fileErrors } from "../../serving/predict/image-requests.ts";
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

const tags = ["Workflows"];

/** Errors of a route that runs a workflow. */
export const runErrors = {
  ...fileErrors,
  ...errorResponses("invalid_request", "invalid_workflow", "workflow_failed"),
  ...errorResponses("file_too_large", "quota_exceeded", "body_too_large"),
  ...errorResponses("task_failed", "overloaded"),
};

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

/** Registers the routes of runs that are not of a deployed workflow. */
export function addRunRoutes(app: App<Parts>) {
  guard(app, "/workflows/*");
  for (const path of ["/workflows/run", "/workflows/run/image"]) {
    app.use(API + path, heldBody);
  }
  addRun(app);
  addImage(app);
}

function addRun(app: App<Parts>) {
  const { body } = jsonBody(RunBody, { bytesMax: RUN_BODY_BYTES_MAX });
  const route = createRoute({
    method: "post",
    path: `${API}/workflows/run`,
    operationId: "runWorkflow",
    tags,
    summary: "Run a definition without saving it",
    description:
      "Needs the role annotator, and engineer where a sink of it sends or stores something and it is " +
      "no dry run. JSON with images as data addresses, at most 9 MiB; or multipart/form-data with " +
      "`definition` and `inputs` as JSON and each image as a file named as its input: JPEG, PNG or " +
      "WebP, at most 64 MiB together and 40 megapixels each. The definition is checked first: 422 " +
      "`invalid_workflow` lists all `problems`, each with step, port and fix. Where a step fails, 422 " +
      "`workflow_failed` names it. Nothing is done outside unless the whole run ended well.",
    security: bearer,
    request: {
      query: z.object({ ...workspaceQuery, ...dryRunQuery }),
      body: {
        ...body,
        content: { ...body.content, "multipart/form-data": { schema: FORMS.run } },
      },
    },
    responses: { 200: json("what it came to", RunAnswer), ...runErrors },
  });
  app.openapi(route, async (context) => {
    const parts = context.var.service;
    const caller = callerOf(context);
    const { workspace_id, dry_run } = context.req.valid("query");
    const workspaceId = workspaceFor(caller, workspace_id, "annotator");
    const work = async () => {
      const fields = ["definition", "inputs"];
      const { definition, given, free } = await broughtBy(context, parts, { workspaceId, fields });
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
  });
}

function addImage(app: App<Parts>) {
  const route = createRoute({
    method: "post",
    path: `${API}/workflows/run/image`,
    operationId: "runWorkflowOnImage",
    tags,
    summary: "Run a saved workflow, or the active model, on an image",
    description:
      "multipart/form-data with `file`: JPEG, PNG or WebP, at most 64 MiB and 40 megapixels. Needs the " +
      "role annotator. Without `slug` the active model looks at the image: `outputs` has its " +
      "`predictions` and the `image` with their boxes and labels drawn. With `slug` the newest version " +
      "of the saved workflow runs, deployed or not, whose only input without a default is one image; " +
      "others take their defaults. Otherwise as `POST /workflows/run`.",
    security: bearer,
    request: {
      query: z.object({
        slug: WorkflowSlug.optional().meta({
          description: "the saved workflow; the active model alone when omitted",
        }),
        ...workspaceQuery,
        ...dryRunQuery,
      }),
      body: fileBody,
    },
    responses: { 200: json("what it came to", RunAnswer), ...runErrors, ...conflict },
  });
  app.openapi(route, async (context) => {
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
  });
}

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
