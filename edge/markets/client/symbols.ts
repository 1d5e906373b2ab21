// What the symbols, instruments and columns of every library are called, and in which unit they are
// counted: for the read API, which tells it, and for the console's pages, which write it beside
// every number.

import { z } from "zod";
import { authorityOf } from "./balancing-authorities.ts";

/** What a library's symbol is: name, clock, columns with their units, instruments. */
export const SymbolDescription = z
  .object({
    library: z.string().meta({ description: "library", example: "power.demand" }),
    symbol: z.string().meta({ description: "symbol", example: "erco" }),
    name: z.string().meta({ description: "what it is", example: "Demand, ERCOT" }),
    unit: z.string().nullable().meta({
      description: "of `value`; null where its instruments differ in it",
      example: "MWh",
    }),
    kind: z.enum(["actual", "ahead"]).meta({
      description:
        "ahead: forecasts, and next-day prices, whose newest Datetime lies in the future",
    }),
    time_zone: z.string().meta({
      description: "the market's own clock; Datetime itself is UTC",
      example: "America/Chicago",
    }),
    step: z.string().nullable().meta({
      description: "between two Datetimes, ISO 8601",
      example: "PT1H",
    }),
    columns: z
      .array(
        z.object({
          column: z.string().meta({ description: "name in answers", example: "value" }),
          unit: z.string().nullable().meta({ description: "null where it has none" }),
        }),
      )
      .meta({ description: "its value columns" }),
    instruments: z
      .array(
        z.object({
          instrument_id: z
            .string()
            .meta({ description: "as rows name it", example: "power.demand.erco" }),
          name: z.string().meta({ description: "name for people" }),
          unit: z.string().meta({ description: "of its values" }),
        }),
      )
      .meta({ description: "those known by name; others share the symbol's unit" }),
  })
  .meta({ id: "SymbolDescription" });
export type SymbolDescription = z.infer<typeof SymbolDescription>;

type Instrument = SymbolDescription["instruments"][number];
/** Name and unit of something whose identifier is known. */
type Label = readonly [name: string, unit: string];

interface LibraryDescription {
  kind: SymbolDescription["kind"];
  step: string | null;
  timeZone: string;
  /** What `value` is: the whole name, or the part before the symbol's. */
  describe: (symbol: string) => Partial<SymbolDescription> & { name: string; unit: string | null };
}

const [EASTERN, CENTRAL] = ["America/New_York", "America/Chicago"];
const PER_MWH = "$/MWh";
const PER_MMBTU = "$/MMBtu";
const PER_BARREL = "$/bbl";
const PER_GALLON = "$/gal";
const BARRELS = "thousand bbl";

const SPOT = new Map<string, Label>([
  ["rngwhhd", ["Henry Hub natural gas, spot", PER_MMBTU]],
  ["rwtc", ["WTI crude oil at Cushing, spot", PER_BARREL]],
  ["rbrte", ["Brent crude oil, spot", PER_BARREL]],
  ["eer_epmru_pf4_y35ny_dpg", ["Conventional gasoline, New York Harbor, spot", PER_GALLON]],
  ["eer_epd2f_pf4_y35ny_dpg", ["Heating oil, New York Harbor, spot", PER_GALLON]],
  ["eer_epllpa_pf4_y44mb_dpg", ["Propane, Mont Belvieu, spot", PER_GALLON]],
  ...[1, 2, 3, 4].flatMap((contract): [string, Label][] => [
    [`rngc${contract}`, [`Henry Hub natural gas, contract ${contract}`, PER_MMBTU]],
    [`rclc${contract}`, [`WTI crude oil, contract ${contract}`, PER_BARREL]],
    [`eer_epmrr_pe${contract}_y35ny_dpg`, [`RBOB gasoline, contract ${contract}`, PER_GALLON]],
    [`eer_epd2f_pe${contract}_y35ny_dpg`, [`Heating oil, contract ${contract}`, PER_GALLON]],
  ]),
]);

