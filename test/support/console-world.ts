// A world in which the console has everything to show: runs that went well and badly, revisions, a
// late partition, a backfill, ticks.

import { sql } from "drizzle-orm";
import { afterAll } from "vitest";
import { followBackfill, followRun } from "../../edge/local/operator.ts";
import type { SandboxAnswer } from "../../edge/local/sandbox/answers.ts";
import { type Sandbox, startSandbox } from "../../edge/local/sandbox/server.ts";
import { HOUR, iso, isoDay, systemClock } from "../../shared/time.ts";
import { distorted, isErcotDemand } from "./provider-faults.ts";
import { createWorld, DAY, dayWithTime, onlySchedules, type World } from "./world.ts";

export interface ConsoleWorld extends World {
  sandbox: Sandbox;
  /** What the provider answers instead of the truth, until it is taken away. */
  spoil(fault: ((url: URL) => SandboxAnswer | undefined | Promise<undefined>) | undefined): void;
  /** Days before now, as a partition. */
  day(before: number): string;
}

const sandboxes: Sandbox[] = [];
afterAll(() => Promise.all(sandboxes.map((one) => one.close())));

/** A console with the read API and a sandbox, nothing run yet, one schedule on. */
export async function createConsoleWorld(): Promise<ConsoleWorld> {
  await dayWithTime();
  let providerNow = systemClock() - 30 * HOUR;
  let fault: Parameters<ConsoleWorld["spoil"]>[0];
  const sandbox = await startSandbox({
    clock: () => providerNow,
    fault: (url) => fault?.(url),
  });
  sandboxes.push(sandbox);
  const world = await createWorld({
    services: ["markets", "console"],
    environment: { console: { SANDBOX_URL: sandbox.url, INGEST_LEASE_SECONDS: "30" } },
  });
  await onlySchedules(world, ["grid_region"]);
  const now = systemClock();
  return {
    ...world,
    sandbox,
    spoil: (given) => {
      fault = given;
      providerNow = now;
    },
    day: (before) => isoDay(now - before * DAY),
  };
}

/** Demand that cannot be: the gate refuses it and keeps the rows. */
export function impossible(): SandboxAnswer {
  const period = iso(systemClock() - 2 * HOUR).slice(0, 13);
  const data = ["ERCO", "PJM"].map((respondent) => ({
    period,
    respondent,
    type: "D",
    value: "0",
    "value-units": "megawatthours",
  }));
  return { status: 200, body: { response: { total: "2", data } } };
}

/** Why the run of a partition waits. */
export const waitingReason = (partition: string) =>
  `${partition} is not published yet; release is expected until 2031-01-01 00:00 UTC`;

/** Lets runs and ticks happen; returns ids of what pages are about. */
export async function seedConsole(world: ConsoleWorld) {
  const launch = async (partition?: string) =>
    followRun(world.operator, await world.operator.launch("grid_region", partition));
  const first = await launch();
  // Now the provider knows more, and some of it otherwise.
  world.spoil(undefined);
  const second = await launch();
  for (let back = 5; back > 0; back--) await world.tick(systemClock() - back * HOUR);
  for (const { run_id } of await world.operator.runs({ limit: 10 })) {
    await followRun(world.operator, run_id);
  }
  world.spoil(impossible);
  const rejected = await launch(world.day(3));
  world.spoil(() => ({ status: 200, body: { response: { total: "1", data: [{}] } } }));
  const drifted = await launch(world.day(12));
  world.spoil(
    distorted((row) => (isErcotDemand(row) ? { ...row, value: null } : row), systemClock),
  );
  const refused = await launch();
  const [refusal] = await world.operator.refusals({ state: "open" });
  world.spoil(undefined);
  const request = { job: "grid_region", first: world.day(40), last: world.day(33) };
  const backfill = await world.operator.startBackfill(request);
  await followBackfill(world.operator, backfill, () => {});
  // No pipeline of this world waits for releases.
  const late = await launch(world.day(13));
  await world.database.execute(sql`
    UPDATE run SET state = 'late', error_code = 'not_released', covered_from = NULL, metadata = NULL,
      error_detail = ${`${world.day(13)} is not published yet`} WHERE id = ${late.run_id}::uuid`);
  // None is queued any more, so the queue leaves it as it is.
  const waiting = await launch(world.day(11));
  await world.database.execute(sql`
    UPDATE run SET state = 'queued', error_code = 'not_released', covered_from = NULL,
      finished_at = NULL, metadata = NULL, available_at = now() + interval '1 hour',
      error_detail = ${waitingReason(world.day(11))} WHERE id = ${waiting.run_id}::uuid`);
  const { rows } = await world.database.execute<{ symbol: string }>(sql`
    SELECT symbol FROM vintage JOIN series ON id = series_id
     WHERE library = 'power.demand' ORDER BY revised DESC, symbol LIMIT 1`);
  return {
    first,
    second,
    rejected,
    drifted,
    late,
    waiting,
    refused,
    refusalId: refusal?.refusal_id ?? "",
    backfillId: backfill.backfill_id,
    /** The symbol that was revised most. */
    revised: rows[0]?.symbol ?? "",
  };
}
