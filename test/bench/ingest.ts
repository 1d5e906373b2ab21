// `npm run bench -- ingest`: what ingest costs through the whole stack in workerd, over the
// sandbox: one full partition of every pipeline, and a backfill of years of one market. Takes some
// minutes; set YEARS for a shorter one.

import { sql } from "drizzle-orm";
import { openDatabase } from "../../edge/http/database.ts";
import { databaseUrls, prepareDatabases } from "../../edge/local/databases.ts";
import { followBackfill, operatorAt } from "../../edge/local/operator.ts";
import { startSandbox } from "../../edge/local/sandbox/server.ts";
import { startWorkers } from "../../edge/local/workers.ts";
import { latestPartition, shiftPartition } from "../../edge/markets/ingest/partition.ts";
import { PIPELINES } from "../../edge/markets/ingest/pipelines.ts";
import { Secret } from "../../shared/secret.ts";
import { DAY, isoDay, systemClock } from "../../shared/time.ts";
import { startSharedPostgres } from "../support/postgres.ts";

const YEARS = Number(process.env.YEARS ?? 5);
const MARKET = "realtime_prices";

const { shared, state, stop } = await startSharedPostgres();
await prepareDatabases(shared.port, shared.credentials);
const urls = databaseUrls(shared.endpointPort, shared.credentials);
const sandbox = await startSandbox();
const workers = await startWorkers({
  services: ["markets", "console"],
  host: "127.0.0.1",
  ports: { markets: 0, console: 0, vision: 0 },
  persistTo: state.workers,

  s3: { accessKeyId: "bench", secretAccessKey: "bench" },
  bindings: {
    markets: { DATABASE_URL: urls.marketsReader },
    console: {
      DATABASE_URL: urls.marketsWriter,
      OPERATOR_TOKEN: "token-of-the-bench",
      SANDBOX_URL: sandbox.url,
    },
    vision: {},
  },
  onLog: () => {},
});
const operator = operatorAt(workers.urls.console, "bench");
const database = openDatabase(new Secret(urls.marketsWriter));
const say = (line: string) => process.stdout.write(`${line}\n`);

/** Rebuilds a range; returns what that took and wrote. */
async function rebuild(job: string, first: string, last: string) {
  const started = performance.now();
  const backfill = await operator.startBackfill({ job, first, last });
  let shown = 0;
  const ended = await followBackfill(operator, backfill, ({ runs }) => {
    if (runs.succeeded - shown < 100) return;
    shown = runs.succeeded;
    process.stderr.write(`  ${job}: ${shown} done, ${runs.queued} to go\n`);
  });
  const seconds = (performance.now() - started) / 1_000;
  const { rows } = await database.execute<{ rows: number; vintages: number }>(sql`
    SELECT coalesce(sum(inserted), 0)::int AS rows, count(*)::int AS vintages
      FROM vintage JOIN run ON run.id::text = run_id
     WHERE backfill_id = ${backfill.backfill_id}::uuid`);
  const { succeeded, failed, late } = ended.runs;
  return { seconds, succeeded, failed: failed + late, ...rows[0] };
}

const line = (name: string, done: Awaited<ReturnType<typeof rebuild>>) => {
  const rows = done.rows ?? 0;
  const speed = Math.round(rows / done.seconds);
  const failed = done.failed > 0 ? `, ${done.failed} FAILED` : "";
  say(
    `| ${name} | ${rows} | ${done.vintages} | ${done.seconds.toFixed(2)} s | ${speed} |${failed}`,
  );
};

say("| one full partition of | rows | vintages | wall | rows/s |\n|---|---|---|---|---|");
for (const { job, partitions } of PIPELINES) {
  const latest = latestPartition(partitions, systemClock() - 5 * DAY);
  const key = shiftPartition(partitions, latest, -2);
  line(`${job} ${key}`, await rebuild(job, key, key));
}
const last = isoDay(systemClock() - 10 * DAY);
const first = isoDay(systemClock() - (10 + Math.round(YEARS * 365.25) - 1) * DAY);
line(`${MARKET}, ${YEARS} years`, await rebuild(MARKET, first, last));

await workers.stop();
await sandbox.close();
await stop();
