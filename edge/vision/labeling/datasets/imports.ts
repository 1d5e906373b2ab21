// Annotations made elsewhere, as a finished job: labels out of a JSON body, or out of an archive.

import { z } from "@hono/zod-openapi";
import { type SQL, sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import type { Bbox } from "../../../../shared/tasks/tasks.ts";
import { exportStem, exportSuffix, withoutExtension } from "../../../../shared/wire/labeling.ts";
import type { Database } from "../../../http/database.ts";
import { name } from "../../../http/texts.ts";
import { allow, type Caller, workspacesOf } from "../../auth/scope.ts";
import type { Parts } from "../../base/parts.ts";
import { insertAnnotations, type NewAnnotation } from "../jobs/annotation-rows.ts";
import { insideFrame } from "../jobs/boxes.ts";
import { insertJob } from "../jobs/jobs.ts";
import { Coco, cocoLabels } from "./coco-labels.ts";
import { counted, IMPORT_LABELS_MAX, type Label, type Labels } from "./labels.ts";
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
  notes: string[];
}

/** The labels of a JSON body. Fails with `invalid_request` unless it has them in one form. */
export function bodyLabels({ coco, yolo }: z.output<typeof Import>): Labels {
  if (coco && !yolo) return cocoLabels(coco);
  if (yolo && !coco) return yoloLabels(yolo.names, Object.entries(yolo.labels));
  throw new Failure("invalid_request", "coco or yolo: one of them is required");
}

interface ProjectVideo extends Record<string, unknown> {
  id: string;
  filename: string;
  frame_count: number;
  width: number;
  height: number;
}

const ROWS_PER_STATEMENT = 5_000;
const NAMED_MAX = 5;

/** An import: where it goes, and how its labels are read. */
export interface ImportRequest {
  target: z.output<typeof ImportTarget>;
  /** Reads the labels, once it is known who asks; `isKnown` says whether there is an image. */
  read: (isKnown: (file: string) => boolean) => Promise<Labels> | Labels;
}

/**
 * Stores labels as a finished job; files whose image the project lacks are named. Fails with
 * `not_found` where it has none of them or is not the caller's, and with `forbidden` for whoever is
 * no engineer.
 */
export async function importJob(
  { database }: Parts,
  caller: Caller,
  { target, read }: ImportRequest,
): Promise<ImportSummary> {
  const workspaceId = await workspaceOf(database, caller, target.project_id);
  const find = frameFinder(await readyVideos(database, target.project_id));
  const { files, labels, classes, leftOut, notes } = await read((file) => find(file) !== null);
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
  const matched = labels.flatMap((label) => {
    const frame = frameOf.get(label.file);
    return frame ? [{ label, frame }] : [];
  });
  const rows = matched.flatMap(({ label, frame }) => annotationRow(label, frame) ?? []);
  const outside = matched.length - rows.length;
  const jobId = await insertJob(database, {
    workspaceId,
    projectId: target.project_id,
    name: target.name,
    kind: "import",
    threshold: 0,
    resolution: null,
    fps: null,
    createdBy: caller.accountId,
    settings: { segmenter: null, warnings: [] },
    videos: [...framesByVideo].map(([videoId, own]) => ({
      videoId,
      frames: [...new Set(own.map(({ frame }) => frame))].toSorted((left, right) => left - right),
    })),
    classes: classes.map((name) => ({ name, prompt: null })),
    annotations: (id) => insertsOf(rows, { id, workspaceId }),
  });
  return {
    jobId,
    annotations: rows.length,
    unmatched,
    unmatchedAnnotations: labels.length - matched.length,
    leftOut: leftOut + outside,
    notes: [
      ...notes,
      ...(outside > 0 ? [`${counted(outside, "label")} outside of the frame left out`] : []),
      ...ambiguities(frameOf),
    ],
  };
}

/** What is said of names that several videos have, of which the one uploaded first was taken. */
function ambiguities(frameOf: ReadonlyMap<string, VideoFrame | null>): string[] {
  const names = [...frameOf].flatMap(([file, frame]) => (frame && frame.alike > 1 ? [file] : []));
  if (names.length === 0) return [];
  const some = `${names.slice(0, NAMED_MAX).join(", ")}${names.length > NAMED_MAX ? ", …" : ""}`;
  return [
    `${counted(names.length, "name")} of several videos, read as those of the first uploaded: ${some}`,
  ];
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
    SELECT id, filename, frame_count, width, height FROM video
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

/** A frame of a video, by its index. */
interface VideoFrame {
  video: ProjectVideo;
  frame: number;
  /** How many videos the name stands for alike; this one was uploaded first. */
  alike: number;
}

/** What finds the frame that a file name stands for: a still's own, or a frame of a video. */
function frameFinder(videos: readonly ProjectVideo[]): (file: string) => VideoFrame | null {
  const byName = new Map<string, ProjectVideo[]>();
  for (const video of videos) {
    // By its own name, and as exports write it.
    const exported = exportStem(video.filename);
    const names = [withoutExtension(video.filename), exported, exported + exportSuffix(video.id)];
    for (const known of new Set(names)) {
      const same = byName.get(known);
      if (same) same.push(video);
      else byName.set(known, [video]);
    }
  }
  return (file) => {
    const stills = byName.get(file)?.filter(({ frame_count: count }) => count === 1) ?? [];
    if (stills[0]) return { video: stills[0], frame: 0, alike: stills.length };
    const [, of = "", digits] = /^(.+)_(\d{6,})$/s.exec(file) ?? [];
    const frame = Number(digits);
    const videos = byName.get(of)?.filter(({ frame_count: count }) => frame < count) ?? [];
    return videos[0] ? { video: videos[0], frame, alike: videos.length } : null;
  };
}

function annotationRow(label: Label, { video, frame }: VideoFrame): NewAnnotation | null {
  const [width, height] = label.unit
    ? [label.unit.x * video.width, label.unit.y * video.height]
    : [1, 1];
  const scaled = (value: number, index: number) => value * (index % 2 === 0 ? width : height);
  const bbox = insideFrame(label.box.map(scaled) as Bbox, video);
  if (!bbox) return null;
  const side = (index: number) => (index % 2 === 0 ? video.width : video.height);
  const polygon =
    label.polygon?.map((value, index) =>
      Math.min(Math.max(scaled(value, index), 0), side(index)),
    ) ?? null;
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
