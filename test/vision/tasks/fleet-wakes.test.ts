// A large fleet on one bell: real supervisors, whose looks of their own are an hour
// apart, so that only the bell has them claim. Goal: a task costs few statements however many nodes
// there are, and nodes that are gone, silent or full hold none up.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sql } from "drizzle-orm";
import { afterAll, beforeAll, beforeEach, expect, inject, it } from "vitest";
import { WebSocket } from "ws";
import { createLog } from "../../../edge/http/log.ts";
import { sha256 } from "../../../edge/vision/auth/digest.ts";
import { API } from "../../../edge/vision/base/api.ts";
import type { Parts } from "../../../edge/vision/base/parts.ts";
import { ring } from "../../../edge/vision/tasks/nodes/bell.ts";
import { source } from "../../../edge/vision/tasks/objects.ts";
import { findTask, type NewTask } from "../../../edge/vision/tasks/queue/queue.ts";
import { submit } from "../../../edge/vision/tasks/queue/wait.ts";
import { createLog as createNodeLog } from "../../../gpu-node/base/log.ts";
import { Offer } from "../../../gpu-node/node/offer.ts";
import { connect } from "../../../gpu-node/node/service.ts";
import { startWorker, type Worker } from "../../../gpu-node/node/worker.ts";
import { Secret } from "../../../shared/secret.ts";
import type { TaskKind } from "../../../shared/tasks/tasks.ts";
import { HOUR, systemClock } from "../../../shared/time.ts";
import { type Cuttable, cuttable } from "../../support/cuttable.ts";
import { CAPABILITIES } from "../../support/nodes.ts";
import { newTenant, register } from "../../support/vision.ts";
import { createWorld, type World } from "../../support/world.ts";

/** A thousand real supervisors take half a minute of idle cores: LARGE=1. */
const isLarge = process.env.LARGE === "1";
const FLEET = isLarge ? 1_000 : 300;
/** Where cores are busy, an answer may take longer than the bell waits, and another node looks. */
const SPARE = isLarge ? 0 : FLEET / 2;
/** Tasks that are enqueued at once, in turn. */
const BATCHES = isLarge ? [1, 1, 20] : [1, 1, 1];
/** So many at once, or handshakes time out on a busy machine. */
const STARTED_AT_ONCE = 50;
/** Holds a task for ever. */
const CHILD = 'process.on("message", () => {});';

const dir = mkdtempSync(join(tmpdir(), "vantage-fleet-"));
let world: World;
let way: Cuttable;
let workspace: string;
let parts: Parts;
/** Statements that the service sent since the last test began. */
let statements = 0;
/** What the test holds open, and its end. */
const open: (() => unknown)[] = [];

beforeAll(async () => {
  writeFileSync(join(dir, "child.mjs"), CHILD);
  way = await cuttable(inject("postgres").endpointPort, (bytes) => {
    statements += bytes.toString("latin1").split('"query":').length - 1;
  });
  world = await createWorld({ services: ["vision"], visionPort: way.port });
  const admin = await register(world.urls.vision);
  ({ workspaceId: workspace } = await newTenant(world.urls.vision, admin, "engineer"));
  parts = {
    database: world.visionDatabase,
    doorbell: world.objects("DOORBELL"),
    clock: systemClock,
    log: createLog("test"),
  } as Parts;
});
beforeEach(async () => {
  for (const end of open.splice(0)) await end();
  await world.visionDatabase.execute(sql`DELETE FROM task`);
});
afterAll(async () => {
  for (const end of open.splice(0)) await end();
  await way.close();
  rmSync(dir, { recursive: true, force: true });
});

/** Registers so many nodes, straight in the database, and gives their tokens. */
async function tokens(
  count: number,
  {
    kinds = ["frames"],
    workspaceId = null,
  }: { kinds?: TaskKind[]; workspaceId?: string | null } = {},
): Promise<string[]> {
  const made = Array.from({ length: count }, () => `vnt_${crypto.randomUUID()}`);
  const hashes = await Promise.all(made.map(sha256));
  await world.visionDatabase.execute(sql`
    INSERT INTO node (id, name, workspace_id, token_hash, capabilities)
    SELECT gen_random_uuid(), 'one of many', ${workspaceId}::uuid, decode(hash, 'hex'),
        ${JSON.stringify({ ...CAPABILITIES, kinds })}::jsonb
      FROM jsonb_array_elements_text(${JSON.stringify(hashes)}::jsonb) AS hash`);
  return made;
}

