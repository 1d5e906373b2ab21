// Alerts through real executions: each incident is told of once when it begins and once when it is
// over, delivered to a receiver that fails, hangs and forgets, by crons that overlap.

import { sql } from "drizzle-orm";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { WebhookTarget } from "../../edge/http/webhook.ts";
import {
  alertMinute,
  deliverAlerts,
  forgetAlerts,
  listAlerts,
  sendTestAlert,
} from "../../edge/markets/ingest/alert-outbox.ts";
import { launch, setSchedule, startBackfill } from "../../edge/markets/ingest/operate.ts";
import type { Pipeline } from "../../edge/markets/ingest/pipeline.ts";
import { minuteTick } from "../../edge/markets/ingest/tick.ts";
import { Failure } from "../../shared/errors.ts";
import { Secret } from "../../shared/secret.ts";
import { DAY, HOUR, iso, MINUTE } from "../../shared/time.ts";
import { type ScriptedIngest, scriptedIngest } from "../support/ingest.ts";
import { accept, type Receiver, startReceiver } from "../support/receiver.ts";

const SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const START = Date.parse("2026-06-18T14:20:00Z");
const TODAY = "2026-06-18";

let ingest: ScriptedIngest;
let receiver: Receiver;
let webhook: WebhookTarget;
/** The newest valid time of each symbol that the provider knows. */
let published: Map<string, number>;
let fault: Failure | null;

const daily: Pipeline = {
  job: "daily",
  title: "Daily",
  provider: "eia",
  timeZone: "UTC",
  valueColumns: ["value"],
  topicsOf: () => [],
  freshness: { warningMs: 10 * DAY, errorMs: 20 * DAY },
  publishedWithinMs: Infinity,
  libraries: ["power.daily"],
  partitions: { unit: "day", first: "2026-01-01" },
  schedules: [{ name: "daily", cron: "20 * * * *", timeZone: "UTC", aim: "latest" }],
  lookbackMs: 10 * DAY,
  release: null,
  fetch: async (_, { window }) => {
    if (fault) throw fault;
    const series = [...published].map(([symbol, newest]) => ({
      library: "power.daily",
      symbol,
      rows: [newest, newest - DAY, newest - 2 * DAY]
        .filter((datetime) => datetime >= window.from && datetime < window.to)
        .map((datetime) => ({ datetime, instrumentId: `power.daily.${symbol}`, values: [1] })),
    }));
    const sourceUrl = "sandbox://provider";
    return { series: series.filter(({ rows }) => rows.length > 0), sourceUrl, sandbox: true };
  },
  gate: (fetched) => ({ accepted: [...fetched], findings: [] }),
};
const awaited: Pipeline = {
  ...daily,
  job: "awaited",
  libraries: ["fundamentals.awaited"],
  schedules: [{ name: "awaited", cron: "0 15 * * *", timeZone: "UTC", aim: "latest" }],
  release: { everyMs: 10 * MINUTE, windowMs: 30 * MINUTE },
  complete: () => published.has("two"),
  fetch: async (...request) => {
    const result = await daily.fetch(...request);
    const series = result.series.map((one) => ({ ...one, library: "fundamentals.awaited" }));
    return { ...result, series };
  },
};

beforeAll(async () => {
  receiver = await startReceiver(SECRET);
  webhook = {
    url: new Secret(receiver.url),
    secret: new Secret(SECRET),
    allowPrivate: true,
    resolve: () => Promise.reject(new Error("nobody asks for a name here")),
  };
  ingest = await scriptedIngest({ pipelines: [daily, awaited], now: START });
});
afterAll(() => ingest.close());
beforeEach(async () => {
  await ingest.reset();
  ingest.now = START;
  await setSchedule(ingest.parts, "awaited", { enabled: false });
  fault = null;
  published = new Map([["one", Date.parse(TODAY)]]);
  receiver.arrivals = [];
  receiver.answer = accept;
});

/** A minute of the cron, as the console has it, with what it queues. */
async function minute(now: number, target: WebhookTarget | null = webhook) {
  ingest.now = now;
  await minuteTick(ingest.parts, now);
  await ingest.consume();
  await alertMinute(ingest.parts, target, now);
}
const told = () =>
  receiver.arrivals.map(({ body }) => {
    const { partition, series } = body.data as Record<string, string | null>;
    return `${body.type} ${partition ?? series ?? ""}`.trim();
  });
