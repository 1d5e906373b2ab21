// The chassis in process: what every service answers and logs, whatever its routes are.

import { z } from "@hono/zod-openapi";
import { afterEach, describe, expect, it, vi } from "vitest";
import { createService } from "../../edge/http/app.ts";
import { parseEnvironment, secret } from "../../edge/http/config.ts";
import { type Description, type Endpoint, endpointsOf } from "../../edge/http/example-request.ts";
import { logLine, scrub } from "../../edge/http/log.ts";
import { addRoutes, anybody, type Declaration, routeOf } from "../../edge/http/route.ts";
import { ErrorBody, Failure } from "../../shared/errors.ts";
import { whole } from "../../shared/scalars.ts";
import { Secret } from "../../shared/secret.ts";

const Environment = z.object({
  TOKEN: secret(),
  LIMIT: whole(1),
});

const route = routeOf<z.infer<typeof Environment>>();
const plain = (call: Declaration["call"]) => ({
  call,
  operationId: call,
  tag: "Things",
  summary: "",
  who: anybody,
  answers: { 200: { description: "" } },
});

function sample() {
  const { app } = createService({
    name: "sample",
    title: "Sample",
    description: "",
    version: "1",
    loggedQuery: ["symbol"],
    open: (environment) => parseEnvironment(Environment, environment),
  });
  addRoutes(app, [
    route({ ...plain("GET /things"), query: z.object({ symbol: z.string() }) }, (context) =>
      context.json({ symbol: context.req.valid("query").symbol }, 200),
    ),
  ]);
  app.get("/breaks", () => {
    throw new Error("password=hunter2 in postgresql://user:hunter2@host/db");
  });
  app.get("/fails", () => {
    throw new Failure("row_cap_exceeded", "too many", { data: { rows: 5 } });
  });
  const environment = { TOKEN: "hunter2", LIMIT: "3" };
  const request = (path: string, init?: RequestInit) => app.request(path, init, environment);
  return { app, request };
}

function captureLog(): () => Record<string, unknown>[] {
  const lines: string[] = [];
  vi.spyOn(console, "log").mockImplementation((line: string) => void lines.push(line));
  return () => lines.map((line) => JSON.parse(line) as Record<string, unknown>);
}

afterEach(() => vi.restoreAllMocks());

