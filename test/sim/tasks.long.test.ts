// The task queue under crashes, late heartbeats, repeated and stale reports, revocations, snoozes
// and clocks that jump: ten thousand random histories of a model, and some of them step by step
// against the real SQL. A failure names its seed; SEED= runs it again.

import { sql } from "drizzle-orm";
import fc from "fast-check";
import { beforeAll, describe, expect, it } from "vitest";
import { type Database, openDatabase } from "../../edge/http/database.ts";
import * as interventions from "../../edge/vision/tasks/queue/interventions.ts";
import * as queue from "../../edge/vision/tasks/queue/queue.ts";
import {
  CIRCUMSTANCES,
  choose,
  destination,
  hasEnded,
  MOVES,
  type Move,
  OUTCOME_MOVES,
  RESCUE_MOVES,
  TASK_STATES,
} from "../../edge/vision/tasks/queue/states.ts";
import { Failure } from "../../shared/errors.ts";
import { Secret } from "../../shared/secret.ts";
import type { Outcome } from "../../shared/tasks/node-protocol.ts";
import { createDatabases } from "../support/world.ts";
import {
  type Attempt,
  byId,
  createModel,
  type Model,
  type Report,
  type Row,
  shown,
  type Verbs,
} from "./task-model.ts";

const START = Date.UTC(2026, 0, 1);
const KINDS = ["frames", "segment"];
const NODES = [1, 2, 3].map((number) => `00000000-0000-4000-8000-00000000000${number}`);
const seed = process.env.SEED ? { seed: Number(process.env.SEED) } : {};

describe("the table of moves", () => {
  it("allows or refuses every pair of a state and a move", () => {
    const pairs = TASK_STATES.map((state) => [
      state,
      (Object.keys(MOVES) as Move[]).flatMap((move) => {
        const next = destination(state, move);
        return next === null ? [] : [`${move} → ${next}`];
      }),
    ]);
    expect(Object.fromEntries(pairs)).toEqual({
      queued: [
        "claim → running",
        "cancel → cancelled",
        "revoke → revoked",
        "purge → cancelled",
        "give_up → failed",
      ],
      running: [
        "renew → running",
        "finish → finished",
        "fail → failed",
        "retry → queued",
        "snooze → queued",
        "cancel → running",
        "revoke → running",
        "stop → cancelled",
        "exit → revoked",
      ],
      finished: [],
      failed: [],
      cancelled: [],
      revoked: [],
    });
  });

  it("has a move of a running task for every outcome and every expired lease", () => {
    for (const [name, choice] of Object.entries({ ...OUTCOME_MOVES, rescue: RESCUE_MOVES })) {
      for (let bits = 0; bits < 2 ** CIRCUMSTANCES.length; bits++) {
        const holds = (circumstance: (typeof CIRCUMSTANCES)[number]) =>
          circumstance === "always" || ((bits >> CIRCUMSTANCES.indexOf(circumstance)) & 1) === 1;
        const move = choose(choice, holds);
        if (move !== null) expect(destination("running", move)).not.toBeNull();
        // Only what somebody has to ask for can be refused.
        else expect(["cancelled", "revoked"]).toContain(name);
      }
    }
  });
});

interface Step {
  verb:
    | "claim"
    | "heartbeat"
    | "progress"
    | "finish"
    | "again"
    | "cancel"
    | "revoke"
    | "rescue"
    | "purge"
    | "crash";
  node: number;
  which: number;
  attempt: Attempt;
  /** Seconds that the clock moves before the step. */
  elapsed: number;
}

