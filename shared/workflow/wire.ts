// What a run is given and what it answers, as they go over the wire: everything is JSON but images,
// which whoever holds them reads and writes.

import type { WorkflowInput, WorkflowProblem } from "./definition.ts";
import { itemOf } from "./kinds.ts";
import { isWritable, meaningOf, readLiteral } from "./literals.ts";
import type { KeyedValue, WorkflowPlan } from "./plan.ts";
import type { WorkflowImage } from "./values.ts";

/** That a run was not given what its workflow takes. */
export class InputFailure extends Error {
  override readonly name = "InputFailure";
  readonly problems: readonly WorkflowProblem[];

  constructor(problems: readonly WorkflowProblem[]) {
    super(problems.map(({ port, detail }) => `${port}: ${detail}`).join("; "));
    this.problems = problems;
  }
}

type Reading = { value: KeyedValue } | { problem: string };
/** Reads an image of the wire; its message is for the user where it fails by `BlockFailure`. */
type ReadImage = (wire: unknown) => Promise<KeyedValue>;

async function readInput(input: WorkflowInput, json: unknown, read: ReadImage): Promise<Reading> {
  if (isWritable(input.kind)) {
    const { literal, problem } = readLiteral(input.kind, json);
    return literal ? { value: literal } : { problem };
  }
  if (itemOf(input.kind) === null) return { value: await read(json) };
  if (!Array.isArray(json)) return { problem: "it must be a list of images" };
  const images = await Promise.all(json.map(read));
  const keys = images.map(({ key }) => key);
  return { value: { value: images.map(({ value }) => value), key: `[${keys.join()}]` } };
}

/**
 * What a run works on, by input: what it was given, read by the inputs' kinds, and their defaults.
 * Fails with `InputFailure`, which lists all that is wrong, and with what `readImage` fails with.
 */
export async function readInputs(
  plan: Pick<WorkflowPlan, "inputs">,
  given: Readonly<Record<string, unknown>>,
  readImage: ReadImage,
): Promise<Map<string, KeyedValue>> {
  const names = plan.inputs.map(({ name }) => name);
  const problem = (
    code: WorkflowProblem["code"],
    port: string,
    [detail, fix]: [string, string],
  ): WorkflowProblem => ({ code, step: null, port, detail, fix });
  const problems = Object.keys(given)
    .filter((name) => !names.includes(name))
    .map((name) => {
      const known = names.length > 0 ? `give ${names.join(", ")}` : "give none";
      return problem("unknown_reference", name, ["the workflow has no such input", known]);
    });
  const values = new Map<string, KeyedValue>();
  for (const input of plan.inputs) {
    const { name, kind } = input;
    const isGiven = Object.hasOwn(given, name) && given[name] !== undefined;
    const json = isGiven ? given[name] : input.default;
    const fix = `give ${meaningOf(kind)}`;
    if (json === undefined) {
      problems.push(problem("missing_port", name, ["the input is not given", fix]));
      continue;
    }
    const reading = await readInput(input, json, readImage);
    if ("value" in reading) values.set(name, reading.value);
    else problems.push(problem("bad_value", name, [reading.problem, fix]));
  }
  if (problems.length > 0) throw new InputFailure(problems);
  return values;
}

/**
 * Whether a value is an image. Hosts hold images in classes of their own, and everything else is
 * plain JSON, so that no JSON of a user can pass for an image.
 */
export function isImage(value: unknown): value is WorkflowImage {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
  const prototype = Object.getPrototypeOf(value);
  return prototype !== Object.prototype && prototype !== null && "frame" in value;
}

/** A value as the wire has it, images in it as `writeImage` makes them. */
export async function writeOutputs(
  value: unknown,
  writeImage: (image: WorkflowImage) => Promise<unknown>,
): Promise<unknown> {
  if (typeof value !== "object" || value === null) return value ?? null;
  if (isImage(value)) return writeImage(value);
  if (Array.isArray(value)) {
    const items: unknown[] = [];
    // One after the other: encoding holds an image's pixels twice.
    for (const item of value) items.push(await writeOutputs(item, writeImage));
    return items;
  }
  const entries: [string, unknown][] = [];
  for (const [name, item] of Object.entries(value))
    entries.push([name, await writeOutputs(item, writeImage)]);
  return Object.fromEntries(entries);
}
