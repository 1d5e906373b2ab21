// The read API's settings, as operators write them.

import { expect, it } from "vitest";
import { parseConfig } from "../../edge/markets/config.ts";

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
  ["*", /SERVICE_CORS_ORIGINS: \* is not taken: name each origin/],
  ["https://app.example.com,*", /\* is not taken/],
  ["https://app.example.com/path", /must be a comma-separated list of origins/],
  ["app.example.com", /must be a comma-separated list of origins/],
])("refuses the origins %s with what to write instead", (given, problem) => {
  expect(() => parse({ SERVICE_CORS_ORIGINS: given })).toThrow(problem);
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
