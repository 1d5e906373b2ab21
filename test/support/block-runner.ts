// Runs one block of a list on one element, as a test calls it: its parameters parsed and checked,
// and the defaults of its ports filled in.

import { type Block, portsFor, problemFor } from "../../shared/workflow/block.ts";

/** Runs blocks of a list by their types; a refusal of parameters is thrown as an Error. */
export const runnerOf =
  (blocks: readonly Block[]) =>
  async (
    type: string,
    inputs: Readonly<Record<string, unknown>>,
    given: Readonly<Record<string, unknown>> = {},
  ): Promise<Readonly<Record<string, unknown>>> => {
    const block = blocks.find((each) => each.type === type);
    if (!block?.run) throw new Error(`no block ${type} to run`);
    const parameters = block.parameters.parse(given);
    const problem = problemFor(block, parameters);
    if (problem !== null) throw new Error(problem);
    const ports = portsFor(block, parameters);
    const defaults = Object.entries(ports.inputs).flatMap(([name, port]) =>
      port.default === undefined ? [] : [[name, port.default]],
    );
    const result = await block.run({
      inputs: { ...Object.fromEntries(defaults), ...inputs },
      parameters,
      state: null,
      now: 0,
      signal: new AbortController().signal,
    });
    return result.outputs;
  };
