// Sends to every operation with a JSON body each field that may be left out as null, and without
// it. Goal: both are answered alike, but where a null says something of its own.

import {
  type Description,
  endpointsOf,
  exampleRequest,
  type Json,
} from "../../edge/http/example-request.ts";
import { type Schema, sampleOf, shapeOf, withValue } from "./hostile.ts";

/** What came of a request, as far as it is compared: refusals are, by what they find. */
export interface Outcome {
  status: number;
  issues?: unknown;
}

export interface NotGivenOptions {
  document: Description;
  /** A body in order, of the documented one; undefined leaves the operation out. */
  bodyOf: (route: string, documented: unknown) => unknown;
  ask: (request: { route: string; query: string; body: unknown }) => Promise<Outcome>;
}

/** A field that may be left out. */
interface OmittableField {
  /** Elements of arrays are `0`. */
  path: string[];
  /** What it lies in as its schema would have it. */
  holder: Json;
}

function* omittableFields(
  schema: Schema | undefined,
  document: Description,
  path: readonly string[] = [],
  seen: readonly string[] = [],
): Generator<OmittableField> {
  if (!schema) return;
  const name = schema.$ref?.split("/").at(-1);
  if (name !== undefined) {
    if (seen.includes(name)) return;
    yield* omittableFields(shapeOf(document, name), document, path, [...seen, name]);
    return;
  }
  const { properties = {}, required = [], items, anyOf = [], oneOf = [], allOf = [] } = schema;
  for (const [field, inner] of Object.entries(properties)) {
    // A schema with properties is one of an object.
    const holder = sampleOf({ type: "object", properties, required }, document) as Json;
    if (!required.includes(field)) yield { path: [...path, field], holder };
    yield* omittableFields(inner, document, [...path, field], seen);
  }
  yield* omittableFields(items, document, [...path, "0"], seen);
  for (const part of [...anyOf, ...oneOf, ...allOf]) {
    yield* omittableFields(part, document, path, seen);
  }
}

const valueAt = (body: unknown, path: readonly string[]) =>
  path.reduce<unknown>((value, field) => (value as Json | undefined)?.[field], body);

/** What differs between a null and nothing, by `POST /path field`, and what was compared. */
export async function driveNulls({ document, bodyOf, ask }: NotGivenOptions) {
  const differences: Record<string, Outcome[]> = {};
  const compared: string[] = [];
  for (const endpoint of endpointsOf(document)) {
    const media = endpoint.operation.requestBody?.content?.["application/json"];
    if (!media) continue;
    const schema = media.schema as Schema | undefined;
    const route = `${endpoint.method} ${endpoint.path}`;
    const example = exampleRequest(endpoint, document);
    const [, query = ""] = example.path.split("?");
    const body = bodyOf(route, example.body ?? sampleOf(schema, document));
    if (body === undefined) continue;
    const fields = new Map(
      [...omittableFields(schema, document)].map((field) => [field.path.join("."), field]),
    );
    for (const { path, holder } of fields.values()) {
      const [field, above] = [path.at(-1) as string, path.slice(0, -1)];
      const { [field]: _, ...own } = { ...holder, ...(valueAt(body, above) as Json | undefined) };
      const without = withValue(body, above, own);
      const withNull = withValue(without, path, null);
      // What a request changes may change the answer to the next one, whatever that holds.
      const [before, outcome, after] = [
        await ask({ route, query, body: without }),
        await ask({ route, query, body: withNull }),
        await ask({ route, query, body: without }),
      ];
      const name = `${route} ${path.join(".")}`;
      compared.push(name);
      const isSame = [before, after].some((one) => JSON.stringify(one) === JSON.stringify(outcome));
      if (!isSame) differences[name] = [before, outcome, after];
    }
  }
  return { differences, compared };
}
