// Roboflow's steps of flow control, values and sinks, as steps of ours. Its flow control names the
// steps that it decides on; here these carry the condition themselves.

import { z } from "zod";
import { JsonValue } from "../../../../shared/json-value.ts";
import { HeaderName } from "../../../../shared/workflow/blocks/sinks.ts";
import { isKindOf } from "../../../../shared/workflow/kinds.ts";
import { INNER_TYPE } from "./inner.ts";
import { literal, NoCounterpart, operations, parseStatement, statement } from "./query.ts";
import { isSelector, type Json, type StepReader, Texts, type Translation } from "./steps.ts";

const Values = z.record(z.string(), z.unknown());
const Chains = z.record(z.string(), z.array(z.unknown()));
const stepNamed = (target: string): string => target.replace(/^\$steps\./, "");
const targets = (list: unknown): string[] =>
  z
    .array(z.string())
    .parse(list ?? [])
    .map(stepNamed);
/** Steps that one step decides on: no definition that is read has as many. */
const TARGETS_MAX = 2_000;

const continueIf = (step: StepReader): Translation => {
  const condition = step.raw("condition_statement");
  const values = Values.parse(step.raw("evaluation_parameters") ?? {});
  const { step: made, source } = step.expression(step.id, values, {
    kind: "boolean",
    make: (term) => statement(parseStatement(condition), term),
  });
  const gates = targets(step.raw("next_steps")).map((target) => ({
    target,
    reference: source.reference,
  }));
  return { steps: [made], outputs: {}, gates };
};

const switchCase = (step: StepReader): Translation => {
  const cases = Texts.parse(step.raw("cases") ?? {});
  const isLoose = step.fixed("case_insensitive", z.boolean(), false);
  const fold = (text: string) => (isLoose ? text.toLowerCase() : text);
  const values = { value: step.raw("value") };
  const subject = (text: string) => (isLoose ? `lower(text(${text}))` : `text(${text})`);
  const otherwise = new Set(targets(step.raw("default_next_steps")));
  const labels = [...new Set(Object.keys(cases).map(fold))];
  // A step that several cases name goes on in any of them, so that each has one condition.
  const labelsOf = new Map<string, Set<string>>();
  const note = (target: string, label?: string) => {
    const own = labelsOf.get(target) ?? new Set();
    labelsOf.set(target, label === undefined ? own : own.add(label));
  };
  for (const [label, target] of Object.entries(cases)) {
    note(stepNamed(target), fold(label));
  }
  for (const target of otherwise) note(target);
  if (labelsOf.size > TARGETS_MAX) throw new NoCounterpart("it decides on too many steps");
  const conditionOf = (target: string, term: string): string => {
    const own = labelsOf.get(target) ?? new Set<string>();
    if (!otherwise.has(target)) return `${term} in ${literal([...own])}`;
    return `not (${term} in ${literal(labels.filter((label) => !own.has(label)))})`;
  };
  const made = [...labelsOf.keys()].map((target, index) => ({
    target,
    ...step.expression(`${step.id}__${index + 1}`, values, {
      kind: "boolean",
      make: (term) => conditionOf(target, subject(term("value").text)),
    }),
  }));
  return {
    steps: made.map((one) => one.step),
    outputs: {},
    gates: made.map(({ target, source }) => ({ target, reference: source.reference })),
  };
};

const rateLimiter = (step: StepReader): Translation => ({
  steps: [
    {
      id: step.id,
      type: "rate_limiter@1",
      parameters: {
        value: step.source("depends_on", "any").reference,
        seconds: step.fixed("cooldown_seconds", z.number().positive().max(86_400), 1),
      },
    },
  ],
  outputs: {},
  gates: targets(step.raw("next_steps")).map((target) => ({
    target,
    reference: `$steps.${step.id}.passed`,
  })),
});

const deltaFilter = (step: StepReader): Translation => ({
  steps: [
    {
      id: step.id,
      type: "delta_filter@1",
      parameters: { value: step.source("value", "json").reference },
    },
  ],
  outputs: {},
  gates: targets(step.raw("next_steps")).map((target) => ({
    target,
    reference: `$steps.${step.id}.changed`,
  })),
});

