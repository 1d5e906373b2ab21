// The read API against the spec, in workerd with the real Postgres and object store: every status
// of every route.

import { beforeAll, describe, expect, it } from "vitest";
import { SymbolDescription } from "../../edge/markets/client/symbols.ts";
import { ErrorBody } from "../../shared/errors.ts";
import { Health, SeriesRecord } from "../../shared/wire/markets.ts";
import { commonRouteTests } from "../support/common-routes.ts";
import { commitHours, createWorld, HOUR, type World } from "../support/world.ts";

const FROM = Date.UTC(2026, 0, 10);
const KEY = "a-reader's key";

let open: World;
let closed: World;
let asOf: string[];

beforeAll(async () => {
  [open, closed] = await Promise.all([
    createWorld({
      services: ["markets", "console"],
      environment: {
        markets: {
          SERVICE_SERIES_MAX_ROWS: "5",
          SERVICE_CORS_ORIGINS: "https://app.example.com/, *",
        },
      },
    }),
    createWorld({
      services: ["markets", "console"],
      environment: { markets: { SERVICE_READ_API_KEY: KEY } },
    }),
  ]);
  const first = await commitHours(open, "erco", FROM, [10, null, 30], { reconstructed: true });
  const second = await commitHours(open, "erco", FROM + HOUR, [20, 31]);
  await commitHours(open, "pjm", FROM, [1, 2, 3, 4, 5, 6]);
  asOf = [first, second].map((vintage) => new Date(vintage?.asOf ?? 0).toISOString());
});

const get = (path: string, init?: RequestInit) => fetch(open.urls.markets + path, init);
const series = async (query: string) => {
  const response = await get(`/series?library=power.demand&symbol=erco${query}`);
  expect(response.status).toBe(200);
  return SeriesRecord.array().parse(await response.json());
};
const values = async (query: string) => (await series(query)).map((record) => record.value);
const refusal = async (path: string) => {
  const response = await get(path);
  return { status: response.status, ...ErrorBody.parse(await response.json()) };
};

describe("the read API", () => {
  commonRouteTests("openapi.markets.json", {
    url: () => closed.urls.markets,
    open: ["/healthz"],
    wrong: { "X-API-Key": "wrong" },
  });

  it("lets the right key in, and warns once at start when none is set", async () => {
    const response = await fetch(`${closed.urls.markets}/libraries`, {
      headers: { "X-API-Key": KEY },
    });
    expect([response.status, await response.json()]).toEqual([200, []]);
    await get("/libraries");
    const warnings = (world: World) => world.logs.filter((line) => line.includes("open_api"));
    expect(warnings(open)).toHaveLength(1);
    expect(warnings(closed)).toHaveLength(0);
    expect(closed.logs.join()).not.toContain(KEY);
  });
});

describe("GET /healthz", () => {
  it("passes over parameters that it does not know", async () => {
    expect((await get("/healthz?t=1")).status).toBe(200);
  });

  it("tells libraries and the newest knowledge time, from the vintage index", async () => {
    const health = Health.parse(await (await get("/healthz")).json());
    expect(health).toMatchObject({
      status: "ok",
      libraries: ["power.demand"],
      graph: "connected",
    });
    expect(Date.parse(health.latest_as_of ?? "")).toBeGreaterThanOrEqual(Date.parse(asOf[1] ?? ""));
  });

  it("has a null latest_as_of while nothing is committed", async () => {
    const response = await fetch(`${closed.urls.markets}/healthz`);
    expect(Health.parse(await response.json())).toMatchObject({
      libraries: [],
      latest_as_of: null,
    });
  });
});

describe("GET /libraries and /symbols", () => {
  it("list what the store holds", async () => {
    expect(await (await get("/libraries")).json()).toEqual(["power.demand"]);
    expect(await (await get("/symbols?library=power.demand")).json()).toEqual(["erco", "pjm"]);
  });

  it("answer 404 for an unknown library and 422 for none", async () => {
    const described = await (await get("/symbols/describe?library=power.demand")).json();
    expect(SymbolDescription.array().parse(described)).toMatchObject([
      { symbol: "erco", name: "Demand, ERCOT", unit: "MWh", time_zone: "America/Chicago" },
      { symbol: "pjm", columns: [{ column: "value", unit: "MWh" }] },
    ]);
    const one = await get("/symbols/describe?library=power.demand&symbol=pjm");
    expect(await one.json()).toHaveLength(1);
    for (const [query, code] of [
      ["library=nope", "unknown_library"],
      ["library=power.demand&symbol=nope", "unknown_symbol"],
    ]) {
      expect(await refusal(`/symbols/describe?${query}`)).toMatchObject({ status: 404, code });
    }
    expect(await refusal("/symbols?library=nope")).toMatchObject({
      status: 404,
      code: "unknown_library",
    });
    expect(await refusal("/symbols")).toMatchObject({ status: 422, detail: "library: required" });
    expect(await refusal("/symbols?library=")).toMatchObject({ status: 422 });
  });
});

