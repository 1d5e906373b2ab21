// Null in a body of any shape: what may be left out is left out, and what takes it keeps it.

import { z } from "@hono/zod-openapi";
import { expect, it } from "vitest";
import { createService } from "../../edge/http/app.ts";
import { type Description, endpointsOf } from "../../edge/http/example-request.ts";
import { NULL_REFUSED, nullsAsNotGiven } from "../../edge/http/not-given.ts";
import { addRoutes, anybody, json, jsonBody, routeOf } from "../../edge/http/route.ts";

const Inner = z.strictObject({
  count: z.number().max(9).default(3),
  note: z.string().nullable().optional(),
});
const Body = z.strictObject({
  name: z.string(),
  inner: Inner.optional(),
  list: z.array(Inner).optional(),
  byName: z.record(z.string(), Inner).optional(),
  values: z.record(z.string(), z.unknown()).optional(),
  kind: z
    .discriminatedUnion("kind", [
      z.strictObject({ kind: z.literal("a"), size: z.number().optional() }),
      z.strictObject({ kind: z.literal("b"), size: z.number().nullable().optional() }),
    ])
    .optional(),
  sent: z.preprocess((given) => given, z.strictObject({ from: z.uuid().optional() })).optional(),
});
const read = (body: unknown) => nullsAsNotGiven(Body).safeParse(body);

it("is left out of objects, lists, maps and unions, however deep", () => {
  const inner = { count: null };
  const given = { name: "x", inner, list: [inner, { count: 4 }], byName: { one: inner } };
  expect(read({ ...given, kind: { kind: "a", size: null }, sent: { from: null } }).data).toEqual({
    name: "x",
    inner: { count: 3 },
    list: [{ count: 3 }, { count: 4 }],
    byName: { one: { count: 3 } },
    kind: { kind: "a" },
    sent: {},
  });
  expect(read({ name: "x", inner: null, list: null, byName: null, kind: null }).data).toEqual({
    name: "x",
  });
});

it("stays where it says something of its own", () => {
  const given = {
    name: "x",
    inner: { count: 1, note: null },
    values: { open: null },
    kind: { kind: "b", size: null },
  };
  expect(read(given).data).toEqual(given);
});

it("is refused where something is required, or nothing is known", () => {
  const wrong = [{ name: null }, { name: "x", other: null }, { name: "x", list: [null] }, null];
  expect(wrong.filter((body) => read(body).success)).toEqual([]);
  const { error } = read({ name: "x", inner: { count: 10, note: 1 }, list: null });
  expect(error?.issues.map(({ path }) => path.join("."))).toEqual(["inner.count", "inner.note"]);
});

it("looks at few of the members that no schema knows, however many a body brings", () => {
  const many = Array.from({ length: 50_000 }, (_, index) => [String(2 ** 31 + index), null]);
  const inner = { ...Object.fromEntries(many), count: null, note: null };
  const { error } = read({ name: "x", inner: { ...inner, count: 10 }, list: [inner] });
  const told = error?.issues.map((issue) => [
    issue.path.join("."),
    issue.code === "unrecognized_keys" ? issue.keys.length : issue.code,
  ]);
  expect(told).toEqual([
    ["inner.count", "too_big"],
    ["inner", 32],
    ["list.0", 32],
  ]);
  const Dropping = z.object({ count: z.int().optional(), note: z.string() });
  const kept = nullsAsNotGiven(Dropping).parse({ ...inner, note: "n" });
  expect(kept).toEqual({ note: "n" });
  const Keeping = z.looseObject({ count: z.int().optional() });
  expect(Object.keys(nullsAsNotGiven(Keeping).parse(inner))).toHaveLength(50_001);
});

it("is told of in the description of every body, and heard so by its route", async () => {
  const { app } = createService({
    name: "test",
    title: "Test",
    description: "",
    version: "1",
    loggedQuery: [],
    open: () => ({}),
  });
  const Shape = z.strictObject({ size: z.int().optional() }).meta({ id: "Shape" });
  const Sent = z.strictObject({
    mode: z.enum(["a", "b"]).default("b"),
    shape: Shape.optional(),
    either: z.union([z.string(), z.number()]).optional(),
    unclear: z
      .boolean()
      .optional()
      .meta({ [NULL_REFUSED]: true }),
  });
  const route = routeOf<object>();
  const declared = {
    call: "POST /things",
    operationId: "sendThing",
    tag: "Things",
    summary: "",
    who: anybody,
    body: jsonBody(Sent),
    answers: { 200: json("as it came", z.unknown()) },
  } as const;
  addRoutes(app, [route(declared, (context) => context.json(context.req.valid("json"), 200))]);
  const body = JSON.stringify({ mode: null, shape: { size: null }, either: null });
  const headers = { "Content-Type": "application/json" };
  const answer = await app.request("/things", { method: "POST", headers, body }, {});
  expect(await answer.json()).toEqual({ mode: "b", shape: {} });
  const unclear = { method: "POST", headers, body: '{"unclear":null}' };
  expect((await app.request("/things", unclear, {})).status).toBe(422);
  const document = (await (await app.request("/openapi.json", {}, {})).json()) as Description;
  const [endpoint] = endpointsOf(document);
  expect(endpoint?.operation.requestBody?.content?.["application/json"]?.schema).toEqual({
    type: "object",
    properties: {
      mode: { type: ["string", "null"], enum: ["a", "b", null], default: "b" },
      shape: { anyOf: [{ $ref: "#/components/schemas/Shape" }, { type: "null" }] },
      unclear: { type: "boolean", [NULL_REFUSED]: true },
      either: { anyOf: [{ type: "string" }, { type: "number" }, { type: "null" }] },
    },
    additionalProperties: false,
  });
  expect(document.components?.schemas?.Shape).toMatchObject({
    properties: { size: { type: ["integer", "null"] } },
  });
});
