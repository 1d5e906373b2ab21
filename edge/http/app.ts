// The chassis of every Worker: request ids, one log line a request, one error translator, JSON 404
// and 405, the API description. A service adds its routes; what they share is decided here once.
//
// Choices the specs leave open: a missing, malformed or unknown query parameter is 422, as is an
// unknown field of a JSON body; null in a body is what is not given, an error body is `{code,
// detail, request_id}` plus the numbers it names.

import { OpenAPIHono } from "@hono/zod-openapi";
import type { Context, MiddlewareHandler } from "hono";
import { HTTPException } from "hono/http-exception";
import { matchedRoutes } from "hono/route";
import { Failure } from "../../shared/errors.ts";
import { systemClock } from "../../shared/time.ts";
import { oncePerEnvironment } from "./config.ts";
import { asFailure } from "./database.ts";
import { documentOf, registerHeaders, type ServiceDescription } from "./description.ts";
import { apiPage, pagePolicy } from "./docs.ts";
import type { Description } from "./example-request.ts";
import { createLog, type Log, loggableQuery, scrub } from "./log.ts";
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

/** Builds a service: add routes to `app` as statements, then export its `fetch`. */
export function createService<Opened>(options: ServiceOptions<Opened>): Service<Opened> {
  const log = createLog(options.name);
  const open = oncePerEnvironment((environment) => options.open(environment, log));
  const app = new OpenAPIHono<AppEnv<Opened>>();
  if (options.onAnswered) app.use(measured(options.onAnswered, log));
  app.use(traced(log, options));
  app.use(async (context, next) => {
    context.set("service", open(context.env));
    await next();
  });
  app.use(letRefusedPass);
  app.onError((thrown, context) => answerError(thrown, context));
  app.notFound((context) => answerUnmatched(app, context));
  describe(app, options);
  return { app, log, open };
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

/** 404 for a path that nobody serves, or what `answerOtherMethod` says of one that is served. */
function answerUnmatched<Opened>(app: App<Opened>, context: Context): Response {
  const { path } = context.req;
  const serves = (method: string) =>
    app.router.match(method, path)[0].some(([entry]) => entry[1].method !== "ALL");
  const methods = METHODS.filter(serves);
  if (methods.length > 0) return answerOtherMethod(context, methods);
  return answerError(new Failure("route_not_found", `no route ${scrub(path)}`), context);
}

/** 405, or a 204 for OPTIONS, where a path is served by these methods and no others. */
export function answerOtherMethod(context: Context, methods: readonly string[]): Response {
  const { method } = context.req;
  const sorted = METHODS.filter((one) => methods.includes(one));
  const allow = [...sorted, ...(sorted.includes("GET") ? ["HEAD"] : []), "OPTIONS"].join(", ");
  context.header("Allow", allow);
  if (method === "OPTIONS") return context.body(null, 204);
  return answerError(
    new Failure("method_not_allowed", `${method} is not allowed here; use ${allow}`),
    context,
  );
}
