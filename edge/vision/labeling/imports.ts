// Annotations made elsewhere, as a finished job: COCO JSON or YOLO label texts.

import { z } from "@hono/zod-openapi";
import { sql } from "drizzle-orm";
import { Failure } from "../../../shared/errors.ts";
import { name } from "../../http/app.ts";
import type { Parts } from "../auth/parts.ts";
import { type Caller, workspacesOf } from "../auth/scope.ts";
import { insertJob } from "./jobs.ts";
import { type AnnotationInsert, insertAnnotations } from "./settle.ts";

const IMPORT_LABELS_MAX = 200_000;

const Coco = z.object({
  images: z.array(z.looseObject({ id: z.number(), file_name: z.string() })),
  categories: z.array(z.looseObject({ id: z.number(), name: name().max(200) })),
  annotations: z
    .array(
      z.looseObject({
        image_id: z.number(),
        category_id: z.number(),
        bbox: z.tuple([z.number(), z.number(), z.number(), z.number()]),
      }),
    )
    .max(IMPORT_LABELS_MAX),
});
const Yolo = z.object({
  names: z.array(name().max(200)).min(1).max(10_000),
  labels: z
    .record(z.string(), z.string().max(1_000_000))
    .meta({ description: "label file texts by image file name, without folders or extensions" }),
});
/** What is imported: one of the two forms. */
export const Import = z.object({
  project_id: z.uuid(),
  name: name().max(200).default("Import"),
  coco: Coco.optional(),
  yolo: Yolo.optional(),
});
type ImportBody = z.output<typeof Import>;

interface ProjectVideo extends Record<string, unknown> {
  id: string;
  workspace_id: string;
  filename: string;
  source: string;
  frame_count: number;
  width: number;
  height: number;
}

/** One label before its frame is known; the box may be a share of the frame. */
interface Label {
  file: string;
  class: string;
  /** x1, y1, x2, y2. */
  box: [number, number, number, number];
  normalised: boolean;
}

const ROWS_PER_STATEMENT = 5_000;

