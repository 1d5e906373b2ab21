// The sandbox's EIA beside demand: series of a grid that add up, reports at their release times,
// prices in batches that are revised and taken back, and a wire format that sorts and pages.

import { describe, expect, it } from "vitest";
import { AUTHORITIES } from "../../edge/local/sandbox/demand.ts";
import { answerEia } from "../../edge/local/sandbox/eia.ts";
import { ROUTES } from "../../edge/local/sandbox/eia-routes.ts";
import { fuelsAt, regionAt } from "../../edge/local/sandbox/generation.ts";
import { isHoliday, outlookShown, priceShown } from "../../edge/local/sandbox/releases.ts";
import { DAY, HOUR, iso, isoDay, MINUTE } from "../../shared/time.ts";

const NOW = Date.UTC(2026, 9, 21, 12);

interface Answer {
  response: { total: string; data: Record<string, string | null>[]; warnings?: unknown[] };
}

/** All rows of a query, page by page. */
function ask(route: string, query: string, now = NOW, length = 5_000) {
  const base = `http://sandbox/eia/v2/${route}/data/?api_key=sandbox&data[0]=value&${query}`;
  const rows: Answer["response"]["data"] = [];
  for (;;) {
    const url = new URL(`${base}&offset=${rows.length}&length=${length}`);
    const { status, body } = answerEia(url, now);
    expect(status).toBe(200);
    const { response } = body as Answer;
    rows.push(...response.data);
    const isShort = response.data.length < Number(response.total);
    expect(response.warnings?.length ?? 0).toBe(isShort ? 1 : 0);
    if (rows.length >= Number(response.total)) return rows;
  }
}

const values = (rows: Answer["response"]["data"]) =>
  new Map(rows.map((row) => [`${row.period} ${row.series ?? row.seriesId}`, row.value]));
const facets = (name: string, ...ids: string[]) =>
  ids.map((id) => `facets[${name}][]=${id}`).join("&");

describe("the sandbox's generation", () => {
  const settled = NOW - 20 * DAY;
  const hours = Array.from({ length: 48 }, (_, hour) => settled + hour * HOUR);

  it("is demand and exports, for all but the authorities that count otherwise", () => {
    const broken = AUTHORITIES.flatMap((authority) =>
      hours.map((hour) => {
        const [demand, generation, exported] = (["D", "NG", "TI"] as const).map((type) =>
          Number(regionAt(authority, type, hour, NOW)),
        );
        const apart = Math.abs((demand ?? 0) - ((generation ?? 0) - (exported ?? 0)));
        return { code: authority.code, isBroken: apart > 0.05 * (demand ?? 0) + 5 };
      }),
    ).filter(({ isBroken }) => isBroken);
    const codes = new Set(broken.map(({ code }) => code));
    expect([...codes].filter((code) => !["BPAT", "CISO", "SEC"].includes(code))).toEqual([]);
    expect(broken.filter(({ code }) => code === "BPAT")).toHaveLength(48);
  });

  it("is the sum of its fuels, most of which have a shape of their own", () => {
    for (const authority of AUTHORITIES) {
      for (const hour of hours) {
        const fuels = fuelsAt(authority, hour, NOW);
        const sum = fuels.reduce((total, [, value]) => total + value, 0);
        expect([authority.code, sum]).toEqual([
          authority.code,
          regionAt(authority, "NG", hour, NOW),
        ]);
        expect(fuels.map(([fuel]) => fuel)).toEqual(fuels.map(([fuel]) => fuel).toSorted());
      }
    }
    const erco = AUTHORITIES.find(({ code }) => code === "ERCO");
    const of = (fuel: string) =>
      hours.map(
        (hour) => (erco ? fuelsAt(erco, hour, NOW) : []).find(([one]) => one === fuel)?.[1],
      );
    expect(Math.max(...of("SUN").map(Number))).toBeGreaterThan(3_000);
    expect(Math.min(...of("SUN").map(Number))).toBeLessThanOrEqual(0);
    expect(Math.min(...of("BAT").map(Number))).toBeLessThan(0);
  });

  it("comes within hours from one half, on the next morning from the other", () => {
    const hour = Date.UTC(2026, 9, 10, 5);
    const there = (now: number) =>
      AUTHORITIES.filter((one) => regionAt(one, "NG", hour, now) !== undefined).length;
    const soon = there(hour + 11 * HOUR) / AUTHORITIES.length;
    expect(soon).toBeGreaterThan(0.3);
    expect(soon).toBeLessThan(0.7);
    expect(there(hour + 31 * HOUR)).toBe(AUTHORITIES.length);
  });

  it("is forecast on the morning before the local day", () => {
    const pjm = AUTHORITIES.find(({ code }) => code === "PJM");
    if (!pjm) throw new Error("no PJM");
    const noon = Date.UTC(2026, 9, 21, 17);
    const at = (now: number) => regionAt(pjm, "DF", noon, now);
    // Local midnight is 05:00Z in the sandbox's standard time.
    expect(at(Date.UTC(2026, 9, 20, 12) - MINUTE)).toBeUndefined();
    expect(at(Date.UTC(2026, 9, 20, 12) + 21 * MINUTE)).toBeGreaterThan(0);
  });
});

