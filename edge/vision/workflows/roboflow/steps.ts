// A Roboflow step while it is imported: its fields read as ports (references or literals), as fixed
// parameters, or as expressions, each refused by name where it has no counterpart here.

import { z } from "zod";
import { JsonValue } from "../../../../shared/json-value.ts";
import { PARAMETERS_MAX, type WorkflowStep } from "../../../../shared/workflow/definition.ts";
import { isKindOf, type Kind } from "../../../../shared/workflow/kinds.ts";
import { inLimits, NoCounterpart, operations, type Term } from "./query.ts";

export type Json = JsonValue;

/** A map of texts; its members are not copied one by one, as there may be very many. */
export const Texts = z.custom<Readonly<Record<string, string>>>(
  (value) =>
    z.core.util.isPlainObject(value) &&
    Object.values(value).every((one) => typeof one === "string"),
);

/** A reference of ours, and the kind of what it refers to. */
export interface Source {
  reference: string;
  kind: Kind;
}

/** What a step became. */
export interface Translation {
  steps: WorkflowStep[];
  /** By the names that Roboflow has for its outputs. */
  outputs: Readonly<Record<string, Source>>;
  /** Conditions of other steps, by their Roboflow names. */
  gates?: readonly { target: string; reference: string }[];
}

/** One step of ours by its ports and parameters; what is undefined is left open. */
export function one(
  step: StepReader,
  type: string,
  {
    parameters,
    outputs,
  }: {
    parameters: Readonly<Record<string, Json | undefined>>;
    outputs: Readonly<Record<string, readonly [port: string, kind: Kind]>>;
  },
): Translation {
  const given = Object.entries(parameters).filter(
    (entry): entry is [string, Json] => entry[1] !== undefined,
  );
  return {
    steps: [{ id: step.id, type, parameters: Object.fromEntries(given) }],
    outputs: Object.fromEntries(
      Object.entries(outputs).map(([name, [port, kind]]) => [
        name,
        { reference: `$steps.${step.id}.${port}`, kind },
      ]),
    ),
  };
}

/** What a step knows of the workflow around it. */
export interface Scope {
  /** What a selector refers to where a kind is wanted; throws NoCounterpart. */
  refer(selector: string, wanted: Kind): Source;
  /** The default of the input that a selector names; undefined where it has none or is no input. */
  defaultOf(selector: string): unknown;
  /** A new input of the workflow, or the one that it has for this already. */
  addInput(name: string, kind: Kind, fallback?: Json): string;
  warn(text: string): void;
}

/** Whether a value is a selector of Roboflow's. */
export const isSelector = (value: unknown): value is string =>
  typeof value === "string" && /^\$(inputs|steps)\./.test(value);

/** A name by our rules, made of any. */
export function nameOf(text: string): string {
  const word = text
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "_")
    .replace(/^_+|_+$/g, "");
  return (/^[a-z]/.test(word) ? word : `x_${word}`).slice(0, 48);
}

/** Names that are given once, by their order where several would be the same. */
export class FreeNames {
  readonly #taken: Set<string>;
  readonly #last = new Map<string, number>();

  constructor(taken: readonly string[] = []) {
    this.#taken = new Set(taken);
  }

  take(name: string): string {
    let free = name;
    let index = this.#last.get(name) ?? 1;
    while (this.#taken.has(free)) free = `${name}_${++index}`;
    this.#last.set(name, index);
    this.#taken.add(free);
    return free;
  }
}

export class StepReader {
  readonly id: string;
  readonly #fields: Readonly<Record<string, unknown>>;
  readonly #scope: Scope;

  constructor(id: string, fields: Readonly<Record<string, unknown>>, scope: Scope) {
    this.id = id;
    this.#fields = fields;
    this.#scope = scope;
  }

