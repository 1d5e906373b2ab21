// A world for imports of archives with images: a node that really decodes them and makes exports,
// and archives as other tools write them.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { strToU8, zipSync } from "fflate";
import sharp from "sharp";
import { afterAll } from "vitest";
import type { RunnerContext } from "../../gpu-node/tasks/runner-context.ts";
import { runTask } from "../../gpu-node/tasks/runners.ts";
import { type ClaimedTask, WriteAddress } from "../../shared/tasks/node-protocol.ts";
import { AnnotationPage, ArchiveImport } from "../../shared/wire/labeling.ts";
import type { Video } from "../../shared/wire/vision.ts";
import { startNodeService } from "./node-service.ts";
import { apiAs, type Person, type ScriptedNode, scriptedNode } from "./scripted-node.ts";
import { taskContext } from "./task-context.ts";
import { type Person as Registered, register } from "./vision.ts";
import { createWorld, type World } from "./world.ts";

export interface ImageImportWorld {
  world: World;
  /** The installation's administrator, and the same person's routes. */
  owner: Registered;
  admin: Person;
  node: ScriptedNode;
}

/** A world whose node does probes and exports with its own program. */
export async function createImageImportWorld(
  environment: Readonly<Record<string, string>> = {},
): Promise<ImageImportWorld> {
  const world = await createWorld({
    services: ["console", "vision"],
    environment: { vision: environment },
  });
  const owner = await register(world.urls.vision);
  const { id, email, tokens } = owner;
  const admin: Person = { ...apiAs(world.urls.vision, tokens.access_token), id, email };
  const dir = mkdtempSync(join(tmpdir(), "image-imports-"));
  const service = await startNodeService();
  afterAll(async () => {
    await service.close();
    rmSync(dir, { recursive: true, force: true });
  });
  const context = await taskContext(service, dir);
  const really = (task: ClaimedTask, by: ScriptedNode) => {
    const path = `/node/tasks/${task.task_id}/target`;
    // What these kinds write is all named in their payloads.
    const address: RunnerContext["address"] = async (written, content) => {
      if (!("key" in written)) throw new Error("an object that no payload names");
      const body = { fence: task.fence, key: written.key, ...content };
      return WriteAddress.parse(await by.api.ok("POST", path, body));
    };
    return runTask(task.kind, task.payload, { ...context, address });
  };
  const node = await scriptedNode(world, admin, { probe: really, export: really });
  return { world, owner, admin, node };
}

export const [WIDTH, HEIGHT] = [80, 40];

/** A JPEG of a color of its own. */
export const jpegOf = async (red: number): Promise<Uint8Array> =>
  new Uint8Array(
    await sharp({
      create: { width: WIDTH, height: HEIGHT, channels: 3, background: { r: red, g: 9, b: 99 } },
    })
      .jpeg()
      .toBuffer(),
  );

export type Files = Record<string, string | Uint8Array>;

export const zipOf = (files: Files): Uint8Array =>
  zipSync(
    Object.fromEntries(
      Object.entries(files).map(([name, content]) => [
        name,
        typeof content === "string" ? strToU8(content) : content,
      ]),
    ),
  );

export function archiveForm(
  projectId: string,
  archive: Uint8Array | Files | string,
  fields: Record<string, string> = {},
): FormData {
  const form = new FormData();
  const all = { project_id: projectId, images: "true", ...fields };
  for (const [name, value] of Object.entries(all)) form.append(name, value);
  if (typeof archive === "string") form.append("upload_id", archive);
  else {
    const zip = archive instanceof Uint8Array ? archive : zipOf(archive);
    form.append("file", new Blob([new Uint8Array(zip)]), "dataset.zip");
  }
  return form;
}

/** The stills of a project by their paths. */
export async function stillsOf(admin: Person, projectId: string): Promise<Map<string, Video>> {
  const listed = await admin.ok<Video[]>("GET", `/projects/${projectId}/videos`);
  return new Map(listed.map((video) => [video.filename, video]));
}

/** A job's annotations: the path of the image, the class and the rounded box. */
export async function annotationsOf(
  admin: Person,
  projectId: string,
  jobId: string,
): Promise<[string, string, number[]][]> {
  const stills = await stillsOf(admin, projectId);
  const paths = new Map([...stills].map(([path, { video_id }]) => [video_id, path]));
  const listed = await admin.ok("GET", `/jobs/${jobId}/annotations?limit=1000`);
  return AnnotationPage.parse(listed)
    .items.map((one): [string, string, number[]] => {
      const [video = ""] = one.frame_id.split(".");
      return [paths.get(video) ?? video, one.class, one.bbox.map(Math.round)];
    })
    .sort((one, other) => (String(one) < String(other) ? -1 : 1));
}

export const importOf = async (admin: Person, id: string): Promise<ArchiveImport> =>
  ArchiveImport.parse(await admin.ok("GET", `/imports/${id}`));