describe("the sandbox's prices", () => {
  const year = "frequency=daily&start=2025-01-01&end=2025-12-31";
  const route = "petroleum/pri/spt";
  const query = `${year}&${facets("series", "RWTC", "RBRTE")}`;

  it("come in batches of about five days, in the middle of the week", () => {
    const days = Array.from({ length: 400 }, (_, day) => Date.UTC(2025, 0, 6) + day * DAY);
    const weekdays = days.filter((day) => ![0, 6].includes(new Date(day).getUTCDay()));
    const batches = new Set(weekdays.map(priceShown));
    expect(weekdays.length / batches.size).toBeGreaterThan(4.5);
    for (const shown of batches) expect([3, 4]).toContain(new Date(shown).getUTCDay());
    const lags = weekdays.map((day) => (priceShown(day) - day) / DAY);
    expect(Math.max(...lags)).toBeLessThan(10);
  });

  it("are revised, and taken back where they were printed for a holiday", () => {
    const final = values(ask(route, query));
    let [revised, retracted] = [0, 0];
    for (let now = Date.UTC(2025, 0, 8, 19); now < Date.UTC(2025, 11, 31); now += 7 * DAY) {
      for (const [key, value] of values(ask(route, query, now))) {
        if (!final.has(key)) {
          retracted++;
          expect(isHoliday(Date.parse(key.slice(0, 10)))).toBe(true);
        } else if (final.get(key) !== value) revised++;
      }
    }
    expect(revised).toBeGreaterThan(2);
    expect(retracted).toBeGreaterThan(1);
    const days = [...final.keys()].map((key) => new Date(key.slice(0, 10)).getUTCDay());
    expect(days.some((day) => day === 0 || day === 6)).toBe(false);
    expect([...final.keys()].some((key) => key.startsWith("2025-07-04"))).toBe(false);
  });

  it("of futures end on 2024-04-05", () => {
    const span = "frequency=daily&start=2024-03-25&end=2024-04-30";
    const rows = ask("natural-gas/pri/fut", `${span}&${facets("series", "RNGC1", "RNGC4")}`);
    expect(rows.at(-1)?.period).toBe("2024-04-05");
    expect(rows.filter(({ period }) => period === "2024-04-05")).toHaveLength(2);
  });
});

describe("the sandbox's outlook", () => {
  it("is out on the Tuesdays that EIA's was", () => {
    expect(isoDay(outlookShown(Date.UTC(2026, 9, 1)))).toBe("2026-10-06");
    expect(isoDay(outlookShown(Date.UTC(2026, 10, 1)))).toBe("2026-11-10");
  });

  it("changes its path with each issue, and what is past no more", () => {
    const query = `frequency=monthly&start=2025-01&end=2027-12&${facets("seriesId", "NGHHUUS")}`;
    const shown = outlookShown(Date.UTC(2026, 9, 1));
    const [before, after] = [shown - MINUTE, shown + MINUTE].map((now) =>
      values(ask("steo", query, now)),
    );
    expect([...(after ?? [])].at(-1)?.[0]).toBe("2027-12 NGHHUUS");
    const changed = [...(before ?? [])].filter(([key, value]) => after?.get(key) !== value);
    expect(changed.length).toBeGreaterThan(12);
    expect(changed.every(([key]) => key >= "2026-09")).toBe(true);
  });
});

