// ERCOT's settlement points whose prices we hold: the trading hubs and the load zones.

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
