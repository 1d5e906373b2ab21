// `npm run demo`: the vision service for real on this machine's CPU, from a clip to a reviewed,
// exported dataset, in the terminal, with images to look at.

import { spawnSync } from "node:child_process";
import * as fs from "node:fs";
import { join, resolve } from "node:path";
import sharp from "sharp";
import { decimal } from "../../shared/scalars.ts";
import { systemClock } from "../../shared/time.ts";
import type {
  Annotation,
  DatasetExport,
  Job,
  JobProgress,
  Stats,
} from "../../shared/wire/labeling.ts";
import type { ProgressEvent } from "../../shared/wire/progress.ts";
import {
  type Frame,
  frameId,
  type Project,
  type TokenPair,
  type Video,
} from "../../shared/wire/vision.ts";
import { type Clip, demoClip } from "./clip.ts";
import { readArguments, runCommand, UsageError, usageOf } from "./command-line.ts";
import { startStack } from "./stack.ts";
import { prepareState, randomSecret, stateAt, stateWithin, writePrivate } from "./state.ts";
import { type VisionApi, visionApi } from "./vision-api.ts";

const USAGE = usageOf("demo");

const say = (line: string) => process.stdout.write(`${line}\n`);
const OVERLAYS_MAX = 6;
const EXEMPLAR_FRAMES_SECONDS = 2;
const READY_MS = 5 * 60_000;

type Options = ReturnType<typeof readOptions>["values"];

function readOptions() {
  const options = readArguments({
    allowPositionals: true,
    options: {
      prompt: { type: "string", default: "person" },
      seconds: { type: "string", default: "8" },
      fps: { type: "string", default: "2" },
      help: { type: "boolean", default: false },
    },
  });
  for (const name of ["seconds", "fps"] as const) {
    const text = options.values[name];
    const isPositive = decimal((number) => number.positive()).safeParse(text).success;
    if (!isPositive)
      throw new UsageError(`--${name} ${JSON.stringify(text)} is no positive number`);
  }
  if (options.positionals.length > 1) throw new UsageError("takes one clip");
  return options;
}

async function main() {
  const { values, positionals } = readOptions();
  if (values.help) {
    say(USAGE);
    return;
  }
  if (spawnSync("ffmpeg", ["-version"]).status !== 0) {
    throw new Error("the demo needs ffmpeg 5.1 or newer: apt-get install ffmpeg");
  }
  const state = stateWithin(stateAt(), "demo");
  prepareState(state);
  const out = join(state.dir, "out");
  fs.mkdirSync(out, { recursive: true });
  const clip = await demoClip(join(state.dir, "clips"), positionals[0], say);
  const stack = await startStack({
    state,
    host: "127.0.0.1",
    ports: { markets: 0, console: 0, vision: 0 },
    sandbox: false,
    gpuNode: true,
    environment: process.env,
    onStep: (step) => say(`Starting ${step} …`),
    onTold: (sentence) => say(`Note: ${sentence}.`),
    onServicesRestarted: () => say("The services' process was restarted."),
  });
  stack.startTicking();
  const stop = () => stack.stop().then(() => process.exit(130));
  process.once("SIGINT", stop).once("SIGTERM", stop);
  try {
    await tour(await account(stack.urls.vision, join(state.dir, "demo-account.json")), {
      clip,
      out,
      values,
    });
  } finally {
    await stack.stop();
  }
}

/** The demo's account: the first of its own installation, and so its administrator. */
async function account(url: string, file: string): Promise<VisionApi> {
  const anybody = visionApi(url);
  if (!fs.existsSync(file)) {
    const fresh = { email: "demo@example.com", password: randomSecret() };
    await anybody.post<TokenPair>("/auth/register", { ...fresh, display_name: "Demo" });
    writePrivate(file, JSON.stringify(fresh));
    say(`Registered ${fresh.email}.`);
  }
  const known = JSON.parse(fs.readFileSync(file, "utf8")) as object;
  const { access_token: token } = await anybody.post<TokenPair>("/auth/login", known);
  return visionApi(url, token);
}

