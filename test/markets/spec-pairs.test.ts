// Every (route, status) pair of the spec's endpoint table, by name, in workerd with the real
// Postgres and object store; HEAD and OPTIONS of each route; and every form of datetime it names.

import { beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { recordSeen } from "../../edge/markets/ingest/graph.ts";
import { ErrorBody } from "../../shared/errors.ts";
import { iso } from "../../shared/time.ts";
import {
  CurveRecord,
  GraphEntity,
  GraphNeighbourhood,
  Health,
  SeriesRecord,
} from "../../shared/wire/markets.ts";
import { commitHours, createWorld, HOUR, type World } from "../support/world.ts";

const KEY = "a-reader's key";
const FROM = Date.UTC(2026, 0, 10, 6);
const CAP = 5;

/** `bare` has no graph and nothing stored; `closed` needs a key. */
type WorldName = "open" | "closed" | "bare";
const worlds = {} as Record<WorldName, World>;
/** The knowledge times of erco's two vintages in the open world. */
let known: number[];

beforeAll(async () => {
  const services = ["markets", "console"] as const;
  const capped = { SERVICE_SERIES_MAX_ROWS: String(CAP) };
  const [open, closed, bare] = await Promise.all([
    createWorld({ services, environment: { markets: capped } }),
    createWorld({ services, environment: { markets: { SERVICE_READ_API_KEY: KEY } } }),
    createWorld({ services, graphUrl: null }),
  ]);
  Object.assign(worlds, { open, closed, bare });
  [known] = await Promise.all([fill(open), fill(closed)]);
});

async function fill(world: World): Promise<number[]> {
  const vintages = [
    await commitHours(world, "erco", FROM, [10, null, 30]),
    await commitHours(world, "erco", FROM, [11]),
  ];
  await commitHours(world, "pjm", FROM, [1, 2, 3, 4, 5, 6]);
  await commitHours(world, "hb_north", FROM, [40, 41], { library: "power.dalmp" });
  const seen = { library: "power.demand", symbol: "erco", instrumentIds: ["power.demand.erco"] };
  await recordSeen(world.graph, [seen], FROM);
  return vintages.map((vintage) => vintage?.asOf ?? NaN);
}

const ERCO = "/series?library=power.demand&symbol=erco";
const PJM = "/series?library=power.demand&symbol=pjm";
const RELATED = "/graph/related?instrument_id=power.demand.erco";
const Names = z.array(z.string()).min(1);

/** A request of each route that is answered with data. */
const ANSWERED = [
  ["/healthz", "/healthz", Health],
  ["/libraries", "/libraries", Names],
  ["/symbols", "/symbols?library=power.demand", Names],
  ["/series", ERCO, SeriesRecord.array().min(1)],
  ["/curve", "/curve?commodity=hb_north", CurveRecord.array().min(1)],
  ["/graph/entities", "/graph/entities", GraphEntity.array().min(1)],
  ["/graph/related", RELATED, GraphNeighbourhood],
] as const;

/** Every refusal of the table but 401, which all routes of data share. */
const REFUSED: readonly [string, number, string, string, string, WorldName?][] = [
  ["/symbols", 404, "unknown_library", "an unknown library", "/symbols?library=nope"],
  ["/symbols", 422, "invalid_request", "no library", "/symbols"],
  ["/series", 404, "unknown_library", "an unknown library", "/series?library=x&symbol=erco"],
  ["/series", 404, "unknown_symbol", "an unknown symbol", `${ERCO}x`],
  ["/series", 404, "unknown_symbol", "a sidecar", `${ERCO}__vintages`],
  ["/series", 400, "bad_datetime", "an unparseable as_of", `${ERCO}&as_of=soon`],
  ["/series", 400, "bad_datetime", "an unparseable start", `${ERCO}&start=2026-13-01`],
  ["/series", 400, "bad_datetime", "an unparseable end", `${ERCO}&end=2026-01-01T25:00Z`],
  ["/series", 413, "row_cap_exceeded", "an unbounded read over the cap", PJM],
  ["/series", 422, "invalid_request", "no library", "/series?symbol=erco"],
  ["/series", 422, "invalid_request", "no symbol", "/series?library=power.demand"],
  ["/curve", 404, "unknown_commodity", "an unknown commodity", "/curve?commodity=coal"],
  ["/curve", 422, "invalid_request", "no commodity", "/curve"],
  ["/graph/entities", 503, "graph_unavailable", "no graph", "/graph/entities", "bare"],
  ["/graph/related", 503, "graph_unavailable", "no graph", RELATED, "bare"],
  ["/graph/related", 422, "invalid_request", "no instrument_id", "/graph/related"],
  ["/graph/related", 422, "invalid_request", "a depth of 4", `${RELATED}&depth=4`],
];

const ask = (path: string, world: WorldName = "open", init: RequestInit = {}) =>
  fetch(worlds[world].urls.markets + path, init);
const values = async (query: string) => {
  const response = await ask(ERCO + query);
  expect([query, response.status]).toEqual([query, 200]);
  return SeriesRecord.array()
    .parse(await response.json())
    .map(({ value }) => value);
};

describe("a route of the spec", () => {
  it.each(ANSWERED)("%s answers 200 in the shape of its records", async (_, path, shape) => {
    const response = await ask(path);
    expect(response.status).toBe(200);
    expect(response.headers.get("Content-Type")).toMatch(/^application\/json/);
    shape.parse(await response.json());
  });

  it.each(REFUSED)("%s answers %i %s for %s", async (_, status, code, __, path, world) => {
    const response = await ask(path, world);
    const body = ErrorBody.parse(await response.json());
    expect([response.status, body.code]).toEqual([status, code]);
    expect(body.request_id).toBe(response.headers.get("X-Request-Id"));
  });

  it.each(ANSWERED.slice(1))("%s answers 401 without the key, or with another", async (_, path) => {
    for (const headers of [{}, { "X-API-Key": "" }, { "X-API-Key": `${KEY}.` }]) {
      const response = await ask(path, "closed", { headers });
      const body = ErrorBody.parse(await response.json());
      expect([response.status, body.code]).toEqual([401, "unauthorized"]);
    }
  });

  it.each(ANSWERED)("%s answers 200 to the right key", async (_, path, shape) => {
    const response = await ask(path, "closed", { headers: { "X-API-Key": KEY } });
    expect(response.status).toBe(200);
    shape.parse(await response.json());
  });

  it.each(ANSWERED)("%s answers HEAD like GET, without a body", async (_, path) => {
    const [head, get] = await Promise.all([ask(path, "open", { method: "HEAD" }), ask(path)]);
    expect([head.status, await head.text()]).toEqual([200, ""]);
    for (const name of ["Content-Type", "Cache-Control", "ETag", "X-As-Of"]) {
      expect([name, head.headers.get(name)]).toEqual([name, get.headers.get(name)]);
    }
    await get.body?.cancel();
  });

  it.each(REFUSED)(
    "%s answers HEAD %i too (%s) for %s",
    async (_, status, __, ___, path, world) => {
      const response = await ask(path, world, { method: "HEAD" });
      expect([response.status, await response.text()]).toEqual([status, ""]);
    },
  );

  it.each(ANSWERED)("%s answers OPTIONS with what it allows, and no write", async (_, path) => {
    const options = await ask(path, "open", { method: "OPTIONS" });
    expect([options.status, options.headers.get("Allow")]).toEqual([204, "GET, HEAD, OPTIONS"]);
    expect(options.headers.get("Access-Control-Allow-Origin")).toBeNull();
    for (const method of ["POST", "PUT", "PATCH", "DELETE"]) {
      const refused = await ask(path, "open", { method });
      const body = ErrorBody.parse(await refused.json());
      expect([method, refused.status, body.code]).toEqual([method, 405, "method_not_allowed"]);
    }
  });
});

describe("GET /healthz of the spec", () => {
  it("is open where a key is set, also to a wrong one", async () => {
    for (const headers of [{}, { "X-API-Key": "wrong" }]) {
      const response = await ask("/healthz", "closed", { headers });
      expect(response.status).toBe(200);
      Health.parse(await response.json());
    }
  });

  it("answers 200 with nothing stored and no graph", async () => {
    const health = Health.parse(await (await ask("/healthz", "bare")).json());
    expect([health.libraries, health.latest_as_of, health.graph]).toEqual([
      ...[[], null, "not_configured"],
    ]);
  });
});

describe("GET /series of the spec", () => {
  it.each([
    ["start only", "&start=2026-01-01"],
    ["end only", "&end=2026-01-31"],
    ["both", "&start=2026-01-01&end=2026-01-31"],
  ])("exempts a read bounded by %s from the cap", async (_, query) => {
    const response = await ask(PJM + query);
    expect(response.status).toBe(200);
    expect(SeriesRecord.array().parse(await response.json())).toHaveLength(CAP + 1);
  });

  it("takes as_of as a date, with Z and with an offset, to the millisecond", async () => {
    const [first = NaN, second = NaN] = known;
    const forms = (instant: number) => [
      iso(instant),
      iso(instant + 5 * HOUR).replace("Z", "%2B05:00"),
      iso(instant - 5 * HOUR).replace("Z", "-05:00"),
    ];
    for (const asOf of forms(first - 1)) expect(await values(`&as_of=${asOf}`)).toEqual([]);
    for (const asOf of forms(first)) expect(await values(`&as_of=${asOf}`)).toEqual([10, null, 30]);
    for (const asOf of forms(second))
      expect(await values(`&as_of=${asOf}`)).toEqual([11, null, 30]);
    expect(await values("&as_of=2026-01-10")).toEqual([]);
    expect(await values("&as_of=9999-01-01")).toEqual([11, null, 30]);
  });

  it.each([
    ["a date", "2026-01-10", "2026-01-11", [11, null, 30]],
    ["a date, to its start", "2026-01-01", "2026-01-10", []],
    ["Z", "2026-01-10T06:00:00Z", "2026-01-10T07:00:00Z", [11, null]],
    ["an offset", "2026-01-10T08:00:00%2B02:00", "2026-01-10T02:00:00-05:00", [11, null]],
    ["one instant", "2026-01-10T08:00:00Z", "2026-01-10T08:00:00Z", [30]],
    ["a millisecond off", "2026-01-10T06:00:00.001Z", "2026-01-10T07:59:59.999Z", [null]],
  ])("takes start and end as %s, both inclusive", async (_, start, end, expected) => {
    expect(await values(`&start=${start}&end=${end}`)).toEqual(expected);
  });
});
