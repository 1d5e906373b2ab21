// What changed in a job since: the numbers of its annotations and its log of changes. Whoever reads
// what is newer than the number of the last read sees each annotation as it is, and each that went,
// whatever edits run meanwhile.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import type { Detection } from "../../../../shared/tasks/tasks.ts";
import { type Annotation, AnnotationPage, Change, Job } from "../../../../shared/wire/labeling.ts";
import { frameId } from "../../../../shared/wire/vision.ts";
import {
  colleague,
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

interface NumberedRow extends Record<string, unknown> {
  id: string;
  seq: number;
  /** All of its columns; null of one that went. */
  row: Record<string, unknown> | null;
}

/** What of a job is newer than a number, the oldest first. */
async function newer(id: string, than: number): Promise<NumberedRow[]> {
  const { rows } = await world.visionDatabase.execute<NumberedRow>(sql`
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
    ...empty,
    video_ids: [own],
    fps: 1,
    classes: ["person"],
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

describe("the log of changes since a number", () => {
  const changesOf = async (id: string, query: string) =>
    Change.array().parse(await admin.ok("GET", `/jobs/${id}/changes${query}`));

  it("comes in order, page by page, with what was touched as it is now", async () => {
    const id = await copyOf();
    const [first, second, third] = await listed(id);
    const path = (one?: Annotation) => `/annotations/${one?.annotation_id}`;
    await admin.ok("PATCH", path(first), { accepted: true });
    const seen = await seqOf(id);
    expect(await changesOf(id, `?after_seq=${seen}`)).toEqual([]);
    await admin.ok("PATCH", path(second), { accepted: false });
    await admin.ok("PATCH", path(third), { class: "dog" });
    await admin.ok("DELETE", path(third));

    const news = await changesOf(id, `?after_seq=${seen}`);
    expect(news.map(({ kind }) => kind)).toEqual(["edit", "edit", "delete"]);
    const now = await admin.ok("GET", path(second));
    expect(news).toMatchObject([
      { rows: [now], deleted: [], annotations: 1 },
      { rows: [], deleted: [third?.annotation_id] },
      { rows: [], deleted: [third?.annotation_id] },
    ]);
    const pages = [];
    for (let after = seen, page = news; page.length > 0; after = page.at(-1)?.seq ?? 0) {
      page = await changesOf(id, `?after_seq=${after}&limit=2`);
      pages.push(...page);
    }
    expect(pages).toEqual(news);
    // Without a number: the newest first, as they always came.
    const [newest] = await changesOf(id, "?limit=1");
    expect(newest).toEqual({ ...news[2], rows: undefined, deleted: undefined });
  });

  it("has an edit once more that was undone", async () => {
    const id = await copyOf();
    const [first] = await listed(id);
    await admin.ok("DELETE", `/annotations/${first?.annotation_id}`);
    const [made] = await changesOf(id, "?after_seq=0");
    await admin.ok("POST", `/changes/${made?.change_id}/undo`);
    const [undone, ...rest] = await changesOf(id, `?after_seq=${made?.seq}`);
    expect(rest).toEqual([]);
    expect(undone).toMatchObject({ change_id: made?.change_id, deleted: [] });
    expect(undone?.undone_at).not.toBeNull();
    expect(undone?.rows).toMatchObject([{ annotation_id: first?.annotation_id }]);
  });

  it("does not show what an edit of very many touched", async () => {
    const id = await copyOf();
    const seen = await seqOf(id);
    await world.visionDatabase.execute(sql`
      WITH c AS (
        INSERT INTO change (id, job_id, kind, summary)
        SELECT gen_random_uuid(), ${id}::uuid, 'review', '{}' RETURNING id)
      INSERT INTO change_item (change_id, annotation_id)
      SELECT c.id, gen_random_uuid() FROM c, generate_series(1, 201)`);
    expect(await changesOf(id, `?after_seq=${seen}`)).toMatchObject([
      { annotations: 201, rows: null, deleted: null },
    ]);
  });

  it.each(["after_seq=-1", "after_seq=x", "limit=0", "limit=201"])("refuses %s", async (query) => {
    const refused = await admin.refused("GET", `/jobs/${template}/changes?${query}`);
    expect(refused).toEqual([422, "invalid_request"]);
  });
});

describe("one annotation", () => {
  it("is read by viewers as its job's list has it", async () => {
    const [first] = await listed(template);
    const viewer = await colleague(world, admin, "viewer");
    const path = `/annotations/${first?.annotation_id}`;
    expect(await viewer.ok("GET", path)).toEqual(first);
    const unknown = `/annotations/${crypto.randomUUID()}`;
    expect(await viewer.refused("GET", unknown)).toEqual([404, "not_found"]);
  });

  it("is drawn once under a key, however often it is asked for", async () => {
    const id = await copyOf();
    const count = (await listed(id)).length;
    const body = { job_id: id, frame_id: frameId(videoId, 0), class: "car", bbox: [1, 1, 9, 9] };
    const key = { "Idempotency-Key": crypto.randomUUID() };
    const drawn = await Promise.all(
      [1, 2, 3].map(() => admin.ok<Annotation>("POST", "/annotations", body, key)),
    );
    expect(drawn).toEqual([drawn[0], drawn[0], drawn[0]]);
    expect(await listed(id)).toHaveLength(count + 1);
    const other = { ...body, class: "person" };
    const refused = await admin.refused("POST", "/annotations", other, key);
    expect(refused).toEqual([409, "idempotency_conflict"]);
    await admin.ok("POST", "/annotations", body);
    expect(await listed(id)).toHaveLength(count + 2);
  });
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