const rejected = () => new Failure("upstream_rejected", "the provider refused the request");
const alerts = () => listAlerts(ingest.parts.database, { limit: 100 });

describe("an incident", () => {
  it("is told of once when it begins and once when it is over, and then may begin again", async () => {
    fault = rejected();
    await minute(START);
    expect(told()).toEqual([`alert.failed ${TODAY}`]);
    // The same minute again, and the next hour's run, which fails as well.
    await minute(START);
    await minute(START + HOUR);
    expect(told()).toHaveLength(1);
    fault = null;
    await minute(START + 2 * HOUR);
    await minute(START + 2 * HOUR);
    await minute(START + 2 * HOUR + MINUTE);
    expect(told()).toEqual([`alert.failed ${TODAY}`, `alert.recovered ${TODAY}`]);
    fault = rejected();
    await minute(START + 3 * HOUR);
    expect(told()).toHaveLength(3);
    expect(told().at(-1)).toBe(`alert.failed ${TODAY}`);
    const [began, ended] = receiver.arrivals;
    expect(began).toMatchObject({
      verified: true,
      body: {
        type: "alert.failed",
        timestamp: iso(START),
        data: {
          job: "daily",
          partition: TODAY,
          series: null,
          error_code: "upstream_rejected",
          detail: "the provider refused the request",
          incident_id: began?.id,
          alert_id: began?.id,
        },
      },
    });
    expect(ended?.body.data).toMatchObject({ incident_id: began?.id, alert_id: ended?.id });
    expect(new Set(receiver.arrivals.map(({ id }) => id)).size).toBe(3);
    expect(receiver.arrivals.every(({ verified }) => verified)).toBe(true);
  });

  it("of a partition that comes late ends when a later run covers it", async () => {
    const due = Date.parse("2026-06-18T15:00:00Z");
    await setSchedule(ingest.parts, "daily", { enabled: false });
    await setSchedule(ingest.parts, "awaited", { enabled: true });
    for (let now = due; now <= due + HOUR; now += 10 * MINUTE) await minute(now);
    expect(told()).toEqual([`alert.late ${TODAY}`]);
    published.set("two", Date.parse(TODAY));
    ingest.now = due + DAY;
    // The next day's run looks back on the day before.
    await minute(due + DAY);
    expect(told().filter((one) => one.includes(TODAY))).toEqual([
      `alert.late ${TODAY}`,
      `alert.recovered ${TODAY}`,
    ]);
  });

  it("is a series that lags its library, until it is fresh again", async () => {
    published = new Map([
      ["one", Date.parse(TODAY)],
      ["two", Date.parse(TODAY) - 5 * DAY],
    ]);
    await minute(START);
    await minute(START + HOUR);
    expect(told()).toEqual(["alert.stale two"]);
    published.set("two", Date.parse(TODAY));
    await minute(START + 2 * HOUR);
    await minute(START + 3 * HOUR);
    expect(told()).toEqual(["alert.stale two", "alert.recovered two"]);
  });

  it("is data that is stale as a whole, by its check", async () => {
    const { freshness } = daily;
    daily.freshness = { warningMs: 0, errorMs: 0 };
    try {
      await minute(START);
      expect(told()).toEqual(["alert.stale"]);
      expect(receiver.arrivals[0]?.body.data).toMatchObject({
        detail: `the read-back check of ${TODAY}: the newest data is stale`,
      });
    } finally {
      daily.freshness = freshness;
    }
  });

  it("is a check that failed after the write", async () => {
    const gate = daily.gate;
    let broken = true;
    let calls = 0;
    // The gate lets the rows through and refuses them when they are read back.
    daily.gate = (fetched, context) => {
      const findings =
        calls++ % 2 === 1 && broken
          ? [{ severity: "error" as const, rule: "off_grid" as const, count: 1, where: "one" }]
          : [];
      return { accepted: [...gate(fetched, context).accepted], findings };
    };
    try {
      await minute(START);
      expect(told()).toEqual(["alert.failed"]);
      expect(receiver.arrivals[0]?.body.data).toMatchObject({
        detail: `the read-back check of ${TODAY}: 1 row between two valid times in ONE`,
      });
      broken = false;
      await minute(START + HOUR);
      expect(told()).toEqual(["alert.failed", "alert.recovered"]);
    } finally {
      daily.gate = gate;
    }
  });

  it("is noticed after an outage of the cron, and only once", async () => {
    await minute(START);
    fault = rejected();
    await launch(ingest.parts, "daily", "2026-06-17");
    await ingest.consume();
    fault = null;
    await minute(START + 6 * HOUR);
    // The hour's own run looks back ten days, and has filled it meanwhile.
    expect(told()).toEqual([]);
    fault = rejected();
    await launch(ingest.parts, "daily", "2026-03-01");
    await ingest.consume();
    await alertMinute(ingest.parts, webhook, ingest.now + 3 * DAY);
    await alertMinute(ingest.parts, webhook, ingest.now + 3 * DAY);
    expect(told()).toEqual(["alert.failed 2026-03-01"]);
  });

  it("of a partition that its pipeline knows no more keeps nobody else's from being told", async () => {
    fault = rejected();
    await launch(ingest.parts, "daily", "2026-02-01");
    await minute(START);
    const { partitions } = daily;
    daily.partitions = { ...partitions, first: "2026-03-01" };
    await minute(START + HOUR);
    fault = null;
    await minute(START + 2 * HOUR);
    daily.partitions = partitions;
    expect(told().toSorted()).toEqual([
      "alert.failed 2026-02-01",
      `alert.failed ${TODAY}`,
      `alert.recovered ${TODAY}`,
    ]);
  });

  it("is begun by no run of a backfill, and ended by one that fills the partition", async () => {
    await minute(START);
    fault = rejected();
    await startBackfill(ingest.parts, { job: "daily", first: "2026-03-01", last: "2026-03-03" });
    while ((await ingest.consume()) > 0);
    await minute(START + MINUTE);
    expect(told()).toEqual([]);
    await launch(ingest.parts, "daily", "2026-03-02");
    await minute(START + 2 * MINUTE);
    expect(told()).toEqual(["alert.failed 2026-03-02"]);
    fault = null;
    published = new Map([["one", Date.parse("2026-03-03")]]);
    await startBackfill(ingest.parts, { job: "daily", first: "2026-03-02", last: "2026-03-02" });
    await minute(START + 3 * MINUTE);
    expect(told()).toEqual(["alert.failed 2026-03-02", "alert.recovered 2026-03-02"]);
  });
});

