// Dataset archives of a real export by a real node, beside what the API says is in them.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { sql } from "drizzle-orm";
import sharp from "sharp";
import { EXPORT_FORMATS } from "../../shared/tasks/tasks.ts";
import { AnnotationPage, DatasetExport, exportStem, Job } from "../../shared/wire/labeling.ts";
import { Video, VideoBatch } from "../../shared/wire/vision.ts";
import { type Person, register } from "../support/vision.ts";
import { seeded } from "../support/weights.ts";
import { compareModels, type ModelComparison } from "./formats-comparison.ts";
import { QUICK_NODE, type Services, startNode } from "./services.ts";

interface ExpectedImage {
  /** In the archive, without its folder. */
  file: string;
  width: number;
  height: number;
  boxes: { class: string; bbox: number[]; polygon: number[] | null }[];
}

/** What the Python readers are told. */
export interface Datasets {
  /** The archive of each format. */
  archives: Record<string, string>;
  /** COCO's masks of many kinds as they were imported, and the archive that they left in. */
  masks: { document: typeof MASKS; archive: string };
  /** A job's boxes with their confidence, and what its comparison with the dataset says. */
  compared: ComparisonSample;
  /** Two models compared on reviewed images. */
  models: ModelComparison;
  /** In the order of their indices. */
  classes: string[];
  images: ExpectedImage[];
}

interface ComparisonSample {
  detections: { file: string; class: string; bbox: number[]; confidence: number }[];
  answer: Record<string, unknown>;
}

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

const SQUARE = [4, 3, 30.5, 3, 30.5, 40.25, 4, 40.25];
const MASKS = {
  images: IMAGES.map(({ file, size: [width, height] }, id) => ({
    id,
    file_name: file,
    width,
    height,
  })),
  categories: [{ id: 1, name: "thing" }],
  // One an image, by which it is found again.
  annotations: [
    // Apart, and within the hull of another.
    [SQUARE, [200, 30, 260, 30, 230, 90.75], [3, 60, 40, 200, 9, 230]],
    // Overlapping, and one wholly within another.
    [SQUARE, [20, 20, 60, 20, 60, 60, 20, 60], [10, 10, 15, 10, 12, 16]],
    // With a hole, and a pixel that touches by a corner; as numbers, and packed by pycocotools.
    {
      size: [64, 64],
      counts: [650, 4, 60, 4, 60, 1, 2, 1, 60, 4, 60, 4, 64, 1, 3_121],
    },
    {
      size: [100, 500],
      counts: "en14P300MQM1o2OQM1o2OQM1o2200000000Ul6MjTo09kniN00000000000000000",
    },
  ].map((segmentation, image_id) => ({ id: image_id + 1, image_id, category_id: 1, segmentation })),
};

/** A project with the images, and what the Python readers are told of it. */
interface WrittenDatasets {
  admin: Person;
  projectId: string;
  datasets: Datasets;
}

/** Uploads, imports, exports in every layout; the archives lie in the run's folder. */
export async function writeDatasets(services: Services): Promise<WrittenDatasets> {
  const admin = await register(services.urls.vision);
  const node = startNode(services, admin, { entry: QUICK_NODE });
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
    const archives: Datasets["archives"] = {};
    const options = { val_share: 0.34, seed: 3 };
    for (const format of EXPORT_FORMATS) {
      archives[format] = await archive(services, admin, jobId, { ...options, format });
    }
    const masks = await asked(admin, "POST", "/import", { project_id: projectId, coco: MASKS });
    const kept = { format: "coco", val_share: 0 };
    const datasets = {
      archives,
      masks: {
        document: MASKS,
        archive: await archive(services, admin, Job.parse(masks.job).job_id, kept),
      },
      compared: await comparison(services, admin, { projectId, truthId: jobId, videos }),
      models: await compareModels(services, admin, {
        ask: asked,
        ready: (id) => readyVideo(admin, id),
      }),
      classes: CLASSES,
      images: await expectedImages(admin, { jobId, videos }),
    };
    return { admin, projectId, datasets };
  } finally {
    await node.stop();
  }
}

let archiveCount = 0;
/** Exports a job; the archive lies in the run's folder. */
async function archive(services: Services, admin: Person, jobId: string, options: object) {
  const made = DatasetExport.parse(await asked(admin, "POST", `/jobs/${jobId}/export`, options));
  if (made.status !== "completed") throw new Error(`the export is ${made.status}`);
  archiveCount += 1;
  const path = join(services.folder, `${made.format}-${archiveCount}.zip`);
  writeFileSync(path, await (await fetch(made.download_url)).bytes());
  return path;
}

/** What a model might have found: boxes near the truth's, none twice as sure as another. */
async function comparison(
  services: Services,
  admin: Person,
  { projectId, truthId, videos }: { projectId: string; truthId: string; videos: readonly Video[] },
): Promise<ComparisonSample> {
  const random = seeded(6);
  const near = (line: string) => {
    const [number = "0", ...box] = line.split(" ");
    const name = random() < 0.8 ? number : String((Number(number) + 1) % CLASSES.length);
    const moved = box.slice(0, 4).map((value) => Number(value) * (0.9 + 0.2 * random()));
    return [name, ...moved.map((value) => value.toFixed(4))].join(" ");
  };
  const labels = IMAGES.map(({ file, labels: lines }) => {
    const boxes = lines.split("\n").filter((line) => line.split(" ").length === 5);
    const found = [...boxes, ...boxes, ...boxes].map(near);
    return [file.replace(/\.png$/, ""), [...found, "0 0.5 0.5 0.3 0.3"].join("\n")];
  });
  const yolo = { names: CLASSES, labels: Object.fromEntries(labels) };
  const imported = await asked(admin, "POST", "/import", { project_id: projectId, yolo });
  const { job_id: jobId } = Job.parse(imported.job);
  await services.visionDatabase.execute(sql`
    UPDATE annotation a SET source = 'model', confidence = n / 100.0 FROM (
      SELECT id, row_number() OVER (ORDER BY x1, y1, x2, y2) AS n FROM annotation
       WHERE job_id = ${jobId}::uuid) r WHERE r.id = a.id`);
  await asked(admin, "PATCH", `/jobs/${jobId}`, { threshold: 0.1 });
  const all = await asked(admin, "GET", `/jobs/${jobId}/annotations?limit=1000&min_confidence=0`);
  return {
    detections: AnnotationPage.parse(all).items.map((one) => ({
      file: archiveName(videos, one.frame_id),
      class: one.class,
      bbox: one.bbox,
      confidence: one.confidence ?? 1,
    })),
    answer: await asked(admin, "GET", `/jobs/${jobId}/compare?truth_job_id=${truthId}`),
  };
}

/** What exports call the still that a frame is. */
function archiveName(videos: readonly Video[], frameId: string): string {
  const video = videos.find(({ video_id: id }) => frameId.startsWith(`${id}.`));
  return `${exportStem(video?.filename ?? "")}_000000.png`;
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
    if (video.status === "ready") return video;
    if (performance.now() > deadline || video.status === "failed")
      throw new Error(`${video.filename} is ${video.status}: ${video.failure}`);
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
    file: `${exportStem(video.filename)}_000000.png`,
    width: video.width ?? 0,
    height: video.height ?? 0,
    boxes: items
      .filter(({ frame_id: frame }) => frame.startsWith(`${video.video_id}.`))
      .map((one) => ({ class: one.class, bbox: one.bbox, polygon: one.polygon })),
  }));
}
