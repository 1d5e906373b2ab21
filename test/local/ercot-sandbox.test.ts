// The sandbox's Texas is realistic enough to develop against: levels, shapes, spikes, negative
// prices, congestion, posting times; and always the same for the same question.

import { describe, expect, it } from "vitest";
import type { SandboxRequest } from "../../edge/local/sandbox/answers.ts";
import { answerErcot } from "../../edge/local/sandbox/ercot.ts";
import {
  correctionOf,
  dayAheadPostedAt,
  dayAheadPrices,
  finalLoad,
  isRepaired,
  loadPostedAt,
  POINTS,
  realtimePostedAt,
  realtimePrices,
  shownLoad,
} from "../../edge/local/sandbox/ercot-market.ts";
import { dayOfLabel, daysOf, QUARTER } from "../../edge/markets/ingest/sources/ercot-hours.ts";
import { DAY, HOUR, MINUTE } from "../../shared/time.ts";

const FROM = dayOfLabel("2025-01-01").from;
const TO = dayOfLabel("2026-01-01").from;
const hours = Array.from({ length: (TO - FROM) / HOUR }, (_, hour) => FROM + hour * HOUR);
const days = daysOf({ from: FROM, to: TO });
const indexOf = (name: string) => POINTS.findIndex((point) => point.name === name);
const mean = (values: readonly number[]) =>
  values.reduce((total, value) => total + value, 0) / values.length;
const share = (flags: readonly boolean[]) => mean(flags.map(Number));
const quantile = (values: readonly number[], part: number) =>
  values.toSorted((left, right) => left - right)[Math.floor(values.length * part)] ?? NaN;
const ask = (path: string, more: Partial<SandboxRequest> = {}) => {
  const headers = {
    authorization: `Bearer sandbox-token-${TO}`,
    "ocp-apim-subscription-key": "sandbox",
  };
  const url = new URL(`http://sandbox/ercot/${path}`);
  return answerErcot({ method: "GET", url, headers, body: "", ...more }, TO);
};

describe("load", () => {
  const loads = hours.map((hour) => finalLoad(hour).total);

  it("keeps the level and the bounds of recorded months", () => {
    expect(mean(loads)).toBeGreaterThan(50_000);
    expect(mean(loads)).toBeLessThan(60_000);
    expect(Math.min(...loads)).toBeGreaterThan(34_000);
    expect(Math.max(...loads)).toBeGreaterThan(72_000);
    expect(Math.max(...loads)).toBeLessThan(90_000);
  });

  it("peaks on summer afternoons and rests on weekends", () => {
    const at = (key: string, hour: number) => finalLoad(dayOfLabel(key).from + hour * HOUR).total;
    expect(at("2025-07-16", 17)).toBeGreaterThan(1.2 * at("2025-07-16", 5));
    expect(at("2025-07-16", 17)).toBeGreaterThan(1.2 * at("2025-04-16", 17));
    const weekday = (from: number) => new Date(from).getUTCDay();
    const of = (wanted: readonly number[]) =>
      mean(loads.filter((_, hour) => wanted.includes(weekday(FROM + (hour - 6) * HOUR))));
    expect(of([2, 3, 4])).toBeGreaterThan(1.02 * of([0]));
  });

  it("is restated a little by the settled report, its zones summing to the total", () => {
    for (const hour of hours.slice(0, 200)) {
      const [shown, settled] = [shownLoad(hour), finalLoad(hour)];
      expect(shown.total).not.toBe(settled.total);
      expect(Math.abs(shown.total / settled.total - 1)).toBeLessThan(0.004);
      const sum = settled.zones.reduce((total, zone) => total + zone, 0);
      expect(Math.abs(sum - settled.total)).toBeLessThan(0.02);
    }
  });
});

describe("prices", () => {
  const realtime = hours.map((hour) =>
    [0, 1, 2, 3].map((part) => realtimePrices(hour + part * QUARTER)),
  );
  const ahead = hours.map(dayAheadPrices);
  const of = (name: string) => realtime.flat().map((prices) => prices[indexOf(name)] ?? NaN);
  const aheadOf = (name: string) => ahead.map((prices) => prices[indexOf(name)] ?? NaN);

  it("have a usual level, rare spikes, and negative hours in the west", () => {
    expect(quantile(of("HB_HUBAVG"), 0.5)).toBeGreaterThan(15);
    expect(quantile(of("HB_HUBAVG"), 0.5)).toBeLessThan(40);
    expect(Math.max(...of("HB_HUBAVG"))).toBeGreaterThan(500);
    expect(share(of("HB_HUBAVG").map((price) => price > 300))).toBeLessThan(0.01);
    expect(share(of("HB_WEST").map((price) => price < 0))).toBeGreaterThan(0.005);
    expect(Math.min(...of("HB_PAN"))).toBeGreaterThan(-251);
  });

  it("differ between the hubs for hours on end", () => {
    const [west, north] = [of("HB_WEST"), of("HB_NORTH")];
    const spread = west.map((price, index) => price - (north[index] ?? NaN));
    expect(share(spread.map((one) => one < -5))).toBeGreaterThan(0.05);
    expect(share(spread.map((one) => Math.abs(one) < 1))).toBeGreaterThan(0.2);
    const change = spread.slice(1).map((one, index) => Math.abs(one - (spread[index] ?? NaN)));
    expect(mean(change)).toBeLessThan(2);
  });

  it("a day ahead are dearer by a little and calmer", () => {
    const [real, early] = [of("HB_NORTH"), aheadOf("HB_NORTH")];
    expect(mean(early)).toBeGreaterThan(mean(real) * 0.9);
    expect(mean(early)).toBeLessThan(mean(real) * 1.2);
    expect(Math.max(...early)).toBeLessThan(Math.max(...real));
    const calm = early.filter(
      (price, hour) => Math.abs(price - mean(real.slice(hour * 4, hour * 4 + 4))) < 15,
    );
    expect(calm.length / early.length).toBeGreaterThan(0.8);
  });
});

