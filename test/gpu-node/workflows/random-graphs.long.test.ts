// Random workflows of the whole catalogue, over images and as the line asks for them. Goal: those
// that are typed right pass the check and never end in an error that no block meant; a second frame
// finds what the first one left; an edit that breaks typing is refused at its step and port.

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { RunnerContext } from "../../../gpu-node/tasks/runner-context.ts";
import { lookAtImage } from "../../../gpu-node/tasks/sam-objects.ts";
import { answerLine } from "../../../gpu-node/workflows/line-runs.ts";
import type { ModelSource } from "../../../shared/tasks/tasks.ts";
import { WorkflowAnswer, WorkflowAsk } from "../../../shared/tasks/workflow-task.ts";
import { type Block, portsFor, problemFor } from "../../../shared/workflow/block.ts";
import { SUBWORKFLOW_TYPE } from "../../../shared/workflow/blocks/subworkflow.ts";
import { BLOCKS } from "../../../shared/workflow/blocks.ts";
import { checkWorkflow } from "../../../shared/workflow/check.ts";
import { WorkflowDefinition, type WorkflowStep } from "../../../shared/workflow/definition.ts";
import { ATOMS, isKindOf, itemOf, type Kind } from "../../../shared/workflow/kinds.ts";
import { beforeEachTask } from "../../support/node-tasks.ts";
import { noiseImage } from "../../support/noise.ts";
import { openRectangles } from "../../support/rectangles.ts";
import { parsedValues } from "../../support/schema-values.ts";
import { generatedModel } from "../../support/weights.ts";
import { randomGraphs } from "../../support/workflow-graphs.ts";

const seed = process.env.SEED ? { seed: Number(process.env.SEED) } : {};
const [WIDTH, HEIGHT] = [48, 32];
/** A part of the image, at other sides. */
const PART = {
  width: 7,
  height: 5,
  offset: [9, 9],
  scale: [2, 0.5],
  root: { width: WIDTH, height: HEIGHT },
};
const library = { blocks: BLOCKS, workflows: new Map<string, WorkflowDefinition>() };
let context: RunnerContext;
let source: ModelSource;
beforeEachTask("random-graphs", (own) => {
  ({ context } = own);
  source ??= generatedModel((key, bytes) => own.service.source(key, bytes), { image_size: 32 });
});

const pixel = (side: number) => fc.integer({ min: -4, max: side + 4 });
const point = fc.tuple(pixel(WIDTH), pixel(HEIGHT));
const bbox = fc
  .tuple(
    pixel(WIDTH),
    pixel(HEIGHT),
    fc.integer({ min: 1, max: 20 }),
    fc.integer({ min: 1, max: 20 }),
  )
  .map(([x, y, width, height]) => [x, y, x + width, y + height]);
const name = fc.constantFrom("car", "person", "a", "");
/** A mask over the image, or over another one. */
const mask = fc.oneof(
  fc.nat(WIDTH * HEIGHT).map((zeros) => ({
    size: [HEIGHT, WIDTH],
    counts: [zeros, WIDTH * HEIGHT - zeros],
  })),
  fc.record({
    size: fc.tuple(fc.integer({ min: -1, max: 9 }), fc.integer({ min: 0, max: 9 })),
    counts: fc.array(fc.nat(9), { maxLength: 5 }),
  }),
);

function objects(kind: Kind) {
  const [hasMask, hasTrack] = [isKindOf(kind, "masks"), isKindOf(kind, "tracks")];
  const object = fc.record(
    {
      class: name,
      confidence: fc.double({ min: 0, max: 1, noNaN: true }),
      bbox,
      mask,
      track_id: fc.nat(5),
      data: fc.dictionary(name, fc.oneof(fc.integer(), fc.string(), fc.boolean()), { maxKeys: 2 }),
    },
    {
      requiredKeys: [
        "class",
        "confidence",
        "bbox",
        ...(hasMask ? (["mask"] as const) : []),
        ...(hasTrack ? (["track_id"] as const) : []),
      ],
      noNullPrototype: true,
    },
  );
  // Most are of the run's image, since others rightly end it.
  const frame = fc.oneof(
    { weight: 12, arbitrary: fc.constant({ width: WIDTH, height: HEIGHT }) },
    { weight: 2, arbitrary: fc.constant(PART) },
    { weight: 1, arbitrary: fc.constant({ width: 1, height: 1 }) },
  );
  return fc.record(
    { frame, objects: fc.array(object, { maxLength: 4 }) },
    { noNullPrototype: true },
  );
}

