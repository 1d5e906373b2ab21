// The catalog graph's routes against the spec, in workerd: with a graph, without one, and with one
// that refuses or never answers, while the series go on; and the cached state of its connection.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, inject, it, vi } from "vitest";
import { type NeonEndpoint, startNeonEndpoint } from "../../edge/local/neon.ts";
import { openGraph } from "../../edge/markets/graph.ts";
import { recordSeen } from "../../edge/markets/ingest/graph.ts";
import { ErrorBody } from "../../shared/errors.ts";
import { Secret } from "../../shared/secret.ts";
import { GraphEntity, GraphNeighbourhood, Health } from "../../shared/wire/markets.ts";
import {
  commitHours,
  createDatabases,
  createWorld,
  REFUSING_URL,
  silentUrl,
  type World,
  type WorldOptions,
} from "../support/world.ts";

const NOON = Date.UTC(2026, 0, 10, 12);
const SEEN = { first_seen: "2026-01-10T12:00:00.000Z", last_seen: "2026-01-10T12:00:00.000Z" };
const services = ["markets", "console"] as const;

/** A world with one committed series, and a graph as asked for. */
async function seriesWorld(graphUrl: string | null): Promise<World> {
  const world = await createWorld({ services, graphUrl });
  await commitHours(world, "erco", NOON, [1, 2]);
  return world;
}

const get = (world: World, path: string) => fetch(world.urls.markets + path);
const statusOf = async (world: World, path: string) => (await get(world, path)).status;
const graphState = async (world: World) =>
  Health.parse(await (await get(world, "/healthz")).json()).graph;

