// The group `masks`, by hand because it trains: one part of a real video is labeled with masks by
// the embedded segmenter, a model is trained on them, and finds masks on frames of another part,
// whose own labels it is held against. What is served and what the exported file says are judged by
// pycocotools.

import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { API } from "../../edge/vision/base/api.ts";
import { loadEngine } from "../../native/load.ts";
import { MaskedPrediction } from "../../shared/tasks/predict-task.ts";
import { ModelExport } from "../../shared/wire/exports.ts";
import { AnnotationPage, JobProgress } from "../../shared/wire/labeling.ts";
import { TrainingRun } from "../../shared/wire/training.ts";
import { Video } from "../../shared/wire/vision.ts";
import { TOOLS } from "../support/clips.ts";
import { realData } from "../support/images.ts";
import { type Person, register } from "../support/vision.ts";
import { type Group, type GroupContext, runScript } from "./group.ts";
import type { Outcome } from "./known.ts";
import { startNode, startServices } from "./services.ts";

const VIDEO = "video/bottle-detection.mp4";
const PROMPT = "bottle";
/** Seconds of the video that are learned from, and that are looked at; nothing is in both. */
const PARTS = { learned: [0, 24], other: [28, 39] } as const;
const FRAMES_PER_SECOND = 3;
/** Pixels a side that the model is trained at. */
const SIDE = 256;
const EPOCHS = 60;
const POLL_MS = 500;
/** All that are told: average precision wants the unsure ones as well. */
const CONFIDENCE = 0.001;

/** What the script judges. */
interface Story {
  /** The exported file of ONNX, end to end. */
  model: string;
  size: [height: number, width: number];
  frames: {
    path: string;
    width: number;
    height: number;
    /** Rings, x and y in turn, and boxes of the other part's own labels. */
    truths: { polygon: number[]; bbox: number[] }[];
    served: { score: number; bbox: number[]; rle: { size: number[]; counts: number[] } | null }[];
  }[];
}

export const masks: Group = {
  async run(context) {
    const missing = whatIsMissing();
    if (missing) return [{ case: "masks", outcome: "skipped", detail: missing }];
    const services = await startServices();
    const admin = await register(services.urls.vision);
    const node = startNode(services, admin);
    try {
      await node.ready;
      return await tell({ url: services.urls.vision, admin, context }, services.folder);
    } finally {
      await node.stop();
      await services.stop();
    }
  },
};

function whatIsMissing(): string | null {
  if (!TOOLS) return "no ffmpeg here";
  if (!realData(VIDEO)) return `no ${VIDEO} beside the checkout`;
  const engine = loadEngine();
  return "missing" in engine ? engine.missing : null;
}

/** Somebody who asks the service. */
interface Teller {
  url: string;
  admin: Person;
  context: GroupContext;
}

/** The JSON of a good answer. Tokens are renewed as they end. */
async function asked(
  { admin }: Teller,
  method: string,
  path: string,
  body?: unknown,
): Promise<Record<string, unknown>> {
  let reply = await admin.ask(method, path, body);
  if (reply.status === 401) {
    await admin.renew();
    reply = await admin.ask(method, path, body);
  }
  if (reply.status >= 300) throw new Error(`${method} ${path}: ${JSON.stringify(reply.body)}`);
  return reply.body;
}

/** Asks until an answer is the last, as long as the run has. */
async function until<Answer>(
  { context }: Teller,
  ask: () => Promise<Answer>,
  isEnded: (answer: Answer) => boolean,
): Promise<Answer> {
  for (;;) {
    const answer = await ask();
    if (isEnded(answer)) return answer;
    if (context.msLeft() < 0) throw new Error(`no time is left: ${JSON.stringify(answer)}`);
    await new Promise((next) => setTimeout(next, POLL_MS));
  }
}

async function tell(teller: Teller, folder: string): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  const { project_id: projectId } = await asked(teller, "POST", "/projects", { name: "masks" });
  const labeled = async (part: keyof typeof PARTS) => {
    const video = await upload(teller, String(projectId), cut(part, folder));
    return { video, ...(await label(teller, String(projectId), video)) };
  };
  const learned = await labeled("learned");
  const other = await labeled("other");
  const counts = [learned, other].map(({ items }) => items.filter(({ polygon }) => polygon).length);
  outcomes.push({
    case: "masks/labels",
    outcome: counts.every((count) => count > 20) ? "passed" : "failed",
    detail: `${counts.join(" and ")} masks of the two parts`,
  });
  const run = await train(teller, learned.jobId);
  outcomes.push({
    case: "masks/training",
    outcome: run.status === "completed" ? "passed" : "failed",
    detail: `${run.failure ?? ""} ${JSON.stringify(run.best_metrics)}`.trim(),
  });
  if (!run.model_id) return outcomes;
  const story: Story = {
    model: join(folder, "model.onnx"),
    size: [SIDE, SIDE],
    frames: [],
  };
  const frames = Map.groupBy(other.items, ({ frame_id: id }) => id);
  for (const [id, annotations] of frames) {
    const index = Number(id.split(".").at(-1));
    const path = join(folder, `${index}.jpg`);
    const { bytes, objects } = await predict(teller, {
      modelId: run.model_id,
      address: `/videos/${other.video.video_id}/frames/${index}.jpg`,
    });
    writeFileSync(path, bytes);
    story.frames.push({
      path,
      width: other.video.width ?? 0,
      height: other.video.height ?? 0,
      truths: annotations.map(({ polygon, bbox }) => ({ polygon: polygon ?? [], bbox })),
      served: objects.map(({ confidence, bbox, mask }) => ({
        score: confidence,
        bbox,
        rle: mask && "rle" in mask ? mask.rle : null,
      })),
    });
  }
  writeFileSync(story.model, await exported(teller, run.model_id));
  const list = join(folder, "story.json");
  writeFileSync(list, JSON.stringify(story));
  return [
    ...outcomes,
    ...(await runScript(teller.context, {
      script: "masks/judge_masks.py",
      case: "masks/pycocotools",
      args: [list, resolve(import.meta.dirname, "../../runners/python")],
    })),
  ];
}

