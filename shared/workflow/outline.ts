// A step before its references are looked up: its block, its parameters parsed, its ports. Steps
// that refer to it need no more of it than this to know what it makes.

import type { z } from "zod";
import { type Block, type InputPort, type Ports, portsFor, problemFor } from "./block.ts";
import { parseReference, type WorkflowStep } from "./definition.ts";
import { isShallow, NESTING_MAX } from "./nesting.ts";
import { named, type Problems } from "./problems.ts";

/** Problems of one step that is given what it does not know; more of them tell nobody more. */
const UNKNOWN_PARAMETERS_MAX = 20;

export interface Outline {
  step: WorkflowStep;
  block: Block;
  parameters: unknown;
  ports: Ports;
}

export const isOpen = (port: InputPort): boolean =>
  port.optional === true || port.default !== undefined;

/** What a step is, or null, with its problems told, where that cannot be said. */
export function outlineOf(
  step: WorkflowStep,
  blocks: ReadonlyMap<string, Block>,
  problems: Problems,
): Outline | null {
  const block = blocks.get(step.type);
  if (!block) {
    const detail = `there is no block ${step.type}`;
    const fix = problems.otherName(step.type, [...blocks.keys()], "take another one");
    problems.add("unknown_block", { step: step.id, port: null }, { detail, fix });
    return null;
  }
  const parameters = parsedParameters(step, block, problems);
  if (parameters === null) return null;
  const ports = portsFor(block, parameters);
  const outline = { step, block, parameters, ports };
  tellOfUnknown(outline, problems);
  return outline;
}

/** Static parameters by the block's schema, null where they break it. */
function parsedParameters(step: WorkflowStep, block: Block, problems: Problems): unknown {
  const names = Object.keys(block.parameters.shape);
  const given = names.filter((name) => Object.hasOwn(step.parameters, name));
  const before = problems.all.length;
  for (const port of given.filter((name) => parseReference(step.parameters[name])))
    problems.add(
      "bad_parameter",
      { step: step.id, port },
      { detail: "a parameter takes no reference", fix: "write the value itself" },
    );
  const deep = given.find((name) => !isShallow(step.parameters[name]));
  if (deep !== undefined) {
    const detail = `it is more than ${NESTING_MAX} levels deep`;
    problems.add(
      "bad_parameter",
      { step: step.id, port: deep },
      { detail, fix: "make it flatter" },
    );
    return null;
  }
  const parsed = block.parameters.safeParse(
    Object.fromEntries(given.map((name) => [name, step.parameters[name]])),
  );
  if (!parsed.success) {
    for (const issue of parsed.error.issues) tellOfIssue(step, issue, problems);
    return null;
  }
  if (problems.all.length > before) return null;
  const detail = problemFor(block, parsed.data);
  if (detail === null) return parsed.data;
  problems.add("bad_parameter", { step: step.id, port: null }, { detail, fix: "change it so" });
  return null;
}

function tellOfIssue(step: WorkflowStep, issue: z.core.$ZodIssue, problems: Problems): void {
  const [port, ...inside] = issue.path.map(String);
  const path = inside.length > 0 ? `${inside.join(".")}: ` : "";
  problems.add(
    "bad_parameter",
    { step: step.id, port: port ?? null },
    { detail: path + issue.message, fix: "see the block's schema in the catalogue" },
  );
}

function tellOfUnknown({ step, block, ports }: Outline, problems: Problems): void {
  const statics = Object.keys(block.parameters.shape);
  const known = [...Object.keys(ports.inputs), ...statics];
  const unknown = Object.keys(step.parameters).filter((name) => !known.includes(name));
  for (const port of unknown.slice(0, UNKNOWN_PARAMETERS_MAX)) {
    const detail = `${block.type} has neither a port nor a parameter of this name`;
    const fix = problems.otherName(port, known, "leave it out: the block takes none");
    problems.add("unknown_parameter", { step: step.id, port }, { detail, fix });
  }
  const twice = Object.keys(ports.inputs).filter((name) => statics.includes(name));
  if (twice.length === 0) return;
  const detail = `the block has parameters of these names: ${named(twice)}`;
  const fix = "give the ports other names";
  problems.add("bad_parameter", { step: step.id, port: twice[0] ?? null }, { detail, fix });
}
