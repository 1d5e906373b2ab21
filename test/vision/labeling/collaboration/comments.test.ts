// Comments on annotations: who may write, edit, resolve and delete them, how they are listed, and
// that they outlive their annotation.

import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, it } from "vitest";
import type { Bbox } from "../../../../shared/tasks/tasks.ts";
import { AnnotationComment, AnnotationCommentPage } from "../../../../shared/wire/collaboration.ts";
import type { Person } from "../../../support/scripted-node.ts";
import { createTeamWorld, type TeamWorld } from "../../../support/team-world.ts";

const invalid = [422, "invalid_request"];
const forbidden = [403, "forbidden"];
const missing = [404, "not_found"];
const BOX: Bbox = [10, 10, 50, 50];

let team: TeamWorld;
let jobId: string;
/** Annotations of clip 0, on frames 1 and 2. */
let annotations: [string, string];

beforeAll(async () => {
  team = await createTeamWorld();
});

/** A job of two boxes. */
async function newJob() {
  jobId = await team.job([
    [0, 1, "cat", BOX],
    [0, 2, "cat", BOX],
  ]);
  const [first, second] = (await team.annotationsOf(jobId)).map((one) => one.annotation_id);
  annotations = [first as string, second as string];
}

const say = async (person: Person, text: string, annotation = annotations[0]) =>
  AnnotationComment.parse(await person.ok("POST", `/annotations/${annotation}/comments`, { text }));
const listed = async (query = "", person = team.viewer) =>
  AnnotationCommentPage.parse(await person.ok("GET", `/jobs/${jobId}/comments${query}`));
const texts = async (query = "") => (await listed(query)).items.map(({ text }) => text);
const edit = async (person: Person, { comment_id: id }: AnnotationComment, body: object) =>
  AnnotationComment.parse(await person.ok("PATCH", `/comments/${id}`, body));

describe("a comment", () => {
  it("is of its annotation, frame and author, and is shown to viewers", async () => {
    await newJob();
    const made = await say(team.annotator, "  is this a cat?\n ");
    expect(made).toEqual({
      comment_id: made.comment_id,
      job_id: jobId,
      annotation_id: annotations[0],
      frame_id: `${team.clips[0]}.1`,
      text: "is this a cat?",
      author_id: team.annotator.id,
      created_at: made.created_at,
      updated_at: made.created_at,
      resolved_at: null,
      resolved_by: null,
    });
    expect(await listed()).toEqual({ items: [made], total: 1, offset: 0, limit: 100 });
  });

  it("has a text of 1 to 2000 characters that Postgres can store", async () => {
    await newJob();
    const path = `/annotations/${annotations[0]}/comments`;
    expect((await say(team.annotator, "x".repeat(2_000))).text).toHaveLength(2_000);
    for (const text of ["", " \n ", "x".repeat(2_001), "a\0b", "\ud800", 7, null, undefined]) {
      expect([text, await team.annotator.refused("POST", path, { text })]).toEqual([text, invalid]);
    }
    const more = { text: "x", resolved: true };
    expect(await team.annotator.refused("POST", path, more)).toEqual(invalid);
    expect(await texts()).toHaveLength(1);
  });

  it("is listed by annotation, frame and state, in pages, oldest first", async () => {
    await newJob();
    const one = await say(team.annotator, "one");
    await say(team.other, "two", annotations[1]);
    await say(team.engineer, "three");
    await edit(team.other, one, { resolved: true });
    expect(await texts()).toEqual(["one", "two", "three"]);
    expect(await texts(`?annotation_id=${annotations[0]}`)).toEqual(["one", "three"]);
    expect(await texts(`?frame_id=${team.clips[0]}.2`)).toEqual(["two"]);
    expect(await texts("?resolved=true")).toEqual(["one"]);
    expect(await texts("?resolved=false")).toEqual(["two", "three"]);
    expect(await texts(`?annotation_id=${annotations[0]}&resolved=false`)).toEqual(["three"]);
    expect(await listed("?limit=1&offset=1")).toMatchObject({
      items: [{ text: "two" }],
      total: 3,
      offset: 1,
      limit: 1,
    });
    expect(await texts(`?annotation_id=${randomUUID()}`)).toEqual([]);
    for (const query of ["?limit=0", "?limit=501", "?resolved=1", "?frame_id=x", "?text=one"]) {
      expect(await team.viewer.refused("GET", `/jobs/${jobId}/comments${query}`)).toEqual(invalid);
    }
  });

  it("has its text changed by its author only", async () => {
    await newJob();
    const made = await say(team.annotator, "before");
    const path = `/comments/${made.comment_id}`;
    const same = await edit(team.annotator, made, { text: "before" });
    expect(same).toEqual(made);
    const changed = await edit(team.annotator, made, { text: " after " });
    expect(changed.text).toBe("after");
    expect(Date.parse(changed.updated_at)).toBeGreaterThan(Date.parse(made.updated_at));
    for (const person of [team.other, team.engineer, team.admin, team.viewer]) {
      expect(await person.refused("PATCH", path, { text: "mine" })).toEqual(forbidden);
      const both = { text: "mine", resolved: true };
      expect(await person.refused("PATCH", path, both)).toEqual(forbidden);
    }
    expect((await listed()).items).toEqual([changed]);
    // Null is what is not given.
    expect(await edit(team.other, made, { text: null })).toEqual(changed);
    expect(await team.annotator.refused("PATCH", path, { text: " " })).toEqual(invalid);
  });

  it("is resolved by annotators, keeps who did so first, and is opened again", async () => {
    await newJob();
    const made = await say(team.annotator, "a question");
    const path = `/comments/${made.comment_id}`;
    expect(await team.viewer.refused("PATCH", path, { resolved: true })).toEqual(forbidden);
    const resolved = await edit(team.other, made, { resolved: true });
    expect(resolved).toEqual({
      ...made,
      resolved_at: resolved.resolved_at,
      resolved_by: team.other.id,
    });
    expect(resolved.resolved_at).not.toBeNull();
    expect(await edit(team.engineer, made, { resolved: true })).toEqual(resolved);
    expect(await edit(team.annotator, made, { resolved: false })).toEqual(made);
    const all = await Promise.all(
      [team.annotator, team.other, team.engineer].map((one) => edit(one, made, { resolved: true })),
    );
    expect(new Set(all.map((one) => one.resolved_by)).size).toBe(1);
  });

  it("is deleted by its author or an admin, once", async () => {
    await newJob();
    const [one, two] = [await say(team.annotator, "one"), await say(team.annotator, "two")];
    for (const person of [team.other, team.engineer, team.viewer]) {
      expect(await person.refused("DELETE", `/comments/${one.comment_id}`)).toEqual(forbidden);
    }
    await team.annotator.ok("DELETE", `/comments/${one.comment_id}`);
    await team.admin.ok("DELETE", `/comments/${two.comment_id}`);
    expect(await texts()).toEqual([]);
    for (const [method, body] of [["DELETE"], ["PATCH", { resolved: true }]] as const) {
      const path = `/comments/${one.comment_id}`;
      expect(await team.annotator.refused(method, path, body)).toEqual(missing);
    }
  });
});

