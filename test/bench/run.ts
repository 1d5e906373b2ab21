// `npm run bench`: what a read and a commit cost, against the floor of one round trip to the
// database. Ratios of one run on one machine; absolute figures beside them. Takes about a minute.

import { cpus } from "node:os";
import { sql } from "drizzle-orm";
import { Secret } from "../../edge/http/config.ts";
import { openDatabase } from "../../edge/http/database.ts";
import { databaseUrls, prepareDatabases } from "../../edge/local/databases.ts";
import { startWorkers } from "../../edge/local/workers.ts";
import { commit } from "../../edge/markets/store/commit.ts";
import { startSharedPostgres } from "../support/postgres.ts";

const HOUR = 3_600_000;
const FROM = Date.UTC(2025, 0, 1);
const DAYS = 30;
const SYMBOLS = 1_000;
const REPEATS = 60;

const { shared, state, stop } = await startSharedPostgres();
await prepareDatabases(shared.port, shared.credentials);
const urls = databaseUrls(shared.endpointPort, shared.credentials);
const workers = await startWorkers({
  services: ["markets", "console"],
  host: "127.0.0.1",
  ports: { markets: 0, console: 0, vision: 0 },
  persistTo: state.workers,
  bundles: state.bundles,
  s3: { accessKeyId: "bench", secretAccessKey: "bench" },
  bindings: {
    markets: { DATABASE_URL: urls.marketsReader },
    console: { DATABASE_URL: urls.marketsWriter, OPERATOR_TOKEN: "bench" },
    vision: {},
  },
  onLog: () => {},
});

const database = openDatabase(new Secret(urls.marketsWriter));
const bucket = await workers.bucket();
const pause = (milliseconds: number) => new Promise<void>((done) => setTimeout(done, milliseconds));
const commitDays = (symbol: string, day: number, days: number, shift = 0) => {
  const covered = { from: FROM + day * 24 * HOUR, to: FROM + (day + days) * 24 * HOUR };
  const rows = Array.from({ length: days * 24 }, (_, hour) => ({
    datetime: covered.from + hour * HOUR,
    instrumentId: `power.demand.${symbol}`,
    values: [40_000 + ((hour * 37) % 9_000) + shift],
  }));
  return commit(
    { database, bucket, pause },
    {
      ...{ library: "power.demand", symbol, valueColumns: ["value"], rows, covered },
      ...{ reconstructed: false, sandbox: false, runId: "bench", partition: "2025-01-01" },
      sourceUrl: "https://api.eia.gov/v2/",
    },
  );
};

/** Median wall time in milliseconds, after a warm-up. */
async function median(work: (index: number) => Promise<unknown>): Promise<number> {
  for (let index = 0; index < 10; index++) await work(index);
  const times: number[] = [];
  for (let index = 0; index < REPEATS; index++) {
    const started = performance.now();
    await work(index + 10);
    times.push(performance.now() - started);
  }
  return times.toSorted((left, right) => left - right)[REPEATS >> 1] ?? NaN;
}

const get = async (path: string) => (await fetch(workers.urls.markets + path)).arrayBuffer();
const series = (symbol: string, query = "") =>
  `/series?library=power.demand&symbol=${symbol}${query}`;

for (let index = 0; index < SYMBOLS; index += 20) {
  await Promise.all(Array.from({ length: 20 }, (_, one) => commitDays(`s${index + one}`, 0, 1)));
}
await commitDays("month", 0, DAYS);
for (let day = 0; day < DAYS; day++) await commitDays("daily", day, 1);
await commitDays("years", 0, 365 * 10);

const results: [string, number][] = [
  [
    "one statement through the Neon endpoint (floor)",
    await median(() => database.execute(sql`SELECT 1`)),
  ],
  [`/healthz with ${SYMBOLS} symbols`, await median(() => get("/healthz"))],
  ["a month, one vintage", await median(() => get(series("month")))],
  ["a month, 30 vintages", await median(() => get(series("daily")))],
  [
    "a month, 30 vintages, early as_of",
    await median(() => get(series("daily", "&as_of=2020-01-01"))),
  ],
  [
    "one day of ten years, one object",
    await median(() => get(series("years", "&start=2029-01-01&end=2029-01-01T23:00Z"))),
  ],
  ["ten years, 87,600 rows", await median(() => get(series("years", "&start=2000-01-01")))],
  ["unchanged re-commit of a day", await median(() => commitDays("month", 3, 1))],
  ["commit of a revised day", await median((index) => commitDays("revised", 0, 1, index))],
];
const floor = results[0]?.[1] ?? NaN;
process.stdout.write(`${cpus().length} × ${cpus()[0]?.model.trim()}, Node ${process.version}\n`);
for (const [name, ms] of results) {
  const ratio = `${(ms / floor).toFixed(1)}×`.padStart(8);
  process.stdout.write(`${name.padEnd(50)} ${ms.toFixed(1).padStart(7)} ms ${ratio}\n`);
}
await workers.stop();
await stop();