const step: fc.Arbitrary<Step> = fc.record({
  verb: fc.oneof(
    { weight: 30, arbitrary: fc.constant("claim" as const) },
    { weight: 25, arbitrary: fc.constant("finish" as const) },
    { weight: 12, arbitrary: fc.constant("rescue" as const) },
    { weight: 10, arbitrary: fc.constantFrom("heartbeat" as const, "progress" as const) },
    { weight: 10, arbitrary: fc.constant("again" as const) },
    { weight: 8, arbitrary: fc.constantFrom("cancel" as const, "revoke" as const) },
    { weight: 4, arbitrary: fc.constant("crash" as const) },
    { weight: 1, arbitrary: fc.constant("purge" as const) },
  ),
  node: fc.nat(NODES.length - 1),
  which: fc.nat(20),
  attempt: fc.record({
    outcome: fc.constantFrom("finished", "failed", "failed", "cancelled", "revoked", "snoozed"),
    retryable: fc.constantFrom(true, true, false),
    seconds: fc.constantFrom(0, 5, 600),
  }),
  elapsed: fc.oneof(
    { weight: 10, arbitrary: fc.integer({ min: 0, max: 25 }) },
    { weight: 3, arbitrary: fc.constantFrom(59, 60, 61, 121, 400) },
    { weight: 1, arbitrary: fc.constantFrom(-3_600, -61, -1, 86_400) },
  ),
});

const newTasks = fc.array(
  fc.record({
    kind: fc.constantFrom(...KINDS),
    priority: fc.constantFrom(0, 0, 5),
    attemptsMax: fc.integer({ min: 1, max: 3 }),
  }),
  { minLength: 1, maxLength: 5 },
);

const rowOf = (task: { kind: string; priority: number; attemptsMax: number }, id: string): Row => ({
  ...task,
  id,
  state: "queued",
  attempt: 0,
  fence: 0,
  nodeId: null,
  leaseUntil: null,
  availableAt: START,
  cancelRequested: false,
  revokeRequested: false,
  failedFences: [],
});

/** Histories, steps and what they met, printed at the end. */
type Counts = Record<string, number>;
const tally = (counts: Counts, name: string) => {
  counts[name] = (counts[name] ?? 0) + 1;
};

/** Plays a history on the model and, where given, on the database, which must answer alike. */
async function play(model: Model, real: Verbs | null, steps: readonly Step[], counts: Counts) {
  /** What each node believes it holds, and what it has reported before. */
  const held = new Map<string, Report[]>(NODES.map((node) => [node, []]));
  const reported: { report: Report; attempt: Attempt }[] = [];
  const taken = new Set<string>();
  let now = START;

  async function both<Answer>(ask: (verbs: Verbs) => Answer | Promise<Answer>): Promise<Answer> {
    const answer = await ask(model);
    if (real) {
      expect(await ask(real)).toEqual(answer);
      expect(await real.rows()).toEqual(model.rows());
    }
    return answer;
  }

  async function report(one: Report, attempt: Attempt) {
    const before = model.rows().find(({ id }) => id === one.taskId)?.state;
    const answer = await both((verbs) => verbs.finish(one, attempt, now));
    tally(counts, `finish: ${answer}`);
    const moved = TASK_STATES.some((state) => state === answer);
    if (moved) {
      must(before === "running", "only a running task takes an outcome");
      const key = `${one.taskId} ${one.fence}`;
      must(!taken.has(key), "one attempt has one outcome");
      taken.add(key);
    }
    if (moved || answer === "lease_stale") drop(one);
    reported.push({ report: one, attempt });
  }
  const drop = (one: Report) => {
    const list = held.get(one.nodeId) as Report[];
    if (list.includes(one)) list.splice(list.indexOf(one), 1);
  };

  async function take(nodeId: string, { attempt, which, verb }: Step) {
    const list = held.get(nodeId) as Report[];
    const one = list[which % Math.max(list.length, 1)];
    switch (verb) {
      case "claim": {
        const claimed = await both((verbs) => verbs.claim(nodeId, KINDS, now));
        if (claimed) list.push({ nodeId, taskId: claimed.taskId, fence: claimed.fence });
        return tally(counts, claimed ? "claimed" : "nothing to claim");
      }
      case "heartbeat": {
        if (!one) return;
        const verdict = await both((verbs) => verbs.heartbeat(one, now));
        tally(counts, `heartbeat: ${verdict}`);
        return verdict === "lost" ? drop(one) : undefined;
      }
      case "progress":
        if (one) tally(counts, `progress: ${await both((verbs) => verbs.progress(one, now))}`);
        return;
      case "finish":
        return one && report(one, attempt);
      case "again": {
        const before = reported[which % Math.max(reported.length, 1)];
        return before && report(before.report, which % 3 === 0 ? attempt : before.attempt);
      }
      case "crash":
        return held.set(nodeId, []);
      case "rescue":
        for (const one of await both((verbs) => verbs.rescue(now))) {
          tally(counts, `rescue: ${one.split(" ")[1]}`);
        }
        return;
      case "purge":
        return both((verbs) => verbs.purge(KINDS[which % KINDS.length] ?? "", now));
      case "cancel":
      case "revoke": {
        const rows = model.rows();
        const id = rows[which % rows.length]?.id ?? "";
        return both((verbs) => verbs[verb](id, now));
      }
    }
  }

  let fences = new Map<string, number>();
  for (const one of steps) {
    now += one.elapsed * 1_000;
    await take(NODES[one.node] ?? "", one);
    tally(counts, "steps");
    fences = checkInvariants(model, held, fences);
  }
  await drain(model, real, now, counts, both);
}

