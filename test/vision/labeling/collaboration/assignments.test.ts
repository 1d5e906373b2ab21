// Frames assigned to people and moved through stages: who may, what is counted, and that a frame is
// done by one rule everywhere.

import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, it } from "vitest";
import type { Bbox } from "../../../../shared/tasks/tasks.ts";
import { type JobFrame, JobFramePage, Overview } from "../../../../shared/wire/labeling.ts";
import { frameId } from "../../../../shared/wire/vision.ts";
import type { Person } from "../../../support/scripted-node.ts";
import { createTeamWorld, type TeamWorld } from "../../../support/team-world.ts";

const invalid = [422, "invalid_request"];
const forbidden = [403, "forbidden"];
const missing = [404, "not_found"];
const BOX: Bbox = [10, 10, 50, 50];

let team: TeamWorld;
let jobId: string;
let annotator: Person;
let other: Person;
let engineer: Person;

beforeAll(async () => {
  team = await createTeamWorld();
  ({ annotator, other, engineer } = team);
});

/** A job over frames 0 to 4 of two clips, with a pending box on frame 1 of each. */
async function newJob(frames = [0, 1, 2, 3, 4]) {
  jobId = await team.job(
    [
      [0, 1, "cat", BOX],
      [1, 1, "cat", BOX],
    ],
    frames,
  );
  await team.admin.ok("POST", `/jobs/${jobId}/annotations/review`, {
    accepted: null,
    include_reviewed: true,
  });
}

const at = (clip: number, index: number) => frameId(team.clips[clip] as string, index);
const listed = async (query = "", person: Person = team.viewer) =>
  JobFramePage.parse(await person.ok("GET", `/jobs/${jobId}/frames${query}`)).items;
/** Frames by clip and index, as `0.3`. */
const named = ({ video_id, index }: JobFrame) => `${team.clips.indexOf(video_id)}.${index}`;
const names = async (query: string, person?: Person) => (await listed(query, person)).map(named);
const overview = async () => Overview.parse(await team.viewer.ok("GET", `/jobs/${jobId}/overview`));
const assign = (person: Person, body: object) =>
  person.ok<{ changed: number; kept: number }>("POST", `/jobs/${jobId}/frames/assign`, {
    filter: {},
    ...body,
  });
const refusal = (person: Person, body: object) =>
  person.refused("POST", `/jobs/${jobId}/frames/assign`, { filter: {}, ...body });
const move = (person: Person, stage: string, filter: object = {}) =>
  person.ok<{ changed: number }>("POST", `/jobs/${jobId}/frames/stage`, { stage, filter });
const mark = (filter: object, reviewed = true) =>
  annotator.ok("POST", `/jobs/${jobId}/frames/review`, { reviewed, filter });
const clip = (number: number) => ({ video_id: team.clips[number] });