const OUTLOOK = new Map<string, Label>([
  ["nghhuus", ["Henry Hub natural gas, monthly outlook", PER_MMBTU]],
  ["wtipuus", ["WTI crude oil, monthly outlook", PER_BARREL]],
  ["brepuus", ["Brent crude oil, monthly outlook", PER_BARREL]],
]);

/** Reports of several instruments, by symbol. */
const REPORTS = new Map<string, { name: string; unit: string | null; parts: Map<string, Label> }>([
  [
    "gas_storage",
    {
      name: "Working gas in underground storage",
      unit: "Bcf",
      parts: new Map<string, Label>([
        ["r48", ["Lower 48", "Bcf"]],
        ["r31", ["East", "Bcf"]],
        ["r32", ["Midwest", "Bcf"]],
        ["r33", ["South Central", "Bcf"]],
        ["r33_salt", ["South Central, salt", "Bcf"]],
        ["r33_nonsalt", ["South Central, non-salt", "Bcf"]],
        ["r34", ["Mountain", "Bcf"]],
        ["r35", ["Pacific", "Bcf"]],
      ]),
    },
  ],
  [
    "petroleum_status",
    {
      name: "Petroleum status",
      unit: null,
      parts: new Map<string, Label>([
        ["wcestus1", ["Crude oil stocks, without the strategic reserve", BARRELS]],
        ["wcsstus1", ["Crude oil stocks, strategic reserve", BARRELS]],
        ["wcrstus1", ["Crude oil stocks, all", BARRELS]],
        ["w_epc0_sax_ycuok_mbbl", ["Crude oil stocks, Cushing", BARRELS]],
        ["wgtstus1", ["Gasoline stocks", BARRELS]],
        ["wdistus1", ["Distillate stocks", BARRELS]],
        ["wcrfpus2", ["Crude oil, field production", `${BARRELS}/d`]],
        ["wrpupus2", ["Petroleum products supplied", `${BARRELS}/d`]],
        ["wpuleus3", ["Refinery utilization", "%"]],
      ]),
    },
  ],
]);

const FUELS: Readonly<Record<string, string>> = {
  col: "Coal",
  ng: "Natural gas",
  nuc: "Nuclear",
  oil: "Petroleum",
  wat: "Hydro",
  sun: "Solar",
  wnd: "Wind",
  oth: "Other",
  unk: "Unknown",
  geo: "Geothermal",
  bat: "Batteries",
  ps: "Pumped storage",
  snb: "Solar with batteries",
  wnb: "Wind with batteries",
  oes: "Other storage",
  ues: "Unknown storage",
};

const FUNDS: Readonly<Record<string, string>> = {
  ung: "United States Natural Gas Fund",
  uso: "United States Oil Fund",
  xle: "Energy Select Sector SPDR",
  xlu: "Utilities Select Sector SPDR",
};

const byAuthority =
  (
    what: string,
    instrumentsOf?: (symbol: string) => Instrument[],
  ): LibraryDescription["describe"] =>
  (symbol) => {
    const { name, timeZone } = authorityOf(symbol);
    const instruments = instrumentsOf?.(symbol);
    return {
      name: `${what}, ${name}`,
      unit: "MWh",
      time_zone: timeZone,
      ...(instruments ? { instruments } : {}),
    };
  };

const hourly = (kind: SymbolDescription["kind"], describe: LibraryDescription["describe"]) => ({
  kind,
  step: "PT1H",
  timeZone: EASTERN,
  describe,
});

const pointName = (symbol: string) => {
  const region = symbol.slice(3).toUpperCase();
  if (symbol.startsWith("hb_")) return `hub ${region}`;
  return symbol.startsWith("lz_") ? `load zone ${region}` : symbol.toUpperCase();
};

const fuelsOf = (symbol: string): Instrument[] =>
  Object.entries(FUELS).map(([fuel, name]) => ({
    instrument_id: `power.generation_by_fuel.${symbol}.${fuel}`,
    name,
    unit: "MWh",
  }));

