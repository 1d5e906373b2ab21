// A team at the vision service: a person of each role, a project with clips, and jobs whose boxes
// the test gives.

import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import type { Bbox } from "../../shared/tasks/tasks.ts";
import { type Annotation, AnnotationPage, ImportRecord } from "../../shared/wire/labeling.ts";
import type { Role } from "../../shared/wire/vision.ts";
import { apiAs, colleague, newProject, type Person } from "./scripted-node.ts";
import { newMember, newTenant, register } from "./vision.ts";
import { createWorld, type World } from "./world.ts";

/** Frames of a clip. */
export const CLIP_FRAMES = 10;
export const CLASSES = ["cat", "dog", "owl"];
/** A box on a frame of the clip of this number. */
export type Row = [clip: number, frame: number, className: string, bbox: Bbox];

export interface TeamWorld {
  world: World;
  admin: Person;
  engineer: Person;
  annotator: Person;
  /** A second annotator. */
  other: Person;
  viewer: Person;
  workspaceId: string;
  projectId: string;
  /** Ids of the clips. */
  clips: string[];
  /** A job over these frames of each clip, with these boxes. */
  job(rows: readonly Row[], frames?: readonly number[]): Promise<string>;
  colleague(role: Role): Promise<Person>;
  /** An admin of another workspace. */
  stranger(): Promise<Person>;
  annotationsOf(jobId: string): Promise<Annotation[]>;
}

/** Another clip of a project; returns its id. */
export async function addClip(
  { visionDatabase, media }: Pick<World, "visionDatabase" | "media">,
  { projectId, workspaceId }: { projectId: string; workspaceId: string },
  filename: string,
): Promise<string> {
  const id = randomUUID();
  const ptsKey = `ws/${workspaceId}/videos/${id}/pts.bin`;
  await media.put(ptsKey, Int32Array.from({ length: CLIP_FRAMES }, (_, frame) => frame).buffer);
  await visionDatabase.execute(sql`
    INSERT INTO video (id, workspace_id, project_id, filename, storage_key, pts_key, source, state,
      bytes, content_type, width, height, fps, duration_seconds, frame_count, time_base)
    VALUES (${id}::uuid, ${workspaceId}::uuid, ${projectId}::uuid, ${filename}, 'none', ${ptsKey}, 'upload',
      'ready', 1, 'video/mp4', 100, 100, 1, ${CLIP_FRAMES}::int, ${CLIP_FRAMES}::int, '{1,1}')`);
  return id;
}

/** A completed job of boxes; frames without any are labeled too. */
export async function importJob(
  person: Person,
  projectId: string,
  { rows, frames, clips }: { rows: readonly Row[]; frames: readonly number[]; clips: number },
): Promise<string> {
  const imageId = (clip: number, frame: number) => clip * CLIP_FRAMES + frame;
  const numbers = Array.from({ length: clips }, (_, clip) => clip);
  const coco = {
    images: numbers.flatMap((clip) =>
      frames.map((frame) => ({
        id: imageId(clip, frame),
        file_name: `clip${clip}_${String(frame).padStart(6, "0")}.jpg`,
      })),
    ),
    categories: CLASSES.map((name, id) => ({ id, name })),
    annotations: rows.map(([clip, frame, name, [x1, y1, x2, y2]]) => ({
      image_id: imageId(clip, frame),
      category_id: CLASSES.indexOf(name),
      bbox: [x1, y1, x2 - x1, y2 - y1],
    })),
  };
  const made = await person.ok("POST", "/import", { project_id: projectId, coco });
  return ImportRecord.parse(made).job.job_id;
}

export async function createTeamWorld({ clips: count = 2 } = {}): Promise<TeamWorld> {
  const world = await createWorld({ services: ["vision"] });
  const url = world.urls.vision;
  const founder = await register(url);
  const asPerson = ({ id, email, tokens }: typeof founder): Person => ({
    ...apiAs(url, tokens.access_token),
    id,
    email,
  });
  const admin = asPerson(founder);
  const engineer = await colleague(world, admin, "engineer");
  const annotator = await colleague(world, admin, "annotator");
  const other = await colleague(world, admin, "annotator");
  const viewer = await colleague(world, admin, "viewer");
  const { project_id: projectId, workspace_id: workspaceId } = await newProject(admin);
  const clips: string[] = [];
  for (let clip = 0; clip < count; clip++) {
    clips.push(await addClip(world, { projectId, workspaceId }, `clip${clip}.mp4`));
  }
  const everyFrame = Array.from({ length: CLIP_FRAMES }, (_, frame) => frame);
  return {
    world,
    admin,
    engineer,
    annotator,
    other,
    viewer,
    workspaceId,
    projectId,
    clips,
    job: (rows, frames = everyFrame) => importJob(admin, projectId, { rows, frames, clips: count }),
    colleague: async (role) => asPerson(await newMember(url, founder, workspaceId, role)),
    stranger: async () => asPerson((await newTenant(url, founder, "admin")).member),
    annotationsOf: async (jobId) =>
      AnnotationPage.parse(await viewer.ok("GET", `/jobs/${jobId}/annotations?limit=1000`)).items,
  };
}
