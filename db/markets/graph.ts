// The catalog graph's database, optional and its own: which instruments there are, what they are
// located at or about, and when ingest first and last saw them. It can be rebuilt from nothing by
// running the pipelines. Migrations are generated from this file, append-only.

import { index, jsonb, pgTable, primaryKey, text, timestamp } from "drizzle-orm/pg-core";

const seen = () => {
  const instant = (name: string) =>
    timestamp(name, { withTimezone: true, precision: 3, mode: "string" }).notNull();
  return { firstSeen: instant("first_seen"), lastSeen: instant("last_seen") };
};

/** A node: an instrument, its library, a provider, or what an instrument is located at or about. */
export const entity = pgTable(
  "entity",
  {
    label: text("label").notNull(),
    key: text("key").notNull(),
    properties: jsonb("properties").notNull(),
    ...seen(),
  },
  (table) => [primaryKey({ columns: [table.label, table.key] })],
);

/** A directed edge between two entities. Both ends are written in the edge's own statement. */
export const relation = pgTable(
  "relation",
  {
    fromLabel: text("from_label").notNull(),
    fromKey: text("from_key").notNull(),
    type: text("type").notNull(),
    toLabel: text("to_label").notNull(),
    toKey: text("to_key").notNull(),
    ...seen(),
  },
  (table) => [
    primaryKey({
      columns: [table.fromLabel, table.fromKey, table.type, table.toLabel, table.toKey],
    }),
    index("relation_reverse").on(table.toLabel, table.toKey),
  ],
);
