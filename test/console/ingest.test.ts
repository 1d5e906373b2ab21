// The slice as a whole, in workerd: cron tick → queue → fetch → gate → vintage → read-back → read
// API, and what a faulty provider, a repeated message or a lost process does to it.

import { sql } from "drizzle-orm";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { followBackfill, followRun } from "../../edge/local/operator.ts";
import type { SandboxAnswer } from "../../edge/local/sandbox/answers.ts";
import { type Sandbox, startSandbox } from "../../edge/local/sandbox/server.ts";
import {
  claimExecution,
  completeExecution,
  createExecution,
} from "../../edge/markets/ingest/ledger.ts";
import { PIPELINES } from "../../edge/markets/ingest/pipelines.ts";
import { latestTick } from "../../edge/markets/ingest/schedule.ts";
import { HOUR, iso, isoDay, MINUTE, systemClock } from "../../shared/time.ts";
import { GraphEntity, GraphNeighbourhood, SeriesRecord } from "../../shared/wire/markets.ts";
import { distorted, isErcotDemand } from "../support/provider-faults.ts";
import type { EiaRecord } from "../support/recordings.ts";
import {
  commitHours,
  createWorld,
  DAY,
  onlySchedules,
  silentUrl,
  type World,
} from "../support/world.ts";

const LIBRARIES = "power.demand power.demand_forecast power.generation power.interchange";

let world: World;
let sandbox: Sandbox;
/** The provider's clock: moving it forward brings late hours and revisions. */
let providerNow = systemClock() - 30 * HOUR;
let fault: ((url: URL) => SandboxAnswer | undefined) | undefined;

beforeAll(async () => {
  sandbox = await startSandbox({ clock: () => providerNow, fault: (url) => fault?.(url) });
  world = await createWorld({
    services: ["markets", "console"],
    environment: { console: { SANDBOX_URL: sandbox.url, INGEST_LEASE_SECONDS: "30" } },
  });
  await onlySchedules(world, ["grid_region"]);
});
afterAll(() => sandbox.close());
beforeEach(() => {
  fault = undefined;
});

const schedule = PIPELINES[0]?.schedules[0] ?? { cron: "", timeZone: "" };
const launch = async (partition?: string) =>
  followRun(world.operator, await world.operator.launch("grid_region", partition));
const runs = () => world.operator.runs({ limit: 500 });
const series = async (query: string) => {
  const response = await fetch(
    `${world.urls.markets}/series?library=power.demand&symbol=erco${query}`,
  );
  expect(response.status).toBe(200);
  return SeriesRecord.array().parse(await response.json());
};
const vintages = async () => {
  const { rows } = await world.database.execute<{ n: number }>(
    sql`SELECT count(*)::int AS n FROM vintage`,
  );
  return rows[0]?.n ?? 0;
};

