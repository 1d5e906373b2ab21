// Annotations made elsewhere, as a finished job: labels out of a JSON body, or out of an archive.

import { z } from "@hono/zod-openapi";
import { type SQL, sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import type { Bbox } from "../../../../shared/tasks/tasks.ts";
import type { Database } from "../../../http/database.ts";
import { name } from "../../../http/texts.ts";
import { allow, type Caller, workspacesOf } from "../../auth/scope.ts";
import type { Parts } from "../../base/parts.ts";
import { insertAnnotations, type NewAnnotation } from "../jobs/annotation-rows.ts";
import { insideFrame, polygonInside } from "../jobs/boxes.ts";
import { insertJob } from "../jobs/jobs.ts";
import { sideOfPath } from "./archive-sides.ts";
import { Coco, cocoLabels } from "./coco-labels.ts";
import {
  type FoundFrame,
  frameFinder,
  isFrame,
  type ProjectVideo,
  type VideoFrame,
} from "./image-names.ts";
import { type FrameSide, insertSides } from "./imported-sides.ts";
import { counted, IMPORT_LABELS_MAX, type Label, type Labels } from "./labels.ts";
import type { Side } from "./split.ts";
import { Yolo, yoloLabels } from "./yolo-labels.ts";

/** Into which project, and what the job is called. */
export const ImportTarget = z.object({
  project_id: z.uuid(),
  name: name().max(200).default("Import"),
});

/** A request to import: its labels in one of the two forms. */
export const Import = z.strictObject({
  ...ImportTarget.shape,
  coco: Coco.optional(),
  yolo: Yolo.optional(),
});

/** What came of an import, before its job is read back. */
export interface ImportSummary {
  jobId: string;
  annotations: number;
  /** Files of which the project has no image. */
  unmatched: string[];
  unmatchedAnnotations: number;
  leftOut: number;
  /** Frames whose side of the split is kept, by side. */
  sides: Record<Side, number>;
  notes: string[];
}

/** The labels of a JSON body. Fails with `invalid_request` unless it has them in one form. */
export function bodyLabels({ coco, yolo }: z.output<typeof Import>): Labels {
  if (coco && !yolo) return cocoLabels(coco);
  if (yolo && !coco) {
    const classes = { names: yolo.names, keyPointNumbers: 0 };
    const texts = Object.entries(yolo.labels).map(([file, text]) => ({ file, text, classes }));
    return yoloLabels(texts);
  }
  throw new Failure("invalid_request", "coco or yolo: one of them is required");
}

const ROWS_PER_STATEMENT = 5_000;
const NAMED_MAX = 5;

/** An import: where it goes, and how its labels are read. */
export interface ImportRequest {
  target: z.output<typeof ImportTarget>;
  /** Reads the labels, once it is known who asks; `isKnown` says whether there is an image. */
  read: (isKnown: (image: string) => boolean) => Promise<Labels> | Labels;
}

/**
 * Stores labels as a finished job; images that the project lacks are named. Fails with
 * `invalid_request` where a name stands for several images, with `not_found` where the project has
 * none of them or is not the caller's, and with `forbidden` for whoever is no engineer.
 */
export async function importJob(
  { database }: Parts,
  caller: Caller,
  { target, read }: ImportRequest,
): Promise<ImportSummary> {
  const workspaceId = await workspaceOf(database, caller, target.project_id);
  const find = frameFinder(await readyVideos(database, target.project_id));
  const labels = await read((image) => find(image) !== null);
  const matched = matchLabels(labels, find);
  return storeLabels(database, matched, {
    workspaceId,
    projectId: target.project_id,
    name: target.name,
    createdBy: caller.accountId,
  });
}

/** Labels with the frames that their images stand for. */
interface MatchedLabels {
  labels: Labels;
  frames: ReadonlyMap<string, VideoFrame>;
  /** Images that stand for no frame. */
  unmatched: string[];
}

/**
 * Finds the frames of labels. Fails with `invalid_request` where a name stands for several images
 * or there are too many labels, and with `not_found` where there is none of the images.
 */
export function matchLabels(
  labels: Labels,
  find: (image: string, frameId?: string) => FoundFrame,
): MatchedLabels {
  const { images, frameIds } = labels;
  if (labels.labels.length > IMPORT_LABELS_MAX) {
    throw new Failure("invalid_request", `labels: over ${IMPORT_LABELS_MAX} in one import`);
  }
  const frames = framesOf(
    new Map(images.map((image) => [image, find(image, frameIds.get(image))])),
  );
  const unmatched = images.filter((image) => !frames.has(image));
  if (frames.size === 0) {
    const remedy = "upload them first, or import an archive that holds them with images=true";
    throw new Failure("not_found", `the project has none of the images: ${remedy}`, {
      data: { unmatched: unmatched.slice(0, 100) },
    });
  }
  return { labels, frames, unmatched };
}

/** The job that labels become. */
interface ImportedJob {
  /** Its id; a new one when omitted. */
  id?: string;
  workspaceId: string;
  projectId: string;
  name: string;
  createdBy: string;
  /** Statements of the job's own transaction, after its rows. */
  after?: (summary: ImportSummary) => SQL[];
}

/** Stores labels as a finished job; `invalid_request` where an image has another shape. */
export async function storeLabels(
  database: Database,
  { labels: { labels, classes, leftOut, notes, sides }, frames, unmatched }: MatchedLabels,
  { id = crypto.randomUUID(), workspaceId, projectId, name, createdBy, after }: ImportedJob,
): Promise<ImportSummary> {
  const framesByVideo = Map.groupBy(frames.values(), ({ video }) => video.id);
  const matched = labels.flatMap((label) => {
    const frame = frames.get(label.image);
    return frame ? [{ label, frame }] : [];
  });
  checkShapes(matched);
  const rows = matched.flatMap(({ label, frame }) => annotationRow(label, frame) ?? []);
  const outside = matched.length - rows.length;
  const named = [...frames].flatMap(([image, { video, frame }]): FrameSide[] => {
    const side = sides ? sides.get(image) : sideOfPath(image);
    return side ? [{ video: video.id, frame, side }] : [];
  });
  const [first] = named;
  // One side alone is no split, and would leave nothing to learn from.
  const isSplit = named.some(({ side }) => side !== first?.side);
  const kept = isSplit ? named : [];
  const summary: ImportSummary = {
    jobId: id,
    annotations: rows.length,
    unmatched,
    unmatchedAnnotations: labels.length - matched.length,
    leftOut: leftOut + outside,
    sides: countSides(kept),
    notes: [
      ...notes,
      ...(outside > 0
        ? [`${counted(outside, "label")} without an area in the frame left out`]
        : []),
      ...(first && !isSplit && first.side !== "train"
        ? [`all sides are ${first.side}, which is no split: set sides in a dataset`]
        : []),
    ],
  };
  await insertJob(database, {
    id,
    workspaceId,
    projectId,
    name,
    kind: "import",
    threshold: 0,
    resolution: null,
    fps: null,
    createdBy,
    settings: { segmenter: null, warnings: [] },
    videos: [...framesByVideo].map(([videoId, own]) => ({
      videoId,
      frames: [...new Set(own.map(({ frame }) => frame))].toSorted((left, right) => left - right),
    })),
    classes: classes.map((one) => ({ name: one, prompt: null })),
    annotations: () => [
      ...insertsOf(rows, { id, workspaceId }),
      ...insertSides(id, kept),
      ...(after?.(summary) ?? []),
    ],
  });
  return summary;
}

function countSides(kept: readonly FrameSide[]): Record<Side, number> {
  const counts = { train: 0, val: 0, test: 0 };
  for (const { side } of kept) counts[side] += 1;
  return counts;
}

/**
 * The frames that names stand for. Of several names of one frame the surest stands for it, and the
 * others for none. Fails where a name stands for several frames, or names are as sure of one.
 */
function framesOf(found: ReadonlyMap<string, FoundFrame>): Map<string, VideoFrame> {
  const byFrame = new Map<string, { image: string; sureness: number; frame: VideoFrame }[]>();
  const problems: string[] = [];
  for (const [image, frame] of found) {
    if (!frame) continue;
    if (!isFrame(frame)) {
      if (problems.length <= NAMED_MAX) problems.push(`${image} may be ${listed(frame.among)}`);
      continue;
    }
    const key = `${frame.video.id}.${frame.frame}`;
    const one = { image, sureness: frame.sureness, frame };
    const same = byFrame.get(key);
    if (same) same.push(one);
    else byFrame.set(key, [one]);
  }
  const frames = new Map<string, VideoFrame>();
  for (const named of byFrame.values()) {
    const best = named.reduce((max, { sureness }) => Math.max(max, sureness), 0);
    const surest = named.filter(({ sureness }) => sureness === best);
    const [first] = surest;
    if (!first) continue;
    if (surest.length === 1) frames.set(first.image, first.frame);
    else problems.push(`${listed(surest.map(({ image }) => image))} are one image of the project`);
  }
  if (problems.length === 0) return frames;
  const more = problems.length > NAMED_MAX ? "; …" : "";
  const detail = `which image is meant: ${problems.slice(0, NAMED_MAX).join("; ")}${more}`;
  throw new Failure("invalid_request", detail);
}

/** Names in a sentence: all of them, or the first ones. */
const listed = (names: readonly string[]): string =>
  names.length > NAMED_MAX
    ? `${names.slice(0, NAMED_MAX).join(", ")}, …`
    : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;

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

/** The videos of a project whose frames were counted, oldest first. */
export async function readyVideos(database: Database, projectId: string): Promise<ProjectVideo[]> {
  const { rows } = await database.execute<ProjectVideo>(sql`
    SELECT id, filename, frame_count, width, height FROM video
     WHERE project_id = ${projectId}::uuid AND state = 'ready' ORDER BY created_at, id`);
  return rows;
}

/** The statements that store these annotations with their job, some thousand rows each. */
function insertsOf(rows: NewAnnotation[], job: { id: string; workspaceId: string }): SQL[] {
  return Array.from({ length: Math.ceil(rows.length / ROWS_PER_STATEMENT) }, (_, page) => {
    const some = rows.slice(page * ROWS_PER_STATEMENT, (page + 1) * ROWS_PER_STATEMENT);
    return insertAnnotations(job, sql`FROM`, some, { source: "import" });
  });
}

/** A label as an annotation of its frame, cut to it; null where nothing of it is inside. */
function annotationRow(label: Label, { video, frame }: VideoFrame): NewAnnotation | null {
  const [width, height] = label.unit
    ? [label.unit.x * video.width, label.unit.y * video.height]
    : [1, 1];
  const scaled = (value: number, index: number) => value * (index % 2 === 0 ? width : height);
  const inside = label.polygon && polygonInside(label.polygon.map(scaled), video);
  const bbox = label.box ? insideFrame(label.box.map(scaled) as Bbox, video) : inside?.bbox;
  if (!bbox) return null;
  return {
    id: crypto.randomUUID(),
    video: video.id,
    frame,
    class: label.class,
    bbox,
    polygon: inside?.polygon ?? null,
    confidence: label.confidence,
    track: label.track ?? null,
    duplicate: null,
  };
}

/** A frame's size, and that which labels say it has, may differ by rounding and no more. */
const SHAPE_SHARE_MAX = 0.02;
const SHAPE_PIXELS_MAX = 2;

/** Fails where labels are of an image of another shape, such as one that was turned. */
function checkShapes(matched: readonly { label: Label; frame: VideoFrame }[]) {
  for (const { label, frame } of matched) {
    const { unit, image } = label;
    if (!unit || (unit.x === 1 && unit.y === 1)) continue;
    const { width, height } = frame.video;
    const [ownWidth, ownHeight] = [Math.round(1 / unit.x), Math.round(1 / unit.y)];
    const asWide = (ownWidth * height) / ownHeight;
    const isTurned = ownWidth === height && ownHeight === width && width !== height;
    const isAlike = Math.abs(asWide - width) <= Math.max(SHAPE_PIXELS_MAX, SHAPE_SHARE_MAX * width);
    if (isAlike && !isTurned) continue;
    const detail =
      `${image}: its labels are of ${ownWidth} × ${ownHeight} pixels, ` +
      `and the image has ${width} × ${height}`;
    throw new Failure("invalid_request", detail);
  }
}
