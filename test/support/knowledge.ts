// The store's clock, moved by hand: what a series knows becomes known at times the test chooses.

import { sql } from "drizzle-orm";
import type { Database } from "../../edge/http/database.ts";
import { iso } from "../../shared/time.ts";

/**
 * Gives vintages of a `power.demand` series, by version, other knowledge times, and its head the
 * last one, as only the database's owner may. Only before compaction, whose objects hold the times
 * too. Returns all of them in order.
 */
export async function setKnowledgeTimes(
  owner: Database,
  symbol: string,
  times: Readonly<Record<number, number>>,
): Promise<number[]> {
  const series = sql`SELECT id FROM series WHERE library = 'power.demand' AND symbol = ${symbol}`;
  for (const [seq, time] of Object.entries(times)) {
    await owner.execute(sql`
      UPDATE vintage SET as_of = ${iso(time)}::timestamptz
       WHERE series_id = (${series}) AND seq = ${seq}::bigint`);
  }
  await owner.execute(sql`
    UPDATE series SET head_as_of = (SELECT max(as_of) FROM vintage WHERE series_id = id)
     WHERE id = (${series})`);
  const { rows } = await owner.execute<{ as_of: number }>(sql`
    SELECT (extract(epoch FROM as_of) * 1000)::float8 AS as_of FROM vintage
     WHERE series_id = (${series}) ORDER BY seq`);
  return rows.map((row) => row.as_of);
}
