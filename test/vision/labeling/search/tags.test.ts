// Tags of frames: who puts them on and takes them off, how they are spelled, what is refused, and
// that frames are found by them.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { ProjectTagPage } from "../../../../shared/wire/frame-search.ts";
import { type JobFrame, JobFramePage } from "../../../../shared/wire/labeling.ts";
import { frameId } from "../../../../shared/wire/vision.ts";
import { newProject, type Person } from "../../../support/scripted-node.ts";
import { addClip, createTeamWorld, type TeamWorld } from "../../../support/team-world.ts";
import { beginTransaction } from "../../../support/transactions.ts";

const invalid = [422, "invalid_request"];
const missing = [404, "not_found"];

let team: TeamWorld;
let annotator: Person;
let projectId: string;
let clip: string;

/** A clip in a project of its own. */
async function newClip() {
  ({ project_id: projectId } = await newProject(team.admin));
  clip = await addClip(team.world, { projectId, workspaceId: team.workspaceId }, "clip.mp4");
}

beforeAll(async () => {
  team = await createTeamWorld();
  ({ annotator } = team);
});

const at = (...indexes: number[]) => indexes.map((index) => frameId(clip, index));
const change = (body: object, person = annotator) =>
  person.ok<{ changed: number }>("POST", "/frames/tags", body);
const refusal = (body: object, person = annotator) => person.refused("POST", "/frames/tags", body);
const tags = async () => {
  const page = await team.viewer.ok("GET", `/projects/${projectId}/tags`);
  return ProjectTagPage.parse(page).items.map(({ tag, frames }) => [tag, frames]);
};
const newJob = async (frames = [0, 1, 2]) => {
  const body = { project_id: projectId, frame_ids: at(...frames), classes: ["cat"] };
  return (await team.admin.ok<{ job_id: string }>("POST", "/jobs", body)).job_id;
};
const framesOf = async (jobId: string, query = ""): Promise<JobFrame[]> =>
  JobFramePage.parse(await team.viewer.ok("GET", `/jobs/${jobId}/frames${query}`)).items;

