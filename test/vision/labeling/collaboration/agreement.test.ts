// Agreement of two jobs: figures by class and frame, what counts, the same from both sides, and
// bounds.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import type { Bbox } from "../../../../shared/tasks/tasks.ts";
import { JobAgreement } from "../../../../shared/wire/collaboration.ts";
import { frameId } from "../../../../shared/wire/vision.ts";
import { newProject } from "../../../support/scripted-node.ts";
import {
  addClip,
  CLASSES,
  createTeamWorld,
  importJob,
  type Row,
  type TeamWorld,
} from "../../../support/team-world.ts";

const BOX: Bbox = [10, 10, 50, 50];
/** Overlaps `BOX` by 38 in 42. */
const NEAR: Bbox = [12, 10, 52, 50];
const FAR: Bbox = [60, 60, 90, 90];

let team: TeamWorld;

beforeAll(async () => {
  team = await createTeamWorld();
});

const at = (clip: number, index: number) => frameId(team.clips[clip] as string, index);
const agreement = async (id: string, other: string, query = "") =>
  JobAgreement.parse(
    await team.viewer.ok("GET", `/jobs/${id}/agreement?with_job_id=${other}${query}`),
  );
const refusal = async (id: string, query: string, person = team.viewer) => {
  const answer = await person.send("GET", `/jobs/${id}/agreement${query}`);
  const { code, detail } = (await answer.json()) as { code: string; detail: string };
  return [answer.status, code, detail];
};
const refused = (detail: string) => [422, "invalid_request", expect.stringContaining(detail)];

/** The figures as the other job has them. */
function turned(one: JobAgreement): JobAgreement {
  const swap = <Figures extends { annotations: number; other_annotations: number }>(
    figures: Figures,
  ) => ({
    ...figures,
    annotations: figures.other_annotations,
    other_annotations: figures.annotations,
  });
  return {
    ...one,
    job_id: one.with_job_id,
    with_job_id: one.job_id,
    frames_only_in_job: one.frames_only_in_other,
    frames_only_in_other: one.frames_only_in_job,
    overall: swap(one.overall),
    per_class: one.per_class.map(swap),
    confusions: one.confusions.map(({ class: name, other_class, count }) => ({
      class: other_class,
      other_class: name,
      count,
    })),
    frames_differing: one.frames_differing.map(swap),
  };
}