async function tour(
  api: VisionApi,
  { clip, out, values }: { clip: Clip; out: string; values: Options },
) {
  say(`\nClip: ${clip.path}\n      ${clip.origin}`);
  const project = await api.post<Project>("/projects", { name: "Demo" });
  const video = await upload(api, project.project_id, clip);
  say(
    `Video: ${video.frame_count} frames, ${video.width}×${video.height}, ` +
      `${video.fps?.toFixed(2)} frames/s, ${video.duration_seconds?.toFixed(1)} s`,
  );
  const seconds = Math.min(Number(values.seconds), video.duration_seconds ?? Infinity);
  const stretch = { project_id: project.project_id, video_ids: [video.video_id], from_seconds: 0 };

  say(`\nLabeling ${seconds} s by text: ${values.prompt}`);
  const byText = await api.post<{ job_id: string; warnings: string[] }>("/label", {
    ...stretch,
    to_seconds: seconds,
    fps: Number(values.fps),
    prompts: [values.prompt],
    threshold: 0.35,
    name: `Demo: ${values.prompt}`,
  });
  for (const warning of byText.warnings) say(`  ${warning}`);
  const text = await follow(api, byText.job_id);
  const found = await annotationsOf(api, byText.job_id);
  say(`  ${found.length} annotations shown, ${text.stored_annotations} stored`);

  const best = found.toSorted((one, two) => (two.confidence ?? 0) - (one.confidence ?? 0))[0];
  const known = clip.example && { frame_id: frameId(video.video_id, 0), bbox: clip.example };
  const example = best ?? known;
  const jobs = [byText.job_id];
  if (example) jobs.push(await exemplar(api, example, stretch, Number(values.fps)));
  else say("  Nothing was found to take as an example; the second way of labeling is left out.");
  await review(api, byText.job_id, found, video);
  await dataset(api, byText.job_id, out);
  const images: string[] = [];
  for (const job of jobs) images.push(...(await overlays(api, job, out)));
  say(`\nImages with what was found:${images.map((path) => `\n  ${path}`).join("") || " none"}`);
}

async function upload(api: VisionApi, projectId: string, clip: Clip): Promise<Video> {
  const started = systemClock();
  const form = new FormData();
  form.append("project_id", projectId);
  const file = await fs.openAsBlob(resolve(clip.path));
  form.append("file", file, clip.path.split("/").at(-1));
  const { video_id: id, bytes } = await api.post<Video>("/upload", form);
  const ms = Math.max(systemClock() - started, 1);
  say(`Uploaded ${(bytes / 1e6).toFixed(1)} MB in ${ms} ms; probing every frame …`);
  for (const until = systemClock() + READY_MS; ; ) {
    const video = await api.get<Video>(`/videos/${id}`);
    if (video.status === "ready") return video;
    if (video.status === "failed") throw new Error(`the clip is not usable: ${video.failure}`);
    if (systemClock() > until) throw new Error("no GPU node probed the clip; see logs/");
    await pause(200);
  }
}

const pause = (ms: number) => new Promise<void>((done) => setTimeout(done, ms));

/** Follows a job over its WebSocket and shows its progress on one line. */
async function follow(api: VisionApi, jobId: string): Promise<JobProgress> {
  const started = systemClock();
  const { url } = await api.post<{ url: string }>(`/jobs/${jobId}/ticket`, {});
  const socket = api.socket(url);
  await new Promise<void>((done, fail) => {
    socket.onerror = () => fail(new Error("the progress socket failed"));
    socket.onclose = () => done();
    socket.onmessage = ({ data }) => {
      const event = JSON.parse(String(data)) as ProgressEvent;
      if (event.type === "end") {
        // The socket's own end may come seconds later.
        socket.close();
        done();
      }
      if (event.type === "batch" || event.type === "snapshot") showProgress(event.data);
    };
  });
  if (process.stdout.isTTY) process.stdout.write("\n");
  const status = await api.get<JobProgress>(`/status/${jobId}`);
  const took = (systemClock() - started) / 1_000;
  if (status.status !== "completed") throw new Error(`the job ${status.status}: ${status.failure}`);
  const each = took / Math.max(status.frames_total, 1);
  say(`  ${status.frames_total} frames in ${took.toFixed(1)} s (${each.toFixed(2)} s a frame)`);
  return status;
}

function showProgress(data: Partial<JobProgress>) {
  const {
    frames_done: done,
    frames_total: total,
    eta_seconds: eta,
    stored_annotations: annotations,
  } = data;
  if (done === undefined || !total) return;
  const filled = Math.round((30 * done) / total);
  const bar = "█".repeat(filled) + "░".repeat(30 - filled);
  const left = eta === null || eta === undefined ? "" : `, ${eta} s left`;
  const line = `  ${bar} ${done}/${total} frames, ${annotations} annotations${left}`;
  if (process.stdout.isTTY) process.stdout.write(`\r${line}\x1b[K`);
  else say(line);
}

const annotationsOf = async (api: VisionApi, jobId: string) =>
  (await api.get<{ items: Annotation[] }>(`/jobs/${jobId}/annotations?limit=1000`)).items;

/** Labels by an example; returns the job. */
async function exemplar(
  api: VisionApi,
  example: Pick<Annotation, "frame_id" | "bbox">,
  stretch: object,
  fps: number,
): Promise<string> {
  const [x1, y1, x2, y2] = example.bbox.map(Math.round);
  say(`\nLabeling ${EXEMPLAR_FRAMES_SECONDS} s by example: the box ${x1},${y1} – ${x2},${y2}`);
  const { job_id: id } = await api.post<{ job_id: string }>("/label/exemplar", {
    ...stretch,
    to_seconds: EXEMPLAR_FRAMES_SECONDS,
    fps,
    class: "like the example",
    threshold: 0.35,
    exemplars: [{ frame_id: example.frame_id, bbox: example.bbox }],
  });
  await follow(api, id);
  say(`  ${(await annotationsOf(api, id)).length} annotations shown`);
  return id;
}

