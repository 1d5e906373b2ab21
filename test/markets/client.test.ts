// The typed client against the running Worker: its table is the served OpenAPI's, every method
// reads real data, refusals become errors, and paging misses and repeats nothing.

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { beforeAll, describe, expect, it } from "vitest";
import {
  ENDPOINTS,
  MarketsError,
  marketsClient,
  type Query,
} from "../../edge/markets/client/client.ts";
import { recordSeen } from "../../edge/markets/ingest/graph.ts";
import { iso } from "../../shared/time.ts";
import {
  ChangePage,
  CurveRecord,
  DiffRecord,
  GraphEntity,
  GraphNeighbourhood,
  Health,
  PanelRecord,
  Revisions,
  SeriesRecord,
  Snapshot,
  Vintage,
} from "../../shared/wire/markets.ts";
import { commitHours, createWorld, HOUR, type World } from "../support/world.ts";

const KEY = "a-reader's key";
const FROM = Date.UTC(2026, 0, 10, 6);
const ERCO = { library: "power.demand", symbol: "erco" };
/** Documents about the interface rather than endpoints of it. */
const PAGES = ["/openapi.json", "/docs", "/"];

let world: World;
/** Knowledge times of erco's three vintages. */
let known: Date[];

beforeAll(async () => {
  world = await createWorld({
    services: ["markets", "console"],
    environment: { markets: { SERVICE_READ_API_KEY: KEY, SERVICE_SERIES_MAX_ROWS: "5" } },
  });
  const erco = [
    await commitHours(world, "erco", FROM, [10, null, 30], { reconstructed: true }),
    await commitHours(world, "erco", FROM + HOUR, [20, 31]),
    await commitHours(world, "erco", FROM, [11]),
  ];
  await commitHours(world, "pjm", FROM, [1, 2, 3, 4, 5, 6]);
  await commitHours(world, "hb_north", FROM, [40, 41], { library: "power.dalmp" });
  known = erco.map((vintage) => new Date(vintage?.asOf ?? NaN));
  const instrumentIds = ["power.demand.erco"];
  await recordSeen(world.graph, [{ ...ERCO, instrumentIds }], FROM);
});

const reader = () => marketsClient({ baseUrl: `${world.urls.markets}/`, apiKey: KEY });
const refusal = async (call: Promise<unknown>): Promise<MarketsError> => {
  const thrown = await call.then(
    () => null,
    (error: unknown) => error,
  );
  if (thrown instanceof MarketsError) return thrown;
  throw new Error("the call was not refused with a MarketsError", { cause: thrown });
};
const valuesOf = (records: readonly SeriesRecord[]) => records.map(({ value }) => value);

describe("the client's table", () => {
  interface Parameter {
    name: string;
    in: string;
    required?: boolean;
  }

  it("names the served endpoints and their query parameters, neither more nor fewer", async () => {
    const answer = await fetch(`${world.urls.markets}/openapi.json`);
    const { paths } = (await answer.json()) as {
      paths: Record<string, { get?: { parameters?: Parameter[] } }>;
    };
    const served = Object.entries(paths).flatMap(([path, { get }]) => {
      if (!get || PAGES.includes(path)) return [];
      const names = (required: boolean) =>
        (get.parameters ?? [])
          .filter((one) => one.in === "query" && (one.required ?? false) === required)
          .map(({ name }) => name)
          .toSorted();
      return [{ path, required: names(true), optional: names(false) }];
    });
    const byPath = (left: { path: string }, right: { path: string }) =>
      left.path < right.path ? -1 : 1;
    const table = Object.values(ENDPOINTS).map(({ path, required, optional }) => ({
      path,
      required: required.toSorted(),
      optional: optional.toSorted(),
    }));
    expect(table.toSorted(byPath)).toEqual(served.toSorted(byPath));
    const { response, ...methods } = reader();
    expect(Object.keys(methods).toSorted()).toEqual(Object.keys(ENDPOINTS).toSorted());
    expect(response).toBeTypeOf("function");
  });

  it("gives the query of each method its names and types", () => {
    const typed: Query<"series"> = { ...ERCO, as_of: new Date(0), start: "2026-01-01" };
    // @ts-expect-error: a symbol is required
    const missing: Query<"series"> = { library: "power.demand" };
    // @ts-expect-error: no endpoint of ours takes this
    const unknown: Query<"symbols"> = { library: "power.demand", colour: "red" };
    expect([typed, missing, unknown]).toHaveLength(3);
  });
});

