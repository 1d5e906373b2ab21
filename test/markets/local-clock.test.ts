// Instants as a zone's clocks show them, beside what the platform's own calendar says of each.

import { expect, it } from "vitest";
import { localClock } from "../../edge/markets/panel.ts";
import { iso, MINUTE } from "../../shared/time.ts";

it("follows a zone that changed its clocks at one minute past midnight", () => {
  const clock = localClock("America/St_Johns");
  const shown = ["02:25", "02:30", "02:31", "02:35"].map((time) =>
    clock(Date.parse(`2009-11-01T${time}:00Z`)),
  );
  expect(shown).toEqual([
    "2009-10-31T23:55:00-02:30",
    "2009-11-01T00:00:00-02:30",
    "2009-10-31T23:01:00-03:30",
    "2009-10-31T23:05:00-03:30",
  ]);
});

it.each([
  "America/Chicago",
  "America/St_Johns",
  "Asia/Kathmandu",
  "Australia/Lord_Howe",
  "Pacific/Apia",
  "UTC",
])("shows what clocks of %s show, five minutes after five minutes around each change", (zone) => {
  const clock = localClock(zone);
  const format = new Intl.DateTimeFormat("en-CA", {
    timeZone: zone,
    hourCycle: "h23",
    dateStyle: "short",
    timeStyle: "medium",
  });
  const offset = (instant: number) => clock(instant).slice(19);
  const changes = [];
  for (let day = Date.parse("2006-01-01"); day < Date.parse("2013-01-01"); day += 24 * 60 * MINUTE)
    if (offset(day) !== offset(day + 24 * 60 * MINUTE - MINUTE)) changes.push(day);
  for (const day of changes) {
    for (let instant = day; instant < day + 24 * 60 * MINUTE; instant += 5 * MINUTE) {
      const wall = format.format(instant).replace(", ", "T");
      expect([iso(instant), clock(instant).slice(0, 19)]).toEqual([iso(instant), wall]);
    }
  }
  expect(changes.length).toBeGreaterThanOrEqual(
    zone === "UTC" || zone === "Asia/Kathmandu" ? 0 : 4,
  );
});