describe("two jobs of the same frames", () => {
  it("agree by class and by frame, and name what differs", async () => {
    const one = await team.job(
      [
        [0, 1, "cat", BOX],
        [0, 2, "cat", BOX],
        [0, 2, "dog", FAR],
        [0, 3, "dog", BOX],
        [0, 5, "cat", BOX],
      ],
      [1, 2, 3, 4, 5],
    );
    const two = await team.job(
      [
        [0, 1, "cat", NEAR],
        [0, 2, "cat", FAR],
        [0, 3, "owl", NEAR],
        [0, 6, "cat", BOX],
      ],
      [1, 2, 3, 4, 6],
    );
    const found = await agreement(one, two);
    const near = expect.closeTo(38 / 42, 9);
    expect(found).toEqual({
      job_id: one,
      with_job_id: two,
      iou: 0.5,
      // Frames of the other clip, too.
      frames: 8,
      frames_only_in_job: 2,
      frames_only_in_other: 2,
      overall: {
        annotations: 4,
        other_annotations: 3,
        matched: 1,
        agreement: 2 / 7,
        mean_iou: near,
      },
      per_class: [
        {
          class: "cat",
          annotations: 2,
          other_annotations: 2,
          matched: 1,
          agreement: 0.5,
          mean_iou: near,
        },
        ...[
          { class: "dog", annotations: 2, other_annotations: 0 },
          { class: "owl", annotations: 0, other_annotations: 1 },
        ].map((each) => ({ ...each, matched: 0, agreement: 0, mean_iou: null })),
      ],
      confusions: expect.arrayContaining([
        { class: "dog", other_class: "cat", count: 1 },
        { class: "dog", other_class: "owl", count: 1 },
      ]),
      frames_agreeing: 6,
      frames_differing: [
        { frame_id: at(0, 2), annotations: 2, other_annotations: 1, matched: 0, agreement: 0 },
        { frame_id: at(0, 3), annotations: 1, other_annotations: 1, matched: 0, agreement: 0 },
      ],
    });
    expect(found.confusions).toHaveLength(2);
    const other = await agreement(two, one);
    expect(turned(other)).toEqual({ ...found, confusions: expect.anything() });
    expect(turned(other).confusions.toSorted(byName)).toEqual(found.confusions.toSorted(byName));
  });

  const byName = (one: { other_class: string }, two: { other_class: string }) =>
    one.other_class < two.other_class ? -1 : 1;

  it("agree from the overlap that is asked for", async () => {
    const one = await team.job([[0, 1, "cat", BOX]]);
    const two = await team.job([[0, 1, "cat", NEAR]]);
    expect((await agreement(one, two, "&iou=0.9")).overall.agreement).toBe(1);
    const strict = await agreement(one, two, "&iou=0.95");
    expect([strict.iou, strict.overall.agreement]).toEqual([0.95, 0]);
    for (const iou of ["0.05", "0.96", "x", "1e-1", ""]) {
      expect(await refusal(one, `?with_job_id=${two}&iou=${iou}`)).toEqual(refused("iou"));
    }
  });

  it("agree wholly where one is a copy of the other, until somebody changes it", async () => {
    const one = await team.job([
      [0, 1, "cat", BOX],
      [0, 1, "cat", NEAR],
      [1, 2, "dog", FAR],
    ]);
    const path = `/jobs/${one}/duplicate`;
    const { job_id: copy } = await team.engineer.ok<{ job_id: string }>("POST", path);
    const whole = await agreement(one, copy);
    expect(whole).toMatchObject({
      frames: 20,
      frames_agreeing: 20,
      overall: { annotations: 3, other_annotations: 3, matched: 3, agreement: 1, mean_iou: 1 },
      confusions: [],
      frames_differing: [],
    });
    const [box] = await team.annotationsOf(copy);
    await team.annotator.ok("PATCH", `/annotations/${box?.annotation_id}`, { class: "owl" });
    const changed = await agreement(one, copy);
    expect(changed).toMatchObject({
      overall: { matched: 2, agreement: 2 / 3 },
      confusions: [{ class: box?.class, other_class: "owl", count: 1 }],
      frames_differing: [{ frame_id: box?.frame_id }],
    });
  });

  it("agree on empty frames, of which there is no figure", async () => {
    const [one, two] = [await team.job([], [1, 2]), await team.job([], [2, 3])];
    expect(await agreement(one, two)).toMatchObject({
      frames: 2,
      frames_agreeing: 2,
      overall: { annotations: 0, matched: 0, agreement: null, mean_iou: null },
      per_class: [],
      frames_differing: [],
    });
  });

  it("are compared without what is rejected, hidden or a duplicate", async () => {
    const one = await team.job([[0, 1, "cat", BOX]]);
    const two = await team.job([
      [0, 1, "cat", BOX],
      [0, 1, "dog", BOX],
      [0, 1, "cat", FAR],
      [0, 2, "cat", BOX],
    ]);
    const database = team.world.visionDatabase;
    const of = (where: ReturnType<typeof sql>) => sql`job_id = ${two}::uuid AND ${where}`;
    await database.execute(
      sql`UPDATE annotation SET review = 'rejected' WHERE ${of(sql`x1 = 60`)}`,
    );
    await database.execute(sql`
      UPDATE annotation SET confidence = 0.2, source = 'model' WHERE ${of(sql`frame_index = 2`)}`);
    await database.execute(sql`
      UPDATE annotation a SET review = 'pending', duplicate_of = (SELECT id FROM annotation
          WHERE job_id = a.job_id AND class_number = 0 AND x1 = 10 AND frame_index = 1)
       WHERE ${of(sql`class_number = 1`)}`);
    await team.engineer.ok("PATCH", `/jobs/${two}`, { threshold: 0.5 });
    expect(await agreement(one, two)).toMatchObject({
      overall: { annotations: 1, other_annotations: 1, matched: 1, agreement: 1 },
      frames_agreeing: 20,
      confusions: [],
    });
    // Below the other's threshold, on the other side.
    expect((await agreement(two, one)).overall.agreement).toBe(1);
  });

  it("are the same from both sides, whatever was drawn", async () => {
    let seed = 11;
    const dice = (sides: number) => {
      seed = (seed * 48_271) % 2_147_483_647;
      return seed % sides;
    };
    const drawn = (): Row[] =>
      Array.from({ length: 60 }, () => {
        const [x, y] = [5 * dice(8), 5 * dice(8)];
        const bbox: Bbox = [x, y, x + 20 + 5 * dice(4), y + 20 + 5 * dice(4)];
        return [dice(2), dice(10), CLASSES[dice(3)] as string, bbox];
      });
    const [one, two] = [await team.job(drawn()), await team.job(drawn())];
    for (const iou of [0.1, 0.3, 0.5, 0.8]) {
      const here = await agreement(one, two, `&iou=${iou}`);
      const there = turned(await agreement(two, one, `&iou=${iou}`));
      const key = (pair: JobAgreement["confusions"][number]) => JSON.stringify(pair);
      expect(there.confusions.map(key).toSorted()).toEqual(here.confusions.map(key).toSorted());
      expect({ ...there, confusions: [] }).toEqual({ ...here, confusions: [] });
      const sum = (pick: (each: JobAgreement["per_class"][number]) => number) =>
        here.per_class.reduce((total, each) => total + pick(each), 0);
      expect([sum((each) => each.annotations), sum((each) => each.matched)]).toEqual([
        here.overall.annotations,
        here.overall.matched,
      ]);
      const agreements = here.frames_differing.map((frame) => frame.agreement);
      expect(agreements).toEqual(agreements.toSorted((a, b) => a - b));
      expect(here.frames_agreeing + agreements.length).toBe(here.frames);
    }
  });
});