describe("a method", () => {
  it("reads health without a key, and libraries and symbols with one", async () => {
    const health = await marketsClient({ baseUrl: world.urls.markets }).health();
    expect(Health.parse(health)).toMatchObject({ status: "ok", graph: "connected" });
    expect(await reader().libraries()).toEqual(["power.dalmp", "power.demand"]);
    expect(await reader().symbols({ library: "power.demand" })).toEqual(["erco", "pjm"]);
  });

  it("reads a series at a knowledge time and within bounds, by Date or text", async () => {
    const latest = SeriesRecord.array().parse(await reader().series(ERCO));
    expect(valuesOf(latest)).toEqual([11, 20, 31]);
    expect(latest[1]).toMatchObject({ Datetime: iso(FROM + HOUR), as_of: known[1]?.toISOString() });
    const first = await reader().series({ ...ERCO, as_of: known[0] });
    expect(valuesOf(first)).toEqual([10, null, 30]);
    const bounded = { ...ERCO, start: new Date(FROM + HOUR), end: "2026-01-10T09:00+02:00" };
    expect(valuesOf(await reader().series(bounded))).toEqual([20]);
    expect(await reader().series({ ...ERCO, as_of: "2020-01-01" })).toEqual([]);
    const history = await reader().series({
      ...ERCO,
      start: new Date(FROM),
      includeHistory: true,
      provenance: "full",
      vintage: "true_only",
    });
    expect(SeriesRecord.array().parse(history)).toMatchObject([
      { value: 11, store_version: 3, known_to: null },
      { value: 20, store_version: 2, known_to: null },
      { value: 31, store_version: 2, known_to: null },
    ]);
  });

  it("reads a curve and a panel", async () => {
    const curve = CurveRecord.array().parse(await reader().curve({ commodity: "hb_north" }));
    expect(curve.map(({ tenor, price }) => [tenor, price])).toEqual([
      [1, 40],
      [2, 41],
    ]);
    const panel = await reader().panel({
      library: "power.demand",
      symbols: ["erco", "pjm"],
      as_of: new Date(),
      start: new Date(FROM),
      end: new Date(FROM),
      time_zone: "America/Chicago",
    });
    expect(PanelRecord.array().parse(panel)).toEqual([
      {
        Datetime: iso(FROM),
        local: "2026-01-10T00:00:00-06:00",
        "power.demand.erco": 11,
        "power.demand.pjm": 1,
      },
    ]);
  });

  it("reads a difference, a revision triangle and snapshots", async () => {
    const changed = DiffRecord.array().parse(
      await reader().diff({ ...ERCO, from: known[0] as Date, to: known[1] }),
    );
    expect(changed.map(({ change, after }) => [change, after?.value])).toEqual([
      ["revised", 20],
      ["revised", 31],
    ]);
    const triangle = await reader().revisions({ ...ERCO, lags: ["PT1H", "P2D"] });
    expect(Object.keys(Revisions.parse(triangle).statistics.by_lag)).toEqual(["PT1H", "P2D"]);
    expect(await reader().snapshots()).toEqual([]);
    const created = await fetch(`${world.urls.console}/api/snapshots`, {
      method: "POST",
      headers: {
        Authorization: `Bearer ${world.operatorToken}`,
        "Content-Type": "application/json",
      },
      body: JSON.stringify({ name: "second", as_of: known[1] }),
    });
    expect(created.status).toBe(201);
    expect(Snapshot.array().parse(await reader().snapshots())).toMatchObject([{ name: "second" }]);
    expect(valuesOf(await reader().series({ ...ERCO, snapshot: "second" }))).toEqual([10, 20, 31]);
  });

  it("reads the catalog graph", async () => {
    const entities = await reader().graphEntities({ label: "BalancingAuthority" });
    expect(
      GraphEntity.array()
        .parse(entities)
        .map(({ key }) => key),
    ).toEqual(["erco"]);
    expect((await reader().graphEntities()).length).toBeGreaterThan(1);
    const query = { instrument_id: "power.demand.erco", depth: 2 };
    expect(GraphNeighbourhood.parse(await reader().graphRelated(query))).toMatchObject(query);
  });
});

describe("paging", () => {
  it("reads vintages to the end, from a page's size, a position or an instant", async () => {
    const versions = async (more: Partial<Query<"vintages">>) => {
      const pages = await Array.fromAsync(reader().vintages({ ...ERCO, ...more }));
      return pages.map((page) =>
        Vintage.array()
          .parse(page)
          .map(({ store_version }) => store_version),
      );
    };
    expect(await versions({})).toEqual([[1, 2, 3]]);
    expect(await versions({ limit: 2 })).toEqual([[1, 2], [3]]);
    expect(await versions({ limit: 1 })).toEqual([[1], [2], [3]]);
    expect(await versions({ limit: 1, after: 1 })).toEqual([[2], [3]]);
    expect(await versions({ since: known[0], as_of: known[1] })).toEqual([[2]]);
    expect(await versions({ as_of: "2020-01-01" })).toEqual([]);
  });

  it("follows the change feed to its end, and goes on from the last page's next", async () => {
    const follow = async (query: Query<"changes">) =>
      ChangePage.array().parse(await Array.fromAsync(reader().changes(query)));
    const names = (pages: readonly ChangePage[]) =>
      pages.flatMap(({ changes }) =>
        changes.map(({ symbol, store_version }) => `${symbol} ${store_version}`),
      );
    const all = ["erco 1", "erco 2", "erco 3", "pjm 1", "hb_north 1"];
    // The feed holds back what began after any transaction of the cluster that is still open, and
    // other tests have theirs.
    const listed = async () => names(await Array.fromAsync(reader().changes()));
    await expect.poll(listed).toEqual(all);
    for (const limit of [1, 2, 5]) {
      const pages = await follow({ limit });
      expect([limit, names(pages)]).toEqual([limit, all]);
      expect(pages.at(-1)?.more).toBe(false);
      const rest = await follow({ since: pages[0]?.next, limit });
      expect([limit, names(rest)]).toEqual([limit, all.slice(limit)]);
    }
    expect(names(await follow({ library: "power.dalmp" }))).toEqual(["hb_north 1"]);
    const end = (await follow({})).at(-1)?.next;
    await commitHours(world, "late", FROM, [1], { library: "weather" });
    const late = async () => names(await follow({ since: end }));
    await expect.poll(late).toEqual(["late 1"]);
  });
});