const Result = z.discriminatedUnion("type", [
  z.object({ type: z.literal("StaticCaseResult"), value: z.unknown() }),
  z.object({
    type: z.literal("DynamicCaseResult"),
    parameter_name: z.string(),
    operations: z.unknown().optional(),
  }),
]);
const Switch = z.object({
  cases: z.array(z.object({ condition: z.unknown(), result: Result })).max(50),
  default: Result,
});

const expression = (step: StepReader): Translation => {
  const values = Values.parse(step.raw("data") ?? {});
  const chains = Chains.parse(step.raw("data_operations") ?? {});
  const { cases, default: otherwise } = Switch.parse(step.raw("switch"));
  const results = [...cases.map(({ result }) => result), otherwise];
  const areTexts = results.every(
    (one) => one.type === "StaticCaseResult" && typeof one.value === "string",
  );
  const { step: made, source } = step.expression(step.id, values, {
    kind: areTexts ? "string" : "json",
    make: (term) => {
      const operand = (name: string) => operations(term(name), chains[name]);
      const result = (one: z.infer<typeof Result>) =>
        one.type === "StaticCaseResult"
          ? literal(one.value)
          : operations(operand(one.parameter_name), one.operations).text;
      return cases.reduceRight(
        (rest, one) =>
          `(${statement(one.condition, operand)}) ? (${result(one.result)}) : (${rest})`,
        result(otherwise),
      );
    },
  });
  return { steps: [made], outputs: { output: source } };
};

const property = (step: StepReader): Translation => {
  const chain = z.array(z.object({ type: z.string() }).loose()).parse(step.raw("operations") ?? []);
  const [first, ...rest] = chain;
  if (first?.type === "ExtractImageProperty" && rest.length === 0) {
    const name = String(first.property_name);
    if (name !== "width" && name !== "height") throw new NoCounterpart(`an image's ${name}`);
    const image = step.source("data", "image").reference;
    const source = { reference: `$steps.${step.id}.${name}`, kind: "integer" } as const;
    const made = { id: step.id, type: "image_properties@1", parameters: { image } };
    return { steps: [made], outputs: { output: source } };
  }
  const { steps, source } = step.operated(step.id, step.raw("data"), chain);
  return { steps, outputs: { output: source } };
};

const firstOf = (step: StepReader): Translation => {
  const given = z.array(z.string()).min(1).max(7).parse(step.raw("data"));
  const sources = given.map((selector) => step.refer(selector, "any"));
  const kind = sources.map((one) => one.kind).reduce((a, b) => (a === b ? a : "any"));
  const ports: Record<string, Json> = { kind };
  for (const [index, { reference }] of sources.entries()) ports[`value_${index + 1}`] = reference;
  const fallback = step.raw("default");
  if (fallback !== undefined) ports[`value_${given.length + 1}`] = JsonValue.parse(fallback);
  return {
    steps: [{ id: step.id, type: "first_of@1", parameters: ports }],
    outputs: { output: { reference: `$steps.${step.id}.value`, kind } },
  };
};

const collapse = (step: StepReader): Translation => {
  const { reference } = step.source("data", "any");
  return {
    steps: [{ id: step.id, type: "collect@1", parameters: { values: reference } }],
    outputs: { output: { reference: `$steps.${step.id}.values`, kind: "list" } },
  };
};

const COLUMNS: Readonly<Record<string, string>> = {
  class_name: "class",
  confidence: "confidence",
  x_min: "x1",
  y_min: "y1",
  x_max: "x2",
  y_max: "y2",
  size: "area",
  tracker_id: "track_id",
  time_in_zone: "data.seconds_in_zone",
  speed: "data.speed",
};
const Extract = z.tuple([
  z.object({ type: z.literal("DetectionsPropertyExtract"), property_name: z.string() }),
]);

