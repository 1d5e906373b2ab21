// What makes an incident and what ends it, statement by statement on a database of its own. Goal:
// what is wrong for a moment is not told, and what is over is over once.

import { sql } from "drizzle-orm";
import type pg from "pg";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { DutyOutcome } from "../../../../edge/http/duties.ts";
import { createLog } from "../../../../edge/http/log.ts";
import {
  noticeFailedDuties,
  noticeMissingBackup,
  tendIncidents,
} from "../../../../edge/vision/auth/incidents/causes.ts";
import { KEPT_INCIDENTS, listIncidents } from "../../../../edge/vision/auth/incidents/incidents.ts";
import { noticeEndpointErrors } from "../../../../edge/vision/serving/endpoints/incidents.ts";
import { noticeStalledQueues } from "../../../../edge/vision/tasks/incidents.ts";
import { DAY, HOUR, iso, MINUTE, systemClock } from "../../../../shared/time.ts";
import { rootOf } from "../../../support/audit.ts";
import { registerTestNode } from "../../../support/nodes.ts";
import { forgetRows } from "../../../support/retention.ts";
import { createTaskWorld, type TaskWorld } from "../../../support/task-world.ts";

let w: TaskWorld;
let root: pg.Client;
const start = systemClock();
let now = start;
beforeAll(async () => {
  w = await createTaskWorld();
  root = await rootOf(w);
});
afterAll(() => root?.end());
beforeEach(async () => {
  now = start;
  for (const table of ["incident", "duty_failure", "endpoint_faults", "task", "fleet_watch"]) {
    await w.visionDatabase.execute(sql.raw(`DELETE FROM ${table}`));
  }
  await root.query("DELETE FROM database_backup");
  await w.visionDatabase.execute(sql`
    INSERT INTO fleet_watch (since, seen_at)
    VALUES (${iso(start - DAY)}::timestamptz, ${iso(start)}::timestamptz)`);
});

type CauseParts = Parameters<typeof tendIncidents>[0];
const parts = ({ backupHoursMax = null }: { backupHoursMax?: number | null } = {}): CauseParts => ({
  database: w.visionDatabase,
  clock: () => now,
  log: createLog("test"),
  operatorWebhook: null,
  // There are others, which nothing here looks at.
  limits: { backupHoursMax } as CauseParts["limits"],
});

/** Kind, subject and whether it is over of each, the newest first. */
async function listed() {
  const all = await listIncidents({ database: w.visionDatabase }, { offset: 0, limit: 100 });
  return all.map(({ kind, subject, recovered_at }) => [kind, subject, recovered_at !== null]);
}
const detail = async () =>
  (await listIncidents({ database: w.visionDatabase }, { offset: 0, limit: 1 }))[0]?.detail;
const notices = async () => {
  const { rows } = await w.visionDatabase.execute<{ kind: string }>(sql`
    SELECT kind FROM incident_notice ORDER BY created_at, kind`);
  return rows.map(({ kind }) => kind);
};

describe("a queue", () => {
  const notice = () => noticeStalledQueues(parts());
  /** A task that has waited for so long. */
  async function waiting(milliseconds: number): Promise<string> {
    const id = await w.enqueued();
    const since = iso(start - milliseconds);
    await w.visionDatabase.execute(sql`
      UPDATE task SET created_at = ${since}::timestamptz, available_at = ${since}::timestamptz
       WHERE id = ${id}::uuid`);
    return id;
  }
  const claimedBefore = (id: string, milliseconds: number) =>
    w.visionDatabase.execute(sql`
      UPDATE task SET claimed_at = ${iso(start - milliseconds)}::timestamptz
       WHERE id = ${id}::uuid`);

  it("stands still where the first has waited, and goes on as one is claimed", async () => {
    await waiting(14 * MINUTE);
    await notice();
    expect(await listed()).toEqual([]);
    await waiting(16 * MINUTE);
    await Promise.all([notice(), notice(), notice()]);
    expect(await listed()).toEqual([["queue_stalled", "frames", false]]);
    expect(await detail()).toMatch(/frames of the lane \w+ waits since .*, .* 15 minutes$/);
    await w.claimed(w.node, "frames");
    await Promise.all([notice(), notice()]);
    expect(await listed()).toEqual([["queue_stalled", "frames", true]]);
    expect(await notices()).toEqual(["raised", "recovered"]);
  });

  it("is over where nothing waits any more", async () => {
    const id = await waiting(HOUR);
    await notice();
    await w.visionDatabase.execute(sql`DELETE FROM task WHERE id = ${id}::uuid`);
    await notice();
    expect(await listed()).toEqual([["queue_stalled", "frames", true]]);
  });

  it("moves where one was claimed of late, be it over already", async () => {
    const first = await waiting(2 * HOUR);
    await w.finish(await w.claimed(w.node, "frames"), { outcome: "finished", result: {} });
    await waiting(HOUR);
    await notice();
    expect(await listed()).toEqual([]);
    await claimedBefore(first, 16 * MINUTE);
    await notice();
    expect(await listed()).toHaveLength(1);
  });

  it("does not wait where its tasks are due later, or nobody watched meanwhile", async () => {
    const id = await waiting(HOUR);
    await w.visionDatabase.execute(sql`
      UPDATE task SET available_at = ${iso(start + MINUTE)}::timestamptz WHERE id = ${id}::uuid`);
    await notice();
    await waiting(HOUR);
    await w.visionDatabase.execute(sql`
      UPDATE fleet_watch SET since = ${iso(start - 5 * MINUTE)}::timestamptz`);
    await notice();
    expect(await listed()).toEqual([]);
  });

  it("does not stand still behind nodes that are all at work in its lane", async () => {
    await w.visionDatabase.execute(sql`UPDATE node SET revoked_at = now()`);
    const node = await registerTestNode(w.urls.vision, w.admin, {
      kinds: ["frames", "export"],
    });
    await waiting(2 * HOUR);
    const held = await w.claimed(node, "frames");
    await claimedBefore(held.task_id, HOUR);
    await w.visionDatabase.execute(sql`
      UPDATE task SET progress_at = now() WHERE id = ${held.task_id}::uuid`);
    await waiting(HOUR);
    // Of a kind that may take hours.
    await w.visionDatabase.execute(sql`UPDATE task SET kind = 'export'`);
    await notice();
    expect(await listed()).toEqual([]);
    // It gets no further with what it has.
    await w.visionDatabase.execute(sql`
      UPDATE task SET progress_at = now() - interval '20 minutes'
       WHERE id = ${held.task_id}::uuid`);
    await notice();
    expect(await listed()).toEqual([["queue_stalled", "export", false]]);
    await w.visionDatabase.execute(sql`UPDATE node SET revoked_at = NULL`);
  });
});

