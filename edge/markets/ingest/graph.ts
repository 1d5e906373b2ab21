// Writing the catalog graph: the entities and relations that a series implies (pure), and the one
// statement that records them as seen. What is known of a library is its pipeline's.

import { sql } from "drizzle-orm";
import type { Secret } from "../../../shared/secret.ts";
import { iso } from "../../../shared/time.ts";
import { type Database, openDatabase } from "../../http/database.ts";
import type { Pipeline } from "./pipeline.ts";
import { PIPELINES } from "./pipelines.ts";

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

const RECORD_MS_MAX = 2_000;

/** The pipeline that fills a library; those of one library speak of it alike. */
const FILLED_BY: ReadonlyMap<string, Pipeline> = new Map(
  PIPELINES.flatMap((pipeline) => pipeline.libraries.map((library) => [library, pipeline])),
);

/**
 * The part of the catalog graph that a series implies. For a library that no pipeline fills,
 * that is the library and its instruments only.
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
  const known = FILLED_BY.get(library);
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
