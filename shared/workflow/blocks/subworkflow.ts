// A saved workflow as a step of another one. It is no block at work: its steps take its stead
// before the check, so that a run knows none.

import { z } from "zod";
import { type Block, defineBlock } from "../block.ts";

export const SUBWORKFLOW_TYPE = "workflow@1";

const Parameters = z.object({
  slug: z
    .string()
    .min(1)
    .max(100)
    .meta({ description: "of a saved workflow; its inputs are this step's further ports" }),
});

export const SUBWORKFLOW_BLOCKS: readonly Block[] = [
  defineBlock({
    type: SUBWORKFLOW_TYPE,
    title: "Sub-workflow",
    description:
      "Does what a saved workflow of the workspace does, in the version that is its newest when " +
      "the outer one is run or deployed. Its inputs are ports of this step, its outputs, too. " +
      "Its steps are reported as `<this step>.<its step>`.",
    section: "flow",
    inputs: {},
    parameters: Parameters,
    outputs: {},
    runsOn: "anywhere",
    purity: "pure",
    cost: "free",
    example: { parameters: { slug: "parked-cars" }, inputs: {}, outputs: {} },
    run: null,
  }),
];
