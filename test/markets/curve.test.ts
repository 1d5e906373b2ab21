// GET /curve in workerd over the real store: which trade date, which source, which hours, and what
// an as_of hides.

import { beforeAll, describe, expect, it } from "vitest";
import { type CommitRequest, commit } from "../../edge/markets/store/commit.ts";
import { ErrorBody } from "../../shared/errors.ts";
import { iso, isoDay } from "../../shared/time.ts";
import { CurveRecord } from "../../shared/wire/markets.ts";
import { createWorld, DAY, HOUR, type World } from "../support/world.ts";

const KEY = "a-reader's key";

let open: World;
let closed: World;

beforeAll(async () => {
  const services = ["markets", "console"] as const;
  [open, closed] = await Promise.all([
    createWorld({ services }),
    createWorld({ services, environment: { markets: { SERVICE_READ_API_KEY: KEY } } }),
  ]);
});

const at = (day: string) => Date.parse(`${day}T00:00:00Z`);
const get = (query: string, world = open, init?: RequestInit) =>
  fetch(`${world.urls.markets}/curve?${query}`, init);

async function curve(commodity: string, asOf?: number | string): Promise<CurveRecord[]> {
  const known = typeof asOf === "number" ? iso(asOf) : asOf;
  const response = await get(`commodity=${commodity}${known ? `&as_of=${known}` : ""}`);
  expect(response.status).toBe(200);
  const records = CurveRecord.array().parse(await response.json());
  const answered = response.headers.get("X-As-Of");
  expect(answered === null && records.length > 0).toBe(false);
  if (answered !== null) {
    const replayed = await get(`commodity=${commodity}&as_of=${answered}`);
    expect(await replayed.json()).toEqual(records);
  }
  return records;
}

const prices = async (commodity: string, asOf?: number | string) =>
  (await curve(commodity, asOf)).map((record) => record.price);
const sources = async (commodity: string, asOf?: number | string) => [
  ...new Set((await curve(commodity, asOf)).map((record) => record.curve_source)),
];

/** Commits one series' `[Datetime, value]` pairs as a vintage and returns its `as_of`. */
async function learn(
  library: string,
  symbol: string,
  pairs: readonly (readonly [number, number])[],
  more: Partial<CommitRequest> = {},
): Promise<number> {
  const datetimes = pairs.map(([datetime]) => datetime);
  const vintage = await commit(open.writer, {
    library,
    symbol,
    valueColumns: ["value"],
    rows: pairs.map(([datetime, value]) => ({
      datetime,
      instrumentId: `${library}.${symbol}`,
      values: [value],
    })),
    covered: { from: Math.min(...datetimes), to: Math.max(...datetimes) + 1 },
    reconstructed: false,
    sandbox: false,
    runId: crypto.randomUUID(),
    partition: "2026-01-01",
    sourceUrl: "https://api.eia.gov/v2/",
    ...more,
  });
  return vintage?.asOf ?? NaN;
}

/** Commits contracts `1…n` of a trade date, each at `n` plus the given price. */
async function trade(
  symbols: readonly string[],
  day: string,
  price: number,
  more: Partial<CommitRequest> = {},
): Promise<number> {
  let asOf = 0;
  for (const [index, symbol] of symbols.entries()) {
    asOf = await learn("prices.spot", symbol, [[at(day), price + index + 1]], more);
  }
  return asOf;
}

const numbered = (symbol: (contract: number) => string) => [1, 2, 3, 4].map(symbol);
const GAS = numbered((contract) => `rngc${contract}`);
const CRUDE = numbered((contract) => `rclc${contract}`);
const RBOB = numbered((contract) => `eer_epmrr_pe${contract}_y35ny_dpg`);
const HEATING_OIL = numbered((contract) => `eer_epd2f_pe${contract}_y35ny_dpg`);