/** Millions of checks: vitest's own would take most of the time. */
function must(holds: boolean, what: string) {
  if (!holds) throw new Error(`broken: ${what}`);
}

/** Never two live leases on a task, fences only rise, an ended task stays ended. */
function checkInvariants(model: Model, held: Map<string, Report[]>, before: Map<string, number>) {
  for (const row of model.rows()) {
    const writers = [...held.values()]
      .flat()
      .filter(({ taskId, fence, nodeId }) => taskId === row.id && couldWrite(row, nodeId, fence));
    must(writers.length <= 1, "a task has one live lease at most");
    must(row.fence >= (before.get(row.id) ?? 0), "fences only rise");
    must(model.ends.get(row.id) === Number(hasEnded(row.state)), "a task ends once, for good");
    must((row.state === "running") === (row.leaseUntil !== null), "running tasks have leases");
    must(row.attempt <= row.attemptsMax, "attempts are bounded");
  }
  return new Map(model.rows().map(({ id, fence }) => [id, fence]));
}

const couldWrite = (row: Row, nodeId: string, fence: number) =>
  row.state === "running" && row.nodeId === nodeId && row.fence === fence;

/** Nothing is lost: with one node that works and the minute's rescue, every task ends, once. */
async function drain(
  model: Model,
  real: Verbs | null,
  from: number,
  counts: Counts,
  both: <Answer>(ask: (verbs: Verbs) => Answer | Promise<Answer>) => Promise<Answer>,
) {
  const nodeId = NODES[0] ?? "";
  // A clock that jumped a day ahead left due times there.
  let now = Math.max(from, START) + 2 * 86_400_000;
  for (let minute = 0; model.rows().some(({ state }) => !hasEnded(state)); minute++) {
    must(minute < 60, "every task ends within an hour of work");
    now += 60_000;
    await both((verbs) => verbs.rescue(now));
    const claimed = await both((verbs) => verbs.claim(nodeId, KINDS, now));
    if (!claimed) continue;
    const done: Attempt = { outcome: "finished", retryable: true, seconds: 0 };
    await both((verbs) => verbs.finish({ nodeId, ...claimed }, done, now));
  }
  for (const [, ends] of model.ends) must(ends === 1, "every task ended once");
  for (const { state } of model.rows()) tally(counts, `ended: ${state}`);
  if (real) expect(await real.rows()).toEqual(model.rows());
}

describe("ten thousand histories of the model", () => {
  it("never have two live leases on a task, end every task once, and lose none", async () => {
    const counts: Counts = {};
    const property = fc.asyncProperty(
      newTasks,
      fc.array(step, { minLength: 5, maxLength: 60, size: "max" }),
      async (tasks, steps) => {
        tally(counts, "histories");
        const rows = tasks.map((task, index) => rowOf(task, `task-${index}`));
        await play(createModel(rows), null, steps, counts);
      },
    );
    await fc.assert(property, { numRuns: 10_000, ...seed });
    console.info(`model: ${JSON.stringify(counts)}`);
    for (const state of TASK_STATES.filter(hasEnded)) {
      expect(counts[`ended: ${state}`]).toBeGreaterThan(100);
    }
    expect(counts["finish: repeated"]).toBeGreaterThan(100);
    expect(counts["finish: lease_stale"]).toBeGreaterThan(100);
  });
});

