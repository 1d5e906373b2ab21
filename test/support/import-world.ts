// A world for imports: projects with stills and videos of given names, and what came of an import.

import { sql } from "drizzle-orm";
import { zipSync } from "fflate";
import { beforeAll, expect } from "vitest";
import { AnnotationPage, ImportRecord } from "../../shared/wire/labeling.ts";
import { type Person, register } from "./vision.ts";
import { createWorld, type World } from "./world.ts";

let world: World;
let admin: Person;
const [WIDTH, HEIGHT] = [200, 100];

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  admin = await register(world.urls.vision);
});

/** A project with stills and videos of these names; the ids are by their names. */
export async function projectWith(...files: (string | { name: string; frames: number })[]) {
  const { body } = await admin.ask("POST", "/projects", { name: "Names" });
  const [projectId, workspaceId] = [String(body.project_id), String(body.workspace_id)];
  const ids = new Map<string, string>();
  for (const file of files) {
    const { name, frames } = typeof file === "string" ? { name: file, frames: 1 } : file;
    const id = crypto.randomUUID();
    ids.set(name, id);
    await world.visionDatabase.execute(sql`
      INSERT INTO video (id, workspace_id, project_id, filename, storage_key, source, state, bytes,
        content_type, width, height, fps, duration_seconds, frame_count, time_base)
      VALUES (${id}::uuid, ${workspaceId}::uuid, ${projectId}::uuid, ${name}, 'none', 'image',
        'ready', 1, 'image/jpeg', ${WIDTH}::int, ${HEIGHT}::int, 1, 0, ${frames}::int, '{1,1}')`);
  }
  const names = new Map([...ids].map(([name, id]) => [id, name]));
  return { projectId, ids, names };
}
type Target = Awaited<ReturnType<typeof projectWith>>;

export const coco = (file_name: string, more: object = {}) => ({
  images: [{ id: 1, file_name }],
  categories: [{ id: 1, name: "x" }],
  annotations: [{ image_id: 1, category_id: 1, bbox: [50, 40, 100, 20] }],
  ...more,
});
export const send = ({ projectId }: Target, labels: object) =>
  admin.ask("POST", "/import", { project_id: projectId, ...labels });
type Answer = Awaited<ReturnType<typeof send>>;

const bytesOf = (text: string) => new TextEncoder().encode(text);
export const zipOf = (files: Record<string, string>) =>
  zipSync(Object.fromEntries(Object.entries(files).map(([name, text]) => [name, bytesOf(text)])));
export function sendZip({ projectId }: Target, zip: Uint8Array | Record<string, string>) {
  const form = new FormData();
  form.append("project_id", projectId);
  const bytes = zip instanceof Uint8Array ? zip : zipOf(zip);
  form.append("file", new Blob([new Uint8Array(bytes)]), "labels.zip");
  return admin.ask("POST", "/import/archive", form);
}

/** What an import stored: the file and frame, the class, the box and the polygon of each. */
export async function stored({ names }: Target, { status, body }: Answer) {
  expect([status, body.detail]).toEqual([201, undefined]);
  const { job, notes, left_out } = ImportRecord.parse(body);
  const listed = await admin.ask("GET", `/jobs/${job.job_id}/annotations?limit=1000`);
  const round = (values: readonly number[]) => values.map((value) => Math.round(value * 10) / 10);
  const annotations = AnnotationPage.parse(listed.body).items.map((one) => {
    const [video = "", frame = ""] = one.frame_id.split(".");
    return {
      on: `${names.get(video)} ${frame}`,
      class: one.class,
      bbox: round(one.bbox),
      polygon: one.polygon && round(one.polygon),
      confidence: one.confidence,
    };
  });
  return { notes, left_out, annotations };
}
export const only = async (target: Target, answer: Answer) => {
  const { annotations } = await stored(target, answer);
  expect(annotations).toHaveLength(1);
  return annotations[0] as NonNullable<(typeof annotations)[0]>;
};
export const detail = ({ status, body }: Answer) => [status, String(body.detail)];
