// A project with stills and clips of one size, and imports of zips into it.

import { sql } from "drizzle-orm";
import { zipSync } from "fflate";
import { expect } from "vitest";
import { AnnotationPage, ImportRecord } from "../../shared/wire/labeling.ts";
import { type Person, register } from "./vision.ts";
import type { World } from "./world.ts";

/** An annotation as tests compare it, with the index of its frame. */
interface ImportedAnnotation {
  class: string;
  bbox: number[];
  polygon: number[] | null;
  confidence: number | null;
  track: number | null;
  source: string;
  frame: string;
}

/** A project that archives are imported into. */
export interface ImportProject {
  admin: Person;
  /** Imports texts by their paths in the zip; fails the test unless it is taken. */
  imported(files: Record<string, string>, fields?: Record<string, string>): Promise<ImportRecord>;
  /** The answer to an import that is to be refused. */
  refused(files: Record<string, string>): Promise<unknown[]>;
  /** A job's annotations; `frame` is the file name of the video, `#` and the frame's index. */
  annotationsOf(record: ImportRecord): Promise<ImportedAnnotation[]>;
  /** The images of a job, labeled or not. */
  imagesOf(record: ImportRecord): string[];
}

/** Makes a project with videos of these frame counts by their file names. */
export async function importProject(
  world: World,
  videos: Record<string, number>,
  [width, height]: readonly [number, number] = [200, 100],
): Promise<ImportProject> {
  const admin = await register(world.urls.vision);
  const project = await admin.ask("POST", "/projects", { name: "Labels" });
  const projectId = String(project.body.project_id);
  const workspaceId = String(project.body.workspace_id);
  const names = new Map<string, string>();
  for (const [filename, frames] of Object.entries(videos)) {
    const id = crypto.randomUUID();
    names.set(id, filename);
    await world.visionDatabase.execute(sql`
      INSERT INTO video (id, workspace_id, project_id, filename, storage_key, source, state, bytes,
        content_type, width, height, fps, duration_seconds, frame_count, time_base)
      VALUES (${id}::uuid, ${workspaceId}::uuid, ${projectId}::uuid, ${filename}, 'none', 'image',
        'ready', 1, 'image/jpeg', ${width}::int, ${height}::int, 1, 0, ${frames}::int, '{1,1}')`);
  }
  const send = async (files: Record<string, string>, fields: Record<string, string> = {}) => {
    const bytes = Object.entries(files).map(([name, text]) => [name, Buffer.from(text)] as const);
    const form = new FormData();
    form.append(
      "file",
      new Blob([new Uint8Array(zipSync(Object.fromEntries(bytes), { level: 1 }))]),
      "a.zip",
    );
    for (const [name, value] of Object.entries({ project_id: projectId, ...fields }))
      form.append(name, value);
    // Packing blocks: a connection that the service closed meanwhile is to be seen as closed.
    for (let turn = 0; turn < 3; turn++) await new Promise((next) => setImmediate(next));
    return admin.ask("POST", "/import/archive", form);
  };
  return {
    admin,
    imported: async (files, fields) => {
      const { status, body } = await send(files, fields);
      expect([status, body.detail]).toEqual([201, undefined]);
      return ImportRecord.parse(body);
    },
    refused: async (files) => {
      const { status, body } = await send(files);
      return [status, body.code, body.detail];
    },
    annotationsOf: async ({ job }) => {
      const { body } = await admin.ask("GET", `/jobs/${job.job_id}/annotations?limit=1000`);
      return AnnotationPage.parse(body).items.map((one) => {
        const [video = "", frame] = one.frame_id.split(".");
        return {
          class: one.class,
          bbox: one.bbox,
          polygon: one.polygon,
          confidence: one.confidence,
          track: one.track_id,
          source: one.source,
          frame: `${names.get(video)}#${frame}`,
        };
      });
    },
    imagesOf: ({ job }) => job.video_ids.map((id) => names.get(id) ?? "").sort(),
  };
}

/** What a refused import answers. */
export const invalid = (detail: RegExp) => [422, "invalid_request", expect.stringMatching(detail)];

/** The area within a ring, whichever way it runs. */
export function areaOf(ring: readonly number[] | null): number {
  const corners = ring ?? [];
  let twice = 0;
  for (let at = 0; at < corners.length; at += 2) {
    const next = (at + 2) % corners.length;
    twice += (corners[at] ?? 0) * (corners[next + 1] ?? 0);
    twice -= (corners[next] ?? 0) * (corners[at + 1] ?? 0);
  }
  return Math.abs(twice) / 2;
}
