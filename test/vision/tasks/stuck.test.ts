// Which running tasks count as stuck, by the clock of the database. Goal: each is judged by the
// newest attempt's own pace and by its kind's limit, and what is at work at its pace is not told.

import { sql } from "drizzle-orm";
import { beforeAll, expect, it } from "vitest";
import { stuckTasks } from "../../../edge/vision/tasks/overview.ts";
import {
  claim,
  enqueue,
  heartbeat,
  reportProgress,
} from "../../../edge/vision/tasks/queue/queue.ts";
import type { TaskKind } from "../../../shared/tasks/tasks.ts";
import { DAY, HOUR, MINUTE } from "../../../shared/time.ts";
import { createTaskWorld, type TaskWorld } from "../../support/task-world.ts";

let w: TaskWorld;
beforeAll(async () => {
  w = await createTaskWorld();
});

interface RunningTask {
  kind?: TaskKind;
  /** Milliseconds ago: when it was claimed, and when it reported each further step. */
  claimed: number;
  steps?: readonly number[];
  /** Its node is still there. */
  renewed?: boolean;
}

/** A running task of a kind, as its node had it until now; its id. */
async function running({ kind = "label", claimed, steps = [], renewed = true }: RunningTask) {
  const { visionDatabase: database, node, workspace } = w;
  const { nodeId } = node;
  const now = Date.now();
  const task = w.plain({ kind, workspaceId: workspace });
  const [enqueued] = await enqueue(database, [task], now - claimed);
  const taskId = enqueued?.taskId ?? "";
  const claimant = { nodeId, workspaceId: null, kinds: [kind] };
  const { fence } = (await claim(database, claimant, now - claimed)) ?? expect.fail();
  for (const [index, ago] of steps.entries()) {
    const progress = { done: index + 1, total: 1_000, detail: {} };
    await reportProgress(database, { nodeId, taskId, fence }, progress, now - ago);
  }
  if (renewed) await heartbeat(database, nodeId, [{ taskId, fence }], now);
  return taskId;
}
/** Why a task counts as stuck; null where it does not. */
const reasonOf = async (taskId: string) =>
  (await stuckTasks(w.visionDatabase, "installation")).find((one) => one.taskId === taskId)
    ?.reason ?? null;

/** Instants in milliseconds ago: so many steps of a length, the last one so long ago. */
const paced = (count: number, step: number, last: number) =>
  Array.from({ length: count }, (_, index) => last + (count - 1 - index) * step);

it("is silent for over five minutes, whatever its first steps took", async () => {
  expect(await reasonOf(await running({ claimed: 4 * MINUTE }))).toBeNull();
  expect(await reasonOf(await running({ claimed: 6 * MINUTE }))).toBe("no_progress");
  // Three hours until the first step: its mean step is a quarter of an hour since then.
  const steps = paced(11, MINUTE, 6 * MINUTE);
  expect(await reasonOf(await running({ claimed: 3 * HOUR, steps }))).toBe("no_progress");
});

it("is not silent where its steps take long", async () => {
  const claimed = 3 * HOUR;
  const slow = await running({ claimed, steps: paced(9, 4 * MINUTE, 15 * MINUTE) });
  expect(await reasonOf(slow)).toBeNull();
  const late = await running({ claimed, steps: paced(9, 4 * MINUTE, 25 * MINUTE) });
  expect(await reasonOf(late)).toBe("no_progress");
  // Its newer pace is most of what is remembered.
  const faster = [...paced(40, 4 * MINUTE, 30 * MINUTE), ...paced(20, MINUTE, 6 * MINUTE)];
  expect(await reasonOf(await running({ kind: "train", claimed: 4 * HOUR, steps: faster }))).toBe(
    "no_progress",
  );
});

it("is over its kind's limit, and another kind's is another one", async () => {
  const at = async (kind: TaskKind, claimed: number) =>
    reasonOf(await running({ kind, claimed, steps: [MINUTE] }));
  expect(await at("label", 3 * HOUR)).toBeNull();
  expect(await at("label", 5 * HOUR)).toBe("too_long");
  expect(await at("train", 6 * DAY)).toBeNull();
  expect(await at("train", 8 * DAY)).toBe("too_long");
  expect(await at("warm", 9 * MINUTE)).toBeNull();
  expect(await at("warm", 11 * MINUTE)).toBe("too_long");
});

it("has a lease that nobody freed for three minutes", async () => {
  const lost = (claimed: number) => running({ claimed, steps: [claimed], renewed: false });
  expect(await reasonOf(await lost(3 * MINUTE))).toBeNull();
  expect(await reasonOf(await lost(4 * MINUTE + 10_000))).toBe("lease_expired");
});

it("is none that was claimed again a moment ago", async () => {
  const claimed = 5 * HOUR;
  const taskId = await running({ claimed, steps: paced(3, MINUTE, HOUR) });
  expect(await reasonOf(taskId)).toBe("too_long");
  const { rows } = await w.visionDatabase.execute<{ fence: number }>(
    sql`SELECT fence::int FROM task WHERE id = ${taskId}::uuid`,
  );
  const snoozed = { outcome: "snoozed", seconds: 0 };
  await w.node.post(`/node/tasks/${taskId}/finish`, { fence: rows[0]?.fence, outcome: snoozed });
  const claimant = { nodeId: w.node.nodeId, workspaceId: null, kinds: ["label"] };
  expect(await claim(w.visionDatabase, claimant)).toMatchObject({ taskId });
  expect(await reasonOf(taskId)).toBeNull();
});
