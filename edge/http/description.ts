// The OpenAPI description of a service: what its routes declare, and what the chassis does for each
// of them: headers that every answer carries, and the word that a route without a credential is
// open.

import type { OpenAPIHono } from "@hono/zod-openapi";
import type { Env } from "hono";
import { type Description, endpointsOf, type Json } from "./example-request.ts";
import { describeNulls } from "./not-given.ts";

/** A response header as the description names it. */
export type Header = {
  description: string;
  /** Every answer of the status carries it. */
  required?: boolean;
  schema: { type: "string" | "integer"; format?: string; minimum?: number; enum?: string[] };
};

/** What the description of a service says beside its routes. */
export interface ServiceDescription {
  title: string;
  description: string;
  version: string;
  /** Groups of routes, in order, with what each is about. */
  tags?: Readonly<Record<string, string>>;
  /** Response headers of the service's own, which its routes name by `headers`. */
  headers?: Readonly<Record<string, Header>>;
  /** An answer of each route, by `GET /path`; tests hold the service to them. */
  examples?: Readonly<Record<string, unknown>>;
  /**
   * Meanings and examples of fields and parameters whose schemas have none of their own, by name,
   * or by `holder.name`, where the holder is a shape, a field or an operation's id. An example of
   * `operation.body` is the whole of it, where its schema cannot say what it needs.
   */
  glossary?: Readonly<Record<"meanings" | "examples", Readonly<Record<string, unknown>>>>;
}

const EVERYWHERE: Readonly<Record<string, Header>> = {
  "X-Request-Id": {
    description: "the request's id: the caller's own where it sent a sane one",
    required: true,
    schema: { type: "string" },
  },
  "Cache-Control": {
    description: "who may keep the answer, and how long",
    required: true,
    schema: { type: "string" },
  },
};

const OF_ERRORS: Readonly<Record<string, Header>> = {
  "Retry-After": {
    description: "seconds to wait before the next try",
    required: true,
    schema: { type: "integer", minimum: 1 },
  },
  "WWW-Authenticate": {
    description: "the credential that the route wants",
    schema: { type: "string" },
  },
};

/** Response headers by name, to put into the `headers` of a response. */
export const headers = (...names: string[]) =>
  Object.fromEntries(names.map((name) => [name, { $ref: `#/components/headers/${name}` }]));

/** Headers that an error of this status carries. */
export function errorHeaders(status: number) {
  if (status === 429 || status === 503) return headers("Retry-After");
  return status === 401 ? headers("WWW-Authenticate") : {};
}

/** A body of bytes that is no text. */
// The library's types take only zod schemas where its documents take any schema.
export const binary = { schema: { type: "string", format: "binary" } as never };

/** Registers what routes refer to; call it before the first document is asked for. */
export function registerHeaders<E extends Env>(app: OpenAPIHono<E>, service: ServiceDescription) {
  const all = { ...EVERYWHERE, ...OF_ERRORS, ...service.headers };
  for (const [name, header] of Object.entries(all)) {
    app.openAPIRegistry.registerComponent("headers", name, header);
  }
}

/** Sees every object in a schema or a list of them, with the name of the field that holds it. */
export function eachSchema(
  schema: unknown,
  holder: string,
  see: (schema: Json, holder: string) => void,
) {
  if (typeof schema !== "object" || schema === null) return;
  if (Array.isArray(schema)) {
    for (const one of schema) eachSchema(one, holder, see);
    return;
  }
  const { properties = {}, example: _, default: __, ...others } = schema as Json;
  see(schema as Json, holder);
  for (const [name, property] of Object.entries(properties as Json)) {
    eachSchema(property, name, see);
  }
  for (const inner of Object.values(others)) eachSchema(inner, holder, see);
}

/** A tuple says its length, and to readers that know no tuples what is in it. */
function makePlain(schema: Json) {
  const { prefixItems } = schema;
  if (Array.isArray(prefixItems)) {
    const kinds = new Map(prefixItems.map((one) => [JSON.stringify(one), one as Json]));
    const [kind, ...others] = kinds.values();
    const length = prefixItems.length;
    const items = others.length > 0 ? { anyOf: [...kinds.values()] } : kind;
    Object.assign(schema, { items, minItems: length, maxItems: length });
  }
  // What is left out is null without a word of it; and an answer, which has every field, has the
  // same shape as a body.
  if (schema.default === null) delete schema.default;
}

/** Makes the schemas of a document plain, and completes their words by the glossary. */
function completeSchemas(document: Description, { glossary }: ServiceDescription) {
  const lookUp = (words: "meanings" | "examples", name: string, holder: string) =>
    glossary?.[words][`${holder}.${name}`] ?? glossary?.[words][name];
  const explain = (schema: Json, holder: string) => {
    makePlain(schema);
    for (const [name, property] of Object.entries((schema.properties ?? {}) as Json)) {
      const field = property as Json;
      if (field.$ref === undefined) field.description ??= lookUp("meanings", name, holder);
    }
  };
  for (const [name, shape] of Object.entries(document.components?.schemas ?? {})) {
    eachSchema(shape, name, explain);
  }
  for (const { operation } of endpointsOf(document)) {
    const holder = operation.operationId ?? "";
    eachSchema([operation.requestBody, operation.responses], holder, explain);
    for (const parameter of operation.parameters ?? []) {
      const { name, schema = {} } = parameter;
      parameter.description ??= lookUp("meanings", name, holder) as string;
      schema.example ??= lookUp("examples", name, holder);
      parameter.schema = schema;
    }
    for (const media of Object.values(operation.requestBody?.content ?? {})) {
      const { schema = {} } = media;
      const whole = glossary?.examples[`${holder}.body`];
      if (whole !== undefined) media.example = whole;
      for (const [name, property] of Object.entries((schema.properties ?? {}) as Json)) {
        (property as Json).example ??= lookUp("examples", name, holder);
      }
    }
  }
}

/** The OpenAPI 3.1 document of a service. */
export function documentOf<E extends Env>(app: OpenAPIHono<E>, service: ServiceDescription) {
  const { title, description, version, tags = {} } = service;
  const generated = app.getOpenAPI31Document({
    openapi: "3.1.0",
    info: { title, description, version },
    servers: [{ url: "/", description: "where this document was read" }],
    tags: Object.entries(tags).map(([name, about]) => ({ name, description: about })),
  });
  // Routes that give a schema as it is share it.
  const document = structuredClone(generated);
  describeNulls(document);
  completeSchemas(document, service);
  for (const { method, path, operation } of endpointsOf(document)) {
    operation.security ??= [];
    const responses = Object.values(operation.responses ?? {});
    for (const response of responses) {
      response.headers = { ...response.headers, ...headers(...Object.keys(EVERYWHERE)) };
    }
    const answer = responses[0]?.content?.["application/json"];
    const example = service.examples?.[`${method} ${path}`];
    if (answer && example !== undefined) answer.example = example;
  }
  return document;
}
