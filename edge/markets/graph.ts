// Reading the catalog graph: its current state, without `as_of`. The graph is optional and a
// database of its own; one that does not answer costs a reader a moment and nothing else.

import { type SQL, sql } from "drizzle-orm";
import { Failure } from "../../shared/errors.ts";
import type { Secret } from "../../shared/secret.ts";
import { type Clock, systemClock } from "../../shared/time.ts";
import type { GraphEntity, GraphNeighbourhood, Health } from "../../shared/wire/markets.ts";
import { openDatabase, wireTime } from "../http/database.ts";

/** The verbs of a reader of the catalog graph. */
export interface CatalogGraph {
  /**
   * The cached state of the connection. Only the first call waits for an answer; later ones hand
   * what renews the state to `background`, which keeps it alive after the request.
   */
  state(background: (probe: Promise<unknown>) => void): Promise<Health["graph"]>;
  /** Entities of a label, or all, by label and key; fails with `graph_unavailable`. */
  entities(label?: string): Promise<GraphEntity[]>;
  /**
   * What lies within `depth` hops of an instrument, in either direction; nothing for one that the
   * graph does not know. Fails with `graph_unavailable`.
   */
  related(instrumentId: string, depth: number): Promise<GraphNeighbourhood>;
}

const ANSWER_MS_MAX = 1_500;
const PROBE_EVERY_MS = 10_000;
const ENTITIES_MAX = 1_000;
const SIBLINGS_MAX = 1_000;

/** A reader; nothing is connected until it is asked. */
export function openGraph(url: Secret | undefined, clock: Clock = systemClock): CatalogGraph {
  if (!url) return notConfigured;
  const database = openDatabase(url, { timeoutMs: ANSWER_MS_MAX });
  let known: "connected" | "unavailable" | undefined;
  let askedAt = 0;

  async function ask<Row>(statement: SQL): Promise<Row[]> {
    askedAt = clock();
    try {
      const { rows } = await database.execute<Row & Record<string, unknown>>(statement);
      known = "connected";
      return rows;
    } catch (cause) {
      known = "unavailable";
      throw unavailable("the catalog graph does not answer; try again", cause);
    }
  }
  const probe = () =>
    ask(sql`SELECT 1 FROM entity LIMIT 1`).then(
      () => "connected" as const,
      () => "unavailable" as const,
    );

  return {
    async state(background) {
      // Each first request probes for itself: none may wait for what another request has begun.
      if (!known) return probe();
      if (clock() - askedAt >= PROBE_EVERY_MS) background(probe());
      return known;
    },
    entities: (label) => ask<GraphEntity>(selectEntities(label)),
    async related(instrumentId, depth) {
      const [neighbourhood] = await ask<Neighbourhood>(selectRelated(instrumentId, depth));
      const { entities = [], relations = [], siblings = [], beyond = false } = neighbourhood ?? {};
      return {
        instrument_id: instrumentId,
        depth,
        entities,
        relations,
        siblings: siblings.slice(0, SIBLINGS_MAX),
        truncated: beyond || siblings.length > SIBLINGS_MAX,
      };
    },
  };
}

const unavailable = (detail: string, cause?: unknown) =>
  new Failure("graph_unavailable", detail, { cause });

const refuse = () =>
  Promise.reject(unavailable("this service has no catalog graph: GRAPH_DATABASE_URL is not set"));
const notConfigured: CatalogGraph = {
  state: async () => "not_configured",
  entities: refuse,
  related: refuse,
};

interface Neighbourhood extends Pick<GraphNeighbourhood, "entities" | "relations" | "siblings"> {
  /** Whether more entities are within reach than were selected. */
  beyond: boolean;
}

const PROPERTIES = sql`properties || jsonb_build_object('first_seen', ${wireTime(sql`first_seen`)},
  'last_seen', ${wireTime(sql`last_seen`)})`;

function selectEntities(label: string | undefined): SQL {
  const where = label === undefined ? sql`` : sql`WHERE label = ${label}`;
  return sql`SELECT label, key, ${PROPERTIES} AS properties FROM entity ${where}
    ORDER BY label COLLATE "C", key COLLATE "C"`;
}

/**
 * One row: the nearest entities with every relation among them, and the siblings. A library and a
 * provider connect, but make no siblings.
 */
const selectRelated = (instrumentId: string, depth: number): SQL => sql`
  WITH RECURSIVE edge AS (
    SELECT from_label AS label, from_key AS key, to_label, to_key FROM relation
    UNION ALL
    SELECT to_label, to_key, from_label, from_key FROM relation),
  reached (label, key, distance) AS (
    SELECT 'Instrument', ${instrumentId}::text, 0
    UNION
    SELECT to_label, to_key, distance + 1 FROM reached JOIN edge USING (label, key)
     WHERE distance < ${depth}::int),
  ranked AS (
    SELECT label, key, min(distance) AS distance,
      row_number() OVER (ORDER BY min(distance), label COLLATE "C", key COLLATE "C") - 1 AS rank
      FROM reached GROUP BY label, key),
  near AS (SELECT * FROM ranked WHERE rank <= ${ENTITIES_MAX}::int),
  sibling AS (
    SELECT other.from_key AS key FROM relation mine JOIN relation other USING (to_label, to_key)
     WHERE mine.from_label = 'Instrument' AND mine.from_key = ${instrumentId}
       AND to_label NOT IN ('Library', 'Provider')
       AND other.from_label = 'Instrument' AND other.from_key <> mine.from_key
     GROUP BY other.from_key ORDER BY other.from_key COLLATE "C" LIMIT ${SIBLINGS_MAX + 1}::int)
  SELECT EXISTS (SELECT FROM ranked WHERE rank > ${ENTITIES_MAX}::int) AS beyond,
    (SELECT coalesce(json_agg(json_build_object('label', label, 'key', key,
        'properties', ${PROPERTIES}, 'distance', distance) ORDER BY rank), '[]')
      FROM near JOIN entity USING (label, key) WHERE rank > 0) AS entities,
    (SELECT coalesce(json_agg(json_build_object(
        'from', json_build_object('label', from_label, 'key', from_key), 'type', type,
        'to', json_build_object('label', to_label, 'key', to_key))
        ORDER BY a.rank, type COLLATE "C", b.rank), '[]')
      FROM relation JOIN near a ON (a.label, a.key) = (from_label, from_key)
        JOIN near b ON (b.label, b.key) = (to_label, to_key)) AS relations,
    (SELECT coalesce(json_agg(key ORDER BY key COLLATE "C"), '[]') FROM sibling) AS siblings`;
