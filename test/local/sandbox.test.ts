// The sandbox's grid is realistic enough to develop against: shapes, late hours, revisions,
// withdrawals, and always the same for the same question.

import { describe, expect, it } from "vitest";
import { AUTHORITIES, demandAt, HISTORY_FROM } from "../../edge/local/sandbox/demand.ts";
import { answerEia } from "../../edge/local/sandbox/eia.ts";
import { BALANCING_AUTHORITIES } from "../../edge/markets/ingest/authorities.ts";
import { DAY, HOUR, MINUTE } from "../../shared/time.ts";

const NOW = Date.UTC(2026, 10, 20);
const days = Array.from({ length: 60 }, (_, day) => NOW - (70 - day) * DAY);
const hoursOf = (day: number) => Array.from({ length: 24 }, (_, hour) => day + hour * HOUR);
const authority = (code: string) => {
  const found = AUTHORITIES.find((one) => one.code === code);
  if (!found) throw new Error(`no ${code}`);
  return found;
};

/** The share of authority-days, or hours, for which something holds. */
const share = (flags: boolean[]) => flags.filter(Boolean).length / flags.length;

describe("the sandbox's grid", () => {
  it("knows every balancing authority, and at least two years of each but the newest", () => {
    expect(new Set(AUTHORITIES.map(({ code }) => code))).toEqual(BALANCING_AUTHORITIES);
    expect(NOW - HISTORY_FROM).toBeGreaterThan(2 * 365 * DAY);
    for (const one of AUTHORITIES) {
      expect(demandAt(one, Math.max(one.since, HISTORY_FROM) + 7 * HOUR, NOW)).toBeGreaterThan(0);
    }
  });

  it("has a daily, weekly and yearly shape about the right level", () => {
    const erco = authority("ERCO");
    const mean = (from: number, count: number) => {
      const values = Array.from({ length: count }, (_, hour) =>
        demandAt(erco, from + hour * HOUR, NOW),
      );
      const known = values.filter((value) => typeof value === "number");
      return known.reduce((total, value) => total + value, 0) / known.length;
    };
    const year = mean(Date.UTC(2025, 0, 1), 365 * 24);
    expect(year / erco.mean).toBeGreaterThan(0.85);
    expect(year / erco.mean).toBeLessThan(1.25);
    expect(mean(Date.UTC(2025, 6, 1), 31 * 24)).toBeGreaterThan(
      1.1 * mean(Date.UTC(2025, 3, 1), 30 * 24),
    );
    const july = Date.UTC(2025, 6, 16);
    expect(mean(july + 22 * HOUR, 2)).toBeGreaterThan(1.15 * mean(july + 9 * HOUR, 2));
    expect(mean(Date.UTC(2025, 6, 15), 24)).toBeGreaterThan(mean(Date.UTC(2025, 6, 13), 24));
  });

  it("publishes hours after they end, one in twenty of them late", () => {
    const hours = AUTHORITIES.flatMap((one) =>
      hoursOf(days[0] ?? 0).map((hour) => ({
        early: demandAt(one, hour, hour + HOUR) !== undefined,
        late: demandAt(one, hour, hour + 3 * HOUR) === undefined,
        missing: demandAt(one, hour, hour + 11 * HOUR) === undefined,
      })),
    );
    expect(share(hours.map(({ early }) => early))).toBe(0);
    expect(share(hours.map(({ late }) => late))).toBeGreaterThan(0.02);
    expect(share(hours.map(({ late }) => late))).toBeLessThan(0.09);
    expect(share(hours.map(({ missing }) => missing))).toBe(0);
  });

  it("revises its estimates each minute, some days later on, and in the end nothing", () => {
    const cells = days.slice(0, 20).flatMap((day) => AUTHORITIES.map((one) => ({ one, day })));
    const at = (age: number) =>
      cells.map(({ one, day }) => hoursOf(day).map((hour) => demandAt(one, hour, hour + age)));
    const ages = [12 * HOUR, 12 * HOUR + MINUTE, 40 * HOUR, 40 * HOUR + MINUTE, 5 * DAY, 60 * DAY];
    const [young, nextMinute, middle, nextToo, old, older] = ages.map(at);
    const differs = (left: unknown[][] = [], right: unknown[][] = []) =>
      share(left.map((day, index) => day.join() !== right[index]?.join()));
    // Whoever asks again a minute later sees estimates revised: that is what a first start shows.
    expect(differs(young, nextMinute)).toBeGreaterThan(0.5);
    expect(differs(middle, nextToo)).toBe(0);
    expect(differs(young, middle)).toBeGreaterThan(0.5);
    expect(differs(middle, old)).toBeGreaterThan(0.03);
    expect(differs(old, older)).toBe(0);
    expect(middle?.flat().some((value) => value === undefined)).toBe(true);
    expect(old?.flat().every((value) => typeof value === "number" && value > 0)).toBe(true);
  });

  it("answers the same question the same way, in pages with a warning and the key echoed", () => {
    const url = new URL(
      "http://sandbox/eia/v2/electricity/rto/region-data/data/?api_key=sandbox&facets[type][]=D" +
        "&start=2026-11-01T00&end=2026-11-09T00&length=9000",
    );
    const ask = () =>
      answerEia(url, NOW).body as {
        response: { total: string; data: unknown[]; warnings: unknown[] };
        request: { params: object };
      };
    expect(ask()).toEqual(ask());
    expect(ask().response.data).toHaveLength(5_000);
    expect(Number(ask().response.total)).toBeGreaterThan(12_000);
    expect(ask().response.warnings).toHaveLength(1);
    expect(ask().request.params).toMatchObject({ api_key: "sandbox" });
  });
});