describe("the SQL", () => {
  let database: Database;
  let workspaceId: string;
  beforeAll(async () => {
    const { visionWriter } = await createDatabases();
    database = openDatabase(new Secret(visionWriter));
    const { rows } = await database.execute<{ id: string }>(sql`SELECT id::text FROM workspace`);
    workspaceId = rows[0]?.id as string;
    for (const [index, id] of NODES.entries()) {
      await database.execute(sql`
        INSERT INTO node (id, name, token_hash, capabilities)
        VALUES (${id}::uuid, 'a node', decode(${`0${index}`}, 'hex'), '{}')`);
    }
  });

  const outcomeOf = ({ outcome, retryable, seconds }: Attempt): Outcome => {
    switch (outcome) {
      case "finished":
        return { outcome, result: {} };
      case "failed":
        return { outcome, code: "test", detail: "it failed", retryable };
      case "cancelled":
        return { outcome, result: null };
      case "revoked":
        return { outcome, exited: true };
      case "snoozed":
        return { outcome, seconds };
    }
  };
  const orCode = <Answer>(asked: Promise<Answer>) =>
    asked.catch((thrown: unknown) => {
      if (thrown instanceof Failure) return thrown.code;
      throw thrown;
    });
  const states = (tasks: queue.Task[]) =>
    tasks.map(({ taskId, state }) => shown({ id: taskId, state })).sort();

  const real: Verbs = {
    claim: async (nodeId, kinds, now) => {
      const claimed = await queue.claim(database, { nodeId, workspaceId: null, kinds }, now);
      if (!claimed) return null;
      const { taskId, fence, attempt } = claimed;
      return { taskId, fence, attempt };
    },
    heartbeat: async (held, now) => {
      const [answer] = await queue.heartbeat(database, held.nodeId, [held], now);
      return answer?.verdict ?? "none";
    },
    progress: (held, now) =>
      orCode(
        queue
          .reportProgress(database, held, { done: 1, total: 2, detail: {} }, now)
          .then(({ verdict }) => verdict as string),
      ),
    finish: (held, attempt, now) =>
      orCode(
        queue
          .finish(database, held, outcomeOf(attempt), now)
          .then(({ task, repeated }): string => (repeated ? "repeated" : task.state)),
      ),
    cancel: async (taskId, now) =>
      states(await interventions.requestCancel(database, { taskIds: [taskId] }, now)),
    revoke: async (taskId, now) =>
      states(await interventions.requestRevoke(database, { taskIds: [taskId] }, now)),
    rescue: async (now) => states(await queue.rescue(database, now)),
    purge: async (kind, now) =>
      states((await interventions.purge(database, { kind, realm: "installation" }, now)).purged),
    rows: async () => {
      const { rows } = await database.execute<Row & Record<string, unknown>>(sql`
        SELECT id::text, kind, priority, attempt, attempts_max AS "attemptsMax", state,
          fence::float8 AS fence, node_id::text AS "nodeId",
          (extract(epoch FROM lease_until) * 1000)::float8 AS "leaseUntil",
          (extract(epoch FROM available_at) * 1000)::float8 AS "availableAt",
          cancel_requested_at IS NOT NULL AS "cancelRequested",
          revoke_requested_at IS NOT NULL AS "revokeRequested",
          coalesce((SELECT jsonb_agg(one->'fence') FROM jsonb_array_elements(errors) AS one), '[]')
            AS "failedFences"
          FROM task`);
      return rows.sort(byId);
    },
  };

  it("answers every step of random histories as the model does", async () => {
    const counts: Counts = {};
    const property = fc.asyncProperty(
      newTasks,
      fc.array(step, { minLength: 10, maxLength: 60, size: "max" }),
      async (tasks, steps) => {
        tally(counts, "histories");
        await database.execute(sql`DELETE FROM task`);
        const made = await queue.enqueue(
          database,
          // The queue reads no payload, and a whole one of each kind would say nothing here.
          tasks.map((task) => ({ ...task, workspaceId, subject: "sim", payload: {} }) as never),
          START,
        );
        const rows = tasks.map((task, index) => rowOf(task, made[index]?.taskId ?? ""));
        await play(createModel(rows), real, steps, counts);
      },
    );
    await fc.assert(property, { numRuns: 60, ...seed });
    console.info(`SQL: ${JSON.stringify(counts)}`);
    expect(counts.steps).toBeGreaterThan(1_000);
  });

  it("gives each task to one node, however many ask at once", async () => {
    await database.execute(sql`DELETE FROM task`);
    const task = { kind: "frames", workspaceId, subject: "race", payload: {} };
    const count = 60;
    // As above: an empty payload, which the queue does not read.
    await queue.enqueue(database, Array.from({ length: count }, () => task) as never, START);
    const ask = async (index: number) => {
      const nodeId = NODES[index % NODES.length] ?? "";
      const mine: string[] = [];
      for (;;) {
        const claimed = await queue.claim(
          database,
          { nodeId, workspaceId: null, kinds: ["frames"] },
          START,
        );
        if (!claimed) return mine;
        mine.push(claimed.taskId);
      }
    };
    const taken = (await Promise.all(Array.from({ length: 12 }, (_, one) => ask(one)))).flat();
    expect(taken).toHaveLength(count);
    expect(new Set(taken).size).toBe(count);
  });

  it("lets one of many rescuers, finishers and revokers win, and leaves one end", async () => {
    const ended: string[] = [];
    for (let round = 0; round < 20; round++) {
      await database.execute(sql`DELETE FROM task`);
      const task = { kind: "frames", workspaceId, subject: "race", payload: {}, attemptsMax: 1 };
      // As above: an empty payload, which the queue does not read.
      await queue.enqueue(database, [task] as never, START);
      const nodeId = NODES[0] ?? "";
      const claimed = await queue.claim(
        database,
        { nodeId, workspaceId: null, kinds: ["frames"] },
        START,
      );
      const held = { nodeId, taskId: claimed?.taskId ?? "", fence: claimed?.fence ?? 0 };
      const late = START + 61_000;
      const done: Outcome = { outcome: "finished", result: {} };
      const moves = [
        queue.finish(database, held, done, late).then(({ repeated }) => (repeated ? 0 : 1)),
        queue.finish(database, held, done, late).then(({ repeated }) => (repeated ? 0 : 1)),
        queue.rescue(database, late).then((tasks) => tasks.length),
        queue.rescue(database, late).then((tasks) => tasks.length),
        interventions.requestRevoke(database, { subject: "race" }, late).then(() => 0),
      ];
      const results = await Promise.all(moves.map((move) => move.catch(() => 0)));
      const [row] = await real.rows();
      expect(results.reduce((sum, one) => sum + one, 0)).toBe(
        hasEnded(row?.state ?? "queued") ? 1 : 0,
      );
      ended.push(row?.state ?? "");
    }
    expect(new Set(ended).size).toBeGreaterThan(0);
  });

  it("enqueues the same work once", async () => {
    const task = { kind: "frames", workspaceId, subject: "once", payload: {} };
    const keyed = (idempotencyKey: string) => ({ ...task, idempotencyKey });
    // As above: an empty payload, which the queue does not read.
    const asked = [keyed("a"), keyed("b"), keyed("a")] as never;
    const answers = await Promise.all([1, 2, 3].map(() => queue.enqueue(database, asked)));
    const ids = answers.flat().map(({ taskId }) => taskId);
    expect(new Set(ids).size).toBe(2);
    expect(answers.flat().filter(({ created }) => created)).toHaveLength(2);
    for (const one of answers) expect(one[0]?.taskId).toBe(one[2]?.taskId);
  });
});
