// The read API's settings, as operators write them.

import { expect, it } from "vitest";
import { corsProblem, parseConfig } from "../../edge/markets/config.ts";

const parse = (more: object) =>
  parseConfig({
    DATABASE_URL: "postgresql://reader:password@localhost/markets",
    STORE: {},
    ...more,
  });

it("takes origins with a slash at their end", () => {
  const given = "https://app.example.com/, http://localhost:5173/,";
  expect(parse({ SERVICE_CORS_ORIGINS: given }).SERVICE_CORS_ORIGINS).toEqual([
    "https://app.example.com",
    "http://localhost:5173",
  ]);
});

it.each([
  "*",
  "https://app.example.com,*",
  "https://*.example.com",
  "https://app.example.com/path",
  "https://app.example.com?a=1",
  "app.example.com",
  "https://user:hunter2@app.example.com",
  "ftp://app.example.com",
])("grants nothing to %s, and says what to write instead", (given) => {
  const granted = parse({ SERVICE_CORS_ORIGINS: given }).SERVICE_CORS_ORIGINS;
  expect(granted).toEqual(given.includes(",") ? ["https://app.example.com"] : []);
  const problem = corsProblem(given);
  expect(problem).toMatch(/no origin at place \d of the list\. Write each origin in full/);
  expect(problem).not.toContain("hunter2");
});

it("has nothing to say of origins", () => {
  expect(corsProblem("https://APP.example.com/, http://localhost:5173,")).toBeNull();
});

it("takes every empty optional setting for unset", () => {
  const empty = {
    GRAPH_DATABASE_URL: "",
    SERVICE_READ_API_KEY: "",
    SERVICE_CORS_ORIGINS: "",
    SERVICE_SERIES_MAX_ROWS: "",
  };
  expect(parse(empty)).toEqual(parse({}));
});
