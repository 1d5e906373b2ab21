// Alerts, metrics and named operators of the console as it runs: one Worker, its cron, a receiver.

import { beforeAll, describe, expect, it } from "vitest";
import { followRun, operatorAt } from "../../edge/local/operator.ts";
import { systemClock } from "../../shared/time.ts";
import { Alert } from "../../shared/wire/alerts.ts";
import { consoleSession } from "../support/console-session.ts";
import { readExposition } from "../support/exposition.ts";
import { accept, alertsTo, type Receiver, startReceiver } from "../support/receiver.ts";
import { commitHours, createWorld, HOUR, onlySchedules, type World } from "../support/world.ts";

const SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const ADA = "the-token-of-ada-0123";
const BOB = "the-token-of-bob-0123";
const METRICS = "the token of what scrapes";

let world: World;
let receiver: Receiver;
beforeAll(async () => {
  receiver = await startReceiver(SECRET);
  world = await createWorld({
    services: ["console"],
    environment: {
      // No sandbox and no key: what is launched fails by itself.
      console: {
        OPERATOR_TOKENS: `ada:${ADA}, bob:${BOB}`,
        METRICS_TOKEN: METRICS,
        ...alertsTo(`${receiver.url}?token=in-the-address`, SECRET),
      },
    },
  });
  await onlySchedules(world, []);
});

const as = (token: string) => operatorAt(world.urls.console, token);
const ask = (path: string, token: string, method = "GET") =>
  fetch(world.urls.console + path, { method, headers: { Authorization: `Bearer ${token}` } });
const listed = async (query = "") =>
  Alert.array().parse(await (await ask(`/api/alerts${query}`, ADA)).json());

describe("an operator of a name", () => {
  it("is recorded with what they launch, backfill, cancel and switch", async () => {
    const runId = await as(ADA).launch("grid_region");
    expect(await as(BOB).run(runId)).toMatchObject({ launched_by: "ada" });
    const sole = await world.operator.launch("grid_region");
    expect(await as(BOB).run(sole)).toMatchObject({ launched_by: "operator" });
    const [first, last] = ["2024-01-01", "2024-01-12"];
    const backfill = await as(BOB).startBackfill({ job: "grid_region", first, last });
    expect(backfill).toMatchObject({ launched_by: "bob", canceled_by: null });
    const canceled = await as(ADA).cancelBackfill(backfill.backfill_id);
    expect(canceled).toMatchObject({ launched_by: "bob", canceled_by: "ada" });
    const runs = await as(ADA).runs({ backfill_id: backfill.backfill_id, state: "canceled" });
    expect(runs.length).toBeGreaterThan(0);
    expect(runs.every(({ launched_by }) => launched_by === "bob")).toBe(true);
    const events = await as(ADA).events(runs[0]?.run_id ?? "");
    // A run that was under way still says how its attempt ended.
    const ended = events.find(({ event }) => event === "canceled");
    expect(ended).toMatchObject({ detail: { by: "ada" } });
    await as(BOB).retryBackfill(backfill.backfill_id);
    const again = await as(ADA).events(runs[0]?.run_id ?? "");
    expect(again.find(({ event }) => event === "requeued")?.detail).toEqual({ by: "bob" });
    await as(BOB).cancelBackfill(backfill.backfill_id);
    await as(BOB).switchSchedule("grid_region", false);
    const schedules = (await as(ADA).jobs()).flatMap((job) => job.schedules);
    const switched = schedules.find(({ schedule }) => schedule === "grid_region");
    expect(switched).toMatchObject({ enabled: false, switched_by: "bob" });
    expect(Date.parse(switched?.switched_at ?? "")).toBeGreaterThan(systemClock() - HOUR);
  });

  it("logs in on the pages, and is named where they did something", async () => {
    const { read, post } = await consoleSession(world.urls.console, ADA);
    const launched = await post("/pipelines/grid_region/launch");
    expect(launched.status).toBe(303);
    const path = launched.headers.get("Location") ?? "";
    expect(await read(path)).toMatch(/hand, <[^>]*>ada</);
    expect(await read("/runs")).toContain("Logged in as ada");
  });

  it("is nobody with a wrong, an empty or half a token", async () => {
    for (const wrong of ["", "ada", `ada:${ADA}`, ADA.slice(1), METRICS, `${ADA}, bob:${BOB}`]) {
      expect([wrong, (await ask("/api/alerts", wrong)).status]).toEqual([wrong, 401]);
    }
  });
});

