// The EndpointMeter object: counts what becomes of an endpoint's requests, and limits its keys.
// Isolates tell it what came to an end, at most once a second each.
// Counts stay in memory until the next flush, ten seconds or some hundred requests later, and lie
// then in the object's own SQLite: minutes for the last hour, hours for the last week, a row for
// each model and none for a request; beside them what trials came to since the endpoint was made.
// An eviction loses what came since the last flush.

import { DurableObject } from "cloudflare:workers";
import { DAY, HOUR, MINUTE, systemClock } from "../../../../shared/time.ts";
import type { WindowName } from "../../../../shared/wire/endpoints.ts";
import { REFERENCE_DETECTIONS } from "./drift.ts";
import { FAULT_WINDOW_MS, type FaultFigures, FaultWatch, faultsIn } from "./faults.ts";
import { IsolateReports } from "./isolate-reports.ts";
import { type BucketChanges, type KeyBucket, KeyBuckets } from "./key-buckets.ts";
import type {
  KeyGate,
  MeterReading,
  MeterReport,
  MeterRequest,
  MeterRpc,
  MeterShadow,
  MeterWindow,
} from "./meter.ts";
import { addRequest, addShadowOf, emptyRollup, LOST, merge, type Rollup } from "./rollups.ts";
import { type Trial, TrialStore, trialName } from "./trials.ts";

const FLUSH_MS = 10_000;
const FLUSH_REQUESTS = 256;
const NO_MODEL = "";

/** How long each grain lasts, and how long it is kept. */
const GRAINS = {
  minute: { ms: MINUTE, keptMs: 2 * HOUR },
  hour: { ms: HOUR, keptMs: 8 * DAY },
} as const;
type Grain = keyof typeof GRAINS;

