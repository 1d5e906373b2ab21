// `node test/bench/soak.ts --minutes 30`: the stack with one node while everything goes on at once.
// A long labeling job, uploads, exports, previews, predictions, reads, backfills, a listener and
// hostile values, each in a loop of its own. Printed: how long each waited, whether memory stays
// flat, and what the logs grow by. VANTAGE_MODELS names the models' folder.

import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { followBackfill, operatorOf } from "../../edge/local/operator.ts";
import { API } from "../../edge/vision/base/api.ts";
import { DAY, isoDay, MINUTE, systemClock } from "../../shared/time.ts";
import type { JobProgress } from "../../shared/wire/labeling.ts";
import type { ProgressEvent } from "../../shared/wire/progress.ts";
import { rectangles } from "../support/clips.ts";
import { describeApi } from "../support/common-routes.ts";
import { BODIES, BY_BODY, filled } from "../support/everything.ts";
import { driveHostile, type HostileOptions, replyOf } from "../support/hostile.ts";
import { form } from "../support/media.ts";
import { collectHeaps, collectProcess } from "./soak-heaps.ts";
import { printReport, processesOf, type Sample, sampleOf } from "./soak-samples.ts";
import {
  activateModel,
  labelLong,
  signUpBoth,
  startSoak,
  videoForm,
  whenEnded,
} from "./soak-world.ts";

const { values } = parseArgs({
  options: { minutes: { type: "string", default: "30" }, clip: { type: "string" } },
});
const minutes = Number(values.minutes);
const SAMPLE_MS = 30_000;
const HEAPS_MS = 5 * MINUTE;
/** What is under way at the end of the run may take so long yet. */
const ENDING_MS = 40_000;
/** Between two hostile requests. */
const HOSTILE_MS = 20;
/** What gives the node work of its own, ends the caller's session, or speaks as a node. */
const SKIPPED =
  /^POST \S+\/(label|label\/[\w-]+|predict\/\w+|train|export|resume|duplicate|auth\/\w+)$|\/node\/|healthz/;

const say = (line: string) => process.stdout.write(`${line}\n`);
const pause = (ms: number) => new Promise<void>((done) => setTimeout(done, ms));

const soaked = await startSoak();
const { state, urls } = soaked;

// Every answer there is, of whichever client.
const faults = new Map<string, number>();
const count = (what: string) => faults.set(what, (faults.get(what) ?? 0) + 1);
const send = globalThis.fetch;
globalThis.fetch = async (input, init) => {
  const answer = await send(input, init);
  if (answer.status >= 500) {
    const { code = "" } = (await answer
      .clone()
      .json()
      .catch(() => ({}))) as { code?: string };
    const path = new URL(answer.url).pathname.replace(/[\da-f-]{36}/g, "ID").slice(0, 80);
    count(`${answer.status} ${code} ${init?.method ?? "GET"} ${path}`);
  }
  return answer;
};

const { admin, own, guest, others } = await signUpBoth(soaked);
await activateModel(soaked, admin, own.workspace_id ?? "");
const run = { minutes, clip: values.clip, say };
const long = await labelLong(admin, own.project_id, run);
say(`A job over ${long.frames} frames; pid ${soaked.pid}, ${state.dir}`);

const started = systemClock();
const until = started + minutes * MINUTE;
const isOver = () => systemClock() > until;
const waits = new Map<string, number[]>();
function wait(name: string, ms: number) {
  const known = waits.get(name);
  if (known) known.push(ms);
  else waits.set(name, [ms]);
}
async function timed<T>(name: string, work: () => Promise<T>): Promise<T> {
  const since = performance.now();
  const value = await work();
  wait(name, performance.now() - since);
  return value;
}

const unended = new Set<string>();
/** Does a thing again and again; what it throws is told and counted. */
async function loop(name: string, pauseMs: number, work: (round: number) => Promise<unknown>) {
  unended.add(name);
  for (let round = 0; !isOver(); round++) {
    await work(round).catch((thrown: Error) => {
      if (!isOver()) count(`${name}: ${thrown.message.slice(0, 200)}`);
    });
    await pause(Math.min(pauseMs, Math.max(0, until - systemClock())));
  }
  unended.delete(name);
}

