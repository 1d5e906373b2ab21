// Configuration of the read API where the environment leaves settings out.

import { expect, it } from "vitest";
import { parseConfig } from "../../edge/markets/config.ts";

const required = { DATABASE_URL: "postgresql://reader:hunter2@127.0.0.1:1/markets", STORE: {} };

it("caps an unbounded read at 500,000 rows, and at another number where one is set", () => {
  expect(parseConfig(required).SERVICE_SERIES_MAX_ROWS).toBe(500_000);
  const set = parseConfig({ ...required, SERVICE_SERIES_MAX_ROWS: "7" });
  expect(set.SERVICE_SERIES_MAX_ROWS).toBe(7);
});

it.each(["DATABASE_URL", "STORE"])("has no default for %s, and names it", (key) => {
  expect(() => parseConfig({ ...required, [key]: undefined })).toThrow(
    expect.objectContaining({ code: "bad_configuration", message: expect.stringContaining(key) }),
  );
});

it("is open and grants no origin where neither a key nor origins are set", () => {
  const { SERVICE_READ_API_KEY, SERVICE_CORS_ORIGINS } = parseConfig(required);
  expect([SERVICE_READ_API_KEY, SERVICE_CORS_ORIGINS]).toEqual([undefined, []]);
});
