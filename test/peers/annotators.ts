// The group `annotators`: what LabelMe's and Label Studio's own libraries write comes in as it was
// meant, and Datumaro and motmetrics read the tracks that we write.

import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { sql } from "drizzle-orm";
import sharp from "sharp";
import { DatasetExport, Job } from "../../shared/wire/labeling.ts";
import { Video, VideoBatch } from "../../shared/wire/vision.ts";
import { type Person, register } from "../support/vision.ts";
import { type Group, runScript } from "./group.ts";
import { importOutcome } from "./imported-labels.ts";
import { QUICK_NODE, type Services, startNode, startServices } from "./services.ts";

const READY_MS_MAX = 120_000;
const POLL_MS = 100;
const ARCHIVES = ["labelme", "label-studio", "label-studio-min"] as const;

export const annotators: Group = {
  async run(context) {
    const services = await startServices();
    const admin = await register(services.urls.vision);
    const node = startNode(services, admin, { entry: QUICK_NODE });
    try {
      await node.ready;
      const project = await asked(admin, "POST", "/projects", { name: "annotators" });
      const projectId = String(project.project_id);
      await uploadStill(services, admin, projectId);
      const written = await runScript(context, {
        script: "annotators/write_labels.py",
        case: "annotators/write",
        args: [services.folder],
      });
      const outcomes = [...written];
      const { folder } = services;
      for (const name of ARCHIVES) {
        const archive = { folder, projectId, name, case: `annotators/import/${name}` };
        outcomes.push(await importOutcome(admin, archive));
      }
      const clip = join(services.folder, "clip.mp4");
      const input = ["-v", "error", "-f", "lavfi", "-i", "testsrc2=s=160x120:r=10:d=2"];
      const output = ["-c:v", "libx264", "-pix_fmt", "yuv420p", clip];
      if (spawnSync("ffmpeg", [...input, ...output]).status !== 0) {
        const detail = "no ffmpeg here (apt-get install ffmpeg)";
        return [...outcomes, { case: "annotators/tracks", outcome: "skipped", detail }];
      }
      const tracks = await writeTracks(services, admin, { projectId, clip });
      const read = await runScript(context, {
        script: "annotators/read_tracks.py",
        case: "annotators/tracks",
        args: [tracks],
      });
      return [...outcomes, ...read];
    } finally {
      await node.stop();
      await services.stop();
    }
  },
};

/** The JSON of a good answer. */
async function asked(person: Person, method: string, path: string, body?: unknown) {
  const reply = await person.ask(method, path, body);
  if (reply.status >= 300) throw new Error(`${method} ${path}: ${JSON.stringify(reply.body)}`);
  return reply.body;
}

async function uploadStill({ folder }: Services, admin: Person, projectId: string) {
  const background = { r: 90, g: 40, b: 10 };
  const png = await sharp({ create: { width: 200, height: 100, channels: 3, background } })
    .png()
    .toBuffer();
  writeFileSync(join(folder, "one.png"), png);
  const form = new FormData();
  form.append("project_id", projectId);
  form.append("files", new Blob([new Uint8Array(png)]), "one.png");
  const batch = VideoBatch.parse(await asked(admin, "POST", "/upload/images", form));
  await readyVideo(admin, batch.videos[0]?.video_id ?? "");
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

/** Frame, class, track (0: none) and x, y, width, height. */
const BOXES: readonly [number, string, number, [number, number, number, number]][] = [
  [0, "cat", 7, [10, 20, 30, 20]],
  [2, "cat", 7, [14.5, 20.25, 30, 20]],
  [6, "cat", 7, [22, 20, 30, 20]],
  [2, 'dog "A"', 8, [60, 70, 20, 20]],
  [6, 'dog "A"', 8, [60, 71, 20, 20]],
  [8, "cat", 0, [100, 90, 20, 20]],
];
const CLASSES = ["cat", 'dog "A"'];
const FRAMES = [0, 2, 3, 6, 8];

/** Exports a clip's tracks in both formats; returns the path of what the reader is told. */
async function writeTracks(
  services: Services,
  admin: Person,
  { projectId, clip }: { projectId: string; clip: string },
): Promise<string> {
  const form = new FormData();
  form.append("project_id", projectId);
  form.append("file", new Blob([new Uint8Array(readFileSync(clip))]), "clip.mp4");
  const uploaded = await asked(admin, "POST", "/upload", form);
  const { video_id: videoId, width, height } = await readyVideo(admin, String(uploaded.video_id));
  const coco = {
    images: FRAMES.map((id) => ({ id, file_name: `clip_${String(id).padStart(6, "0")}.jpg` })),
    categories: CLASSES.map((name, id) => ({ id, name })),
    annotations: BOXES.map(([image_id, name, , bbox]) => ({
      image_id,
      category_id: CLASSES.indexOf(name),
      bbox,
    })),
  };
  const imported = await asked(admin, "POST", "/import", { project_id: projectId, coco });
  const { job_id: jobId } = Job.parse(imported.job);
  for (const [frame, , track, [x]] of BOXES) {
    await services.visionDatabase.execute(sql`
      UPDATE annotation SET track_id = nullif(${track}::int, 0) WHERE job_id = ${jobId}::uuid
         AND video_id = ${videoId}::uuid AND frame_index = ${frame}::int AND x1 = ${x}::real`);
  }
  const archives: Record<string, string> = {};
  for (const format of ["cvat-video", "mot"]) {
    const reply = await asked(admin, "POST", `/jobs/${jobId}/export`, { format });
    const made = DatasetExport.parse(reply);
    archives[format] = join(services.folder, `tracks-${format}.zip`);
    writeFileSync(archives[format], await (await fetch(made.download_url)).bytes());
  }
  const path = join(services.folder, "tracks.json");
  const boxes = BOXES.map(([frame, name, track, box]) => ({ frame, class: name, track, box }));
  const told = { archives, classes: CLASSES, frames: FRAMES, size: [height, width], boxes };
  writeFileSync(path, JSON.stringify(told));
  return path;
}
