// A workflow as users write it: named inputs, steps that refer to them and to each other, and named
// outputs. What a step is given stands under `parameters`: literals, and references such as
// `$inputs.image` and `$steps.detect.detections`.

import { z } from "zod";
import { JsonValue } from "../json-value.ts";
import { mapOf } from "../scalars.ts";
import { KIND_FORM, type Kind } from "./kinds.ts";
import { isShallow, WIRE_NESTING_MAX } from "./nesting.ts";

/**
 * The language of definitions; one of a later minor version may use what this one does not know.
 */
export const DEFINITION_VERSION = "1.0";

export const DEFINITION_LIMITS = {
  inputs: 50,
  steps: 200,
  outputs: 100,
  /** Characters of a definition as JSON. */
  characters: 500_000,
  /** Sub-workflows in sub-workflows. */
  nesting: 4,
  /** Steps, and inputs, once sub-workflows stand in their steps' stead. */
  inlined: 500,
  /** Batches in batches. */
  depth: 3,
} as const;

/** Any JSON value; its types are told here, as the API's description cannot follow what nests. */
export const Json = z
  .unknown()
  .refine((value) => isShallow(value, WIRE_NESTING_MAX), {
    error: `must be at most ${WIRE_NESTING_MAX} levels deep`,
  })
  // What recurses sees only what the check above lets through.
  .pipe(JsonValue)
  .meta({ type: ["object", "array", "string", "number", "boolean", "null"], items: {} });

const NAME = /^[a-z][a-z0-9_]{0,63}$/;
const Name = z
  .string()
  .regex(NAME, "must be a lower-case word of a-z, 0-9 and _, from a letter on");

/** A kind by its name. */
export const KindName = z
  .string()
  .max(40)
  .regex(KIND_FORM, "must be a kind of value")
  .transform((text) => text as Kind);

export const WorkflowInput = z.strictObject({
  name: Name,
  kind: KindName,
  /** What a run takes that does not give it; without one it must be given. */
  default: Json.optional(),
  description: z.string().max(500).optional(),
});
export type WorkflowInput = z.infer<typeof WorkflowInput>;

/** No block has as many. */
export const PARAMETERS_MAX = 500;

const Reference = z.string().regex(/^\$(inputs|steps)\.[\w.]{1,400}$/, "must be a reference");

export const WorkflowStep = z.strictObject({
  id: Name,
  /** `name@version` of a block. */
  type: z.string().min(1).max(80),
  /** Literals and references, by port or parameter. */
  parameters: mapOf(z.string().max(64), Json, PARAMETERS_MAX).default({}),
  /** Booleans that all have to be true; an element for which one is not is masked. */
  when: z.union([Reference, z.array(Reference).min(1).max(20)]).optional(),
});
export type WorkflowStep = z.infer<typeof WorkflowStep>;

export const WorkflowOutput = z.strictObject({ name: Name, value: Reference });
export type WorkflowOutput = z.infer<typeof WorkflowOutput>;

/** How many times its limits a definition may have and be read: so the check can say what to do. */
const READ_FACTOR = 10;

export const WorkflowDefinition = z
  .strictObject({
    version: z.string().regex(/^1(\.\d{1,3}){0,2}$/, "must be 1.0"),
    inputs: z.array(WorkflowInput).max(READ_FACTOR * DEFINITION_LIMITS.inputs),
    steps: z
      .array(WorkflowStep)
      .min(1)
      .max(READ_FACTOR * DEFINITION_LIMITS.steps),
    outputs: z
      .array(WorkflowOutput)
      .min(1)
      .max(READ_FACTOR * DEFINITION_LIMITS.outputs),
  })
  .meta({ id: "WorkflowDefinition" });
export type WorkflowDefinition = z.infer<typeof WorkflowDefinition>;

const Path = z.string().regex(/^[a-z][a-z0-9_]{0,63}(\.[a-z][a-z0-9_]{0,63}){0,4}$/);

/** Those of the sub-workflows that a step was in come with its own. */
const InlinedWhen = z.union([Reference, z.array(Reference).max(100)]).optional();

/**
 * A definition with its sub-workflows in it, as `inlineWorkflows` writes it: their steps and those
 * of their inputs that were given literals are named by a path, `outer.inner`.
 */
export const InlinedDefinition = WorkflowDefinition.extend({
  inputs: z.array(WorkflowInput.extend({ name: Path })).max(DEFINITION_LIMITS.inlined),
  steps: z
    .array(WorkflowStep.extend({ id: Path, when: InlinedWhen }))
    .max(DEFINITION_LIMITS.inlined),
  outputs: z.array(WorkflowOutput).min(1).max(DEFINITION_LIMITS.outputs),
}).meta({ id: "InlinedDefinition" });

/** What a reference refers to. A step of a sub-workflow is named by both, `outer.inner`. */
export type ParsedReference =
  | { source: "inputs"; name: string }
  | { source: "steps"; step: string; port: string };

/** Reads `$inputs.x` or `$steps.id.output`; null for any other value. */
export function parseReference(value: unknown): ParsedReference | null {
  if (typeof value !== "string") return null;
  const [source, ...path] = value.split(".");
  const last = path.pop();
  if (!last) return null;
  if (source === "$inputs") return { source: "inputs", name: [...path, last].join(".") };
  if (source === "$steps" && path.length > 0) {
    return { source: "steps", step: path.join("."), port: last };
  }
  return null;
}

/** Something that keeps a workflow from being run, told so that a program can show where. */
export const WorkflowProblem = z
  .object({
    code: z.enum([
      "unknown_block",
      "unknown_reference",
      "unknown_parameter",
      "missing_port",
      "wrong_kind",
      "wrong_depth",
      "bad_value",
      "bad_parameter",
      "cycle",
      "unused_step",
      "duplicate_name",
      "unknown_workflow",
      "limit",
    ]),
    step: z.string().nullable().meta({ description: "id of the step; null of inputs and outputs" }),
    port: z.string().nullable().meta({ description: "port, parameter, input or output" }),
    detail: z.string(),
    fix: z.string().meta({ description: "what would make it right" }),
  })
  .meta({ id: "WorkflowProblem" });
export type WorkflowProblem = z.infer<typeof WorkflowProblem>;
