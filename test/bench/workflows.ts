// What the executor of workflows costs beside the blocks: a step, a graph of ten against the sum of
// its blocks, a hit in the cache, a hundred runs at once, memory over ten thousand; and the same of
// ten steps of the catalogue on the objects of one image.
// Run: npm run bench -- workflows

import { cpus } from "node:os";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { blur } from "../../gpu-node/workflows/blur-run.ts";
import { DRAWING_RUNS } from "../../gpu-node/workflows/drawing-runs.ts";
import { IMAGE_RUNS } from "../../gpu-node/workflows/image-runs.ts";
import { rootImage } from "../../gpu-node/workflows/node-image.ts";
import type { RunBlock } from "../../shared/workflow/block.ts";
import { BLOCKS, PURE_RUNS } from "../../shared/workflow/blocks.ts";
import { ResultCache } from "../../shared/workflow/cache.ts";
import { checkWorkflow } from "../../shared/workflow/check.ts";
import type { WorkflowDefinition } from "../../shared/workflow/definition.ts";
import { executePlan, RUN_LIMITS, type RunRequest } from "../../shared/workflow/execution.ts";
import type { KeyedValue } from "../../shared/workflow/plan.ts";
import { calls, TEST_BLOCKS } from "../support/workflow-blocks.ts";

const STEPS = 10;
const RUNS = 10_000;
/** Milliseconds that a block of the graph of ten works. */
const WORK_MS = 5;

const print = (line: string) => process.stdout.write(`${line}\n`);
print(`${cpus().length} × ${cpus()[0]?.model.trim()}, Node ${process.version}`);
setFlagsFromString("--expose-gc");
const collect: () => void = runInNewContext("gc");

/** A chain of steps of one block. */
function chain(type: string, input: string, output: string): WorkflowDefinition {
  const steps = Array.from({ length: STEPS }, (_, index) => {
    const before = index === 0 ? "$inputs.n" : `$steps.s${index - 1}.${output}`;
    return { id: `s${index}`, type, parameters: { [input]: before } };
  });
  const outputs = [{ name: "last", value: `$steps.s${STEPS - 1}.${output}` }];
  return { version: "1.0", inputs: [{ name: "n", kind: "number" }], steps, outputs };
}

/** Objects of one image, some on others. */
const DETECTIONS = {
  frame: { width: 1280, height: 720, offset: [0, 0], scale: [1, 1] },
  objects: Array.from({ length: 20 }, (_, index) => {
    const [x, y] = [(index % 5) * 120, Math.floor(index / 5) * 100 + (index % 2) * 10];
    const name = ["car", "lorry", "person"][index % 3];
    return { class: name, confidence: 0.4 + index / 50, bbox: [x, y, x + 130, y + 90] };
  }),
};
const FIELD = [
  [0, 0],
  [500, 0],
  [500, 400],
  [0, 400],
];
type Parameters = WorkflowDefinition["steps"][number]["parameters"];
/** What is counted in a zone and told, by ten steps of the catalogue that need no node. */
const CATALOGUE: readonly [id: string, type: string, parameters: Parameters][] = [
  ["sure", "filter@1", { detections: "$inputs.n", confidence_min: 0.45 }],
  ["first", "sort@1", { detections: "$steps.sure.detections", by: "confidence" }],
  ["named", "class_map@1", { detections: "$steps.first.detections", classes: { lorry: "truck" } }],
  ["apart", "nms@1", { detections: "$steps.named.detections", iou: 0.5 }],
  ["zone", "zone_filter@1", { detections: "$steps.apart.detections", zone: FIELD }],
  ["told", "detections_summary@1", { detections: "$steps.zone.inside" }],
  ["many", "condition@1", { left: "$steps.zone.count", operator: "greater", right: 3 }],
  [
    "level",
    "expression@1",
    {
      inputs: ["n"],
      expression: "n > 8 ? 'full' : 'free'",
      kind: "string",
      n: "$steps.zone.count",
    },
  ],
  ["calm", "not@1", { value: "$steps.many.result" }],
  [
    "text",
    "json_formatter@1",
    {
      inputs: ["level", "calm"],
      template: { level: "{{level}}", calm: "{{calm}}" },
      level: "$steps.level.value",
      calm: "$steps.calm.result",
    },
  ],
];
const catalogueGraph: WorkflowDefinition = {
  version: "1.0",
  inputs: [{ name: "n", kind: "detections" }],
  steps: CATALOGUE.map(([id, type, parameters]) => ({ id, type, parameters })),
  outputs: [
    { name: "summary", value: "$steps.told.classes" },
    { name: "message", value: "$steps.text.json" },
  ],
};

