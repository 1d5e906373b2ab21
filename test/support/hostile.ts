// Drives every route of a service from its own description with values that no client of good will
// sends, one at a time in requests that are else in order. Goal: no answer is a fault of ours, none
// has a status that the description does not know, and none another shape than the one it tells.

import { expect } from "vitest";
import { z } from "zod";
import {
  type Description,
  type Endpoint,
  endpointsOf,
  exampleRequest,
  type Json,
} from "../../edge/http/example-request.ts";
import { headerProblems } from "./headers.ts";
import { oddCredential, oddForms, oddHeaders } from "./hostile-forms.ts";

/** Texts of a path or a query. */
export const TEXTS = [
  "",
  " ",
  "x",
  "\u0000",
  "a\u0000b",
  "-1",
  "0x10",
  "1e-46",
  "1e400",
  "NaN",
  "2147483648",
  "9223372036854775808",
  "0".repeat(400),
  "é".repeat(3_000),
  "../../etc/passwd",
  "%",
  "' OR 1=1 --",
  "00000000-0000-0000-0000-000000000000",
  "9999999-99-99",
  "0000-01-01",
  "\ud800",
];
/** Values of a field of a body. */
const VALUES = [
  null,
  true,
  "",
  " ",
  "\u0000",
  "x".repeat(100_000),
  "\ud800",
  -1,
  0.1,
  33,
  1e-46,
  1e308,
  2_147_483_648,
  2 ** 53,
  [],
  [null],
  {},
  { $ref: "x" },
  ["\u0000"],
];
/** Of any route: no such path, not so, another type, too large, too many. */
const COMMON = [400, 404, 405, 413, 415, 429];

export interface Schema {
  $ref?: string;
  type?: string;
  format?: string;
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  minimum?: number;
  minItems?: number;
  minLength?: number;
  required?: string[];
  properties?: Record<string, Schema>;
  items?: Schema;
  additionalProperties?: Schema | boolean;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
}

/** The fields of a body, each as the path to it; elements of arrays are `0`. */
function fieldsOf(schema: Schema | undefined, document: Description, depth = 0): string[][] {
  if (!schema || depth > 3) return [];
  const name = schema.$ref?.split("/").at(-1);
  if (name !== undefined) return fieldsOf(shapeOf(document, name), document, depth);
  const parts = [...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])];
  const below = Object.entries(schema.properties ?? {}).flatMap(([field, inner]) => [
    [field],
    ...fieldsOf(inner, document, depth + 1).map((path) => [field, ...path]),
  ]);
  const items = fieldsOf(schema.items, document, depth + 1).map((path) => ["0", ...path]);
  const others = parts.flatMap((part) => fieldsOf(part, document, depth));
  return [
    ...new Map([...below, ...items, ...others].map((path) => [path.join("."), path])).values(),
  ];
}

/** A value that a schema takes, with nothing in it that need not be there. */
export function sampleOf(schema: Schema | undefined, document: Description): unknown {
  if (!schema) return null;
  const name = schema.$ref?.split("/").at(-1);
  if (name !== undefined) return sampleOf(shapeOf(document, name), document);
  if (schema.const !== undefined) return schema.const;
  if (schema.default !== undefined) return schema.default;
  if (schema.enum) return schema.enum[0];
  const [first] = schema.anyOf ?? schema.oneOf ?? schema.allOf ?? [];
  if (first) return sampleOf(first, document);
  if (schema.type === "array") {
    return Array.from({ length: schema.minItems ?? 0 }, () => sampleOf(schema.items, document));
  }
  if (schema.type === "string") {
    return schema.format === "uuid" ? crypto.randomUUID() : "a".repeat(schema.minLength ?? 1);
  }
  if (schema.type === "number" || schema.type === "integer")
    return Math.max(schema.minimum ?? 1, 1);
  if (schema.type === "boolean") return true;
  const { properties = {}, required = [] } = schema;
  return Object.fromEntries(required.map((one) => [one, sampleOf(properties[one], document)]));
}

