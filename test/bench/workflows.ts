// What the executor of workflows costs beside the blocks: a step, a graph of ten against the sum of
// its blocks, a hit in the cache, a hundred runs at once, memory over ten thousand; and the same of
// ten steps of the catalogue on the objects of one image.
// Run: npm run bench -- workflows

import { cpus } from "node:os";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { RunBlock } from "../../shared/workflow/block.ts";
import { BLOCKS, PURE_RUNS } from "../../shared/workflow/blocks.ts";
import { ResultCache } from "../../shared/workflow/cache.ts";
import { checkWorkflow } from "../../shared/workflow/check.ts";
import type { WorkflowDefinition } from "../../shared/workflow/definition.ts";
import { executePlan, RUN_LIMITS, type RunRequest } from "../../shared/workflow/execution.ts";
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
  frame: { width: 640, height: 480, offset: [0, 0], scale: [1, 1] },
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

/** Milliseconds of one call, the middle of many. */
async function middle(count: number, work: () => unknown): Promise<number> {
  const times: number[] = [];
  for (let index = 0; index < count; index++) {
    const start = performance.now();
    await work();
    times.push(performance.now() - start);
  }
  return times.sort((one, other) => one - other)[count >> 1] ?? 0;
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

const inputs = new Map([["n", { value: DETECTIONS, key: "detections" }]]);
const real = requestOf(catalogueGraph, { inputs, runs: PURE_RUNS });
/** Every call that a run of the catalogue's graph makes, to be made again without the executor. */
const recorded: (() => unknown)[] = [];
const recording = [...PURE_RUNS].map(([type, run]): [string, RunBlock] => [
  type,
  (call) => {
    recorded.push(() => run(call));
    return run(call);
  },
]);
await executePlan({ ...real, runs: new Map(recording) });
const bare = () => {
  for (const call of recorded) call();
};
await middle(2_000, bare);
await middle(2_000, () => executePlan(real));
const sum = await middle(4_000, bare);
const whole = await middle(4_000, () => executePlan(real));
const overhead = (whole - sum) / recorded.length;
print(
  `${recorded.length} steps of the catalogue, 20 objects: ${whole.toFixed(3)} ms, their blocks ` +
    `alone ${sum.toFixed(3)} ms, ${(whole / sum).toFixed(2)} × (target 1.1); ` +
    `${overhead.toFixed(4)} ms a step beside it (target 0.3)`,
);
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
