// How a request asks for a run: a definition of its own or a workflow by its slug, with inputs as
// JSON or as a form. And who may: what a saved definition does was let be done by whoever saved it,
// so what comes along with a request needs the same role where it does something outside.

import type { Context } from "hono";
import { z } from "zod";
import { Failure } from "../../../../shared/errors.ts";
import type { Role } from "../../../../shared/wire/vision.ts";
import { BLOCKS } from "../../../../shared/workflow/blocks.ts";
import { Json, WorkflowDefinition } from "../../../../shared/workflow/definition.ts";
import { inlineWorkflows } from "../../../../shared/workflow/inline.ts";
import { invalidRequest, issuesOf } from "../../../http/issues.ts";
import { nullsAsNotGiven } from "../../../http/not-given.ts";
import { isForm } from "../../../http/route.ts";
import { allow, type Caller, workspacesOf } from "../../auth/scope.ts";
import type { Parts } from "../../base/parts.ts";
import { checkFor } from "../definitions/library.ts";
import { type DeployedWorkflow, findDeployed, findVersion } from "../definitions/versions.ts";
import { findWorkflow } from "../definitions/workflows.ts";
import type { AskedRun } from "./asked-runs.ts";
import type { RunBody, ServeBody } from "./bodies.ts";
import { deleteStored, type RunImage, readRunForm } from "./inputs.ts";

/** What saves definitions, and so decides what they do outside. */
const EFFECTS_ROLE: Role = "engineer";

const invalid = (detail: string) => new Failure("invalid_request", detail);

/** What a request brought. */
export interface BroughtRun {
  definition: unknown;
  /** Values by input; images of a form by the names of their files. */
  given: Record<string, unknown>;
  /** Lets go of what the images take, in memory and in the store. */
  free(): Promise<void>;
}

/** Reads what a request brings, as JSON or as a form that may have these fields. */
export async function broughtBy(
  context: Context,
  parts: Parts,
  { workspaceId, fields }: { workspaceId: string; fields: readonly string[] },
): Promise<BroughtRun> {
  if (!isForm(context)) {
    // Validated, but typed only where every form of a body is a zod schema.
    const body = context.req.valid("json" as never) as (ServeBody & RunBody) | undefined;
    // A route that takes forms alone validates no JSON.
    if (!body) throw new Failure("bad_body", "the body must be multipart/form-data");
    return { definition: body.definition, given: body.inputs, free: async () => {} };
  }
  const form = await readRunForm(parts, context.req.raw, { workspaceId, fields });
  const free = async () => {
    form.free();
    await deleteStored(parts, form.images.values());
  };
  try {
    const given = withImages(inputsIn(form.json("inputs")), form.images);
    return { definition: form.json("definition"), given, free };
  } catch (thrown) {
    await free();
    throw thrown;
  }
}

/** The inputs of a form's field. */
export function inputsIn(json: unknown): Record<string, unknown> {
  const read = z.record(z.string(), Json).safeParse(json ?? {});
  if (read.success) return read.data;
  throw invalid("inputs: must be an object of values by input");
}

function withImages(
  inputs: Record<string, unknown>,
  images: ReadonlyMap<string, RunImage>,
): Record<string, unknown> {
  const twice = [...images.keys()].find((name) => Object.hasOwn(inputs, name));
  if (twice !== undefined) throw invalid(`inputs: ${twice} is given as a file, too`);
  return Object.fromEntries([...Object.entries(inputs), ...images]);
}

/** A definition of a form is read as one of a JSON body. */
const Definition = nullsAsNotGiven(WorkflowDefinition);

/** What of a run is known before its definition. */
interface Wish {
  workspaceId: string;
  given: AskedRun["given"];
  dryRun: boolean;
}

/**
 * A run of a definition that came along. Fails with `invalid_request`, `invalid_workflow`, and with
 * `forbidden` where it does something outside and the caller's role does not save such.
 */