const csv = (step: StepReader): Translation => {
  const data = Values.parse(step.raw("columns_data") ?? {});
  const chains = Chains.parse(step.raw("columns_operations") ?? {});
  const [selector, ...others] = new Set(Object.values(data));
  const columns = Object.keys(data).map((name) => {
    const extract = Extract.safeParse(chains[name]);
    return extract.success ? COLUMNS[extract.data[0].property_name] : undefined;
  });
  const isTable = isSelector(selector) && others.length === 0 && !columns.includes(undefined);
  if (!isTable)
    throw new NoCounterpart("columns that are not all properties of the same detections");
  step.warn(`the columns are called ${columns.join(", ")}`);
  return {
    steps: [
      {
        id: step.id,
        type: "csv_formatter@1",
        parameters: {
          detections: step.refer(selector, "detections").reference,
          columns: columns.filter((one) => one !== undefined),
        },
      },
    ],
    outputs: { csv_content: { reference: `$steps.${step.id}.text`, kind: "string" } },
  };
};

/** Where a webhook goes: an address that is written down, or a secret that holds it. */
function addressOf(step: StepReader): Record<string, Json> {
  const query = Values.parse(step.raw("query_parameters") ?? {});
  const isOpen = Object.values(query).some(isSelector);
  if (isOpen) throw new NoCounterpart("query parameters that only a run knows");
  const url = step.fixed("url", z.url({ protocol: /^https?$/ }).or(z.literal("")), "");
  if (url === "") {
    step.warn("put the address into the secret webhook_url");
    return { url_secret: "webhook_url" };
  }
  const address = new URL(url);
  if (address.username !== "" || address.password !== "") {
    step.warn("put the address, with its name and password, into the secret webhook_url");
    return { url_secret: "webhook_url" };
  }
  for (const [name, value] of Object.entries(query)) {
    for (const one of [value].flat()) address.searchParams.append(name, String(one));
  }
  return { url: address.href };
}

function headersOf(step: StepReader): Record<string, Json> {
  const plain: Record<string, string> = {};
  const secret: Record<string, string> = {};
  for (const [name, value] of Object.entries(Values.parse(step.raw("headers") ?? {}))) {
    const isOpen = isSelector(value) || /auth|key|token|secret|cookie/i.test(name);
    if (!HeaderName.safeParse(name).success) {
      step.warn(`the header ${name} is not one that a sender sets here, and is left out`);
      continue;
    }
    if (isOpen) secret[name] = name.toLowerCase().replaceAll("-", "_");
    else plain[name] = String(value);
  }
  for (const name of Object.values(secret))
    step.warn(`put the header's value into the secret ${name}`);
  const ports = Object.values(secret).map((name) => [`header_${name}`, name]);
  return { headers: plain, secret_headers: Object.keys(secret), ...Object.fromEntries(ports) };
}

const webhook = (step: StepReader): Translation => {
  if (step.raw("disable_sink") === true) throw new NoCounterpart("it is switched off");
  const method = step.raw("method");
  if (method !== undefined && method !== "POST")
    throw new NoCounterpart(`the method ${String(method)}`);
  step.ignore("form_data", "multi_part_encoded_files");
  const chains = Chains.parse(step.raw("json_payload_operations") ?? {});
  const steps: Translation["steps"] = [];
  const template: Record<string, Json> = {};
  const ports: Record<string, Json> = {};
  let image: string | undefined;
  for (const [name, value] of Object.entries(Values.parse(step.raw("json_payload") ?? {}))) {
    if (!isSelector(value)) {
      const text = JSON.stringify(value ?? null);
      if (text.includes("{{") || /"\$(inputs|steps)\./.test(text)) {
        throw new NoCounterpart(`the member ${name} of its payload`);
      }
      template[name] = JsonValue.parse(value ?? null);
      continue;
    }
    const port = `p${Object.keys(ports).length + 1}`;
    const isEncoded = (chains[name] ?? []).some((one) =>
      JSON.stringify(one).includes("ConvertImage"),
    );
    if (isEncoded || step.refer(value, "any").kind === "image") {
      if (image !== undefined) throw new NoCounterpart("a payload of several images");
      image = step.refer(value, "image").reference;
      step.warn(`the image ${name} goes with the message, beside its payload`);
      continue;
    }
    const made = step.operated(`${step.id}__${port}`, value, chains[name]);
    if (!isKindOf(made.source.kind, "json") && made.source.kind !== "any") {
      throw new NoCounterpart(`the member ${name} of its payload is a ${made.source.kind}`);
    }
    steps.push(...made.steps);
    // Read again as JSON, so that an input knows how it is used.
    ports[port] =
      made.steps.length > 0 ? made.source.reference : step.refer(value, "json").reference;
    template[name] = `{{${port}}}`;
  }
  const format = `${step.id}__payload`;
  steps.push({
    id: format,
    type: "json_formatter@1",
    parameters: { inputs: Object.keys(ports), template, ...ports },
  });
  const parameters: Record<string, Json> = {
    payload: `$steps.${format}.json`,
    ...addressOf(step),
    ...headersOf(step),
    cooldown_seconds: step.fixed("cooldown_seconds", z.number().min(0).max(86_400), 5),
  };
  if (image !== undefined) parameters.image = image;
  steps.push({ id: step.id, type: "webhook@1", parameters });
  const message = { reference: `$steps.${step.id}.reason`, kind: "string" } as const;
  return { steps, outputs: { message } };
};

