// The chassis of every Worker: request ids, one log line a request, one error translator, JSON 404
// and 405, the API description. A service adds its routes; what they share is decided here once.
//
// Choices the specs leave open: a missing, malformed or unknown query parameter is 422, unknown
// body fields are dropped, null in a body is what is not given, an error body is `{code, detail,
// request_id}` plus the numbers it names.

import { createRoute, OpenAPIHono, z } from "@hono/zod-openapi";
import type { Context, MiddlewareHandler } from "hono";
import { bodyLimit } from "hono/body-limit";
import { HTTPException } from "hono/http-exception";
import { matchedRoutes } from "hono/route";
import { ERRORS, ErrorBody, type ErrorCode, Failure } from "../../shared/errors.ts";
import { systemClock } from "../../shared/time.ts";
import { type Pair, requireOwnBucket } from "./bucket-identity.ts";
import { oncePerEnvironment } from "./config.ts";
import { asFailure, assertWritable, isUnavailable, problemOf } from "./database.ts";
import {
  documentOf,
  errorHeaders,
  type headers,
  registerHeaders,
  type ServiceDescription,
} from "./description.ts";
import { apiPage, pagePolicy } from "./docs.ts";
import type { Description } from "./example-request.ts";
import { invalidRequest, issuesOf } from "./issues.ts";
import { createLog, type Log, loggableQuery, scrub } from "./log.ts";
import { nullsAsNotGiven } from "./not-given.ts";
import { parameterIssues } from "./query.ts";
import { letRefusedPass } from "./refused-body.ts";

/** What a handler finds in `context.var`. */
export interface Variables<Opened> {
  /** What the service opened from its environment: configuration, store, clients. */
  service: Opened;
  requestId: string;
  log: Log;
}

/** The types of a service's contexts. */
export interface AppEnv<Opened> {
  Bindings: object;
  Variables: Variables<Opened>;
}

/** A service's routes, with their description. */
export type App<Opened> = OpenAPIHono<AppEnv<Opened>>;

/** What a service is. */
export interface ServiceOptions<Opened> extends ServiceDescription {
  /** Short name, in every log line. */
  name: string;
  /** Parses the environment and opens what routes need; throws `bad_configuration`. */
  open: (environment: object, log: Log) => Opened;
  /** Names of query parameters whose values may be logged. */
  loggedQuery: readonly string[];
  /** Whether requests that succeed are logged too; by default those that fail alone. */
  logsAll?: (opened: Opened) => boolean;
  /** Where `/` leads; to the API page when omitted. */
  home?: string;
  /** Hears of each request once its answer begins; `after` outlives the answer. */
  onAnswered?: (
    opened: Opened,
    answered: AnsweredRequest,
    after: (work: Promise<unknown>) => void,
  ) => void;
}

/** A request as figures know it: how it came out, and nothing of who or what it was about. */
export interface AnsweredRequest {
  /** One that routes are made of; `OTHER` is any else. */
  method: string;
  /** The route's path with its parameters' names, `/jobs/{job_id}`; empty where there is none. */
  route: string;
  status: number;
  /** Until the answer began. */
  seconds: number;
}

/** A service that is ready to take routes. */
export interface Service<Opened> {
  app: App<Opened>;
  log: Log;
  /** The opened service for an environment, for handlers that are not HTTP. */
  open: (environment: object) => Opened;
}

const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"];
const REQUEST_ID = /^[\w.:-]{1,128}$/;

