// Annotations made elsewhere, as a finished job: COCO JSON or YOLO label texts.

import { z } from "@hono/zod-openapi";
import { type SQL, sql } from "drizzle-orm";
import { Failure } from "../../../shared/errors.ts";
import { exportStem, withoutExtension } from "../../../shared/labeling.ts";
import type { Bbox } from "../../../shared/tasks.ts";
import { name } from "../../http/app.ts";
import type { Database } from "../../http/database.ts";
import { allow, type Caller, workspacesOf } from "../auth/scope.ts";
import type { Parts } from "../base/parts.ts";
import { insertAnnotations, type NewAnnotation } from "../labeling/annotation-rows.ts";
import { insideFrame } from "../labeling/boxes.ts";
import { ClassName } from "../labeling/classes.ts";
import { insertJob } from "../labeling/jobs.ts";

/** Labels of one import: they are stored in one go, out of the memory of a Worker. */
const IMPORT_LABELS_MAX = 100_000;
const IMPORT_FILES_MAX = 100_000;
const YOLO_CHARACTERS_MAX = 16 * 1024 * 1024;
const CLASSES_MAX = 10_000;

const Coco = z.object({
  images: z
    .array(
      z.object({
        id: z.number(),
        file_name: z.string(),
        /** The size that boxes are given in; the frame's own when omitted. */
        width: z.number().positive().optional(),
        height: z.number().positive().optional(),
      }),
    )
    .max(IMPORT_FILES_MAX),
  categories: z.array(z.object({ id: z.number(), name: ClassName })).max(CLASSES_MAX),
  annotations: z
    .array(
      z.object({
        image_id: z.number(),
        category_id: z.number(),
        bbox: z.tuple([z.number(), z.number(), z.number(), z.number()]),
      }),
    )
    .max(IMPORT_LABELS_MAX),
});
const Yolo = z.object({
  names: z.array(ClassName).min(1).max(CLASSES_MAX),
  labels: z
    .record(z.string(), z.string().max(1_000_000))
    .refine((labels) => {
      const lengths = Object.values(labels).map(({ length }) => length);
      const whole = lengths.reduce((sum, length) => sum + length, 0);
      return lengths.length <= IMPORT_FILES_MAX && whole <= YOLO_CHARACTERS_MAX;
    }, `at most ${IMPORT_FILES_MAX} files of ${YOLO_CHARACTERS_MAX} characters in all`)
    .meta({ description: "label file texts by image file name, without folders or extensions" }),
});
/** A request to import: its labels in one of the two forms. */
export const Import = z.strictObject({
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

/** One label before its frame is known. */
interface Label {
  file: string;
  class: string;
  /** x1, y1, x2, y2, in units of `unit`. */
  box: Bbox;
  polygon: number[] | null;
  /** The length 1 of `box` and `polygon`, as shares of the frame's sides; null: pixels. */
  unit: { x: number; y: number } | null;
}

const ROWS_PER_STATEMENT = 5_000;

/** The file name of a label or an image, without folders and extension. */
const stem = (file: string) =>
  file.replace(/^.*[\\/]/s, "").replace(/\.(?:txt|jpe?g|png|webp|bmp|tiff?|gif)$/i, "");

/** What came of an import. */
export interface ImportSummary {
  jobId: string;
  annotations: number;
  /** Files of which the project has no image. */
  unmatched: string[];
}

/**
 * Stores labels as a finished job; files whose image the project lacks are named. Fails with
 * `not_found` where it has none of them or is not the caller's, and with `forbidden` for whoever is
 * no engineer.
 */
export async function importJob(
  { database }: Parts,
  caller: Caller,
  body: ImportBody,
): Promise<ImportSummary> {
  if ((body.coco === undefined) === (body.yolo === undefined)) {
    throw new Failure("invalid_request", "coco or yolo: one of them is required");
  }
  const workspaceId = await workspaceOf(database, caller, body.project_id);
  const { files, labels, classes } = body.coco ? fromCoco(body.coco) : fromYolo(body.yolo);
  const find = frameFinder(await readyVideos(database, body.project_id));
  if (labels.length > IMPORT_LABELS_MAX) {
    throw new Failure("invalid_request", `labels: over ${IMPORT_LABELS_MAX} in one import`);
  }
  const frameOf = new Map(files.map((file) => [file, find(file)]));
  const unmatched = files.filter((file) => !frameOf.get(file));
  const framesByVideo = Map.groupBy(
    [...frameOf.values()].flatMap((frame) => frame ?? []),
    ({ video }) => video.id,
  );
  if (framesByVideo.size === 0) {
    throw new Failure("not_found", "the project has none of the images", {
      data: { unmatched: unmatched.slice(0, 100) },
    });
  }
  const rows = labels.flatMap((label) => {
    const frame = frameOf.get(label.file);
    return (frame && annotationRow(label, frame)) ?? [];
  });
  const jobId = await insertJob(database, {
    workspaceId,
    projectId: body.project_id,
    name: body.name,
    description: "",
    kind: "import",
    threshold: 0,
    resolution: null,
    fps: null,
    createdBy: caller.accountId,
    settings: { segmenter: null },
    videos: [...framesByVideo].map(([videoId, own]) => ({
      videoId,
      frames: [...new Set(own.map(({ frame }) => frame))].toSorted((left, right) => left - right),
    })),
    classes: classes.map((name) => ({ name, prompt: null })),
    annotations: (id) => insertsOf(rows, { id, workspaceId }),
  });
  return { jobId, annotations: rows.length, unmatched };
}

/** The workspace of a project in which the caller is an engineer. */
async function workspaceOf(database: Database, caller: Caller, projectId: string): Promise<string> {
  const { rows } = await database.execute<{ workspace_id: string }>(sql`
    SELECT workspace_id FROM project WHERE id = ${projectId}::uuid`);
  const workspaceId = rows[0]?.workspace_id;
  if (!workspaceId || !workspacesOf(caller).includes(workspaceId)) {
    throw new Failure("not_found", "no such project in your workspaces");
  }
  allow(caller, workspaceId, "engineer");
  return workspaceId;
}

async function readyVideos(database: Database, projectId: string): Promise<ProjectVideo[]> {
  const { rows } = await database.execute<ProjectVideo>(sql`
    SELECT id, workspace_id, filename, source, frame_count, width, height FROM video
     WHERE project_id = ${projectId}::uuid AND state = 'ready' ORDER BY created_at, id`);
  return rows;
}

/** The statements that store these annotations with their job, some thousand rows each. */
function insertsOf(rows: NewAnnotation[], job: { id: string; workspaceId: string }): SQL[] {
  return Array.from({ length: Math.ceil(rows.length / ROWS_PER_STATEMENT) }, (_, page) => {
    const some = rows.slice(page * ROWS_PER_STATEMENT, (page + 1) * ROWS_PER_STATEMENT);
    return insertAnnotations(job, sql`FROM`, some, "import");
  });
}

interface Labels {
  files: string[];
  labels: Label[];
  classes: string[];
}

function fromCoco(coco: NonNullable<ImportBody["coco"]>): Labels {
  const images = new Map(coco.images.map((image) => [image.id, image]));
  const names = new Map(coco.categories.map(({ id, name }) => [id, name]));
  const labels = coco.annotations.map(({ image_id, category_id, bbox: [x, y, width, height] }) => {
    const image = images.get(image_id);
    const className = names.get(category_id);
    if (image === undefined || className === undefined) {
      const what = image === undefined ? `image_id ${image_id}` : `category_id ${category_id}`;
      throw new Failure("invalid_request", `coco.annotations: ${what} is not listed`);
    }
    const unit = image.width && image.height ? { x: 1 / image.width, y: 1 / image.height } : null;
    const box: Bbox = [x, y, x + width, y + height];
    return { file: stem(image.file_name), class: className, box, polygon: null, unit };
  });
  const classes = [...new Set(coco.categories.map(({ name }) => name))];
  const files = [...new Set(coco.images.map(({ file_name }) => stem(file_name)))];
  return { files, labels, classes };
}

function fromYolo(yolo: ImportBody["yolo"]): Labels {
  const { names, labels: texts } = yolo ?? { names: [], labels: {} };
  const labels = Object.entries(texts).flatMap(([file, text]) =>
    text
      .split("\n")
      .filter((line) => line.trim() !== "")
      .map((line, index): Label => {
        const [number = -1, ...shares] = line.trim().split(/\s+/).map(Number);
        const className = names[number];
        const shape = shapeOf(shares);
        if (className === undefined || !shape || !shares.every(Number.isFinite)) {
          const where = `${file}, line ${index + 1}`;
          const form = "must be class cx cy w h, or class x1 y1 x2 y2 x3 y3 …";
          throw new Failure("invalid_request", `yolo.labels: ${where}: ${form}`);
        }
        return { file: stem(file), class: className, ...shape, unit: { x: 1, y: 1 } };
      }),
  );
  const files = [...new Set(Object.keys(texts).map(stem))];
  return { files, labels, classes: [...new Set(names)] };
}

/** A line's box, or the ring of its mask with the box around it; null for neither. */
function shapeOf(shares: number[]): Pick<Label, "box" | "polygon"> | null {
  if (shares.length === 4) {
    const [x = 0, y = 0, w = 0, h = 0] = shares;
    return { box: [x - w / 2, y - h / 2, x + w / 2, y + h / 2], polygon: null };
  }
  if (shares.length < 6 || shares.length % 2 === 1) return null;
  const every = (from: 0 | 1) => shares.filter((_, index) => index % 2 === from);
  const min = (all: number[]) => all.reduce((one, other) => Math.min(one, other));
  const max = (all: number[]) => all.reduce((one, other) => Math.max(one, other));
  const [x, y] = [every(0), every(1)];
  return { box: [min(x), min(y), max(x), max(y)], polygon: shares };
}

/** A frame of a video, by its index. */
interface VideoFrame {
  video: ProjectVideo;
  frame: number;
}

/** What finds the frame that a file name stands for: a still's own, or a frame of a video. */
function frameFinder(videos: readonly ProjectVideo[]): (file: string) => VideoFrame | null {
  const byName = new Map<string, ProjectVideo[]>();
  for (const video of videos) {
    // By its own name, and as exports write it.
    for (const known of new Set([withoutExtension(video.filename), exportStem(video.filename)])) {
      const same = byName.get(known);
      if (same) same.push(video);
      else byName.set(known, [video]);
    }
  }
  return (file) => {
    const still = byName.get(file)?.find(({ frame_count: count }) => count === 1);
    if (still) return { video: still, frame: 0 };
    const [, of = "", digits] = /^(.+)_(\d{6,})$/s.exec(file) ?? [];
    const frame = Number(digits);
    const video = byName.get(of)?.find(({ frame_count: count }) => frame < count);
    return video ? { video, frame } : null;
  };
}

function annotationRow(label: Label, { video, frame }: VideoFrame): NewAnnotation | null {
  const [width, height] = label.unit
    ? [label.unit.x * video.width, label.unit.y * video.height]
    : [1, 1];
  const scaled = (value: number, index: number) => value * (index % 2 === 0 ? width : height);
  const bbox = insideFrame(label.box.map(scaled) as Bbox, video);
  if (!bbox) return null;
  const polygon = label.polygon?.map(scaled) ?? null;
  return {
    id: crypto.randomUUID(),
    video: video.id,
    frame,
    class: label.class,
    bbox,
    polygon,
    confidence: null,
    track: null,
    duplicate: null,
  };
}