const FORMATS = ["yolo", "coco"];
async function upload() {
  const sent = videoForm(own.project_id, rectangles(), "small.mp4");
  await timed("upload until ready", async () => {
    const { video_id } = await timed("upload", () => admin.post<typeof own>("/upload", sent));
    await whenEnded(admin, `/videos/${video_id}`);
  });
}

async function exported(round: number) {
  const frame_id = `${own.video_id}.${round % 20}`;
  // Else it is the dataset that was exported before.
  const drawn = { job_id: own.job_id, frame_id, class: "person", bbox: [1, 1, 20, 9 + round / 99] };
  await timed("draw a box", () => admin.post("/annotations", drawn));
  await timed("export until downloaded", async () => {
    const body = { format: FORMATS[round % 2] };
    const made = await admin.post<{ export_id: string }>(`/jobs/${own.job_id}/export`, body);
    const path = `/exports/${made.export_id}`;
    const { download_url } = await whenEnded<{ status: string; download_url: string }>(admin, path);
    const answer = await fetch(download_url);
    if (!answer.ok) throw new Error(`the dataset's address answered ${answer.status}`);
    await answer.arrayBuffer();
  });
}

async function preview(round: number) {
  const frame_ids = [`${long.videoId}.${(round * 37) % long.frames}`];
  await timed("label preview", () =>
    admin.post("/label/preview", { frame_ids, prompts: ["person"] }),
  );
}

const still = await admin.bytes(`${API}/videos/${own.video_id}/frames/0.jpg`);
async function predict() {
  const body = form({ content: new Uint8Array(still), filename: "frame.jpg" });
  await timed("predict image", () => admin.post("/predict/image", body));
}

const READS = ["series", "vintages", "revisions", "symbols", "changes"] as const;
async function read(round: number) {
  const start = isoDay(systemClock() - (1 + (round % 30)) * DAY);
  const name = READS[round % READS.length] ?? "series";
  const series = `library=power.demand&symbol=${round % 2 ? "erco" : "pjm"}`;
  const queries = {
    series: `${series}&start=${start}`,
    vintages: series,
    revisions: `${series}&start=${start}`,
    symbols: "library=power.demand",
    changes: `library=power.demand&since=${start}`,
  };
  const path = `/${name}?${queries[name]}`;
  const answer = await timed(`read ${name}`, async () => {
    const response = await fetch(urls.markets + path);
    await response.arrayBuffer();
    return response;
  });
  if (answer.status !== 200)
    count(`${answer.status} GET ${path.replace(/\d{4}-\d\d-\d\d/, "DAY")}`);
}

async function backfill(round: number) {
  const operator = operatorOf(state);
  const day = (back: number) => isoDay(started - (60 + (round % 60) * 10 + back) * DAY);
  const range = { job: "realtime_prices", first: day(9), last: day(0) };
  const { runs } = await timed("backfill of 10 days", async () =>
    followBackfill(operator, await operator.startBackfill(range), () => {}),
  );
  const failed = Object.entries(runs).filter(([one]) => /failed|late|canceled/.test(one));
  for (const [one, times] of failed) if (times > 0) count(`backfill: a run is ${one}`);
}

/** Listens from one end of the socket to the next. */
async function listen() {
  const path = `/jobs/${long.jobId}/ticket`;
  const { url } = await admin.post<{ url: string }>(path, {});
  const socket = admin.socket(url);
  let last = performance.now();
  const closed = new Promise<void>((done) => socket.addEventListener("close", () => done()));
  socket.addEventListener("message", ({ data }) => {
    const { type } = JSON.parse(String(data)) as ProgressEvent;
    wait(`between two events`, performance.now() - last);
    last = performance.now();
    if (type === "end") count("the long job ended");
  });
  await Promise.race([closed, pause(until - systemClock())]);
  if (!isOver()) count("the listener's socket ended");
  socket.close();
}

