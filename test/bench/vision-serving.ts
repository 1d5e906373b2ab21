// What a prediction costs beyond the model itself, JPEG in, boxes out: the predictor alone in this
// process, the same through the service by the direct line, and by the queue, in one run on one
// machine. Run: npm run bench -- vision-serving [--variant det26n --size 320 --seconds 8]

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { sql } from "drizzle-orm";
import sharp from "sharp";
import { API } from "../../edge/vision/base/api.ts";
import { createCode } from "../../edge/vision/tasks/nodes.ts";
import { readStill } from "../../gpu-node/media/stills.ts";
import { openPredictor } from "../../gpu-node/serving/predictor.ts";
import type { ModelSource } from "../../shared/tasks.ts";
import { systemClock } from "../../shared/time.ts";
import { registerModel } from "../support/registered-model.ts";
import type { MediaBucket } from "../support/world.ts";
import { startVision } from "./vision-world.ts";

const { values } = parseArgs({
  args: process.argv.slice(2).filter((argument) => argument !== "--"),
  options: {
    variant: { type: "string", default: "det26n" },
    size: { type: "string", default: "320" },
    seconds: { type: "string", default: "8" },
  },
});
const SECONDS = Number(values.seconds);
const CONCURRENCIES = [1, 8, 32];
const print = (line: string) => process.stdout.write(`${line}\n`);
print(`${cpus().length} × ${cpus()[0]?.model.trim()}, Node ${process.version}`);

const { workers, database, stop } = await startVision();
const dir = mkdtempSync(join(tmpdir(), "vantage-bench-node-"));
const base = workers.urls.vision + API;

const person = { email: "b@example.com", password: "of the bench, long", display_name: "B" };
const registered = await fetch(`${base}/auth/register`, {
  method: "POST",
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify(person),
});
const { access_token: token } = (await registered.json()) as { access_token: string };
await database.execute(sql`UPDATE membership SET role = 'admin'`);
const { rows } = await database.execute<{ id: string }>(sql`SELECT id::text FROM workspace`);
const workspaceId = rows[0]?.id ?? "";
// The types of a bucket as Miniflare gives it and as tests take it differ in what may be put.
const world = { visionDatabase: database, media: (await workers.media()) as never as MediaBucket };
const model = await registerModel(world, workspaceId, {
  variant: values.variant as ModelSource["variant"],
  image_size: Number(values.size),
});
await database.execute(sql`UPDATE model SET active = true WHERE id = ${model.model_id}::uuid`);

const { code } = await createCode(
  { database, clock: systemClock },
  { createdBy: null, workspaceId: null },
);
const node = spawn(
  process.execPath,
  ["--disable-warning=ExperimentalWarning", "gpu-node/main.ts"],
  {
    env: {
      PATH: process.env.PATH,
      HOME: dir,
      VANTAGE_NODE_DIR: dir,
      VANTAGE_URL: workers.urls.vision,
      VANTAGE_NODE_CODE: code,
    },
    stdio: "ignore",
  },
);

// A photograph's worth of detail: noise that was made smooth.
const noise = sharp({
  create: {
    width: 1_280,
    height: 720,
    channels: 3,
    background: "#777",
    noise: { type: "gaussian", mean: 128, sigma: 60 },
  },
});
const image = await noise.blur(2).jpeg({ quality: 92 }).toBuffer();

interface Load {
  times: number[];
  statuses: Map<number, number>;
  perSecond: number;
}

/** So many at once for some seconds; times of those that were answered. */
async function load(concurrency: number, once: () => Promise<number>): Promise<Load> {
  const times: number[] = [];
  const statuses = new Map<number, number>();
  const started = performance.now();
  const until = started + SECONDS * 1_000;
  await Promise.all(
    Array.from({ length: concurrency }, async () => {
      while (performance.now() < until) {
        const began = performance.now();
        const status = await once();
        statuses.set(status, (statuses.get(status) ?? 0) + 1);
        if (status === 200) times.push(performance.now() - began);
        // Whoever is told to come again does.
        else await new Promise((done) => setTimeout(done, 1_000));
      }
    }),
  );
  const seconds = (performance.now() - started) / 1_000;
  return { times: times.sort((a, b) => a - b), statuses, perSecond: times.length / seconds };
}

const share = (times: readonly number[], part: number) =>
  (times[Math.min(times.length - 1, Math.floor(times.length * part))] ?? Number.NaN).toFixed(1);

function report(name: string, concurrency: number, { times, statuses, perSecond }: Load) {
  const others = [...statuses].filter(([status]) => status !== 200);
  const said = others.map(([status, count]) => `${count} × ${status}`).join(", ");
  const [p50, p95, p99] = [0.5, 0.95, 0.99].map((part) => share(times, part));
  print(
    `| ${name} | ${concurrency} | ${p50} | ${p95} | ${p99} | ${perSecond.toFixed(1)} | ${said} |`,
  );
}

const ask = async () => {
  const form = new FormData();
  form.set("file", new Blob([new Uint8Array(image)]), "a.jpg");
  const response = await fetch(`${base}/predict/image`, {
    method: "POST",
    headers: { Authorization: `Bearer ${token}` },
    body: form,
  });
  await response.arrayBuffer();
  return response.status;
};

try {
  print(`${values.variant} at ${values.size} px, a JPEG of ${Math.round(image.length / 1024)} KB`);
  print("| way | at once | p50 ms | p95 | p99 | a second | others |");
  print("|---|---|---|---|---|---|---|");
  const weights = new Uint8Array(
    await (
      (await world.media.get(model.weights.key)) as { arrayBuffer(): Promise<ArrayBuffer> }
    ).arrayBuffer(),
  );
  const settings = { cpuThreads: cpus().length, device: "cpu" as const };
  const predictor = await openPredictor(model, weights, settings);
  await predictor.warm();
  const alone = async () => {
    await predictor.predict(await readStill(image), { confidence: 0.25 });
    return 200;
  };
  for (const concurrency of CONCURRENCIES) {
    report("predictor alone", concurrency, await load(concurrency, alone));
  }
  await predictor.dispose();
  // The node opens the model with the first request.
  for (let status = 0; status !== 200; ) {
    status = await ask();
    if (status !== 200) await new Promise((done) => setTimeout(done, 500));
  }
  await new Promise((done) => setTimeout(done, 2_000));
  for (const concurrency of CONCURRENCIES) {
    report("direct line", concurrency, await load(concurrency, ask));
  }
  for (const concurrency of CONCURRENCIES.slice(0, 2)) {
    // Until its next heartbeat the node is one without a line.
    await database.execute(sql`UPDATE node SET capabilities = capabilities || '{"line": false}'`);
    await new Promise((done) => setTimeout(done, 1_100));
    report("queue", concurrency, await load(concurrency, ask));
  }
} finally {
  node.kill("SIGKILL");
  await once(node, "exit");
  await stop();
  rmSync(dir, { recursive: true, force: true });
}
process.exit(0);
