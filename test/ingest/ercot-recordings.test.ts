// ERCOT's own bytes through the sources: API pages, document CSVs and zips, an archive's listing,
// and prices of clock-change days rebuilt into documents, all at their UTC instants.

import { zipSync } from "fflate";
import { describe, expect, it } from "vitest";
import type { SandboxAnswer, SandboxRequest } from "../../edge/local/sandbox/answers.ts";
import { csvText, hoursOf } from "../../edge/local/sandbox/ercot-tables.ts";
import { judgeZones } from "../../edge/markets/ingest/pipelines/ercot.ts";
import { SETTLEMENT_SYMBOLS } from "../../edge/markets/ingest/settlement-points.ts";
import { fetchArchive } from "../../edge/markets/ingest/sources/ercot-api.ts";
import {
  dayOfLabel,
  ordinalStart,
  QUARTER,
} from "../../edge/markets/ingest/sources/ercot-hours.ts";
import {
  type Cell,
  DAY_AHEAD_PRICES,
  type ErcotRecord,
  numberOf,
  type Product,
  REALTIME_PRICES,
  recordsOfCsv,
  SYSTEM_LOAD,
} from "../../edge/markets/ingest/sources/ercot-products.ts";
import {
  hourInstants,
  loadRows,
  pricesIn,
  quarterInstants,
} from "../../edge/markets/ingest/sources/ercot-rows.ts";
import { csvOf, unpack } from "../../edge/markets/ingest/sources/ercot-zip.ts";
import { LeftOut } from "../../edge/markets/ingest/sources/left-out.ts";
import { HOUR, iso } from "../../shared/time.ts";
import { startErcot, valuesOf } from "../support/ercot.ts";
import { hasRecordings, recordedBytes, recording } from "../support/recordings.ts";

interface Recording {
  fields: { name: string }[];
  data: Cell[][];
}

/** A recorded page as the API answers it, cut by the request's own filters. */
function page(file: string, { url }: SandboxRequest): SandboxAnswer {
  const { fields, data } = JSON.parse(recording(file)) as Recording;
  const type = url.searchParams.get("settlementPointType");
  const index = fields.findIndex(({ name }) => name === "settlementPointType");
  const rows = data.filter((row) => !type || row[index] === type);
  const _meta = { totalRecords: rows.length, pageSize: 100_000, totalPages: 1, currentPage: 1 };
  return { status: 200, body: { _meta, report: {}, fields, data: rows, _links: {} } };
}

describe.skipIf(!hasRecordings("ercot-api"))("recorded pages of the public API", () => {
  const files: Record<string, string> = {
    [REALTIME_PRICES.path]: "ercot-api/np6-905-cd.json",
    [DAY_AHEAD_PRICES.path]: "ercot-api/np4-190-cd.json",
    [SYSTEM_LOAD.path]: "ercot-api/np6-345-cd.json",
  };
  const recorded = (request: SandboxRequest) => {
    const file = Object.keys(files).find((path) => request.url.pathname.endsWith(path));
    return file ? page(files[file] ?? "", request) : undefined;
  };

  it("give 15 points their two quarters, zones at the zone's price and not the weighted one", async () => {
    const ercot = await startErcot("2026-09-28T05:40:00Z", recorded);
    const prices = await ercot.run("realtime_prices");
    const symbols = prices.fetched.series.map(({ symbol }) => symbol);
    expect(new Set(symbols)).toEqual(SETTLEMENT_SYMBOLS);
    expect([...valuesOf(prices, "hb_north")]).toEqual([
      ["2026-09-28T05:00:00.000Z", 44.75],
      ["2026-09-28T05:15:00.000Z", expect.any(Number)],
    ]);
    expect(valuesOf(prices, "lz_aen").get("2026-09-28T05:00:00.000Z")).toBe(45.02);
    expect(valuesOf(prices, "lz_west").get("2026-09-28T05:15:00.000Z")).toBe(48.42);
    const types = ercot.requests.map(({ url }) => url.searchParams.get("settlementPointType"));
    expect(types.filter((type) => type !== null)).toEqual(["HU", "SH", "AH", "LZ"]);
  });

  it("give 15 points their day-ahead hours, the other nodes left out", async () => {
    const ercot = await startErcot("2026-09-28T12:00:00Z", recorded);
    const prices = await ercot.run("day_ahead_prices");
    expect(prices.fetched.series).toHaveLength(15);
    expect(valuesOf(prices, "hb_north").get("2026-09-28T05:00:00.000Z")).toBe(41.2);
    expect(valuesOf(prices, "lz_west").get("2026-09-28T06:00:00.000Z")).toBe(44.98);
  });

  it("give the load of two hours, the zones summing to the total", async () => {
    const ercot = await startErcot("2026-09-29T12:00:00Z", recorded);
    const load = await ercot.run("system_load", "2026-09-28");
    expect([...valuesOf(load, "ercot")]).toEqual([
      ["2026-09-28T05:00:00.000Z", 60_471.86],
      ["2026-09-28T06:00:00.000Z", 57_759.15],
    ]);
    expect(load.fetched.findings).toEqual([]);
  });
});

