// Tracks as people mend them: split, merged, filled between keyframes; each edit refused where it
// would make nonsense, and undone to what was.

import { beforeAll, describe, expect, it } from "vitest";
import type { Detection } from "../../../../shared/tasks/tasks.ts";
import { Annotation, AnnotationPage } from "../../../../shared/wire/labeling.ts";
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
import { createWorld } from "../../../support/world.ts";

const FRAMES = 12;
const invalid = [422, "invalid_request"];
let admin: Person;
let viewer: Person;
let node: ScriptedNode;
let projectId: string;
let videoId: string;

const detection = (class_name: string, x: number, confidence = 0.7): Detection => ({
  class_name,
  confidence,
  bbox: [x, 10, x + 50, 60],
  polygon: [x, 10, x + 50, 10, x + 50, 60],
  duplicate_of: null,
});
/** A person on frames 0 to 3 and 8 to 11, far apart; a car on 0 and 1. On 2 the person is faint. */
const found = labelAs((index) => [
  ...(index < 4 ? [detection("person", 10, index === 2 ? 0.3 : 0.7)] : []),
  ...(index >= 8 ? [detection("person", 400)] : []),
  ...(index < 2 ? [detection("car", 200)] : []),
]);

beforeAll(async () => {
  const world = await createWorld({ services: ["console", "vision"] });
  admin = await register(world);
  viewer = await colleague(world, admin, "viewer");
  node = await scriptedNode(world, admin, { probe: probeAs({ frames: FRAMES }), label: found });
  projectId = (await newProject(admin)).project_id;
  videoId = (await uploadVideo(admin, projectId)).video_id;
  await node.work();
});

async function labeled(): Promise<string> {
  const body = { project_id: projectId, video_ids: [videoId], prompts: ["person", "car"] };
  const { job_id: id } = await admin.ok<{ job_id: string }>("POST", "/label", body);
  await node.work();
  return id;
}
const all = async (id: string, query = "") =>
  AnnotationPage.parse(
    await viewer.ok("GET", `/jobs/${id}/annotations?limit=1000&min_confidence=0${query}`),
  ).items;
const content = async (id: string) =>
  (await all(id)).map(({ revision, updated_at, ...rest }) => rest);
const indexOf = ({ frame_id: id }: Annotation) => Number(id.split(".")[1]);
/** The frames of each track. */
const tracks = async (id: string) => {
  const byTrack = Map.groupBy(await all(id), ({ track_id }) => track_id);
  return Object.fromEntries([...byTrack].map(([track, own]) => [track, own.map(indexOf)]));
};
const edit = (id: string, what: string, body: object) =>
  admin.ok<{ change_id: string; changed: number; track_id?: number }>(
    "POST",
    `/jobs/${id}/tracks/${what}`,
    { video_id: videoId, ...body },
  );
const refused = (id: string, what: string, body: object) =>
  admin.refused("POST", `/jobs/${id}/tracks/${what}`, { video_id: videoId, ...body });
const undo = (changeId: string) => admin.ok("POST", `/changes/${changeId}/undo`);
const draw = (id: string, index: number, more: object) => ({
  job_id: id,
  frame_id: frameId(videoId, index),
  class: "person",
  bbox: [210, 10, 260, 60],
  ...more,
});
const TRACKS = { 1: [0, 1, 2, 3], 2: [8, 9, 10, 11], 3: [0, 1] };