describe("the catalog graph", () => {
  let world: World;
  beforeAll(async () => {
    world = await createWorld({ services });
    const one = (library: string, symbol: string, ...instrumentIds: string[]) => ({
      library,
      symbol,
      instrumentIds,
    });
    await recordSeen(
      world.graph,
      [
        one("power.demand", "erco", "power.demand.erco"),
        one("power.demand", "pjm", "power.demand.pjm"),
        one("power.generation", "erco", "power.generation.erco"),
        ...["erco", "pjm"].map((symbol) => {
          const fuels = ["sun", "wnd"].map((fuel) => `power.generation_by_fuel.${symbol}.${fuel}`);
          return one("power.generation_by_fuel", symbol, ...fuels);
        }),
      ],
      NOON,
    );
  });

  const entities = async (query = "") => {
    const response = await get(world, `/graph/entities${query}`);
    expect(response.status).toBe(200);
    return GraphEntity.array().parse(await response.json());
  };
  const related = async (instrumentId: string, query = "") => {
    // A machine under load may need longer than the service waits for the graph: ask again.
    const ask = () => get(world, `/graph/related?instrument_id=${instrumentId}${query}`);
    const response = await vi.waitUntil(
      async () => {
        const answer = await ask();
        return answer.status === 503 ? null : answer;
      },
      { timeout: 60_000 },
    );
    expect(response.status).toBe(200);
    return GraphNeighbourhood.parse(await response.json());
  };
  const names = (found: GraphNeighbourhood) =>
    found.entities.map(({ distance, label, key }) => `${distance} ${label} ${key}`);
  const refusal = async (query: string) => {
    const response = await get(world, `/graph/related?${query}`);
    return { status: response.status, ...ErrorBody.parse(await response.json()) };
  };

  it("lists entities by label and key, with what they are and when they were seen", async () => {
    const all = await entities();
    expect(all.map(({ label, key }) => `${label} ${key}`)).toEqual([
      "BalancingAuthority erco",
      "BalancingAuthority pjm",
      "FuelType sun",
      "FuelType wnd",
      "Instrument power.demand.erco",
      "Instrument power.demand.pjm",
      "Instrument power.generation.erco",
      "Instrument power.generation_by_fuel.erco.sun",
      "Instrument power.generation_by_fuel.erco.wnd",
      "Instrument power.generation_by_fuel.pjm.sun",
      "Instrument power.generation_by_fuel.pjm.wnd",
      "Library power.demand",
      "Library power.generation",
      "Library power.generation_by_fuel",
      "Provider eia",
    ]);
    expect(all[4]?.properties).toEqual({ library: "power.demand", symbol: "erco", ...SEEN });
  });

  it("lists the entities of one label, and none of a label that nothing has", async () => {
    expect(await entities("?label=FuelType")).toEqual(
      ["sun", "wnd"].map((key) => ({ label: "FuelType", key, properties: SEEN })),
    );
    expect(await entities("?label=Nothing")).toEqual([]);
  });

  it("relates an instrument to its neighbours at depth 1, the default", async () => {
    expect(await related("power.generation_by_fuel.erco.sun")).toEqual({
      instrument_id: "power.generation_by_fuel.erco.sun",
      depth: 1,
      entities: [
        ["BalancingAuthority", "erco"],
        ["FuelType", "sun"],
        ["Library", "power.generation_by_fuel"],
      ].map(([label, key]) => ({ label, key, properties: SEEN, distance: 1 })),
      relations: [
        ["FUELED_BY", "FuelType", "sun"],
        ["IN_LIBRARY", "Library", "power.generation_by_fuel"],
        ["LOCATED_AT", "BalancingAuthority", "erco"],
      ].map(([type, label, key]) => ({
        from: { label: "Instrument", key: "power.generation_by_fuel.erco.sun" },
        type,
        to: { label, key },
      })),
      siblings: [
        "power.demand.erco",
        "power.generation.erco",
        "power.generation_by_fuel.erco.wnd",
        "power.generation_by_fuel.pjm.sun",
      ],
      truncated: false,
    });
  });

  it("reaches one hop further with each depth, in either direction, nearest first", async () => {
    const first = ["1 BalancingAuthority erco", "1 Library power.demand"];
    const second = [
      "2 Instrument power.demand.pjm",
      "2 Instrument power.generation.erco",
      "2 Instrument power.generation_by_fuel.erco.sun",
      "2 Instrument power.generation_by_fuel.erco.wnd",
      "2 Provider eia",
    ];
    const third = [
      "3 BalancingAuthority pjm",
      "3 FuelType sun",
      "3 FuelType wnd",
      "3 Library power.generation",
      "3 Library power.generation_by_fuel",
    ];
    expect(names(await related("power.demand.erco"))).toEqual(first);
    expect(names(await related("power.demand.erco", "&depth=2"))).toEqual([...first, ...second]);
    const deepest = await related("power.demand.erco", "&depth=3");
    expect([deepest.depth, names(deepest)]).toEqual([3, [...first, ...second, ...third]]);
  });

  it("holds both ends of every relation it tells of, and siblings whatever the depth", async () => {
    for (const depth of [1, 2, 3]) {
      const found = await related("power.demand.erco", `&depth=${depth}`);
      const known = new Set(["Instrument power.demand.erco"]);
      for (const { label, key } of found.entities) known.add(`${label} ${key}`);
      const ends = found.relations.flatMap(({ from, to }) => [from, to]);
      expect(ends.filter(({ label, key }) => !known.has(`${label} ${key}`))).toEqual([]);
      expect(found.siblings).toEqual([
        "power.generation.erco",
        "power.generation_by_fuel.erco.sun",
        "power.generation_by_fuel.erco.wnd",
      ]);
    }
  });

  it("answers an instrument it does not know with nothing", async () => {
    const nothing = { entities: [], relations: [], siblings: [], truncated: false };
    expect(await related("power.demand.nope", "&depth=3")).toEqual({
      instrument_id: "power.demand.nope",
      depth: 3,
      ...nothing,
    });
    // A key that is known, but not an instrument's.
    expect(await related("power.demand")).toMatchObject(nothing);
  });

  it.each(["0", "4", "-1", "1.5", "deep", ""])("refuses depth %j with 422", async (depth) => {
    expect(await refusal(`instrument_id=power.demand.erco&depth=${depth}`)).toMatchObject({
      status: 422,
      code: "invalid_request",
      detail: expect.stringMatching(/^depth: must be /),
    });
  });

  it("refuses a missing, empty or impossible instrument_id with 422", async () => {
    expect(await refusal("depth=1")).toMatchObject({
      status: 422,
      detail: "instrument_id: required",
    });
    expect(await refusal("instrument_id=")).toMatchObject({ status: 422 });
    expect(await refusal("instrument_id=a%00b")).toMatchObject({ status: 422 });
    expect(await statusOf(world, "/graph/entities?label=")).toBe(422);
  });

  it("cuts off the furthest of more than a thousand, and says so", async () => {
    const instrumentIds = Array.from({ length: 1_200 }, (_, index) => `crowd.${1_000 + index}`);
    await recordSeen(world.graph, [{ library: "power.demand", symbol: "x", instrumentIds }], NOON);
    const found = await related("crowd.1000", "&depth=3");
    expect([found.entities.length, found.siblings.length, found.truncated]).toEqual([
      1_000,
      1_000,
      true,
    ]);
    expect(names(found).slice(0, 2)).toEqual(["1 BalancingAuthority x", "1 Library power.demand"]);
    expect(found.entities.at(-1)?.distance).toBe(2);
    expect(found.siblings.slice(0, 1)).toEqual(["crowd.1001"]);
    expect((await related("crowd.1000")).entities).toHaveLength(2);
  });

  it("is connected, and read with a role that cannot write", async () => {
    await expect.poll(() => graphState(world), { timeout: 60_000 }).toBe("connected");
    const { rows } = await world.graph.execute<{ writes: boolean }>(
      sql`SELECT has_table_privilege('graph_reader', 'entity', 'INSERT') AS writes`,
    );
    expect(rows).toEqual([{ writes: false }]);
  });

  it("needs the key where one is set", async () => {
    const environment = { markets: { SERVICE_READ_API_KEY: "k" } };
    const closed = await createWorld({ services, environment });
    const entitiesUrl = `${closed.urls.markets}/graph/entities`;
    expect((await fetch(entitiesUrl)).status).toBe(401);
    expect((await fetch(`${closed.urls.markets}/graph/related?depth=9`)).status).toBe(401);
    const response = await fetch(entitiesUrl, { headers: { "X-API-Key": "k" } });
    expect([response.status, await response.json()]).toEqual([200, []]);
  });

  it("answers while the series' database is down", async () => {
    const environment = { markets: { DATABASE_URL: REFUSING_URL } };
    const half = await createWorld({ services, environment } satisfies WorldOptions);
    const instrumentIds = ["power.load.ercot"];
    await recordSeen(half.graph, [{ library: "power.load", symbol: "ercot", instrumentIds }], NOON);
    expect(await statusOf(half, "/libraries")).toBe(503);
    expect(await (await get(half, "/graph/entities?label=Market")).json()).toHaveLength(1);
    expect(await statusOf(half, "/graph/related?instrument_id=power.load.ercot")).toBe(200);
    const health = Health.parse(await (await get(half, "/healthz")).json());
    expect(health).toMatchObject({ status: "degraded", graph: "connected" });
  });
});