export async function askedAdHoc(
  parts: Parts,
  caller: Caller,
  { definition: json, ...wish }: Wish & { definition: unknown },
): Promise<AskedRun> {
  if (json == null) throw invalid("definition: required");
  const read = Definition.safeParse(json);
  if (!read.success) throw invalidRequest(issuesOf(read.error, { root: ["definition"] }));
  const asked = await askedOf(parts, caller, { ...wish, definition: read.data });
  if (asked.plan.hasEffects && !wish.dryRun) allow(caller, wish.workspaceId, EFFECTS_ROLE);
  return asked;
}

/** What sub-workflows were given as literals are inputs by path, and no caller's to give. */
function checkNames(given: AskedRun["given"]) {
  const path = Object.keys(given).find((name) => name.includes("."));
  if (path !== undefined) throw invalid(`inputs: ${path.slice(0, 100)} is no input`);
}

/** A run of a definition of the workspace. */
async function askedOf(
  parts: Parts,
  { accountId }: Caller,
  { definition, ...wish }: Wish & { definition: WorkflowDefinition },
): Promise<AskedRun> {
  const { plan, library } = await checkFor(parts, wish.workspaceId, definition);
  const workflows = { blocks: BLOCKS, workflows: library };
  const inlined = inlineWorkflows(definition, workflows).definition;
  checkNames(wish.given);
  return { ...wish, actorId: accountId, plan, definition: inlined };
}

/** Which workflow a request names. */
export interface NamedWorkflow {
  slug: string;
  workspace_id?: string | undefined;
}

const lookedIn = (caller: Caller, named: string | undefined): string[] => {
  if (named === undefined) return workspacesOf(caller);
  allow(caller, named, "viewer");
  return [named];
};

/** What a slug serves, for who may run it; fails as `findDeployed` does. */
export async function deployedFor(
  { database }: Parts,
  caller: Caller,
  { slug, workspace_id }: NamedWorkflow,
): Promise<DeployedWorkflow> {
  const deployed = await findDeployed(database, lookedIn(caller, workspace_id), { slug });
  allow(caller, deployed.workspaceId, "annotator");
  return deployed;
}

/** A run of a deployed workflow. */
export async function askedOfDeployed(
  parts: Parts,
  caller: Caller,
  { deployed, ...wish }: Omit<Wish, "workspaceId"> & { deployed: DeployedWorkflow },
): Promise<AskedRun> {
  const { workspaceId, definition } = deployed;
  return ofSaved(caller, await askedOf(parts, caller, { ...wish, workspaceId, definition }));
}

/** The newest version of a saved workflow, for who may run it; fails as `findWorkflow` does. */
export async function savedFor(
  { database }: Parts,
  caller: Caller,
  { slug, workspace_id }: NamedWorkflow,
): Promise<{ workspaceId: string; version: number; definition: WorkflowDefinition }> {
  const row = await findWorkflow(database, lookedIn(caller, workspace_id), { slug });
  allow(caller, row.workspaceId, "annotator");
  const { version, definition } = await findVersion(database, row);
  return { workspaceId: row.workspaceId, version, definition };
}

/** A run of the newest version of a saved workflow. */
export async function askedOfSaved(
  parts: Parts,
  caller: Caller,
  wish: Wish & { definition: WorkflowDefinition },
): Promise<AskedRun> {
  return ofSaved(caller, await askedOf(parts, caller, wish));
}

/** Secrets and projects that are given with a run are chosen by its caller, not by who saved it. */
function ofSaved(caller: Caller, asked: AskedRun): AskedRun {
  const { plan, given, workspaceId, dryRun } = asked;
  const chosen = plan.inputs.some(
    ({ name, kind }) => (kind === "secret" || kind === "project") && Object.hasOwn(given, name),
  );
  if (chosen && !dryRun) allow(caller, workspaceId, EFFECTS_ROLE);
  return asked;
}
