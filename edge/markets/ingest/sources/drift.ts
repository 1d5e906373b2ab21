// What arrived when a provider's format changed: names, types and the first value that did not fit.
// Bounded, and without secrets: values of the rest are not shown.

import type { z } from "zod";
import { Failure } from "../../../../shared/errors.ts";
import { createRedaction } from "../../../../shared/redaction.ts";

const NAMES_MAX = 16;
const NAME_CHARACTERS_MAX = 40;
const DEPTH_MAX = 4;
const VALUE_CHARACTERS_MAX = 60;
const ARRIVED_CHARACTERS_MAX = 800;
const ISSUES_SHOWN = 3;

const redaction = createRedaction({ wholeQueries: true, codeField: "code" });

/** The names and types of a value, as a text: `{total: string, data: [2 of {period: string}]}`. */
export function shapeOf(value: unknown, depth = 0): string {
  if (value === null) return "null";
  if (Array.isArray(value)) {
    if (value.length === 0) return "[]";
    return depth < DEPTH_MAX ? `[${value.length} of ${shapeOf(value[0], depth + 1)}]` : "[…]";
  }
  if (typeof value !== "object") return typeof value;
  if (depth >= DEPTH_MAX) return "{…}";
  const fields = Object.entries(value);
  const shown = fields
    .slice(0, NAMES_MAX)
    .map(([name, inner]) => `${name.slice(0, NAME_CHARACTERS_MAX)}: ${shapeOf(inner, depth + 1)}`);
  const more = fields.length > NAMES_MAX ? [`and ${fields.length - NAMES_MAX} more`] : [];
  return `{${[...shown, ...more].join(", ")}}`;
}

/** The failure for a changed format: what is wrong, and what came in its stead. */
export function driftFailure(provider: string, detail: string, arrived?: unknown): Failure {
  const message = `${provider} changed its format: ${detail}`;
  if (arrived === undefined) return new Failure("upstream_schema_drift", message);
  const text = typeof arrived === "string" ? redaction.text(arrived) : shapeOf(arrived);
  const data = { arrived: text.slice(0, ARRIVED_CHARACTERS_MAX) };
  return new Failure("upstream_schema_drift", message, { data });
}

/** The same for an answer that is not of the expected shape. */
export function shapeDrift(provider: string, error: z.ZodError, body: unknown): Failure {
  const fields = error.issues.map(({ path, message }) => `${path.join(".")}: ${message}`);
  const [first] = error.issues;
  const unfit = first ? valueAt(body, first.path) : undefined;
  const shown = unfit === undefined ? "" : `; ${first?.path.join(".")} is ${unfit}`;
  const detail = `${fields.slice(0, ISSUES_SHOWN).join("; ")}${shown}`;
  return driftFailure(provider, detail, body);
}

/** A plain value at a path, or the shape of another; undefined where there is none. */
function valueAt(body: unknown, path: readonly PropertyKey[]): string | undefined {
  const value = path.reduce<unknown>(
    (within, name) => (within as Record<PropertyKey, unknown> | null | undefined)?.[name],
    body,
  );
  if (value === undefined) return undefined;
  if (typeof value === "object") return shapeOf(value).slice(0, VALUE_CHARACTERS_MAX);
  const name = String(path.at(-1) ?? "");
  const redacted = redaction.value({ [name]: value }) as Record<string, unknown>;
  return JSON.stringify(redacted[name]).slice(0, VALUE_CHARACTERS_MAX);
}
