// What a definition is checked against: the catalogue, the workflows that it has as steps, and the
// secrets and projects of its workspace. The same check stands before saves, deployments and runs.

import { sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import type { PlannedPorts } from "../../../../shared/wire/workflows.ts";
import { segmenterOf } from "../../../../shared/workflow/blocks/model-blocks.ts";
import type { WebhookParameters } from "../../../../shared/workflow/blocks/sinks.ts";
import { BLOCKS } from "../../../../shared/workflow/blocks.ts";
import { checkWorkflow } from "../../../../shared/workflow/check.ts";
import {
  DEFINITION_LIMITS,
  WorkflowDefinition,
  type WorkflowProblem,
} from "../../../../shared/workflow/definition.ts";
import type { WorkflowPlan } from "../../../../shared/workflow/plan.ts";
import type { Database } from "../../../http/database.ts";
import { addressProblem } from "../../../http/outbound.ts";
import { API } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { textList } from "../../base/sql.ts";
import { knownSegmenters } from "../../tasks/nodes/nodes.ts";

/** The block that runs another workflow. */
const SUB_WORKFLOW = "workflow@1";
/** The block that sends messages. */
const WEBHOOK = "webhook@1";

/** Characters of the definitions that a check loads, as jsonb writes them. */
const LIBRARY_CHARACTERS_MAX = 4 * DEFINITION_LIMITS.characters;

/** Slugs of the workflows that a definition has as steps. */
const slugsIn = ({ steps }: WorkflowDefinition): string[] =>
  steps.flatMap(({ type, parameters }) =>
    type === SUB_WORKFLOW && typeof parameters.slug === "string" ? [parameters.slug] : [],
  );

/**
 * The newest versions of the workflows of a workspace that a definition has as steps, by slug, and
 * those that these have, as deep as steps may lie. A definition stands under its own slug, where
 * that is told. Null where they are too large to be looked at.
 */
export async function workflowLibrary(
  database: Database,
  workspaceId: string,
  definition: WorkflowDefinition,
  slug?: string,
): Promise<Map<string, WorkflowDefinition> | null> {
  const library = new Map<string, WorkflowDefinition>();
  if (slug !== undefined) library.set(slug, definition);
  let wanted = slugsIn(definition).filter((one) => !library.has(one));
  let left = LIBRARY_CHARACTERS_MAX;
  for (let level = 0; level < DEFINITION_LIMITS.nesting && wanted.length > 0; level++) {
    // None of a level that is too large, so that no memory is taken before it is known to be.
    type Row = { slug: string; characters: number; definition: unknown };
    const { rows } = await database.execute<Row>(sql`
      SELECT slug, characters, CASE WHEN sum(characters) OVER () <= ${left}::int
          THEN definition END AS definition
        FROM (SELECT w.slug, v.definition, length(v.definition::text) AS characters
          FROM workflow w
          JOIN workflow_version v ON v.workflow_id = w.id AND v.version = w.version
         WHERE w.workspace_id = ${workspaceId}::uuid AND w.deleted_at IS NULL
           AND w.slug IN ${textList(wanted)}) AS named`);
    left -= rows.reduce((sum, { characters }) => sum + characters, 0);
    if (left < 0) return null;
    const found = rows.map((row) => [row.slug, WorkflowDefinition.parse(row.definition)] as const);
    for (const [slug, one] of found) library.set(slug, one);
    wanted = [...new Set(found.flatMap(([, one]) => slugsIn(one)))].filter(
      (slug) => !library.has(slug),
    );
  }
  return library;
}

const tooMuch = (): WorkflowProblem => ({
  code: "limit",
  step: null,
  port: null,
  detail: `its sub-workflows have over ${LIBRARY_CHARACTERS_MAX} characters together`,
  fix: "have fewer or smaller sub-workflows",
});

/** What a definition comes to: a plan, or what keeps it from being one. */
export interface Verdict {
  problems: WorkflowProblem[];
  plan: WorkflowPlan | null;
  library: ReadonlyMap<string, WorkflowDefinition>;
}

/** What a check works with. */
type CheckParts = Pick<Parts, "database" | "outbound">;

/**
 * Checks a definition for a workspace: its graph, that what it names is the workspace's, and that
 * its messages may be sent where it says. With the slug under which it is saved, none of the
 * workflows in it may have it as a step again.
 */
export async function judge(
  { database, outbound }: CheckParts,
  workspaceId: string,
  definition: WorkflowDefinition,
  slug?: string,
): Promise<Verdict> {
  const library = await workflowLibrary(database, workspaceId, definition, slug);
  if (!library) return { problems: [tooMuch()], plan: null, library: new Map() };
  const { problems, plan } = checkWorkflow(definition, {
    blocks: BLOCKS,
    workflows: library,
    slug,
  });
  if (!plan) return { problems, plan, library };
  const missing = [
    ...badAddresses(outbound, plan),
    ...(await missingNames(database, workspaceId, plan)),
    ...(await missingSegmenters(database, workspaceId, plan)),
  ];
  return { problems: missing, plan: missing.length > 0 ? null : plan, library };
}

/** Checks a definition as `judge` does; fails with `invalid_workflow`, which lists all problems. */
export async function checkFor(
  parts: CheckParts,
  workspaceId: string,
  definition: WorkflowDefinition,
  slug?: string,
): Promise<Verdict & { plan: WorkflowPlan }> {
  const { plan, ...verdict } = await judge(parts, workspaceId, definition, slug);
  if (plan) return { ...verdict, plan };
  throw invalidWorkflow(verdict.problems);
}

/** The failure of a definition that cannot be run. */
export function invalidWorkflow(problems: readonly WorkflowProblem[]): Failure {
  const [first, ...others] = problems;
  const where = [first?.step, first?.port].filter(Boolean).join(".");
  const more = others.length > 0 ? `, and ${others.length} more` : "";
  const detail = `${where ? `${where}: ` : ""}${first?.detail ?? "it cannot be run"}${more}`;
  return new Failure("invalid_workflow", detail, { data: { problems } });
}

/** Problems of steps whose messages would be refused for the address that they are written with. */
function badAddresses(
  outbound: Pick<Parts["outbound"], "hosts">,
  { steps }: WorkflowPlan,
): WorkflowProblem[] {
  return steps.flatMap(({ id, block, parameters }) => {
    if (block.type !== WEBHOOK) return [];
    const { url } = parameters as WebhookParameters;
    const problem = url === undefined ? null : addressProblem(outbound, url);
    if (problem === null) return [];
    return [
      {
        code: "bad_value",
        step: id,
        port: "url",
        detail: `the address ${problem}`,
        fix: "give the https:// address of a public server, or one that the operator allows",
      },
    ];
  });
}

/** Problems of a plan that names secrets or projects which the workspace has not. */
async function missingNames(
  database: Database,
  workspaceId: string,
  plan: WorkflowPlan,
): Promise<WorkflowProblem[]> {
  const { secrets, projects } = plan;
  if (secrets.length + projects.length === 0) return [];
  const own = sql`workspace_id = ${workspaceId}::uuid`;
  const { rows } = await database.execute<{ name: string }>(sql`
    SELECT name FROM workflow_secret WHERE ${own} AND name IN ${textList(secrets)}
    UNION ALL
    SELECT id::text FROM project WHERE ${own} AND id::text IN ${textList(projects)}`);
  const known = new Set(rows.map(({ name }) => name));
  const problemOf = (name: string, kind: "secret" | "project", fix: string): WorkflowProblem => ({
    code: "bad_value",
    ...whereNamed(plan, name),
    detail: `the workspace has no ${kind} ${name}`,
    fix,
  });
  return [
    ...secrets
      .filter((name) => !known.has(name))
      .map((name) =>
        problemOf(name, "secret", `give it a value first: PUT ${API}/workflows/secrets/${name}`),
      ),
    ...projects
      .filter((name) => !known.has(name))
      .map((name) => problemOf(name, "project", "name a project of the workspace by its id")),
  ];
}

/**
 * Problems of steps that name a segmenter which no node of the workspace has. Where no node that
 * runs workflows is known, any name may be right: a run then finds no node.
 */
async function missingSegmenters(
  database: Database,
  workspaceId: string,
  { steps }: WorkflowPlan,
): Promise<WorkflowProblem[]> {
  const named = steps.flatMap((step) => {
    const name = segmenterOf(step)?.name ?? null;
    return name === null ? [] : [{ step: step.id, name }];
  });
  if (named.length === 0) return [];
  const known = await knownSegmenters(database, { kind: "workflow", workspaceId });
  if (!known) return [];
  const fix =
    known.length > 0
      ? `name one of ${known.join(", ")}, or leave it out for the node's own`
      : "leave it out for the node's own, or install it on a node";
  return named
    .filter(({ name }) => !known.includes(name))
    .map(({ step, name }) => ({
      code: "bad_value",
      step,
      port: "segmenter",
      detail: `no GPU node has the segmenter ${name}`,
      fix,
    }));
}

/** The first step that names something, and at which port or parameter; else the input. */
function whereNamed(
  { steps, inputs }: WorkflowPlan,
  name: string,
): Pick<WorkflowProblem, "step" | "port"> {
  for (const { id, inputs: given, parameters } of steps) {
    const port = given.find(
      ({ source }) => source.from === "literal" && source.literal.value === name,
    );
    if (port) return { step: id, port: port.port };
    const entry = Object.entries(parameters ?? {}).find(([, value]) =>
      JSON.stringify(value).includes(JSON.stringify(name)),
    );
    if (entry) return { step: id, port: entry[0] };
  }
  return { step: null, port: inputs.find((input) => input.default === name)?.name ?? null };
}

/** What a definition takes and gives, as the wire tells it. */
export const portsOf = (
  { inputs }: WorkflowDefinition,
  { plan, problems }: Pick<Verdict, "plan" | "problems">,
): PlannedPorts => ({
  inputs: inputs.map(({ name, kind, default: value }) => ({
    name,
    kind,
    required: value === undefined,
  })),
  outputs:
    plan?.outputs.map(({ name, kind, lineage }) => ({ name, kind, depth: lineage.length })) ?? [],
  runs_on: plan?.runsOn ?? null,
  problems,
});
