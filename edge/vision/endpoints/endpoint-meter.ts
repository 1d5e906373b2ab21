// The EndpointMeter object: counts what becomes of an endpoint's requests, and limits its keys.
// Counts stay in memory until the next flush, ten seconds or some hundred requests later, and lie
// then in the object's own SQLite: minutes for the last hour, hours for the last week, a row for
// each model and none for a request. An eviction loses what came since the last flush.

import { DurableObject } from "cloudflare:workers";
import type { WindowName } from "../../../shared/endpoints.ts";
import { DAY, HOUR, MINUTE, systemClock } from "../../../shared/time.ts";
import { REFERENCE_DETECTIONS } from "./drift.ts";
import type {
  KeyGate,
  MeterReading,
  MeterRequest,
  MeterRpc,
  MeterShadow,
  MeterWindow,
} from "./meter.ts";
import { addRequest, addShadowOf, emptyRollup, merge, type Rollup } from "./rollups.ts";
import { fullBucket, type TokenBucket, take } from "./token-bucket.ts";

const FLUSH_MS = 10_000;
const FLUSH_REQUESTS = 256;
/** A request that was not heard of for so long has no answer any more. */
const RUNNING_MS_MAX = 5 * MINUTE;
/** How long ids of ended requests are known, so that a repeated report counts nothing. */
const ENDED_MS = MINUTE;
const NO_MODEL = "";

/** Of each grain: how long one lasts, and how long they are kept. */
const GRAINS = {
  minute: { ms: MINUTE, keptMs: 2 * HOUR },
  hour: { ms: HOUR, keptMs: 8 * DAY },
} as const;
type Grain = keyof typeof GRAINS;

/** Of each window: how long it is, and which grains it is made of. */
const WINDOW_PARTS: Readonly<Record<WindowName, { ms: number; grain: Grain }>> = {
  "1h": { ms: HOUR, grain: "minute" },
  "24h": { ms: DAY, grain: "hour" },
  "7d": { ms: 7 * DAY, grain: "hour" },
};

/** Counts of a minute and a model that are in memory only. */
interface FreshRollup {
  minute: number;
  modelId: string;
  rollup: Rollup;
}

const startOf = (at: number, grain: Grain) => at - (at % GRAINS[grain].ms);

export class EndpointMeter extends DurableObject implements MeterRpc {
  readonly #sql: SqlStorage;
  #fresh = new Map<string, FreshRollup>();
  #unwritten = 0;
  #flushIsSet = false;
  /** When each request that is under way began, by its id. */
  readonly #running = new Map<string, number>();
  /** When each request ended of which a second report may come, in this order. */
  readonly #ended = new Map<string, number>();
  readonly #buckets = new Map<string, TokenBucket>();
  readonly #references = new Map<string, number[]>();

