// A job compared with its truth: average precision against pycocotools' figures of the same boxes,
// and which annotations of which frames count.

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { classFigures } from "../../../../shared/detector/average-precision.ts";
import type { Bbox } from "../../../../shared/tasks/tasks.ts";
import { type Job, JobComparison } from "../../../../shared/wire/labeling.ts";
import { SCENES } from "../../../peers/formats-scenes.ts";
import { newMember, newTenant, type Person, register } from "../../../support/vision.ts";
import { createWorld, type World } from "../../../support/world.ts";

const GOLDEN = JSON.parse(
  readFileSync(resolve(import.meta.dirname, "../../../golden/average-precision.json"), "utf8"),
) as Record<string, { mAP50: number; mAP50_95: number }>;

describe("average precision", () => {
  it.each(SCENES.map((scene) => [scene.name, scene] as const))(
    "is pycocotools' to the last digits: %s",
    (name, { classes, images }) => {
      const figures = Array.from({ length: classes }, (_, index) =>
        classFigures(
          images.map(({ truths, detections }) => ({
            truths: truths.filter(([own]) => own === index).map((row) => row.slice(1) as Bbox),
            detections: detections
              .filter((row) => row[5] === index)
              .map((row) => ({ bbox: row.slice(0, 4) as Bbox, confidence: row[4] ?? 0 })),
          })),
          0.5,
        ),
      );
      const mean = (pick: (one: (typeof figures)[0]) => number | null) =>
        figures.reduce((sum, one) => sum + (pick(one) ?? 0), 0) / classes;
      expect(mean(({ ap50 }) => ap50)).toBeCloseTo(GOLDEN[name]?.mAP50 ?? -1, 10);
      expect(mean(({ ap50To95 }) => ap50To95)).toBeCloseTo(GOLDEN[name]?.mAP50_95 ?? -1, 10);
    },
  );
});

let world: World;
let admin: Person;
let projectId: string;
let workspaceId: string;
let videoId: string;

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  admin = await register(world.urls.vision);
  ({ projectId, workspaceId } = await project("Compared"));
  videoId = await addVideo(projectId, workspaceId);
});

async function project(name: string) {
  const { body } = await admin.ask("POST", "/projects", { name });
  return { projectId: String(body.project_id), workspaceId: String(body.workspace_id) };
}

async function addVideo(projectOfIt: string, workspace: string): Promise<string> {
  const id = crypto.randomUUID();
  await world.visionDatabase.execute(sql`
    INSERT INTO video (id, workspace_id, project_id, filename, storage_key, source, state, bytes,
      content_type, width, height, fps, duration_seconds, frame_count, time_base)
    VALUES (${id}::uuid, ${workspace}::uuid, ${projectOfIt}::uuid, 'clip.mp4', 'none', 'upload',
      'ready', 1, 'video/mp4', 100, 100, 1, 10, 10, '{1,1}')`);
  return id;
}

type Row = [frame: number, className: string, bbox: Bbox];
/** A job of boxes; frames without any are labeled too. */
async function job(
  rows: Row[],
  frames: number[],
  into: { projectId: string; person?: Person } = { projectId },
): Promise<string> {
  const classes = ["cat", "dog", "owl"];
  const coco = {
    images: frames.map((frame) => ({ id: frame, file_name: `clip_00000${frame}.jpg` })),
    categories: classes.map((name, id) => ({ id, name })),
    annotations: rows.map(([image_id, name, [x1, y1, x2, y2]]) => ({
      image_id,
      category_id: classes.indexOf(name),
      bbox: [x1, y1, x2 - x1, y2 - y1],
    })),
  };
  const person = into.person ?? admin;
  const { body } = await person.ask("POST", "/import", { project_id: into.projectId, coco });
  return (body.job as Job).job_id;
}

/** Sets the confidences of a job's annotations on a frame. */
const sure = (id: string, confidences: Record<number, number>) =>
  Promise.all(
    Object.entries(confidences).map(([frame, confidence]) =>
      world.visionDatabase.execute(sql`
        UPDATE annotation SET confidence = ${confidence}::real, source = 'model'
         WHERE job_id = ${id}::uuid AND frame_index = ${frame}::int`),
    ),
  );

async function compared(id: string, truth: string) {
  const { status, body } = await admin.ask("GET", `/jobs/${id}/compare?truth_job_id=${truth}`);
  expect([status, body.detail]).toEqual([200, undefined]);
  return JobComparison.parse(body);
}

const BOX: Bbox = [10, 10, 50, 50];
const NEAR: Bbox = [12, 10, 52, 50];
const FAR: Bbox = [60, 60, 90, 90];

