// What a fleet costs on this machine: heartbeats of many devices through workerd and what each
// takes of the database, then lines of logs by batches. Run: npm run bench -- fleet
// DEVICES (5,000), ROUNDS of a beat of each (2), SENDERS at once (16), LINES of logs (100,000).

import { cpus } from "node:os";
import { sql } from "drizzle-orm";
import pg from "pg";
import { superuser } from "../../edge/local/postgres.ts";
import { sha256 } from "../../edge/vision/auth/digest.ts";
import { API } from "../../edge/vision/base/api.ts";
import { newDeviceToken } from "../../edge/vision/fleet/devices/access.ts";
import { LOG_LINES_MAX } from "../../shared/wire/fleet.ts";
import { startVision } from "./vision-world.ts";

const DEVICES = Number(process.env.DEVICES ?? 5_000);
const ROUNDS = Number(process.env.ROUNDS ?? 2);
const LINES = Number(process.env.LINES ?? 100_000);
const SENDERS = Number(process.env.SENDERS ?? 16);
const SYNCING = 8;

const { shared, workers, database, stop } = await startVision();
const base = workers.urls.vision + API;
const print = (line: string) => process.stdout.write(`${line}\n`);
print(`${cpus().length} × ${cpus()[0]?.model.trim()}, Node ${process.version}`);

const owner = new pg.Client(superuser(shared.port, shared.credentials.superuser, "vision"));
await owner.connect();
/** Seconds that the database's own processes worked, and rows that it changed, until now. */
const worked = async () => {
  const { rows } = await owner.query<{ seconds: number; calls: number }>(`
    SELECT sum(active_time) / 1000 AS seconds, sum(xact_commit)::float8 AS calls
      FROM pg_stat_database WHERE datname = 'vision'`);
  return rows[0] ?? { seconds: 0, calls: 0 };
};

interface Sender {
  id: string;
  token: string;
}

// Devices with a token each, which codes would only make slower.
const senders: Sender[] = Array.from({ length: DEVICES }, () => ({
  id: crypto.randomUUID(),
  token: newDeviceToken(),
}));
for (let first = 0; first < DEVICES; first += 1_000) {
  const rows = await Promise.all(
    senders.slice(first, first + 1_000).map(async ({ id, token }) => ({
      id,
      hash: await sha256(token),
    })),
  );
  await database.execute(sql`
    WITH given AS (SELECT * FROM jsonb_to_recordset(${JSON.stringify(rows)}::jsonb)
      AS g(id uuid, hash text)),
    made AS (
      INSERT INTO device (id, workspace_id, name, enrolled_at)
      SELECT given.id, (SELECT id FROM workspace LIMIT 1), 'bench ' || given.id, now() FROM given)
    INSERT INTO device_token (hash, device_id, used_at)
    SELECT decode(hash, 'hex'), id, now() FROM given`);
}
await owner.query("ANALYZE");

async function post({ id, token }: Sender, path: string, body: string): Promise<void> {
  const answer = await fetch(`${base}/devices/${id}/${path}`, {
    method: "POST",
    headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
    body,
  });
  if (answer.status !== 200) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  await answer.arrayBuffer();
}

/** Does all jobs, so many at once; the milliseconds of each, and the seconds of all. */
async function timed(jobs: (() => Promise<void>)[], atOnce: number) {
  const left = jobs.toReversed();
  const times: number[] = [];
  const started = performance.now();
  const work = async () => {
    for (let job = left.pop(); job; job = left.pop()) {
      const began = performance.now();
      await job();
      times.push(performance.now() - began);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, work));
  times.sort((one, other) => one - other);
  const percentile = (share: number) => times[Math.floor((times.length - 1) * share)] ?? 0;
  const seconds = (performance.now() - started) / 1_000;
  return { seconds, p50: percentile(0.5), p99: percentile(0.99) };
}

const beat = JSON.stringify({
  battery: 81,
  temperature: 47.5,
  uptime: 86_400,
  free_bytes: 12_000_000_000,
  inference_rate: 9.5,
  agent_version: "1.0.0",
  boot_id: "bench",
  model: { status: "confirmed", slot: "a", inferences: 1_200 },
});
for (let round = 1; round <= ROUNDS; round++) {
  const before = await worked();
  const jobs = senders.map((sender) => () => post(sender, "heartbeat", beat));
  const { seconds, p50, p99 } = await timed(jobs, SENDERS);
  // Statistics of sessions are sent when they are idle.
  await new Promise((done) => setTimeout(done, 1_500));
  const after = await worked();
  const ms = ((after.seconds - before.seconds) * 1_000) / DEVICES;
  print(
    `heartbeats, round ${round}: ${(DEVICES / seconds).toFixed(0)}/s (${DEVICES} devices, ${SENDERS} at once), ` +
      `p50 ${p50.toFixed(0)} ms, p99 ${p99.toFixed(0)} ms; database ${ms.toFixed(2)} ms a beat`,
  );
}

const line = (seq: number) => ({
  seq,
  time: new Date(Date.UTC(2026, 0, 31) + seq * 100).toISOString(),
  source: "gate",
  frame: seq,
  objects: [
    { class: "person", confidence: 0.91, bbox: [12, 8, 36, 30] },
    { class: "car", confidence: 0.42, bbox: [120, 80, 360, 300] },
  ],
  latency_ms: 31.5,
});
const each = Math.ceil(LINES / SYNCING);
const logging = senders.slice(0, SYNCING);
const began = performance.now();
await Promise.all(
  logging.map(async (sender) => {
    for (let first = 1; first <= each; first += LOG_LINES_MAX) {
      const count = Math.min(LOG_LINES_MAX, each - first + 1);
      const lines = Array.from({ length: count }, (_, index) => line(first + index));
      await post(sender, "sync-logs", JSON.stringify({ boot_id: "bench", lines }));
    }
  }),
);
const syncing = (performance.now() - began) / 1_000;
const { rows } = await owner.query<{ lines: number; bytes: number }>(`
  SELECT count(*)::int AS lines, pg_total_relation_size('device_log')::float8 AS bytes
    FROM device_log`);
const { lines = 0, bytes = 0 } = rows[0] ?? {};
if (lines !== each * SYNCING) throw new Error(`${lines} lines are stored, not ${each * SYNCING}`);
print(
  `sync-logs: ${(lines / syncing).toFixed(0)} lines/s (${lines} lines of two objects by ${LOG_LINES_MAX}, ` +
    `${SYNCING} devices at once), ${(bytes / lines).toFixed(0)} bytes a line with its indexes`,
);
await owner.end();
await stop();