/** A body with a value at a path; what lies on the way and is not there is made. */
export function withValue(body: unknown, [field, ...rest]: string[], value: unknown): unknown {
  if (field === undefined) return value;
  if (field === "0") {
    const [first, ...others] = Array.isArray(body) ? (body as unknown[]) : [{}];
    return [withValue(first, rest, value), ...others];
  }
  const object = typeof body === "object" && body !== null ? (body as Record<string, unknown>) : {};
  return { ...object, [field]: withValue(object[field], rest, value) };
}

export const shapeOf = ({ components }: Description, name: string) =>
  components?.schemas?.[name] as Schema | undefined;

/** A request of the driver. */
export interface HostileRequest {
  /** `GET /path`. */
  route: string;
  method: string;
  /** With the query. */
  path: string;
  body: unknown;
  headers: Record<string, string>;
}

/** What came of a request. */
export interface HostileReply {
  status: number;
  headers: Headers;
  /** The parsed body of a JSON answer. */
  body: unknown;
}

/** The reply of a fetch. */
export async function replyOf(response: Response): Promise<HostileReply> {
  const { status, headers } = response;
  const text = await response.text();
  const isJson = headers.get("Content-Type")?.startsWith("application/json");
  return { status, headers, body: isJson ? JSON.parse(text) : null };
}

/** What a fetch is given to send a body of the driver's: JSON, or what is to be sent as it is. */
export function sentBody(body: unknown): RequestInit {
  if (body === undefined) return {};
  // Node's types of what it sends are others than those of the DOM.
  if (body instanceof ReadableStream) return { body, duplex: "half" } as never;
  const isRaw = typeof body === "string" || body instanceof Uint8Array;
  return { body: isRaw ? (body as string) : JSON.stringify(body) };
}

export interface HostileOptions {
  document: Description;
  /** Routes that are left out. */
  skipped?: RegExp;
  /** A declared path with values for its parameters; those given stand before what exists. */
  fill: (path: string, given?: Readonly<Record<string, string>>) => string;
  /** What a field of a form holds in one that is in order. */
  fieldOf?: (name: string) => string | undefined;
  /** Asks with a credential that is nobody's; only what needs one is asked so. */
  askStranger?: HostileOptions["ask"];
  /** A body in order, of the sample that the schema gave. */
  bodyOf?: (route: string, sample: unknown) => unknown;
  /** Asks as somebody who may. */
  ask: (request: HostileRequest) => Promise<HostileReply>;
  /** Ask as others may, by who that is, six at most; only some requests are sent so. */
  others?: Readonly<Record<string, HostileOptions["ask"]>>;
}

/** An answer, and what it was asked. */
export interface Answer extends HostileReply {
  endpoint: Endpoint;
  /** Who of the others asked; null is who may. */
  by: string | null;
  route: string;
  what: string;
  /** Its headers or its form were hostile; of the others nobody asks so. */
  isOdd: boolean;
  /** The body that it is an answer to. */
  given: unknown;
  /** The parameter that was hostile, where one was. */
  parameter?: { name: string; text: string } | undefined;
}

/** Each of the others sends one of so many of a route's requests, and no two the same. */
const OTHERS_EVERY = 7;

/** Sends all that there is to send; counts are printed. */
export async function driveHostile(options: HostileOptions): Promise<Answer[]> {
  const answers: Answer[] = [];
  const others = Object.entries(options.others ?? {});
  for (const [at, endpoint] of endpointsOf(options.document).entries()) {
    const route = `${endpoint.method} ${endpoint.path}`;
    if (options.skipped?.test(route)) continue;
    for (const odd of oddRequests(endpoint, at, options)) {
      const { what, headers, parameter, stranger } = odd;
      const request = { route, method: endpoint.method, path: odd.path, body: odd.body, headers };
      const ask = stranger ? options.askStranger : options.ask;
      if (!ask) continue;
      const told = { endpoint, route, what, isOdd: true, given: undefined, parameter };
      answers.push({ ...(await ask(request)), ...told, by: stranger ? "stranger" : null });
    }
    const requests = requestsOf(endpoint, route, options);
    for (const [index, { what, path, body, parameter }] of [...requests].entries()) {
      // JSON that is sent as a text is JSON too.
      const headers: Record<string, string> =
        typeof body === "string" ? { "Content-Type": "application/json" } : {};
      const request = { route, method: endpoint.method, path, body, headers };
      const told = { endpoint, route, what, isOdd: false, given: body, parameter };
      answers.push({ ...(await options.ask(request)), ...told, by: null });
      const [by, other] = others[index % OTHERS_EVERY] ?? [];
      if (by && other) answers.push({ ...(await other(request)), ...told, by });
    }
  }
  const counts = Map.groupBy(answers, ({ status }) => status);
  const told = [...counts].sort().map(([status, of]) => `${of.length} × ${status}`);
  console.info(`hostile values: ${answers.length} answers, ${told.join(", ")}`);
  return answers;
}