/** The name of a file without folders and extension. */
const stem = (file: string) => file.replace(/^.*\//, "").replace(/\.[^.]+$/, "");

/** Stores the labels as a job; those whose image the project lacks are named. */
export async function importJob(
  parts: Parts,
  caller: Caller,
  body: ImportBody,
  authorize: (workspaceId: string) => void,
): Promise<{ jobId: string; annotations: number; unmatched: string[] }> {
  const { database } = parts;
  if ((body.coco === undefined) === (body.yolo === undefined)) {
    throw new Failure("invalid_request", "coco or yolo: one of them is required");
  }
  const { rows: projects } = await database.execute<{ workspace_id: string }>(sql`
    SELECT workspace_id FROM project WHERE id = ${body.project_id}::uuid`);
  const workspaceId = projects[0]?.workspace_id;
  if (!workspaceId || !workspacesOf(caller).includes(workspaceId)) {
    throw new Failure("not_found", "no such project in your workspaces");
  }
  authorize(workspaceId);
  const { files, labels, classes } = body.coco ? fromCoco(body.coco) : fromYolo(body.yolo);
  const { rows: videos } = await database.execute<ProjectVideo>(sql`
    SELECT id, workspace_id, filename, source, frame_count, width, height FROM video
     WHERE project_id = ${body.project_id}::uuid AND state = 'ready' ORDER BY created_at, id`);
  const places = new Map(files.map((file) => [file, placeOf(file, videos)]));
  const unmatched = files.filter((file) => !places.get(file));
  const frames = Map.groupBy(
    [...places.values()].flatMap((place) => place ?? []),
    ({ video }) => video.id,
  );
  if (frames.size === 0) {
    throw new Failure("not_found", "the project has none of the images", {
      data: { unmatched: unmatched.slice(0, 100) },
    });
  }
  const jobId = await insertJob(database, {
    ...{ workspaceId, projectId: body.project_id, name: body.name, description: "" },
    ...{ kind: "import", threshold: 0, resolution: null, fps: null, createdBy: caller.accountId },
    settings: { segmenter: null },
    videos: [...frames].map(([videoId, own]) => ({
      videoId,
      frames: [...new Set(own.map(({ frame }) => frame))].toSorted((left, right) => left - right),
    })),
    classes: classes.map((name) => ({ name, prompt: null })),
  });
  const rows = labels.flatMap((label) => {
    const place = places.get(label.file);
    return place ? [annotationRow(label, place)] : [];
  });
  const kept = rows.filter(({ bbox: [x1 = 0, y1 = 0, x2 = 0, y2 = 0] }) => x2 > x1 && y2 > y1);
  for (let from = 0; from < kept.length; from += ROWS_PER_STATEMENT) {
    const some = kept.slice(from, from + ROWS_PER_STATEMENT);
    await database.execute(
      insertAnnotations({ id: jobId, workspaceId }, sql`FROM`, some, "import"),
    );
  }
  return { jobId, annotations: kept.length, unmatched };
}

interface Labels {
  files: string[];
  labels: Label[];
  classes: string[];
}

function fromCoco(coco: NonNullable<ImportBody["coco"]>): Labels {
  const files = new Map(coco.images.map(({ id, file_name }) => [id, stem(file_name)]));
  const names = new Map(coco.categories.map(({ id, name }) => [id, name]));
  const labels = coco.annotations.map(({ image_id, category_id, bbox: [x, y, width, height] }) => {
    const file = files.get(image_id);
    const className = names.get(category_id);
    if (file === undefined || className === undefined) {
      const what = file === undefined ? `image_id ${image_id}` : `category_id ${category_id}`;
      throw new Failure("invalid_request", `coco.annotations: ${what} is not listed`);
    }
    const box: Label["box"] = [x, y, x + width, y + height];
    return { file, class: className, box, normalised: false };
  });
  const classes = [...new Set(coco.categories.map(({ name }) => name))];
  return { files: [...new Set(files.values())], labels, classes };
}

function fromYolo(yolo: ImportBody["yolo"]): Labels {
  const { names, labels: texts } = yolo ?? { names: [], labels: {} };
  const labels = Object.entries(texts).flatMap(([file, text]) =>
    text
      .split("\n")
      .filter((line) => line.trim() !== "")
      .map((line, index): Label => {
        const [number, cx, cy, width, height] = line.trim().split(/\s+/).map(Number);
        const className = names[number ?? -1];
        const numbers = [cx, cy, width, height];
        if (className === undefined || numbers.some((one) => !Number.isFinite(one))) {
          const where = `${file}, line ${index + 1}`;
          throw new Failure("invalid_request", `yolo.labels: ${where}: must be class cx cy w h`);
        }
        const [x = 0, y = 0, w = 0, h = 0] = numbers as number[];
        const box: Label["box"] = [x - w / 2, y - h / 2, x + w / 2, y + h / 2];
        return { file: stem(file), class: className, box, normalised: true };
      }),
  );
  const files = [...new Set(Object.keys(texts).map(stem))];
  return { files, labels, classes: [...new Set(names)] };
}

interface FramePlace {
  video: ProjectVideo;
  frame: number;
}

/** The frame that a file name stands for. */
function placeOf(file: string, videos: readonly ProjectVideo[]): FramePlace | null {
  const still = videos.find(({ filename, frame_count: count }) => {
    return count === 1 && stem(filename) === file;
  });
  if (still) return { video: still, frame: 0 };
  const [, of, digits] = /^(.+)_(\d{6,})$/.exec(file) ?? [];
  const frame = Number(digits);
  const video = videos.find(
    ({ filename, frame_count: count }) => stem(filename) === of && frame < count,
  );
  return video ? { video, frame } : null;
}

function annotationRow(label: Label, { video, frame }: FramePlace): AnnotationInsert {
  const [width, height] = label.normalised ? [video.width, video.height] : [1, 1];
  const [x1, y1, x2, y2] = label.box;
  const inside = (value: number, most: number) => Math.min(Math.max(value, 0), most);
  return {
    id: crypto.randomUUID(),
    ...{ video: video.id, frame, class: label.class },
    bbox: [
      inside(x1 * width, video.width),
      inside(y1 * height, video.height),
      inside(x2 * width, video.width),
      inside(y2 * height, video.height),
    ],
    ...{ confidence: null, track: null, duplicate: null, polygon: null },
  };
}
