// The futures calendar against holidays and last trading days that really were.

import { describe, expect, it } from "vitest";
import {
  crudeOilExpiry,
  deliveryMonth,
  isTradingDay,
  naturalGasExpiry,
  refinedProductExpiry,
} from "../../edge/markets/store/trading-days.ts";
import { isoDay } from "../../shared/time.ts";

const at = (day: string) => Date.parse(`${day}T00:00:00Z`);
const month = (text: string) => at(`${text}-01`);

describe("isTradingDay", () => {
  it.each([
    ["New Year", "2024-01-01"],
    ["New Year on a Sunday", "2023-01-02"],
    ["Martin Luther King", "2024-01-15"],
    ["Presidents", "2024-02-19"],
    ["Good Friday", "2018-03-30"],
    ["Good Friday", "2019-04-19"],
    ["Good Friday", "2021-04-02"],
    ["Good Friday", "2024-03-29"],
    ["Good Friday", "2025-04-18"],
    ["Good Friday", "2026-04-03"],
    ["Memorial", "2024-05-27"],
    ["Memorial on the 31st", "2021-05-31"],
    ["Juneteenth", "2024-06-19"],
    ["Juneteenth on a Sunday", "2022-06-20"],
    ["Independence", "2024-07-04"],
    ["Independence on a Saturday", "2020-07-03"],
    ["Labor", "2024-09-02"],
    ["Thanksgiving", "2023-11-23"],
    ["Thanksgiving on the 28th", "2024-11-28"],
    ["Christmas", "2024-12-25"],
    ["Christmas on a Saturday", "2021-12-24"],
    ["Christmas on a Sunday", "2022-12-26"],
    ["a Saturday", "2024-03-02"],
    ["a Sunday", "2024-03-03"],
  ])("closes on %s, %s", (_, day) => {
    expect(isTradingDay(at(day))).toBe(false);
  });

  it.each([
    ["the eve of a New Year on a Saturday", "2021-12-31"],
    ["Juneteenth before the exchange kept it", "2020-06-19"],
    ["Easter Monday", "2024-04-01"],
    ["the Friday after Thanksgiving", "2023-11-24"],
    ["Columbus Day", "2024-10-14"],
    ["Veterans Day", "2024-11-11"],
  ])("trades on %s, %s", (_, day) => {
    expect(isTradingDay(at(day))).toBe(true);
  });
});

describe("last trading days", () => {
  it.each([
    ["2021-12", "2021-11-26"],
    ["2024-01", "2023-12-27"],
    ["2024-02", "2024-01-29"],
    ["2024-03", "2024-02-27"],
    ["2024-04", "2024-03-26"],
    ["2024-05", "2024-04-26"],
    ["2024-06", "2024-05-29"],
  ])("natural gas of %s expired on %s", (delivery, day) => {
    expect(isoDay(naturalGasExpiry(month(delivery)))).toBe(day);
  });

  it.each([
    ["2020-05", "2020-04-21"],
    ["2022-01", "2021-12-20"],
    ["2023-01", "2022-12-20"],
    ["2023-12", "2023-11-20"],
    ["2024-02", "2024-01-22"],
    ["2024-05", "2024-04-22"],
  ])("crude oil of %s expired on %s", (delivery, day) => {
    expect(isoDay(crudeOilExpiry(month(delivery)))).toBe(day);
  });

  it.each([
    ["2022-01", "2021-12-31"],
    ["2024-04", "2024-03-28"],
    ["2024-05", "2024-04-30"],
  ])("gasoline and heating oil of %s expired on %s", (delivery, day) => {
    expect(isoDay(refinedProductExpiry(month(delivery)))).toBe(day);
  });
});

describe("deliveryMonth", () => {
  const front = (expiry: typeof naturalGasExpiry, day: string, contract = 1) =>
    isoDay(deliveryMonth(expiry, at(day), contract)).slice(0, 7);

  it("keeps a contract the first through its last trading day", () => {
    expect(front(naturalGasExpiry, "2024-04-26")).toBe("2024-05");
    expect(front(naturalGasExpiry, "2024-04-29")).toBe("2024-06");
    expect(front(crudeOilExpiry, "2024-04-22")).toBe("2024-05");
    expect(front(crudeOilExpiry, "2024-04-23")).toBe("2024-06");
    expect(front(refinedProductExpiry, "2024-04-30")).toBe("2024-05");
    expect(front(refinedProductExpiry, "2024-05-01")).toBe("2024-06");
  });

  it("counts later contracts in months, over the end of a year", () => {
    const months = [1, 2, 3, 4].map((contract) => front(crudeOilExpiry, "2023-10-24", contract));
    expect(months).toEqual(["2023-12", "2024-01", "2024-02", "2024-03"]);
  });
});