/** How long each window is, and which grains it is made of. */
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
  readonly #isolates = new IsolateReports();
  readonly #buckets: KeyBuckets;
  readonly #references = new Map<string, number[]>();
  /** When each model last answered. */
  readonly #answeredAt = new Map<string, number>();
  /** Models whose references grew since the last flush. */
  readonly #grown = new Set<string>();
  readonly #trials: TrialStore;
  readonly #faults: FaultWatch;

  constructor(context: DurableObjectState, environment: object) {
    // The base class types its environment by bindings that a meter has no use for.
    super(context, environment as never);
    this.#sql = context.storage.sql;
    this.#sql.exec(`
      CREATE TABLE IF NOT EXISTS rollup (
        grain TEXT NOT NULL, start INTEGER NOT NULL, model TEXT NOT NULL, counts TEXT NOT NULL,
        PRIMARY KEY (grain, start, model));
      CREATE TABLE IF NOT EXISTS reference (model TEXT PRIMARY KEY, bins TEXT NOT NULL);
      CREATE TABLE IF NOT EXISTS last_answer (model TEXT PRIMARY KEY, at INTEGER NOT NULL);
      CREATE TABLE IF NOT EXISTS key_bucket (
        key TEXT PRIMARY KEY, tokens REAL NOT NULL, at INTEGER NOT NULL, full_at INTEGER NOT NULL);
      CREATE TABLE IF NOT EXISTS bad_faults (
        id INTEGER PRIMARY KEY CHECK (id = 1), at INTEGER NOT NULL);`);
    this.#trials = new TrialStore(this.#sql);
    for (const row of this.#sql.exec("SELECT model, bins FROM reference")) {
      this.#references.set(String(row.model), JSON.parse(String(row.bins)) as number[]);
    }
    for (const row of this.#sql.exec("SELECT model, at FROM last_answer")) {
      this.#answeredAt.set(String(row.model), Number(row.at));
    }
    const buckets = [...this.#sql.exec("SELECT key, tokens, at, full_at FROM key_bucket")].map(
      ({ key, tokens, at, full_at: fullAt }): [string, KeyBucket] => [
        String(key),
        { tokens: Number(tokens), at: Number(at), fullAt: Number(fullAt) },
      ],
    );
    this.#buckets = new KeyBuckets(buckets);
    this.#faults = this.#readFaults();
  }

  async take(gate: KeyGate, wanted: number): Promise<{ count: number; waitMs: number }> {
    const taken = this.#buckets.take(gate, systemClock(), wanted);
    // What was taken is written down with the next flush.
    await this.#flushLater();
    return taken;
  }

  async report(report: MeterReport): Promise<FaultFigures | null> {
    if (!this.#isolates.take(report, systemClock())) return null;
    for (const { gate, count } of report.givenBack) this.#buckets.giveBack(gate, count);
    for (const request of report.ended) this.#count(request);
    for (const shadow of report.shadows) this.#countShadow(shadow);
    this.#unwritten += report.ended.length + report.shadows.length;
    if (this.#unwritten >= FLUSH_REQUESTS) this.#flush();
    await this.#flushLater();
    const news = this.#faults.news(systemClock());
    if (news) this.#sql.exec("INSERT OR REPLACE INTO bad_faults VALUES (1, ?)", this.#faults.badAt);
    return news;
  }

  /** What was written down of the last minutes' faults. */
  #readFaults(): FaultWatch {
    const [bad] = this.#sql.exec("SELECT at FROM bad_faults").toArray();
    const watch = new FaultWatch(bad ? Number(bad.at) : null);
    const since = systemClock() - FAULT_WINDOW_MS - GRAINS.minute.ms;
    const rows = this.#sql.exec(
      "SELECT start, counts FROM rollup WHERE grain = 'minute' AND start > ?",
      since,
    );
    for (const { start, counts } of rows) {
      const { requests, errors } = JSON.parse(String(counts)) as Rollup;
      watch.add(Number(start), { requests, faults: faultsIn(errors) });
    }
    return watch;
  }

  #count({ at, modelId, isValidated = false, trial = null, ...end }: MeterRequest) {
    if (trial && modelId !== null) this.#trials.add(trialName(modelId), trial);
    const isReference =
      !isValidated && end.scores !== null && modelId !== null && this.#refers(modelId, end.scores);
    if (modelId !== null && end.code === null) {
      this.#answeredAt.set(modelId, Math.max(at, this.#answeredAt.get(modelId) ?? at));
    }
    const faults = end.code === null ? 0 : faultsIn({ [end.code]: 1 });
    this.#faults.add(at, { requests: 1, faults });
    const { rollup } = this.#freshOf(at, modelId ?? NO_MODEL);
    addRequest(rollup, isReference ? { ...end, scores: null } : end);
  }

  #countShadow({ at, modelId, counts, trial = null }: MeterShadow) {
    if (trial) this.#trials.add(trialName(modelId, trial.liveModelId), trial.sample);
    addShadowOf(this.#freshOf(at, NO_MODEL).rollup, modelId, counts);
  }

  async read(now: number): Promise<MeterReading> {
    this.#countLost();
    return {
      inFlight: this.#isolates.running,
      unwritten: this.#unwritten,
      windows: this.#windows(now),
      references: Object.fromEntries(this.#references),
    };
  }

  async lastAnswer(modelId: string): Promise<number | null> {
    return this.#answeredAt.get(modelId) ?? null;
  }

  async trials(names: readonly string[]): Promise<Record<string, Trial>> {
    this.#flush();
    return Object.fromEntries(names.map((name) => [name, this.#trials.read(name)]));
  }

  override async alarm(): Promise<void> {
    this.#flushIsSet = false;
    this.#flush();
    const { left } = this.#sql
      .exec("SELECT (SELECT count(*) FROM rollup) + (SELECT count(*) FROM key_bucket) AS left")
      .one();
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
    this.#grown.add(modelId);
    return true;
  }

  #freshOf(at: number, modelId: string): FreshRollup {
    const minute = startOf(at, "minute");
    const name = `${minute} ${modelId}`;
    const fresh = this.#fresh.get(name) ?? { minute, modelId, rollup: emptyRollup() };
    this.#fresh.set(name, fresh);
    return fresh;
  }

  /** Counts requests whose isolate fell silent: nobody knows how they ended. */
  #countLost() {
    for (const { running, at } of this.#isolates.lost(systemClock())) {
      const { rollup } = this.#freshOf(at, NO_MODEL);
      for (let lost = 0; lost < running; lost++) addRequest(rollup, LOST);
      this.#unwritten += running;
    }
  }

  async #flushLater() {
    if (this.#flushIsSet) return;
    this.#flushIsSet = true;
    await this.ctx.storage.setAlarm(systemClock() + FLUSH_MS);
  }

  /** Writes down what is in memory only, all or nothing, and lets go of what is too old. */
  #flush() {
    this.#countLost();
    const now = systemClock();
    const buckets = this.#buckets.changes(now);
    this.ctx.storage.transactionSync(() => {
      for (const { minute, modelId, rollup } of this.#fresh.values()) {
        for (const grain of Object.keys(GRAINS) as Grain[]) {
          this.#addRow(grain, startOf(minute, grain), modelId, rollup);
        }
        const at = this.#answeredAt.get(modelId);
        if (at === undefined) continue;
        this.#sql.exec("INSERT OR REPLACE INTO last_answer VALUES (?, ?)", modelId, at);
      }
      for (const [grain, { keptMs }] of Object.entries(GRAINS)) {
        this.#sql.exec("DELETE FROM rollup WHERE grain = ? AND start < ?", grain, now - keptMs);
      }
      for (const modelId of this.#grown) {
        const text = JSON.stringify(this.#references.get(modelId));
        this.#sql.exec("INSERT OR REPLACE INTO reference VALUES (?, ?)", modelId, text);
      }
      this.#writeBuckets(buckets);
      this.#trials.flush(now);
    });
    this.#buckets.keep(buckets);
    this.#grown.clear();
    this.#trials.flushed();
    this.#fresh = new Map();
    this.#unwritten = 0;
  }

  #writeBuckets({ written, forgotten }: BucketChanges) {
    const insert = "INSERT OR REPLACE INTO key_bucket VALUES (?, ?, ?, ?)";
    for (const [key, { tokens, at, fullAt }] of written) {
      this.#sql.exec(insert, key, tokens, at, fullAt);
    }
    for (const key of forgotten) this.#sql.exec("DELETE FROM key_bucket WHERE key = ?", key);
  }

  #addRow(grain: Grain, start: number, modelId: string, rollup: Rollup) {
    const where = "FROM rollup WHERE grain = ? AND start = ? AND model = ?";
    const [row] = this.#sql.exec(`SELECT counts ${where}`, grain, start, modelId).toArray();
    const sum = row ? (JSON.parse(String(row.counts)) as Rollup) : emptyRollup();
    merge(sum, rollup);
    const insert = "INSERT OR REPLACE INTO rollup VALUES (?, ?, ?, ?)";
    this.#sql.exec(insert, grain, start, modelId, JSON.stringify(sum));
  }

  /** All windows, for which no row is read twice. */
  #windows(now: number): Record<WindowName, MeterWindow> {
    const windows = Object.entries(WINDOW_PARTS).map(([name, { ms, grain }]) => {
      const models: MeterWindow["models"] = {};
      return { name, grain, since: startOf(now - ms, grain), models };
    });
    const add = ({ models }: MeterWindow, modelId: string, rollup: Rollup) => {
      models[modelId] ??= emptyRollup();
      merge(models[modelId], rollup);
    };
    const select = "SELECT start, model, counts FROM rollup WHERE grain = ? AND start >= ?";
    for (const grain of Object.keys(GRAINS) as Grain[]) {
      const own = windows.filter((window) => window.grain === grain);
      const first = Math.min(...own.map(({ since }) => since));
      for (const { start, model, counts } of this.#sql.exec(select, grain, first)) {
        const rollup = JSON.parse(String(counts)) as Rollup;
        for (const window of own)
          if (Number(start) >= window.since) add(window, String(model), rollup);
      }
    }
    for (const { minute, modelId, rollup } of this.#fresh.values()) {
      for (const window of windows) if (minute >= window.since) add(window, modelId, rollup);
    }
    const told = windows.map(({ name, since, models }) => [name, { since, models }]);
    return Object.fromEntries(told) as Record<WindowName, MeterWindow>;
  }
}
