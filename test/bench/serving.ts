// What a prediction costs beyond the model itself, JPEG in, boxes out: the predictor alone in this
// process, the same through the service by the direct line, and by the queue; four times as much as
// it can take; a shadow beside it. All in one run on one machine.
// Run: npm run bench -- serving [--variant det26n --sizes 320,640 --seconds 8 --soak MINUTES]

import { mkdtempSync, rmSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { readStillAt } from "../../gpu-node/media/stills.ts";
import { openPredictor } from "../../gpu-node/serving/predictor.ts";
import { placementOf } from "../../shared/detector/letterbox.ts";
import type { Capabilities } from "../../shared/tasks/node-protocol.ts";
import type { ModelSource } from "../../shared/tasks/tasks.ts";
import type { EndpointStatus } from "../../shared/wire/endpoints.ts";
import { atOnce, atRate, type Load, quantile } from "./load.ts";
import { type ProcessorTime, printSpent, processorTime, spentSince } from "./processor-time.ts";
import { photograph, type ServingWorld, startServing } from "./serving-world.ts";
import { sampleOf } from "./soak-samples.ts";

const { values } = parseArgs({
  args: process.argv.slice(2).filter((argument) => argument !== "--"),
  options: {
    variant: { type: "string", default: "det26n" },
    sizes: { type: "string", default: "320,640" },
    seconds: { type: "string", default: "8" },
    soak: { type: "string", default: "0" },
  },
});
const SECONDS = Number(values.seconds);
const SOAK_MINUTES = Number(values.soak);
const CONCURRENCIES = [1, 8, 32];
const OVERLOAD = 4;
const SHADOWED_LOAD = 0.3;
const SOAKED_LOAD = 0.8;
/** Rounds without and with a shadow, in turn. */
const ROUNDS = 3;
/** Longer than an isolate uses what it read of an endpoint and of its nodes (1 s). */
const NODE_LIST_MS = 1_500;
const SAMPLE_SECONDS = 60;
const SLUG = "bench";
const print = (line: string) => process.stdout.write(`${line}\n`);
const pause = (milliseconds: number) => new Promise((done) => setTimeout(done, milliseconds));

const othersOf = ({ statuses }: Load) =>
  [...statuses]
    .filter(([status]) => status !== 200)
    .map(([status, count]) => `${count} × ${status}`)
    .join(", ");

/** Prints a load as a row, with its ratio to what the predictor alone does. */
function report(name: string, load: Load, alone?: Load) {
  const [p50, p95, p99] = [0.5, 0.95, 0.99].map((part) => quantile(load, part).toFixed(1));
  const ratio = alone ? `${(load.perSecond / alone.perSecond).toFixed(2)}×` : "";
  const over = alone ? (quantile(load, 0.5) - quantile(alone, 0.5)).toFixed(1) : "";
  const figures = [p50, p95, p99, load.perSecond.toFixed(1), ratio, over, othersOf(load)];
  print(`| ${name} | ${figures.join(" | ")} |`);
}

/** What an answer of each load took of the processors, by process. */
const spent = new Map<string, ProcessorTime>();

async function profiled(name: string, concurrency: number, send: () => Promise<number>) {
  const before = processorTime();
  const load = await atOnce(concurrency, SECONDS, send);
  spent.set(name, spentSince(before, load.times.length));
  return load;
}

/** The predictor in this process, one image a run and as many as wait. */
async function measureAlone({ model, weights, call }: ServingWorld, image: Buffer) {
  const [node] = (await call("GET", "/admin/nodes")) as { capabilities: Capabilities }[];
  // The node's own, or the two would not look alike.
  const device = node?.capabilities.device.kind ?? "cpu";
  const settings = { cpuThreads: cpus().length, device };
  const loads = new Map<number, Load>();
  for (const batchMax of [1, undefined]) {
    const predictor = await openPredictor(model, weights, {
      ...settings,
      ...(batchMax !== undefined && { batchMax }),
    });
    await predictor.warm();
    const within = { width: model.image_size, height: model.image_size };
    const send = async () => {
      const still = await readStillAt(image, (own) => placementOf(own, within).laid);
      await predictor.predict(still.image, { of: still.of, confidence: 0.25 });
      return 200;
    };
    await atOnce(1, 1, send);
    for (const concurrency of CONCURRENCIES) {
      const name = batchMax === 1 ? "predictor alone, one by one" : "predictor alone";
      const load = await profiled(`${name}, ${concurrency} at once`, concurrency, send);
      report(`${name}, ${concurrency} at once`, load);
      if (batchMax !== 1) loads.set(concurrency, load);
    }
    await predictor.dispose();
  }
  return loads;
}

/** A shadow at a share of 1: below its bound it changes no answer, above it is let go. */
async function measureShadow(
  { other, call }: ServingWorld,
  send: () => Promise<number>,
  rate: number,
) {
  const [off, on] = [[] as number[], [] as number[]];
  for (let round = 0; round < ROUNDS; round++) {
    for (const [times, shadow] of [
      [off, null],
      [on, { model_id: other.model_id, share: 1 }],
    ] as const) {
      await call("PATCH", `/endpoints/${SLUG}`, { shadow });
      await pause(NODE_LIST_MS);
      times.push(quantile(await atRate(rate, SECONDS, send), 0.5));
    }
  }
  const middle = (times: number[]) =>
    times.toSorted((a, b) => a - b)[times.length >> 1] ?? Number.NaN;
  const said = [off, on].map((times) => `${middle(times).toFixed(1)} ms`);
  const ratio = (middle(on) / middle(off)).toFixed(2);
  print(`shadow at ${Math.round(100 * SHADOWED_LOAD)} % load: p50 ${said.join(" → ")}, ${ratio}×`);
  const shadowsOf = async () => {
    const status = (await call("GET", `/endpoints/${SLUG}/status`)) as EndpointStatus;
    return status.windows["1h"].shadows;
  };
  print(`  ${JSON.stringify(await shadowsOf())}`);
  await atOnce(CONCURRENCIES.at(-1) ?? 1, SECONDS, send);
  print(`  and under full load after it: ${JSON.stringify(await shadowsOf())}`);
  await call("PATCH", `/endpoints/${SLUG}`, { shadow: null });
}

/** Minutes of steady load: memory, and whether each request is in the endpoint's status. */
async function soak({ call }: ServingWorld, send: () => Promise<number>, rate: number) {
  const before = (await call("GET", `/endpoints/${SLUG}/status`)) as EndpointStatus;
  const empty = mkdtempSync(join(tmpdir(), "vantage-bench-logs-"));
  /** Requests by status; 0 are those that no connection took. */
  const statuses: Record<string, number> = {};
  let sent = 0;
  for (let minute = 1; minute <= SOAK_MINUTES; minute++) {
    const load = await atRate(rate, SAMPLE_SECONDS, send);
    for (const [status, count] of load.statuses) {
      sent += count;
      statuses[status] = (statuses[status] ?? 0) + count;
    }
    const { memory } = sampleOf(process.pid, empty, { minute, frames: sent });
    const [p50, p99] = [0.5, 0.99].map((part) => quantile(load, part).toFixed(1));
    print(JSON.stringify({ minute, statuses, p50, p99, memory }));
  }
  rmSync(empty, { recursive: true });
  await pause(NODE_LIST_MS);
  const after = (await call("GET", `/endpoints/${SLUG}/status`)) as EndpointStatus;
  const counted = after.windows["24h"].requests - before.windows["24h"].requests;
  print(`soak: ${sent} requests sent, ${counted} in the endpoint's status`);
}

print(`${cpus().length} × ${cpus()[0]?.model.trim()}, Node ${process.version}`);
const image = await photograph(1_280, 720, { quality: 92 });
for (const size of values.sizes.split(",").map(Number)) {
  const world = await startServing(values.variant as ModelSource["variant"], size);
  try {
    const kilobytes = Math.round(image.length / 1024);
    print(`\n${values.variant} at ${size} px, a JPEG of ${kilobytes} KB`);
    print(
      "| what | p50 ms | p95 | p99 | a second | of the predictor's | p50 over it, ms | others |",
    );
    print("|---|---|---|---|---|---|---|---|");
    const alone = await measureAlone(world, image);
    const active = async () => (await world.predict(image)).status;
    await atOnce(8, 1, active);
    for (const concurrency of CONCURRENCIES) {
      const name = `direct line, ${concurrency} at once`;
      report(name, await profiled(name, concurrency, active), alone.get(concurrency));
    }
    const { model_id } = world.model;
    await world.call("POST", "/endpoints", { slug: SLUG, models: [{ model_id }] });
    const named = async () => (await world.predict(image, SLUG)).status;
    const capacity = (await atOnce(8, SECONDS, named)).perSecond;
    const flood = await atRate(OVERLOAD * capacity, SECONDS, active);
    report(`${OVERLOAD} × ${capacity.toFixed(0)} a second`, flood);
    print(`the slowest answer of any status under it: ${(flood.slowest / 1_000).toFixed(2)} s\n`);
    await measureShadow(world, named, SHADOWED_LOAD * capacity);
    if (SOAK_MINUTES > 0) await soak(world, named, SOAKED_LOAD * capacity);
    for (const concurrency of CONCURRENCIES.slice(0, 2)) {
      await world.hideLine();
      await pause(NODE_LIST_MS);
      const load = await atOnce(concurrency, SECONDS, active);
      report(`queue, ${concurrency} at once`, load, alone.get(concurrency));
    }
    printSpent(spent, print);
    spent.clear();
  } finally {
    await world.stop();
  }
}
process.exit(0);