describe("GET /series", () => {
  it("answers the latest state with null for NaN and a flag per row", async () => {
    expect(await series("")).toEqual([
      record(0, 10, asOf[0], true),
      record(1, 20, asOf[1], false),
      record(2, 31, asOf[1], false),
    ]);
    expect((await series(`&as_of=${asOf[0]}`))[1]).toEqual(record(1, null, asOf[0], true));
  });

  function record(
    hour: number,
    value: number | null,
    known: string | undefined,
    reconstructed: boolean,
  ) {
    return {
      Datetime: new Date(FROM + hour * HOUR).toISOString(),
      instrument_id: "power.demand.erco",
      value,
      as_of: known,
      vintage_reconstructed: reconstructed,
    };
  }

  it("never answers data learned after as_of", async () => {
    expect(await values(`&as_of=${asOf[0]}`)).toEqual([10, null, 30]);
    expect(await values(`&as_of=${asOf[1]}`)).toEqual([10, 20, 31]);
    const between = new Date(Date.parse(asOf[1] ?? "") - 1).toISOString();
    expect(await values(`&as_of=${between}`)).toEqual([10, null, 30]);
  });

  it("answers [] for an as_of before the first vintage, and the latest for one in the future", async () => {
    expect(await series("&as_of=2020-01-01")).toEqual([]);
    expect(await series("&as_of=0001-01-01T00:00:00%2B14:00")).toEqual([]);
    expect(await values("&as_of=9999-12-31T23:59:59Z")).toEqual([10, 20, 31]);
  });

  it("bounds valid time inclusively, by dates and by instants with Z or an offset", async () => {
    expect(await values("&start=2026-01-10T01:00:00Z&end=2026-01-10T02:00:00Z")).toEqual([20, 31]);
    expect(await values("&start=2026-01-10T01:00:01Z")).toEqual([31]);
    expect(await values("&end=2026-01-10T01:00Z")).toEqual([10, 20]);
    expect(await values("&end=2026-01-10")).toEqual([10]);
    expect(await values("&start=2026-01-10T03:00:00%2B02:00")).toEqual([20, 31]);
    expect(await values("&start=2026-01-10T03:00:00+02:00")).toEqual([20, 31]);
    expect(await values("&start=2027-01-01")).toEqual([]);
  });

  it("names the vintage that answered", async () => {
    const latest = await get("/series?library=power.demand&symbol=erco");
    expect(latest.headers.get("X-As-Of")).toBe(asOf[1]);
    expect(latest.headers.get("X-Store-Version")).toBe("2");
    expect(latest.headers.get("X-Sandbox")).toBeNull();
    const before = await get("/series?library=power.demand&symbol=erco&as_of=2020-01-01");
    expect(before.headers.get("X-As-Of")).toBeNull();
  });

  it.each(["as_of", "start", "end"])("answers 400 for a %s that cannot be parsed", async (name) => {
    for (const text of ["yesterday", "2026-02-30", ""]) {
      const path = `/series?library=power.demand&symbol=erco&${name}=${text}`;
      expect(await refusal(path)).toMatchObject({ status: 400, code: "bad_datetime" });
    }
  });

  it("names the form of a datetime that it does not read, and those that it reads", async () => {
    expect(
      await refusal("/series?library=power.demand&symbol=erco&start=20260101T000000Z"),
    ).toMatchObject({
      status: 400,
      code: "bad_datetime",
      detail: expect.stringMatching(/^start: "20260101T000000Z" is of .+ basic form; write 2026-/),
    });
  });

  it("answers 404 for an unknown library, symbol or sidecar", async () => {
    const unknown = (query: string) => refusal(`/series?${query}`);
    expect(await unknown("library=x&symbol=erco")).toMatchObject({
      status: 404,
      code: "unknown_library",
    });
    const symbols = ["nope", "ERCO", "erco__vintages"];
    for (const symbol of symbols) {
      const answer = await unknown(`library=power.demand&symbol=${symbol}`);
      expect(answer).toMatchObject({ status: 404, code: "unknown_symbol" });
    }
  });

  it("answers 422 for a missing parameter or a NUL in one", async () => {
    expect(await refusal("/series?library=power.demand")).toMatchObject({ status: 422 });
    expect(await refusal("/series?symbol=erco")).toMatchObject({ status: 422 });
    expect(await refusal("/symbols?library=%00")).toMatchObject({ status: 422 });
    expect(await refusal("/series?library=power.demand&symbol=erco%00")).toMatchObject({
      status: 422,
    });
  });

  it("answers no rows for a window that ends before it starts", async () => {
    const window = "library=power.demand&symbol=erco&start=2026-01-10&end=2026-01-01";
    expect(await (await get(`/series?${window}`)).json()).toEqual([]);
    const csv = await (await get(`/series?${window}&format=csv`)).text();
    expect(csv.trim().split("\n")).toHaveLength(1);
    const panel = `/panel?library=power.demand&symbols=erco&start=2026-01-10&end=2026-01-01`;
    expect(await (await get(panel)).json()).toEqual([]);
    const parquet = await get(`/series?${window}&format=parquet`);
    expect([parquet.status, (await parquet.arrayBuffer()).byteLength > 0]).toEqual([200, true]);
  });

  it("answers 413 for an unbounded read over the cap, stating count, cap and advice", async () => {
    const answer = await refusal("/series?library=power.demand&symbol=pjm");
    expect(answer).toMatchObject({ status: 413, code: "row_cap_exceeded", rows: 6, cap: 5 });
    expect(answer.detail).toMatch(/6 rows.*cap of 5.*start.*end/);
  });

  it("exempts a bounded read from the cap, and decides it at the as_of asked for", async () => {
    const bounded = await get("/series?library=power.demand&symbol=pjm&start=2000-01-01");
    expect(((await bounded.json()) as unknown[]).length).toBe(6);
    const early = await get("/series?library=power.demand&symbol=pjm&as_of=2020-01-01");
    expect([early.status, await early.json()]).toEqual([200, []]);
  });

  it.each([
    ["", 413],
    ["&start=2026-01-10", 413],
    ["&start=2026-01-10&end=2026-01-10T01", 400],
    ["&start=2026-01-10&end=2026-01-10T01:00", 200],
  ])("refuses a panel over the cap, to HEAD as to GET: pjm%s is %i", async (bounds, status) => {
    const path = `/panel?library=power.demand&symbols=pjm${bounds}`;
    for (const method of ["HEAD", "GET"]) {
      expect([method, (await get(path, { method })).status]).toEqual([method, status]);
    }
  });

  it("answers HEAD like GET without a body, and refuses to write", async () => {
    const head = await get("/series?library=power.demand&symbol=erco", { method: "HEAD" });
    expect([head.status, await head.text()]).toEqual([200, ""]);
    for (const method of ["POST", "PUT", "PATCH", "DELETE"]) {
      expect((await get("/series", { method })).status).toBe(405);
    }
  });
});

