// Writing the catalog graph: the entities and relations that a series implies (pure), and the one
// statement that records them as seen. What is known of a library is its row in the table below.

import { sql } from "drizzle-orm";
import type { Secret } from "../../../shared/secret.ts";
import { iso } from "../../../shared/time.ts";
import { type Database, openDatabase } from "../../http/database.ts";

/** A series that ingest saw, with the instruments its rows name. */
export interface SeenSeries {
  library: string;
  symbol: string;
  instrumentIds: readonly string[];
}

/** A node of the catalog graph. */
export interface Entity {
  label: string;
  key: string;
  properties: Readonly<Record<string, string>>;
}

/** A directed edge of the catalog graph. */
export interface Relation {
  fromLabel: string;
  fromKey: string;
  type: string;
  toLabel: string;
  toKey: string;
}

/** What an instrument is located at or about. */
interface Topic {
  type: "LOCATED_AT" | "FUELED_BY" | "ABOUT";
  label: string;
  key: string;
}

type TopicsOf = (symbol: string, instrumentId: string) => Topic[];

const RECORD_MS_MAX = 2_000;

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

const locatedAt =
  (label: string): TopicsOf =>
  (symbol) => [{ type: "LOCATED_AT", label, key: symbol }];
const atAuthority = locatedAt("BalancingAuthority");
const byFuel: TopicsOf = (symbol, instrumentId) => [
  ...atAuthority(symbol, instrumentId),
  { type: "FUELED_BY", label: "FuelType", key: lastSegment(instrumentId) },
];
const aboutCommodity: TopicsOf = (symbol, instrumentId) => {
  const known = [symbol, ...instrumentId.split(".")].find((name) => COMMODITIES.has(name));
  return [{ type: "ABOUT", label: "Commodity", key: COMMODITIES.get(known ?? "") ?? symbol }];
};
const inRegion: TopicsOf = (_symbol, instrumentId) => [
  { type: "LOCATED_AT", label: "Region", key: lastSegment(instrumentId) },
];

const LIBRARIES: ReadonlyMap<string, { provider: string; topicsOf: TopicsOf }> = new Map([
  ["power.demand", { provider: "eia", topicsOf: atAuthority }],
  ["power.demand_forecast", { provider: "eia", topicsOf: atAuthority }],
  ["power.generation", { provider: "eia", topicsOf: atAuthority }],
  ["power.interchange", { provider: "eia", topicsOf: atAuthority }],
  ["power.generation_by_fuel", { provider: "eia", topicsOf: byFuel }],
  ["power.lmp", { provider: "ercot", topicsOf: locatedAt("SettlementPoint") }],
  ["power.dalmp", { provider: "ercot", topicsOf: locatedAt("SettlementPoint") }],
  ["power.load", { provider: "ercot", topicsOf: locatedAt("Market") }],
  ["prices.spot", { provider: "eia", topicsOf: aboutCommodity }],
  ["prices.intraday", { provider: "twelve_data", topicsOf: aboutCommodity }],
  ["fundamentals.agency", { provider: "eia", topicsOf: aboutCommodity }],
  ["weather", { provider: "noaa", topicsOf: inRegion }],
]);

/**
 * The part of the catalog graph that a series implies. Of a library that is not in the table, that
 * is the library and its instruments only.
 */
export function catalogGraphOf({ library, symbol, instrumentIds }: SeenSeries) {
  const entities = new Map<string, Entity>();
  const relations: Relation[] = [];
  const add = (label: string, key: string, properties: Entity["properties"] = {}) =>
    entities.set(`${label} ${key}`, { label, key, properties });
  const relate = (from: [label: string, key: string], type: string, to: typeof from) => {
    add(...to);
    const [[fromLabel, fromKey], [toLabel, toKey]] = [from, to];
    relations.push({ fromLabel, fromKey, type, toLabel, toKey });
  };
  const known = LIBRARIES.get(library);
  add("Library", library);
  if (known) relate(["Library", library], "PROVIDED_BY", ["Provider", known.provider]);
  for (const id of instrumentIds) {
    add("Instrument", id, { library, symbol });
    relate(["Instrument", id], "IN_LIBRARY", ["Library", library]);
    for (const { type, label, key } of known?.topicsOf(symbol, id) ?? []) {
      relate(["Instrument", id], type, [label, key]);
    }
  }
  return { entities: [...entities.values()], relations };
}

/** A handle for `recordSeen` that gives up after two seconds, the longest an execution waits. */
export const openGraphWriter = (url: Secret): Database =>
  openDatabase(url, { timeoutMs: RECORD_MS_MAX });

/**
 * Records series as seen at an instant, in one statement. Repeated, or late, it changes nothing
 * but what it adds: `first_seen` only ever falls and `last_seen` only ever rises.
 */
export async function recordSeen(
  database: Database,
  series: readonly SeenSeries[],
  seenAt: number,
): Promise<void> {
  const graphs = series.map(catalogGraphOf);
  const entities = JSON.stringify(graphs.flatMap((graph) => graph.entities));
  const relations = JSON.stringify(graphs.flatMap((graph) => graph.relations));
  const at = sql`${iso(seenAt)}::timestamptz`;
  const widen = sql`first_seen = least(known.first_seen, excluded.first_seen),
    last_seen = greatest(known.last_seen, excluded.last_seen)`;
  // Rows are locked in one order, or two executions at once could wait for each other.
  await database.execute(sql`
    WITH recorded AS (
      INSERT INTO entity AS known (label, key, properties, first_seen, last_seen)
      SELECT DISTINCT ON (label, key) label, key, properties, ${at}, ${at}
        FROM jsonb_to_recordset(${entities}::jsonb) AS x(label text, key text, properties jsonb)
       ORDER BY label, key
      ON CONFLICT (label, key) DO UPDATE SET properties = excluded.properties, ${widen})
    INSERT INTO relation AS known (from_label, from_key, type, to_label, to_key, first_seen, last_seen)
    SELECT DISTINCT "fromLabel", "fromKey", type, "toLabel", "toKey", ${at}, ${at}
      FROM jsonb_to_recordset(${relations}::jsonb)
        AS x("fromLabel" text, "fromKey" text, type text, "toLabel" text, "toKey" text)
     ORDER BY 1, 2, 3, 4, 5
    ON CONFLICT (from_label, from_key, type, to_label, to_key) DO UPDATE SET ${widen}`);
}
