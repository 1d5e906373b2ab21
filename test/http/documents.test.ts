// The golden descriptions as tools read them: Redocly's rules, and what makes a generated client
// and the API page good.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createConfig, lintFromString } from "@redocly/openapi-core";
import { describe, expect, it } from "vitest";
import { eachSchema } from "../../edge/http/description.ts";
import { type Description, endpointsOf, type Json } from "../../edge/http/example-request.ts";

const SERVICES = ["markets", "console", "vision"];
const textOf = (service: string) =>
  readFileSync(join(import.meta.dirname, `../golden/openapi.${service}.json`), "utf8");
const read = (service: string) => JSON.parse(textOf(service)) as Description;

async function findings(service: string): Promise<string[]> {
  const config = await createConfig({
    extends: ["recommended"],
    rules: {
      // This is nobody else's to use.
      "info-license": "off",
      // A health check that answers at all answers 200.
      "operation-4xx-response": "off",
      // A socket is opened by 101, and a file is sent for by 302.
      "operation-2xx-response": "off",
      // An id is a UUID, so that /train/{run_id}/epochs is never /train/weights/{weights_id}.
      "no-ambiguous-paths": "off",
      // What sockets send is told of by a shape that no route answers.
      "no-unused-components": "off",
    },
  });
  const absoluteRef = `openapi.${service}.json`;
  const found = await lintFromString({ source: textOf(service), absoluteRef, config });
  return found.map(
    ({ severity, ruleId, location }) => `${severity} ${ruleId} ${location[0]?.pointer ?? ""}`,
  );
}

it("finds what is planted", async () => {
  const config = await createConfig({ extends: ["recommended"] });
  const source = JSON.stringify({
    openapi: "3.1.0",
    info: { title: "x", version: "1" },
    paths: {},
  });
  const found = await lintFromString({ source, absoluteRef: "x.json", config });
  expect(found.map(({ ruleId }) => ruleId)).toContain("no-empty-servers");
});

it("calls where a thing of vision stands its status, as the contract does, on every route", () => {
  expect(textOf("vision").match(/"(state|status)":/g)).not.toContain('"state":');
  expect(
    endpointsOf(read("vision")).flatMap(({ operation }) => operation.parameters ?? []),
  ).not.toContainEqual(expect.objectContaining({ name: "state" }));
});

/** The objects of a document, each with the name of the field, shape or route that holds it. */
function objectsOf({ components, paths }: Description): [string, Json][] {
  const found: [string, Json][] = [];
  for (const [name, one] of Object.entries({ ...components?.schemas, ...paths })) {
    eachSchema(one, name, (schema, holder) => found.push([holder, schema]));
  }
  return found;
}

