// What the minute cron would let go of, at an instant that a test sets.

import type { Database } from "../../edge/http/database.ts";
import type { Retention, RetentionParts } from "../../edge/vision/base/retention.ts";

/** Lets go of the rows that these rules keep no longer. */
export async function forgetRows(
  parts: Partial<RetentionParts> & { database: Database; clock: () => number },
  ...rules: readonly Retention[]
): Promise<void> {
  // A rule asks for the limits of the service only where it is about one.
  for (const rule of rules) await parts.database.execute(rule.forget(parts as RetentionParts));
}
