// Blocks that remember: limits on how often a value passes, changes of a value, and the values that
// the steps of a workflow keep for each other. States are small JSON, bounded in keys and size.

import { z } from "zod";
import { type Block, BlockFailure, defineBlock } from "../block.ts";
import { readState } from "../step-state.ts";

const KEYS_MAX = 1_000;
const KEY_CHARACTERS_MAX = 200;
/** Characters of a value as JSON, and of all values of a workflow. */
const VALUE_CHARACTERS_MAX = 10_000;
const STORE_CHARACTERS_MAX = 200_000;

/** The state that all steps with values of their workflow share. */
const VALUES_KEY = "$values";

const rateLimiter = defineBlock({
  type: "rate_limiter@1",
  title: "Rate limiter",
  description: "Lets a value through once in so many seconds, and masks it in between.",
  section: "flow",
  inputs: { value: { kind: "any", meaning: "what is let through" } },
  parameters: z.object({
    seconds: z.number().positive().max(86_400).meta({
      description: "min time from one that passed to the next",
    }),
  }),
  outputs: {
    value: { kind: { like: "value" }, meaning: "the value, where it passes" },
    passed: { kind: "boolean", meaning: "whether it passes" },
  },
  runsOn: "anywhere",
  purity: "stateful",
  cost: "free",
  example: {
    parameters: { seconds: 2 },
    state: { passed_ms: 1_000 },
    now: 2_500,
    inputs: { value: "alarm" },
    outputs: { value: null, passed: false },
  },
  run: ({ inputs: { value }, parameters, state: given, now }) => {
    const State = z.object({ passed_ms: z.number().nullable() });
    const { state, warnings } = readState(State, given, { passed_ms: null });
    const elapsed = state.passed_ms === null ? null : now - state.passed_ms;
    // A time before the last one is another stream's beginning.
    const passed = elapsed === null || elapsed < 0 || elapsed >= parameters.seconds * 1_000;
    return {
      outputs: { value: passed ? value : null, passed },
      ...(passed && { state: { passed_ms: now } }),
      warnings,
    };
  },
});

/** JSON of a value with the keys of its objects in order, so that equal values have equal texts. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_, inner: unknown) =>
    typeof inner === "object" && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)))
      : inner,
  );
}

/** A value's text, where it is short enough to be kept. */
function textToKeep(value: unknown): string {
  const text = canonical(value);
  if (text.length <= VALUE_CHARACTERS_MAX) return text;
  throw new BlockFailure(
    `the value has ${text.length} characters as JSON; ${VALUE_CHARACTERS_MAX} can be kept`,
  );
}

const deltaFilter = defineBlock({
  type: "delta_filter@1",
  title: "Delta filter",
  description:
    "Lets a value through when it differs from the last one that passed, and masks it otherwise. " +
    "The first one passes.",
  section: "flow",
  inputs: {
    value: { kind: "json", meaning: "what is compared and let through" },
    threshold: {
      kind: "number",
      meaning: "numbers have to differ by more than this",
      default: 0,
    },
  },
  parameters: z.object({}),
  outputs: {
    value: { kind: { like: "value" }, meaning: "the value, where it has changed" },
    changed: { kind: "boolean", meaning: "whether it has" },
  },
  runsOn: "anywhere",
  purity: "stateful",
  cost: "free",
  example: {
    parameters: {},
    state: { passed: "3" },
    inputs: { value: 4 },
    outputs: { value: 4, changed: true },
  },
  run: ({ inputs: { value, threshold }, state: given }) => {
    const State = z.object({ passed: z.string().nullable() });
    const { state, warnings } = readState(State, given, { passed: null });
    const text = textToKeep(value);
    const former = state.passed === null ? Number.NaN : Number(state.passed);
    const isNear =
      typeof value === "number" && !Number.isNaN(former) && Math.abs(value - former) <= threshold;
    const changed = state.passed !== text && !isNear;
    return {
      outputs: { value: changed ? value : null, changed },
      ...(changed && { state: { passed: text } }),
      warnings,
    };
  },
});

const Values = z.object({
  values: z
    .array(
      z.object({
        key: z.string(),
        value: z.json(),
        /** Milliseconds, as `now` counts them; null: it stays. */
        expires_ms: z.number().nullable(),
      }),
    )
    .max(KEYS_MAX),
});
type Values = z.infer<typeof Values>;
type Entry = Values["values"][number];

const key = {
  kind: "string",
  meaning: "name of the value, which all steps of the workflow share",
} as const;

/** The values as they are now: those whose time has come are gone. */
function openValues(given: unknown, now: number): { values: Entry[]; warnings: string[] } {
  const { state, warnings } = readState(Values, given, { values: [] });
  const isAlive = ({ expires_ms: end }: Entry) => end === null || now < end;
  return { values: state.values.filter(isAlive), warnings };
}