describe("a duty", () => {
  const minute = (count: number) => start + count * MINUTE;
  const failed = (at: number, ...duties: string[]) =>
    noticeFailedDuties(parts(), { succeeded: [], failed: duties }, at);
  const succeeded = (at: number, ...duties: string[]) =>
    noticeFailedDuties(parts(), { succeeded: duties, failed: [] }, at);

  it("that fails twice tells nothing, three times once, and is over at its first success", async () => {
    await failed(minute(0), "jobs", "uploads");
    await failed(minute(1), "jobs", "uploads");
    expect(await listed()).toEqual([]);
    await succeeded(minute(2), "uploads");
    await failed(minute(2), "jobs");
    await failed(minute(3), "jobs", "uploads");
    expect(await listed()).toEqual([["duty_failed", "jobs", false]]);
    await succeeded(minute(4), "jobs", "uploads");
    await succeeded(minute(5), "jobs", "uploads");
    expect(await listed()).toEqual([["duty_failed", "jobs", true]]);
    expect(await notices()).toEqual(["raised", "recovered"]);
  });

  it("of a minute with two crons failed once", async () => {
    await Promise.all([1, 2, 3, 4].map(() => failed(minute(0), "jobs")));
    await failed(minute(1) - 1, "jobs");
    await failed(minute(1), "jobs");
    expect(await listed()).toEqual([]);
    await Promise.all([1, 2, 3].map(() => failed(minute(2), "jobs")));
    expect(await listed()).toEqual([["duty_failed", "jobs", false]]);
  });

  it("that was not performed has neither failed nor succeeded", async () => {
    for (const at of [0, 1, 2]) await failed(minute(at), "jobs");
    await succeeded(minute(3), "others");
    expect(await listed()).toEqual([["duty_failed", "jobs", false]]);
    // A release that does not have it any more.
    await succeeded(minute(64), "others");
    expect(await listed()).toEqual([["duty_failed", "jobs", true]]);
  });

  it("of the incidents themselves is told of like others, and hides none of them", async () => {
    const causes = { endpoint_errors: noticeEndpointErrors };
    const tend = (outcome: DutyOutcome, at: number) =>
      tendIncidents(parts(), { outcome, minute: at, causes });
    await root.query("ALTER TABLE endpoint_faults RENAME TO away");
    try {
      const outcome = { succeeded: ["uploads"], failed: ["jobs"] };
      for (const at of [0, 1, 2]) await tend(outcome, minute(at));
    } finally {
      await root.query("ALTER TABLE away RENAME TO endpoint_faults");
    }
    const open = (await listed()).map(([, subject]) => subject).toSorted();
    expect(open).toEqual(["endpoint_errors", "jobs"]);
    await tend({ succeeded: ["jobs"], failed: [] }, minute(3));
    expect((await listed()).map(([, , isOver]) => isOver)).toEqual([true, true]);
  });
});

