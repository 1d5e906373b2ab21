// When data is late by its pipeline's own cadence, and the one verdict of a check.

import { expect, it } from "vitest";
import { outcomeOf, verdictOf } from "../../edge/markets/ingest/check.ts";
import { lateSince } from "../../edge/markets/ingest/lateness.ts";
import { pipelineOf } from "../../edge/markets/ingest/pipelines.ts";

const at = (text: string) => Date.parse(text);

it.each([
  // Two days old at the most, whatever a forecast says of tomorrow.
  ["grid_region", "2026-06-18T12:00Z", "2026-06-16T13:00Z", "2026-06-19T23:00Z", null],
  [
    "grid_region",
    "2026-06-18T12:00Z",
    "2026-06-16T11:00Z",
    "2026-06-19T23:00Z",
    "2026-06-18T11:00Z",
  ],
  // Thursday's report is late when its release window is over, not before.
  ["gas_storage", "2026-06-18T17:34Z", "2026-06-05T00:00Z", null, null],
  ["gas_storage", "2026-06-18T17:35Z", "2026-06-05T00:00Z", null, "2026-06-18T17:35Z"],
  ["gas_storage", "2026-06-25T14:00Z", "2026-06-12T00:00Z", null, null],
  // By 20:00 in Texas tomorrow's prices are there.
  ["day_ahead_prices", "2026-06-19T00:59Z", null, "2026-06-19T04:00Z", null],
  ["day_ahead_prices", "2026-06-19T01:00Z", null, "2026-06-19T04:00Z", "2026-06-19T01:00Z"],
  ["day_ahead_prices", "2026-06-19T01:00Z", null, "2026-06-20T04:00Z", null],
  ["system_load", "2026-06-18T20:00Z", "2026-06-18T11:00Z", null, "2026-06-18T19:00Z"],
  ["degree_days", "2026-06-19T00:00Z", "2026-04-01T00:00Z", null, null],
  ["degree_days", "2026-06-20T16:00Z", "2026-04-01T00:00Z", null, "2026-06-20T16:00Z"],
  // Nobody expects anything of what is run by hand.
  ["intraday_bars", "2026-06-18T12:00Z", "2020-01-02T15:00Z", null, null],
])("%s at %s with data to %s and %s is late since %s", (job, now, newest, horizon, since) => {
  const pipeline = pipelineOf(job);
  if (!pipeline) throw new Error(job);
  const age = {
    newest: newest === null ? null : at(newest),
    horizon: horizon === null ? null : at(horizon),
    asOf: at("2026-06-01T00:00Z"),
  };
  expect(lateSince(pipeline, age, at(now))).toBe(since === null ? null : at(since));
  const nothing = { newest: null, horizon: null, asOf: null };
  expect(lateSince(pipeline, nothing, at(now))).toBeNull();
});

it("calls a check that passed with warnings or stale symbols a warning, and no check failed", () => {
  const verdict = (passed: boolean, warnings: string[], stale_symbols: string[]) =>
    verdictOf(outcomeOf({ passed, warnings, stale_symbols }));
  expect(verdict(true, [], [])).toBe("passed");
  expect(verdict(true, ["aging"], [])).toBe("warning");
  expect(verdict(true, [], ["erco"])).toBe("warning");
  expect(verdict(false, [], [])).toBe("failed");
  expect(verdictOf(null)).toBe("failed");
});