  constructor(context: DurableObjectState, environment: object) {
    // The base class types its environment by bindings that a meter has no use for.
    super(context, environment as never);
    this.#sql = context.storage.sql;
    this.#sql.exec(`
      CREATE TABLE IF NOT EXISTS rollup (
        grain TEXT NOT NULL, start INTEGER NOT NULL, model TEXT NOT NULL, counts TEXT NOT NULL,
        PRIMARY KEY (grain, start, model));
      CREATE TABLE IF NOT EXISTS reference (model TEXT PRIMARY KEY, bins TEXT NOT NULL);
      CREATE TABLE IF NOT EXISTS bucket (
        key TEXT PRIMARY KEY, tokens REAL NOT NULL, at INTEGER NOT NULL);`);
    for (const row of this.#sql.exec("SELECT model, bins FROM reference")) {
      this.#references.set(String(row.model), JSON.parse(String(row.bins)) as number[]);
    }
    for (const row of this.#sql.exec("SELECT key, tokens, at FROM bucket")) {
      this.#buckets.set(String(row.key), { tokens: Number(row.tokens), at: Number(row.at) });
    }
  }

  async begin(id: string, gate: KeyGate | null): Promise<number> {
    const now = systemClock();
    if (gate) {
      const { keyId, limit } = gate;
      const held = this.#buckets.get(keyId) ?? fullBucket(limit, now);
      const { bucket, waitMs } = take(held, limit, now);
      this.#buckets.set(keyId, bucket);
      // What was taken is written down with the next flush.
      await this.#flushLater();
      if (waitMs > 0) return waitMs;
    }
    if (!this.#ended.has(id)) this.#running.set(id, now);
    return 0;
  }

  async record(request: MeterRequest): Promise<void> {
    const { id, at, modelId, ...end } = request;
    this.#running.delete(id);
    if (this.#isRepeated(id)) return;
    const isReference =
      end.scores !== null && modelId !== null && this.#refers(modelId, end.scores);
    const { rollup } = this.#freshOf(at, modelId ?? NO_MODEL);
    addRequest(rollup, isReference ? { ...end, scores: null } : end);
    await this.#counted();
  }

  async recordShadow({ id, at, modelId, counts }: MeterShadow): Promise<void> {
    if (this.#isRepeated(id)) return;
    addShadowOf(this.#freshOf(at, NO_MODEL).rollup, modelId, counts);
    await this.#counted();
  }

  async read(now: number): Promise<MeterReading> {
    this.#forgetLost();
    const windows = Object.entries(WINDOW_PARTS).map(([name, { ms, grain }]) => [
      name,
      this.#window(grain, startOf(now - ms, grain)),
    ]);
    return {
      inFlight: this.#running.size,
      unwritten: this.#unwritten,
      windows: Object.fromEntries(windows) as MeterReading["windows"],
      references: Object.fromEntries(this.#references),
    };
  }

  override async alarm(): Promise<void> {
    this.#flushIsSet = false;
    this.#flush();
    const { left } = this.#sql.exec("SELECT count(*) AS left FROM rollup").one();
    // Where nothing comes any more, what is kept goes by itself.
    if (Number(left) > 0) await this.ctx.storage.setAlarm(systemClock() + GRAINS.hour.keptMs);
  }

  /** Whether the scores became part of the model's reference, which they do until it is whole. */
  #refers(modelId: string, scores: readonly number[]): boolean {
    const bins = this.#references.get(modelId) ?? scores.map(() => 0);
    if (bins.reduce((sum, count) => sum + count, 0) >= REFERENCE_DETECTIONS) return false;
    this.#references.set(
      modelId,
      bins.map((count, bin) => count + (scores[bin] ?? 0)),
    );
    return true;
  }

  #freshOf(at: number, modelId: string): FreshRollup {
    const minute = startOf(at, "minute");
    const name = `${minute} ${modelId}`;
    const fresh = this.#fresh.get(name) ?? { minute, modelId, rollup: emptyRollup() };
    this.#fresh.set(name, fresh);
    return fresh;
  }

  /** Lets go of requests whose service died with them. */
  #forgetLost() {
    const oldest = systemClock() - RUNNING_MS_MAX;
    for (const [id, began] of this.#running) if (began < oldest) this.#running.delete(id);
  }

  /** Whether a report came before; notes that it came. */
  #isRepeated(id: string): boolean {
    if (this.#ended.has(id)) return true;
    const oldest = systemClock() - ENDED_MS;
    for (const [ended, at] of this.#ended) {
      if (at >= oldest) break;
      this.#ended.delete(ended);
    }
    this.#ended.set(id, systemClock());
    return false;
  }

  async #counted() {
    this.#unwritten += 1;
    if (this.#unwritten >= FLUSH_REQUESTS) this.#flush();
    await this.#flushLater();
  }

  async #flushLater() {
    if (this.#flushIsSet) return;
    this.#flushIsSet = true;
    await this.ctx.storage.setAlarm(systemClock() + FLUSH_MS);
  }

  /** Writes down what is in memory only, all or nothing, and lets go of what is too old. */
  #flush() {
    this.#forgetLost();
    const now = systemClock();
    this.ctx.storage.transactionSync(() => {
      for (const { minute, modelId, rollup } of this.#fresh.values()) {
        for (const grain of Object.keys(GRAINS) as Grain[]) {
          this.#addRow(grain, startOf(minute, grain), modelId, rollup);
        }
      }
      for (const [grain, { keptMs }] of Object.entries(GRAINS)) {
        this.#sql.exec("DELETE FROM rollup WHERE grain = ? AND start < ?", grain, now - keptMs);
      }
      for (const [modelId, bins] of this.#references) {
        const text = JSON.stringify(bins);
        this.#sql.exec("INSERT OR REPLACE INTO reference VALUES (?, ?)", modelId, text);
      }
      for (const [key, { tokens, at }] of this.#buckets) {
        this.#sql.exec("INSERT OR REPLACE INTO bucket VALUES (?, ?, ?)", key, tokens, at);
      }
    });
    this.#fresh = new Map();
    this.#unwritten = 0;
  }

  #addRow(grain: Grain, start: number, modelId: string, rollup: Rollup) {
    const where = "FROM rollup WHERE grain = ? AND start = ? AND model = ?";
    const [row] = this.#sql.exec(`SELECT counts ${where}`, grain, start, modelId).toArray();
    const sum = row ? (JSON.parse(String(row.counts)) as Rollup) : emptyRollup();
    merge(sum, rollup);
    const insert = "INSERT OR REPLACE INTO rollup VALUES (?, ?, ?, ?)";
    this.#sql.exec(insert, grain, start, modelId, JSON.stringify(sum));
  }

  #window(grain: Grain, since: number): MeterWindow {
    const models: Record<string, Rollup> = {};
    const add = (modelId: string, rollup: Rollup) => {
      models[modelId] ??= emptyRollup();
      merge(models[modelId], rollup);
    };
    const select = "SELECT model, counts FROM rollup WHERE grain = ? AND start >= ?";
    for (const row of this.#sql.exec(select, grain, since)) {
      add(String(row.model), JSON.parse(String(row.counts)) as Rollup);
    }
    for (const { minute, modelId, rollup } of this.#fresh.values()) {
      if (minute >= since) add(modelId, rollup);
    }
    return { since, models };
  }
}