describe("frames", () => {
  it("are nobody's and in stage label at first, and assigned by an engineer", async () => {
    await newJob();
    expect((await listed())[0]).toMatchObject({
      labeler_id: null,
      reviewer_id: null,
      stage: "label",
    });
    const first = { labeler_id: annotator.id, filter: clip(0) };
    expect(await assign(engineer, first)).toEqual({ changed: 5, kept: 0 });
    expect(await assign(engineer, first)).toEqual({ changed: 0, kept: 0 });
    const both = { labeler_id: other.id, reviewer_id: engineer.id, filter: { from_index: 3 } };
    expect(await assign(engineer, both)).toEqual({ changed: 4, kept: 0 });
    const frames = await listed(`?video_id=${team.clips[0]}`);
    expect(frames.map((one) => [one.labeler_id, one.reviewer_id])).toEqual([
      ...[0, 1, 2].map(() => [annotator.id, null]),
      ...[3, 4].map(() => [other.id, engineer.id]),
    ]);
    // A role that is left out stays; null takes it away.
    expect(await assign(engineer, { reviewer_id: null })).toEqual({ changed: 4, kept: 0 });
    expect(await names(`?assignee=${other.id}`)).toEqual(["0.3", "0.4", "1.3", "1.4"]);
    expect(await names(`?assignee=${engineer.id}`)).toEqual([]);
    const one = { labeler_id: null, filter: { frame_ids: [at(0, 3), at(0, 3), at(1, 0)] } };
    expect(await assign(engineer, one)).toEqual({ changed: 1, kept: 0 });
  });

  it("are shared among several people in blocks, to one more or less", async () => {
    await newJob();
    const people = [annotator.id, other.id, engineer.id];
    expect(await assign(engineer, { labeler_ids: people })).toEqual({ changed: 10, kept: 0 });
    expect(await names(`?assignee=${annotator.id}`)).toEqual(["0.0", "0.1", "0.2", "0.3"]);
    expect(await names(`?assignee=${other.id}`)).toEqual(["0.4", "1.0", "1.1"]);
    expect(await names(`?assignee=${engineer.id}`)).toEqual(["1.2", "1.3", "1.4"]);
    for (const wrong of [
      { labeler_ids: [annotator.id, annotator.id.toUpperCase()] },
      { labeler_ids: [annotator.id] },
      { labeler_ids: people, labeler_id: annotator.id },
      { labeler_ids: people, labeler_id: null },
      {},
      { labeler_id: "me" },
    ]) {
      expect([wrong, await refusal(engineer, wrong)]).toEqual([wrong, invalid]);
    }
    expect(await refusal(annotator, { labeler_ids: people })).toEqual(forbidden);
  });

  it("are given to annotators of the workspace only", async () => {
    await newJob();
    const stranger = await team.stranger();
    for (const id of [team.viewer.id, stranger.id, randomUUID()]) {
      for (const body of [
        { labeler_id: id },
        { reviewer_id: id },
        { labeler_ids: [annotator.id, id] },
      ]) {
        const path = `/jobs/${jobId}/frames/assign`;
        const answer = await engineer.send("POST", path, { filter: {}, ...body });
        const { detail } = (await answer.json()) as { detail: string };
        expect([answer.status, detail]).toEqual([422, expect.stringContaining(id)]);
      }
    }
    for (const [person, expected] of [
      [team.viewer, forbidden],
      [stranger, missing],
    ] as const) {
      expect(await refusal(person, { labeler_id: person.id })).toEqual(expected);
      const body = { stage: "review", filter: {} };
      expect(await person.refused("POST", `/jobs/${jobId}/frames/stage`, body)).toEqual(expected);
    }
    expect(await names(`?assignee=none`)).toHaveLength(10);
  });

  it("are taken by annotators where they are nobody's, and given back by their own", async () => {
    await newJob();
    expect(await refusal(annotator, { labeler_id: other.id })).toEqual(forbidden);
    expect(await refusal(annotator, { reviewer_id: other.id })).toEqual(forbidden);
    const mine = { labeler_id: annotator.id, filter: clip(0) };
    expect(await assign(annotator, mine)).toEqual({ changed: 5, kept: 0 });
    const all = { labeler_id: other.id, filter: {} };
    expect(await assign(other, all)).toEqual({ changed: 5, kept: 5 });
    expect(await names("?assignee=me", other)).toHaveLength(5);
    // Of two roles in one request both must be free.
    const review = { labeler_id: other.id, reviewer_id: other.id, filter: {} };
    expect(await assign(other, review)).toEqual({ changed: 5, kept: 5 });
    expect(await assign(other, { labeler_id: null })).toEqual({ changed: 5, kept: 5 });
    expect(await names(`?assignee=${annotator.id}`)).toHaveLength(5);
    expect(await names("?assignee=none")).toEqual([]);
    expect(await names("?assignee=none&stage=label")).toHaveLength(5);
  });

  it("go to one of two people who take them at once", async () => {
    await newJob();
    const people = [annotator, other];
    const counts = await Promise.all(
      people.map((one) => assign(one, { labeler_id: one.id, filter: clip(1) })),
    );
    expect(counts.map(({ changed }) => changed).toSorted()).toEqual([0, 5]);
    expect(counts.map(({ kept }) => kept).toSorted()).toEqual([0, 5]);
  });

  it("are of the job, or refused whole", async () => {
    await newJob([0, 1, 2]);
    const path = (what: string) => `/jobs/${jobId}/frames/${what}`;
    for (const id of [at(0, 4), frameId(randomUUID(), 0)]) {
      const filter = { frame_ids: [at(0, 0), id] };
      expect(await refusal(engineer, { labeler_id: other.id, filter })).toEqual(missing);
      const body = { stage: "review", filter };
      expect(await engineer.refused("POST", path("stage"), body)).toEqual(missing);
    }
    for (const filter of [
      { frame_ids: ["x"] },
      { frame_ids: [at(0, 0)], stage: "label" },
      { frame_ids: [at(0, 0)], assignee: "me" },
      { assignee: "x" },
      { reviewed: true },
    ]) {
      const refused = await refusal(engineer, { labeler_id: other.id, filter });
      expect([filter, refused]).toEqual([filter, invalid]);
    }
    expect(await names(`?assignee=${other.id}`)).toEqual([]);
  });

  it("that left the job are counted nowhere, and are what they were when they are back", async () => {
    await newJob([0, 1, 2]);
    const drawn = { job_id: jobId, frame_id: at(0, 4), class: "cat", bbox: BOX };
    const { annotation_id } = await annotator.ok<{ annotation_id: string }>(
      ...(["POST", "/annotations", drawn] as const),
    );
    const filter = { frame_ids: [at(0, 4)] };
    await assign(engineer, { labeler_id: other.id, reviewer_id: annotator.id, filter });
    expect(await names(`?assignee=${other.id}`)).toEqual(["0.4"]);
    const { change_id } = await annotator.ok<{ change_id: string }>(
      ...(["DELETE", `/annotations/${annotation_id}`] as const),
    );
    expect(await names(`?assignee=${other.id}`)).toEqual([]);
    expect(await overview()).toMatchObject({
      frame_count: 6,
      stages: { label: 6, review: 0, done: 0 },
      people: [],
    });
    await annotator.ok("POST", `/changes/${change_id}/undo`);
    expect(await names(`?assignee=${other.id}`)).toEqual(["0.4"]);
  });

  it("keep who they were assigned to when he leaves, and go to another then", async () => {
    await newJob();
    const leaver = await team.colleague("annotator");
    await assign(engineer, { labeler_id: leaver.id, filter: clip(0) });
    const gone = { workspace_id: team.workspaceId, role: null };
    await team.admin.ok("PATCH", `/admin/users/${leaver.id}`, gone);
    expect(await names(`?assignee=${leaver.id}`)).toHaveLength(5);
    expect(await assign(annotator, { labeler_id: annotator.id, filter: clip(0) })).toEqual({
      changed: 0,
      kept: 5,
    });
    const filter = { assignee: leaver.id };
    expect(await assign(engineer, { labeler_id: annotator.id, filter })).toMatchObject({
      changed: 5,
    });
    expect(await refusal(engineer, { labeler_id: leaver.id })).toEqual(invalid);
  });
});