describe("the delivery", () => {
  beforeEach(() => {
    fault = rejected();
  });

  it("sends each alert once, however many minutes run at once", async () => {
    await Promise.all(Array.from({ length: 6 }, () => minute(START)));
    expect(told()).toEqual([`alert.failed ${TODAY}`]);
    fault = null;
    ingest.now = START + HOUR;
    await minuteTick(ingest.parts, ingest.now);
    await ingest.consume();
    await Promise.all(
      Array.from({ length: 6 }, () => alertMinute(ingest.parts, webhook, START + HOUR)),
    );
    expect(told()).toEqual([`alert.failed ${TODAY}`, `alert.recovered ${TODAY}`]);
  });

  it("tries again under the same id after growing pauses, and gives up after a day", async () => {
    receiver.answer = (response) => response.writeHead(500).end();
    await minute(START);
    let last = START;
    for (let attempt = 2; attempt <= 8; attempt++) {
      const [alert] = await alerts();
      const next = Date.parse(alert?.next_attempt_at ?? "");
      expect(alert).toMatchObject({ delivery: "pending", attempts: attempt - 1 });
      expect(alert?.last_error).toBe("the receiver answered 500");
      ingest.now = next - 1;
      await deliverAlerts(ingest.parts, webhook, next - 1);
      expect(receiver.arrivals).toHaveLength(attempt - 1);
      ingest.now = next;
      await deliverAlerts(ingest.parts, webhook, next);
      expect(receiver.arrivals).toHaveLength(attempt);
      last = next;
    }
    expect(last - START).toBeGreaterThan(23 * HOUR);
    expect(last - START).toBeLessThan(30 * HOUR);
    expect((await alerts())[0]).toMatchObject({ delivery: "given_up", next_attempt_at: null });
    await deliverAlerts(ingest.parts, webhook, last + 30 * DAY);
    expect(receiver.arrivals).toHaveLength(8);
    expect(new Set(receiver.arrivals.map(({ id }) => id)).size).toBe(1);
  });

  it("ends well when the receiver is back", async () => {
    receiver.answer = (response) => response.writeHead(302, { Location: "http://[::1]/" }).end();
    await minute(START);
    expect((await alerts())[0]?.last_error).toContain("redirects are not followed");
    receiver.answer = accept;
    ingest.now = START + MINUTE;
    await deliverAlerts(ingest.parts, webhook, ingest.now);
    expect((await alerts())[0]).toMatchObject({
      delivery: "delivered",
      delivered_at: iso(START + MINUTE),
      attempts: 2,
      last_error: null,
    });
  });

  it("takes up what a process that died had claimed, and only then", async () => {
    await minute(START, { ...webhook, url: new Secret("http://127.0.0.1:1/") });
    const { database } = ingest.parts;
    // As the claim of a process leaves it that dies before it has sent.
    const claimed = iso(START + MINUTE);
    await database.execute(sql`UPDATE alert SET attempts = 1, next_at = ${claimed}::timestamptz`);
    await deliverAlerts(ingest.parts, webhook, START + MINUTE - 1);
    expect(told()).toEqual([]);
    await deliverAlerts(ingest.parts, webhook, START + MINUTE);
    expect(told()).toEqual([`alert.failed ${TODAY}`]);
  });

  it("goes to no address that is not public, and says so without naming it", async () => {
    const guarded = {
      ...webhook,
      url: new Secret("https://hooks.example.com/s3cret"),
      allowPrivate: false,
      resolve: async () => ["10.1.2.3"],
    };
    await minute(START, guarded);
    const [alert] = await alerts();
    expect(alert).toMatchObject({ delivery: "pending", attempts: 1 });
    expect(alert?.last_error).toBe("not sent: the address leads to an address that is not public");
    expect(told()).toEqual([]);
  });

  it("sends at most twenty a minute, oldest first", async () => {
    published = new Map([["one", Date.parse(TODAY)]]);
    for (let n = 10; n < 40; n++) published.set(`lag${n}`, Date.parse(TODAY) - 5 * DAY);
    fault = null;
    await minute(START);
    expect(told()).toHaveLength(20);
    await alertMinute(ingest.parts, webhook, START + MINUTE);
    expect(new Set(told()).size).toBe(30);
  });

  it("is of nothing where no webhook is set; what was recorded then is never sent", async () => {
    await minute(START, null);
    expect((await alerts())[0]).toMatchObject({ kind: "failed", delivery: "unsent" });
    await minute(START + MINUTE);
    expect(told()).toEqual([]);
  });

  it("can be tried by a test, which says at once how it went", async () => {
    const sent = await sendTestAlert(ingest.parts, webhook, "ada");
    expect(sent).toMatchObject({ kind: "test", delivery: "delivered", job: null, attempts: 1 });
    expect(receiver.arrivals).toMatchObject([{ id: sent?.alert_id, verified: true }]);
    receiver.answer = (response) => response.writeHead(403).end();
    const refused = await sendTestAlert(ingest.parts, webhook, "ada");
    expect(refused).toMatchObject({
      delivery: "pending",
      last_error: "the receiver answered 403",
    });
  });
});

it("alerts are forgotten after some months, but not the open ones of stale series", async () => {
  published.set("two", Date.parse(TODAY) - 5 * DAY);
  await minute(START);
  fault = rejected();
  await minute(START + HOUR);
  expect((await alerts()).map(({ kind }) => kind).toSorted()).toEqual(["failed", "stale"]);
  await forgetAlerts(ingest.parts.database, START + 119 * DAY);
  expect(await alerts()).toHaveLength(2);
  await forgetAlerts(ingest.parts.database, START + 121 * DAY);
  expect((await alerts()).map(({ kind }) => kind)).toEqual(["stale"]);
});

it("alerts are listed newest first, page by page, each once", async () => {
  for (let n = 10; n < 35; n++) published.set(`lag${n}`, Date.parse(TODAY) - 5 * DAY);
  await minute(START, null);
  const { database } = ingest.parts;
  const seen: string[] = [];
  for (let after: string | undefined; ; ) {
    const page = await listAlerts(database, { after, limit: 10 });
    seen.push(...page.map(({ alert_id }) => alert_id));
    after = page.at(-1)?.alert_id;
    if (page.length < 10) break;
  }
  expect(new Set(seen).size).toBe(25);
  expect(seen).toHaveLength(25);
});
