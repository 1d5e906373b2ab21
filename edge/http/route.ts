// One declaration a route: what it is called, who may call it, what it takes and what it answers.
// Its guards, the security and the errors of its description, and the checks of its body and query
// follow from that. Of two paths that fit a request the one is meant that has a word where the
// other first has a parameter, whatever the order in which routes are listed.

import { createRoute, type RouteConfig, type RouteHandler, type z } from "@hono/zod-openapi";
import type { Context, MiddlewareHandler } from "hono";
import { bodyLimit } from "hono/body-limit";
import { assert, ERRORS, ErrorBody, type ErrorCode, Failure } from "../../shared/errors.ts";
import { type App, type AppEnv, answerOtherMethod } from "./app.ts";
import { errorHeaders, type headers } from "./description.ts";
import { invalidRequest, issuesOf } from "./issues.ts";
import { nullsAsNotGiven } from "./not-given.ts";
import { parameterIssues } from "./query.ts";
import { openObjects } from "./unknown-fields.ts";

/** How a credential is sent, as OpenAPI names it. */
export type SecurityScheme = { description?: string } & (
  | { type: "http"; scheme: "bearer"; bearerFormat?: string }
  | { type: "apiKey"; in: "header" | "cookie"; name: string }
);

/** Who may call a route. */
export interface Audience {
  /** Credentials, of which any opens the route, by the name of their scheme; none: it is open. */
  schemes: Readonly<Record<string, SecurityScheme>>;
  /** What lets a request pass, or fails, in this order. */
  guards: readonly MiddlewareHandler[];
  /**
   * What a description ends with that names no role: left out where a route answers `forbidden`,
   * unless all routes of the audience do.
   */
  description?: string;
  /** Errors that its routes may answer beyond `unauthorized`. */
  errors?: readonly ErrorCode[];
  /** Errors that only those of its routes may answer which change something. */
  errorsOfChanges?: readonly ErrorCode[];
}

/** The audience of a route that needs no credential. */
export const anybody: Audience = { schemes: {}, guards: [] };

type RequestShapes = NonNullable<RouteConfig["request"]>;
type Answers = RouteConfig["responses"];

/** What a route is. */
export interface Declaration extends RequestShapes {
  /** Its method and path, without the prefix of its service: `GET /projects/{project_id}`. */
  call: `${"GET" | "POST" | "PUT" | "PATCH" | "DELETE"} /${string}`;
  operationId: string;
  /** The group of routes that its description lists it in. */
  tag: string;
  summary: string;
  description?: string;
  who: Audience;
  /** What it answers where it succeeds, by status. */
  answers: Answers;
  /** Errors that do not follow from the rest of the declaration. */
  errors?: readonly ErrorCode[];
  /** Errors that would follow, and never come. */
  never?: readonly ErrorCode[];
  /** Shapes that its description names and no body of it has, by name. */
  shapes?: Readonly<Record<string, z.ZodType>>;
  /**
   * Objects of its JSON body, by their paths as `body.coco`, that pass over fields which they do
   * not know, with all that they hold: documents of other tools, and protocols that grow.
   */
  open?: readonly string[];
  /** What comes between the guards and the checks of a request. */
  before?: MiddlewareHandler;
}

/** The configuration of the library's that handlers of a declaration have their types from. */
type ConfigOf<Declared extends Declaration> = {
  method: "get";
  path: string;
  request: {
    [Part in Extract<keyof Declared, keyof RequestShapes>]: NonNullable<Declared[Part]>;
  };
  responses: Declared["answers"];
};

/** What answers a request of a declaration. */
export type HandlerOf<Declared extends Declaration, Opened> =
  ConfigOf<Declared> extends infer Config extends RouteConfig
    ? RouteHandler<Config, AppEnv<Opened>>
    : never;

/** A declaration with its handler, ready to be added to a service. */
export interface Route<Opened> {
  declared: Declaration;
  handle: (context: Context<AppEnv<Opened>>, next: () => Promise<void>) => unknown;
}

/** Makes a route. A service gives it a name with its own type, so that handlers have theirs. */
export type RouteOf<Opened> = <const Declared extends Declaration>(
  declared: Declared,
  handle: HandlerOf<Declared, Opened>,
) => Route<Opened>;

/** Makes routes of a service that opens this. */
export const routeOf =
  <Opened>(): RouteOf<Opened> =>
  // A handler takes its declaration's own context; what is stored of it takes any.
  (declared, handle) => ({ declared, handle: handle as unknown as Route<Opened>["handle"] });

