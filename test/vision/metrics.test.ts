// `/metrics` of the vision service and of a real node that works for it. Goal: figures are of all
// requests and tasks, each once, whatever isolate or process counted them; the format is
// Prometheus', names follow its conventions; the dashboard asks for nothing that is not there.

import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { sql } from "drizzle-orm";
import sharp from "sharp";
import { beforeAll, describe, expect, it } from "vitest";
import { type CountersRpc, countersOf } from "../../edge/vision/base/tally.ts";
import type { Series } from "../../shared/tally.ts";
import { systemClock } from "../../shared/time.ts";
import { toolsOrSay } from "../support/clips.ts";
import { conventionProblems, readExposition } from "../support/exposition.ts";
import { startNode } from "../support/gpu-node.ts";
import { form } from "../support/media.ts";
import { quietPort } from "../support/ports.ts";
import { registerModel } from "../support/registered-model.ts";
import { type Person, register } from "../support/scripted-node.ts";
import { createTaskWorld, DONE, type TaskWorld } from "../support/task-world.ts";
import { createWorld, REFUSING_URL, type World } from "../support/world.ts";

const TOKEN = "the token of what scrapes";
const found = toolsOrSay();

const ask = (url: string, token: string) =>
  fetch(`${url}/metrics`, { headers: { Authorization: `Bearer ${token}` } });

async function scraped(url: string) {
  const response = await ask(url, TOKEN);
  expect(response.status).toBe(200);
  expect(response.headers.get("Content-Type")).toBe("text/plain; version=0.0.4; charset=utf-8");
  const text = await response.text();
  const metrics = readExposition(text);
  return { text, metrics, ...readerOf(metrics) };
}

function readerOf(metrics: ReturnType<typeof readExposition>) {
  const value = (name: string, labels: Record<string, string> = {}) => {
    const text = Object.entries(labels).map(([label, own]) => `${label}="${own}"`);
    return metrics.get(name)?.samples.get(text.join(","));
  };
  return { value };
}