describe("tags", () => {
  it("are put on frames and taken off, counted, and shown by every job", async () => {
    await newClip();
    const jobs = [await newJob(), await newJob([1])] as const;
    const body = { frame_ids: [...at(0, 1, 5), ...at(1)], add: ["night", " rain "] };
    expect(await change(body)).toEqual({ changed: 3 });
    expect(await change(body)).toEqual({ changed: 0 });
    expect(await tags()).toEqual([
      ["night", 3],
      ["rain", 3],
    ]);
    const swap = { frame_ids: at(1, 2), add: ["fog"], remove: ["NIGHT", "snow"] };
    expect(await change(swap)).toEqual({ changed: 2 });
    expect(await change(swap)).toEqual({ changed: 0 });
    expect((await framesOf(jobs[0])).map((frame) => frame.tags)).toEqual([
      ["night", "rain"],
      ["fog", "rain"],
      ["fog"],
    ]);
    expect((await framesOf(jobs[1])).map((frame) => frame.tags)).toEqual([["fog", "rain"]]);
    const page = await team.viewer.ok("GET", `/projects/${projectId}/tags?offset=1&limit=1`);
    expect(page).toMatchObject({ items: [{ tag: "night", frames: 2 }], total: 3 });
  });

  it("stay when a job is deleted, and go with the video", async () => {
    await newClip();
    const jobId = await newJob();
    await change({ frame_ids: at(0), add: ["night"] });
    expect(await team.admin.send("DELETE", `/jobs/${jobId}`)).toMatchObject({ status: 204 });
    expect(await tags()).toEqual([["night", 1]]);
    expect((await framesOf(await newJob([0])))[0]?.tags).toEqual(["night"]);
    await newClip();
    await change({ frame_ids: at(0), add: ["night"] });
    expect(await team.admin.send("DELETE", `/videos/${clip}`)).toMatchObject({ status: 204 });
    expect(await tags()).toEqual([]);
    expect(await refusal({ frame_ids: at(0), add: ["night"] })).toEqual(missing);
  });

  it("that differ only in case are one, spelled as at first, in the whole workspace", async () => {
    await newClip();
    await change({ frame_ids: at(0), add: ["BMW", "bmw", "Cafe\u0301"] });
    await newClip();
    await change({ frame_ids: at(0), add: ["bmw", "CAF\u00c9"] });
    expect(await tags()).toEqual([
      ["BMW", 1],
      ["Caf\u00e9", 1],
    ]);
    // Once no frame of the workspace has it, it may be spelled anew.
    await change({ frame_ids: at(1), add: ["Tunel"] });
    await change({ frame_ids: at(1), remove: ["tunel"] });
    await change({ frame_ids: at(1), add: ["tunel"] });
    expect(await tags()).toContainEqual(["tunel", 1]);
  });

  it("have one spelling also where two people put them on at once", async () => {
    await newClip();
    // The first of them waits for the row of the video, the other one wherever it has to.
    const other = await beginTransaction(team.world.visionDatabase);
    await other.query(`SELECT FROM video WHERE id = '${clip}' FOR UPDATE`);
    const both = ["Dusk", "dusk"].map((tag, index) => change({ frame_ids: at(index), add: [tag] }));
    await other.awaited(2);
    await other.commit();
    expect(await Promise.all(both)).toEqual([{ changed: 1 }, { changed: 1 }]);
    const { rows } = await team.world.visionDatabase.execute(sql`
      SELECT DISTINCT tag FROM frame_tag WHERE video_id = ${clip}::uuid`);
    expect(rows).toHaveLength(1);
    expect(await tags()).toEqual([[expect.stringMatching(/^dusk$/i), 2]]);
  });

  it("are at most 50 of a frame, which is named; then nothing is changed", async () => {
    await newClip();
    const many = Array.from({ length: 50 }, (_, number) => `tag ${number}`);
    expect(await change({ frame_ids: at(3), add: many })).toEqual({ changed: 1 });
    // At once: each of them alone would fit on frame 4.
    const halves = [many.slice(0, 30), many.map((tag) => `${tag} too`).slice(0, 30)];
    const answers = await Promise.all(
      halves.map((add) => annotator.send("POST", "/frames/tags", { frame_ids: at(4), add })),
    );
    expect(answers.map(({ status }) => status).toSorted()).toEqual([200, 422]);
    const body = { frame_ids: at(2, 3), add: ["one more"] };
    const refused = await annotator.send("POST", "/frames/tags", body);
    const { detail } = (await refused.json()) as { detail: string };
    expect([refused.status, detail]).toEqual([422, expect.stringContaining(frameId(clip, 3))]);
    expect((await tags()).some(([tag]) => tag === "one more")).toBe(false);
    expect(await change({ ...body, remove: ["tag 7"] })).toEqual({ changed: 2 });
    // Taking off works on a full frame.
    expect(await change({ frame_ids: at(3), remove: many })).toEqual({ changed: 1 });
  });

  it("are words: without commas, control characters, and of at most 64 characters", async () => {
    await newClip();
    for (const tag of ["", " ", "a,b", "a\nb", "a\u0000b", "a\u2028b", "\ud800", "x".repeat(65)]) {
      expect([tag, await refusal({ frame_ids: at(0), add: [tag] })]).toEqual([tag, invalid]);
    }
    for (const body of [
      { frame_ids: at(0) },
      { frame_ids: at(0), add: [], remove: [] },
      { frame_ids: [], add: ["a"] },
      { frame_ids: ["x"], add: ["a"] },
      { frame_ids: at(0), add: ["a", "b"], remove: ["B"] },
      { frame_ids: at(0), add: Array.from({ length: 51 }, (_, number) => `${number}`) },
      { frame_ids: Array.from({ length: 1_001 }, () => at(0)[0]), add: ["a"] },
    ]) {
      expect([body, await refusal(body)]).toEqual([body, invalid]);
    }
    expect(await tags()).toEqual([]);
    await change({ frame_ids: at(0), add: ["x".repeat(64), "%_'\"\\ 夜"] });
    expect(await tags()).toHaveLength(2);
  });

  it("are put on by annotators, on frames that there are", async () => {
    await newClip();
    const stranger = await team.stranger();
    const body = { frame_ids: at(0), add: ["night"] };
    expect(await refusal(body, team.viewer)).toEqual([403, "forbidden"]);
    expect(await refusal(body, stranger)).toEqual(missing);
    expect(await stranger.refused("GET", `/projects/${projectId}/tags`)).toEqual(missing);
    expect(await refusal({ ...body, frame_ids: at(0, 10) })).toEqual(missing);
    const { project_id: theirs, workspace_id: workspaceId } = await newProject(stranger);
    const their = await addClip(team.world, { projectId: theirs, workspaceId }, "their.mp4");
    const mixed = { ...body, frame_ids: [...at(0), frameId(their, 0)] };
    expect(await refusal(mixed)).toEqual(missing);
    expect(await tags()).toEqual([]);
    // Of two workspaces each has its own spelling.
    await change({ frame_ids: [frameId(their, 0)], add: ["NIGHT"] }, stranger);
    await change({ frame_ids: [...at(0), ...at(1)], add: ["night"] });
    expect(await tags()).toEqual([["night", 2]]);
    await team.world.visionDatabase.execute(sql`
      UPDATE video SET state = 'failed', failure = 'no video' WHERE id = ${clip}::uuid`);
    expect(await refusal(body)).toEqual([409, "state_conflict"]);
  });

  it("filter the frames of a job, also those of edits of many", async () => {
    await newClip();
    const jobId = await newJob([0, 1, 2, 3]);
    await change({ frame_ids: at(1, 2, 7), add: ["Night"] });
    await change({ frame_ids: at(2, 3), add: ["rain"] });
    const found = async (query: string) => (await framesOf(jobId, query)).map(({ index }) => index);
    expect(await found("?tag=night")).toEqual([1, 2]);
    expect(await found("?tag=NIGHT,%20rain,night")).toEqual([2]);
    expect(await found("?tag=night&from_index=2")).toEqual([2]);
    expect(await found("?tag=snow")).toEqual([]);
    for (const wrong of ["", ",", "a,", "a%0Ab"]) {
      const path = `/jobs/${jobId}/frames?tag=${wrong}`;
      expect([wrong, await team.viewer.refused("GET", path)]).toEqual([wrong, invalid]);
    }
    const review = { reviewed: true, filter: { tags: ["night"] } };
    const path = `/jobs/${jobId}/frames/review`;
    expect(await annotator.ok("POST", path, review)).toEqual({ changed: 2 });
    expect(await found("?reviewed=true")).toEqual([1, 2]);
    const assign = { labeler_id: annotator.id, filter: { tags: ["RAIN", "night"] } };
    const assigned = await annotator.ok("POST", `/jobs/${jobId}/frames/assign`, assign);
    expect(assigned).toEqual({ changed: 1, kept: 0 });
    for (const filter of [{ tags: [] }, { tags: ["a,b"] }, { tags: ["a"], frame_ids: at(0) }]) {
      expect(await annotator.refused("POST", path, { reviewed: true, filter })).toEqual(invalid);
    }
  });
});