describe("the sandbox's wire format", () => {
  const day = "frequency=hourly&start=2026-10-18T01&end=2026-10-19T00";

  it("cuts one answer into pages, whatever their length", () => {
    const whole = ask("electricity/rto/fuel-type-data", day);
    expect(whole.length).toBeGreaterThan(5_000);
    expect(ask("electricity/rto/fuel-type-data", day, NOW + 30_000, 1_700)).toEqual(whole);
    const keys = whole.map((row) => `${row.period} ${row.respondent} ${row.fueltype}`);
    expect(keys).toEqual([...new Set(keys)].toSorted());
  });

  it("leaves in what the facets name, and nothing for a name it does not know", () => {
    const chosen = `${day}&${facets("respondent", "ERCO", "PJM")}&${facets("type", "TI", "DF")}`;
    const rows = ask("electricity/rto/region-data", chosen);
    expect(new Set(rows.map((row) => `${row.respondent} ${row.type}`)).size).toBe(4);
    expect(ask("electricity/rto/region-data", `${day}&${facets("type", "XX")}`)).toEqual([]);
  });

  it("sorts as it is asked to", () => {
    const sort = "sort[0][column]=series&sort[0][direction]=desc&sort[1][column]=period";
    const span = "frequency=weekly&start=2026-09-01&end=2026-10-09";
    const rows = ask("petroleum/sum/sndw", `${span}&${sort}`);
    const keys = rows.map((row) => String(row.series));
    expect(keys).toEqual(keys.toSorted().toReversed());
    expect(rows[0]?.period).toBe("2026-09-04");
  });

  it("compares periods as texts, both ends included", () => {
    const rows = ask("natural-gas/stor/wkly", "frequency=weekly&start=2026-09-04&end=2026-09-11");
    expect(new Set(rows.map(({ period }) => period))).toEqual(
      new Set(["2026-09-04", "2026-09-11"]),
    );
    expect(rows[0]).toMatchObject({ units: "BCF", value: expect.stringMatching(/^\d+$/) });
  });

  it.each([
    ["electricity/rto/region-data", "frequency=daily&start=2026-10-18&end=2026-10-19", 400],
    ["steo", "frequency=monthly&start=2026-10-01&end=2026-11-01", 400],
    ["natural-gas/stor/wkly", "frequency=weekly", 400],
    ["no/such/route", "frequency=weekly&start=2026-10-18&end=2026-10-19", 404],
  ])("refuses %s?%s", (route, query, status) => {
    const url = new URL(`http://sandbox/eia/v2/${route}/data/?api_key=sandbox&${query}`);
    expect(answerEia(url, NOW).status).toBe(status);
  });

  it("has every route years back, cheaply", () => {
    const started = performance.now();
    let rows = 0;
    for (const [route, { frequency }] of ROUTES) {
      const characters = { hourly: 13, daily: 10, weekly: 10, monthly: 7 }[frequency];
      const span = frequency === "hourly" ? DAY : 366 * DAY;
      const from = Date.UTC(2023, 1, 3);
      const [start, end] = [from, from + span].map((at) => iso(at).slice(0, characters));
      const found = ask(route, `frequency=${frequency}&start=${start}&end=${end}`).length;
      expect([route, found > 30]).toEqual([route, true]);
      rows += found;
    }
    const seconds = (performance.now() - started) / 1_000;
    console.info(`The sandbox's EIA: ${rows} rows in ${seconds.toFixed(2)} s`);
    expect(rows).toBeGreaterThan(15_000);
  });
});
