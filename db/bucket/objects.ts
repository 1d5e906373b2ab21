// What either database knows of its bucket as a whole.

import { sql } from "drizzle-orm";
import { boolean, check, index, pgTable, text, timestamp, uuid } from "drizzle-orm/pg-core";

const instant = (name: string) =>
  timestamp(name, { withTimezone: true, precision: 3, mode: "string" });

/** The identity that the bucket of this database holds too. There is one row at most. */
export const bucketIdentity = pgTable(
  "bucket_identity",
  {
    only: boolean("only").primaryKey().default(true),
    id: uuid("id").notNull(),
    adoptedAt: instant("adopted_at").notNull().defaultNow(),
    /** Whether it was written to the bucket: one that was, and is not there, is missed. */
    isInBucket: boolean("is_in_bucket").notNull().default(false),
  },
  (table) => [check("bucket_identity_only", sql`${table.only}`)],
);

/** Objects that nothing names any more. They are deleted once their grace is over. */
export const discardedObject = pgTable(
  "discarded_object",
  {
    /** A key, or a folder with the slash at its end. */
    key: text("key").primaryKey(),
    discardedAt: instant("discarded_at").notNull().defaultNow(),
  },
  (table) => [index("discarded_object_due").on(table.discardedAt)],
);
