// What is wrong with the installation itself, and what its operator was told of it. Part of the
// vision database; the rest is `schema.ts`.

import { sql } from "drizzle-orm";
import {
  boolean,
  check,
  index,
  integer,
  pgTable,
  text,
  uniqueIndex,
  uuid,
} from "drizzle-orm/pg-core";
import { createdAt, id, instant } from "./schema.ts";

/** Something of the installation that is or was wrong. */
export const incident = pgTable(
  "incident",
  {
    id: id(),
    kind: text("kind")
      .$type<"node_lost" | "queue_stalled" | "duty_failed" | "backup_missing" | "endpoint_errors">()
      .notNull(),
    /** What it is of: a node's or an endpoint's id, a kind of task, a duty, a database. */
    subject: text("subject").notNull(),
    /** For people; without secrets. */
    detail: text("detail").notNull(),
    raisedAt: instant("raised_at").notNull(),
    recoveredAt: instant("recovered_at"),
  },
  (table) => [
    uniqueIndex("incident_open").on(table.kind, table.subject).where(sql`recovered_at IS NULL`),
    index("incident_raised").on(table.raisedAt),
    index("incident_recovered").on(table.recoveredAt).where(sql`recovered_at IS NOT NULL`),
    check(
      "incident_kind",
      sql`kind IN ('node_lost', 'queue_stalled', 'duty_failed', 'backup_missing',
        'endpoint_errors')`,
    ),
  ],
);

/** A message of an incident, and what became of it. */
export const incidentNotice = pgTable(
  "incident_notice",
  {
    id: id(),
    incidentId: uuid("incident_id")
      .notNull()
      .references(() => incident.id, { onDelete: "cascade" }),
    kind: text("kind").$type<"raised" | "recovered">().notNull(),
    delivery: text("delivery").$type<"pending" | "delivered" | "given_up" | "unsent">().notNull(),
    attempts: integer("attempts").notNull().default(0),
    nextAt: instant("next_at").notNull(),
    lastError: text("last_error"),
    createdAt: createdAt(),
  },
  (table) => [
    index("incident_notice_due").on(table.nextAt).where(sql`delivery = 'pending'`),
    index("incident_notice_incident").on(table.incidentId),
    check("incident_notice_kind", sql`kind IN ('raised', 'recovered')`),
  ],
);

/** A duty of the minute that failed the last time, and how many minutes in a row it has. */
export const dutyFailure = pgTable("duty_failure", {
  duty: text("duty").primaryKey(),
  failures: integer("failures").notNull(),
  /** The newest of those minutes, so that two crons of one count once. */
  minute: instant("minute").notNull(),
});

/**
 * When the newest whole backup of this database was made, in one row. `npm run backup` writes it as
 * the tables' owner; the service has no right to change it.
 */
export const databaseBackup = pgTable(
  "database_backup",
  {
    id: boolean("id").primaryKey().default(true),
    madeAt: instant("made_at").notNull(),
  },
  () => [check("database_backup_one", sql`id`)],
);
