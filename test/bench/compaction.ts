// `npm run bench -- compaction`: how many rows compaction rewrites for each row committed, while
// old days are backfilled beside hourly ticks.

import { sql } from "drizzle-orm";
import { openDatabase } from "../../edge/http/database.ts";
import { databaseUrls, prepareDatabases } from "../../edge/local/databases.ts";
import { startWorkers } from "../../edge/local/workers.ts";
import { commit } from "../../edge/markets/store/commit.ts";
import { compact } from "../../edge/markets/store/compact.ts";
import { Secret } from "../../shared/secret.ts";
import { startSharedPostgres } from "../support/postgres.ts";

const QUARTER = 900_000;
const DAY_ROWS = 96;
const HOUR_ROWS = 4;
const FROM = Date.UTC(2015, 0, 1);
/** Eleven years of quarter-hours. */
const HISTORY_ROWS = 400_000;
const COMMIT_ROWS = 100_000;
const ROUNDS = Number(process.env.ROUNDS ?? 320);
/** The policy compacts when so many vintages wait. */
const VINTAGES = 64;
const SERIES = { library: "power.lmp", symbol: "hub" };

const { shared, state, stop } = await startSharedPostgres();
await prepareDatabases(shared.port, shared.credentials);
const urls = databaseUrls(shared.endpointPort, shared.credentials);
const workers = await startWorkers({
  services: ["console"],
  host: "127.0.0.1",
  ports: { markets: 0, console: 0, vision: 0 },
  persistTo: state.workers,

  s3: { accessKeyId: "bench", secretAccessKey: "bench" },
  bindings: {
    markets: {},
    console: { DATABASE_URL: urls.marketsWriter, OPERATOR_TOKEN: "token-of-the-bench" },
    vision: {},
  },
  onLog: () => {},
});
const database = openDatabase(new Secret(urls.marketsWriter));
const pause = (milliseconds: number) => new Promise<void>((done) => setTimeout(done, milliseconds));
const writer = { database, bucket: await workers.bucket(), pause };

async function put(first: number, count: number, revision: number): Promise<number> {
  const vintage = await commit(writer, {
    ...SERIES,
    valueColumns: ["value"],
    rows: Array.from({ length: count }, (_, index) => ({
      datetime: FROM + (first + index) * QUARTER,
      instrumentId: "power.lmp.hub",
      values: [first + index + revision / 100],
    })),
    covered: { from: FROM + first * QUARTER, to: FROM + (first + count) * QUARTER },
    reconstructed: false,
    sandbox: false,
    runId: "bench",
    partition: `${first}`,
    sourceUrl: "https://api.example.com/",
  });
  return vintage ? vintage.inserted + vintage.revised : 0;
}

const rowsByObject = async () => {
  const { rows } = await database.execute<{ key: string; rows: number }>(sql`
    SELECT object_key AS key, rows FROM segment WHERE level = 1`);
  return new Map(rows.map(({ key, rows: count }) => [key, count]));
};

for (let first = 0; first < HISTORY_ROWS; first += COMMIT_ROWS) await put(first, COMMIT_ROWS, 0);
await compact(writer, SERIES);
let [committed, rewritten, waiting, compactions, compactMs] = [0, 0, 0, 0, 0];
for (let round = 1; round <= ROUNDS; round++) {
  // An hourly tick revises the day before it; an operator's backfill corrects an old day.
  committed += await put(HISTORY_ROWS + round * HOUR_ROWS - DAY_ROWS, DAY_ROWS, round);
  committed += await put(round * DAY_ROWS, DAY_ROWS, -1);
  waiting += 2;
  if (waiting < VINTAGES) continue;
  const before = await rowsByObject();
  const started = performance.now();
  await compact(writer, SERIES);
  compactMs += performance.now() - started;
  for (const [key, rows] of await rowsByObject()) if (!before.has(key)) rewritten += rows;
  compactions++;
  waiting = 0;
}
const line = (name: string, figure: string) =>
  process.stdout.write(`${name.padEnd(52)} ${figure}\n`);
line(`rows committed in ${2 * ROUNDS} vintages`, String(committed));
line(`rows that ${compactions} compactions wrote`, String(rewritten));
line("rows rewritten per row committed", `${(rewritten / committed).toFixed(1)}×`);
line("a compaction", `${(compactMs / compactions).toFixed(0)} ms`);
const { rows: kept } = await database.execute<{ live: number; retired: number }>(sql`
  SELECT coalesce(sum(bytes) FILTER (WHERE retired_at IS NULL), 0)::float8 AS live,
    coalesce(sum(bytes) FILTER (WHERE retired_at IS NOT NULL), 0)::float8 AS retired FROM segment`);
const { live, retired } = kept[0] ?? { live: 0, retired: 0 };
const megabytes = (bytes: number) => `${(bytes / 1e6).toFixed(1)} MB`;
line("live objects", megabytes(live));
// Nothing was collected here: as in a store whose grace is longer than all of this took.
line(
  "objects that the grace keeps besides",
  `${megabytes(retired)}, ${(retired / live).toFixed(1)}×`,
);
await workers.stop();
await stop();