describe("caching of /series", () => {
  const path = (query = "") => `/series?library=power.demand&symbol=erco${query}`;
  const ask = (query: string, etag?: string) =>
    get(path(query), etag ? { headers: { "If-None-Match": etag } } : {});
  const tag = async (query: string) => (await ask(query)).headers.get("ETag") ?? "";
  const control = async (query: string) => (await ask(query)).headers.get("Cache-Control");

  it("answers 304 without a body to whoever holds the answer", async () => {
    const etag = await tag("");
    expect(etag).toMatch(/^"[\w.-]+"$/);
    const held = await ask("", `"other", ${etag}`);
    expect([held.status, await held.text(), held.headers.get("ETag")]).toEqual([304, "", etag]);
    expect(held.headers.get("X-As-Of")).toBe(asOf[1]);
    expect((await ask("", '"other"')).status).toBe(200);
  });

  it("gives one tag to one answer, and another to every other window or vintage", async () => {
    expect(await tag(`&as_of=${asOf[1]}`)).toBe(await tag(""));
    const queries = [
      "",
      `&as_of=${asOf[0]}`,
      "&as_of=2020-01-01",
      "&start=2026-01-10",
      "&end=2026-01-10",
    ];
    const tags = await Promise.all(queries.map(tag));
    expect(new Set(tags).size).toBe(queries.length);
    await commitHours(open, "moving", FROM, [1]);
    const moving = "/series?library=power.demand&symbol=moving";
    const before = (await get(moving)).headers.get("ETag") ?? "";
    await commitHours(open, "moving", FROM, [2]);
    const after = await get(moving, { headers: { "If-None-Match": before } });
    expect([after.status, SeriesRecord.array().parse(await after.json())[0]?.value]).toEqual([
      200, 2,
    ]);
  });

  it("calls an answer immutable only when no later commit can change it", async () => {
    const immutable = "public, max-age=31536000, immutable";
    expect(await control(`&as_of=${asOf[0]}`)).toBe(immutable);
    expect(await control(`&as_of=${asOf[1]}`)).toBe(immutable);
    expect(await control("&as_of=2020-01-01")).toBe(immutable);
    const changing = "public, max-age=0, s-maxage=30, stale-while-revalidate=30";
    expect(await control("")).toBe(changing);
    const next = new Date(Date.parse(asOf[1] ?? "") + 1).toISOString();
    expect(await control(`&as_of=${next}`)).toBe(changing);
  });

  it("keeps answers that need a key out of shared caches", async () => {
    const vintage = await commitHours(closed, "erco", FROM, [1]);
    const known = new Date(vintage?.asOf ?? 0).toISOString();
    const headers = { "X-API-Key": KEY };
    for (const query of ["", `&as_of=${known}`]) {
      const response = await fetch(closed.urls.markets + path(query), { headers });
      expect([response.status, response.headers.get("Cache-Control")]).toEqual([
        200,
        expect.stringMatching(/^private, /),
      ]);
    }
    const refused = await fetch(closed.urls.markets + path());
    expect([refused.status, refused.headers.get("Cache-Control")]).toEqual([401, "no-store"]);
    expect(refused.headers.get("WWW-Authenticate")).toBe('ApiKey header="X-API-Key"');
  });
});