/** OpenAPI responses for the given error codes, grouped by status, to spread into a route. */
export function errorResponses(...codes: ErrorCode[]) {
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

/** What the description says of a text without NUL characters. */
export const WITHOUT_NUL = "^[^\\u0000]*$";

/** A text without what Postgres cannot store. */
export const text = () =>
  z
    .string()
    .refine((given) => !given.includes("\0"), "must not hold a NUL character")
    .refine((given) => given.isWellFormed(), "must not hold half a surrogate pair")
    .meta({ pattern: WITHOUT_NUL });

/** A text that names something. */
export const name = () => text().min(1, "must not be empty");

/** The name of something that is there, as an address names it; none of ours is as long. */
export const namePart = () => name().max(1_000);

/** What the description says of a name of at most so many characters that is trimmed first. */
export const trimmed = (maxLength: number) => ({
  minLength: 1,
  maxLength,
  pattern: "^[^\\u0000]*[^\\s\\u0000][^\\u0000]*$",
});

/** A name that people give: without blanks around it. */
export const title = () => z.string().trim().max(200).pipe(name()).meta(trimmed(200));

/** A JSON answer of a route, with the headers that it carries beside those of every answer. */
export const json = <Schema extends z.ZodType>(
  description: string,
  schema: Schema,
  named: ReturnType<typeof headers> = {},
) => ({ description, headers: named, content: { "application/json": { schema } } });

/** Bytes of a JSON body, where its route declares no other bound: it is parsed in memory. */
const JSON_BYTES_MAX = 1024 * 1024;

/** A required JSON body of a route; a longer one is refused before it is read. */
export const jsonBody = <Schema extends z.ZodType>(
  schema: Schema,
  { bytesMax = JSON_BYTES_MAX }: { bytesMax?: number } = {},
) => ({
  body: { content: { "application/json": { schema } }, required: true, [BYTES_MAX]: bytesMax },
});

/** Where a route's description says how long its body may be. */
const BYTES_MAX = "x-bytes-max";

const Liveness = z.object({
  status: z.enum(["ok", "degraded"]).meta({
    description: "degraded: the process lives, its database cannot be worked with",
  }),
  detail: z.string().optional().meta({
    description: "what is wrong, where something is",
    example: "the database does not answer",
  }),
});

/**
 * `GET /healthz` of a service whose spec asks for no more: does its database answer, does it take
 * writes, and is the bucket its own? The pair's database is a handle that gives up early; `table`
 * is one that the service needs.
 */
export function addLiveness<Opened>(
  app: App<Opened>,
  { pairOf, table }: { pairOf: (opened: Opened) => Pair; table: string },
) {
  const route = createRoute({
    method: "get",
    path: LIVENESS,
    operationId: "readHealth",
    tags: ["Health"],
    summary: "Liveness",
    description:
      "Always open, answers within 2 seconds. `degraded`: the process lives, its database does " +
      "not answer or takes no writes, or the bucket is another database's; `detail` says which.",
    responses: { 200: json("liveness", Liveness) },
  });
  app.openapi(route, async (context) => {
    try {
      const pair = pairOf(context.var.service as Opened);
      await assertWritable(pair.database, table);
      await requireOwnBucket(pair);
      return context.json({ status: "ok" as const }, 200);
    } catch (thrown) {
      const known = thrown instanceof Failure ? thrown.message : null;
      if (known === null && !isUnavailable(thrown)) throw thrown;
      context.var.log.error("health", { error: thrown });
      const detail = known ?? problemOf(thrown);
      return context.json({ status: "degraded" as const, detail }, 200);
    }
  });
}

/** Builds a service: add routes to `app` as statements, then export its `fetch`. */
export function createService<Opened>(options: ServiceOptions<Opened>): Service<Opened> {
  const log = createLog(options.name);
  const open = oncePerEnvironment((environment) => options.open(environment, log));
  const app = new OpenAPIHono<AppEnv<Opened>>();
  refuseUndeclared(app);
  if (options.onAnswered) app.use(measured(options.onAnswered, log));
  app.use(traced(log, options));
  app.use(async (context, next) => {
    context.set("service", open(context.env));
    await next();
  });
  app.use(letRefusedPass);
  app.use(methodKnown(app));
  app.onError((thrown, context) => answerError(thrown, context));
  app.notFound((context) => answerUnmatched(app, context));
  describe(app, options);
  return { app, log, open };
}

/** What the chassis reads of a route's declaration. */
/** The path of every service's probe. */
const LIVENESS = "/healthz";

interface RouteParts {
  path: string;
  request?: { query?: unknown; body?: RouteBody };
  responses: Record<string, { description?: string }>;
  middleware?: MiddlewareHandler | MiddlewareHandler[];
}

interface RouteBody {
  required?: boolean;
  content?: Record<string, { schema: z.ZodType }>;
  [BYTES_MAX]?: number;
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

/** Whether a request's body is a form of parts. */
export const isForm = (context: Pick<Context, "req">): boolean =>
  /^multipart\/form-data\b/i.test(context.req.header("Content-Type") ?? "");

/**
 * The route with what its body's declaration calls for: a bound, none where it is empty, and nulls
 * that are not given.
 */
function bodyChecked(route: RouteParts): RouteParts {
  const { body } = route.request ?? {};
  const guards = [route.middleware ?? []].flat();
  if (!body) return route;
  const media = body.content?.["application/json"];
  if (!media) {
    return body.required ? route : { ...route, middleware: [...guards, emptyIsNone] };
  }
  const bytesMax = body[BYTES_MAX] ?? JSON_BYTES_MAX;
  const onError = () => {
    const detail = `the body has over ${bytesMax} bytes, which is what this route takes`;
    throw new Failure("body_too_large", detail, { data: { bytes_max: bytesMax } });
  };
  const limit = bodyLimit({ maxSize: bytesMax, onError });
  // A form that may come in its place is read as a stream, and bounded by whoever reads it.
  const takesForms = body.content?.["multipart/form-data"] !== undefined;
  const bound: MiddlewareHandler = (context, next) =>
    takesForms && isForm(context) ? next() : limit(context, next);
  const [own, known] = [errorResponses("body_too_large")[413], route.responses[413]];
  const description = [known?.description, own?.description].filter(Boolean).join("; ");
  const json = { ...media, schema: nullsAsNotGiven(media.schema) };
  const content = { ...body.content, "application/json": json };
  return {
    ...route,
    request: { ...route.request, body: { ...body, content, [BYTES_MAX]: bytesMax } },
    responses: { ...route.responses, 413: { ...own, description } },
    middleware: [...guards, bound, ...(body.required ? [] : [emptyIsNone])],
  };
}

/** Makes every route refuse what its declaration of the query does not name. */
function refuseUndeclared<Opened>(app: App<Opened>) {
  const register = app.openapi.bind(app) as (...parts: unknown[]) => unknown;
  const openapi = (route: RouteParts, handler: (context: Context, next: unknown) => unknown) => {
    const { shape = {} } = (route.request?.query ?? {}) as { shape?: object };
    const declared = Object.keys(shape);
    const checked = (context: Context, next: unknown) => {
      // Probes append what they like, to pass caches.
      const issues = route.path === LIVENESS ? [] : parameterIssues(context, declared);
      if (issues.length > 0) throw invalidRequest(issues);
      return handler(context, next);
    };
    const onInvalid = (
      result: { success: boolean; target: string; error?: z.core.$ZodError },
      context: Context,
    ) => {
      if (result.success || !result.error) return;
      // Another route's own path, such as /models/rollback beside /models/{model_id}.
      if (result.target === "param" && literalMethods(app, context.req.path).length > 0) {
        return answerUnmatched(app, context);
      }
      const issues = parameterIssues(context, declared);
      const named = new Set(issues.map(({ field }) => field));
      const others = issuesOf(result.error).filter(({ field }) => !named.has(field));
      throw invalidRequest([...issues, ...others]);
    };
    return register(bodyChecked(route), checked, onInvalid);
  };
  // The wrapped method keeps its type, which relates a route's declaration to its handler.
  app.openapi = openapi as unknown as typeof app.openapi;
}

function describe<Opened>(app: App<Opened>, options: ServiceOptions<Opened>) {
  registerHeaders(app, options);
  let known: string | undefined;
  // Made once: all routes are there before the first request. A text takes less memory.
  const documentText = () => {
    known ??= JSON.stringify(documentOf(app, options));
    return known;
  };
  app.get("/openapi.json", (context) =>
    context.body(documentText(), 200, { "Content-Type": "application/json" }),
  );
  app.get("/docs", (context) => {
    const nonce = crypto.randomUUID();
    context.header("Content-Security-Policy", pagePolicy(nonce));
    const baseUrl = new URL(context.req.url).origin;
    return context.html(apiPage(JSON.parse(documentText()) as Description, { baseUrl, nonce }));
  });
  app.get("/", (context) => context.redirect(options.home ?? "/docs"));
}

/**
 * Gives the request an id, logs one line of it where it failed, or where all are logged, and sets
 * the headers every answer carries.
 */
function traced<Opened>(
  log: Log,
  { loggedQuery, logsAll }: ServiceOptions<Opened>,
): MiddlewareHandler {
  const harmless = new Set(loggedQuery);
  return async (context, next) => {
    const started = systemClock();
    const given = context.req.header("X-Request-Id") ?? "";
    const requestId = REQUEST_ID.test(given) ? given : crypto.randomUUID();
    context.set("requestId", requestId);
    context.set("log", log);
    await next();
    setHeaders(context, {
      "X-Request-Id": requestId,
      "X-Content-Type-Options": "nosniff",
      "Referrer-Policy": "no-referrer",
      // What may be kept says so itself: health, errors and feeds are of the moment.
      ...(context.res.headers.has("Cache-Control") ? {} : { "Cache-Control": "no-store" }),
    });
    const status = context.res.status;
    const fields = {
      request_id: requestId,
      method: context.req.method,
      path: scrub(context.req.path).slice(0, 256),
      query: loggableQuery(context.req.queries(), harmless),
      status,
      ms: systemClock() - started,
      ...(context.error ? { error: context.error } : {}),
    };
    const opened = context.get("service") as Opened | undefined;
    const logsIt = status >= 400 || (opened !== undefined && logsAll?.(opened) === true);
    if (status >= 500) log.error("request", fields);
    else if (logsIt) log.info("request", { ...fields, error: undefined });
  };
}

/**
 * Sets headers of an answer that is there. Hono's own way makes the answer anew for each of them;
 * only one that came from another service cannot be changed.
 */
function setHeaders(context: Context, headers: Readonly<Record<string, string>>): void {
  const entries = Object.entries(headers);
  try {
    for (const [name, value] of entries) context.res.headers.set(name, value);
  } catch {
    for (const [name, value] of entries) context.header(name, value);
  }
}

const MEASURED_METHODS = new Set([...METHODS, "HEAD", "OPTIONS"]);

/** Tells of each request what figures know of it; what goes wrong there is no matter of its own. */
function measured<Opened>(
  onAnswered: NonNullable<ServiceOptions<Opened>["onAnswered"]>,
  log: Log,
): MiddlewareHandler {
  return async (context, next) => {
    const started = systemClock();
    await next();
    const opened = context.get("service") as Opened | undefined;
    // A service that could not be opened counts nothing.
    if (opened === undefined) return;
    try {
      const { method } = context.req;
      const answered: AnsweredRequest = {
        method: MEASURED_METHODS.has(method) ? method : "OTHER",
        route: templateOf(context),
        status: context.res.status,
        seconds: (systemClock() - started) / 1_000,
      };
      onAnswered(opened, answered, (work) => context.executionCtx.waitUntil(work));
    } catch (error) {
      log.warning("not_measured", { error });
    }
  };
}

/** The path of the route that a request met, as descriptions write it. */
function templateOf(context: Context): string {
  const route = matchedRoutes(context).find(({ method }) => method !== "ALL");
  return route ? route.path.replace(/:(\w+)(\{[^}]*\})?/g, "{$1}") : "";
}

function answerError(thrown: unknown, context: Context): Response {
  const failure = toFailure(thrown);
  const seconds = failure.data.retry_after_seconds ?? (failure.status === 503 ? 5 : undefined);
  if (seconds !== undefined) context.header("Retry-After", String(seconds));
  return context.json(
    {
      code: failure.code,
      detail: failure.message,
      request_id: context.get("requestId") as string,
      ...failure.data,
    },
    failure.status as 400,
  );
}

function toFailure(thrown: unknown): Failure {
  const error = asFailure(thrown);
  if (error instanceof Failure) return error;
  if (error instanceof HTTPException && error.status < 500) {
    const detail = "the body must be JSON, sent with Content-Type: application/json";
    return new Failure("bad_body", detail, { cause: error });
  }
  return new Failure("internal", "an internal error; quote the request id", { cause: error });
}

/**
 * Answers a method that a path without parameters does not know, before the guards of paths that it
 * fits too ask who it is: `/devices/enrol` beside `/devices/{device_id}`.
 */
function methodKnown<Opened>(app: App<Opened>): MiddlewareHandler {
  const ofPath = new Map<string, readonly string[]>();
  return async (context, next) => {
    if (ofPath.size === 0) {
      const paths = app.routes.map(({ path }) => path).filter((path) => !/[:*]/.test(path));
      for (const path of paths) ofPath.set(path, literalMethods(app, path));
    }
    const { path, method } = context.req;
    const known = ofPath.get(path) ?? [];
    const isKnown = known.length === 0 || known.includes(method === "HEAD" ? "GET" : method);
    return isKnown || method === "OPTIONS" ? next() : answerUnmatched(app, context);
  };
}

/** The methods of the routes whose path is exactly this one, without parameters. */
const literalMethods = <Opened>(app: App<Opened>, path: string) =>
  METHODS.filter((method) => app.routes.some((one) => one.path === path && one.method === method));

/** 404 for a path nobody serves, 405 (or a 204 for OPTIONS) for one served by other methods. */
function answerUnmatched<Opened>(app: App<Opened>, context: Context): Response {
  const { path, method } = context.req;
  const serves = (candidate: string) =>
    app.router.match(candidate, path)[0].some(([entry]) => entry[1].method !== "ALL");
  const own = literalMethods(app, path);
  const allowed = own.length > 0 ? own : METHODS.filter(serves);
  if (allowed.length === 0) {
    return answerError(new Failure("route_not_found", `no route ${scrub(path)}`), context);
  }
  const allow = [...allowed, ...(allowed.includes("GET") ? ["HEAD"] : []), "OPTIONS"].join(", ");
  context.header("Allow", allow);
  if (method === "OPTIONS") return context.body(null, 204);
  return answerError(
    new Failure("method_not_allowed", `${method} is not allowed here; use ${allow}`),
    context,
  );
}
