// Dataset archives of a real export by a real node, beside what the API says is in them.

import { writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import sharp from "sharp";
import { type GpuNode, startGpuNode } from "../../edge/local/gpu-node.ts";
import { AnnotationPage, DatasetExport, exportStem, Job } from "../../shared/labeling.ts";
import { Video, VideoBatch } from "../../shared/vision.ts";
import { type Person, register } from "../support/vision.ts";
import type { Services } from "./services.ts";

interface ExpectedImage {
  /** In the archive, without its folder. */
  file: string;
  width: number;
  height: number;
  boxes: { class: string; bbox: number[]; polygon: number[] | null }[];
}

/** What the Python readers are told. */
export interface Datasets {
  coco: string;
  yolo: string;
  /** In the order of their indices. */
  classes: string[];
  images: ExpectedImage[];
}

/** The node's program with the tests' quick segmenter: exports need none. */
const NODE_ENTRY = resolve(import.meta.dirname, "../support/node-main.ts");
const READY_MS_MAX = 120_000;
const POLL_MS = 100;

const CLASSES = ["person", "traffic light", 'sign "A"'];
/** File names, sizes, and the labels of each as YOLO has them; the last is background. */
const IMAGES: readonly { file: string; size: [width: number, height: number]; labels: string }[] = [
  { file: "one.png", size: [320, 240], labels: "0 0.5 0.5 0.25 0.5\n1 0.1 0.2 0.1 0.1" },
  { file: "Straße 2.png", size: [241, 319], labels: "2 0.3 0.7 0.33333 0.21" },
  { file: "three.v2.png", size: [64, 64], labels: "0 0.1 0.1 0.9 0.1 0.9 0.8 0.4 0.9" },
  { file: "four.png", size: [500, 100], labels: "1 0.02 0.5 0.04 1\n1 0.98 0.5 0.04 1" },
  { file: "five.png", size: [333, 333], labels: "0 0.25 0.25 0.2 0.2\n2 0.75 0.75 0.4 0.4" },
  { file: "six.png", size: [128, 96], labels: "" },
];

/** Uploads, imports, exports in both layouts; the archives lie in the run's folder. */
export async function writeDatasets(services: Services): Promise<Datasets> {
  const admin = await register(services.urls.vision);
  const node = startNode(services, admin);
  try {
    await node.ready;
    const { projectId, videos } = await upload(admin);
    const yolo = {
      names: CLASSES,
      labels: Object.fromEntries(
        IMAGES.map(({ file, labels }) => [file.replace(/\.png$/, ""), labels]),
      ),
    };
    const imported = await asked(admin, "POST", "/import", { project_id: projectId, yolo });
    const { job_id: jobId } = Job.parse(imported.job);
    const archive = async (format: "coco" | "yolo") => {
      const options = { format, val_share: 0.34, seed: 3 };
      const made = DatasetExport.parse(
        await asked(admin, "POST", `/jobs/${jobId}/export`, options),
      );
      if (made.state !== "completed") throw new Error(`the export is ${made.state}`);
      const path = join(services.folder, `${format}.zip`);
      writeFileSync(path, await (await fetch(made.download_url)).bytes());
      return path;
    };
    return {
      coco: await archive("coco"),
      yolo: await archive("yolo"),
      classes: CLASSES,
      images: await expectedImages(admin, { jobId, videos }),
    };
  } finally {
    await node.stop();
  }
}

function startNode({ urls, folder }: Services, admin: Person): GpuNode {
  return startGpuNode({
    url: urls.vision,
    dir: join(folder, "node"),
    modelsDir: join(folder, "models"),
    environment: process.env,
    entry: NODE_ENTRY,
    onLine: () => {},
    code: async () => String((await asked(admin, "POST", "/admin/nodes/codes")).code),
  });
}

/** The JSON of a good answer. */
async function asked(person: Person, method: string, path: string, body?: unknown) {
  const reply = await person.ask(method, path, body);
  if (reply.status >= 300) throw new Error(`${method} ${path}: ${JSON.stringify(reply.body)}`);
  return reply.body;
}

async function upload(admin: Person) {
  const project = await asked(admin, "POST", "/projects", { name: "peers" });
  const projectId = String(project.project_id);
  const form = new FormData();
  form.append("project_id", projectId);
  for (const [index, { file, size }] of IMAGES.entries()) {
    const [width, height] = size;
    const background = { r: 40 * index, g: 90, b: 200 - 30 * index };
    const png = await sharp({ create: { width, height, channels: 3, background } })
      .png()
      .toBuffer();
    form.append("files", new Blob([new Uint8Array(png)]), file);
  }
  const batch = VideoBatch.parse(await asked(admin, "POST", "/upload/images", form));
  const videos = await Promise.all(batch.videos.map(({ video_id: id }) => readyVideo(admin, id)));
  return { projectId, videos };
}

async function readyVideo(admin: Person, id: string): Promise<Video> {
  for (const deadline = performance.now() + READY_MS_MAX; ; ) {
    const video = Video.parse(await asked(admin, "GET", `/videos/${id}`));
    if (video.state === "ready") return video;
    if (performance.now() > deadline || video.state === "failed")
      throw new Error(`${video.filename} is ${video.state}: ${video.failure}`);
    await new Promise((next) => setTimeout(next, POLL_MS));
  }
}

/** What the API says of each image. */
async function expectedImages(
  admin: Person,
  { jobId, videos }: { jobId: string; videos: readonly Video[] },
): Promise<ExpectedImage[]> {
  const listed = await asked(admin, "GET", `/jobs/${jobId}/annotations?limit=1000`);
  const { items } = AnnotationPage.parse(listed);
  return videos.map((video) => ({
    file: `${exportStem(video.filename)}_000000.jpg`,
    width: video.width ?? 0,
    height: video.height ?? 0,
    boxes: items
      .filter(({ frame_id: frame }) => frame.startsWith(`${video.video_id}.`))
      .map((one) => ({ class: one.class, bbox: one.bbox, polygon: one.polygon })),
  }));
}