describe("cross-origin access", () => {
  const origin = (value: string) => ({ headers: { Origin: value } });

  it("lets listed origins GET, others not, and nobody when unset", async () => {
    const allow = (response: Response) => response.headers.get("Access-Control-Allow-Origin");
    expect(allow(await get("/libraries", origin("https://app.example.com")))).toBe(
      "https://app.example.com",
    );
    expect(allow(await get("/libraries", origin("https://evil.example.com")))).toBeNull();
    const unset = await fetch(`${closed.urls.markets}/healthz`, origin("https://app.example.com"));
    expect(allow(unset)).toBeNull();
  });

  it("grants nothing to a wildcard, names it in the log, and answers requests all the same", async () => {
    const answer = await get("/libraries", origin("https://evil.example.com"));
    expect([answer.status, answer.headers.get("Access-Control-Allow-Origin")]).toEqual([200, null]);
    const refused = open.logs.filter((line) => line.includes("cors_origin_refused"));
    expect(refused.join()).toMatch(/SERVICE_CORS_ORIGINS: no origin at place 2 of the list/);
  });

  it("answers a preflight with GET only, even where a key is needed for the request itself", async () => {
    const response = await get("/series", {
      method: "OPTIONS",
      headers: { Origin: "https://app.example.com", "Access-Control-Request-Method": "GET" },
    });
    expect(response.status).toBe(204);
    expect(response.headers.get("Access-Control-Allow-Methods")).toBe("GET");
  });

  it("lets a page read ranges as frame libraries do, and when to come back", async () => {
    const preflight = await get("/series", {
      method: "OPTIONS",
      headers: {
        Origin: "https://app.example.com",
        "Access-Control-Request-Method": "GET",
        "Access-Control-Request-Headers": "range,x-api-key",
      },
    });
    const listed = (response: Response, name: string) =>
      (response.headers.get(name) ?? "").toLowerCase().split(",");
    const allowed = listed(preflight, "Access-Control-Allow-Headers");
    expect(allowed).toEqual(expect.arrayContaining(["range", "if-range", "x-api-key"]));
    const answer = await get("/libraries", origin("https://app.example.com"));
    expect(listed(answer, "Access-Control-Expose-Headers")).toEqual(
      expect.arrayContaining(["accept-ranges", "content-range", "etag", "retry-after"]),
    );
  });
});
