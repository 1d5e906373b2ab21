// Every route of the vision service, driven from its own description with values that no client of
// good will sends, one at a time in requests that are else in order. Goal: no answer is a fault of
// ours, and none has a status that the description does not know.

import { expect, it } from "vitest";
import { API } from "../../edge/vision/base/api.ts";
import { describeApi } from "../support/common-routes.ts";
import { BODIES, BY_BODY, everything, filled, type Ids } from "../support/everything.ts";
import { registerTestNode } from "../support/nodes.ts";
import { ask, newMember, newTenant, register } from "../support/vision.ts";
import { createWorld } from "../support/world.ts";

/** Texts of a path or a query. */
const TEXTS = [
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
  "\u0000",
  "x".repeat(100_000),
  "\ud800",
  -1,
  0.1,
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
/** They wait a while for a node to do its work, which none does here. */
const WAITING = /^POST \/(label\/(preview|segment-points)|predict\/|jobs\/\{job_id\}\/export)/;
/** They end the caller's own session. */
const ENDING = /^POST \/auth\/(logout|password|refresh)/;
/** Of any route: no such path, not so, another type, too large, too many. */
const COMMON = [400, 404, 405, 413, 415, 429];

interface Schema {
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
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
}
interface Operation {
  parameters?: { in: string; name: string }[];
  requestBody?: { content: Record<string, { schema?: Schema }> };
  responses: Record<string, unknown>;
}
interface Description {
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, Schema> };
}

/** The fields of a body, each as the path to it; elements of arrays are `0`. */
function fieldsOf(schema: Schema | undefined, description: Description, depth = 0): string[][] {
  if (!schema || depth > 3) return [];
  const name = schema.$ref?.split("/").at(-1);
  if (name !== undefined) return fieldsOf(description.components.schemas[name], description, depth);
  const parts = [...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])];
  const below = Object.entries(schema.properties ?? {}).flatMap(([field, inner]) => [
    [field],
    ...fieldsOf(inner, description, depth + 1).map((path) => [field, ...path]),
  ]);
  const items = fieldsOf(schema.items, description, depth + 1).map((path) => ["0", ...path]);
  const others = parts.flatMap((part) => fieldsOf(part, description, depth));
  return [
    ...new Map([...below, ...items, ...others].map((path) => [path.join("."), path])).values(),
  ];
}

/** A value that a schema takes, with nothing in it that need not be there. */
function sampleOf(schema: Schema | undefined, description: Description): unknown {
  if (!schema) return null;
  const name = schema.$ref?.split("/").at(-1);
  if (name !== undefined) return sampleOf(description.components.schemas[name], description);
  if (schema.const !== undefined) return schema.const;
  if (schema.default !== undefined) return schema.default;
  if (schema.enum) return schema.enum[0];
  const [first] = schema.anyOf ?? schema.oneOf ?? schema.allOf ?? [];
  if (first) return sampleOf(first, description);
  if (schema.type === "array") {
    return Array.from({ length: schema.minItems ?? 0 }, () => sampleOf(schema.items, description));
  }
  if (schema.type === "string") {
    return schema.format === "uuid" ? crypto.randomUUID() : "a".repeat(schema.minLength ?? 1);
  }
  if (schema.type === "number" || schema.type === "integer")
    return Math.max(schema.minimum ?? 1, 1);
  if (schema.type === "boolean") return true;
  const { properties = {}, required = [] } = schema;
  return Object.fromEntries(required.map((one) => [one, sampleOf(properties[one], description)]));
}

/** A body with a value at a path; what lies on the way and is not there is made. */
function withValue(body: unknown, [field, ...rest]: string[], value: unknown): unknown {
  if (field === undefined) return value;
  if (field === "0") {
    const [first, ...others] = Array.isArray(body) ? (body as unknown[]) : [{}];
    return [withValue(first, rest, value), ...others];
  }
  const object = typeof body === "object" && body !== null ? (body as Record<string, unknown>) : {};
  return { ...object, [field]: withValue(object[field], rest, value) };
}

interface Answer {
  /** Whether a session or a node asked that nothing here ends. */
  isKnown: boolean;
  route: string;
  what: string;
  status: number;
  declared: readonly number[];
}

