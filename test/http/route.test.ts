// What follows from a route's declaration: which of two paths is meant, who is let in before what
// is looked at, and what the description says of its errors.

import { z } from "@hono/zod-openapi";
import { expect, it, vi } from "vitest";
import { createService } from "../../edge/http/app.ts";
import { type Description, endpointsOf } from "../../edge/http/example-request.ts";
import {
  type Audience,
  addRoutes,
  anybody,
  type Declaration,
  jsonBody,
  type Route,
  routeOf,
} from "../../edge/http/route.ts";
import { Failure } from "../../shared/errors.ts";

const route = routeOf<object>();
const declared = <Call extends Declaration["call"]>(call: Call) => ({
  call,
  operationId: call.replace(/\W+/g, "_"),
  tag: "Things",
  summary: "",
  answers: { 200: { description: "who answered" } },
});

function serviceOf(routes: readonly Route<object>[]) {
  vi.spyOn(console, "log").mockImplementation(() => {});
  const { app } = createService({
    name: "sample",
    title: "Sample",
    description: "",
    version: "1",
    loggedQuery: [],
    open: () => ({}),
  });
  addRoutes(app, routes, { prefix: "/api" });
  return (call: string, init: RequestInit = {}) => {
    const [method = "", path = ""] = call.split(" ");
    return app.request(path, { method, ...init }, {});
  };
}

const ID = "6f1c2b9e-3d7a-4c55-8a10-2b1f9d0c4e71";
const byId = { params: z.object({ thing_id: z.uuid() }), who: anybody };

it("means the path with a word where another has a parameter, however they are listed", async () => {
  const answers = (call: Declaration["call"], more: Partial<Declaration> = {}) =>
    route({ ...declared(call), who: anybody, ...more }, (context) => context.text(call));
  const send = serviceOf([
    answers("GET /things/{thing_id}", byId),
    answers("DELETE /things/{thing_id}", byId),
    answers("GET /things/{thing_id}/parts", byId),
    answers("GET /things/newest"),
    answers("POST /things/newest/parts"),
    answers("GET /things"),
  ]);
  const said = async (call: string) => {
    const response = await send(call);
    return [response.status, response.headers.get("Allow") ?? (await response.text())];
  };
  expect(await said("GET /api/things")).toEqual([200, "GET /things"]);
  expect(await said("GET /api/things/newest")).toEqual([200, "GET /things/newest"]);
  expect(await said(`GET /api/things/${ID}`)).toEqual([200, "GET /things/{thing_id}"]);
  // A word's path is never taken for an id's, whatever the method.
  expect(await said("DELETE /api/things/newest")).toEqual([405, "GET, HEAD, OPTIONS"]);
  expect(await said("GET /api/things/newest/parts")).toEqual([405, "POST, OPTIONS"]);
  expect(await said(`POST /api/things/${ID}`)).toEqual([405, "GET, DELETE, HEAD, OPTIONS"]);
  expect(await said(`OPTIONS /api/things/${ID}`)).toEqual([204, "GET, DELETE, HEAD, OPTIONS"]);
  expect((await send("GET /things")).status).toBe(404);
});

it("lets its audience in by all guards, in order, before the request is looked at", async () => {
  const seen: string[] = [];
  const guard = (name: string, refuses = false): Audience["guards"][number] => {
    return async (_, next) => {
      seen.push(name);
      if (refuses) throw new Failure("forbidden", "not you");
      await next();
    };
  };
  const who = (...guards: Audience["guards"][number][]): Audience => ({ schemes: {}, guards });
  const body = jsonBody(z.strictObject({ size: z.int() }), { bytesMax: 20 });
  const send = serviceOf([
    route({ ...declared("POST /open"), who: who(guard("a"), guard("b")), body }, (context) =>
      context.json(context.req.valid("json"), 200),
    ),
    route(
      {
        ...declared("POST /shut"),
        who: who(guard("c"), guard("d", true)),
        before: guard("e"),
        body,
      },
      (context) => context.json({}, 200),
    ),
  ]);
  const sent = (text: string) => ({ headers: { "Content-Type": "application/json" }, body: text });
  expect((await send("POST /api/open", sent('{"size":1}'))).status).toBe(200);
  expect((await send("POST /api/open", sent("not JSON"))).status).toBe(400);
  expect((await send("POST /api/open", sent(`{"size":${"1".repeat(20)}}`))).status).toBe(413);
  expect((await send("POST /api/shut", sent("not JSON"))).status).toBe(403);
  expect((await send("POST /api/shut?x=1", sent("{}"))).status).toBe(403);
  expect(seen).toEqual(["a", "b", "a", "b", "a", "b", "c", "d", "c", "d"]);
});

it("describes the errors that follow from its audience and what it takes", async () => {
  const key: Audience = {
    schemes: { key: { type: "apiKey", in: "header", name: "X-Key" } },
    guards: [],
    description: "For holders of the key.",
    errorsOfChanges: ["forbidden"],
  };
  // It is never called: what a declaration's answers are is of no matter.
  const nothing = () => new Response() as never;
  const send = serviceOf([
    route({ ...declared("GET /plain"), who: anybody }, nothing),
    route({ ...declared("GET /plain/{thing_id}"), ...byId, who: key }, nothing),
    route(
      {
        ...declared("POST /plain"),
        who: key,
        body: jsonBody(z.strictObject({})),
        errors: ["state_conflict", "busy"],
        never: ["store_unavailable"],
      },
      nothing,
    ),
    route(
      { ...declared("DELETE /plain/{thing_id}"), ...byId, who: key, errors: ["unknown_run"] },
      nothing,
    ),
  ]);
  const document = (await (await send("GET /openapi.json")).json()) as Description;
  const described = endpointsOf(document).map(({ method, path, operation }) => {
    const responses = Object.values(operation.responses ?? {}) as { description?: string }[];
    const codes = responses.flatMap(({ description = "" }) =>
      [...description.matchAll(/`(\w+)`: /g)].map(([, code]) => code),
    );
    const { description, security } = operation as { description?: string; security?: unknown };
    return [`${method} ${path}`, description, security, codes];
  });
  const holders = [{ key: [] }];
  expect(described).toEqual([
    ["GET /api/plain", undefined, [], ["store_unavailable"]],
    [
      "POST /api/plain",
      undefined,
      holders,
      // By status.
      ["bad_body", "unauthorized", "forbidden", "state_conflict", "body_too_large"].concat(
        "invalid_request",
        "busy",
      ),
    ],
    [
      "GET /api/plain/{thing_id}",
      "For holders of the key.",
      holders,
      ["unauthorized", "not_found", "invalid_request", "store_unavailable"],
    ],
    [
      "DELETE /api/plain/{thing_id}",
      undefined,
      holders,
      ["unauthorized", "forbidden", "unknown_run", "invalid_request", "store_unavailable"],
    ],
  ]);
});