const upload = (step: StepReader): Translation => {
  if (step.raw("disable_sink") === true) throw new NoCounterpart("it is switched off");
  const target = step.raw("target_project");
  const project = isSelector(target)
    ? step.refer(target, "project").reference
    : step.addInput("project", "project");
  if (!isSelector(target))
    step.warn(`the project ${String(target)} is not here: an input names one`);
  step.ignore("labeling_batch_prefix", "image_name", "metadata");
  const keeps = step.fixed("persist_predictions", z.boolean(), true);
  const isGiven = keeps && step.raw("predictions") !== undefined;
  const parameters: Record<string, Json> = {
    image: step.source(["images", "image"], "image").reference,
    project,
    share: step.fixed("data_percentage", z.number().min(0).max(100), 100) / 100,
    per_minute_max: step.fixed("minutely_usage_limit", z.int().min(1).max(600), 10),
    tags: step.fixed("registration_tags", z.array(z.string().min(1).max(64)).max(20), []),
  };
  if (isGiven) parameters.detections = step.source("predictions", "detections").reference;
  return {
    steps: [{ id: step.id, type: "dataset_upload@1", parameters }],
    outputs: { message: { reference: `$steps.${step.id}.reason`, kind: "string" } },
  };
};

/** One that is not written out within it. */
const innerWorkflow = (): Translation => {
  throw new NoCounterpart(
    "its workflow is not in the definition: save that here, and put workflow@1 in its place",
  );
};

/** Values are kept by stream here, as there by the identifier of the image's video. */
const cacheSet = (step: StepReader): Translation => {
  const { reference: value, kind } = step.source("value", "json");
  const key = keyOf(step);
  return {
    steps: [{ id: step.id, type: "key_value_set@1", parameters: { key, value } }],
    outputs: { output: { reference: `$steps.${step.id}.value`, kind } },
  };
};

const cacheGet = (step: StepReader): Translation => ({
  // There, what is not kept is false.
  steps: [
    { id: step.id, type: "key_value_get@1", parameters: { key: keyOf(step), default: false } },
  ],
  outputs: { output: { reference: `$steps.${step.id}.value`, kind: "json" } },
});

function keyOf(step: StepReader): Json {
  const key = step.port("key", "string", z.string().min(1));
  if (key === undefined) throw new NoCounterpart("its key is left out");
  return key;
}

/** By their types without the plugin's name, and the ones that definitions had before these. */
export const FLOW_BLOCKS: readonly (readonly [string, (step: StepReader) => Translation])[] = [
  ["continue_if@v1", continueIf],
  ["ContinueIf", continueIf],
  ["switch_case@v1", switchCase],
  ["SwitchCase", switchCase],
  ["rate_limiter@v1", rateLimiter],
  ["delta_filter@v1", deltaFilter],
  ["expression@v1", expression],
  ["Expression", expression],
  ["property_definition@v1", property],
  ["PropertyDefinition", property],
  ["PropertyExtraction", property],
  ["first_non_empty_or_default@v1", firstOf],
  ["FirstNonEmptyOrDefault", firstOf],
  ["dimension_collapse@v1", collapse],
  ["csv_formatter@v1", csv],
  ["webhook_sink@v1", webhook],
  ["roboflow_dataset_upload@v1", upload],
  ["RoboflowDatasetUpload", upload],
  ["roboflow_dataset_upload@v2", upload],
  [INNER_TYPE, innerWorkflow],
  ["cache_set@v1", cacheSet],
  ["cache_get@v1", cacheGet],
];