describe("what the service counts", () => {
  let world: TaskWorld;
  let url: string;
  beforeAll(async () => {
    world = await createTaskWorld({ METRICS_TOKEN: TOKEN });
    url = world.urls.vision;
  });

  const requests = (route: string, code: string, method = "GET") => ({ method, route, code });
  const REQUESTS = "vantage_vision_http_requests_total";
  const LATENCY = "vantage_vision_http_request_duration_seconds_count";

  it("are requests by route and code, each once, and never by what was asked for", async () => {
    const before = await scraped(url);
    const route = "/api/v1/projects/{project_id}";
    const known = before.value(REQUESTS, requests(route, "404")) ?? 0;
    const strayed = before.value(REQUESTS, requests("", "404")) ?? 0;
    const ids = Array.from({ length: 40 }, () => randomUUID());
    await Promise.all(ids.map((id) => world.asAdmin(`/projects/${id}`)));
    await world.asAdmin("/projects/none");
    await fetch(`${url}/wp-login.php`);
    await fetch(`${url}/${randomUUID()}`);
    const after = await scraped(url);
    expect((after.value(REQUESTS, requests(route, "404")) ?? 0) - known).toBe(40);
    expect(after.value(REQUESTS, requests(route, "422"))).toBe(1);
    expect((after.value(REQUESTS, requests("", "404")) ?? 0) - strayed).toBe(2);
    expect(after.value(LATENCY, { method: "GET", route })).toBe(known + 41);
    for (const id of ids) expect(after.text).not.toContain(id);
  });

  it("go on where they were when the object that sums them lost its memory", async () => {
    const before = (await scraped(url)).value(REQUESTS, requests("/healthz", "200")) ?? 0;
    await fetch(`${url}/healthz`);
    await scraped(url);
    await world.evict("Counters", "counters");
    await fetch(`${url}/healthz`);
    const after = await scraped(url);
    expect((after.value(REQUESTS, requests("/healthz", "200")) ?? 0) - before).toBe(2);
    const began = after.value("vantage_vision_counters_start_time_seconds") ?? 0;
    expect(began).toBeGreaterThan(systemClock() / 1_000 - 600);
    expect(began).toBeLessThanOrEqual(systemClock() / 1_000);
  });

  it("are sent by themselves, some seconds later, without anybody scraping", async () => {
    const counters = countersOf({ counters: world.objects("COUNTERS") });
    await scraped(url);
    const count = async () => {
      const { series } = await counters.read();
      const own = series.find(({ values }) => values.join() === "GET,/docs,200");
      return own?.counts[0] ?? 0;
    };
    const before = await count();
    await fetch(`${url}/docs`);
    await expect.poll(count).toBe(before + 1);
  });

  it("of a batch that comes twice are added once; strange series are left out", async () => {
    const counters: CountersRpc = countersOf({ counters: world.objects("COUNTERS") });
    const series: Series[] = [
      { metric: REQUESTS, values: ["GET", "/test", "200"], counts: [5], sum: 0 },
      { metric: "vantage_vision_unknown_total", values: [], counts: [1], sum: 0 },
    ];
    const isolate = randomUUID();
    await counters.add(isolate, 1, series);
    await counters.add(isolate, 1, series);
    await counters.add(isolate, 2, series);
    // An answer that was lost, and its batch sent again behind the next one.
    await counters.add(isolate, 1, series);
    await counters.add(randomUUID(), 1, series);
    const { value, text } = await scraped(url);
    expect(value(REQUESTS, requests("/test", "200"))).toBe(15);
    expect(text).not.toContain("unknown_total");
  });

  it("of hundreds of isolates are kept in few rows, and are the same after each eviction", async () => {
    const counters: CountersRpc = countersOf({ counters: world.objects("COUNTERS") });
    const one = (count: number): Series[] => [
      { metric: REQUESTS, values: ["PUT", "/test", "200"], counts: [count], sum: 0 },
      {
        metric: "vantage_vision_line_ask_duration_seconds",
        values: [],
        counts: Array.from({ length: 13 }, (_, bucket) => Number(bucket === 3)),
        sum: 0.15,
      },
    ];
    const isolates = Array.from({ length: 150 }, () => randomUUID());
    for (const isolate of isolates) await counters.add(isolate, 1, one(1));
    await world.evict("Counters", "counters");
    // The first were added to the sums for good, and go on; what they sent before is known still.
    for (const isolate of isolates.slice(0, 20)) {
      await counters.add(isolate, 1, one(100));
      await counters.add(isolate, 2, one(2));
    }
    await world.evict("Counters", "counters");
    const { value } = await scraped(url);
    expect(value(REQUESTS, requests("/test", "200", "PUT"))).toBe(150 + 40);
    expect(value("vantage_vision_line_ask_duration_seconds_count")).toBe(170);
    const sum = value("vantage_vision_line_ask_duration_seconds_sum") ?? 0;
    expect(sum).toBeCloseTo(170 * 0.15);
  });

  it("are tasks from their enqueueing to their end, claims, retries and lost leases", async () => {
    const { value: then } = await scraped(url);
    const frames = { kind: "frames" };
    const path = `/admin/tasks/${await world.enqueued()}/revoke`;
    expect((await world.asAdmin(path, "POST")).status).toBe(202);
    await world.enqueued();
    const failed = { outcome: "failed", code: "x", detail: "x", retryable: true };
    expect((await world.finish(await world.claimed(), failed)).status).toBe(200);
    await due();
    await world.claimed();
    await world.visionDatabase.execute(
      sql`UPDATE task SET lease_until = now() - interval '1 second' WHERE state = 'running'`,
    );
    await world.tick(systemClock());
    await due();
    const task = await world.claimed();
    expect((await world.finish(task, DONE)).status).toBe(200);
    // The same again is no second end.
    expect((await world.finish(task, DONE)).status).toBe(200);
    const { value } = await scraped(url);
    const rise = (name: string, labels: Record<string, string>) =>
      (value(`vantage_vision_${name}`, labels) ?? 0) -
      (then(`vantage_vision_${name}`, labels) ?? 0);
    expect(rise("tasks_claimed_total", frames)).toBe(3);
    expect(rise("tasks_requeued_total", { ...frames, reason: "failed" })).toBe(1);
    expect(rise("tasks_requeued_total", { ...frames, reason: "lease_lost" })).toBe(1);
    expect(rise("leases_lost_total", frames)).toBe(1);
    expect(rise("tasks_ended_total", { ...frames, state: "finished" })).toBe(1);
    expect(rise("tasks_ended_total", { ...frames, state: "revoked" })).toBe(1);
  });

  const due = () =>
    world.visionDatabase.execute(
      sql`UPDATE task SET available_at = now() - interval '1 second' WHERE state = 'queued'`,
    );

  it("stand beside how the queue and the nodes stand now", async () => {
    // However long ago they introduced themselves.
    await world.other.post("/node/heartbeat", { tasks: [] });
    await world.enqueued();
    const running = await world.claimed();
    await world.enqueued();
    await world.visionDatabase.execute(sql`
      UPDATE task SET created_at = now() - interval '1 hour' WHERE state = 'queued'`);
    await world.visionDatabase.execute(sql`
      UPDATE task SET started_at = now() - interval '6 minutes',
        claimed_at = now() - interval '6 minutes' WHERE state = 'running'`);
    const { value } = await scraped(url);
    const frames = { kind: "frames", lane: "interactive" };
    expect(value("vantage_vision_tasks", { ...frames, state: "waiting" })).toBe(1);
    expect(value("vantage_vision_tasks", { ...frames, state: "running" })).toBe(1);
    const oldest = value("vantage_vision_queue_oldest_seconds", frames) ?? 0;
    expect(oldest).toBeGreaterThan(3_590);
    expect(oldest).toBeLessThan(3_700);
    expect(value("vantage_vision_tasks_stuck", { kind: "frames" })).toBe(1);
    expect(value("vantage_vision_nodes", { state: "busy" })).toBe(1);
    expect(value("vantage_vision_nodes", { state: "ready" })).toBe(1);
    expect(value("vantage_vision_lines_open")).toBe(0);
    expect(value("vantage_vision_database_up")).toBe(1);
    const status = await (await world.asAdmin("/admin/status")).json();
    expect(status).toMatchObject({
      queue_depth: 1,
      running: 1,
      queues: expect.arrayContaining([
        { kind: "frames", lane: "interactive", depth: 1, delayed: 0, running: 1 },
      ]),
      oldest_queued_seconds: expect.any(Number),
      worker_count: 2,
      workers: { ready: 1, busy: 1, draining: 0, lost: 0 },
      lines_open: 0,
      stuck_job_count: 1,
      stuck: [{ kind: "frames", tasks: 1 }],
      object_store: { reachable: true, latency_ms: expect.any(Number) },
    });
    expect((status as { oldest_queued_seconds: number }).oldest_queued_seconds).toBeGreaterThan(
      3_590,
    );
    await world.visionDatabase.execute(sql`
      UPDATE node SET last_heartbeat_at = now() - interval '2 minutes'
       WHERE id = ${world.other.nodeId}::uuid`);
    const later = await (await world.asAdmin("/admin/status")).json();
    expect(later).toMatchObject({ worker_count: 1, workers: { ready: 0, busy: 1, lost: 1 } });
    expect((await world.finish(running, DONE)).status).toBe(200);
  });

  it("are for the holder of their own token alone, which opens nothing else", async () => {
    for (const wrong of ["", "x", world.admin.tokens.access_token]) {
      expect((await ask(url, wrong)).status).toBe(401);
    }
    const headers = { Authorization: `Bearer ${TOKEN}` };
    expect((await fetch(world.url("/admin/status"), { headers })).status).toBe(401);
    expect((await fetch(`${url}/metrics`)).status).toBe(401);
  });
});

