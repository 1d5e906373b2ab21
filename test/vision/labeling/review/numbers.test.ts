// The numbers that tell what changed since: whoever reads what is newer than the number of the last
// read sees each annotation as it is, and each that went, whatever edits run meanwhile.

import { sql } from "drizzle-orm";
import { beforeAll, expect, it } from "vitest";
import type { Detection } from "../../../../shared/tasks/tasks.ts";
import { AnnotationPage, Change, Job } from "../../../../shared/wire/labeling.ts";
import { frameId } from "../../../../shared/wire/vision.ts";
import {
  labelAs,
  newProject,
  type Person,
  probeAs,
  register,
  type ScriptedNode,
  scriptedNode,
  uploadVideo,
} from "../../../support/scripted-node.ts";
import { createWorld, type World } from "../../../support/world.ts";

const FRAMES = 6;
let world: World;
let admin: Person;
let node: ScriptedNode;
let template: string;
let videoId: string;

const detection = (class_name: string, x: number, duplicate_of: number | null): Detection => ({
  class_name,
  confidence: 0.6,
  bbox: [x, 10, x + 50, 60],
  polygon: null,
  duplicate_of,
});

beforeAll(async () => {
  world = await createWorld({ services: ["console", "vision"] });
  admin = await register(world);
  // On each frame a person, a car, and a car that repeats the person.
  const label = labelAs(() => [
    detection("person", 10, null),
    detection("car", 200, null),
    detection("car", 11, 0),
  ]);
  node = await scriptedNode(world, admin, { probe: probeAs({ frames: FRAMES }), label });
  const projectId = (await newProject(admin)).project_id;
  videoId = (await uploadVideo(admin, projectId)).video_id;
  await node.work();
  const body = { project_id: projectId, video_ids: [videoId], prompts: ["person", "car"] };
  template = (await admin.ok<{ job_id: string }>("POST", "/label", body)).job_id;
  await node.work();
});

const copyOf = async () =>
  (await admin.ok<{ job_id: string }>("POST", `/jobs/${template}/duplicate`)).job_id;
const seqOf = async (id: string) => Job.parse(await admin.ok("GET", `/jobs/${id}`)).edits_seq;
const listed = async (id: string) =>
  AnnotationPage.parse(await admin.ok("GET", `/jobs/${id}/annotations?limit=1000&min_confidence=0`))
    .items;

interface Numbered extends Record<string, unknown> {
  id: string;
  seq: number;
  /** All of its columns; null of one that went. */
  row: Record<string, unknown> | null;
}

/** What of a job is newer than a number, the oldest first. */
async function newer(id: string, than: number): Promise<Numbered[]> {
  const { rows } = await world.visionDatabase.execute<Numbered>(sql`
    SELECT a.id::text, seq::float8 AS seq, to_jsonb(a) AS row FROM annotation a
     WHERE job_id = ${id}::uuid AND seq > ${than}::bigint
    UNION ALL
    SELECT annotation_id::text, seq::float8, NULL FROM annotation_deletion
     WHERE job_id = ${id}::uuid AND seq > ${than}::bigint ORDER BY seq`);
  return rows;
}

