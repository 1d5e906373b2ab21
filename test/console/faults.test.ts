// What a provider or the database may do to a run, through the whole console: a named state on the
// page of the run, nothing lost, nothing doubled, and no secret in any log or record.

import { sql } from "drizzle-orm";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { followRun } from "../../edge/local/operator.ts";
import type { Fault } from "../../edge/local/sandbox/answers.ts";
import { type Sandbox, startSandbox } from "../../edge/local/sandbox/server.ts";
import { operatingDay } from "../../edge/markets/store/operating-day.ts";
import { HOUR, isoDay, systemClock } from "../../shared/time.ts";
import { type Cuttable, cuttable } from "../support/cuttable.ts";
import { createWorld, DAY, onlySchedules, type World } from "../support/world.ts";

const JOB = "day_ahead_prices";
const POINTS = 15;

let world: World;
let sandbox: Sandbox;
let way: Cuttable;
/** Called while the provider is asked. */
let whileAsked: () => void = () => {};
let cookie = "";

beforeAll(async () => {
  sandbox = await startSandbox({
    fault: () => {
      whileAsked();
      return undefined;
    },
  });
  way = await cuttable(inject("postgres").endpointPort);
  world = await createWorld({
    services: ["markets", "console"],
    writerPort: way.port,
    environment: { console: { SANDBOX_URL: sandbox.url, INGEST_LEASE_SECONDS: "2" } },
  });
  await onlySchedules(world, []);
  const login = await fetch(`${world.urls.console}/login`, {
    method: "POST",
    redirect: "manual",
    headers: { Origin: world.urls.console },
    body: new URLSearchParams({ token: world.operatorToken }),
  });
  cookie = (login.headers.get("Set-Cookie") ?? "").split(";")[0] ?? "";
  expect(cookie).not.toBe("");
});
afterAll(async () => {
  await sandbox.close();
  await way.close();
});

const began = systemClock();
let before = 20;
/** A day that no test has used, also where the day ends meanwhile. */
const nextDay = () => isoDay(began - before++ * DAY);
const pageOf = async (runId: string) => {
  const response = await fetch(`${world.urls.console}/runs/${runId}`, {
    headers: { Cookie: cookie },
  });
  expect(response.status).toBe(200);
  return response.text();
};

/** Every point and hour of the day, once, by one vintage of each point. */
async function expectWhole(day: string) {
  const { rows } = await world.database.execute<{ vintages: number; rows: number }>(sql`
    SELECT count(*)::int AS vintages, sum(inserted + revised + retracted)::int AS rows
      FROM vintage WHERE partition = ${day}`);
  const { from, to } = operatingDay(Date.parse(day) + DAY / 2);
  expect(rows).toEqual([{ vintages: POINTS, rows: (POINTS * (to - from)) / HOUR }]);
}

/** A run that waits for its next attempt makes it now. */
async function hurry(runId: string) {
  await world.database.execute(sql`
    UPDATE run SET available_at = now() - interval '1 hour'
     WHERE id = ${runId}::uuid AND state = 'queued'`);
  await world.tick(systemClock());
}

describe("a provider", () => {
  it.each<[Fault, string, "queued" | "failed"]>([
    ["down", "upstream_unavailable", "queued"],
    ["storm", "upstream_unavailable", "queued"],
    ["truncated", "upstream_truncated", "queued"],
    ["drifted", "upstream_schema_drift", "failed"],
    ["refused", "upstream_unauthorized", "failed"],
  ])(
    "that is %s leaves its run as %s, said on its page, and no row",
    async (fault, code, state) => {
      const day = nextDay();
      sandbox.break("ercot", fault);
      const id = await world.operator.launch(JOB, day);
      await expect.poll(async () => (await world.operator.run(id)).error_code).toBe(code);
      expect(await world.operator.run(id)).toMatchObject({ state, attempt: 1 });
      expect(await pageOf(id)).toContain(code);
      const { rows } = await world.database.execute(
        sql`SELECT 1 FROM vintage WHERE partition = ${day}`,
      );
      expect(rows).toEqual([]);
      sandbox.break("ercot", null);
      if (state === "queued") await hurry(id);
      const again = state === "queued" ? id : await world.operator.launch(JOB, day);
      expect(await followRun(world.operator, again)).toMatchObject({ state: "succeeded" });
      await expectWhole(day);
    },
  );
});

describe("the database", () => {
  it("that is gone while a run works costs the run its lease, and nothing else", async () => {
    const day = nextDay();
    whileAsked = () => {
      whileAsked = () => {};
      way.cut();
    };
    const id = await world.operator.launch(JOB, day);
    // The run's process has met it by the time it gives its message back.
    await expect
      .poll(() => world.logs.some((line) => line.includes("queue_message") && line.includes(id)))
      .toBe(true);
    way.mend();
    await expect
      .poll(
        async () => {
          await world.tick(systemClock());
          return (await world.operator.run(id)).state;
        },
        { interval: 500 },
      )
      .toBe("succeeded");
    await expectWhole(day);
  });
});

it("tells no secret, whatever went wrong", async () => {
  const { rows } = await world.database.execute<{ told: string }>(sql`
    SELECT coalesce(string_agg(t, ' '), '') AS told FROM (
      SELECT detail::text AS t FROM run_event UNION ALL
      SELECT coalesce(error_detail, '') || coalesce(metadata::text, '') FROM run UNION ALL
      SELECT source_url FROM vintage) all_told`);
  const told = world.logs.join("\n") + rows[0]?.told;
  expect(told.length).toBeGreaterThan(10_000);
  const { credentials } = inject("postgres");
  for (const secret of [world.operatorToken, ...Object.values(credentials)]) {
    expect(told).not.toContain(secret);
  }
  expect(told).not.toMatch(
    /api_key=|apikey=|Bearer |Ocp-Apim-Subscription-Key|password=|id_token/i,
  );
});
