// The examples of the read API's description, each sent to the service over the few rows that they
// tell of, with the knowledge times that they show.

import { join } from "node:path";
import { sql } from "drizzle-orm";
import { beforeAll, describe } from "vitest";
import { recordSeen } from "../../edge/markets/ingest/graph.ts";
import { commit } from "../../edge/markets/store/commit.ts";
import { createSnapshot } from "../../edge/markets/store/listings.ts";
import { iso } from "../../shared/time.ts";
import { exampleTests } from "../support/examples.ts";
import { commitHours, createWorld, HOUR, type World } from "../support/world.ts";

const FROM = Date.parse("2026-01-31T00:00:00Z");
const RUN_ID = "6f1c2b9e-3d7a-4c55-8a10-2b1f9d0c4e71";
const KEY = "a-reader's key";
const from = { runId: RUN_ID, partition: "2026-01-31", sourceUrl: "https://api.eia.gov/v2/" };

let world: World;
beforeAll(async () => {
  world = await createWorld({
    services: ["markets", "console"],
    environment: { markets: { SERVICE_READ_API_KEY: KEY } },
  });
  await commitHours(world, "erco", FROM, [41_234, 40_871], from);
  await commitHours(world, "erco", FROM + HOUR, [40_902, 40_512], from);
  await commitHours(world, "pjm", FROM, [92_310, 91_644, 90_120], from);
  const prices = [3.42, 3.18, 3.11, 3.2];
  for (const [index, price] of prices.entries()) {
    const symbol = `rngc${index + 1}`;
    await commit(world.writer, {
      library: "prices.spot",
      symbol,
      valueColumns: ["value"],
      rows: [
        {
          datetime: Date.parse("2026-01-30T00:00:00Z"),
          instrumentId: `prices.spot.${symbol}`,
          values: [price],
        },
      ],
      covered: { from: FROM - 24 * HOUR, to: FROM },
      reconstructed: false,
      sandbox: false,
      ...from,
      partition: "2026-01-30",
    });
  }
  // One knowledge time a vintage: the first of each series at 05:20, the second an hour later.
  await world.owner.execute(sql`
    UPDATE vintage SET as_of = ${iso(FROM + 5 * HOUR)}::timestamptz
      + '20 minutes'::interval + (seq - 1) * '1 hour'::interval`);
  await world.database.execute(sql`
    UPDATE series SET head_as_of = (SELECT max(as_of) FROM vintage WHERE series_id = id)`);
  const asOf = FROM + 12 * HOUR;
  await createSnapshot(world.database, { name: "month-end", note: "for the backtest", asOf });
  await world.database.execute(sql`
    UPDATE snapshot SET created_at = ${iso(asOf + HOUR)}::timestamptz`);
  const seen = ["erco", "pjm"].map((symbol) => ({
    library: "power.demand",
    symbol,
    instrumentIds: [`power.demand.${symbol}`],
  }));
  await recordSeen(world.graph, seen, FROM + 5 * HOUR + 20 * 60_000);
});

/** Positions of the feed count the cluster's transactions. */
const stable = (text: string) => text.replace(/"next":"\d+~/, '"next":"787~');

describe("the read API's description", () => {
  exampleTests({
    file: join(import.meta.dirname, "../../edge/markets/examples.json"),
    url: () => world.urls.markets,
    secret: () => KEY,
    stable,
  });
});
