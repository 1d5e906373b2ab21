// Edits of more annotations than one statement changes: each is one change, undone as one, and a
// process that ends halfway leaves what can be undone or gone on with.

import { sql } from "drizzle-orm";
import { beforeAll, expect, it } from "vitest";
import type { Database } from "../../../../edge/http/database.ts";
import { inSteps, STEP_MAX, undoChange } from "../../../../edge/vision/labeling/review/changes.ts";
import { deleteClass, mergeClasses } from "../../../../edge/vision/labeling/review/class-edits.ts";
import { Change, Stats } from "../../../../shared/wire/labeling.ts";
import {
  labelAs,
  newProject,
  type Person,
  probeAs,
  register,
  scriptedNode,
  uploadVideo,
} from "../../../support/scripted-node.ts";
import { createWorld, type World } from "../../../support/world.ts";

const ANNOTATIONS = STEP_MAX + 10_000;
let world: World;
let admin: Person;
let job: string;

beforeAll(async () => {
  world = await createWorld({ services: ["console", "vision"] });
  admin = await register(world);
  const node = await scriptedNode(world, admin, { probe: probeAs({}), label: labelAs(() => []) });
  const projectId = (await newProject(admin)).project_id;
  const { video_id: video } = await uploadVideo(admin, projectId);
  await node.work();
  const body = { project_id: projectId, video_ids: [video], prompts: ["car", "person"] };
  job = (await admin.ok<{ job_id: string }>("POST", "/label", body)).job_id;
  await node.work();
  for (let from = 0; from < ANNOTATIONS; from += 10_000) {
    await world.visionDatabase.execute(sql`
      INSERT INTO annotation (id, workspace_id, job_id, video_id, frame_index, class_number, x1, y1,
        x2, y2, confidence, source)
      SELECT gen_random_uuid(), workspace_id, id, ${video}::uuid, 0, 0, 0, 0, 10, 10, 0.9, 'model'
        FROM job, generate_series(1, 10000) WHERE id = ${job}::uuid`);
  }
});

const stats = async () => Stats.parse(await admin.ok("GET", `/jobs/${job}/stats`));
const changes = async () => Change.array().parse(await admin.ok("GET", `/jobs/${job}/changes`));
const undo = (change: string | null | undefined) =>
  admin.ok<{ restored: number; kept: number }>("POST", `/changes/${change}/undo`);

it("judges, relabels, merges and deletes any number as one change that can be undone", async () => {
  const path = `/jobs/${job}/annotations`;
  const edits = [
    () => admin.ok("POST", `${path}/review`, { accepted: true, filter: {} }),
    () => admin.ok("POST", `${path}/relabel`, { class: "dog", filter: {} }),
    () =>
      admin.ok("POST", "/annotations/merge-classes", { job_id: job, from: "car", into: "person" }),
    () => admin.ok("DELETE", `/jobs/${job}/classes/car`),
    () => admin.ok("POST", `${path}/delete`, { filter: {} }),
  ];
  const before = await stats();
  expect(before.annotation_count).toBe(ANNOTATIONS);
  for (const [made, edit] of edits.entries()) {
    await edit();
    const [change, ...earlier] = await changes();
    expect([earlier.length, change?.annotations]).toEqual([made, ANNOTATIONS]);
    expect(await undo(change?.change_id)).toEqual({ restored: ANNOTATIONS, kept: 0 });
    expect(await admin.refused("POST", `/changes/${change?.change_id}/undo`)).toEqual([
      409,
      "state_conflict",
    ]);
    expect(await stats()).toEqual(before);
  }
});

it("goes on, or is undone, where a process ended between two steps", async () => {
  const before = await stats();
  const edit = { jobId: job, actorId: admin.id, kind: "delete", summary: {} };
  let steps = 0;
  const ended = new Error("the process ended");
  const dying = inSteps(world.visionDatabase, edit, ({ targets, change }) => {
    if (steps++ > 0) throw ended;
    return sql`
      WITH ${targets(sql`true`)}, gone AS (
        DELETE FROM annotation a USING target t WHERE a.id = t.id RETURNING a.*
      ), c AS (${change(sql`true`)}), items AS (
        INSERT INTO change_item (change_id, annotation_id, before, after)
        SELECT c.id, g.id, to_jsonb(g), NULL FROM c, gone g)
      SELECT (SELECT id FROM c) AS change_id, 0 AS changed, true AS more`;
  });
  await expect(dying).rejects.toBe(ended);
  expect((await stats()).annotation_count).toBe(ANNOTATIONS - STEP_MAX);
  const [half] = await changes();
  expect(half?.annotations).toBe(STEP_MAX);
  expect(await undo(half?.change_id)).toEqual({ restored: STEP_MAX, kept: 0 });
  expect(await stats()).toEqual(before);
});

/** The vision database, where something happens after one of its batches. */
function interrupted(after: number, act: () => Promise<unknown>): Database {
  const { visionDatabase: database } = world;
  let batches = 0;
  const batch = async (statements: never) => {
    const results = await database.batch(statements);
    if (++batches === after) await act();
    return results;
  };
  // It is its own database but for when a batch has ended.
  return Object.assign(Object.create(database), { batch }) as Database;
}

const newest = async () => (await changes())[0]?.change_id ?? "";
const who = () => ({ jobId: job, actorId: admin.id });
const deleting = (database: Database) => deleteClass(database, who(), "car");
const merging = (database: Database) =>
  mergeClasses(database, who(), { from: "car", into: "person" });
const undoing = async (database: Database) =>
  undoChange(database, { jobId: job, changeId: await newest() }, admin.id);

it.each([
  ["deletion of a class", deleting],
  ["merge of classes", merging],
])("ends a %s where somebody undoes it between two steps", async (_, edit) => {
  const before = await stats();
  await edit(interrupted(1, () => undoing(world.visionDatabase)));
  expect(await stats()).toEqual(before);
});

it.each([
  ["deletion of a class", deleting],
  ["merge of classes", merging],
])("undoes all of a %s that goes on between two steps of the undoing", async (_, edit) => {
  const before = await stats();
  let ended: Promise<unknown> | undefined;
  const halfway = interrupted(1, async () => {
    // The edit's own next step comes while the undoing has one to go.
    const undo = undoing(interrupted(1, () => new Promise((done) => setTimeout(done, 1_000))));
    await new Promise((done) => setTimeout(done, 500));
    ended = undo;
  });
  await edit(halfway);
  await ended;
  expect(await stats()).toEqual(before);
});