/** The query of a route in order. Nobody does the work here, so nobody waits for it. */
function queryOf(endpoint: Endpoint, document: Description): string {
  const [, search = ""] = exampleRequest(endpoint, document).path.split("?");
  const waits = endpoint.operation.parameters?.some(({ name }) => name === "wait_seconds");
  return waits ? `wait_seconds=0${search && `&${search}`}` : search;
}

/** The requests of a route with odd headers, and its odd forms. */
function* oddRequests(endpoint: Endpoint, index: number, options: HostileOptions) {
  const { document, fill, bodyOf, fieldOf = () => undefined } = options;
  const { method, path, operation } = endpoint;
  const query = queryOf(endpoint, document);
  const asked = query && `?${query}`;
  // What would be done, and is in order but for its headers, is done to nothing that there is.
  const names = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name as string);
  const none = Object.fromEntries(names.map((name) => [name, crypto.randomUUID()]));
  const address = fill(path, method === "GET" ? {} : none) + asked;
  const schema = operation.requestBody?.content?.["application/json"]?.schema as Schema | undefined;
  const sample = schema && sampleOf(schema, document);
  const body = schema && bodyOf ? bodyOf(`${method} ${path}`, sample) : sample;
  const json = schema && JSON.stringify(body);
  for (const one of oddHeaders(endpoint, { index, json })) {
    yield { ...one, path: address, stranger: false };
  }
  if ((operation.security ?? []).length > 0) {
    yield { ...oddCredential(index), path: address, stranger: true };
  }
  for (const one of oddForms(endpoint, fieldOf)) {
    yield { ...one, path: fill(path) + asked, stranger: false };
  }
}

/** The requests of a route: each parameter, each field of the body and the body itself. */
function* requestsOf(endpoint: Endpoint, route: string, options: HostileOptions) {
  const { document, fill, bodyOf } = options;
  const { operation } = endpoint;
  const search = queryOf(endpoint, document);
  const address = (given?: Record<string, string>, query = search) =>
    `${fill(endpoint.path, given)}${query ? `?${query}` : ""}`;
  const schema = operation.requestBody?.content?.["application/json"]?.schema as Schema | undefined;
  const sample = schema && sampleOf(schema, document);
  const body = bodyOf ? bodyOf(route, sample) : sample;
  for (const { in: where, name } of operation.parameters ?? []) {
    if (where !== "query" && where !== "path") continue;
    for (const text of TEXTS) {
      // A lone half of a pair has no form in an address.
      const value = encodeURIComponent(text.toWellFormed());
      const query = new URLSearchParams(search);
      query.delete(name);
      const others = query.size > 0 ? `&${query}` : "";
      const path =
        where === "query" ? address({}, `${name}=${value}${others}`) : address({ [name]: value });
      const what = `${where} ${name}=${JSON.stringify(text).slice(0, 40)}`;
      yield { what, path, body, parameter: { name, text: text.toWellFormed() } };
    }
  }
  for (const field of fieldsOf(schema, document)) {
    for (const value of VALUES) {
      const what = `body ${field.join(".")}=${JSON.stringify(value)?.slice(0, 40)}`;
      yield { what, path: address(), body: withValue(body ?? {}, field, value) };
    }
  }
  if (!schema) return;
  for (const value of [null, [], "x", 1]) {
    const text = JSON.stringify(value);
    yield { what: `body ${text}`, path: address(), body: text };
  }
}