describe("stages", () => {
  it("lead from label to review to done, and back", async () => {
    await newJob();
    await assign(engineer, { labeler_id: annotator.id, reviewer_id: other.id, filter: clip(0) });
    const some = { ...clip(0), to_index: 3 };
    expect(await move(annotator, "review", some)).toEqual({ changed: 3 });
    expect(await move(annotator, "review", some)).toEqual({ changed: 0 });
    expect(await names("?stage=review")).toEqual(["0.0", "0.1", "0.2"]);
    expect(await names("?stage=label&assignee=me", annotator)).toEqual(["0.3", "0.4"]);
    expect(await names("?stage=review&assignee=me", annotator)).toEqual([]);
    expect(await names("?stage=review&assignee=me", other)).toHaveLength(3);
    expect(await names("?stage=label&assignee=me", other)).toEqual([]);
    expect(await names("?assignee=me", other)).toHaveLength(5);
    await mark({ frame_ids: [at(0, 0), at(0, 1)] });
    expect(await names("?stage=done&assignee=me", annotator)).toEqual(["0.0", "0.1"]);
    expect((await overview()).stages).toEqual({ label: 7, review: 1, done: 2 });
    expect((await overview()).people.toSorted(byLabeling)).toEqual([
      { account_id: other.id, labeling: 0, labeled: 0, reviewing: 3, reviewed: 2 },
      { account_id: annotator.id, labeling: 2, labeled: 3, reviewing: 0, reviewed: 0 },
    ]);
    // A frame whose mark is taken back without a stage is in review again.
    await mark({ frame_ids: [at(0, 1)] }, false);
    expect(await names("?stage=review")).toEqual(["0.1", "0.2"]);
    expect(await move(other, "label", clip(0))).toEqual({ changed: 3 });
    expect((await overview()).stages).toEqual({ label: 10, review: 0, done: 0 });
    expect((await listed("?reviewed=true")).length).toBe(0);
    expect((await listed())[0]).toMatchObject({ labeler_id: annotator.id, stage: "label" });
  });

  const byLabeling = (one: { labeling: number }, two: { labeling: number }) =>
    one.labeling - two.labeling;

  it("are done by the rule of completion, also where annotations were judged one by one", async () => {
    await newJob();
    await move(annotator, "review", { frame_ids: [at(0, 1), at(0, 2)] });
    const boxes = await team.annotationsOf(jobId);
    const box = boxes.find((one) => one.frame_id === at(0, 1));
    await other.ok("PATCH", `/annotations/${box?.annotation_id}`, { accepted: true });
    expect(await names("?stage=done")).toEqual(["0.1"]);
    expect(await names("?stage=review")).toEqual(["0.2"]);
    const all = await overview();
    expect([all.stages, all.completion_percentage]).toEqual([{ label: 8, review: 1, done: 1 }, 10]);
    expect(await names("?stage=label")).toHaveLength(8);
    // What is done is not handed to review again.
    expect(await move(annotator, "review")).toEqual({ changed: 8 });
    expect((await listed()).map((one) => one.stage).filter((one) => one === "done")).toHaveLength(
      1,
    );
    expect(await move(annotator, "review", { stage: "done" })).toEqual({ changed: 0 });
  });

  it("and assignees narrow what is marked and assigned", async () => {
    await newJob();
    await assign(engineer, { labeler_id: annotator.id, filter: clip(0) });
    await move(annotator, "review", { assignee: "me" });
    const toReview = { reviewer_id: other.id, filter: { stage: "review" } };
    expect(await assign(engineer, toReview)).toEqual({ changed: 5, kept: 0 });
    const marked = await other.ok("POST", `/jobs/${jobId}/frames/review`, {
      reviewed: true,
      filter: { stage: "review", assignee: "me", to_index: 2 },
    });
    expect(marked).toEqual({ changed: 2 });
    expect((await overview()).stages).toEqual({ label: 5, review: 3, done: 2 });
    for (const body of [{ stage: "done" }, { stage: null }, {}]) {
      const path = `/jobs/${jobId}/frames/stage`;
      expect(await annotator.refused("POST", path, { filter: {}, ...body })).toEqual(invalid);
    }
  });

  it("and people are not copied with the job, and go with it", async () => {
    await newJob();
    await assign(engineer, { labeler_id: annotator.id });
    await move(annotator, "review");
    const path = `/jobs/${jobId}/duplicate`;
    const original = jobId;
    ({ job_id: jobId } = await engineer.ok<{ job_id: string }>("POST", path));
    expect(await overview()).toMatchObject({ stages: { label: 10 }, people: [] });
    await engineer.ok("DELETE", `/jobs/${original}`);
  });

  it("of each frame agree in list, filter and overview, whatever was done", async () => {
    await newJob();
    const people = [annotator, other];
    let seed = 7;
    const dice = (sides: number) => {
      seed = (seed * 48_271) % 2_147_483_647;
      return seed % sides;
    };
    const frames = [0, 1].flatMap((video) => [0, 1, 2, 3, 4].map((index) => at(video, index)));
    for (let step = 0; step < 40; step++) {
      const filter = { frame_ids: frames.filter(() => dice(3) === 0).slice(0, 4) };
      if (filter.frame_ids.length === 0) continue;
      const id = [null, ...people.map((one) => one.id)][dice(3)];
      const role = dice(2) === 0 ? "labeler_id" : "reviewer_id";
      const act = dice(4);
      if (act === 0) await assign(engineer, { [role]: id, filter });
      else if (act === 1) await move(annotator, dice(2) === 0 ? "review" : "label", filter);
      else if (act === 2) await mark(filter, dice(2) === 0);
      else await assign(engineer, { [role]: id, filter: { annotated: dice(2) === 0 } });
      const all = await listed();
      const stages = Object.fromEntries(
        (["label", "review", "done"] as const).map((stage) => [
          stage,
          all.filter((one) => one.stage === stage),
        ]),
      ) as Record<JobFrame["stage"], JobFrame[]>;
      const seen = await overview();
      expect(seen.stages).toEqual({
        label: stages.label.length,
        review: stages.review.length,
        done: stages.done.length,
      });
      const holding = people.filter((one) =>
        all.some((frame) => [frame.labeler_id, frame.reviewer_id].includes(one.id)),
      );
      expect(seen.people).toEqual(
        holding
          .map(({ id: account_id }) => ({ account_id, ...countsOf(all, account_id) }))
          .sort((one, two) => (one.account_id < two.account_id ? -1 : 1)),
      );
      const stage = (["label", "review", "done"] as const)[dice(3)] as JobFrame["stage"];
      const roles = { label: ["labeler_id"], review: ["reviewer_id"] } as Record<string, string[]>;
      const held = (roles[stage] ?? ["labeler_id", "reviewer_id"]) as (
        | "labeler_id"
        | "reviewer_id"
      )[];
      const expected = stages[stage].filter((one) => held.some((of) => one[of] === other.id));
      expect(await names(`?stage=${stage}&assignee=${other.id}`)).toEqual(expected.map(named));
      const free = stages[stage].filter((one) => held.every((of) => one[of] === null));
      expect(await names(`?stage=${stage}&assignee=none`)).toEqual(free.map(named));
    }
  });
});

function countsOf(frames: readonly JobFrame[], id: string) {
  const count = (wanted: (one: JobFrame) => boolean) => frames.filter(wanted).length;
  return {
    labeling: count((one) => one.labeler_id === id && one.stage === "label"),
    labeled: count((one) => one.labeler_id === id && one.stage !== "label"),
    reviewing: count((one) => one.reviewer_id === id && one.stage !== "done"),
    reviewed: count((one) => one.reviewer_id === id && one.stage === "done"),
  };
}