describe("a cron tick", () => {
  it("runs the newest partition once, however often and late its minute is delivered", async () => {
    const tick = latestTick(schedule, systemClock()) ?? 0;
    await Promise.all([world.tick(tick), world.tick(tick), world.tick(tick + MINUTE)]);
    await world.tick(tick);
    const [first, ...others] = await runs();
    expect(others).toEqual([]);
    const run = await followRun(world.operator, first?.run_id ?? "");
    expect(run).toMatchObject({
      state: "succeeded",
      trigger: "schedule",
      partition: isoDay(tick),
      attempt: 1,
    });
    expect((await world.operator.jobs())[0]?.schedules[0]?.last_tick).toMatchObject({
      scheduled_at: iso(tick),
      run_id: run.run_id,
    });
  });

  it("records what it materialised, as the spec lists it", async () => {
    const [run] = await runs();
    const metadata = run?.metadata as Record<string, unknown>;
    expect(metadata).toMatchObject({
      vintage_reconstructed: false,
      sandbox: true,
      source_url: expect.stringMatching(
        /^sandbox:\/\/eia\/v2\/electricity\/rto\/region-data\/data\/\?/,
      ),
      store_version: expect.objectContaining({
        "power.demand.erco": 2,
        "power.interchange.erco": expect.any(Number),
      }),
      instrument_ids: expect.arrayContaining(["power.demand.erco", "power.demand.pjm"]),
      check: { passed: true, schema: LIBRARIES, failures: 0, stale_symbols: [] },
    });
    expect(metadata.rows_written).toBeGreaterThan(10_000);
    expect(Date.parse(String(metadata.as_of))).toBeGreaterThan(systemClock() - 5 * MINUTE);
  });

  it("serves every authority on the read API, marked as sandbox", async () => {
    const symbols = await fetch(`${world.urls.markets}/symbols?library=power.demand`);
    expect(((await symbols.json()) as string[]).length).toBeGreaterThanOrEqual(68);
    const response = await fetch(`${world.urls.markets}/series?library=power.demand&symbol=erco`);
    expect(response.headers.get("X-Sandbox")).toBe("true");
    const rows = SeriesRecord.array().parse(await response.json());
    expect(rows.length).toBeGreaterThan(150);
    // The look-back was learned long after it was published; the newest rows were learned in time.
    const age = (row: SeriesRecord) => systemClock() - Date.parse(row.Datetime);
    const [late, recent] = [
      rows.filter((row) => age(row) > 50 * HOUR),
      rows.filter((row) => age(row) < 48 * HOUR),
    ];
    expect([late.length > 100, recent.length > 10]).toEqual([true, true]);
    expect(late.every((row) => row.vintage_reconstructed)).toBe(true);
    expect(recent.some((row) => row.vintage_reconstructed)).toBe(false);
  });

  it("does not fire a schedule that is switched off", async () => {
    await world.database.execute(
      sql`UPDATE schedule SET enabled = false, last_tick = '2020-01-01' WHERE name = 'grid_region'`,
    );
    const before = (await runs()).length;
    await world.tick(systemClock());
    expect(await runs()).toHaveLength(before);
    await world.operator.switchSchedule("grid_region", true);
    await world.tick(systemClock());
    expect(await runs()).toHaveLength(before);
  });
});

describe("the passing of time", () => {
  it("adds a vintage of what changed, and an as_of before it still reads the earlier state", async () => {
    const before = await series("");
    const asOf = before
      .map((row) => row.as_of)
      .toSorted()
      .at(-1);
    providerNow += 27 * HOUR;
    const run = await launch();
    expect(run.state).toBe("succeeded");
    const after = await series("");
    expect(after.length).toBeGreaterThan(before.length + 15);
    expect(await series(`&as_of=${asOf}`)).toEqual(before);
    const { rows: changed } = await world.database.execute<{ revised: number }>(
      sql`SELECT sum(revised)::int AS revised FROM vintage WHERE run_id = ${run.run_id}`,
    );
    expect(changed[0]?.revised).toBeGreaterThan(20);
    const revised = after.filter((row) =>
      before.some((old) => old.Datetime === row.Datetime && old.value !== row.value),
    );
    expect(revised.every((row) => Date.parse(row.as_of) > Date.parse(asOf ?? ""))).toBe(true);
  });

  it("writes nothing when the provider's data is unchanged", async () => {
    const before = await vintages();
    const as_of = (await runs())[0]?.metadata?.as_of;
    expect((await launch()).metadata).toMatchObject({ rows_written: 0, as_of });
    expect(await vintages()).toBe(before);
  });
});

describe("a backfill", () => {
  const first = isoDay(systemClock() - 40 * DAY);
  const last = isoDay(systemClock() - 39 * DAY);
  const backfill = async () => {
    const started = await world.operator.startBackfill({ job: "grid_region", first, last });
    return followBackfill(world.operator, started, () => {});
  };

  it("flags every row it writes, stamps it now, and moves nothing else", async () => {
    const before = await series("");
    const started = systemClock();
    expect((await backfill()).runs).toMatchObject({ succeeded: 2, failed: 0 });
    const after = await series("");
    const written = after.filter((row) => row.Datetime < (before[0]?.Datetime ?? ""));
    expect(written.length).toBeGreaterThanOrEqual(46);
    expect(written.every((row) => row.vintage_reconstructed)).toBe(true);
    expect(written.every((row) => Date.parse(row.as_of) >= started)).toBe(true);
    expect(after.slice(written.length)).toEqual(before);
  });

  it("is safe to repeat", async () => {
    const before = await vintages();
    expect((await backfill()).runs).toMatchObject({ succeeded: 2, failed: 0 });
    expect(await vintages()).toBe(before);
  });
});

