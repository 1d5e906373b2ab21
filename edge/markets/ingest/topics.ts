// What instruments are located at or about: functions of a symbol and an instrument to entities of
// the catalog graph, one of which each pipeline names.

/** What an instrument is located at or about. */
export interface Topic {
  type: "LOCATED_AT" | "FUELED_BY" | "ABOUT";
  label: string;
  key: string;
}

/** The topics of an instrument. */
export type TopicsOf = (symbol: string, instrumentId: string) => Topic[];

/** The symbols of the four contracts that were carried of a future. */
const contracts = (symbol: (contract: number) => string) => [1, 2, 3, 4].map(symbol);

/** Commodity by the name of a series or group; a name that is not here is its own commodity. */
const COMMODITIES: ReadonlyMap<string, string> = new Map(
  Object.entries({
    natural_gas: ["rngwhhd", ...contracts((n) => `rngc${n}`), "nghhuus", "gas_storage", "ung"],
    crude_oil: [
      "rwtc",
      "rbrte",
      ...contracts((n) => `rclc${n}`),
      "wtipuus",
      "brepuus",
      "uso",
      "wcestus1",
      "wcsstus1",
      "wcrstus1",
      "wcrfpus2",
      "w_epc0_sax_ycuok_mbbl",
      "wpuleus3",
    ],
    gasoline: [
      "eer_epmru_pf4_y35ny_dpg",
      ...contracts((n) => `eer_epmrr_pe${n}_y35ny_dpg`),
      "wgtstus1",
    ],
    heating_oil: ["eer_epd2f_pf4_y35ny_dpg", ...contracts((n) => `eer_epd2f_pe${n}_y35ny_dpg`)],
    petroleum_products: ["wrpupus2"],
    distillate: ["wdistus1"],
    propane: ["eer_epllpa_pf4_y44mb_dpg"],
  }).flatMap(([commodity, names]) => names.map((name) => [name, commodity] as const)),
);

const lastSegment = (instrumentId: string) => instrumentId.slice(instrumentId.lastIndexOf(".") + 1);

/** At the entity of a label that the symbol names. */
export const locatedAt =
  (label: string): TopicsOf =>
  (symbol) => [{ type: "LOCATED_AT", label, key: symbol }];
/** At the balancing authority that the symbol names. */
export const atAuthority = locatedAt("BalancingAuthority");
/** At its balancing authority, and fueled by what the instrument's last part names. */
export const byFuel: TopicsOf = (symbol, instrumentId) => [
  ...atAuthority(symbol, instrumentId),
  { type: "FUELED_BY", label: "FuelType", key: lastSegment(instrumentId) },
];
/** About the commodity that the symbol, or a part of the instrument, names. */
export const aboutCommodity: TopicsOf = (symbol, instrumentId) => {
  const known = [symbol, ...instrumentId.split(".")].find((name) => COMMODITIES.has(name));
  return [{ type: "ABOUT", label: "Commodity", key: COMMODITIES.get(known ?? "") ?? symbol }];
};
/** In the region that the instrument's last part names. */
export const inRegion: TopicsOf = (_symbol, instrumentId) => [
  { type: "LOCATED_AT", label: "Region", key: lastSegment(instrumentId) },
];
