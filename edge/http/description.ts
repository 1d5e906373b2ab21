// The OpenAPI description of a service: what its routes declare, and what the chassis does for each
// of them: headers that every answer carries, and the word that a route without a credential is
// open.

import type { OpenAPIHono } from "@hono/zod-openapi";
import type { Env } from "hono";
import { endpointsOf } from "./example-request.ts";

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

/** The OpenAPI 3.1 document of a service. */
export function documentOf<E extends Env>(app: OpenAPIHono<E>, service: ServiceDescription) {
  const { title, description, version, tags = {} } = service;
  const document = app.getOpenAPI31Document({
    openapi: "3.1.0",
    info: { title, description, version },
    servers: [{ url: "/", description: "where this document was read" }],
    tags: Object.entries(tags).map(([name, about]) => ({ name, description: about })),
  });
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
