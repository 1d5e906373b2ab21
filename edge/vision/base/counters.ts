// The Counters object, of which there is one: sums what every isolate of the service counted, and
// keeps the sums. A batch is one row, that of its isolate, whatever is in it; the rows of isolates
// that were heard of longest ago are added to the sums for good.

import { DurableObject } from "cloudflare:workers";
import { type Series, seriesKey, Tally } from "../../../shared/tally.ts";
import { DAY, systemClock } from "../../../shared/time.ts";
import { type CountersRpc, VISION_TABLE } from "./tally.ts";

/** Isolates with a row of their own figures. */
const ISOLATES_MAX = 64;
/** An isolate that sent nothing for so long sends nothing again. */
const ISOLATE_KEPT_MS = DAY;
const NONE = "[]";

export class Counters extends DurableObject implements CountersRpc {
  readonly #sql: SqlStorage;
  /** All that was ever counted. */
  readonly #tally = new Tally(VISION_TABLE);
  readonly #since: number;

  constructor(context: DurableObjectState, environment: object) {
    // The base class types its environment by bindings that the object has no use for.
    super(context, environment as never);
    this.#sql = context.storage.sql;
    this.#sql.exec(`
      CREATE TABLE IF NOT EXISTS series (key TEXT PRIMARY KEY, value TEXT NOT NULL);
      CREATE TABLE IF NOT EXISTS isolate (
        id TEXT PRIMARY KEY, sequence INTEGER NOT NULL, heard INTEGER NOT NULL,
        series TEXT NOT NULL);
      CREATE TABLE IF NOT EXISTS beginning (
        id INTEGER PRIMARY KEY CHECK (id = 1), at INTEGER NOT NULL);`);
    this.#sql.exec("INSERT OR IGNORE INTO beginning (id, at) VALUES (1, ?)", systemClock());
    this.#since = Number(this.#sql.exec("SELECT at FROM beginning").one().at);
    // What another release counted otherwise is left out.
    for (const { value } of this.#sql.exec<{ value: string }>("SELECT value FROM series")) {
      this.#tally.add([JSON.parse(value) as Series]);
    }
    for (const { series } of this.#sql.exec<{ series: string }>("SELECT series FROM isolate")) {
      this.#tally.add(JSON.parse(series) as Series[]);
    }
  }

  async add(isolate: string, sequence: number, series: readonly Series[]): Promise<void> {
    const [known] = this.#sql
      .exec<{ sequence: number; series: string }>(
        "SELECT sequence, series FROM isolate WHERE id = ?",
        isolate,
      )
      .toArray();
    // It was taken, and its sender did not hear so.
    if (known && known.sequence >= sequence) return;
    const own = new Tally(VISION_TABLE);
    if (known) own.add(JSON.parse(known.series) as Series[]);
    own.add(series);
    const now = systemClock();
    // Nothing waits in between, so the platform writes all of it or none.
    this.#sql.exec(
      "INSERT OR REPLACE INTO isolate (id, sequence, heard, series) VALUES (?, ?, ?, ?)",
      isolate,
      sequence,
      now,
      JSON.stringify(own.list()),
    );
    this.#foldOldest();
    this.#sql.exec(
      "DELETE FROM isolate WHERE heard < ? AND series = ?",
      now - ISOLATE_KEPT_MS,
      NONE,
    );
    this.#tally.add(series);
  }

  async read(): Promise<{ since: number; series: Series[] }> {
    return { since: this.#since, series: this.#tally.list() };
  }

  /** Adds figures to the sums, of isolates beyond those that have a row for them. */
  #foldOldest(): void {
    const rows = this.#sql
      .exec<{ id: string; series: string }>(
        "SELECT id, series FROM isolate WHERE series <> ? ORDER BY heard DESC, id LIMIT -1 OFFSET ?",
        NONE,
        ISOLATES_MAX,
      )
      .toArray();
    for (const { id, series } of rows) {
      const sums = new Tally(VISION_TABLE);
      sums.add(JSON.parse(series) as Series[]);
      const keys = new Set(sums.list().map(seriesKey));
      for (const key of keys) {
        const stored = this.#sql.exec<{ value: string }>(
          "SELECT value FROM series WHERE key = ?",
          key,
        );
        for (const { value } of stored) sums.add([JSON.parse(value) as Series]);
      }
      for (const one of sums.under(keys)) {
        this.#sql.exec(
          "INSERT OR REPLACE INTO series (key, value) VALUES (?, ?)",
          seriesKey(one),
          JSON.stringify(one),
        );
      }
      this.#sql.exec("UPDATE isolate SET series = ? WHERE id = ?", NONE, id);
    }
  }
}