/** Real supervisors, whose sockets are open. */
async function startFleet(count: number): Promise<void> {
  const log = createNodeLog(() => {});
  const workers: Worker[] = [];
  open.push(() => Promise.all(workers.map((worker) => worker.kill())));
  const start = (token: string) =>
    startWorker({
      service: connect({ url: world.urls.vision, token: new Secret(token), log }),
      offer: new Offer({ ...CAPABILITIES, kinds: ["frames"] }, async () => ({
        segmenters: [],
        weights: [],
      })),
      heartbeatMs: HOUR,
      idleMs: HOUR,
      slot: {
        entry: join(dir, "child.mjs"),
        environment: {},
        // The child has no use for settings.
        settings: {} as never,
        setpriv: null,
      },
      log,
      clock: systemClock,
    });
  for (const [index, token] of (await tokens(count)).entries()) {
    workers.push(start(token));
    if ((index + 1) % STARTED_AT_ONCE !== 0 && index + 1 < count) continue;
    await expect.poll(() => workers.every((worker) => worker.status().socket)).toBe(true);
  }
  // The first look of each, once its socket was open.
  await quiet();
}

/** Resolves when the service sends no statement any more. */
async function quiet() {
  for (let before = -1; before !== statements; ) {
    before = statements;
    // Claims from before a socket was open look once a second.
    await new Promise((done) => setTimeout(done, 1_500));
  }
}

/** Sockets of nodes that say what the test has them say, or nothing. */
async function startSockets(
  count: number,
  outcome: string | null,
  offer: Parameters<typeof tokens>[1] = {},
): Promise<{ rung: number }> {
  const heard = { rung: 0 };
  const address = `${world.urls.vision}${API}/node/socket`.replace("http", "ws");
  for (const token of await tokens(count, offer)) {
    const socket = new WebSocket(address, { headers: { Authorization: `Bearer ${token}` } });
    socket.on("message", (data) => {
      heard.rung += 1;
      const { call } = JSON.parse(data.toString());
      if (outcome) socket.send(JSON.stringify({ type: "answer", call, outcome }));
    });
    await new Promise((opened, failed) => socket.on("open", opened).on("error", failed));
    open.push(() => {
      const closed = new Promise((done) => socket.once("close", done));
      socket.close();
      return closed;
    });
  }
  return heard;
}

const task = (): NewTask => ({
  kind: "frames",
  workspaceId: workspace,
  subject: "test",
  payload: { video: source(`ws/${workspace}/a`, 1), video_id: "v", frames: [0], images: [] },
});
const enqueued = async (count = 1) => {
  const made = await submit(parts, Array.from({ length: count }, task));
  return made.map(({ taskId }) => taskId);
};
const areTaken = async (ids: readonly string[]) => {
  const found = await Promise.all(ids.map((id) => findTask(world.visionDatabase, id)));
  return found.filter((one) => one?.state === "running").length;
};

it("costs five statements a task at most, on whichever nodes have room", async () => {
  await startFleet(FLEET);
  for (const count of BATCHES) {
    statements = 0;
    const ids = await enqueued(count);
    await expect.poll(() => areTaken(ids)).toBe(count);
    await quiet();
    // The test's own enqueueing is a statement, whatever the count.
    expect(statements + 1).toBeLessThanOrEqual(5 * count + SPARE);
  }
  const { rows } = await world.visionDatabase.execute<{ nodes: number }>(sql`
    SELECT count(DISTINCT node_id)::int AS nodes FROM task WHERE state = 'running'`);
  // A node may have room for two.
  const tasks = BATCHES.reduce((sum, count) => sum + count, 0);
  expect(rows[0]?.nodes).toBeGreaterThanOrEqual(tasks / 2);
});

it.each([
  ["that say that they have no room", "busy"],
  ["that do not answer", null],
])("goes on past nodes %s", async (_, outcome) => {
  await startFleet(1);
  // Woken once, it stands behind all who come now.
  await ring(parts, [task()]);
  const others = await startSockets(30, outcome);
  const ids = await enqueued();
  await expect.poll(() => areTaken(ids)).toBe(1);
  expect(others.rung).toBe(30);
});

it("goes on past a node that goes away with its call", async () => {
  const others = await startSockets(1, null);
  const ids = await enqueued();
  await expect.poll(() => others.rung).toBe(1);
  for (const end of open.splice(0)) await end();
  await startFleet(1);
  await expect.poll(() => areTaken(ids)).toBe(1);
});

it("wakes nobody who takes no such task", async () => {
  const others = await Promise.all([
    startSockets(3, "none", { kinds: ["label"] }),
    startSockets(3, "none", { workspaceId: await otherWorkspace() }),
  ]);
  const fits = await startSockets(3, "none", { workspaceId: workspace });
  await enqueued();
  await expect.poll(() => fits.rung).toBe(1);
  await quiet();
  // Who finds none ends the call.
  expect([fits.rung, ...others.map(({ rung }) => rung)]).toEqual([1, 0, 0]);
});

async function otherWorkspace(): Promise<string> {
  const { rows } = await world.visionDatabase.execute<{ id: string }>(sql`
    SELECT id::text FROM workspace WHERE id <> ${workspace}::uuid LIMIT 1`);
  return rows[0]?.id ?? "";
}