describe("a faulty provider", () => {
  const failing = async (answer: SandboxAnswer) => {
    const before = await vintages();
    fault = () => answer;
    const run = await launch();
    expect(await vintages()).toBe(before);
    return run;
  };

  it.each([
    [
      403,
      { error: { code: "API_KEY_INVALID" } },
      "upstream_unauthorized",
      /EIA_API_KEY.*API_KEY_INVALID/,
    ],
    [400, { error: "bad", code: 400 }, "upstream_rejected", /HTTP 400/],
    [200, { response: { total: "1", data: [{}] } }, "upstream_schema_drift", /period/],
  ])("fails the run at once on HTTP %i %j", async (status, body, code, detail) => {
    const run = await failing({ status, body });
    expect(run).toMatchObject({ state: "failed", attempt: 1, error_code: code });
    expect(run.error_detail).toMatch(detail);
  });

  it("has its whole answer rejected when the gate finds an error, and the findings kept", async () => {
    const period = iso(systemClock() - 2 * HOUR).slice(0, 13);
    const zeros = ["ERCO", "PJM"].map((respondent) => ({
      period,
      respondent,
      type: "D",
      value: "0",
      "value-units": "megawatthours",
    }));
    const run = await failing({ status: 200, body: { response: { total: "2", data: zeros } } });
    expect(run).toMatchObject({
      state: "failed",
      error_code: "gate_rejected",
      metadata: {
        findings: expect.arrayContaining(
          ["erco", "pjm"].map((where) =>
            expect.objectContaining({ rule: "implausible_demand", severity: "error", where }),
          ),
        ),
      },
    });
  });

  const distort = (change: (row: EiaRecord) => EiaRecord | undefined) => {
    fault = distorted(change, () => providerNow);
  };

  it("cannot make a partial answer into mass retractions", async () => {
    const before = await vintages();
    const hour = iso(providerNow - 6 * HOUR).slice(0, 13);
    distort((row) => (row.period === hour ? row : undefined));
    const run = await launch();
    expect(run).toMatchObject({ state: "failed", error_code: "gate_rejected" });
    expect(run.error_detail).toContain("rows would be withdrawn in");
    expect(await vintages()).toBe(before);
  });

  it("cannot blank a series, and does not pass over one it left out", async () => {
    const before = await series("");
    distort((row) => (isErcotDemand(row) ? { ...row, value: null } : row));
    expect((await launch()).metadata).toMatchObject({
      check: { passed: false, reason: expect.stringMatching(/rows would be withdrawn in ERCO$/) },
    });
    distort((row) => (isErcotDemand(row) ? undefined : row));
    expect((await launch()).metadata).toMatchObject({
      check: { passed: false, reason: "1 series missing from the answer in ERCO" },
    });
    expect(await series("")).toEqual(before);
  });

  it("spoils only the series whose rows are bad, and the check says which", async () => {
    const before = await series("");
    providerNow += HOUR;
    distort((row) => (isErcotDemand(row) ? { ...row, value: "0" } : row));
    const run = await launch();
    expect(run).toMatchObject({
      state: "partial",
      metadata: {
        check: {
          passed: false,
          reason: expect.stringMatching(/^\d+ implausible values of demand in ERCO$/),
        },
      },
    });
    expect(Number(run.metadata?.rows_written)).toBeGreaterThan(30);
    expect(await series("")).toEqual(before);
  });

  it("is asked again after a throttle, within the same attempt", async () => {
    let refused = 0;
    fault = () => (refused++ < 1 ? { status: 429, body: {} } : undefined);
    expect(await launch()).toMatchObject({ state: "succeeded", attempt: 1 });
    expect(refused).toBeGreaterThan(1);
  });
});