describe("a comment of a job", () => {
  it("outlives the deletion of its annotation, and its return", async () => {
    await newJob();
    const made = await say(team.annotator, "delete it?");
    const path = `/annotations/${annotations[0]}`;
    const { change_id } = await team.admin.ok<{ change_id: string }>("DELETE", path);
    expect((await listed()).items).toEqual([made]);
    // An annotation that is gone takes no more comments; those that it has are still resolved.
    const more = { text: "done" };
    expect(await team.annotator.refused("POST", `${path}/comments`, more)).toEqual(missing);
    const resolved = await edit(team.annotator, made, { resolved: true });
    await team.admin.ok("POST", `/changes/${change_id}/undo`);
    expect(await texts(`?annotation_id=${annotations[0]}`)).toEqual(["delete it?"]);
    await say(team.annotator, "it is back");
    expect((await listed()).items[0]).toEqual(resolved);
  });

  it("is not copied with its job, and goes with it", async () => {
    await newJob();
    const made = await say(team.annotator, "of the first");
    const path = `/jobs/${jobId}/duplicate`;
    const { job_id: copy } = await team.engineer.ok<{ job_id: string }>("POST", path);
    expect(await team.viewer.ok("GET", `/jobs/${copy}/comments`)).toMatchObject({ total: 0 });
    await team.engineer.ok("DELETE", `/jobs/${jobId}`);
    const comment = `/comments/${made.comment_id}`;
    expect(await team.annotator.refused("PATCH", comment, { resolved: true })).toEqual(missing);
  });

  it("is written by annotators, and is nobody's of another workspace", async () => {
    await newJob();
    const made = await say(team.annotator, "ours");
    const path = `/annotations/${annotations[0]}/comments`;
    expect(await team.viewer.refused("POST", path, { text: "x" })).toEqual(forbidden);
    const stranger = await team.stranger();
    for (const [method, where, body] of [
      ["POST", path, { text: "x" }],
      ["GET", `/jobs/${jobId}/comments`, undefined],
      ["PATCH", `/comments/${made.comment_id}`, { resolved: true }],
      ["DELETE", `/comments/${made.comment_id}`, undefined],
    ] as const) {
      const refused = await stranger.refused(method, where, body);
      expect([method, where, ...refused]).toEqual([method, where, ...missing]);
    }
    expect(await texts()).toEqual(["ours"]);
  });
});