it("the metrics are none where nobody was given a token, and go on without a database", async () => {
  const without = await createWorld({ services: ["vision"] });
  expect((await ask(without.urls.vision, "")).status).toBe(404);
  expect((await ask(without.urls.vision, TOKEN)).status).toBe(404);
  const cut = await createWorld({
    services: ["vision"],
    environment: { vision: { DATABASE_URL: REFUSING_URL, METRICS_TOKEN: TOKEN } },
  });
  expect((await fetch(`${cut.urls.vision}/healthz`)).status).toBe(200);
  const { value, metrics } = await scraped(cut.urls.vision);
  expect(value("vantage_vision_database_up")).toBe(0);
  expect(metrics.get("vantage_vision_tasks")?.samples.size).toBe(0);
  const labels = { method: "GET", route: "/healthz", code: "200" };
  expect(value("vantage_vision_http_requests_total", labels)).toBe(1);
  expect(value("vantage_vision_counters_up")).toBe(1);
  await fillCounters(countersOf({ counters: cut.objects("COUNTERS") }));
  const alone = await scraped(cut.urls.vision);
  expect(alone.value("vantage_vision_counters_up")).toBe(0);
  // None, which Prometheus passes over, and not one that begins anew.
  expect(alone.metrics.has("vantage_vision_http_requests_total")).toBe(false);
  expect(alone.value("vantage_vision_database_up")).toBe(0);
});

