// Ports that a step names itself: its parameter `inputs` lists them, and values go in under them.

import { z } from "zod";
import type { InputPort } from "../block.ts";
import { isFreeName } from "../expressions/syntax.ts";

/** Names of the inputs of a step. */
export const NamesOfInputs = z
  .array(z.string().regex(/^[a-z][a-z0-9_]{0,39}$/, "must be a lower-case word of a-z, 0-9 and _"))
  .max(20)
  .default([])
  .meta({ description: "names of the inputs, each of which is a port of the step" });

/** Ports for values of these names. */
export const namedInputs = (names: readonly string[]): Readonly<Record<string, InputPort>> =>
  Object.fromEntries(names.map((name) => [name, { kind: "json", meaning: "a value" }]));

/** Why names cannot be those of ports beside parameters of these names; null where they can. */
export function problemOfNames(
  names: readonly string[],
  parameters: readonly string[],
): string | null {
  for (const [index, name] of names.entries()) {
    if (names.indexOf(name) !== index) return `inputs: ${name} is there twice`;
    if (parameters.includes(name)) return `inputs: ${name} is a parameter of the block`;
    if (!isFreeName(name)) return `inputs: ${name} is a word of expressions`;
  }
  return null;
}