it("rise with each edit, its undoing, and each deletion", async () => {
  const empty = { project_id: (await newProject(admin)).project_id, name: "none" };
  const [{ video_id: own }] = [await uploadVideo(admin, empty.project_id)];
  await node.work();
  const made = await admin.ok<Job>("POST", "/jobs", {
    ...{ ...empty, video_ids: [own], fps: 1, classes: ["person"] },
  });
  expect(await seqOf(made.job_id)).toBe(0);

  const id = await copyOf();
  const seqs = [await seqOf(id)];
  expect(seqs[0]).toBeGreaterThan(await seqOf(template));
  const [first] = await listed(id);
  const path = `/annotations/${first?.annotation_id}`;
  const changes = async () => Change.array().parse(await admin.ok("GET", `/jobs/${id}/changes`));
  const undo = async () => admin.ok("POST", `/changes/${(await changes())[0]?.change_id}/undo`);
  for (const step of [
    () => admin.ok("PATCH", path, { accepted: true }),
    () => admin.ok("PATCH", path, { bbox: [1, 2, 30, 40] }),
    undo,
    () => admin.ok("DELETE", path),
    undo,
    // A name is all that changes here, and what the log of changes says.
    () => admin.ok("POST", "/annotations/merge-classes", { job_id: id, from: "car", into: "van" }),
    undo,
    () => admin.ok("POST", `/jobs/${id}/annotations/delete`, { filter: {} }),
    undo,
    () => admin.ok("DELETE", `/jobs/${id}/classes/car`),
  ]) {
    await step();
    seqs.push(await seqOf(id));
  }
  expect(seqs).toEqual([...new Set(seqs)].toSorted((left, right) => left - right));

  // What is written back as it was gets no old number: what came back is newer than its going.
  const all = await newer(id, 0);
  const last = new Map(all.map(({ id: annotation, row }) => [annotation, row !== null]));
  const now = (await listed(id)).map(({ annotation_id: annotation }) => annotation);
  const present = [...last].filter(([, isThere]) => isThere).map(([annotation]) => annotation);
  expect(present.toSorted()).toEqual(now.toSorted());

  await admin.ok("DELETE", `/jobs/${id}`);
  expect(await newer(id, 0)).toEqual([]);
});

it("renew the number of what repeats an annotation that was rejected", async () => {
  const id = await copyOf();
  const items = await listed(id);
  const repeat = items.find(({ duplicate_of: of }) => of !== null);
  const before = await seqOf(id);
  await admin.ok("PATCH", `/annotations/${repeat?.duplicate_of}`, { accepted: false });
  const changed = (await newer(id, before)).map((one) => one.id);
  expect(changed.toSorted()).toEqual([repeat?.annotation_id, repeat?.duplicate_of].toSorted());
});

it("leave nothing out for a reader amid edits of many people", async () => {
  const id = await copyOf();
  let ended = false;
  /** The job's annotations as a reader knows them who asks for news only. */
  const mirror = new Map<string, unknown>();
  let seen = 0;
  const read = async () => {
    for (const { id: annotation, seq, row } of await newer(id, seen)) {
      if (row) mirror.set(annotation, row);
      else mirror.delete(annotation);
      seen = seq;
    }
  };
  const reader = (async () => {
    while (!ended) await read();
  })();

  const items = await listed(id);
  const annotation = (position: number) => items[position % items.length]?.annotation_id;
  const bulk = (path: string, body: object) => admin.send("POST", `/jobs/${id}/${path}`, body);
  const writers = Array.from({ length: 4 }, async (_, writer) => {
    for (let round = 0; round < 6; round++) {
      const position = writer * 7 + round * 3;
      const frame_id = frameId(videoId, position % FRAMES);
      const bbox = [300, 10, 340 + position, 60];
      const drawn = { job_id: id, frame_id, class: `class ${writer}`, bbox };
      await admin.send("POST", "/annotations", drawn);
      await admin.send("PATCH", `/annotations/${annotation(position)}`, { accepted: true });
      await admin.send("DELETE", `/annotations/${annotation(position + 1)}`);
      await bulk("annotations/review", { accepted: writer % 2 === 0, include_reviewed: true });
      await bulk("annotations/relabel", { class: "dog", filter: { frame_id } });
      const [change] = Change.array().parse(await admin.ok("GET", `/jobs/${id}/changes`));
      await admin.send("POST", `/changes/${change?.change_id}/undo`);
    }
  });
  await Promise.all(writers);
  ended = true;
  await reader;
  await read();

  const { rows } = await world.visionDatabase.execute<{ id: string; row: unknown }>(sql`
    SELECT id::text, to_jsonb(a) AS row FROM annotation a WHERE job_id = ${id}::uuid`);
  const now = new Map(rows.map(({ id: of, row }) => [of, row]));
  expect(Object.fromEntries(mirror)).toEqual(Object.fromEntries(now));
  expect(await seqOf(id)).toBeGreaterThanOrEqual(seen);
});