/** Has the object hold more than it can answer, so that it answers nothing any more. */
async function fillCounters(counters: CountersRpc) {
  for (let index = 0; index < 20; index++) {
    const route = `/${index}`.padEnd(1_800_000, "x");
    const values = ["GET", route, "200"];
    const series = [{ metric: "vantage_vision_http_requests_total", values, counts: [1], sum: 0 }];
    await counters.add(randomUUID(), 1, series);
  }
  await expect(counters.read()).rejects.toThrow();
}

describe.skipIf(!found)("beside a real node", () => {
  let world: World;
  let admin: Person;
  let port: number;

  beforeAll(async () => {
    const environment = { vision: { METRICS_TOKEN: TOKEN } };
    world = await createWorld({ services: ["vision"], environment });
    admin = await register(world);
    port = await quietPort();
  });

  const ofNode = async () => {
    const response = await fetch(`http://127.0.0.1:${port}/metrics`);
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toBe("text/plain; version=0.0.4; charset=utf-8");
    const metrics = readExposition(await response.text());
    return { metrics, ...readerOf(metrics) };
  };

  it("each tells its side of one prediction, and the dashboard asks for what is there", async () => {
    const { code } = await admin.ok<{ code: string }>("POST", "/admin/nodes/codes", {});
    startNode({
      VANTAGE_URL: world.urls.vision,
      VANTAGE_NODE_CODE: code,
      VANTAGE_NODE_STATUS_PORT: String(port),
    });
    const me = await admin.ok<{ workspaces: { workspace_id: string }[] }>("GET", "/auth/me");
    const workspaceId = me.workspaces[0]?.workspace_id ?? "";
    await expect
      .poll(async () => (await admin.ok<{ lines_open: number }>("GET", "/admin/status")).lines_open)
      .toBe(1);
    const model = await registerModel(world, workspaceId, { classes: ["disc", "plate"] });
    await admin.ok("POST", `/models/${model.model_id}/activate`);
    const create = { width: 64, height: 48, channels: 3, background: "#777" } as const;
    const content = new Uint8Array(await sharp({ create }).png().toBuffer());
    await admin.ok("POST", "/predict/image", form({ content }));

    const service = await scraped(world.urls.vision);
    expect(service.value("vantage_vision_line_asks_total", { status: "done" })).toBe(1);
    expect(service.value("vantage_vision_line_ask_duration_seconds_count")).toBe(1);
    expect(service.value("vantage_vision_tasks_enqueued_total", { kind: "warm" })).toBe(1);
    expect(service.value("vantage_vision_tasks_claimed_total", { kind: "warm" })).toBe(1);

    // What a child counted comes within a second or two.
    await expect
      .poll(async () => (await ofNode()).value("vantage_node_batch_images_count"))
      .toBe(1);
    const node = await ofNode();
    expect(node.value("vantage_node_line_requests_total", { status: "done" })).toBe(1);
    expect(node.value("vantage_node_tasks_claimed_total", { kind: "warm" })).toBe(1);
    const ended = { kind: "warm", outcome: "finished" };
    expect(node.value("vantage_node_tasks_ended_total", ended)).toBe(1);
    expect(node.value("vantage_node_model_loads_total", { result: "opened" })).toBe(1);
    expect(node.value("vantage_node_models_resident")).toBe(1);
    expect(node.value("vantage_node_line_open")).toBe(1);
    expect(node.value("vantage_node_children_started_total")).toBe(1);
    expect(node.value("vantage_node_cache_requests_total", { result: "miss" })).toBe(1);
    const fetched = node.value("vantage_node_cache_fetched_bytes_total") ?? 0;
    expect(fetched).toBeGreaterThan(1_000);
    expect(node.value("vantage_node_cache_limit_bytes")).toBe(10 * 1024 ** 3);
    for (const process of ["supervisor", "serving"]) {
      const bytes = node.value("vantage_node_process_resident_memory_bytes", { process }) ?? 0;
      expect(bytes).toBeGreaterThan(10_000_000);
    }

    expect(conventionProblems(service.metrics)).toEqual([]);
    expect(conventionProblems(node.metrics)).toEqual([]);
    const there = new Map([...service.metrics, ...node.metrics]);
    for (const { title, expr } of expressions()) {
      const names = expr.match(/vantage_\w+/g) ?? [];
      expect([title, expr, names.length > 0]).toEqual([title, expr, true]);
      for (const name of names) expect([title, name, there.has(name)]).toEqual([title, name, true]);
      expect([title, unknownLabels(expr, there)]).toEqual([title, []]);
    }
  });
});