/** Whether an answer says that nobody is there to do the work: no fault of whoever says it. */
const isWithoutNode = (body: unknown) => (body as { code?: string } | null)?.code === "no_node";

/** Holds the answers against the description that they were asked of. */
export function expectDeclared(answers: readonly Answer[], document: Description) {
  const named = ({ route, what, status }: Answer) => `${status} ${route} ${what}`;
  const isFault = ({ status, body, endpoint }: Answer) =>
    status >= 500 && !(503 in (endpoint.operation.responses ?? {}) && isWithoutNode(body));
  expect(answers.filter(isFault).map(named)).toEqual([]);
  const unknown = answers.filter(
    ({ status, endpoint }) =>
      !(status in (endpoint.operation.responses ?? {})) && !COMMON.includes(status),
  );
  expect(unknown.map(named)).toEqual([]);
  const wrong = answers.flatMap((answer) =>
    headerProblems(answer.endpoint, answer, document).map((one) => `${named(answer)}: ${one}`),
  );
  expect(wrong).toEqual([]);
  const isOf = shapeChecker(document);
  const strange = answers.filter((answer) => !isOf(answer));
  expect(strange.map((answer) => [named(answer), answer.body])).toEqual([]);
}

/** What no schema says here of a text. */
const UNSAID = "must not hold half a surrogate pair";

/**
 * Holds the description against the refusals: where the service finds a field or a parameter wrong,
 * its schema does, too.
 */
export function expectBounds(answers: readonly Answer[], document: Description) {
  const $defs = localSchemas(document.components?.schemas ?? {});
  const shapes = new Map<string, z.ZodType>();
  const silent = new Set<string>();
  for (const { route, endpoint, status, body, given, parameter } of answers) {
    const { issues = [] } = (body ?? {}) as { issues?: { field: string; problem: string }[] };
    const { parameters, requestBody } = endpoint.operation;
    const schema = parameter
      ? parameters?.find(({ name }) => name === parameter.name)?.schema
      : requestBody?.content?.["application/json"]?.schema;
    if (status !== 422 || !schema) continue;
    const key = `${route} ${parameter?.name ?? ""}`;
    const shape = shapes.get(key) ?? z.fromJSONSchema({ ...localSchemas(schema), $defs });
    shapes.set(key, shape);
    const value = parameter ? readAs(schema, parameter.text) : given;
    if (!shape.safeParse(value).success) continue;
    for (const { field, problem } of issues) {
      const isMeant = !parameter || field === parameter.name;
      if (isMeant && problem !== UNSAID) silent.add(`${route} ${field}: ${problem}`);
    }
  }
  expect([...silent]).toEqual([]);
}

/** The text of a parameter as the value that its schema speaks of. */
function readAs({ type }: Json, text: string): unknown {
  if (type === "boolean" && /^(true|false)$/i.test(text)) return text.toLowerCase() === "true";
  const isNumber = type === "integer" || type === "number";
  return isNumber && /^-?(0|[1-9]\d*)(\.\d+)?$/.test(text) ? Number(text) : text;
}

/** A schema, and the shapes that it refers to. */
type Local = z.core.JSONSchema.JSONSchema & Record<string, z.core.JSONSchema.JSONSchema>;

const localSchemas = (value: unknown) =>
  JSON.parse(JSON.stringify(value).replaceAll("#/components/schemas/", "#/$defs/")) as Local;

/** Whether the body of an answer is what its route declares for its status. */
function shapeChecker(document: Description) {
  const $defs = localSchemas(document.components?.schemas ?? {});
  const shapes = new Map<string, z.ZodType>();
  return ({ route, endpoint, status, headers, body }: Answer): boolean => {
    if (!headers.get("Content-Type")?.startsWith("application/json")) return true;
    const declared = endpoint.operation.responses?.[status]?.content?.["application/json"]?.schema;
    const key = declared ? `${route} ${status}` : "Error";
    const shape =
      shapes.get(key) ??
      z.fromJSONSchema({
        ...localSchemas(declared ?? { $ref: "#/components/schemas/Error" }),
        $defs,
      });
    shapes.set(key, shape);
    return shape.safeParse(body).success;
  };
}