describe("posting times", () => {
  it("are those of the facts", () => {
    for (let start = FROM; start < FROM + 3 * DAY; start += QUARTER) {
      const lag = realtimePostedAt(start) - start - QUARTER;
      expect(lag).toBeGreaterThanOrEqual(2 * MINUTE);
      expect(lag).toBeLessThanOrEqual(5 * MINUTE);
    }
    const clears = days.map((day) => (day.from - dayAheadPostedAt(day)) / HOUR);
    expect(Math.max(...clears)).toBeLessThanOrEqual(12.5);
    const late = share(clears.map((hoursBefore) => hoursBefore < 10));
    expect(late).toBeGreaterThan(0.005);
    expect(late).toBeLessThan(0.05);
    expect(Math.min(...clears)).toBeGreaterThan(7);
    for (const day of days) {
      const lag = loadPostedAt(day) - day.to;
      // The clock change lies between midnight and ten to six.
      expect(lag).toBeGreaterThanOrEqual(4 * HOUR + 50 * MINUTE);
      expect(lag).toBeLessThan(6 * HOUR + 51 * MINUTE);
    }
  });

  it("have repairs and corrections, few of both", () => {
    const quarters = hours.flatMap((hour) => [0, 1, 2, 3].map((part) => hour + part * QUARTER));
    expect(share(quarters.map(isRepaired))).toBeGreaterThan(0.002);
    expect(share(quarters.map(isRepaired))).toBeLessThan(0.01);
    const isCorrected = (day: (typeof days)[number]) =>
      hours.some(
        (hour) =>
          hour >= day.from &&
          hour < day.to &&
          correctionOf("realtime", day, { start: hour, price: 20, now: Infinity }),
      );
    const corrected = share(days.map(isCorrected));
    expect(corrected).toBeGreaterThan(0.01);
    expect(corrected).toBeLessThan(0.08);
  });
});

describe("the wire", () => {
  const rows = "api/public-reports/np6-905-cd/spp_node_zone_hub";
  const query = "?deliveryDateFrom=2025-11-02&deliveryDateTo=2025-11-02&size=100000";

  it("answers the same question the same way", () => {
    expect(ask(rows + query)).toEqual(ask(rows + query));
    expect(ask(rows + query).body).toMatchObject({ _meta: { totalRecords: 100 * (18 + 8) } });
  });

  it("refuses a wrong login, token, age of token, key, date and path", () => {
    const login = (body: string) => ask("oauth2/v2.0/token", { method: "POST", body }).status;
    expect(login("grant_type=password&username=sandbox&password=sandbox")).toBe(200);
    expect(login("grant_type=password&username=sandbox&password=wrong")).toBe(400);
    const key = { "ocp-apim-subscription-key": "sandbox" };
    const token = (text: string) => ({ ...key, authorization: `Bearer ${text}` });
    const status = (headers: Record<string, string>) => ask(rows + query, { headers }).status;
    expect(status(token(`sandbox-token-${TO - HOUR + 1}`))).toBe(200);
    expect(status(token(`sandbox-token-${TO - HOUR}`))).toBe(401);
    expect(status(token("wrong"))).toBe(401);
    expect(status({ authorization: `Bearer sandbox-token-${TO}` })).toBe(401);
    expect(ask(`${rows}?deliveryDateFrom=today`).status).toBe(400);
    expect(ask("api/public-reports/nothing").status).toBe(404);
    expect(ask("api/public-reports/archive/NP6-905-CD?download=1").status).toBe(404);
  });

  it("lists a week of documents in both forms, and nothing from the future", () => {
    const { body } = ask("www/misapp/servlets/IceDocListJsonWS?reportTypeId=12301");
    const { DocumentList } = (
      body as { ListDocsByRptTypeRes: { DocumentList: { Document: Record<string, string> }[] } }
    ).ListDocsByRptTypeRes;
    const names = DocumentList.map(({ Document }) => Document.FriendlyName ?? "");
    expect(names.filter((name) => name.endsWith("_xml"))).toHaveLength(names.length / 2);
    expect(names.length / 2).toBeGreaterThan(7 * 96);
    const posted = DocumentList.map(({ Document }) => Date.parse(Document.PublishDate ?? ""));
    expect(Math.max(...posted)).toBeLessThanOrEqual(TO);
  });
});