/** A part of the video as a file of its own. */
function cut(part: keyof typeof PARTS, folder: string): string {
  const [from, to] = PARTS[part].map(String) as [string, string];
  const path = join(folder, `${part}.mp4`);
  const args = ["-v", "error", "-nostdin", "-y", "-ss", from, "-to", to];
  const source = realData(VIDEO) ?? "";
  const ffmpeg = TOOLS?.ffmpeg ?? "ffmpeg";
  execFileSync(ffmpeg, [...args, "-i", source, "-an", "-c:v", "libx264", "-crf", "18", path]);
  return path;
}

async function upload(teller: Teller, projectId: string, path: string): Promise<Video> {
  const form = new FormData();
  form.append("project_id", projectId);
  form.append("file", new Blob([new Uint8Array(readFileSync(path))]), basename(path));
  const { video_id: id } = await asked(teller, "POST", "/upload", form);
  return until(
    teller,
    async () => Video.parse(await asked(teller, "GET", `/videos/${id}`)),
    ({ status }) => status !== "probing",
  );
}

async function label(teller: Teller, projectId: string, { video_id: id }: Video) {
  const wish = { prompts: [PROMPT], threshold: 0.5, fps: FRAMES_PER_SECOND };
  const body = { project_id: projectId, video_ids: [id], ...wish };
  const { job_id: jobId } = await asked(teller, "POST", "/label", body);
  const ended = await until(
    teller,
    async () => JobProgress.parse(await asked(teller, "GET", `/status/${jobId}`)),
    ({ status }) => status !== "queued" && status !== "running",
  );
  if (ended.status !== "completed") throw new Error(`the labeling is ${ended.status}`);
  const path = `/jobs/${jobId}/annotations?limit=1000`;
  const { items } = AnnotationPage.parse(await asked(teller, "GET", path));
  return { jobId: String(jobId), items };
}

async function train(teller: Teller, jobId: string): Promise<TrainingRun> {
  const settings = { variant: "det26n", task: "segmentation", epochs: EPOCHS, image_size: SIDE };
  const body = { job_id: jobId, name: "masks", ...settings };
  const { run_id: id } = await asked(teller, "POST", "/train", body);
  return until(
    teller,
    async () => TrainingRun.parse(await asked(teller, "GET", `/train/${id}`)),
    ({ status }) => status !== "queued" && status !== "running",
  );
}

/** The bytes of a frame, and what a model finds on them. */
async function predict(
  teller: Teller,
  { modelId, address }: { modelId: string; address: string },
): Promise<{ bytes: Uint8Array<ArrayBuffer>; objects: MaskedPrediction[] }> {
  const token = { Authorization: `Bearer ${teller.admin.tokens.access_token}` };
  const image = await fetch(`${teller.url}${API}${address}`, { headers: token });
  if (!image.ok) throw new Error(`${address}: ${image.status}`);
  const bytes = new Uint8Array(await image.arrayBuffer());
  const form = new FormData();
  form.append("file", new Blob([bytes]), "frame.jpg");
  const query = `confidence=${CONFIDENCE}&mask=rle&model_id=${modelId}`;
  const reply = await asked(teller, "POST", `/predict/image?${query}`, form);
  return { bytes, objects: MaskedPrediction.array().parse(reply) };
}

/** The model as a file of ONNX, its masks' parts included. */
async function exported(teller: Teller, modelId: string): Promise<Uint8Array> {
  const { export_id: id } = await asked(teller, "POST", `/models/${modelId}/export`, {
    format: "onnx",
  });
  const made = await until(
    teller,
    async () => ModelExport.parse(await asked(teller, "GET", `/models/${modelId}/exports/${id}`)),
    ({ status }) => status === "completed" || status === "failed",
  );
  if (!made.download_url) throw new Error(`the export is ${made.status}: ${made.failure}`);
  return await (await fetch(made.download_url)).bytes();
}