describe("a job beside its truth", () => {
  it("has figures by class, over the frames that both have labeled", async () => {
    const truth = await job(
      [
        [1, "cat", BOX],
        [2, "cat", BOX],
        [3, "dog", BOX],
        [5, "cat", BOX],
      ],
      [1, 2, 3, 4, 5],
    );
    const found = await job(
      [
        [1, "cat", NEAR],
        [2, "cat", FAR],
        [3, "owl", BOX],
        [4, "cat", BOX],
        [6, "cat", BOX],
      ],
      [1, 2, 3, 4, 6],
    );
    await sure(found, { 1: 0.9, 2: 0.7, 3: 0.6, 4: 0.2, 6: 0.9 });
    await admin.ask("PATCH", `/jobs/${found}`, { threshold: 0.5 });
    const all = await compared(found, truth);
    expect(all).toMatchObject({
      threshold: 0.5,
      frames: 4,
      frames_only_in_job: 1,
      frames_only_in_truth: 1,
      overall: {
        truths: 3,
        detections: 3,
        true_positives: 1,
        false_positives: 2,
        false_negatives: 2,
        precision: 1 / 3,
        recall: 1 / 3,
      },
    });
    const [cat, dog, owl] = all.per_class;
    expect(cat).toMatchObject({
      class: "cat",
      truths: 2,
      detections: 2,
      precision: 0.5,
      recall: 0.5,
    });
    // Precision 1 up to a recall of one half: 51 of the 101 points that COCO reads.
    expect(cat?.ap50).toBeCloseTo(51 / 101, 12);
    // An overlap of 38 in 42, which is above 0.9.
    expect(cat?.ap50_95).toBeCloseTo((9 * 51) / 101 / 10, 12);
    expect(dog).toMatchObject({ class: "dog", ap50: 0, recall: 0, precision: null, detections: 0 });
    expect(owl).toMatchObject({ class: "owl", ap50: null, recall: null, precision: 0 });
    expect(all.overall.ap50).toBeCloseTo(51 / 101 / 2, 12);
    expect(await compared(found, truth)).toEqual(all);
    expect((await compared(truth, truth)).overall).toMatchObject({
      precision: 1,
      recall: 1,
      ap50: 1,
    });
  });

  it("leaves out what was rejected and what is another class's duplicate", async () => {
    const truth = await job([[1, "cat", BOX]], [1]);
    const found = await job(
      [
        [1, "cat", BOX],
        [1, "cat", FAR],
        [1, "dog", BOX],
      ],
      [1],
    );
    const of = (where: ReturnType<typeof sql>) =>
      sql`job_id = ${found}::uuid AND x1 = 60 IS ${where}`;
    await world.visionDatabase.execute(
      sql`UPDATE annotation SET review = 'rejected' WHERE ${of(sql`true`)}`,
    );
    await world.visionDatabase.execute(sql`
      UPDATE annotation a SET duplicate_of = (SELECT id FROM annotation WHERE job_id = a.job_id
          AND class_number = 0 AND x1 = 10)
       WHERE job_id = ${found}::uuid AND class_number = 1`);
    expect((await compared(found, truth)).overall).toMatchObject({
      detections: 1,
      precision: 1,
      recall: 1,
      ap50: 1,
    });
  });

  it("is of the same project and workspace, and has a frame in common", async () => {
    const truth = await job([[1, "cat", BOX]], [1]);
    const apart = await job([[2, "cat", BOX]], [2]);
    const other = await project("Another");
    await addVideo(other.projectId, other.workspaceId);
    const foreign = await job([[1, "cat", BOX]], [1], other);
    const answer = async (person: Person, id: string, query: string) => {
      const { status, body } = await person.ask("GET", `/jobs/${id}/compare${query}`);
      return [status, body.code, body.detail];
    };
    const refused = (detail: string) => [422, "invalid_request", expect.stringContaining(detail)];
    const by = (id: string) => `?truth_job_id=${id}`;
    expect(await answer(admin, apart, by(truth))).toEqual(refused("no labeled frame in common"));
    expect(await answer(admin, foreign, by(truth))).toEqual(refused("of another project"));
    expect(await answer(admin, truth, "")).toEqual(refused("truth_job_id"));
    expect(await answer(admin, truth, by("x"))).toEqual(refused("truth_job_id"));
    const viewer = await newMember(world.urls.vision, admin, workspaceId, "viewer");
    expect(await answer(viewer, truth, by(truth))).toEqual([200, undefined, undefined]);
    const tenant = await newTenant(world.urls.vision, admin, "engineer");
    const missing = [404, "not_found", "no such job in your workspaces"];
    expect(await answer(tenant.member, truth, by(truth))).toEqual(missing);
    const theirs = await tenant.member.ask("POST", "/projects", { name: "theirs" });
    const theirId = String(theirs.body.project_id);
    await addVideo(theirId, tenant.workspaceId);
    const own = await job([[1, "cat", BOX]], [1], { projectId: theirId, person: tenant.member });
    expect(await answer(tenant.member, own, by(own))).toEqual([200, undefined, undefined]);
    expect(await answer(tenant.member, own, by(truth))).toEqual(missing);
  });

  it("is refused where the jobs are too large to hold, or too crowded", async () => {
    const truth = await job([[1, "cat", BOX]], [1]);
    const found = await job([[1, "cat", BOX]], [1]);
    const crowd = (id: string, count: number) =>
      world.visionDatabase.execute(sql`
        INSERT INTO annotation (id, workspace_id, job_id, video_id, frame_index, class_number,
          x1, y1, x2, y2, confidence, source)
        SELECT gen_random_uuid(), ${workspaceId}::uuid, ${id}::uuid, ${videoId}::uuid, 1, 0,
          1, 1, 9, 9, 0.9, 'model' FROM generate_series(1, ${count}::int)`);
    const refusal = async () =>
      (await admin.ask("GET", `/jobs/${found}/compare?truth_job_id=${truth}`)).body.detail;
    await crowd(found, 3_000);
    await crowd(truth, 2_000);
    expect(await refusal()).toContain("5000000 pairs");
    // In steps: the database ends a statement that takes long, as on a busy machine.
    for (let step = 0; step < 8; step++) await crowd(found, 12_000);
    expect(await refusal()).toContain("100000 annotations");
  });
});
