// The catalogue of blocks: every entry, what any host runs of them, and how the wire tells of it.

import { z } from "zod";
import type { Block, InputPort, OutputPort, RunBlock } from "./block.ts";
import { DETECTION_BLOCKS } from "./blocks/detections.ts";
import { DRAWING_BLOCKS } from "./blocks/drawing.ts";
import { FLOW_BLOCKS } from "./blocks/flow.ts";
import { FORMAT_BLOCKS } from "./blocks/formats.ts";
import { FUSION_BLOCKS } from "./blocks/fusion.ts";
import { IMAGE_BLOCKS } from "./blocks/images.ts";
import { MEMORY_BLOCKS } from "./blocks/memory.ts";
import { MODEL_BLOCKS } from "./blocks/model-blocks.ts";
import { SINK_BLOCKS } from "./blocks/sinks.ts";
import { SUBWORKFLOW_BLOCKS, SUBWORKFLOW_TYPE } from "./blocks/subworkflow.ts";
import { TRACKING_BLOCKS } from "./blocks/tracking.ts";
import { VALUE_BLOCKS } from "./blocks/values.ts";
import { ZONE_BLOCKS } from "./blocks/zones.ts";

const ALL: readonly Block[] = [
  ...MODEL_BLOCKS,
  ...IMAGE_BLOCKS,
  ...DETECTION_BLOCKS,
  ...FUSION_BLOCKS,
  ...TRACKING_BLOCKS,
  ...ZONE_BLOCKS,
  ...FLOW_BLOCKS,
  ...VALUE_BLOCKS,
  ...MEMORY_BLOCKS,
  ...DRAWING_BLOCKS,
  ...FORMAT_BLOCKS,
  ...SINK_BLOCKS,
  ...SUBWORKFLOW_BLOCKS,
];

/** Every block, by type. */
export const BLOCKS: ReadonlyMap<string, Block> = new Map(ALL.map((block) => [block.type, block]));

/** What a host without pixels and models runs, by type. */
export const PURE_RUNS: ReadonlyMap<string, RunBlock> = new Map(
  ALL.flatMap(({ type, run, runsOn }) =>
    run && runsOn === "anywhere" ? ([[type, run]] as const) : [],
  ),
);

const inputEntry = ([name, port]: [string, InputPort]) => ({
  name,
  kind: port.kind,
  meaning: port.meaning,
  required: port.optional !== true && port.default === undefined,
  ...(port.default !== undefined && { default: port.default }),
  batch: port.batch ?? ("one" as const),
  takes_masked: port.takesMasked === true,
});

const outputEntry = ([name, port]: [string, OutputPort]) => ({
  name,
  kind: typeof port.kind === "string" ? port.kind : null,
  /** The input whose kind it has, where it has no kind of its own. */
  like: typeof port.kind === "string" ? null : port.kind.like,
  tracked: typeof port.kind !== "string" && port.kind.tracked === true,
  meaning: port.meaning,
  deepens: port.deepens === true,
});

/** The catalogue as the wire has it, parameters as JSON schemas. */
export function catalogue() {
  return ALL.map((block) => ({
    type: block.type,
    title: block.title,
    description: block.description,
    section: block.section,
    inputs: Object.entries(block.inputs).map(inputEntry),
    outputs: Object.entries(block.outputs).map(outputEntry),
    /** Further ports depend on the parameters. */
    has_more_ports: block.portsOf !== undefined || block.type === SUBWORKFLOW_TYPE,
    parameters: z.toJSONSchema(block.parameters, { io: "input" }),
    runs_on: block.runsOn,
    purity: block.purity,
    cost: block.cost,
    worked_example: block.example,
  }));
}
