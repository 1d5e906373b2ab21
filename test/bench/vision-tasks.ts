// What the task queue and live progress cost on this machine: claims and enqueues a second through
// the database endpoint, claims over HTTP in workerd, and how late an event reaches 1,000
// listeners. Run: npm run bench -- vision-tasks

import { cpus } from "node:os";
import { sql } from "drizzle-orm";
import pg from "pg";
import { WebSocket } from "ws";
import { createLog } from "../../edge/http/log.ts";
import { superuser } from "../../edge/local/postgres.ts";
import { API } from "../../edge/vision/base/api.ts";
import { createCode } from "../../edge/vision/tasks/nodes/nodes.ts";
import { publish } from "../../edge/vision/tasks/progress/progress.ts";
import { issueTicket } from "../../edge/vision/tasks/progress/tickets.ts";
import { claim, enqueue, finish, type NewTask } from "../../edge/vision/tasks/queue/queue.ts";
import { Secret } from "../../shared/secret.ts";
import { type Capabilities, NODE_PROTOCOL } from "../../shared/tasks/node-protocol.ts";
import { systemClock } from "../../shared/time.ts";
import { objectsOf } from "../support/objects.ts";
import { SECRET, startVision } from "./vision-world.ts";

const TASKS = Number(process.env.TASKS ?? 10_000);
const LISTENERS = Number(process.env.LISTENERS ?? 1_000);
const CLAIMERS = 16;
const EVENTS = 40;
const CAPABILITIES: Capabilities = {
  version: "bench",
  protocol: NODE_PROTOCOL,
  kinds: ["frames"],
  memory_bytes: 1,
  models_bytes_max: 1,
  cores: 1,
  ffmpeg: null,
  slots: 1,
  device: { kind: "cpu", name: "bench", count: 1 },
  segmenters: [],
  weights: [],
  missing: [],
};
const { shared, workers, database, stop } = await startVision();
const base = workers.urls.vision + API;
const print = (line: string) => process.stdout.write(`${line}\n`);
print(`${cpus().length} × ${cpus()[0]?.model.trim()}, Node ${process.version}`);

async function newNode() {
  const { code } = await createCode(
    { database, clock: systemClock },
    { createdBy: null, workspaceId: null },
  );
  const answer = await fetch(`${base}/node/register`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ code, name: "bench", capabilities: CAPABILITIES }),
  });
  return (await answer.json()) as { node_id: string; node_token: string };
}

const { rows: workspaces } = await database.execute<{ id: string }>(
  sql`SELECT id::text FROM workspace`,
);
const workspaceId = workspaces[0]?.id as string;
const newTask = (): NewTask =>
  ({
    kind: "frames",
    priority: 0,
    workspaceId,
    subject: "bench",
    payload: { frames: [1, 2, 3] },
    // The queue reads no payload; this one is as big as a usual one.
  }) as never;

/** Runs workers at once until each says it is done; returns what they did a second. */
async function rate(count: number, work: () => Promise<number>): Promise<number> {
  const started = performance.now();
  const done = await Promise.all(Array.from({ length: count }, work));
  return done.reduce((sum, one) => sum + one, 0) / ((performance.now() - started) / 1_000);
}

// Enqueue: one statement a task, then a thousand tasks a statement.
const nodes = await Promise.all(Array.from({ length: CLAIMERS }, newNode));
const single = await rate(CLAIMERS, async () => {
  for (let index = 0; index < 60; index++) await enqueue(database, [newTask()]);
  return 60;
});
const batched = await rate(1, async () => {
  for (let index = 0; index < TASKS; index += 1_000) {
    await enqueue(database, Array.from({ length: 1_000 }, newTask));
  }
  return TASKS;
});
print(`enqueue: ${single.toFixed(0)}/s one by one (16 at once), ${batched.toFixed(0)}/s by 1,000`);

// What autovacuum does within a minute: without statistics the planner sorts the whole queue.
const owner = new pg.Client(superuser(shared.port, shared.credentials.superuser, "vision"));
await owner.connect();
await owner.query("ANALYZE task");
await owner.end();

