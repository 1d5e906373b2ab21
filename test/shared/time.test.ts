import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  DURATION_FORM,
  INSTANT_FORM,
  instantProblem,
  iso,
  parseDuration,
  parseInstant,
} from "../../shared/time.ts";

describe("parseInstant", () => {
  it.each([
    ["2026-01-31", "2026-01-31T00:00:00.000Z"],
    ["2026-01-31T05:00:00Z", "2026-01-31T05:00:00.000Z"],
    ["2026-01-31T05:00Z", "2026-01-31T05:00:00.000Z"],
    ["2026-01-31T05:00:00", "2026-01-31T05:00:00.000Z"],
    ["2026-01-31 05:00:00+00:00", "2026-01-31T05:00:00.000Z"],
    ["2026-01-31T05:00:00-06:00", "2026-01-31T11:00:00.000Z"],
    ["2026-01-31T05:00:00+0530", "2026-01-30T23:30:00.000Z"],
    ["2026-01-31T05:00:00 02:00", "2026-01-31T03:00:00.000Z"],
    ["2024-02-29", "2024-02-29T00:00:00.000Z"],
    ["2026-01-31T05:00:00-05", "2026-01-31T10:00:00.000Z"],
    ["2026-01-31T05:00 05", "2026-01-31T00:00:00.000Z"],
    ["2026-01-31T24:00", "2026-02-01T00:00:00.000Z"],
    ["2026-01-31T24:00:00.000+01", "2026-01-31T23:00:00.000Z"],
  ])("reads %s", (text, instant) => {
    expect(iso(parseInstant(text) ?? NaN)).toBe(instant);
  });

  it("cuts digits beyond the millisecond, so that an as_of never reaches into its own future", () => {
    expect(parseInstant("2026-01-31T05:00:00.123999Z")).toBe(Date.UTC(2026, 0, 31, 5, 0, 0, 123));
  });

  it("rounds a lower bound up, so that it takes in nothing before it", () => {
    for (const [text, expected] of [
      ["2026-01-31T05:00:00.123000001Z", 124],
      ["2026-01-31T05:00:00.123000Z", 123],
      ["2026-01-31T05:00:00.9999Z", 1_000],
    ] as const) {
      expect(parseInstant(text, "up")).toBe(Date.UTC(2026, 0, 31, 5) + expected);
    }
  });

  it.each([
    "",
    " ",
    "now",
    "2026",
    "2026-1-31",
    "2026-02-30",
    "2025-02-29",
    "2026-13-01",
    "2026-00-10",
    "2026-01-31T24:00:01Z",
    "2026-01-31T24:01Z",
    "2026-01-31-05",
    "2026-01-31T05:60Z",
    "2026-01-31T05:00:61Z",
    "2026-01-31T05",
    "1767225600",
    "2026-01-31T05:00:00+25:00",
    "2026-01-31Z",
    "2026-01-31T05:00:00ZZ",
    "٢٠٢٦-٠١-٠١",
  ])("refuses %j", (text) => {
    expect(parseInstant(text)).toBeNull();
  });

  it.each([
    ["20260101T000000Z", "is of ISO 8601's basic form"],
    ["20260101", "is of ISO 8601's basic form"],
    ["2026-W05-6", "is a week date"],
    ["2026W05", "is a week date"],
    ["2026-031", "is an ordinal date"],
    ["2026031", "is an ordinal date"],
    ["2026-031T05:00Z", "is an ordinal date"],
    ["2026", "is a year or a month"],
    ["2026-01", "is a year or a month"],
    ["1767225600", "is a number of seconds or milliseconds"],
    ["2026-02-30", "is not an ISO 8601 date or datetime"],
    ["soon", "is not an ISO 8601 date or datetime"],
  ])("says why %s is refused, and which forms are read", (text, reason) => {
    expect(parseInstant(text)).toBeNull();
    const forms = "write 2026-01-31, 2026-01-31T05:20:00Z or 2026-01-31T00:20:00-05:00";
    expect(instantProblem(text)).toBe(`${reason}; ${forms}`);
  });

  it("reads back every instant it wrote, and never throws on any text", () => {
    const instants = fc.integer({ min: Date.UTC(1, 0), max: Date.UTC(9999, 11) });
    fc.assert(fc.property(instants, (at) => parseInstant(iso(at)) === at));
    fc.assert(
      fc.property(fc.string(), (text) => {
        const instant = parseInstant(text);
        return instant === null || Number.isFinite(instant);
      }),
    );
  });
});

describe("the forms that descriptions give", () => {
  const isInstant = (text: string) => new RegExp(`^${INSTANT_FORM}$`, "u").test(text);
  const isDuration = (text: string) => new RegExp(`^${DURATION_FORM}$`, "u").test(text);
  /** Texts near the truth: digits of every kind where instants and durations have them. */
  const near = (pattern: string) =>
    fc.stringMatching(new RegExp(`^${pattern}$`)).filter((text) => text === text.trim());

  it("match a text when the parser reads it, and no other", () => {
    const datetimes = near(
      "\\d{4}-[01]\\d-[0-3]\\d([Tt ][0-2]\\d:[0-6]\\d(:[0-6]\\d([.,]\\d{1,10})?)?([Zz]| ?[+ -][0-2]\\d:?[0-6]\\d)?)?",
    );
    fc.assert(
      fc.property(datetimes, (text) => {
        expect([text, isInstant(text)]).toEqual([text, parseInstant(text) !== null]);
      }),
      { numRuns: 5_000 },
    );
    const durations = near(
      "[+-]?P(\\d{0,8}W)?(\\d{0,8}D)?(T(\\d{0,3}H)?(\\d{0,3}M)?(\\d{0,3}([.,]\\d{0,4})?S)?)?",
    );
    fc.assert(
      fc.property(durations, (text) => {
        expect([text, isDuration(text)]).toEqual([text, parseDuration(text) !== null]);
      }),
      { numRuns: 5_000 },
    );
  });

  it("know the days that there are", () => {
    for (const year of [1900, 2000, 2023, 2024]) {
      for (let month = 1; month <= 12; month++) {
        for (let day = 0; day <= 32; day++) {
          const text = [year, month, day].map((part) => String(part).padStart(2, "0")).join("-");
          const isDay = new Date(Date.UTC(year, month - 1, day)).toISOString().startsWith(text);
          expect([text, isInstant(text), parseInstant(text) !== null]).toEqual([
            text,
            isDay,
            isDay,
          ]);
        }
      }
    }
  });

  it("keep a duration's milliseconds a safe integer", () => {
    const longest = "P999999W9999999DT999999999H9999999999M999999999999.999S";
    expect(Number.isSafeInteger(parseDuration(longest))).toBe(true);
    expect(parseDuration("P1000000W")).toBeNull();
  });
});