const LIBRARIES: Readonly<Record<string, LibraryDescription>> = {
  "power.demand": hourly("actual", byAuthority("Demand")),
  "power.demand_forecast": hourly("ahead", byAuthority("Day-ahead demand forecast")),
  "power.generation": hourly("actual", byAuthority("Net generation")),
  "power.interchange": hourly("actual", byAuthority("Interchange, exports positive")),
  "power.generation_by_fuel": hourly("actual", byAuthority("Net generation by fuel", fuelsOf)),
  "power.lmp": {
    kind: "actual",
    step: "PT15M",
    timeZone: CENTRAL,
    describe: (symbol) => ({
      name: `ERCOT real-time price, ${pointName(symbol)}`,
      unit: PER_MWH,
    }),
  },
  "power.dalmp": {
    kind: "ahead",
    step: "PT1H",
    timeZone: CENTRAL,
    describe: (symbol) => ({
      name: `ERCOT day-ahead price, ${pointName(symbol)}`,
      unit: PER_MWH,
    }),
  },
  "power.load": {
    kind: "actual",
    step: "PT1H",
    timeZone: CENTRAL,
    describe: () => ({ name: "ERCOT system load", unit: "MW" }),
  },
  "prices.spot": {
    kind: "actual",
    step: "P1D",
    timeZone: EASTERN,
    describe: (symbol) => named(SPOT.get(symbol), symbol),
  },
  "prices.intraday": {
    kind: "actual",
    step: "PT5M",
    timeZone: EASTERN,
    describe: (symbol) => ({
      name: `${FUNDS[symbol] ?? symbol.toUpperCase()}, 5-minute bars`,
      unit: "$",
      columns: ["value", "open", "high", "low", "close", "volume"].map((column) => ({
        column,
        unit: column === "volume" ? "shares" : "$",
      })),
    }),
  },
  "fundamentals.agency": {
    kind: "actual",
    step: "P7D",
    timeZone: EASTERN,
    describe: (symbol) => {
      const report = REPORTS.get(symbol);
      if (!report) return { kind: "ahead", step: "P1M", ...named(OUTLOOK.get(symbol), symbol) };
      const instruments = [...report.parts].map(([part, [name, unit]]) => ({
        instrument_id: `fundamentals.${symbol}.${part}`,
        name,
        unit,
      }));
      return { name: report.name, unit: report.unit, instruments };
    },
  },
  weather: {
    kind: "actual",
    step: "P1M",
    timeZone: EASTERN,
    describe: (symbol) => ({
      name: `${symbol === "cdd" ? "Cooling" : "Heating"} degree days, base 65 °F`,
      unit: "°F-days",
    }),
  },
};

const named = (known: Label | undefined, symbol: string) => ({
  name: known?.[0] ?? symbol.toUpperCase(),
  unit: known?.[1] ?? null,
});

/** A library that no pipeline fills: its numbers are shown as they are. */
const UNKNOWN: LibraryDescription = {
  kind: "actual",
  step: null,
  timeZone: "UTC",
  describe: (symbol) => ({ name: symbol, unit: null }),
};

/** What a symbol is. */
export function describeSymbol(library: string, symbol: string): SymbolDescription {
  const { kind, step, timeZone, describe } = LIBRARIES[library] ?? UNKNOWN;
  const own = describe(symbol);
  return {
    library,
    symbol,
    kind,
    step,
    time_zone: timeZone,
    columns: [{ column: "value", unit: own.unit }],
    instruments: [],
    ...own,
  };
}

/** The unit of one instrument and column of a symbol; null where none is known. */
export function unitOf(
  described: SymbolDescription,
  instrumentId: string,
  column: string,
): string | null {
  const instrument = described.instruments.find((one) => one.instrument_id === instrumentId);
  if (instrument && column === "value") return instrument.unit;
  return described.columns.find((one) => one.column === column)?.unit ?? null;
}

/** Whether the newest Datetime of a series may lie in the future. */
export const liesAhead = (library: string, symbol: string): boolean =>
  describeSymbol(library, symbol).kind === "ahead";