function literal(kind: Kind): fc.Arbitrary<unknown> | null {
  const item = itemOf(kind);
  if (item !== null) {
    const items = literal(item);
    return items && fc.array(items, { maxLength: 3 });
  }
  switch (kind) {
    case "image":
      return null;
    case "number":
      return fc.oneof(
        { weight: 8, arbitrary: fc.double({ min: 0, max: 1, noNaN: true }) },
        { weight: 1, arbitrary: fc.integer() },
        { weight: 1, arbitrary: fc.constant(1e308) },
      );
    case "integer":
      return fc.integer();
    case "boolean":
      return fc.boolean();
    case "string":
      return fc.string({ maxLength: 8 });
    case "point":
      return point;
    case "line":
      return fc.tuple(point, point);
    case "click": {
      const click = fc.tuple(point, fc.constantFrom(0, 1));
      return fc.oneof(
        point,
        click.map(([[x, y], label]) => ({ x, y, label })),
      );
    }
    case "zone": {
      const corners = fc.array(point, { minLength: 3, maxLength: 6 });
      return fc.oneof(
        corners,
        corners.map((all) => all.flat()),
      );
    }
    case "model":
      return fc.constant("active");
    case "project":
    case "secret":
      return fc.constant("one");
    case "list":
      return fc.array(fc.jsonValue({ maxDepth: 2 }), { maxLength: 3 });
    case "any":
    case "json":
      return fc.jsonValue({ maxDepth: 2 }).filter((value) => value !== null);
    default:
      return objects(kind);
  }
}

const isRight = (block: Block) => (parsed: unknown) => {
  if (problemFor(block, parsed) !== null) return false;
  const ports = portsFor(block, parsed);
  return Object.keys(ports.inputs).every((port) => !Object.hasOwn(block.parameters.shape, port));
};
const parameters = new Map(
  [...BLOCKS.values()].map((block) => [
    block.type,
    parsedValues(block.parameters, isRight(block), block.example.parameters),
  ]),
);

/** An input of each kind that can be written down, and an image; they are named by their kinds. */
const inputs = [
  { name: "image", kind: "image" as const },
  ...ATOMS.filter((atom) => atom !== "image").map((kind) => {
    const [value] = fc.sample(literal(kind) ?? fc.constant(null), { numRuns: 1, seed: 7 });
    return { name: kind, kind, default: value };
  }),
] as WorkflowDefinition["inputs"];

const graphs = randomGraphs({
  blocks: new Map([...BLOCKS].filter(([type]) => type !== SUBWORKFLOW_TYPE)),
  literal,
  parameters: (type) => parameters.get(type) ?? fc.constant({}),
  inputs,
  stepsMax: 8,
}).filter(({ definition: { steps, outputs } }) => steps.length > 0 && outputs.length > 0);

/** Runs it on one image as the line does, with what the last frame left. */
async function answerOf(definition: WorkflowDefinition, state: unknown, now: number) {
  const file = await noiseImage(WIDTH, HEIGHT).png().toBuffer();
  const head = WorkflowAsk.parse({
    definition,
    inputs: {},
    models: {
      active: { model_id: source.model_id, name: "generated", version: 1, source, told: null },
    },
    state,
    workspace: "a",
    now,
    images: [{ name: "image", bytes: file.length }],
  });
  const errors: unknown[] = [];
  const segmenter = openRectangles();
  const answer = await answerLine(
    new Uint8Array(file),
    head,
    {
      predictors: context.predictors,
      sam: async (readImage, request, signal) =>
        lookAtImage(await readImage(), request, {
          useSegmenter: (_, work) => work(segmenter),
          signal,
        }),
      log: { error: (_event, fields) => errors.push(fields) },
    },
    new AbortController().signal,
  );
  // What a user was told by mistake stands in the log of the node.
  expect(errors).toEqual([]);
  return WorkflowAnswer.parse(JSON.parse(JSON.stringify(answer)));
}

