// One block at work on one element, as the executor calls it: parameters by their schema, open
// ports at their defaults.

import type { Block, BlockResult } from "../../shared/workflow/block.ts";

interface Circumstances {
  parameters?: object;
  state?: unknown;
  now?: number;
}

/** Runs blocks of a list by their types. */
export function runBlock(blocks: readonly Block[]) {
  return async (
    type: string,
    given: Readonly<Record<string, unknown>>,
    { parameters = {}, state = null, now = 0 }: Circumstances,
  ): Promise<BlockResult> => {
    const block = blocks.find((one) => one.type === type);
    if (!block?.run) throw new Error(`no block ${type} to run`);
    const defaults = Object.entries(block.inputs).flatMap(([port, { default: value }]) =>
      value === undefined ? [] : [[port, value]],
    );
    return await block.run({
      inputs: { ...Object.fromEntries(defaults), ...given },
      parameters: block.parameters.parse(parameters),
      state,
      now,
      signal: new AbortController().signal,
    });
  };
}