/** OpenAPI responses for the given error codes, grouped by status. */
export function errorResponses(...codes: readonly ErrorCode[]) {
  const byStatus = new Map<number, string[]>();
  for (const code of codes) {
    const { status, meaning } = ERRORS[code];
    byStatus.set(status, [...(byStatus.get(status) ?? []), `\`${code}\`: ${meaning}`]);
  }
  const content = { "application/json": { schema: ErrorBody } };
  return Object.fromEntries(
    [...byStatus].map(([status, lines]) => [
      status,
      { description: lines.join("; "), headers: errorHeaders(status), content },
    ]),
  );
}

/** A JSON answer of a route, with the headers that it carries beside those of every answer. */
export const json = <Schema extends z.ZodType>(
  description: string,
  schema: Schema,
  named: ReturnType<typeof headers> = {},
) => ({ description, headers: named, content: { "application/json": { schema } } });

/** Bytes of a JSON body, where its route declares no other bound: it is parsed in memory. */
const JSON_BYTES_MAX = 1024 * 1024;
/** Where a body's description says how long it may be. */
const BYTES_MAX = "x-bytes-max";

/** A required JSON body; a longer one is refused before it is read. */
export const jsonBody = <Schema extends z.ZodType>(
  schema: Schema,
  { bytesMax = JSON_BYTES_MAX }: { bytesMax?: number } = {},
) => ({ content: { "application/json": { schema } }, required: true, [BYTES_MAX]: bytesMax });

/** Whether a request's body is a form of parts. */
export const isForm = (context: Pick<Context, "req">): boolean =>
  /^multipart\/form-data\b/i.test(context.req.header("Content-Type") ?? "");

/** The path of every service's probe. Probes append what they like, to pass caches. */
export const LIVENESS = "/healthz";

/** Adds routes to a service, each at its path behind the prefix. They are described as listed. */
export function addRoutes<Opened>(
  app: App<Opened>,
  routes: readonly Route<Opened>[],
  { prefix = "" }: { prefix?: string } = {},
): void {
  const placed = routes.map(({ declared, handle }) => {
    const [method = "", path = ""] = declared.call.split(" ");
    const at = { method: method.toLowerCase() as Method, path: prefix + path };
    return { declared, handle, ...at, config: describedRoute(app, declared, at) };
  });
  const ranked = placed.sort((one, other) => (rankOf(one.path) < rankOf(other.path) ? -1 : 1));
  for (const all of Map.groupBy(ranked, (one) => rankOf(one.path)).values()) {
    const [{ path = "" } = {}] = all;
    for (const one of all) {
      // One path would answer in place of the other that it does not know the method.
      assert(one.path === path, `${one.path} names its parameters otherwise than ${path}`);
      register(app, one);
    }
    const methods = all.map(({ method }) => method.toUpperCase());
    app.all(path.replace(/\{(\w+)\}/g, ":$1"), (context) => answerOtherMethod(context, methods));
  }
}

type Method = "get" | "post" | "put" | "patch" | "delete";

/** Sorts paths: of two segments at the same place a word comes before a parameter. */
const rankOf = (path: string): string => path.replace(/\{\w+\}/g, "\uffff");

/** Adds a route to the description, as the library describes it. */
function describedRoute<Opened>(
  app: App<Opened>,
  declared: Declaration,
  { method, path }: { method: Method; path: string },
) {
  const { operationId, tag, summary, who, answers, before } = declared;
  const { params, query, headers, cookies, body } = declared;
  const errors = codesOf(declared, method).sort((a, b) => ERRORS[a].status - ERRORS[b].status);
  requireClosed(declared);
  const needsRole = errors.includes("forbidden") && !who.errors?.includes("forbidden");
  const audience = needsRole ? undefined : who.description;
  const description = [declared.description, audience].filter(Boolean).join(" ");
  const security = Object.keys(who.schemes).map((name) => ({ [name]: [] }));
  const route = createRoute({
    method,
    path,
    operationId,
    tags: [tag],
    summary,
    ...(description && { description }),
    ...(security.length > 0 && { security }),
    request: {
      ...(params && { params }),
      ...(query && { query }),
      ...(headers && { headers }),
      ...(cookies && { cookies }),
      ...(body && { body: checkedBody(body) }),
    },
    responses: { ...errorResponses(...errors), ...answers },
  });
  for (const [name, scheme] of Object.entries(who.schemes)) {
    if (!isRegistered(app, name)) {
      app.openAPIRegistry.registerComponent("securitySchemes", name, scheme);
    }
  }
  for (const [name, shape] of Object.entries(declared.shapes ?? {})) {
    app.openAPIRegistry.register(name, shape);
  }
  app.openAPIRegistry.registerPath(route);
  const middleware = [
    ...who.guards,
    ...(before ? [before] : []),
    ...(body ? bodyChecks(body) : []),
  ];
  return { ...route, middleware };
}