describe("a lost process", () => {
  const leaseMs = 1_000;
  const lose = async () => {
    const id = await createQueued();
    const claimed = await claimExecution(world.database, id, systemClock() - HOUR, leaseMs);
    expect(claimed).toMatchObject({ attempt: 1 });
    return claimed as NonNullable<typeof claimed>;
  };

  const nothingDone = {
    partialReason: null,
    metadata: { rows_written: -1 },
    covered: { from: 0, to: 1 },
    revised: {},
  };

  /** A run whose message never arrives: only the cron can bring it back. */
  async function createQueued(): Promise<string> {
    const runId = crypto.randomUUID();
    const partition = isoDay(systemClock());
    const run = { runId, job: "grid_region", partition, reconstructed: false };
    await createExecution(world.database, { ...run, trigger: "manual" }, systemClock() - HOUR);
    return runId;
  }

  it("has its run rescued by the next minute and finished by another", async () => {
    const lost = await lose();
    await world.tick(systemClock());
    expect(await followRun(world.operator, lost.run_id)).toMatchObject({
      state: "succeeded",
      attempt: 2,
    });
  });

  it("cannot record anything when it wakes late: its attempt is over", async () => {
    const lost = await lose();
    await world.tick(systemClock());
    const finished = await followRun(world.operator, lost.run_id);
    await completeExecution(world.database, lost, nothingDone, systemClock());
    expect(await world.operator.run(lost.run_id)).toEqual(finished);
  });

  it("cannot end a run that its successor is still working on", async () => {
    const lost = await lose();
    await world.database.execute(
      sql`UPDATE run SET state = 'queued', lease_until = NULL WHERE id = ${lost.run_id}::uuid`,
    );
    const successor = await claimExecution(world.database, lost.run_id, systemClock(), leaseMs);
    expect(successor).toMatchObject({ attempt: 2 });
    await completeExecution(world.database, lost, nothingDone, systemClock());
    expect(await world.operator.run(lost.run_id)).toMatchObject({ state: "running", attempt: 2 });
  });

  it("is given up after its last attempt, with the reason", async () => {
    const lost = await lose();
    await world.database.execute(
      sql`UPDATE run SET attempt = attempts_max WHERE id = ${lost.run_id}::uuid`,
    );
    await world.tick(systemClock());
    expect(await world.operator.run(lost.run_id)).toMatchObject({
      state: "failed",
      error_code: "lease_lost",
    });
  });

  it("loses no run whose message was lost", async () => {
    const id = await createQueued();
    await world.tick(systemClock());
    expect(await followRun(world.operator, id)).toMatchObject({ state: "succeeded", attempt: 1 });
  });

  it("counts what every attempt wrote in the record of the run", async () => {
    const lost = await lose();
    const at = Math.floor(systemClock() / HOUR) * HOUR - 30 * DAY;
    const provenance = { runId: lost.run_id, sandbox: true };
    expect(await commitHours(world, "erco", at, [1], provenance)).not.toBeNull();
    await world.tick(systemClock());
    const run = await followRun(world.operator, lost.run_id);
    expect(run.metadata?.instrument_ids).toContain("power.demand.erco");
    expect(Number(run.metadata?.rows_written)).toBeGreaterThanOrEqual(1);
    await commitHours(world, "erco", at, [], {
      ...provenance,
      covered: { from: at, to: at + HOUR },
    });
  });

  it("lets one of two deliveries of a message take the run", async () => {
    const id = await createQueued();
    const claims = [1, 2, 3].map(() => claimExecution(world.database, id, systemClock(), leaseMs));
    expect((await Promise.all(claims)).filter((claim) => claim !== null)).toHaveLength(1);
  });
});