  /** A field as it stands, by the first of its names that is there; null counts as left out. */
  raw(...names: string[]): unknown {
    const name = names.find((one) => Object.hasOwn(this.#fields, one));
    return (name === undefined ? undefined : this.#fields[name]) ?? undefined;
  }

  warn(text: string): void {
    this.#scope.warn(`${this.id}: ${text}`);
  }

  addInput(name: string, kind: Kind, fallback?: Json): string {
    return this.#scope.addInput(name, kind, fallback);
  }

  /** What a selector refers to. */
  refer(selector: unknown, wanted: Kind): Source {
    if (isSelector(selector)) return this.#scope.refer(selector, wanted);
    throw new NoCounterpart(`a ${wanted} that is not given by a reference`);
  }

  /** The source of a field that must be a reference, by any of its names. */
  source(names: string | readonly string[], wanted: Kind): Source {
    const list = typeof names === "string" ? [names] : names;
    const value = this.raw(...list);
    if (value === undefined) throw new NoCounterpart(`its ${list[0]} is left out`);
    return this.refer(value, wanted);
  }

  /** A field as a port of ours takes it: a reference, or a literal of a schema; or nothing. */
  port(name: string, wanted: Kind, literal: z.ZodType): Json | undefined {
    const value = this.raw(name);
    if (value === undefined) return undefined;
    if (isSelector(value)) return this.#scope.refer(value, wanted).reference;
    const parsed = literal.safeParse(value);
    if (parsed.success) return JsonValue.parse(parsed.data);
    throw new NoCounterpart(`its ${name} is no ${wanted}`);
  }

  /**
   * A field that has to be a literal here. An input's default stands for the input; anything else
   * gives way to the fallback, and both are told.
   */
  fixed<Schema extends z.ZodType>(
    name: string,
    schema: Schema,
    fallback: z.output<Schema>,
  ): z.output<Schema> {
    const given = this.raw(name);
    if (given === undefined) return fallback;
    const value = isSelector(given) ? this.#scope.defaultOf(given) : given;
    const parsed = schema.safeParse(value);
    const result = parsed.success ? parsed.data : fallback;
    if (isSelector(given) || !parsed.success) {
      this.warn(`${name} is fixed at ${JSON.stringify(result)}, in place of ${said(given)}`);
    }
    return result;
  }

  /** Says of fields that are set to something that they have no counterpart. */
  ignore(...names: string[]): void {
    for (const name of names) {
      if (this.raw(name) !== undefined) this.warn(`${name} has no counterpart and is left out`);
    }
  }

  /**
   * A step that works out an expression over values by Roboflow's names for them; the text is made
   * of the terms that stand for these.
   */
  expression(
    id: string,
    values: Readonly<Record<string, unknown>>,
    { kind, make }: { kind: Kind; make: (term: (name: string) => Term) => string },
  ): { step: WorkflowStep; source: Source } {
    const names: string[] = [];
    const free = new FreeNames(TAKEN);
    const ports: Record<string, Json> = {};
    const terms = new Map<string, Term>();
    if (Object.keys(values).length > PARAMETERS_MAX) {
      throw new NoCounterpart("a condition over too many values");
    }
    for (const [name, value] of Object.entries(values)) {
      // Our ports take no null; in the expression it may stand.
      if (value === null || value === undefined) {
        terms.set(name, { text: "null", of: "value" });
        continue;
      }
      const port = free.take(nameOf(name).slice(0, 30));
      names.push(port);
      const source = isSelector(value) ? this.refer(value, "json") : null;
      ports[port] = source ? source.reference : JsonValue.parse(value);
      const isObjects = source !== null && isKindOf(source.kind, "detections");
      terms.set(name, { text: port, of: isObjects ? "detections" : "value" });
    }
    const expression = inLimits(
      make((name) => {
        const term = terms.get(name);
        if (!term) throw new NoCounterpart(`a value ${name} that is given nowhere`);
        return term;
      }),
    );
    const parameters = { inputs: names, expression, kind, ...ports };
    return {
      step: { id, type: "expression@1", parameters },
      source: { reference: `$steps.${id}.value`, kind },
    };
  }

  /** A value after a chain of operations, as a step of ours where there are any. */
  operated(
    id: string,
    selector: unknown,
    chain: unknown,
  ): { steps: WorkflowStep[]; source: Source } {
    const isPlain = !Array.isArray(chain) || chain.length === 0;
    if (isPlain) return { steps: [], source: this.refer(selector, "any") };
    const { step, source } = this.expression(
      id,
      { data: selector },
      {
        kind: kindAfter(chain),
        make: (term) => operations(term("data"), chain).text,
      },
    );
    return { steps: [step], source };
  }
}

/** Words that a port of an expression cannot be called by. */
const TAKEN = [
  "inputs",
  "expression",
  "kind",
  "and",
  "or",
  "not",
  "in",
  "true",
  "false",
  "null",
] as const;

const said = (value: unknown): string => JSON.stringify(value)?.slice(0, 80) ?? "nothing";

/** Kinds of what operations give, where they are sure. */
const KINDS: Readonly<Record<string, Kind>> = {
  SequenceLength: "integer",
  Multiply: "number",
  Divide: "number",
  NumberRound: "number",
  ToNumber: "number",
  NumericSequenceAggregate: "number",
  StringToLowerCase: "string",
  StringToUpperCase: "string",
  SequenceJoin: "string",
  ToString: "string",
};
const PROPERTY_KINDS: Readonly<Record<string, Kind>> = {
  class_name: "list<string>",
  confidence: "list<number>",
  x_min: "list<number>",
  x_max: "list<number>",
  y_min: "list<number>",
  y_max: "list<number>",
  size: "list<number>",
};
const Last = z.object({ type: z.string(), property_name: z.string().optional() });

function kindAfter(chain: readonly unknown[]): Kind {
  const last = Last.safeParse(chain.at(-1));
  if (!last.success) return "json";
  const { type, property_name: property = "" } = last.data;
  const of = type === "DetectionsPropertyExtract" ? PROPERTY_KINDS[property] : KINDS[type];
  return of ?? "json";
}