describe("a catalog graph that is not there", () => {
  const absences: [string, () => Promise<string | null>, string][] = [
    ["is not configured", async () => null, "not_configured"],
    ["refuses connections", async () => REFUSING_URL, "unavailable"],
    ["accepts and never answers", silentUrl, "unavailable"],
  ];
  it.each(absences)("that %s gives 503 soon, and the series go on", async (...given) => {
    const [, url, state] = given;
    const world = await seriesWorld(await url());
    // A graph that does not answer is waited for once, not by each request.
    expect(await graphState(world)).toBe(state);
    const waited = async () => {
      const started = performance.now();
      expect(await graphState(world)).toBe(state);
      return performance.now() - started;
    };
    await expect.poll(waited).toBeLessThan(500);
    for (const path of ["/graph/entities", "/graph/related?instrument_id=power.demand.erco"]) {
      const response = await get(world, path);
      expect([path, response.status, response.headers.get("Retry-After")]).toEqual([
        path,
        503,
        "5",
      ]);
      expect(ErrorBody.parse(await response.json()).code).toBe("graph_unavailable");
    }
    expect(await statusOf(world, "/series?library=power.demand&symbol=erco")).toBe(200);
    expect(await (await get(world, "/libraries")).json()).toEqual(["power.demand"]);
    expect(world.logs.join("\n")).not.toMatch(/hunter2|[Uu]nhandled|[Uu]ncaught/);
  });
});

describe("the cached state of the connection", () => {
  it("is renewed behind a request at most every ten seconds, and by every answer", async () => {
    const urls = await createDatabases();
    const { port } = inject("postgres");
    let endpoint: NeonEndpoint = await startNeonEndpoint(port);
    const own = Object.assign(new URL(urls.graphReader), { port: String(endpoint.port) });
    let now = 0;
    const graph = openGraph(new Secret(own.href), () => now);
    const probes: Promise<unknown>[] = [];
    const state = () => graph.state((probe) => probes.push(probe));

    expect([await state(), probes.length]).toEqual(["connected", 0]);
    await endpoint.close();
    now = 9_999;
    expect([await state(), probes.length]).toEqual(["connected", 0]);
    now = 10_000;
    expect([await state(), await state(), probes.length]).toEqual(["connected", "connected", 1]);
    await Promise.all(probes);
    expect([await state(), probes.length]).toEqual(["unavailable", 1]);
    endpoint = await startNeonEndpoint(port, endpoint.port);
    expect(await graph.entities()).toEqual([]);
    expect([await state(), probes.length]).toEqual(["connected", 1]);
    await endpoint.close();
    await expect(graph.related("power.demand.erco", 1)).rejects.toMatchObject({
      code: "graph_unavailable",
    });
    expect([await state(), probes.length]).toEqual(["unavailable", 1]);
  });
});