const asked: HostileOptions["ask"] = async ({ method, path, body, headers, route }) => {
  await pause(HOSTILE_MS);
  if (isOver()) throw new Error("over");
  const service = path.startsWith(API)
    ? "vision"
    : route.includes(" /api/")
      ? "console"
      : "markets";
  const token =
    service === "vision" ? guest.token : readFileSync(state.operatorToken, "utf8").trim();
  const credential = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
  const raw = body instanceof FormData || typeof body === "string";
  const payload = body === undefined ? {} : { body: raw ? (body as string) : JSON.stringify(body) };
  const type = body instanceof FormData ? { Authorization: credential.Authorization } : credential;
  const request = { method, headers: { ...type, ...headers }, ...payload };
  return timed(`hostile, ${service}`, async () =>
    replyOf(await fetch(urls[service] + path, request)),
  );
};
async function hostile() {
  for (const service of ["markets", "console", "vision"] as const) {
    await driveHostile({
      document: await describeApi(urls[service]),
      skipped: SKIPPED,
      fill: (path, given = {}) => {
        const named = path.replace(/\{(\w+)\}/g, (whole, name: string) => given[name] ?? whole);
        const id = crypto.randomUUID();
        return (filled(named, others) ?? named.replace(/\{\w+\}/g, id)).replace(/\?.*/, "");
      },
      bodyOf: (route, sample) =>
        (BODIES[route.replace(API, "")] ?? BY_BODY[route.replace(API, "")])?.(others) ?? sample,
      ask: asked,
    });
  }
}

const samples: Sample[] = [];
async function sample() {
  const status = await admin.get<JobProgress>(`/status/${long.jobId}`);
  const taken = sampleOf(soaked.pid, state.logs, {
    minute: (systemClock() - started) / MINUTE,
    frames: status.frames_done,
  });
  samples.push(taken);
  say(JSON.stringify(taken));
}

/** What is alive in workerd and in the node's children, and what they hold after a collection. */
async function heaps() {
  const live = await collectHeaps(soaked.inspector);
  const { memory } = sampleOf(soaked.pid, state.logs, { minute: 0, frames: 0 });
  const minute = ((systemClock() - started) / MINUTE).toFixed(1);
  const own = Object.entries(live).filter(([name]) => name.startsWith("core:user"));
  const all = Object.values(live).reduce((sum, megabytes) => sum + megabytes, 0);
  say(
    `Minute ${minute}, collected: workerd holds ${memory.workerd} MB, ${all.toFixed(1)} of them live ` +
      `objects: ${own.map(([name, megabytes]) => `${name.slice(10)} ${megabytes}`).join(", ")}`,
  );
  for (const child of processesOf(soaked.pid, "node's children")) {
    const collected = await collectProcess(child);
    say(`Minute ${minute}, collected: child ${child} ${JSON.stringify(collected)}`);
  }
}

const ended = Promise.all([
  loop("upload", 5_000, upload),
  loop("export", 5_000, exported),
  loop("preview", 30_000, preview),
  loop("predict", 3_000, predict),
  loop("read", 500, read),
  loop("backfill", 5_000, backfill),
  loop("listen", 100, listen),
  loop("hostile", 10_000, hostile),
  loop("sample", SAMPLE_MS, sample),
  loop("heaps", HEAPS_MS, heaps),
]);
await Promise.race([ended, pause(minutes * MINUTE + ENDING_MS)]);
for (const name of unended) count(`${name}: not ended ${ENDING_MS / 1_000} s after the run`);
await sample();

printReport({ say, minutes, waits, samples });
say(`Answers of 5xx and errors: ${faults.size === 0 ? "none" : ""}`);
for (const [what, times] of [...faults].sort()) say(`  ${times} × ${what}`);
say(`The stack ended with ${await soaked.stop()}.`);
process.exit(0);