/** Has the router take a route, whose requests are checked before its handler sees them. */
function register<Opened>(
  app: App<Opened>,
  {
    declared,
    handle,
    config,
  }: Route<Opened> & { config: ReturnType<typeof describedRoute<Opened>> },
): void {
  const { shape = {} } = (declared.query ?? {}) as { shape?: object };
  const known = Object.keys(shape);
  const asked = (context: Context, next: () => Promise<void>) => {
    const issues = config.path === LIVENESS ? [] : parameterIssues(context, known);
    if (issues.length > 0) throw invalidRequest(issues);
    return handle(context, next);
  };
  const onInvalid = (
    result: { success: boolean; error?: z.core.$ZodError },
    context: Context,
  ): void => {
    if (result.success || !result.error) return;
    const issues = parameterIssues(context, known);
    const named = new Set(issues.map(({ field }) => field));
    const schema = bodySchema(declared.body);
    const others = issuesOf(result.error, { schema }).filter(({ field }) => !named.has(field));
    throw invalidRequest([...issues, ...others]);
  };
  // Declarations of all routes have one type here; a handler was held to its own by `RouteOf`.
  app.openapi({ ...config, hide: true }, asked as never, onInvalid as never);
}

const isRegistered = <Opened>(app: App<Opened>, scheme: string): boolean =>
  app.openAPIRegistry.definitions.some(
    (one) =>
      one.type === "component" && one.componentType === "securitySchemes" && one.name === scheme,
  );

/** The codes of the errors that a route may answer. */
function codesOf(declared: Declaration, method: string): ErrorCode[] {
  const { who, params, query, headers, body, errors = [], never = [] } = declared;
  const media = body?.content["application/json"];
  const schemes = Object.keys(who.schemes);
  const derived: Partial<Record<ErrorCode, boolean>> = {
    bad_body: media !== undefined,
    body_too_large: media !== undefined,
    unauthorized: schemes.length > 0,
    not_found: params !== undefined && !errors.some((code) => ERRORS[code].status === 404),
    invalid_request: [params, query, headers, body].some((part) => part !== undefined),
    store_unavailable: true,
  };
  const codes = (Object.keys(derived) as ErrorCode[]).filter((code) => derived[code]);
  const ofAudience = [...(who.errors ?? []), ...((method !== "get" && who.errorsOfChanges) || [])];
  const all = new Set([...codes, ...ofAudience, ...errors]);
  return [...all].filter((code) => !never.includes(code));
}

type Body = NonNullable<Declaration["body"]> & { [BYTES_MAX]?: number };

/** Fails where an object of a JSON body passes over fields that it does not know. */
function requireClosed({ call, body, open = [] }: Declaration): void {
  const schema = bodySchema(body);
  const isOpen = (path: string) => open.some((one) => path === one || path.startsWith(`${one}.`));
  const passing = schema ? openObjects(schema).filter((path) => !isOpen(path)) : [];
  assert(passing.length === 0, `${call}: make ${passing.join(", ")} a strictObject, or list it`);
}

/** The schema of a JSON body. */
function bodySchema(body: Declaration["body"]): z.ZodType | undefined {
  const media = body?.content["application/json"];
  return media && "schema" in media ? (media.schema as z.ZodType) : undefined;
}

/** The declaration with its bound, and a schema to which a null is what is not given. */
function checkedBody(body: Body): Body {
  const declared = bodySchema(body);
  if (!declared) return body;
  const schema = nullsAsNotGiven(declared);
  const content = { ...body.content, "application/json": { schema } };
  return { ...body, content, [BYTES_MAX]: body[BYTES_MAX] ?? JSON_BYTES_MAX };
}

/** What is done with a body before it is read: a JSON one has a bound, an empty one may be none. */
function bodyChecks(body: Body): MiddlewareHandler[] {
  const optional = body.required ? [] : [emptyIsNone];
  if (!body.content["application/json"]) return optional;
  const bytesMax = body[BYTES_MAX] ?? JSON_BYTES_MAX;
  const onError = () => {
    const detail = `the body has over ${bytesMax} bytes, which is what this route takes`;
    throw new Failure("body_too_large", detail, { data: { bytes_max: bytesMax } });
  };
  const limit = bodyLimit({ maxSize: bytesMax, onError });
  // A form that may come in its place is read as a stream, and bounded by whoever reads it.
  const takesForms = body.content["multipart/form-data"] !== undefined;
  return [
    (context, next) => (takesForms && isForm(context) ? next() : limit(context, next)),
    ...optional,
  ];
}

/**
 * A body that may be left out is left out when it is empty, whatever its Content-Type: clients of
 * generators name the type of the body that they do not send.
 */
const emptyIsNone: MiddlewareHandler = async (context, next) => {
  if (context.req.header("Content-Type") !== undefined && (await context.req.text()) === "") {
    const { url, method } = context.req.raw;
    const headers = new Headers(context.req.raw.headers);
    headers.delete("Content-Type");
    context.req.raw = new Request(url, { method, headers });
  }
  await next();
};
