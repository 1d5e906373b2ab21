// The supervisor with a service that the test holds. Goal: a drain ends in its time, whatever is
// not answered yet, the status page shows how far tasks are, not what they found, and the service
// knows what lies in the folder of models.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { createLog } from "../../../gpu-node/base/log.ts";
import type { Line } from "../../../gpu-node/node/line.ts";
import { Offer } from "../../../gpu-node/node/offer.ts";
import { type OnWork, RequestRefusal, type Service } from "../../../gpu-node/node/service.ts";
import { startWorker, type Worker } from "../../../gpu-node/node/worker.ts";
import type { ClaimedTask, InstalledWeights } from "../../../shared/tasks/node-protocol.ts";
import { systemClock } from "../../../shared/time.ts";
import { CAPABILITIES } from "../../support/nodes.ts";

/** Says of each task how far it is, and never ends one. */
const CHILD = `process.on("message", ({ type, taskId }) => {
  if (type !== "task") return;
  const progress = { done: 1, total: 2, detail: { annotations: 3 }, partial: { frames: [] } };
  process.send({ type: "progress", taskId, progress });
});`;
const TASK: ClaimedTask = {
  task_id: crypto.randomUUID(),
  kind: "predict",
  fence: 1,
  attempt: 1,
  lease_until: "2026-01-01T00:00:00.000Z",
  payload: {},
  more: false,
};

/** Sets of weights that the service takes of a node. */
const SETS_MAX = 2;

let dir: string;
let tasks: ClaimedTask[];
let reported: unknown[];
/** First weights that lie in the node's folder, and those that it told of, by heartbeat. */
let weights: InstalledWeights[];
let told: (readonly InstalledWeights[] | "nothing")[];
/** Heartbeats that the service answers with an error. */
let faults: number;
let worker: Worker;
/** Has the node called, and hears of each claim as it begins. */
let call: OnWork;
let claimed: () => void;

beforeEach(() => {
  claimed = () => {};
  dir = mkdtempSync(join(tmpdir(), "vantage-worker-"));
  writeFileSync(join(dir, "child.mjs"), CHILD);
  [tasks, reported, weights, told, faults] = [[], [], [], [], 0];
  // A claim of the test before may still wait for its answer: it is given nothing of this one's.
  const own = tasks;
  const ended = Promise.withResolvers<void>();
  const line = { drain: () => ended.promise, close: () => ended.resolve() };
  const service: Partial<Service> = {
    claim: () => {
      claimed();
      return new Promise((done) => setTimeout(() => done(own.pop() ?? null), 10));
    },
    heartbeat: async ({ capabilities }) => {
      if (faults > 0) {
        faults -= 1;
        throw new Error("no answer");
      }
      if (capabilities && (capabilities.weights?.length ?? 0) > SETS_MAX)
        throw new RequestRefusal(422, "invalid_request", "too many");
      told.push(capabilities ? capabilities.weights : "nothing");
      return [];
    },
    progress: async (_, progress) => {
      reported.push(progress);
      return "go_on";
    },
    // There is no socket here.
    listen: (_, onWork, onOpen) => {
      call = onWork;
      queueMicrotask(() => onOpen(false));
      return () => {};
    },
    line: () => line as Line,
  };
  const capabilities = { ...CAPABILITIES, kinds: ["predict"], weights };
  worker = startWorker({
    service: service as Service,
    offer: new Offer(capabilities, async () => ({ segmenters: [], weights })),
    heartbeatMs: 20,
    // The child has no use for settings.
    slot: { entry: join(dir, "child.mjs"), environment: {}, settings: {} as never, setpriv: null },
    log: createLog(() => {}),
    clock: systemClock,
  });
});
afterEach(async () => {
  await worker.kill();
  rmSync(dir, { recursive: true, force: true });
});

it("leaves a request of the direct line to another node when the time of a drain is over", async () => {
  worker.drain(50);
  expect(await worker.stopped).toBeNull();
});

it("tells one caller of the task that it claimed, and the other that it has none for him", async () => {
  // The claim that is under way answers neither.
  const outcomes = Promise.all([call("predict"), call("predict")]);
  claimed = () => {
    claimed = () => {};
    tasks.push(TASK);
  };
  expect(await outcomes).toEqual(["taken", "busy"]);
  expect(await call("predict")).toBe("none");
  expect(await call("train")).toBe("busy");
  await expect.poll(() => reported).toHaveLength(1);
});

it("shows how far a task is, and reports the part that is done", async () => {
  tasks.push(TASK);
  await expect.poll(() => reported).toHaveLength(1);
  expect(reported).toMatchObject([{ done: 1, partial: { frames: [] } }]);
  const shown = worker.status().slots.flatMap((slot) => slot?.progress ?? []);
  expect(shown).toEqual([{ done: 1, total: 2, detail: { annotations: 3 } }]);
});

it("tells what lies in the folder of models as that changes, until the service heard it", async () => {
  await expect.poll(() => told.includes("nothing")).toBe(true);
  const words = { title: "COCO", licence: "MIT", source: "somewhere" };
  const set = { dataset: "coco", variant: "det26n", ...words };
  faults = 3;
  weights = [set];
  await expect.poll(() => told).toContainEqual([set]);
  const heard = told.length;
  await expect.poll(() => told.length).toBeGreaterThan(heard + 2);
  expect(told.at(-1)).toBe("nothing");
  weights = [];
  await expect.poll(() => told.filter((one) => one !== "nothing")).toEqual([[], [set], []]);
});

it("goes on without an offer that the service refuses", async () => {
  await expect.poll(() => told.includes("nothing")).toBe(true);
  const words = { title: "COCO", licence: "MIT", source: "somewhere", variant: "det26n" } as const;
  weights = ["one", "two", "three"].map((dataset) => ({ dataset, ...words }));
  const heard = told.length;
  await expect.poll(() => told.length).toBeGreaterThan(heard + 3);
  weights = weights.slice(1);
  await expect.poll(() => told).toContainEqual(weights);
});