/** What a reviewer does: judge by confidence, correct a box, draw one, take an edit back. */
async function review(api: VisionApi, jobId: string, found: readonly Annotation[], video: Video) {
  say("\nReviewing");
  const judge = (accepted: boolean, filter: object) =>
    api.post<{ changed: number; change_id: string | null }>(`/jobs/${jobId}/annotations/review`, {
      accepted,
      filter,
    });
  const sure = await judge(true, { min_confidence: 0.5 });
  const unsure = await judge(false, { max_confidence: 0.4 });
  say(`  accepted ${sure.changed} of at least 0.5, rejected ${unsure.changed} up to 0.4`);
  if (unsure.change_id) {
    const undone = await api.post<{ restored: number }>(`/changes/${unsure.change_id}/undo`, {});
    say(`  took the rejection back: ${undone.restored} restored`);
  }
  const [first] = found;
  if (first) {
    const [x1, y1, x2, y2] = first.bbox;
    const bbox = [x1, y1, x2, Math.min(y2 + 2, video.height ?? y2 + 2)];
    const edited = await api.patch<Annotation>(`/annotations/${first.annotation_id}`, { bbox });
    say(`  corrected a box (revision ${edited.revision})`);
  }
  const drawn = { job_id: jobId, frame_id: frameId(video.video_id, 0), class: "corner" };
  await api.post("/annotations", { ...drawn, bbox: [0, 0, 40, 40] });
  await api.delete(`/jobs/${jobId}/classes/corner`);
  say("  drew a box of a class of its own, and removed that class");
  const stats = await api.get<Stats>(`/jobs/${jobId}/stats`);
  for (const one of stats.per_class) {
    const precision = one.precision === null ? "not known" : one.precision.toFixed(2);
    say(`  ${one.class}: ${one.count} annotations, precision by reviews ${precision}`);
  }
}

async function dataset(api: VisionApi, jobId: string, out: string) {
  say("\nExporting as YOLO");
  let made = await api.post<DatasetExport>(`/jobs/${jobId}/export`, {});
  while (made.status === "queued") {
    await pause(500);
    made = await api.get<DatasetExport>(`/exports/${made.export_id}`);
  }
  if (made.status === "failed") throw new Error(`the export failed: ${made.failure}`);
  const path = join(out, "dataset.zip");
  const answer = await fetch(made.download_url);
  if (!answer.ok) throw new Error(`the dataset's address answered ${answer.status}`);
  fs.writeFileSync(path, new Uint8Array(await answer.arrayBuffer()));
  say(`  ${path}: ${((made.bytes ?? 0) / 1e6).toFixed(1)} MB, ${JSON.stringify(made.summary)}`);
}

/** Some labeled frames with their annotations drawn on them. */
async function overlays(api: VisionApi, jobId: string, out: string): Promise<string[]> {
  const job = await api.get<Job>(`/jobs/${jobId}`);
  const byFrame = Map.groupBy(await annotationsOf(api, jobId), ({ frame_id: id }) => id);
  const frames = [...byFrame].slice(0, OVERLAYS_MAX);
  const paths: string[] = [];
  for (const [id, annotations] of frames) {
    const [video, index] = id.split(".");
    const page = await api.get<{ items: Frame[] }>(
      `/videos/${video}/frames?offset=${index}&limit=1`,
    );
    const image = await api.bytes(page.items[0]?.image_url ?? "");
    const { width = 0, height = 0 } = await sharp(image).metadata();
    const path = join(out, `${job.kind}_${String(index).padStart(6, "0")}.jpg`);
    const svg = Buffer.from(drawing(annotations, width, height));
    await sharp(image)
      .composite([{ input: svg }])
      .jpeg({ quality: 90 })
      .toFile(path);
    paths.push(path);
  }
  return paths;
}

function drawing(annotations: readonly Annotation[], width: number, height: number): string {
  const shapes = annotations.map(({ bbox: [x1, y1, x2, y2], polygon, confidence, ...one }) => {
    const points = (polygon ?? []).join(" ");
    const label = `${one.class} ${confidence?.toFixed(2) ?? ""}`.replace(/[<&]/g, "");
    return (
      `<polygon points="${points}" fill="#2dd4bf55"/>` +
      `<rect x="${x1}" y="${y1}" width="${x2 - x1}" height="${y2 - y1}" fill="none" ` +
      `stroke="#f97316" stroke-width="2"/><text x="${x1 + 2}" y="${Math.max(12, y1 - 4)}" ` +
      `font-size="13" font-family="sans-serif" fill="#fff" stroke="#000" stroke-width=".4">` +
      `${label}</text>`
    );
  });
  const size = `width="${width}" height="${height}"`;
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size}>${shapes.join("")}</svg>`;
}

await runCommand("npm run demo", main);