describe("the catalog graph", () => {
  it("is filled by a run, and a later run only moves last_seen", async () => {
    const erco = async () => {
      const response = await fetch(
        `${world.urls.markets}/graph/related?instrument_id=power.demand.erco`,
      );
      return GraphNeighbourhood.parse(await response.json()).entities;
    };
    await launch();
    const before = await erco();
    expect(before.map(({ label, key }) => `${label} ${key}`)).toEqual([
      "BalancingAuthority erco",
      "Library power.demand",
    ]);
    await launch();
    const seen = ({ properties }: GraphEntity) => [properties.first_seen, properties.last_seen];
    for (const [index, entity] of (await erco()).entries()) {
      const [first, last] = seen(entity);
      const [firstBefore = "", lastBefore = ""] = seen(before[index] as GraphEntity);
      expect([first, last && last > lastBefore]).toEqual([firstBefore, true]);
    }
    const all = await fetch(`${world.urls.markets}/graph/entities?label=Instrument`);
    expect(GraphEntity.array().parse(await all.json()).length).toBeGreaterThanOrEqual(68);
  });

  it("costs a run two seconds and a warning when it hangs, and nothing else", async () => {
    const dead = await createWorld({
      services: ["console"],
      environment: { console: { SANDBOX_URL: sandbox.url } },
      graphUrl: await silentUrl(),
    });
    const run = await followRun(dead.operator, await dead.operator.launch("grid_region"));
    expect(run).toMatchObject({ state: "succeeded", attempt: 1, error_code: null });
    expect(run.metadata).toMatchObject({ check: { passed: true, failures: 0 } });
    const warnings = dead.logs.filter((line) => line.includes("graph_not_recorded"));
    expect(warnings).toHaveLength(1);
    expect(JSON.parse(warnings[0] ?? "")).toMatchObject({ level: "warning", run_id: run.run_id });
    expect(dead.logs.join("\n")).not.toContain("hunter2");
  });
});

describe("a slow provider", () => {
  it("keeps its run: the lease is renewed while it answers", async () => {
    let answered = 0;
    const slow = await startSandbox({
      fault: () =>
        new Promise((done) => {
          answered++;
          setTimeout(() => done(undefined), 1_000);
        }),
    });
    const environment = { SANDBOX_URL: slow.url, INGEST_LEASE_SECONDS: "6" };
    const started = performance.now();
    const patient = await createWorld({
      services: ["console"],
      environment: { console: environment },
    });
    // Only the rescue is wanted of these ticks, not another run.
    await onlySchedules(patient, []);
    const id = await patient.operator.launch("grid_region");
    const tickNow = () => patient.tick(systemClock()).catch(() => {});
    const ticking = setInterval(() => void tickNow(), 500);
    const run = await followRun(patient.operator, id);
    clearInterval(ticking);
    await slow.close();
    expect([run.state, run.attempt]).toEqual(["succeeded", 1]);
    expect(answered).toBeGreaterThan(2);
    expect(performance.now() - started).toBeGreaterThan(6_000);
  });
});

describe("a backfill that failed", () => {
  it("is run again, failed partitions only, when it is asked for again", async () => {
    const day = isoDay(systemClock() - 50 * DAY);
    const request = { job: "grid_region", first: day, last: day, idempotency_key: "again" };
    fault = () => ({ status: 400, body: { error: "bad", code: 400 } });
    const ask = async () =>
      followBackfill(world.operator, await world.operator.startBackfill(request), () => {});
    expect((await ask()).runs).toMatchObject({ failed: 1, succeeded: 0 });
    fault = undefined;
    for (let again = 0; again < 2; again++)
      expect((await ask()).runs).toMatchObject({ failed: 0, succeeded: 1 });
  });
});

describe("credentials", () => {
  it("never reach a log or a stored row", async () => {
    const { rows } = await world.database.execute(sql`
      SELECT json_agg(run)::text || (SELECT json_agg(vintage.source_url)::text FROM vintage) AS text FROM run`);
    const everything = world.logs.join("\n") + JSON.stringify(rows);
    expect(everything).toContain("run_succeeded");
    expect(everything).not.toContain(world.operatorToken);
    expect(everything).not.toMatch(/api_key=(?!\[redacted\])/);
    expect(everything).not.toMatch(/postgresql:\/\/\w+:(?!\[redacted\])/);
  });
});