/** The state with an entry written, and what had to go for it: the oldest, as there is a limit. */
function write(values: readonly Entry[], entry: Entry): { state: Values; warnings: string[] } {
  if (entry.key.length > KEY_CHARACTERS_MAX) {
    throw new BlockFailure(`a key has ${KEY_CHARACTERS_MAX} characters at most`);
  }
  const next = [...values.filter((one) => one.key !== entry.key), entry];
  const sizes = next.map((one) => one.key.length + canonical(one.value).length);
  let size = sizes.reduce((sum, one) => sum + one, 0);
  let gone = 0;
  while (next.length - gone > KEYS_MAX || size > STORE_CHARACTERS_MAX)
    size -= sizes[gone++] ?? size;
  const warnings = gone > 0 ? [`the oldest kept values were dropped: ${gone}`] : [];
  return { state: { values: next.slice(gone) }, warnings };
}

const keyValueSet = defineBlock({
  type: "key_value_set@1",
  title: "Keep a value",
  description: "Keeps a value by a key, for later frames and for the steps after it.",
  section: "values",
  inputs: {
    key,
    value: { kind: "json", meaning: "what is kept" },
    seconds: { kind: "number", meaning: "how long it is kept", optional: true },
  },
  parameters: z.object({}),
  outputs: {
    value: { kind: { like: "value" }, meaning: "the value, as it came" },
    previous: { kind: "json", meaning: "what was kept until now; masked where nothing was" },
  },
  runsOn: "anywhere",
  purity: "stateful",
  stateKey: VALUES_KEY,
  cost: "free",
  example: {
    parameters: {},
    state: { values: [{ key: "last", value: 3, expires_ms: null }] },
    inputs: { key: "last", value: 4 },
    outputs: { value: 4, previous: 3 },
  },
  run: ({ inputs, state, now }) => {
    const { values, warnings } = openValues(state, now);
    const value = z.json().parse(JSON.parse(textToKeep(inputs.value)));
    const end = inputs.seconds === undefined ? null : now + inputs.seconds * 1_000;
    // A time beyond what a number holds never comes, and no state can hold it.
    const expires = end !== null && Number.isFinite(end) ? end : null;
    const result = write(values, { key: inputs.key, value, expires_ms: expires });
    return {
      outputs: {
        value: inputs.value,
        previous: values.find((one) => one.key === inputs.key)?.value ?? null,
      },
      state: result.state,
      warnings: [...warnings, ...result.warnings],
    };
  },
});

const keyValueGet = defineBlock({
  type: "key_value_get@1",
  title: "Read a kept value",
  description: "Gives the value that a step has kept by a key; masked where there is none.",
  section: "values",
  inputs: {
    key,
    default: { kind: "json", meaning: "what is given where nothing is kept", optional: true },
    after: {
      kind: "any",
      meaning: "output of a step that has to come first, such as the one that keeps the value",
      optional: true,
      takesMasked: true,
    },
  },
  parameters: z.object({}),
  outputs: {
    value: { kind: "json", meaning: "the value, or the default" },
    is_kept: { kind: "boolean", meaning: "whether there is one" },
  },
  runsOn: "anywhere",
  purity: "stateful",
  stateKey: VALUES_KEY,
  cost: "free",
  example: {
    parameters: {},
    state: { values: [{ key: "last", value: 3, expires_ms: null }] },
    inputs: { key: "last" },
    outputs: { value: 3, is_kept: true },
  },
  run: ({ inputs, state, now }) => {
    const { values, warnings } = openValues(state, now);
    const entry = values.find((one) => one.key === inputs.key);
    return {
      outputs: { value: entry ? entry.value : (inputs.default ?? null), is_kept: Boolean(entry) },
      warnings,
    };
  },
});

const counter = defineBlock({
  type: "counter@1",
  title: "Counter",
  description: "Adds to a kept number and gives the sum.",
  section: "values",
  inputs: {
    key,
    add: { kind: "number", meaning: "what is added", default: 1 },
    reset: { kind: "boolean", meaning: "whether it begins at 0 before that", default: false },
  },
  parameters: z.object({}),
  outputs: { value: { kind: "number", meaning: "the sum" } },
  runsOn: "anywhere",
  purity: "stateful",
  stateKey: VALUES_KEY,
  cost: "free",
  example: {
    parameters: {},
    state: { values: [{ key: "cars", value: 3, expires_ms: null }] },
    inputs: { key: "cars", add: 2 },
    outputs: { value: 5 },
  },
  run: ({ inputs, state, now }) => {
    const { values, warnings } = openValues(state, now);
    const former = values.find((one) => one.key === inputs.key)?.value;
    const sum = (typeof former === "number" && !inputs.reset ? former : 0) + inputs.add;
    if (!Number.isFinite(sum)) throw new BlockFailure("the sum is beyond what a number holds");
    const result = write(values, { key: inputs.key, value: sum, expires_ms: null });
    return {
      outputs: { value: sum },
      state: result.state,
      warnings: [...warnings, ...result.warnings],
    };
  },
});

export const MEMORY_BLOCKS: readonly Block[] = [
  rateLimiter,
  deltaFilter,
  keyValueSet,
  keyValueGet,
  counter,
];
