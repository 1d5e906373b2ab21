// The agent as a program, at the real service, over a way that drops requests and answers,
// doubles, holds back, reorders and cuts them. Goal: it enrols, takes a model, and each line that
// it wrote is stored once. The seed is printed; `FLEET_STORY_SECONDS` makes it longer.

import { readdirSync } from "node:fs";
import { join } from "node:path";
import { sql } from "drizzle-orm";
import { expect, it } from "vitest";
import { badWay } from "../../support/bad-way.ts";
import { deviceFile } from "../../support/device-files.ts";
import { deviceFolder, imageFolder, startDevice } from "../../support/device-process.ts";
import { dice } from "../../support/dice.ts";
import { createFleetWorld } from "../../support/fleet-world.ts";
import { completedExport } from "../../support/rollout-world.ts";

const seconds = Number(process.env.FLEET_STORY_SECONDS ?? 6);

it("loses and doubles no line of an agent's on a way that drops, doubles, reorders and cuts", async () => {
  const seed = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 31));
  const w = await createFleetWorld();
  const group = "story";
  const made = await w.made({ group, interval_s: 5 });
  const { exportId } = await completedExport(w.world, w.workspaceId, deviceFile(1));
  const confirm = { inferences: 3, seconds: 600 };
  const wanted = { export_id: exportId, group, stages: [100], confirm };
  await w.admin.ok("POST", "/rollouts", wanted);
  const way = await badWay(w.world.urls.vision, dice(seed));
  const dir = deviceFolder("log-story");
  const environment = {
    // What the way is too slow for is to wait, not to be dropped: a line of this model has 13 kB.
    VANTAGE_DEVICE_LOG_BYTES: String(1024 ** 3),
    VANTAGE_URL: way.url,
    VANTAGE_DEVICE_CODE: made.enrolment_code,
    VANTAGE_DEVICE_DIR: dir,
    VANTAGE_DEVICE_SOURCE: await imageFolder(),
    VANTAGE_DEVICE_FPS: "20",
  };
  const boots = async () => {
    const { rows } = await w.world.visionDatabase.execute<{
      bootId: string;
      count: number;
      last: number;
      acked: number;
      dropped: number;
    }>(sql`
      SELECT b.boot_id AS "bootId", b.dropped::float8 AS dropped, count(l.seq)::int AS count,
        coalesce(max(l.seq), 0)::float8 AS last,
        coalesce(upper(range_merge(b.received)) - 1, 0)::float8 AS acked
        FROM device_boot b LEFT JOIN device_log l ON l.boot = b.id
       WHERE b.device_id = ${made.device_id}::uuid GROUP BY b.id ORDER BY b.created_at`);
    return rows;
  };
  const stored = async () => (await boots()).reduce((sum, { count }) => sum + count, 0);

  let device = startDevice(environment);
  /** Refusals that the agents logged: what lines were given up for. */
  const refusals: unknown[] = [];
  const ended = async () => {
    const how = await device.ended;
    refusals.push(...device.lines().filter(({ event }) => event === "lines_refused"));
    return how;
  };
  await expect.poll(stored).toBeGreaterThan(0);
  // Killed and started again while it goes on: what a former boot left is handed over too. It goes
  // on until everything that can happen on the way has.
  const until = Date.now() + seconds * 1_000;
  const isOver = () => Date.now() >= until && Object.values(way.counts).every((count) => count > 0);
  for (let starts = 0; starts < 2 || !isOver(); starts++) {
    const [before, begun] = [await stored(), Date.now()];
    await expect.poll(stored).toBeGreaterThan(before);
    await expect.poll(() => Date.now() - begun, { interval: 250 }).toBeGreaterThan(seconds * 250);
    device.signal(starts % 2 === 0 ? "SIGKILL" : "SIGTERM");
    await ended();
    device = startDevice(environment);
  }
  const whole = await stored();
  await expect.poll(stored).toBeGreaterThan(whole);
  // Late copies of a former boot's lines come while the last one does not yet hear of signals.
  await expect.poll(() => device.lines().map(({ event }) => event)).toContain("device_started");
  device.signal("SIGTERM");
  expect(await ended()).toEqual({ code: 0, signal: null });
  // Nothing more is looked at: what is left on the disk goes over a way that is whole again.
  way.mend();
  device = startDevice({ ...environment, VANTAGE_DEVICE_SOURCE: "" });
  await expect
    .poll(() => readdirSync(join(dir, "logs")).filter((name) => name.endsWith(".ndjson")))
    .toEqual([]);
  device.signal("SIGTERM");
  await ended();
  const all = await boots();
  console.info(
    `log story: seed ${seed}, ${await stored()} lines of ${all.length} boots, ` +
      `${JSON.stringify(way.counts)} in ${seconds} s`,
  );
  // Numbers are given in order as lines are written: those of a boot are whole, and once.
  for (const boot of all) {
    expect([seed, boot, refusals]).toEqual([
      seed,
      { ...boot, count: boot.last, acked: boot.last, dropped: 0 },
      [],
    ]);
  }
  await way.close();
}, 1_200_000);