describe("the webhook", () => {
  it("is told of a run that failed, once, by the minute's cron", async () => {
    const run = await followRun(as(ADA), await as(ADA).launch("gas_storage"));
    expect(run.error_code).toBe("credential_missing");
    const now = systemClock();
    await Promise.all([world.tick(now), world.tick(now), world.tick(now)]);
    await world.tick(now);
    const about = receiver.arrivals.filter(
      ({ body }) => (body.data as Record<string, unknown>).job === "gas_storage",
    );
    expect(about).toHaveLength(1);
    expect(about[0]).toMatchObject({
      verified: true,
      body: {
        type: "alert.failed",
        data: { partition: run.partition, run_id: run.run_id, error_code: "credential_missing" },
      },
    });
    const alert = (await listed()).find(({ job }) => job === "gas_storage");
    expect(alert).toMatchObject({ delivery: "delivered", attempts: 1, alert_id: about[0]?.id });
  });

  it("can be tried from the API and from the page", async () => {
    const sent = Alert.parse(await (await ask("/api/alerts/test", BOB, "POST")).json());
    expect(sent).toMatchObject({
      kind: "test",
      delivery: "delivered",
      detail: "a test, sent by bob",
    });
    const { read, post } = await consoleSession(world.urls.console, ADA);
    expect((await post("/alerts/test")).status).toBe(303);
    expect(receiver.arrivals.at(-1)?.body.data).toMatchObject({ detail: "a test, sent by ada" });
    receiver.answer = (response) => response.writeHead(503).end();
    await post("/alerts/test");
    receiver.answer = accept;
    const page = await read("/alerts");
    expect(page).toContain("the receiver answered 503");
    expect(page).toContain(new URL(receiver.url).host);
    expect(page).not.toContain("in-the-address");
  });

  it("leaves neither its address nor any secret in the log or in an answer", async () => {
    const texts = [world.logs.join("\n"), JSON.stringify(await listed())];
    expect(texts[0]).toContain("alert_delivered");
    for (const text of texts) {
      for (const secret of ["in-the-address", SECRET, ADA, BOB, METRICS]) {
        expect(text.includes(secret)).toBe(false);
      }
    }
  });

  it("has its alerts listed page by page", async () => {
    const all = await listed();
    const [first] = await listed("?limit=1");
    expect(first).toEqual(all[0]);
    expect(await listed(`?limit=1&after=${first?.alert_id}`)).toEqual(all.slice(1, 2));
    expect((await ask("/api/alerts?after=x", ADA)).status).toBe(422);
  });
});

describe("the metrics", () => {
  it("are of the format, and tell what the ledger and the store hold", async () => {
    await commitHours(world, "erco", Date.parse("2026-01-01T00:00:00Z"), [1, 2]);
    const now = systemClock();
    await world.tick(now);
    const response = await ask("/metrics", METRICS);
    expect(response.status).toBe(200);
    expect(response.headers.get("Content-Type")).toBe("text/plain; version=0.0.4; charset=utf-8");
    const metrics = readExposition(await response.text());
    const value = (name: string, labels = "") =>
      metrics.get(`vantage_${name}`)?.samples.get(labels);
    expect([...metrics.keys()].every((name) => name.startsWith("vantage_"))).toBe(true);
    expect(value("runs_ended_24h", 'pipeline="gas_storage",state="failed"')).toBe(1);
    expect(value("incidents_open", 'pipeline="gas_storage",kind="failed"')).toBe(1);
    expect(value("alerts_pending")).toBe(1);
    const minute = value("scheduler_last_minute_timestamp_seconds") ?? 0;
    expect(minute).toBeGreaterThanOrEqual(now / 1_000);
    expect(minute).toBeLessThanOrEqual(systemClock() / 1_000);
    expect(value("schedule_enabled", 'pipeline="grid_region",schedule="grid_region"')).toBe(0);
    expect(value("library_newest_datetime_timestamp_seconds", 'library="power.demand"')).toBe(
      Date.parse("2026-01-01T01:00:00Z") / 1_000,
    );
    expect(value("compaction_pending_series")).toBe(1);
    expect(value("compaction_pending_rows")).toBe(2);
  });

  it("are for the holder of their own token alone, which opens nothing else", async () => {
    for (const wrong of ["", "x", ADA, world.operatorToken]) {
      expect((await ask("/metrics", wrong)).status).toBe(401);
    }
    expect((await ask("/api/jobs", METRICS)).status).toBe(401);
  });
});
