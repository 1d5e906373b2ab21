// The Counters object, of which there is one: sums what every isolate of the service counted, and
// keeps the sums. A batch is a handful of small rows each few seconds, whatever the number of
// requests in it.

import { DurableObject } from "cloudflare:workers";
import { type Series, seriesKey, Tally } from "../../../shared/tally.ts";
import { DAY, systemClock } from "../../../shared/time.ts";
import { type CountersRpc, VISION_TABLE } from "./tally.ts";

/** An isolate that sent nothing for so long is gone. */
const ISOLATE_KEPT_MS = DAY;

export class Counters extends DurableObject implements CountersRpc {
  readonly #sql: SqlStorage;
  readonly #tally = new Tally(VISION_TABLE);
  readonly #since: number;

  constructor(context: DurableObjectState, environment: object) {
    // The base class types its environment by bindings that the object has no use for.
    super(context, environment as never);
    this.#sql = context.storage.sql;
    this.#sql.exec(`
      CREATE TABLE IF NOT EXISTS series (key TEXT PRIMARY KEY, value TEXT NOT NULL);
      CREATE TABLE IF NOT EXISTS isolate (
        id TEXT PRIMARY KEY, sequence INTEGER NOT NULL, heard INTEGER NOT NULL);
      CREATE TABLE IF NOT EXISTS beginning (
        id INTEGER PRIMARY KEY CHECK (id = 1), at INTEGER NOT NULL);`);
    this.#sql.exec("INSERT OR IGNORE INTO beginning (id, at) VALUES (1, ?)", systemClock());
    this.#since = Number(this.#sql.exec("SELECT at FROM beginning").one().at);
    // What another release counted otherwise is left out.
    const rows = this.#sql.exec<{ value: string }>("SELECT value FROM series").toArray();
    this.#tally.add(rows.map(({ value }) => JSON.parse(value) as Series));
  }

  async add(isolate: string, sequence: number, series: readonly Series[]): Promise<void> {
    const [known] = this.#sql
      .exec<{ sequence: number }>("SELECT sequence FROM isolate WHERE id = ?", isolate)
      .toArray();
    // It was taken, and its sender did not hear so.
    if (known && known.sequence >= sequence) return;
    const now = systemClock();
    this.#tally.add(series);
    // Nothing waits in between, so the platform writes all of it or none.
    for (const one of this.#tally.under(new Set(series.map(seriesKey)))) {
      this.#sql.exec(
        "INSERT OR REPLACE INTO series (key, value) VALUES (?, ?)",
        seriesKey(one),
        JSON.stringify(one),
      );
    }
    this.#sql.exec(
      "INSERT OR REPLACE INTO isolate (id, sequence, heard) VALUES (?, ?, ?)",
      isolate,
      sequence,
      now,
    );
    this.#sql.exec("DELETE FROM isolate WHERE heard < ?", now - ISOLATE_KEPT_MS);
  }

  async read(): Promise<{ since: number; series: Series[] }> {
    return { since: this.#since, series: this.#tally.list() };
  }
}