/** Who stands in a zone is blurred, drawn and shown small: ten steps, five of them on pixels. */
const IMAGE_STEPS: readonly [id: string, type: string, parameters: Parameters][] = [
  ["sure", "filter@1", { detections: "$inputs.n", confidence_min: 0.45 }],
  ["named", "class_map@1", { detections: "$steps.sure.detections", classes: { lorry: "truck" } }],
  ["apart", "nms@1", { detections: "$steps.named.detections", iou: 0.5 }],
  ["zone", "zone_filter@1", { detections: "$steps.apart.detections", zone: FIELD }],
  ["many", "condition@1", { left: "$steps.zone.count", operator: "greater", right: 3 }],
  ["hidden", "blur@1", { image: "$inputs.image", detections: "$steps.zone.inside" }],
  [
    "boxes",
    "draw_boxes@1",
    { image: "$steps.hidden.image", detections: "$steps.apart.detections" },
  ],
  ["labels", "draw_labels@1", { image: "$steps.boxes.image", detections: "$steps.zone.inside" }],
  ["field", "draw_zones@1", { image: "$steps.labels.image", zone: FIELD }],
  ["small", "resize@1", { image: "$steps.field.image", mode: "longest_side", longest_side: 640 }],
];
const imageGraph: WorkflowDefinition = {
  version: "1.0",
  inputs: [
    { name: "n", kind: "detections" },
    { name: "image", kind: "image" },
  ],
  steps: IMAGE_STEPS.map(([id, type, parameters]) => ({ id, type, parameters })),
  outputs: [
    { name: "image", value: "$steps.small.image" },
    { name: "many", value: "$steps.many.result" },
  ],
};

interface CatalogueRun {
  graph: WorkflowDefinition;
  inputs: RunRequest["inputs"];
  runs: RunRequest["runs"];
  /** Runs that are timed. */
  count: number;
  /** What is wanted of the ratio to the blocks' sum; null where the sum is no measure. */
  goal: string | null;
}

function requestOf(definition: WorkflowDefinition, more: Partial<RunRequest> = {}): RunRequest {
  const blocks = new Map([...TEST_BLOCKS, ...BLOCKS]);
  const { plan, problems } = checkWorkflow(definition, { blocks, workflows: new Map() });
  if (!plan) throw new Error(JSON.stringify(problems));
  return {
    plan,
    inputs: new Map([["n", { value: 1, key: "=1" }]]),
    runs: new Map(),
    state: {},
    now: 0,
    signal: new AbortController().signal,
    limits: RUN_LIMITS,
    clock: () => performance.now(),
    ...more,
  };
}

