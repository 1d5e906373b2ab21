// The writer of the catalog graph: what a series tells of, and how seeing it again adds to it.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import type { Database } from "../../edge/http/database.ts";
import { catalogGraphOf, openGraphWriter, recordSeen } from "../../edge/markets/ingest/graph.ts";
import { Secret } from "../../shared/secret.ts";
import { createDatabases, DAY } from "../support/world.ts";

const graphOf = (library: string, symbol: string, ...instrumentIds: string[]) => {
  const { entities, relations } = catalogGraphOf({ library, symbol, instrumentIds });
  return {
    entities: entities.map(({ label, key }) => `${label} ${key}`),
    relations: relations.map(({ fromKey, type, toLabel, toKey }) =>
      [fromKey, type, toLabel, toKey].join(" "),
    ),
  };
};

describe("the catalog graph of a series", () => {
  it("places every fuel of an authority, and names each entity once", () => {
    const [sun, wind] = ["power.generation_by_fuel.erco.sun", "power.generation_by_fuel.erco.wnd"];
    expect(graphOf("power.generation_by_fuel", "erco", sun as string, wind as string)).toEqual({
      entities: [
        "Library power.generation_by_fuel",
        "Provider eia",
        `Instrument ${sun}`,
        "BalancingAuthority erco",
        "FuelType sun",
        `Instrument ${wind}`,
        "FuelType wnd",
      ],
      relations: [
        "power.generation_by_fuel PROVIDED_BY Provider eia",
        `${sun} IN_LIBRARY Library power.generation_by_fuel`,
        `${sun} LOCATED_AT BalancingAuthority erco`,
        `${sun} FUELED_BY FuelType sun`,
        `${wind} IN_LIBRARY Library power.generation_by_fuel`,
        `${wind} LOCATED_AT BalancingAuthority erco`,
        `${wind} FUELED_BY FuelType wnd`,
      ],
    });
  });

  it.each([
    ["power.demand", "erco", "power.demand.erco", "LOCATED_AT BalancingAuthority erco"],
    [
      "power.demand_forecast",
      "pjm",
      "power.demand_forecast.pjm",
      "LOCATED_AT BalancingAuthority pjm",
    ],
    ["power.generation", "pjm", "power.generation.pjm", "LOCATED_AT BalancingAuthority pjm"],
    ["power.interchange", "miso", "power.interchange.miso", "LOCATED_AT BalancingAuthority miso"],
    ["power.lmp", "hb_north", "power.lmp.hb_north", "LOCATED_AT SettlementPoint hb_north"],
    ["power.dalmp", "lz_west", "power.dalmp.lz_west", "LOCATED_AT SettlementPoint lz_west"],
    ["power.load", "ercot", "power.load.ercot", "LOCATED_AT Market ercot"],
    ["prices.spot", "rngwhhd", "prices.spot.rngwhhd", "ABOUT Commodity natural_gas"],
    ["prices.intraday", "xle", "prices.intraday.xle", "ABOUT Commodity xle"],
    ["fundamentals.agency", "r48", "fundamentals.gas_storage.r48", "ABOUT Commodity natural_gas"],
    ["prices.spot", "rclc2", "prices.spot.rclc2", "ABOUT Commodity crude_oil"],
    [
      "fundamentals.agency",
      "nghhuus",
      "fundamentals.agency_forecast.nghhuus",
      "ABOUT Commodity natural_gas",
    ],
    [
      "fundamentals.agency",
      "petroleum_status",
      "fundamentals.petroleum_status.wgtstus1",
      "ABOUT Commodity gasoline",
    ],
    [
      "fundamentals.agency",
      "petroleum_status",
      "fundamentals.petroleum_status.wrpupus2",
      "ABOUT Commodity petroleum_products",
    ],
    ["weather", "us", "weather.hdd.us", "LOCATED_AT Region us"],
  ])("says where or what an instrument of %s is", (library, symbol, instrumentId, topic) => {
    expect(graphOf(library, symbol, instrumentId).relations).toEqual([
      expect.stringMatching(`^${library} PROVIDED_BY Provider `),
      `${instrumentId} IN_LIBRARY Library ${library}`,
      `${instrumentId} ${topic}`,
    ]);
  });

  it("knows no more of a strange library than its instruments", () => {
    expect(graphOf("strange", "one", "strange.one")).toEqual({
      entities: ["Library strange", "Instrument strange.one"],
      relations: ["strange.one IN_LIBRARY Library strange"],
    });
  });
});

describe("recordSeen", () => {
  const NOON = Date.UTC(2026, 0, 10, 12);
  const series = ["erco", "pjm"].map((symbol) => ({
    library: "power.demand",
    symbol,
    instrumentIds: [`power.demand.${symbol}`],
  }));
  let graph: Database;
  beforeAll(async () => {
    graph = openGraphWriter(new Secret((await createDatabases()).graphWriter));
  });

  /** Both tables as days since noon, distinct spans only, with how many rows have them. */
  const spans = async () => {
    const { rows } = await graph.execute(sql`
      SELECT count(*)::int AS rows, (extract(epoch FROM first_seen) / 86400)::float8 AS first,
        (extract(epoch FROM last_seen) / 86400)::float8 AS last
        FROM (SELECT first_seen, last_seen FROM entity UNION ALL
          SELECT first_seen, last_seen FROM relation) all_rows
       GROUP BY 2, 3 ORDER BY 2, 3`);
    return (rows as { rows: number; first: number; last: number }[]).map(
      ({ rows, first, last }) => [rows, first - NOON / DAY, last - NOON / DAY],
    );
  };

  it("changes nothing when it is repeated", async () => {
    await recordSeen(graph, series, NOON);
    expect(await spans()).toEqual([[11, 0, 0]]);
    await recordSeen(graph, series, NOON);
    expect(await spans()).toEqual([[11, 0, 0]]);
  });

  it("widens the time an entity was seen, and never narrows it, in whatever order", async () => {
    await recordSeen(graph, series, NOON + 2 * DAY);
    expect(await spans()).toEqual([[11, 0, 2]]);
    await recordSeen(graph, series, NOON - DAY);
    await recordSeen(graph, series, NOON + DAY);
    expect(await spans()).toEqual([[11, -1, 2]]);
  });

  it("leaves what it was not shown as it was", async () => {
    await recordSeen(graph, series.slice(0, 1), NOON + 3 * DAY);
    // The other instrument with its authority and its two relations.
    expect(await spans()).toEqual([
      [4, -1, 2],
      [7, -1, 3],
    ]);
  });

  it("is whole when many record at once, in any order", async () => {
    const reversed = series.toReversed();
    const all = Array.from({ length: 12 }, (_, index) =>
      recordSeen(graph, index % 2 ? series : reversed, NOON + 4 * DAY),
    );
    await Promise.all(all);
    expect(await spans()).toEqual([[11, -1, 4]]);
  });
});