describe("a refused call", () => {
  it("throws the body's code, detail and request id with the status", async () => {
    const error = await refusal(reader().series({ ...ERCO, symbol: "nope" }));
    expect(error).toMatchObject({ status: 404, code: "unknown_symbol" });
    expect(error.message).toBe(`404 unknown_symbol: ${error.detail}`);
    expect(error.request_id).toMatch(/^[\w-]{36}$/);
    const traced = refusal(reader().response("series", ERCO, { "X-API-Key": "wrong" }));
    expect(await traced).toMatchObject({ status: 401, code: "unauthorized" });
    const keyless = marketsClient({ baseUrl: world.urls.markets });
    expect(await refusal(keyless.libraries())).toMatchObject({ status: 401 });
    expect(await refusal(keyless.changes().next())).toMatchObject({ status: 401 });
  });

  it("throws the fields that a code adds", async () => {
    const overCap = await refusal(reader().series({ ...ERCO, symbol: "pjm" }));
    expect([overCap.status, overCap.code, overCap.data]).toEqual([
      413,
      "row_cap_exceeded",
      { rows: 6, cap: 5 },
    ]);
    const invalid = await refusal(reader().symbols({ library: "" }));
    expect(invalid).toMatchObject({ status: 422, code: "invalid_request" });
    expect(invalid.data.issues).toEqual([{ field: "library", problem: "must not be empty" }]);
    const unparsed = await refusal(reader().series({ ...ERCO, as_of: "yesterday" }));
    expect(unparsed).toMatchObject({ status: 400, code: "bad_datetime", data: {} });
  });

  it("is unreadable where something else answered than the service", async () => {
    const proxy = createServer((_, answer) => answer.writeHead(502).end("<h1>Bad gateway</h1>"));
    await new Promise<void>((done) => proxy.listen(0, "127.0.0.1", done));
    const { port } = proxy.address() as AddressInfo;
    const error = await refusal(marketsClient({ baseUrl: `http://127.0.0.1:${port}` }).health());
    proxy.close();
    expect(error).toMatchObject({ status: 502, code: "unreadable", request_id: "", data: {} });
  });
});

describe("a raw response", () => {
  it("is in the format asked for, with its headers", async () => {
    const csv = await reader().response("series", { ...ERCO, format: "csv" });
    expect(csv.headers.get("Content-Type")).toMatch(/^text\/csv/);
    expect(csv.headers.get("X-Store-Version")).toBe("3");
    expect((await csv.text()).split(/\r?\n/)[0]).toMatch(/^Datetime,/);
    const parquet = await reader().response("series", { ...ERCO, format: "parquet" });
    const bytes = new Uint8Array(await parquet.arrayBuffer());
    expect(new TextDecoder().decode(bytes.subarray(0, 4))).toBe("PAR1");
    const lines = await reader().response("series", ERCO, { Accept: "application/x-ndjson" });
    expect((await lines.text()).trim().split("\n")).toHaveLength(3);
    const lower = await reader().response("series", ERCO, { accept: "text/csv" });
    expect(lower.headers.get("Content-Type")).toMatch(/^text\/csv/);
  });

  it("is a 304 for whoever holds the answer", async () => {
    const held = (await reader().response("series", ERCO)).headers.get("ETag") ?? "";
    const again = await reader().response("series", ERCO, { "If-None-Match": held });
    expect([again.status, await again.text()]).toEqual([304, ""]);
  });

  it("comes through the caller's own fetch", async () => {
    const asked: string[] = [];
    const client = marketsClient({
      baseUrl: world.urls.markets,
      apiKey: KEY,
      fetch: (url, init) => {
        asked.push(url);
        return fetch(url, init);
      },
    });
    await client.series({ ...ERCO, as_of: "2026-01-31T06:00:00+06:00", symbol: "erco" });
    expect(asked).toEqual([
      `${world.urls.markets}/series?library=power.demand&symbol=erco` +
        "&as_of=2026-01-31T06%3A00%3A00%2B06%3A00",
    ]);
  });
});