describe("a track", () => {
  it("is split at a frame and merged again, and both are undone", async () => {
    const id = await labeled();
    expect(await tracks(id)).toEqual(TRACKS);
    const before = await content(id);
    const split = await edit(id, "split", { track_id: 1, index: 2 });
    expect(split).toMatchObject({ changed: 2, track_id: 4 });
    expect(await tracks(id)).toEqual({ ...TRACKS, 1: [0, 1], 4: [2, 3] });
    const merged = await edit(id, "merge", { track_id: 4, into: 2 });
    expect(merged.changed).toBe(2);
    expect(await tracks(id)).toEqual({ ...TRACKS, 1: [0, 1], 2: [2, 3, 8, 9, 10, 11] });
    await undo(merged.change_id);
    await undo(split.change_id);
    expect(await content(id)).toEqual(before);
  });

  it("is split or merged no other way", async () => {
    const id = await labeled();
    const absent = [404, "not_found"];
    const clash = [409, "state_conflict"];
    for (const [what, body, answer] of [
      ["split", { track_id: 1, index: 0 }, invalid],
      ["split", { track_id: 1, index: 4 }, invalid],
      ["split", { track_id: 9, index: 2 }, absent],
      ["split", { track_id: 1, index: 2, video_id: crypto.randomUUID() }, absent],
      ["merge", { track_id: 1, into: 1 }, invalid],
      ["merge", { track_id: 1, into: 9 }, absent],
      ["merge", { track_id: 9, into: 1 }, absent],
      ["merge", { track_id: 3, into: 1 }, clash],
      ["merge", { track_id: 3, into: 2 }, clash],
      ["interpolate", { track_id: 9 }, absent],
      ["interpolate", { track_id: 1 }, invalid],
    ] as const) {
      expect([what, body, await refused(id, what, body)]).toEqual([what, body, answer]);
    }
    const body = { video_id: videoId, track_id: 1, index: 2 };
    const path = `/jobs/${id}/tracks/split`;
    expect(await viewer.refused("POST", path, body)).toEqual([403, "forbidden"]);
    expect(await tracks(id)).toEqual(TRACKS);
    const label = { project_id: projectId, video_ids: [videoId], prompts: ["person"] };
    const running = await admin.ok<{ job_id: string }>("POST", "/label", label);
    for (const what of ["split", "merge", "interpolate"] as const) {
      const some = { split: { index: 2 }, merge: { into: 2 }, interpolate: {} }[what];
      const answer = await refused(running.job_id, what, { track_id: 1, ...some });
      expect([what, ...answer]).toEqual([what, ...clash]);
    }
    await node.work();
  });

  it("is continued by hand, by one box a frame and of its class", async () => {
    const id = await labeled();
    const drawn = await admin.ok("POST", "/annotations", draw(id, 5, { track_id: 1 }));
    expect(Annotation.parse(drawn)).toMatchObject({ track_id: 1, keyframe: true });
    for (const [index, more] of [
      [5, { track_id: 1 }],
      [6, { track_id: 1, class: "car" }],
      [6, { track_id: 1, class: "dog" }],
    ] as const) {
      const answer = await admin.refused("POST", "/annotations", draw(id, index, more));
      expect(answer).toEqual([409, "state_conflict"]);
    }
    const names = (await admin.ok<{ class: string }[]>("GET", `/jobs/${id}/classes?all=true`)).map(
      (one) => one.class,
    );
    expect(names).toEqual(["person", "car"]);
  });
});

describe("interpolation", () => {
  it("fills the frames between keyframes on a line, moves what nobody judged, and is undone", async () => {
    const id = await labeled();
    const own = async () => (await all(id, `&video_id=${videoId}&track_id=1`)).slice(0);
    const [first, second] = (await own()) as [Annotation, Annotation];
    // Keyframes: frame 0, which a person sets, and frame 10, which a person draws.
    const path = `/annotations/${first.annotation_id}`;
    await admin.ok("PATCH", path, { bbox: [10, 10, 60, 60] });
    await admin.ok("POST", "/annotations", draw(id, 10, { track_id: 1 }));
    // What was rejected is no keyframe, and stays where it is.
    await admin.ok("PATCH", `/annotations/${second.annotation_id}`, { accepted: false });
    const before = await content(id);
    const filled = await edit(id, "interpolate", { track_id: 1 });
    // Frames 2 and 3 move, frames 4 to 9 are made.
    expect(filled.changed).toBe(8);
    const after = await own();
    expect(after.map(indexOf)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    for (const one of after.filter((_, index) => index > 1 && index < 10)) {
      const x = 10 + 20 * indexOf(one);
      expect(one).toMatchObject({
        bbox: [x, 10, x + 50, 60],
        source: "interpolated",
        keyframe: false,
        accepted: null,
        confidence: null,
        polygon: null,
        class: "person",
      });
    }
    expect(after[1]).toMatchObject({ bbox: [10, 10, 60, 60], accepted: false, source: "model" });
    const again = await edit(id, "interpolate", { track_id: 1 });
    expect(again).toEqual({ change_id: null, changed: 0 });
    await undo(filled.change_id);
    expect(await content(id)).toEqual(before);
    const some = await edit(id, "interpolate", { track_id: 1, from_index: 5, to_index: 7 });
    expect(some.changed).toBe(2);
  });

  it("goes through an accepted box, and leaves what was corrected since to its corrector", async () => {
    const id = await labeled();
    const boxes = await all(id, `&video_id=${videoId}&track_id=1`);
    for (const one of [boxes[0], boxes[3]] as [Annotation, Annotation]) {
      await admin.ok("PATCH", `/annotations/${one.annotation_id}`, { accepted: true });
    }
    const filled = await edit(id, "interpolate", { track_id: 1 });
    expect(filled.changed).toBe(2);
    await admin.ok("PATCH", `/annotations/${boxes[1]?.annotation_id}`, { bbox: [1, 1, 9, 9] });
    expect(await undo(filled.change_id)).toEqual({ restored: 1, kept: 1 });
    const now = await all(id, `&video_id=${videoId}&track_id=1`);
    expect(now.map(({ source }) => source)).toEqual(["model", "interpolated", "model", "model"]);
  });
});