describe("random workflows of the catalogue", () => {
  it("pass the check, and end as blocks mean them to end, frame after frame", async () => {
    const ended = { well: 0, otherwise: 0 };
    const seen = new Set<string>();
    await fc.assert(
      fc.asyncProperty(graphs, async ({ definition }) => {
        expect(WorkflowDefinition.safeParse(definition).error).toBeUndefined();
        expect(checkWorkflow(definition, library).problems).toEqual([]);
        const first = await answerOf(definition, {}, 1_000);
        if (first.failure !== null) {
          expect(["step_failed", "limit"]).toContain(first.failure.code);
          ended.otherwise++;
          return;
        }
        ended.well++;
        for (const { type } of first.steps) seen.add(type);
        expect(Object.keys(first.outputs)).toEqual(definition.outputs.map(({ name: own }) => own));
        const second = await answerOf(definition, first.state, 1_040);
        if (second.failure !== null) expect(second.failure.code).not.toBe("bad_input");
      }),
      { numRuns: 200, endOnFailure: true, ...seed },
    );
    // Many come to their end, and few blocks are in none of them.
    expect(ended.well).toBeGreaterThan(60);
    expect(seen.size).toBeGreaterThan(BLOCKS.size * 0.8);
  });

  it("are refused at the step and port of an edit that breaks typing", () => {
    let edits = 0;
    fc.assert(
      fc.property(graphs, fc.nat(), fc.nat(), fc.nat(), ({ definition }, one, two, three) => {
        const steps = structuredClone(definition.steps);
        const step = steps[one % steps.length] as WorkflowStep;
        const block = BLOCKS.get(step.type) as Block;
        const statics = block.parameters.parse(
          Object.fromEntries(
            Object.entries(step.parameters).filter(([key]) =>
              Object.hasOwn(block.parameters.shape, key),
            ),
          ),
        );
        const ports = portsFor(block, statics);
        const names = Object.keys(ports.inputs);
        const port = names[two % Math.max(names.length, 1)];
        const entry = port === undefined ? undefined : ports.inputs[port];
        const others = inputs.filter(({ kind }) => entry && !isKindOf(kind, entry.kind));
        const other = others[three % Math.max(others.length, 1)];
        const isNeeded = entry && entry.optional !== true && entry.default === undefined;
        const breaks: { code: string; port: string; json?: WorkflowStep["parameters"][string] }[] =
          [{ code: "unknown_parameter", port: "no_such", json: 1 }];
        if (port) {
          breaks.push({ code: "unknown_reference", port, json: "$steps.nobody.value" });
          breaks.push({ code: "unknown_reference", port, json: "$inputs.nobody" });
          breaks.push({ code: "bad_value", port, json: null });
          if (other) breaks.push({ code: "wrong_kind", port, json: `$inputs.${other.name}` });
          if (isNeeded) breaks.push({ code: "missing_port", port });
        }
        for (const { code, port: at, json } of breaks) {
          const without = { ...step.parameters };
          delete without[at];
          const edited = {
            ...step,
            parameters: json === undefined ? without : { ...without, [at]: json },
          };
          const all = steps.map((each) => (each === step ? edited : each));
          const { problems, plan } = checkWorkflow({ ...definition, steps: all }, library);
          expect(plan).toBeNull();
          expect(problems).toContainEqual(
            expect.objectContaining({ code, step: step.id, port: at }),
          );
          edits++;
        }
      }),
      { numRuns: 300, ...seed },
    );
    expect(edits).toBeGreaterThan(1_000);
  });
});