/** Every query of the dashboard. */
function expressions(): { title: string; expr: string }[] {
  const file = join(import.meta.dirname, "../../edge/vision/grafana.json");
  const { panels } = JSON.parse(readFileSync(file, "utf8")) as {
    panels: { title: string; targets?: { expr: string }[] }[];
  };
  const all = panels.flatMap(({ title, targets = [] }) =>
    targets.map(({ expr }) => ({ title, expr })),
  );
  expect(all.length).toBeGreaterThan(30);
  return all;
}

/** Labels that Prometheus adds to whatever it scrapes. */
const SCRAPED = ["instance", "job"];

/**
 * Labels that a query names and that no sample of its metrics has. Metrics that have no sample
 * here, such as those of failures, say nothing.
 */
function unknownLabels(expr: string, there: ReturnType<typeof readExposition>): string[] {
  const names = expr.match(/vantage_\w+/g) ?? [];
  const samples = names.map((name) => [...(there.get(name)?.samples.keys() ?? [])]);
  if (samples.some((rows) => rows.length === 0)) return [];
  const known = new Set(
    samples.flat().flatMap((row) => [...row.matchAll(/(\w+)="/g)].map(([, label]) => label)),
  );
  const selected = [...expr.matchAll(/\{([^}]*)\}/g)].flatMap(([, inside = ""]) =>
    [...inside.matchAll(/(\w+)\s*[=!~]+/g)].map(([, label = ""]) => label),
  );
  const grouped = [...expr.matchAll(/by \(([^)]*)\)/g)].flatMap(([, inside = ""]) =>
    inside.split(",").map((label) => label.trim()),
  );
  return [...selected, ...grouped].filter((one) => !known.has(one) && !SCRAPED.includes(one));
}