describe("the chassis", () => {
  it("answers a request id and takes a sane one from the caller", async () => {
    captureLog();
    const { request } = sample();
    const own = await request("/things?symbol=a");
    expect(own.headers.get("X-Request-Id")).toMatch(/^[0-9a-f-]{36}$/);
    const headers = { "X-Request-Id": "trace-1.2" };
    expect((await request("/things?symbol=a", { headers })).headers.get("X-Request-Id")).toBe(
      "trace-1.2",
    );
    const forged = { headers: { "X-Request-Id": '"}{' } };
    expect((await request("/things?symbol=a", forged)).headers.get("X-Request-Id")).not.toBe('"}{');
  });

  it("logs one line a request, with only harmless query values", async () => {
    const log = captureLog();
    const { request } = sample();
    await request("/things?symbol=erco&api_key=hunter2&note=private");
    expect(log()).toHaveLength(1);
    expect(log()[0]).toMatchObject({
      event: "request",
      method: "GET",
      path: "/things",
      status: 422,
    });
    expect(log()[0]?.query).toEqual({ symbol: "erco", api_key: "[redacted]", note: "[redacted]" });
    expect(JSON.stringify(log())).not.toContain("hunter2");
  });

  it("logs what succeeds only where it is told to", async () => {
    const log = captureLog();
    await sample().request("/things?symbol=erco");
    expect(log()).toEqual([]);
    const { app } = createService({
      name: "talkative",
      title: "Talkative",
      description: "",
      version: "1",
      loggedQuery: [],
      logsAll: () => true,
      open: () => ({}),
    });
    await app.request("/openapi.json", {}, {});
    expect(log()).toMatchObject([{ event: "request", status: 200, path: "/openapi.json" }]);
  });

  it.each([
    ["/things?symbol=a&simbol=b", "simbol", "unknown parameter; did you mean symbol?"],
    ["/things?symbol=a&SYMBOL=b", "SYMBOL", "unknown parameter; did you mean symbol?"],
    ["/things?Symbol=a", "Symbol", "unknown parameter; did you mean symbol?"],
    ["/things?symbol=a&start=b", "start", "unknown parameter; this route knows symbol"],
    ["/plain?symbol=a", "symbol", "unknown parameter; none is known"],
    ["/things?symbol=a&symbol=a", "symbol", "given 2 times; give it once"],
  ])("refuses %s: no parameter is passed over", async (path, field, problem) => {
    captureLog();
    const { app, request } = sample();
    addRoutes(app, [route(plain("GET /plain"), (context) => context.json({}, 200))]);
    expect((await request("/plain")).status).toBe(200);
    const response = await request(path);
    expect(response.status).toBe(422);
    expect(ErrorBody.parse(await response.json())).toMatchObject({
      code: "invalid_request",
      issues: expect.arrayContaining([{ field, problem }]),
    });
  });

  it("lists the first of thousands of issues, and the number of the others", async () => {
    captureLog();
    const { app, request } = sample();
    const schema = z.strictObject({ values: z.array(z.number()) });
    const body = { content: { "application/json": { schema } } };
    addRoutes(app, [route({ ...plain("POST /many"), body }, (context) => context.json({}, 200))]);
    const unknown = Array.from({ length: 3_000 }, (_, index) => `unknown_${index}=1`).join("&");
    const query = await (await request(`/things?symbol=a&${unknown}`)).text();
    expect(query.length).toBeLessThan(8_000);
    expect(ErrorBody.parse(JSON.parse(query))).toMatchObject({
      detail: expect.stringMatching(/; and 2984 more$/),
      issues: expect.objectContaining({ length: 16 }),
    });
    const values = Array.from({ length: 10_000 }, () => "x");
    const headers = { "Content-Type": "application/json" };
    const sent = { method: "POST", headers, body: JSON.stringify({ values }) };
    const found = ErrorBody.parse(await (await request("/many", sent)).json());
    expect(found.detail).toMatch(/^values\.0: .+; and 9984 more$/);
    expect(found.issues).toHaveLength(16);
    // Of fields that are not known the first are looked at.
    const many = Object.fromEntries(Array.from({ length: 50_000 }, (_, index) => [`k${index}`, 1]));
    const one = { method: "POST", headers, body: JSON.stringify({ values: [], ...many }) };
    const answer = await request("/many", one);
    expect(answer.status).toBe(422);
    expect((await answer.text()).length).toBeLessThan(4_000);
  });

  it("adds no route whose body passes over fields, unless the route lists the object", () => {
    const { app } = sample();
    const document = z.object({ images: z.array(z.object({ id: z.number() })) });
    const schema = z.strictObject({ document, more: z.strictObject({}) });
    const body = { content: { "application/json": { schema } } };
    const add = (open: readonly string[]) => () =>
      addRoutes(app, [
        route({ ...plain("POST /import"), body, open }, (context) => context.json({}, 200)),
      ]);
    expect(add([])).toThrow("make body.document, body.document.images[] a strictObject");
    expect(add(["body.more"])).toThrow("body.document");
    expect(add(["body.document"])).not.toThrow();
  });

  it.each(["application/json", "text/plain", "application/x-www-form-urlencoded"])(
    "takes an empty body of the type %s for none where one may be left out",
    async (type) => {
      captureLog();
      const { app, request } = sample();
      const schema = z.strictObject({ all: z.boolean().default(true) });
      const body = { content: { "application/json": { schema } } };
      for (const required of [true, false]) {
        const declared = { ...plain(required ? "POST /must" : "POST /may") };
        addRoutes(app, [
          route({ ...declared, body: { ...body, required } }, (context) =>
            context.json(context.req.valid("json") ?? {}, 200),
          ),
        ]);
      }
      const sent = (path: string, text: string, headers = { "Content-Type": type }) =>
        request(path, { method: "POST", headers, body: text });
      const answered = await sent("/may", "");
      expect([answered.status, await answered.json()]).toEqual([200, {}]);
      expect((await sent("/must", "")).status).toBe(400);
      const json = { "Content-Type": "application/json" };
      const whole = await sent("/may", '{"all":false}', json);
      expect(await whole.json()).toEqual({ all: false });
      expect((await sent("/may", " ", json)).status).toBe(400);
    },
  );

  it("answers JSON 404, 405 with Allow, and OPTIONS", async () => {
    captureLog();
    const { request } = sample();
    const missing = await request("/nothing");
    expect([missing.status, ErrorBody.parse(await missing.json()).code]).toEqual([
      404,
      "route_not_found",
    ]);
    const wrong = await request("/things", { method: "DELETE" });
    expect([wrong.status, wrong.headers.get("Allow")]).toEqual([405, "GET, HEAD, OPTIONS"]);
    expect(ErrorBody.parse(await wrong.json()).code).toBe("method_not_allowed");
    expect((await request("/things", { method: "OPTIONS" })).status).toBe(204);
    const head = await request("/things?symbol=a", { method: "HEAD" });
    expect([head.status, await head.text()]).toEqual([200, ""]);
  });

  it("answers 422 naming the missing or repeated parameter", async () => {
    captureLog();
    const { request } = sample();
    const body = ErrorBody.parse(await (await request("/things")).json());
    expect(body).toMatchObject({ code: "invalid_request", detail: "symbol: required" });
    expect((await request("/things?symbol=a&symbol=b")).status).toBe(422);
  });

  it("never shows an unexpected error, and logs it without its secrets", async () => {
    const log = captureLog();
    const { request } = sample();
    const response = await request("/breaks");
    const text = await response.text();
    expect(response.status).toBe(500);
    expect(ErrorBody.parse(JSON.parse(text)).code).toBe("internal");
    expect(text).not.toContain("hunter2");
    expect(JSON.stringify(log()[0])).toContain("user:[redacted]@host");
    expect(JSON.stringify(log()[0])).not.toContain(":hunter2@");
  });

  it("puts a failure's numbers beside its code", async () => {
    captureLog();
    const { request } = sample();
    const response = await request("/fails");
    expect(response.status).toBe(413);
    expect(await response.json()).toMatchObject({
      code: "row_cap_exceeded",
      detail: "too many",
      rows: 5,
    });
  });

  it("says in Retry-After when to come back", async () => {
    captureLog();
    const { app, request } = sample();
    app.get("/busy", () => {
      throw new Failure("busy", "too many");
    });
    app.get("/throttled", () => {
      throw new Failure("too_many_attempts", "wait", { data: { retry_after_seconds: 42 } });
    });
    expect((await request("/busy")).headers.get("Retry-After")).toBe("5");
    expect((await request("/throttled")).headers.get("Retry-After")).toBe("42");
    expect((await request("/fails")).headers.get("Retry-After")).toBeNull();
  });

  it("makes its description once, however often it is read", async () => {
    captureLog();
    const { app, request } = sample();
    const made = vi.spyOn(app, "getOpenAPI31Document");
    const read = async () => (await request("/openapi.json")).text();
    expect(await read()).toBe(await read());
    expect((await request("/docs")).status).toBe(200);
    expect(made).toHaveBeenCalledTimes(1);
  });

  it("describes what it does for every route: its headers, and that an open one is open", async () => {
    captureLog();
    const { request } = sample();
    const document = (await (await request("/openapi.json")).json()) as Description;
    const { operation } = endpointsOf(document)[0] as Endpoint;
    expect(operation.security).toEqual([]);
    expect(Object.keys(operation.responses?.["200"]?.headers ?? {})).toEqual([
      "X-Request-Id",
      "Cache-Control",
    ]);
    expect(Object.keys(document.components?.headers ?? {})).toContain("Retry-After");
  });

  it("refuses every route on a bad environment, naming every key and no value", async () => {
    captureLog();
    const { app } = sample();
    for (const path of ["/things?symbol=a", "/openapi.json", "/docs"]) {
      const response = await app.request(path, {}, { LIMIT: "hunter2" });
      const body = ErrorBody.parse(await response.json());
      expect([response.status, body.code]).toEqual([500, "bad_configuration"]);
      expect(body.detail).toContain("TOKEN: required");
      expect(body.detail).toContain("LIMIT");
      expect(body.detail).not.toContain("hunter2");
    }
  });
});

describe("secrets", () => {
  it("never show themselves", () => {
    const token = new Secret("hunter2");
    expect(`${token} ${JSON.stringify({ token })} ${String(token)}`).not.toContain("hunter2");
    expect(token.reveal()).toBe("hunter2");
  });

  it("never follow a failed statement into the log: its parameters are cut", () => {
    const error = new Error("Failed query: INSERT INTO x VALUES ($1)\nparams: hunter2,row\nrow");
    expect(logLine("s", "error", "e", { error })).not.toMatch(/hunter2|row/);
  });

  it("are cut from log lines by name and by shape", () => {
    const line = logLine("s", "info", "e", {
      api_key: "hunter2",
      nested: { Authorization: "hunter2" },
      url: "https://x/?api_key=hunter2&a=1",
      text: "sent Bearer hunter2",
    });
    expect(line).not.toContain("hunter2");
    expect(line).toContain("a=1");
    expect(scrub("postgres://u:hunter2@h/d")).toBe("postgres://u:[redacted]@h/d");
  });
});