it("the cron counts its own duties, and goes on with the others", async () => {
  await root.query("ALTER TABLE device_log RENAME TO away");
  try {
    await w.tick(start);
    await w.tick(start + MINUTE);
    expect(await listed()).toEqual([]);
    await w.tick(start + 2 * MINUTE);
  } finally {
    await root.query("ALTER TABLE away RENAME TO device_log");
  }
  expect(await listed()).toEqual([["duty_failed", "device_logs", false]]);
  await w.tick(start + 3 * MINUTE);
  expect(await listed()).toEqual([["duty_failed", "device_logs", true]]);
});

describe("a backup", () => {
  const notice = (backupHoursMax: number | null = 26) =>
    noticeMissingBackup(parts({ backupHoursMax }));
  const made = (at: number) =>
    root.query(
      `INSERT INTO database_backup (made_at) VALUES ($1)
       ON CONFLICT (id) DO UPDATE SET made_at = excluded.made_at`,
      [iso(at)],
    );

  it("that was never made is missing, and is there once it is", async () => {
    await Promise.all([notice(), notice()]);
    expect(await listed()).toEqual([["backup_missing", "vision", false]]);
    expect(await detail()).toBe("no whole backup of the database was ever made");
    await made(start - HOUR);
    await notice();
    await notice();
    expect(await listed()).toEqual([["backup_missing", "vision", true]]);
    expect(await notices()).toEqual(["raised", "recovered"]);
  });

  it("is missing as it grows too old", async () => {
    await made(start);
    now = start + 26 * HOUR - 1;
    await notice();
    expect(await listed()).toEqual([]);
    now = start + 26 * HOUR;
    await notice();
    expect(await listed()).toEqual([["backup_missing", "vision", false]]);
    expect(await detail()).toContain(iso(start));
  });

  it("is not looked for where no age is set, and no more once it is not", async () => {
    await notice(null);
    expect(await listed()).toEqual([]);
    await notice();
    await notice(null);
    expect(await listed()).toEqual([["backup_missing", "vision", true]]);
  });
});

describe("an endpoint", () => {
  const notice = () => noticeEndpointErrors(parts());
  let id: string;
  beforeAll(async () => {
    id = crypto.randomUUID();
    await w.visionDatabase.execute(sql`
      INSERT INTO endpoint (id, workspace_id, slug, settings)
      VALUES (${id}::uuid, ${w.workspace}::uuid, 'gate', '{}')`);
  });
  const told = (requests: number, faults: number, at = now) =>
    w.visionDatabase.execute(sql`
      INSERT INTO endpoint_faults (endpoint_id, requests, faults, at)
      VALUES (${id}::uuid, ${requests}::int, ${faults}::int, ${iso(at)}::timestamptz)
      ON CONFLICT (endpoint_id) DO UPDATE SET requests = excluded.requests,
        faults = excluded.faults, at = excluded.at`);

  it("of few requests, or of few faults among them, is well", async () => {
    for (const [requests, faults] of [
      [49, 49],
      [100, 5],
      [1_000, 50],
    ] as const) {
      await told(requests, faults);
      await notice();
      expect(await listed()).toEqual([]);
    }
    await told(100, 100, start - 16 * MINUTE);
    await notice();
    expect(await listed()).toEqual([]);
  });

  it("of too many is told once, and well again only below half of that", async () => {
    await told(100, 6);
    await Promise.all([notice(), notice()]);
    expect(await listed()).toEqual([["endpoint_errors", id, false]]);
    expect(await detail()).toMatch(/^6 of 100 requests of the endpoint gate failed/);
    await told(1_000, 25);
    await notice();
    expect(await listed()).toEqual([["endpoint_errors", id, false]]);
    await told(1_000, 24);
    await notice();
    expect(await listed()).toEqual([["endpoint_errors", id, true]]);
    expect(await notices()).toEqual(["raised", "recovered"]);
  });

  it("is well again where no request came for an hour, or where it is gone", async () => {
    await told(100, 50);
    await notice();
    now = start + 59 * MINUTE;
    await notice();
    expect(await listed()).toEqual([["endpoint_errors", id, false]]);
    now = start + HOUR;
    await notice();
    expect(await listed()).toEqual([["endpoint_errors", id, true]]);
    now += DAY;
    await told(100, 50);
    await notice();
    await w.visionDatabase.execute(sql`
      UPDATE endpoint SET deleted_at = now() WHERE id = ${id}::uuid`);
    await notice();
    expect((await listed()).map(([, , isOver]) => isOver)).toEqual([true, true]);
  });
});

it("what was over four months ago is forgotten, with its messages", async () => {
  await noticeMissingBackup(parts({ backupHoursMax: 1 }));
  now = start + 200 * DAY;
  await forgetRows(parts(), KEPT_INCIDENTS);
  expect(await listed()).toHaveLength(1);
  await noticeMissingBackup(parts());
  now += 119 * DAY;
  await forgetRows(parts(), KEPT_INCIDENTS);
  expect(await notices()).toHaveLength(2);
  now += 2 * DAY;
  await forgetRows(parts(), KEPT_INCIDENTS);
  expect([await listed(), await notices()]).toEqual([[], []]);
});