describe.skipIf(!hasRecordings("ercot-archive-csv"))("recorded CSVs of the archive", () => {
  const read = (product: Product, kept: (record: ErcotRecord) => boolean = () => true) =>
    recordsOfCsv(product, recording(`ercot-archive-csv/${product.emil}.csv`), {
      kept,
      leftOut: new LeftOut(),
    });
  const zonesAside = ({ settlementPointType }: ErcotRecord) => settlementPointType !== "LZEW";

  it("have their own column names, spaces before prices and numbers without decimals", () => {
    const { rows } = pricesIn(read(REALTIME_PRICES, zonesAside), quarterInstants(), new LeftOut());
    const at = (point: string) => rows.filter((row) => row.point === point);
    expect(at("HB_HOUSTON")).toEqual([
      { datetime: Date.parse("2026-09-29T16:00:00Z"), point: "HB_HOUSTON", value: 29 },
    ]);
    expect(at("LZ_AEN").map(({ value }) => value)).toEqual([21.72]);
    const ahead = pricesIn(read(DAY_AHEAD_PRICES), hourInstants(), new LeftOut()).rows;
    expect(ahead.find(({ point }) => point === "7RNCHSLR_ALL")?.value).toBe(28.4);
    expect(ahead.map(({ datetime }) => iso(datetime))).toContain("2026-09-29T05:00:00.000Z");
  });

  it("say of the load what the API says", () => {
    const rows = loadRows(read(SYSTEM_LOAD), new LeftOut());
    expect(rows.map(({ total }) => total)).toEqual([60_471.86, 57_759.15]);
    expect(iso(rows[0]?.datetime ?? 0)).toBe("2026-09-28T05:00:00.000Z");
    expect(judgeZones(rows)).toEqual([]);
  });

  it("are left out where both prices of a zone would be one point's", () => {
    const leftOut = new LeftOut();
    const { rows } = pricesIn(read(REALTIME_PRICES), quarterInstants(), leftOut);
    // In this document the other prices of two zones are the same.
    const zones = rows.map(({ point }) => point).filter((point) => point.startsWith("LZ_"));
    expect(zones.toSorted()).toEqual(["LZ_CPS", "LZ_SOUTH"]);
    expect(leftOut.findings()).toEqual([
      expect.objectContaining({
        rule: "contradicting_rows",
        where: expect.stringMatching(/two values for LZ_/),
      }),
    ]);
  });
});

/** The load report by forecast zones, whose documents were recorded. */
const BY_FORECAST_ZONE: Product = {
  emil: "np6-346-cd",
  path: "np6-346-cd/act_sys_load_by_fzn",
  reportTypeId: 14836,
  dayField: "operatingDay",
  columns: {
    operatingDay: "OperDay",
    hourEnding: "HourEnding",
    north: "NORTH",
    south: "SOUTH",
    west: "WEST",
    houston: "HOUSTON",
    total: "TOTAL",
    DSTFlag: "DSTFlag",
  },
};

