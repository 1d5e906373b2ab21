// ERCOT's settlement points whose prices we hold: the trading hubs and the load zones.

import { DAY } from "../../../shared/time.ts";
import { operatingDay } from "../store/operating-day.ts";

/** Libraries of prices: real time, and the day ahead. */
export type PriceLibrary = "power.lmp" | "power.dalmp";

/**
 * Settlement point → its type in the real-time report. Load zones come there a second time as type
 * LZEW, energy weighted, with other prices; those are left out.
 */
export const SETTLEMENT_POINTS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    HU: ["HB_HOUSTON", "HB_NORTH", "HB_SOUTH", "HB_WEST", "HB_PAN"],
    SH: ["HB_BUSAVG"],
    AH: ["HB_HUBAVG"],
    LZ: [
      ...["LZ_AEN", "LZ_CPS", "LZ_HOUSTON", "LZ_LCRA"],
      ...["LZ_NORTH", "LZ_RAYBN", "LZ_SOUTH", "LZ_WEST"],
    ],
  }).flatMap(([type, points]) => points.map((point) => [point, type] as const)),
);

/** The types to ask for, each once. */
export const SETTLEMENT_POINT_TYPES = [...new Set(SETTLEMENT_POINTS.values())];

/** As symbols: `hb_north`. */
export const SETTLEMENT_SYMBOLS: ReadonlySet<string> = new Set(
  [...SETTLEMENT_POINTS.keys()].map((point) => point.toLowerCase()),
);

/** The first operating days of the points that began after our first partition, by library. */
const FIRST_DAYS: Readonly<Record<PriceLibrary, ReadonlyMap<string, string>>> = {
  "power.lmp": new Map([["HB_PAN", "2019-04-05"]]),
  "power.dalmp": new Map([["HB_PAN", "2019-04-06"]]),
};

/** The points that have a price at an instant. */
export function pointsAt(library: PriceLibrary, instant: number): string[] {
  const firstDays = FIRST_DAYS[library];
  const all = [...SETTLEMENT_POINTS.keys()];
  // Nearly always: no day of a zone begins so late.
  if ([...firstDays.values()].every((first) => instant >= Date.parse(first) + DAY)) return all;
  const { key } = operatingDay(instant);
  return all.filter((point) => key >= (firstDays.get(point) ?? ""));
}