async function timed(work: () => unknown): Promise<number> {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

const middleOf = (times: readonly number[]): number =>
  times.toSorted((one, other) => one - other)[times.length >> 1] ?? 0;

/** Milliseconds of one call, the middle of many. */
async function middle(count: number, work: () => unknown): Promise<number> {
  const times: number[] = [];
  for (let index = 0; index < count; index++) times.push(await timed(work));
  return middleOf(times);
}

/** The same of two that take turns, so that whatever else the machine does is on both. */
async function middlesInTurn(
  count: number,
  one: () => unknown,
  other: () => unknown,
): Promise<[number, number]> {
  const times: [number, number][] = [];
  for (let index = 0; index < count; index++) times.push([await timed(one), await timed(other)]);
  return [middleOf(times.map(([first]) => first)), middleOf(times.map(([, second]) => second))];
}

/** Microseconds of processor time of one call, whatever else the machine does. */
async function processorTime(count: number, work: () => unknown): Promise<number> {
  const before = process.cpuUsage();
  for (let index = 0; index < count; index++) await work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / count;
}

const pure = requestOf(chain("add@1", "a", "sum"));
await middle(2_000, () => executePlan(pure));
const ms = await middle(2_000, () => executePlan(pure));
print(`pure step: ${(ms / STEPS).toFixed(4)} ms (target 0.3)`);

let worked = 0;
const work = () => {
  const end = performance.now() + WORK_MS;
  let sum = 0;
  while (performance.now() < end) sum++;
  // Each result is another, so that no step's work is that of an earlier one.
  return { outputs: { sum: sum + ++worked * 1e9, is_even: true } };
};
const working = requestOf(chain("add@1", "a", "sum"), { runs: new Map([["add@1", work]]) });
const alone = await middle(20, () => {
  for (let index = 0; index < STEPS; index++) work();
});
const graph = await middle(20, () => executePlan(working));
const ratio = (graph / alone).toFixed(3);
print(`ten steps of ${WORK_MS} ms: ${graph.toFixed(2)} ms, ${ratio} × their sum (target 1.1)`);

const cache = new ResultCache({ entriesMax: 100, bytesMax: 1e6, ageMax: 1e9 }, () => 8);
const modelKeys = new Map([["active", "m1"]]);
const cached = requestOf(chain("costly@1", "value", "value"), { cache, modelKeys });
await executePlan(cached);
const before = calls.get("costly@1");
const hit = await middle(2_000, () => executePlan(cached));
const missed = (calls.get("costly@1") ?? 0) - (before ?? 0);
print(`step from the cache: ${(hit / STEPS).toFixed(4)} ms, ${missed} of 20,000 run again`);

const together = await middle(20, () =>
  Promise.all(Array.from({ length: 100 }, () => executePlan(pure))),
);
print(`100 runs at once: ${together.toFixed(1)} ms, ${(together / 100).toFixed(3)} ms a run`);

/** Whether a graph whose blocks work for milliseconds costs no more than a tenth over their sum. */
const SUM_GOAL = "target 1.1";

/** Prints what a graph takes beside its blocks alone; its request, to be run again. */
async function besideBlocks(
  name: string,
  { graph, inputs, runs, count, goal }: CatalogueRun,
): Promise<RunRequest> {
  const request = requestOf(graph, { inputs, runs });
  /** Every call that a run makes, to be made again without the executor. */
  const recorded: (() => unknown)[] = [];
  const recording = [...runs].map(([type, run]): [string, RunBlock] => [
    type,
    (call) => {
      recorded.push(() => run(call));
      return run(call);
    },
  ]);
  await executePlan({ ...request, runs: new Map(recording) });
  const bare = async () => {
    for (const call of recorded) {
      const made = call();
      if (made instanceof Promise) await made;
    }
  };
  const execute = () => executePlan(request);
  await middlesInTurn(count / 2, bare, execute);
  const [sum, whole] = await middlesInTurn(count, bare, execute);
  const overhead = (whole - sum) / recorded.length;
  // Of work that other threads do, the processor's time says nothing of the executor.
  const beside = goal ? null : await processorTime(count, execute);
  const alone = goal ? null : await processorTime(count, bare);
  const spent =
    beside === null || alone === null
      ? ""
      : `, ${((beside - alone) / recorded.length).toFixed(1)} us of processor time`;
  print(
    `${recorded.length} steps of the catalogue, ${name}: ${whole.toFixed(3)} ms, their blocks ` +
      `alone ${sum.toFixed(3)} ms, ${(whole / sum).toFixed(2)} ×${goal ? ` (${goal})` : ""}; ` +
      `${overhead.toFixed(4)} ms a step beside it (target 0.3)${spent}`,
  );
  return request;
}

const objects = { value: DETECTIONS, key: "detections" };
const pixels = { data: new Uint8Array(1280 * 720 * 3).fill(90), width: 1280, height: 720 };
const image = { value: rootImage(pixels), key: "image" };
await besideBlocks("20 objects drawn on 1280 × 720", {
  graph: imageGraph,
  inputs: new Map<string, KeyedValue>([
    ["n", objects],
    ["image", image],
  ]),
  runs: new Map([...PURE_RUNS, ...IMAGE_RUNS, ...DRAWING_RUNS, ["blur@1", blur]]),
  count: 200,
  goal: SUM_GOAL,
});
// Blocks of a microsecond: what a step costs beside them shows here, and their sum is no measure.
const real = await besideBlocks("20 objects", {
  graph: catalogueGraph,
  inputs: new Map([["n", objects]]),
  runs: PURE_RUNS,
  count: 4_000,
  goal: null,
});
const crowd = await middle(20, () =>
  Promise.all(Array.from({ length: 100 }, () => executePlan(real))),
);
print(`100 of these at once: ${crowd.toFixed(1)} ms, ${(crowd / 100).toFixed(3)} ms a run`);

const memory = () => {
  collect();
  const { heapUsed, rss } = process.memoryUsage();
  return { heap: heapUsed / 1024 / 1024, rss: rss / 1024 / 1024 };
};
const measured = async (name: string, request: RunRequest) => {
  const start = memory();
  for (let index = 0; index < RUNS; index++) await executePlan(request);
  const end = memory();
  const told = (kind: "heap" | "rss") => `${start[kind].toFixed(1)} → ${end[kind].toFixed(1)} MB`;
  print(`${RUNS} runs of ${name}: heap ${told("heap")}, resident ${told("rss")}`);
};
await measured("ten pure steps", pure);
await measured("the catalogue's ten", real);
