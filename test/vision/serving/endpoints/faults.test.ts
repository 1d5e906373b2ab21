// Faults of the service among an endpoint's requests. Goal: what callers do wrong is none, what is
// told is told at most once a minute, and an endpoint that is well tells nothing.

import { sql } from "drizzle-orm";
import { expect, it } from "vitest";
import {
  FaultWatch,
  faultsIn,
  noteFaults,
} from "../../../../edge/vision/serving/endpoints/faults.ts";
import { endpointBatch } from "../../../../edge/vision/serving/endpoints/meter-batch.ts";
import { UNANSWERED } from "../../../../edge/vision/serving/endpoints/rollups.ts";
import { HOUR, MINUTE, systemClock } from "../../../../shared/time.ts";
import { freshMeter } from "../../../support/meters.ts";
import { createTaskWorld } from "../../../support/task-world.ts";

const NOON = Date.UTC(2026, 0, 1, 12);

it("are errors of 5xx, and none that the caller made or nobody knows", () => {
  const faults = { internal: 1, no_node: 2, task_failed: 4, store_unavailable: 8 };
  const others = {
    unsupported_media: 1,
    invalid_request: 1,
    rate_limited: 1,
    overloaded: 1,
    state_conflict: 1,
    client_left: 1,
    unknown: 1,
    other: 1,
    constructor: 1,
  };
  expect(faultsIn({ ...faults, ...others })).toBe(15);
});

it("are told once they are many, each minute, and for an hour after", () => {
  const watch = new FaultWatch(null);
  watch.add(NOON, { requests: 49, faults: 49 });
  expect(watch.news(NOON)).toBeNull();
  watch.add(NOON, { requests: 1, faults: 0 });
  expect(watch.news(NOON)).toEqual({ requests: 50, faults: 49 });
  expect(watch.news(NOON + MINUTE - 1)).toBeNull();
  expect(watch.news(NOON + MINUTE)).toEqual({ requests: 50, faults: 49 });
  // That it is well is told at once.
  watch.add(NOON + MINUTE, { requests: 5_000, faults: 0 });
  expect(watch.news(NOON + MINUTE + 1)).toEqual({ requests: 5_050, faults: 49 });
  expect(watch.news(NOON + 30 * MINUTE)).toEqual({ requests: 0, faults: 0 });
  expect(watch.news(NOON + MINUTE + HOUR)).toEqual({ requests: 0, faults: 0 });
  expect(watch.news(NOON + MINUTE + HOUR + MINUTE)).toBeNull();
});

it("are told on while they are neither many nor few", () => {
  const watch = new FaultWatch(NOON);
  for (let minute = 1; minute < 180; minute++) {
    watch.add(NOON + minute * MINUTE, { requests: 100, faults: 3 });
    expect(watch.news(NOON + minute * MINUTE)).not.toBeNull();
  }
});

it("are told by a meter, also one that was evicted, and written down once for all", async () => {
  const w = await createTaskWorld();
  const { report, evict } = freshMeter(w);
  const ended = (code: string | null, count: number) =>
    Array.from({ length: count }, () => ({
      ...UNANSWERED,
      at: systemClock(),
      modelId: "m",
      code,
    }));
  expect(await report({ ended: ended("invalid_request", 300) })).toBeNull();
  const bad = await report({ ended: ended("no_node", 300) });
  expect(bad).toEqual({ requests: 600, faults: 300 });
  await evict();
  expect(await report({ ended: ended(null, 1) })).toEqual({ requests: 601, faults: 300 });

  const endpointId = crypto.randomUUID();
  await w.visionDatabase.execute(sql`
    INSERT INTO endpoint (id, workspace_id, slug, settings)
    VALUES (${endpointId}::uuid, ${w.workspace}::uuid, 'gate', '{}')`);
  const written = async () => {
    const { rows } = await w.visionDatabase.execute(sql`
      SELECT requests, faults FROM endpoint_faults WHERE endpoint_id = ${endpointId}::uuid`);
    return rows;
  };
  // As an isolate tells its own requests.
  const parts = { ...w.parts, meters: w.objects("METERS") };
  const batch = endpointBatch(parts, endpointId);
  await Promise.all(ended("internal", 60).map((one) => batch.end(parts, one, null)));
  expect(await written()).toEqual([{ requests: 60, faults: 60 }]);
  const later = { ...w.parts, clock: () => systemClock() + MINUTE };
  await noteFaults(later, endpointId, { requests: 9, faults: 1 });
  await noteFaults(w.parts, endpointId, { requests: 8, faults: 8 });
  expect(await written()).toEqual([{ requests: 9, faults: 1 }]);
  // One that is gone is none.
  await noteFaults(w.parts, crypto.randomUUID(), { requests: 8, faults: 8 });
});