describe("a futures curve", () => {
  it("is of the newest trade date that has all contracts, and never mixes two", async () => {
    const asOf = await trade(RBOB, "2024-03-28", 20, { reconstructed: true });
    await trade(RBOB.slice(0, 3), "2024-04-01", 30);
    expect(await curve("gasoline_rbob")).toEqual(
      ["2024-04", "2024-05", "2024-06", "2024-07"].map((month, index) => ({
        commodity: "gasoline_rbob",
        trade_date: "2024-03-28",
        tenor: index + 1,
        contract_month: month,
        Datetime: `${month}-01T00:00:00.000Z`,
        price: 21 + index,
        unit: "$/gal",
        curve_source: "futures",
        instrument_id: `prices.spot.${RBOB[index]}`,
        as_of: expect.stringMatching(/Z$/),
        vintage_reconstructed: true,
      })),
    );
    await learn("prices.spot", "eer_epmrr_pe4_y35ny_dpg", [[at("2024-04-01"), NaN]]);
    expect(await prices("gasoline_rbob")).toEqual([21, 22, 23, 24]);
    await learn("prices.spot", "eer_epmrr_pe4_y35ny_dpg", [[at("2024-04-01"), 34]]);
    const moved = await curve("gasoline_rbob");
    expect(moved.map(({ price, contract_month }) => [price, contract_month])).toEqual([
      [31, "2024-05"],
      [32, "2024-06"],
      [33, "2024-07"],
      [34, "2024-08"],
    ]);
    expect(new Set(moved.map(({ trade_date }) => trade_date))).toEqual(new Set(["2024-04-01"]));
    expect(await prices("gasoline_rbob", asOf)).toEqual([21, 22, 23, 24]);
  });

  it("is what was known: no later revision, no curve before its last contract, [] before all", async () => {
    const complete = await trade(HEATING_OIL, "2024-03-01", 2);
    const revised = await learn("prices.spot", "eer_epd2f_pe2_y35ny_dpg", [[at("2024-03-01"), 9]]);
    expect(await prices("heating_oil")).toEqual([3, 9, 5, 6]);
    expect(await prices("heating_oil", revised)).toEqual([3, 9, 5, 6]);
    expect(await prices("heating_oil", revised - 1)).toEqual([3, 4, 5, 6]);
    expect(await prices("heating_oil", complete)).toEqual([3, 4, 5, 6]);
    expect(await curve("heating_oil", complete - 1)).toEqual([]);
    expect(await curve("heating_oil", "2020-01-01")).toEqual([]);
  });

  it("falls back to an earlier trade date when a price of the newest is withdrawn", async () => {
    await trade(CRUDE, "2023-03-01", 2);
    await trade(CRUDE, "2023-03-02", 3);
    const covered = { from: at("2023-03-02"), to: at("2023-03-03") };
    await learn("prices.spot", CRUDE[3] ?? "", [], { covered });
    const fallen = await curve("crude_oil_wti");
    expect(fallen.map(({ trade_date, price }) => [trade_date, price])).toEqual(
      [3, 4, 5, 6].map((price) => ["2023-03-01", price]),
    );
  });

  it("looks back as far as it must for a shared date", async () => {
    const days = (count: number) => iso(at("2024-03-01") + count * DAY).slice(0, 10);
    await trade(HEATING_OIL.slice(1), days(40), 20);
    await trade(HEATING_OIL.slice(0, 1), days(41), 30);
    expect(await prices("heating_oil")).toEqual([3, 9, 5, 6]);
    await trade(HEATING_OIL.slice(1), days(900), 40);
    await trade(HEATING_OIL.slice(0, 1), days(901), 50);
    expect(await prices("heating_oil")).toEqual([3, 9, 5, 6]);
  });
});

describe("an agency's forecast", () => {
  const path = (symbol: string, value: number) =>
    learn(
      "fundamentals.agency",
      symbol,
      [-2, -1, 0, 1, 2].map((month) => {
        const today = new Date();
        return [Date.UTC(today.getUTCFullYear(), today.getUTCMonth() + month, 1), value + month];
      }),
    );

  it("takes over from the month in which it was learned, once newer than the futures", async () => {
    expect(await curve("natural_gas")).toEqual([]);
    const traded = await trade(GAS, "2024-04-05", 1);
    const learned = await path("nghhuus", 40);
    expect(await prices("natural_gas", traded)).toEqual([2, 3, 4, 5]);
    expect(await prices("natural_gas", learned - 1)).toEqual([2, 3, 4, 5]);
    const forecast = await curve("natural_gas");
    const month = isoDay(learned).slice(0, 7);
    expect(forecast[0]).toEqual({
      commodity: "natural_gas",
      trade_date: isoDay(learned),
      tenor: 1,
      contract_month: month,
      Datetime: `${month}-01T00:00:00.000Z`,
      price: 40,
      unit: "$/MMBtu",
      curve_source: "agency_forecast",
      instrument_id: "fundamentals.agency.nghhuus",
      as_of: iso(learned),
      vintage_reconstructed: false,
    });
    expect(forecast.map(({ tenor, price }) => [tenor, price])).toEqual([
      [1, 40],
      [2, 41],
      [3, 42],
    ]);
  });

  it("answers where there are no futures, and yields to a trade date of its day", async () => {
    const learned = await path("wtipuus", NaN);
    expect(await prices("crude_oil_wti")).toEqual([null, null, null]);
    const older = await trade(CRUDE, isoDay(learned - DAY), 70);
    expect(await sources("crude_oil_wti")).toEqual(["agency_forecast"]);
    await trade(CRUDE, isoDay(learned), 80);
    expect(await sources("crude_oil_wti")).toEqual(["futures"]);
    expect(await sources("crude_oil_wti", older)).toEqual(["agency_forecast"]);
  });
});