// Claims against a full queue: the statement alone, then claim and finish.
let next = 0;
const claims = await rate(CLAIMERS, async () => {
  const nodeId = nodes[next++ % nodes.length]?.node_id ?? "";
  for (let index = 0; index < 100; index++)
    await claim(database, { nodeId, workspaceId: null, kinds: ["frames"] });
  return 100;
});
print(`claims: ${claims.toFixed(0)}/s, ${CLAIMERS} claimers, ${TASKS} tasks queued`);
const cycles = await rate(CLAIMERS, async () => {
  const nodeId = nodes[next++ % nodes.length]?.node_id ?? "";
  for (let index = 0; index < 50; index++) {
    const task = await claim(database, { nodeId, workspaceId: null, kinds: ["frames"] });
    if (!task) throw new Error("the queue ran empty");
    const held = { nodeId, taskId: task.taskId, fence: task.fence };
    await finish(database, held, { outcome: "finished", result: {} });
  }
  return 50;
});
print(`claim and finish: ${cycles.toFixed(0)}/s, ${CLAIMERS} claimers`);
const http = await rate(CLAIMERS, async () => {
  const node = nodes[next++ % nodes.length];
  const headers = {
    Authorization: `Bearer ${node?.node_token}`,
    "Content-Type": "application/json",
  };
  const body = JSON.stringify({ kinds: ["frames"] });
  for (let index = 0; index < 50; index++) {
    const answer = await fetch(`${base}/node/claim`, { method: "POST", headers, body });
    if (!((await answer.json()) as { task_id?: string } | null)?.task_id) throw new Error("empty");
  }
  return 50;
});
print(`POST /node/claim in workerd: ${http.toFixed(0)}/s, ${CLAIMERS} claimers`);

// Fan-out: from before the publish until a listener has the event.
const topics = objectsOf(workers.ask, "PROGRESS");
const topic = "label:bench";
// Each is another person's, who is logged in: else they would be sent away after half a minute.
const { rows: guests } = await database.execute<{ accountId: string; session: string }>(sql`
  WITH people AS (
    INSERT INTO account (email, display_name, password_hash)
    SELECT n || '@listeners.example', 'A listener', '' FROM generate_series(1, ${LISTENERS}) n
    RETURNING id),
  members AS (
    INSERT INTO membership (workspace_id, account_id, role)
    SELECT ${workspaceId}::uuid, id, 'viewer' FROM people)
  INSERT INTO refresh_token (hash, family, account_id, expires_at)
  SELECT sha256(id::text::bytea), gen_random_uuid(), id, now() + interval '1 day' FROM people
  RETURNING account_id::text AS "accountId", family::text AS session`);
const addressOfListener = async () => {
  const guest = guests.pop();
  if (!guest) throw new Error("more listeners than people");
  const { url } = await issueTicket(
    { tokenSecret: new Secret(SECRET), clock: systemClock },
    { topic, ...guest, workspaceId },
  );
  return new URL(url, workers.urls.vision);
};
const arrivals: number[] = [];
let sentAt = 0;
let arrived = () => {};
let waiting = 0;
const sockets: WebSocket[] = [];
const opened = performance.now();
for (let index = 0; index < LISTENERS; index += 50) {
  await Promise.all(
    Array.from({ length: Math.min(50, LISTENERS - index) }, async () => {
      const socket = new WebSocket(await addressOfListener());
      sockets.push(socket);
      await new Promise((ready, failed) => socket.once("message", ready).once("error", failed));
      socket.on("message", () => {
        arrivals.push(performance.now() - sentAt);
        if (--waiting === 0) arrived();
      });
    }),
  );
}
print(`${LISTENERS} listeners connected in ${((performance.now() - opened) / 1_000).toFixed(1)} s`);
const last: number[] = [];
for (let event = 0; event < EVENTS; event++) {
  waiting = LISTENERS;
  const all = new Promise<void>((done) => {
    arrived = done;
  });
  sentAt = performance.now();
  const data = { frames_done: event, frames_total: EVENTS };
  await publish({ topics, log: createLog("bench") }, topic, [{ type: "state", data }]);
  await all;
  last.push(performance.now() - sentAt);
}
const at = (times: number[], share: number) =>
  times.toSorted((left, right) => left - right)[Math.floor(times.length * share)] ?? NaN;
print(
  `fan-out to ${LISTENERS} listeners: p50 ${at(arrivals, 0.5).toFixed(0)} ms, ` +
    `p99 ${at(arrivals, 0.99).toFixed(0)} ms; the last listener p50 ${at(last, 0.5).toFixed(0)} ms`,
);
for (const socket of sockets) socket.terminate();
await stop();