describe("agreement", () => {
  it("is of two jobs of one project and workspace, with a frame in common", async () => {
    const one = await team.job([[0, 1, "cat", BOX]], [1]);
    const apart = await team.job([[0, 2, "cat", BOX]], [2]);
    const by = (id: string) => `?with_job_id=${id}`;
    expect(await refusal(one, by(apart))).toEqual(refused("no labeled frame in common"));
    expect(await refusal(one, by(one))).toEqual(refused("with_job_id: is the same job"));
    expect(await refusal(one, "")).toEqual(refused("with_job_id"));
    expect(await refusal(one, by("x"))).toEqual(refused("with_job_id"));
    const { project_id: projectId } = await newProject(team.admin, "Another");
    await addClip(team.world, { projectId, workspaceId: team.workspaceId }, "clip0.mp4");
    const rows: Row[] = [[0, 1, "cat", BOX]];
    const foreign = await importJob(team.admin, projectId, { rows, frames: [1], clips: 1 });
    expect(await refusal(one, by(foreign))).toEqual(refused("of another project"));
    const stranger = await team.stranger();
    const missing = [404, "not_found", "no such job in your workspaces"];
    expect(await refusal(one, by(apart), stranger)).toEqual(missing);
    const theirs = (await newProject(stranger, "Theirs")).project_id;
    const { workspace_id: workspaceId } = await stranger.ok<{ workspace_id: string }>(
      ...(["GET", `/projects/${theirs}`] as const),
    );
    await addClip(team.world, { projectId: theirs, workspaceId }, "clip0.mp4");
    const own = await importJob(stranger, theirs, { rows, frames: [1], clips: 1 });
    expect(await refusal(own, by(one), stranger)).toEqual(missing);
  });

  it("is refused where the jobs are too large to hold, or too crowded", async () => {
    const [one, two] = [
      await team.job([[0, 1, "cat", BOX]], [1]),
      await team.job([[0, 1, "cat", BOX]], [1]),
    ];
    const crowd = (id: string, { count, frames = 1 }: { count: number; frames?: number }) =>
      team.world.visionDatabase.execute(sql`
        INSERT INTO annotation (id, workspace_id, job_id, video_id, frame_index, class_number,
          x1, y1, x2, y2, source)
        SELECT gen_random_uuid(), ${team.workspaceId}::uuid, ${id}::uuid, ${team.clips[0]}::uuid,
          f, 0, 1, 1, 9, 9, 'person'
          FROM generate_series(1, ${count}::int), generate_series(1, ${frames}::int) f`);
    await crowd(one, { count: 700 });
    await crowd(two, { count: 700 });
    // As many as one frame may have, all alike.
    const whole = await agreement(one, two);
    expect(whole.overall).toMatchObject({ matched: 701, agreement: 1 });
    await crowd(two, { count: 100 });
    const query = `?with_job_id=${two}`;
    expect(await refusal(one, query)).toEqual(refused("500000 pairs of boxes on one frame"));
    for (let step = 0; step < 8; step++) await crowd(two, { count: 12_500 });
    expect(await refusal(one, query)).toEqual(refused("100000 annotations"));
  });
});