it("takes no value for a fault of its own, on any route, whoever asks", async () => {
  const world = await createWorld({ services: ["vision"] });
  const url = world.urls.vision;
  const admin = await register(url);
  const tenant = await newTenant(url, admin, "admin");
  const owner = tenant.member;
  const viewer = await newMember(url, admin, tenant.workspaceId, "viewer");
  const node = await registerTestNode(url, admin);
  const outsider = await newMember(url, admin, tenant.workspaceId, "viewer");
  // A change of role ends its member's tokens: it is nobody's of those who ask.
  const ids: Ids = { ...(await everything(world, tenant)), user_id: outsider.id };
  const claimed = await node.post("/node/claim", { kinds: ["probe"] });
  const { task_id, fence } = (await claimed.json()) as { task_id: string; fence: number };
  ids.task_id = task_id;
  // The helper's type names less of a description than is there.
  const description = (await describeApi(url)) as unknown as Description;
  const answers: Answer[] = [];
  const send = async (
    { route, declared }: Pick<Answer, "route" | "declared">,
    what: string,
    [path, body]: [string, unknown?],
  ) => {
    const [method = "", own = ""] = route.split(" ");
    const isNodes = own.startsWith("/node");
    // JSON that is sent as a text is JSON too.
    const headers = typeof body === "string" ? { "Content-Type": "application/json" } : {};
    const asNode = { body, headers: { ...node.headers, ...headers } };
    const callers: (() => Promise<{ status: number }>)[] = isNodes
      ? [() => ask(url, method, path, asNode)]
      : [() => owner.ask(method, path, body, headers)];
    if (answers.length % 7 === 0) {
      callers.push(
        () => viewer.ask(method, path, body, headers),
        () => ask(url, method, path, { body, headers }),
      );
    }
    for (const [index, caller] of callers.entries()) {
      const { status } = await caller();
      answers.push({ isKnown: index === 0, route, what, status, declared });
    }
  };
  for (const [path, operations] of Object.entries(description.paths)) {
    for (const [method, operation] of Object.entries(operations)) {
      const own = path.slice(API.length);
      const route = `${method.toUpperCase()} ${own}`;
      if (!path.startsWith(API) || WAITING.test(route) || ENDING.test(route)) continue;
      const declared = Object.keys(operation.responses).map(Number);
      const base = filled(own, ids) ?? own.replace(/\{\w+\}/g, "x");
      const { parameters = [] } = operation;
      const schema = operation.requestBody?.content["application/json"]?.schema;
      const given = BODIES[route] ?? BY_BODY[route];
      const sample = given ? given(ids) : schema && sampleOf(schema, description);
      // A node is heard of a task that it holds.
      const body = own.startsWith("/node/tasks/") ? { ...(sample as object), fence } : sample;
      const asked = { route, declared };
      for (const { in: where, name } of parameters) {
        if (where !== "query" && where !== "path") continue;
        for (const text of TEXTS) {
          // A lone half of a pair has no form in an address.
          const value = encodeURIComponent(text.toWellFormed());
          const at =
            where === "query"
              ? `${base.replace(/\?.*/, "")}?${name}=${value}`
              : (filled(own.replace(`{${name}}`, value), ids) ?? own.replace(`{${name}}`, value));
          await send(asked, `${where} ${name}=${JSON.stringify(text).slice(0, 40)}`, [at, body]);
        }
      }
      for (const field of fieldsOf(schema, description)) {
        for (const value of VALUES) {
          const what = `body ${field.join(".")}=${JSON.stringify(value)?.slice(0, 40)}`;
          await send(asked, what, [base, withValue(body ?? {}, field, value)]);
        }
      }
      if (schema) {
        for (const value of [null, [], "x", 1]) {
          await send(asked, `body ${JSON.stringify(value)}`, [base, JSON.stringify(value)]);
        }
      }
    }
  }
  const named = ({ route, what, status }: Answer) => `${status} ${route} ${what}`;
  const counts = Map.groupBy(answers, ({ status }) => status);
  const told = [...counts].sort().map(([status, of]) => `${of.length} × ${status}`);
  console.info(`hostile values: ${answers.length} answers, ${told.join(", ")}`);
  expect(answers.length).toBeGreaterThan(3_000);
  expect(answers.filter(({ status }) => status >= 500).map(named)).toEqual([]);
  // Those who are let in on nothing would prove nothing; the code of a new node is never right.
  const refused = answers.filter(({ isKnown, status }) => isKnown && status === 401);
  expect([...new Set(refused.map(({ route }) => route))]).toEqual(["POST /node/register"]);
  const unknown = answers.filter(
    ({ status, declared }) => !declared.includes(status) && !COMMON.includes(status),
  );
  expect(unknown.map(named)).toEqual([]);
}, 600_000);