describe.skipIf(!hasRecordings("ercot-np6-346"))("recorded load documents", () => {
  const loadsOf = (text: string) => {
    const instantOf = hourInstants("operatingDay");
    return recordsOfCsv(BY_FORECAST_ZONE, text, {
      kept: () => true,
      leftOut: new LeftOut(),
    }).map((record) => {
      const zones = ["north", "south", "west", "houston"].map((zone) => numberOf(record, zone));
      return { datetime: instantOf(record), total: numberOf(record, "total"), zones };
    });
  };

  it("unpack to the 25 hours of the day that repeats one, the flag on its second pass", () => {
    const zip = recordedBytes("ercot-np6-346/ACTUALSYSLOADFZNP6346_csv__1156750374");
    const rows = loadsOf(csvOf(zip));
    const { from } = dayOfLabel("2025-11-02");
    expect(rows.map(({ datetime }) => datetime)).toEqual(
      Array.from({ length: 25 }, (_, hour) => from + hour * HOUR),
    );
    expect(rows.slice(1, 4).map(({ total }) => total)).toEqual([42_212.74, 40_828.66, 39_991.25]);
    const plain = csvOf(recordedBytes("ercot-np6-346/ACTUALSYSLOADFZNP6346_csv__1157715212"));
    expect(loadsOf(plain)).toHaveLength(24);
  });

  it.each([
    ["202306", "2023-05-31", "2023-06-29", 720],
    ["202503", "2025-02-28", "2025-03-30", 743],
    ["202511", "2025-10-31", "2025-11-29", 721],
  ])(
    "cover what was posted in %s without a hole, whatever the order of its days",
    (month, first, last, hours) => {
      const rows = loadsOf(recording(`ercot-np6-346/NP6-346-CD_${month}.csv`));
      const datetimes = rows
        .map(({ datetime }) => datetime)
        .toSorted((left, right) => left - right);
      const { from } = dayOfLabel(first);
      expect(datetimes).toEqual(Array.from({ length: hours }, (_, hour) => from + hour * HOUR));
      expect((datetimes.at(-1) ?? 0) + HOUR).toBe(dayOfLabel(last).to);
      expect(judgeZones(rows)).toEqual([]);
    },
  );
});

describe.skipIf(!hasRecordings("ercot-archive"))("a recorded archive", () => {
  const listing = () => JSON.parse(recording("ercot-archive/np3-911-er_listing.json")) as object;
  const zip = () => recordedBytes("ercot-archive/np3-911-er_doc1049861718.zip");
  const FILE = "2d_Cleared_DAM_AS_RRSPFR-05-NOV-24.csv";
  const product: Product = {
    emil: "np3-911-er",
    path: "",
    reportTypeId: 13057,
    dayField: "deliveryDate",
    columns: {
      deliveryDate: "Delivery Date",
      hourEnding: "Hour Ending",
      cleared: "Total Cleared AS - RRSPFR",
    },
  };
  const posted = {
    from: Date.parse("2024-11-05T06:00:00Z"),
    to: Date.parse("2024-11-06T06:00:00Z"),
  };
  const query = { product, posted, kept: () => true };

  it("lists documents with Central posting times, each a zip of one file", async () => {
    const files = unpack(zip(), (name) => name === FILE);
    const one = zipSync({ [FILE]: files[0]?.bytes ?? new Uint8Array() });
    const ercot = await startErcot("2026-01-01T00:00:00Z", ({ url }) => {
      if (!url.pathname.includes("/archive/")) return undefined;
      const body = url.searchParams.has("download") ? one : listing();
      return { status: 200, body };
    });
    const asking = { fetcher: ercot.upstreams.fetcher, now: ercot.now };
    const { documents } = await fetchArchive(ercot.api, asking, query);
    expect(documents.map(({ id, publishedAt }) => [id, iso(publishedAt)])).toEqual([
      [1_049_861_718, "2024-11-05T09:16:10.000Z"],
    ]);
    const day = dayOfLabel("2024-11-03");
    const hours = documents[0]?.records.map((record) =>
      ordinalStart(day, numberOf(record, "hourEnding")),
    );
    expect(hours).toEqual(Array.from({ length: 25 }, (_, hour) => day.from + hour * HOUR));
    const [, , asked] = ercot.requests;
    expect(asked?.url.pathname).toMatch(/\/archive\/NP3-911-ER$/);
  });

  it("is refused where a document holds another number of files than one", async () => {
    const ercot = await startErcot("2026-01-01T00:00:00Z", ({ url }) => {
      if (!url.pathname.includes("/archive/")) return undefined;
      return { status: 200, body: url.searchParams.has("download") ? zip() : listing() };
    });
    const asking = { fetcher: ercot.upstreams.fetcher, now: ercot.now };
    await expect(fetchArchive(ercot.api, asking, query)).rejects.toMatchObject({
      code: "upstream_schema_drift",
      message: expect.stringContaining("26 CSV files"),
    });
  });
});

