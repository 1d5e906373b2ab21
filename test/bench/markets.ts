// `npm run bench`: what reads and commits cost, in workerd, on this machine, in one run. Ratios
// count; the absolute figures are beside them. Takes about five minutes. Set ROWS for a shorter
// one.

import { execFile, execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import http from "node:http";
import { cpus } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { sql } from "drizzle-orm";
import { build } from "esbuild";
import pg from "pg";
import { openDatabase } from "../../edge/http/database.ts";
import { databaseUrls, prepareDatabases } from "../../edge/local/databases.ts";
import { superuser } from "../../edge/local/postgres.ts";
import { startWorkers } from "../../edge/local/workers.ts";
import { commit } from "../../edge/markets/store/commit.ts";
import { compact } from "../../edge/markets/store/compact.ts";
import { ROW_GROUP_ROWS } from "../../edge/markets/store/segment.ts";
import { Secret } from "../../shared/secret.ts";
import { startSharedPostgres } from "../support/postgres.ts";
import { openDuckBaseline } from "./duckdb-baseline.ts";

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const FROM = Date.UTC(2015, 0, 1);
const ROWS = Number(process.env.ROWS ?? 500_000);
const SYMBOLS = 1_000;
const VINTAGES = 8_760;
/** A fifth of the rows is revised over all vintages. */
const REVISED_PER_VINTAGE = Math.max(1, Math.round((ROWS * 0.2) / VINTAGES));
const QUARTER = 900_000;

const { shared, state, stop } = await startSharedPostgres();
await prepareDatabases(shared.port, shared.credentials);
const urls = databaseUrls(shared.endpointPort, shared.credentials);
const workers = await startWorkers({
  services: ["markets", "console"],
  host: "127.0.0.1",
  ports: { markets: 0, console: 0, vision: 0 },
  persistTo: state.workers,

  s3: { accessKeyId: "bench", secretAccessKey: "bench" },
  bindings: {
    markets: { DATABASE_URL: urls.marketsReader },
    console: { DATABASE_URL: urls.marketsWriter, OPERATOR_TOKEN: "token-of-the-bench" },
    vision: {},
  },
  onLog: () => {},
});
const servicePid = workerdPid();
const database = openDatabase(new Secret(urls.marketsWriter));
const bucket = await workers.bucket();
const pause = (milliseconds: number) => new Promise<void>((done) => setTimeout(done, milliseconds));
const writer = { database, bucket, pause };

/** One commit takes no more. */
const COMMIT_ROWS = 100_000;

/** Prices with two decimals, as a market has them. */
const price = (index: number, shift = 0) => (((index * 7_919) % 900_001) + 100 * shift) / 100;

async function commitRows(
  symbol: string,
  first: number,
  count: number,
  shift = 0,
  step = QUARTER,
): ReturnType<typeof commit> {
  if (count > COMMIT_ROWS) {
    await commitRows(symbol, first, COMMIT_ROWS, shift, step);
    return commitRows(symbol, first + COMMIT_ROWS, count - COMMIT_ROWS, shift, step);
  }
  const covered = { from: FROM + first * step, to: FROM + (first + count) * step };
  const rows = Array.from({ length: count }, (_, index) => ({
    datetime: covered.from + index * step,
    instrumentId: `power.lmp.${symbol}`,
    values: [price(first + index, shift)],
  }));
  return commit(writer, {
    library: "power.lmp",
    symbol,
    valueColumns: ["value"],
    rows,
    covered,
    reconstructed: false,
    sandbox: false,
    runId: "bench",
    partition: `${first}`,
    sourceUrl: "https://api.example.com/",
  });
}

const agent = new http.Agent({ keepAlive: true, maxSockets: 128 });

/** Reads a whole answer without compression; returns its bytes. */
const get = (url: string, headers: Record<string, string> = {}) =>
  new Promise<number>((resolve, reject) => {
    const request = http.get(url, { agent, headers }, (response) => {
      let bytes = 0;
      response.on("data", (chunk: Buffer) => {
        bytes += chunk.length;
      });
      response.on("end", () =>
        response.statusCode === 200
          ? resolve(bytes)
          : reject(new Error(`${response.statusCode} ${url}`)),
      );
      response.on("error", reject);
    });
    request.on("error", reject);
  });

const series = (symbol: string, query = "") =>
  `${workers.urls.markets}/series?library=power.lmp&symbol=${symbol}${query}`;

type Work = (index: number) => Promise<unknown>;

async function median(repeats: number, work: Work): Promise<number> {
  const [time] = await medians(repeats, [work]);
  return time ?? NaN;
}

/** The middle times of several works, done in turn: what else the machine does slows each alike. */
async function medians(repeats: number, works: readonly Work[]): Promise<number[]> {
  const warmUp = Math.max(2, repeats >> 2);
  const times: number[][] = works.map(() => []);
  for (let index = 0; index < warmUp + repeats; index++) {
    for (const [position, work] of works.entries()) {
      const started = performance.now();
      await work(index);
      if (index >= warmUp) times[position]?.push(performance.now() - started);
    }
  }
  return times.map((all) => all.toSorted((left, right) => left - right)[repeats >> 1] ?? NaN);
}

/** The newest workerd that is a child of this process. */
function workerdPid(): number {
  const found = execFileSync("pgrep", ["-n", "-f", "workerd.*serve"], { encoding: "utf8" });
  return Number(found.trim().split("\n").at(-1));
}

const memoryMb = (pid: number) =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024;

/** Peak of a process's memory over its idle one while work goes on, megabytes. */
async function growth(pid: number, idle: number, work: () => Promise<unknown>): Promise<number> {
  let peak = 0;
  const timer = setInterval(() => {
    peak = Math.max(peak, memoryMb(pid));
  }, 2);
  await work();
  clearInterval(timer);
  return peak - idle;
}

/** A second workerd with the baseline Worker alone. */
async function startBaseline() {
  const outfile = join(state.dir, "baseline", "main.js");
  await build({
    entryPoints: [join(import.meta.dirname, "baseline.ts")],
    outfile,
    bundle: true,
    format: "esm",
    target: "es2024",
    conditions: ["workerd", "worker", "browser"],
    external: ["node:*"],
    logLevel: "error",
  });
  const { Miniflare, convertV4MiniflareOptions } = await import("miniflare");
  const options = {
    workers: [
      {
        name: "baseline",
        modules: [{ type: "ESModule", path: outfile }],
        modulesRoot: dirname(outfile),
        compatibilityDate: "2026-10-01",
        compatibilityFlags: ["nodejs_compat"],
        bindings: { DATABASE_URL: urls.marketsReader },
      },
    ],
    host: "127.0.0.1",
    port: 0,
    cf: false,
  };
  // Miniflare converts older options than it declares, as edge/local/workers.ts uses it.
  const runtime = new Miniflare(convertV4MiniflareOptions(options as never));
  const url = (await runtime.ready).href;
  return { url, pid: workerdPid(), stop: () => runtime.dispose() };
}

async function fillRows() {
  const client = new pg.Client(superuser(shared.port, shared.credentials.superuser, "markets"));
  await client.connect();
  await client.query(`
    CREATE TABLE bench_row (datetime timestamptz, instrument_id text, value float8,
      as_of timestamptz, reconstructed boolean);
    GRANT SELECT ON bench_row TO markets_reader;`);
  await client.query(
    `INSERT INTO bench_row
     SELECT to_timestamp($1::float8 / 1000) + i * interval '15 minutes', 'power.lmp.whole',
       ((i::bigint * 7919) % 900001) / 100.0, '2026-01-01', false
       FROM generate_series(0, $2::int - 1) i`,
    [FROM, ROWS],
  );
  await client.query(`
    CREATE UNIQUE INDEX ON bench_row (datetime, instrument_id, as_of DESC);
    ANALYZE bench_row;
    CREATE TABLE bench_year AS
      SELECT to_timestamp(${FROM} / 1000.0) + i * interval '1 hour' AS datetime,
        'power.lmp.years'::text AS instrument_id, ((i::bigint * 7919) % 900001) / 100.0::float8 AS value,
        '2026-01-01'::timestamptz AS as_of, false AS reconstructed
        FROM generate_series(0, 87599) i;
    GRANT SELECT ON bench_year TO markets_reader;
    CREATE UNIQUE INDEX ON bench_year (datetime, instrument_id, as_of DESC)
      INCLUDE (value, reconstructed);`);
  await client.query("VACUUM ANALYZE bench_year");
  await client.end();
}

/** Requests a second of wrk with 64 connections, or null where it is not installed. */
async function load(url: string, script?: string): Promise<number | null> {
  const file = join(state.dir, "load.lua");
  if (script) writeFileSync(file, script);
  const options = ["-t2", "-c64", "-d8s", ...(script ? ["-s", file] : []), url];
  try {
    const { stdout } = await promisify(execFile)("wrk", options);
    if (/Non-2xx/.test(stdout)) throw new Error(`wrk met errors:\n${stdout}`);
    return Number(/Requests\/sec:\s+([\d.]+)/.exec(stdout)?.[1]);
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw thrown;
  }
}

const print = (line: string) => process.stdout.write(`${line}\n`);
const report = (name: string, ms: number, against: string) =>
  print(`${name.padEnd(58)} ${ms.toFixed(1).padStart(8)} ms   ${against}`);
const times = (ratio: number) => `${ratio.toFixed(2)}×`;

print(`${cpus().length} × ${cpus()[0]?.model.trim()}, Node ${process.version}, ${ROWS} rows`);

// One whole history, in one vintage.
await fillRows();
await commitRows("whole", 0, ROWS);
await get(`${workers.urls.markets}/healthz`);
const idle = memoryMb(servicePid);
const readMany = async (url: string) => {
  for (let read = 0; read < 5; read++) await get(url);
};
const memory = await growth(servicePid, idle, () => readMany(series("whole")));
const fresh = await median(5, () => get(series("whole")));
await compact(writer, { library: "power.lmp", symbol: "whole" });
const whole = await median(9, () => get(series("whole")));
const baseline = await startBaseline();
await fetch(`${baseline.url}idle`);
const baselineIdle = memoryMb(baseline.pid);
const stringify = await median(3, () => get(`${baseline.url}stringify`));
const bytes = await median(3, () => get(`${baseline.url}bytes`));
const baselineMemory = await growth(baseline.pid, baselineIdle, () =>
  readMany(`${baseline.url}bytes`),
);
report("all rows as JSON, compacted", whole, "");
report(
  "  rows in Postgres, Neon HTTP, JSON.stringify",
  stringify,
  `${times(stringify / whole)} (≥ 10)`,
);
report("  rows in Postgres, Neon HTTP, byte writer", bytes, `${times(bytes / whole)} (≥ 5)`);
report("  one uncompacted object", fresh, times(fresh / whole));
print(
  `  memory over idle: ${memory.toFixed(0)} MB (< 128); byte-writer baseline ${baselineMemory.toFixed(0)} MB`,
);
let parquet = NaN;
for (const format of ["parquet", "arrow", "csv", "ndjson"]) {
  const ms = await median(7, () => get(series("whole", `&format=${format}`)));
  if (format === "parquet") parquet = ms;
  const wanted = format === "parquet" || format === "arrow" ? " (≥ 3)" : "";
  report(`  as ${format}`, ms, `${times(whole / ms)} faster than JSON${wanted}`);
}

// The same with revisions.
await commitRows("recent", 0, ROWS);
await compact(writer, { library: "power.lmp", symbol: "recent" });
for (let index = 0; index < 50; index++) {
  await commitRows("recent", ((index * 104_729) % (ROWS - 24)) | 0, 24, index + 1);
}
const recent = await median(7, () => get(series("recent")));
report("  and 50 uncompacted deltas of 24 rows", recent, `${times(recent / whole)} (≤ 2.5)`);
await commitRows("revised", 0, ROWS);
await compact(writer, { library: "power.lmp", symbol: "revised" });
const asOfs: number[] = [];
const stride = Math.floor(ROWS / VINTAGES);
for (let index = 0; index < VINTAGES; index++) {
  const vintage = await commitRows("revised", index * stride, REVISED_PER_VINTAGE, 1 + (index % 9));
  asOfs.push(vintage?.asOf ?? NaN);
  if (index % 512 === 511) await compact(writer, { library: "power.lmp", symbol: "revised" });
}
await compact(writer, { library: "power.lmp", symbol: "revised" });
const revised = await median(9, () => get(series("revised")));
report(`  in ${VINTAGES} compacted vintages`, revised, `${times(revised / whole)} (≤ 1.6)`);

// Small reads.
/** Hours of ten years. */
const YEARS_ROWS = 87_600;
const YEARS = ["years", "cold0", "cold1", "cold2", "cold3", "cold4", "cold5"];
for (const symbol of YEARS) {
  await commitRows(symbol, 0, YEARS_ROWS, 0, HOUR);
  await compact(writer, { library: "power.lmp", symbol });
}
const iso = (instant: number) => new Date(instant).toISOString();
const dayAt = (symbol: string, start: number, more = "") =>
  series(symbol, `&start=${iso(start)}&end=${iso(start + DAY - 1)}${more}`);
/** A day nobody asked for yet, so that no cache answers; its neighbours may have been asked for. */
const dayOf = (symbol: string, index: number, more = "") =>
  dayAt(symbol, FROM + ((index * 37) % 3_000) * DAY + (index % 24) * HOUR, more);
/** A day of a row group that nobody opened yet. */
const coldDay = (index: number) => {
  const groups = Math.floor(YEARS_ROWS / ROW_GROUP_ROWS);
  const start = FROM + ((index % groups) * ROW_GROUP_ROWS + 1_000) * HOUR;
  return dayAt(`cold${Math.floor(index / groups)}`, start);
};
const floor = await median(60, () => database.execute(sql`SELECT 1`));
report("one statement through the local Neon endpoint (floor)", floor, "");
const against = (ms: number, target: string) => `${times(ms / floor)} of the floor ${target}`;
const rowsDayFrom = (index: number) => iso(FROM + ((index * 37) % 3_000) * DAY);
const duck = await openDuckBaseline(state.dir, {
  whole: { rows: ROWS, from: FROM, stepMs: QUARTER },
  years: { rows: YEARS_ROWS, from: FROM, stepMs: HOUR },
});
const [day = NaN, cold = NaN, rowsDay = NaN, duckDay = NaN] = await medians(100, [
  (index) => get(dayOf("years", index)),
  (index) => get(coldDay(index)),
  (index) => get(`${baseline.url}day?from=${encodeURIComponent(rowsDayFrom(index))}`),
  (index) => duck.day(FROM + ((index * 37) % 3_000) * DAY + (index % 24) * HOUR),
]);
await baseline.stop();
report("one day of ten years, never asked before", day, against(day, "(≤ 20 ms)"));
report("  of a row group that no read opened before", cold, against(cold, "(≤ 20 ms)"));
report(
  "  by a covering index, Worker and Neon HTTP alike",
  rowsDay,
  `${times(day / rowsDay)} (≤ 2), unopened ${times(cold / rowsDay)}`,
);
report("  as JSON by DuckDB, in process", duckDay, times(duckDay / day));
const duckJson = await median(5, () => duck.write("json"));
const duckParquet = await median(5, () => duck.write("parquet"));
duck.close();
report("all rows as JSON by DuckDB, in process, to a file", duckJson, times(duckJson / whole));
report("  as Parquet", duckParquet, times(duckParquet / parquet));
const cachedUrl = `${dayOf("revised", 3)}&as_of=${iso(asOfs[VINTAGES >> 1] ?? 0)}`;
const cached = await median(60, () => get(cachedUrl));
report("a cached immutable day", cached, against(cached, "(≤ 3 ms)"));
let salt = 1_000;
for (const [name, seq] of [
  ["oldest", 1],
  ["middle", VINTAGES >> 1],
  ["newest", VINTAGES - 1],
] as const) {
  const known = `&as_of=${iso(asOfs[seq] ?? 0)}`;
  salt += 1_000;
  const from = salt;
  const ms = await median(40, (index) => get(dayOf("revised", from + index, known)));
  report(`one day at the ${name} of ${VINTAGES} vintages`, ms, against(ms, "(flat)"));
}
await commitRows("again", 0, 24 * 30, 0, HOUR);
const again = await median(40, () => commitRows("again", 0, 24 * 30, 0, HOUR));
report("unchanged re-commit of a month", again, against(again, "(a day ≤ 20 ms)"));
await compact(writer, { library: "power.lmp", symbol: "years" });
const unseen = await median(40, (index) => commitRows("years", (index + 1) * 24, 24, 0, HOUR));
report("unchanged day of ten years, payload not seen before", unseen, against(unseen, "(≤ 20 ms)"));
const changed = await median(40, (index) => commitRows("changed", 0, 24, index, HOUR));
report("commit of a revised day", changed, against(changed, ""));
for (let index = 0; index < SYMBOLS; index += 20) {
  await Promise.all(Array.from({ length: 20 }, (_, one) => commitRows(`s${index + one}`, 0, 24)));
}
const health = await median(60, () => get(`${workers.urls.markets}/healthz`));
report(`/healthz with ${SYMBOLS} symbols`, health, against(health, "(≤ 5 ms)"));

// Many readers at once.
const uncached = `
  math.randomseed(os.time())
  request = function()
    local start = ${FROM / 1000} + math.random(0, 80000) * 3600
    local day = function(at) return os.date("!%Y-%m-%dT%H:%M:%SZ", at) end
    return wrk.format("GET", "/series?library=power.lmp&symbol=years&start=" .. day(start) ..
      "&end=" .. day(start + 86399))
  end`;
const rates = [
  ["cached", await load(cachedUrl)],
  ["uncached", await load(workers.urls.markets, uncached)],
] as const;
for (const [name, rate] of rates) {
  const shown = rate === null ? "wrk is not installed" : `${rate.toFixed(0)} requests/s`;
  print(`one-day reads, ${name}, 64 connections: ${shown}`);
}
agent.destroy();
await workers.stop();
await stop();