describe("a day-ahead curve", () => {
  const hours = (from: string, count: number, price: number) =>
    Array.from(
      { length: count },
      (_, hour) => [Date.parse(from) + hour * HOUR, price + hour] as const,
    );

  it("is the newest operating day of 23, 24 or 25 hours", async () => {
    const days = [
      ["2026-03-08", "2026-03-08T06:00:00Z", 23],
      ["2026-03-09", "2026-03-09T05:00:00Z", 24],
      ["2026-11-01", "2026-11-01T05:00:00Z", 25],
      ["2026-11-02", "2026-11-02T06:00:00Z", 24],
    ] as const;
    const learned: number[] = [];
    for (const [, from, count] of days) {
      learned.push(await learn("power.dalmp", "hb_north", hours(from, count, 30)));
    }
    for (const [index, [day, from, count]] of days.entries()) {
      const records = await curve("hb_north", learned[index]);
      expect(records.map(({ tenor, Datetime, price }) => [tenor, Datetime, price])).toEqual(
        hours(from, count, 30).map(([datetime, price], hour) => [hour + 1, iso(datetime), price]),
      );
      expect(records[0]).toMatchObject({
        commodity: "hb_north",
        trade_date: day,
        contract_month: null,
        unit: "$/MWh",
        curve_source: "day_ahead",
        instrument_id: "power.dalmp.hb_north",
      });
      expect(new Set(records.map(({ trade_date }) => trade_date)).size).toBe(1);
    }
    expect(await curve("hb_north", "2020-01-01")).toEqual([]);
  });

  it("numbers hours by the clock, over a missing one, and gives null for NaN", async () => {
    const [first, , third] = hours("2026-05-02T05:00:00Z", 3, 0);
    await learn("power.dalmp", "lz_west", [first ?? [0, 0], [third?.[0] ?? 0, NaN]]);
    const records = await curve("lz_west");
    expect(records.map(({ tenor, price }) => [tenor, price])).toEqual([
      [1, 0],
      [3, null],
    ]);
  });

  it("marks sandbox data, and only that", async () => {
    await learn("power.dalmp", "hb_pan", hours("2026-05-02T05:00:00Z", 24, 1), { sandbox: true });
    expect((await get("commodity=hb_pan")).headers.get("X-Sandbox")).toBe("true");
    expect((await get("commodity=hb_north")).headers.get("X-Sandbox")).toBeNull();
  });
});

describe("GET /curve", () => {
  const refusal = async (query: string) => {
    const response = await get(query);
    return { status: response.status, ...ErrorBody.parse(await response.json()) };
  };

  it("answers 404 for anything else, saying what there is", async () => {
    for (const name of ["coal", "HB_NORTH", "rngc1", "constructor", "hb_north__vintages"]) {
      const answer = await refusal(`commodity=${name}`);
      expect(answer).toMatchObject({ status: 404, code: "unknown_commodity" });
      for (const known of ["natural_gas", "crude_oil_wti", "gasoline_rbob", "heating_oil"]) {
        expect(answer.detail).toContain(known);
      }
      expect(answer.detail).toContain("GET /symbols?library=power.dalmp");
    }
  });

  it("answers 422 without a commodity and 400 for an as_of that cannot be parsed", async () => {
    const missing = { status: 422, code: "invalid_request", detail: "commodity: required" };
    expect(await refusal("")).toMatchObject(missing);
    expect(await refusal("commodity=")).toMatchObject({ status: 422 });
    for (const text of ["yesterday", "2026-02-30", ""]) {
      const answer = await refusal(`commodity=natural_gas&as_of=${text}`);
      expect(answer).toMatchObject({ status: 400, code: "bad_datetime" });
    }
  });

  it("needs the key where one is set, and knows its commodities before any data", async () => {
    const refused = await get("commodity=natural_gas", closed);
    expect([refused.status, refused.headers.get("Cache-Control")]).toEqual([401, "no-store"]);
    const headers = { "X-API-Key": KEY };
    const empty = await get("commodity=natural_gas", closed, { headers });
    expect([empty.status, await empty.json()]).toEqual([200, []]);
    expect(empty.headers.get("Cache-Control")).toBe("private, max-age=0");
    expect((await get("commodity=hb_north", closed, { headers })).status).toBe(404);
  });

  it("says why the curve of a known commodity is empty", async () => {
    const reason = (response: Response) => response.headers.get("X-Empty-Reason");
    const never = await get("commodity=natural_gas", closed, { headers: { "X-API-Key": KEY } });
    expect([await never.json(), reason(never)]).toEqual([[], "never_ingested"]);
    await trade(CRUDE, "2024-03-28", 80);
    const before = await get("commodity=crude_oil_wti&as_of=2020-01-01");
    expect([await before.json(), reason(before)]).toEqual([[], "not_known_then"]);
    expect(reason(await get("commodity=crude_oil_wti"))).toBeNull();
  });

  it("lets shared caches hold an open answer for a moment", async () => {
    const { headers } = await get("commodity=natural_gas");
    expect(headers.get("Cache-Control")).toBe(
      "public, max-age=0, s-maxage=30, stale-while-revalidate=30",
    );
  });
});