describe.each(SERVICES)("the description of %s", (service) => {
  const document = read(service);
  const endpoints = endpointsOf(document);
  const named = (keep: (endpoint: (typeof endpoints)[number]) => boolean) =>
    endpoints.filter(keep).map(({ method, path }) => `${method} ${path}`);

  it("gives Redocly nothing to warn of", async () => {
    expect(await findings(service)).toEqual([]);
  });

  it("calls no shape what generators call another's list of values", () => {
    const shapes = Object.entries((document.components?.schemas ?? {}) as Record<string, Json>);
    const pascal = (name: string) => name.replace(/(^|_)(\w)/g, (_, __, one) => one.toUpperCase());
    const lists = shapes.flatMap(([name, { properties = {} }]) =>
      Object.entries(properties as Record<string, Json>)
        .filter(([, property]) => Array.isArray(property.enum))
        .map(([property]) => name + pascal(property)),
    );
    expect(lists.filter((list) => shapes.some(([name]) => name === list))).toEqual([]);
  });

  it("names every operation shortly, and puts it under one tag that is described", () => {
    const tags = new Map(document.tags?.map(({ name, description }) => [name, description]));
    expect(
      named(({ operation }) => !/^[a-z]+[A-Z]\w{2,20}$/.test(operation.operationId ?? "")),
    ).toEqual([]);
    expect(
      named(({ operation: { tags: own = [] } }) => own.length !== 1 || !tags.get(own[0] ?? "")),
    ).toEqual([]);
  });

  it("shows an example of every JSON answer", () => {
    const blank = named(({ operation }) => {
      const [answer] = Object.values(operation.responses ?? {});
      const media = answer?.content?.["application/json"];
      return media !== undefined && media.example === undefined;
    });
    expect(blank).toEqual([]);
  });

  it("shows nothing in its examples that linters take for a schema with an example", () => {
    const shown = (value: unknown): unknown[] =>
      typeof value === "object" && value !== null
        ? [value, ...Object.values(value).flatMap(shown)]
        : [];
    const contents = endpoints.flatMap(({ path, operation: { requestBody, responses } }) =>
      [requestBody, ...Object.values(responses ?? {})].map((one) => ({
        path,
        media: Object.values(one?.content ?? {}),
      })),
    );
    const taken = contents.filter(({ media }) =>
      media
        .flatMap(({ example }) => shown(example))
        .some((one) => {
          const { type, example } = one as Json;
          return type !== undefined && example !== undefined;
        }),
    );
    expect(taken.map(({ path }) => path)).toEqual([]);
  });

  it("says when to come back wherever it sends somebody away", () => {
    const silent = endpoints.flatMap(({ path, operation }) =>
      Object.entries(operation.responses ?? {})
        .filter(([status, { headers }]) => /^(429|503)$/.test(status) && !headers?.["Retry-After"])
        .map(([status]) => `${path} ${status}`),
    );
    expect(silent).toEqual([]);
  });

  it("tells the meaning of every parameter and field, and of each parameter what it may be", () => {
    const parameters = endpoints.flatMap(({ path, operation }) =>
      (operation.parameters ?? [])
        .filter(({ description, schema = {} }) => {
          const { example, enum: choices, type } = schema;
          return !description || (example === undefined && !choices && type !== "boolean");
        })
        .map(({ name }) => `${path} ${name}`),
    );
    const fields = objectsOf(document).flatMap(([holder, { properties = {} }]) =>
      Object.entries(properties as Record<string, Json>)
        .filter(([, { description, $ref }]) => !description && !$ref)
        .map(([name]) => `${holder}.${name}`),
    );
    expect([...parameters, ...fields]).toEqual([]);
  });

  it("has no named shape that is null, and where a reference may be null says so beside it", () => {
    const shapes = Object.entries((document.components?.schemas ?? {}) as Record<string, Json>);
    const isNullable = ({ type }: Json) => [type].flat().includes("null");
    expect(shapes.filter(([, shape]) => isNullable(shape)).map(([name]) => name)).toEqual([]);
    const joined = objectsOf(document).filter(([, { allOf }]) => allOf !== undefined);
    expect(joined.map(([holder]) => holder)).toEqual([]);
  });

  it("tells the length of tuples, and what is in them to readers that know no tuples", () => {
    const tuples = objectsOf(document).filter(([, { prefixItems }]) => prefixItems);
    const vague = tuples.filter(([, { items, minItems, maxItems, prefixItems }]) => {
      const { length } = prefixItems as unknown[];
      return items === undefined || minItems !== length || maxItems !== length;
    });
    expect(vague.map(([holder]) => holder)).toEqual([]);
  });

  it("has no default that is null", () => {
    const nulls = objectsOf(document).filter(([, schema]) => schema.default === null);
    expect(nulls.map(([holder]) => holder)).toEqual([]);
  });

  it("requires the form wherever one is taken", () => {
    const taking = endpoints.filter(({ operation: { requestBody: body } }) => {
      const isForm = body?.content?.["multipart/form-data"] !== undefined;
      return isForm && !body.required;
    });
    expect(taking.map(({ path }) => path)).toEqual([]);
  });
});

it("says of Parquet and Arrow that they are bytes", () => {
  const series = endpointsOf(read("markets")).find(({ path }) => path === "/series");
  const content = series?.operation.responses?.["200"]?.content ?? {};
  const binary = Object.keys(content).filter((type) => content[type]?.schema?.format === "binary");
  expect(binary).toEqual(["application/vnd.apache.parquet", "application/vnd.apache.arrow.stream"]);
});