describe.skipIf(!hasRecordings("ercot-spp-hb_hubavg"))("recorded prices of HB_HUBAVG", () => {
  const recorded = (file: string) =>
    recording(`ercot-spp-hb_hubavg/${file}.csv`)
      .trim()
      .split("\n")
      .slice(1)
      .map((line) => {
        const [start = "", , price] = line.split(",");
        return { datetime: Date.parse(start), value: Number(price) };
      });

  /** The rows of a document, labelled as ERCOT labels the instants. */
  const labelled = (file: string, isQuarters: boolean): Cell[][] =>
    recorded(file).map(({ datetime, value }) => {
      const date = iso(datetime - 5 * HOUR).slice(0, 10);
      const day = [dayOfLabel(date), dayOfLabel(iso(datetime - 6 * HOUR).slice(0, 10))].find(
        ({ from, to }) => datetime >= from && datetime < to,
      );
      if (!day) throw new Error(`no day holds ${iso(datetime)}`);
      const label = hoursOf(day).find(({ start }) => datetime >= start && datetime < start + HOUR);
      const hour = label?.hour ?? 0;
      const ending = `${String(hour).padStart(2, "0")}:00`;
      const interval = Math.floor((datetime % HOUR) / QUARTER) + 1;
      const repeated = label?.repeated ?? false;
      return isQuarters
        ? [day.key, hour, interval, "HB_HUBAVG", "AH", value, repeated]
        : [day.key, ending, "HB_HUBAVG", value, repeated];
    });

  it.each([
    ["dam_2025-03-09", 23],
    ["dam_2025-11-02", 25],
    ["dam_week_2025-08-18", 168],
    ["rtm_2025-03-09", 92],
    ["rtm_2025-11-02", 100],
    ["rtm_week_2025-08-18", 672],
  ])("%s: %i rows come back from ERCOT's labels at the recorded instants", (file, count) => {
    const isQuarters = file.startsWith("rtm");
    const product = isQuarters ? REALTIME_PRICES : DAY_AHEAD_PRICES;
    const records = recordsOfCsv(product, csvText(product, labelled(file, isQuarters)), {
      kept: () => true,
      leftOut: new LeftOut(),
    });
    const instantOf = isQuarters ? quarterInstants() : hourInstants();
    const rows = pricesIn(records, instantOf, new LeftOut()).rows;
    expect(rows).toHaveLength(count);
    expect(rows.map(({ datetime, value }) => ({ datetime, value }))).toEqual(recorded(file));
  });

  it("agree with what the API was seen to send for the repeated hour", () => {
    const instantOf = hourInstants();
    const seen = ([hourEnding, DSTFlag]: readonly [string, boolean]) =>
      iso(instantOf({ deliveryDate: "2025-11-02", hourEnding, DSTFlag }));
    const prices = new Map(
      recorded("dam_2025-11-02").map(({ datetime, value }) => [iso(datetime), value]),
    );
    expect(prices.get(seen(["02:00", false]))).toBe(46.44);
    expect(prices.get(seen(["02:00", true]))).toBe(48.25);
  });
});
