// When weekly reports come out. The federal holidays are those that the Office of Personnel
// Management lists; shifts are those of EIA's calendars.

import { expect, it } from "vitest";
import {
  federalHolidays,
  gasStorageRelease,
  petroleumRelease,
} from "../../edge/markets/ingest/releases.ts";
import { iso, isoDay } from "../../shared/time.ts";

it.each([
  [
    2026,
    "2026-01-01 2026-01-19 2026-02-16 2026-05-25 2026-06-19 2026-07-03 2026-09-07 2026-10-12 " +
      "2026-11-11 2026-11-26 2026-12-25",
  ],
  // New Year's Day of 2028 is a Saturday.
  [
    2027,
    "2027-01-01 2027-01-18 2027-02-15 2027-05-31 2027-06-18 2027-07-05 2027-09-06 2027-10-11 " +
      "2027-11-11 2027-11-25 2027-12-24 2027-12-31",
  ],
])("knows the federal holidays of %i", (year, days) => {
  expect(federalHolidays(year).map(isoDay)).toEqual(days.split(" "));
});

it.each([
  // Announced.
  [gasStorageRelease, "2026-11-06", "2026-11-13T15:30:00.000Z", false],
  [gasStorageRelease, "2026-11-20", "2026-11-25T17:00:00.000Z", false],
  // As in the years before: Thanksgiving, Independence Day, Juneteenth, Christmas, New Year.
  [gasStorageRelease, "2025-11-21", "2025-11-26T17:00:00.000Z", true],
  [gasStorageRelease, "2024-06-28", "2024-07-03T16:00:00.000Z", true],
  [gasStorageRelease, "2024-06-14", "2024-06-21T14:30:00.000Z", true],
  [gasStorageRelease, "2024-12-27", "2025-01-03T15:30:00.000Z", true],
  [petroleumRelease, "2026-09-04", "2026-09-10T15:00:00.000Z", true],
  [petroleumRelease, "2026-11-06", "2026-11-12T16:00:00.000Z", true],
] as const)("moves a report for a holiday: %o of %s to %s", (release, key, at, isDerived) => {
  const time = release(key);
  expect(time && { at: iso(time.at), isDerived: time.isDerived }).toEqual({ at, isDerived });
});

it("leaves other weeks at their usual hour", () => {
  for (const key of ["2026-06-12", "2026-09-04", "2026-01-16"])
    expect(gasStorageRelease(key)).toBe(null);
  for (const key of ["2026-06-12", "2026-11-20", "2026-07-03"])
    expect(petroleumRelease(key)).toBe(null);
});
