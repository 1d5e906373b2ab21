// Review where it is easily wrong: classes that went and came back, edits that undo each other, two
// people at once, and boxes, texts and numbers that do not fit.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import {
  type Annotation,
  AnnotationPage,
  Change,
  JobClass,
  JobProgress,
  Overview,
  Stats,
} from "../../../../shared/wire/labeling.ts";
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

const FRAMES = 4;
let world: World;
let admin: Person;
let node: ScriptedNode;
let projectId: string;
let videoId: string;

/** One box of each class on each frame. */
const found = labelAs((_, prompts) =>
  prompts.map(({ class_name }, index) => ({
    class_name,
    confidence: 0.7,
    polygon: null,
    duplicate_of: null,
    bbox: [100 * index, 10, 100 * index + 50, 90],
  })),
);

beforeAll(async () => {
  world = await createWorld({ services: ["console", "vision"] });
  admin = await register(world);
  node = await scriptedNode(world, admin, { probe: probeAs({ frames: FRAMES }), label: found });
  projectId = (await newProject(admin)).project_id;
  videoId = (await uploadVideo(admin, projectId)).video_id;
  await node.work();
});

async function begun(): Promise<string> {
  const body = { project_id: projectId, video_ids: [videoId], prompts: ["person", "car"] };
  return (await admin.ok<{ job_id: string }>("POST", "/label", body)).job_id;
}
async function labeled(): Promise<string> {
  const id = await begun();
  await node.work();
  return id;
}
const all = async (id: string) =>
  AnnotationPage.parse(await admin.ok("GET", `/jobs/${id}/annotations?limit=1000`)).items;
const counts = async (id: string) =>
  JobClass.array()
    .parse(await admin.ok("GET", `/jobs/${id}/classes`))
    .map((one) => [one.class, one.index, one.annotations]);
const newestChange = async (id: string) => {
  const [newest] = Change.array().parse(await admin.ok("GET", `/jobs/${id}/changes`));
  return newest as Change;
};
const undo = (change: { change_id: string }) =>
  admin.ok("POST", `/changes/${change.change_id}/undo`);
const draw = (id: string, more: object = {}) => ({
  job_id: id,
  frame_id: frameId(videoId, 0),
  class: "dog",
  bbox: [1, 1, 9, 9],
  ...more,
});
const merge = (id: string, from: string, into: string) =>
  admin.ok("POST", "/annotations/merge-classes", { job_id: id, from, into });
const invalid = [422, "invalid_request"];

describe("a class that was deleted", () => {
  it("comes back as itself, whatever class was made meanwhile", async () => {
    const id = await labeled();
    await admin.ok("DELETE", `/jobs/${id}/classes/car`);
    const deletion = await newestChange(id);
    await admin.ok("POST", "/annotations", draw(id));
    expect(await undo(deletion)).toEqual({ restored: FRAMES, kept: 0 });
    expect(await counts(id)).toEqual([
      ["person", 0, FRAMES],
      ["car", 1, FRAMES],
      ["dog", 2, 1],
    ]);
  });

  it("comes back into a class that has its name by now", async () => {
    const id = await labeled();
    await admin.ok("DELETE", `/jobs/${id}/classes/car`);
    const deletion = await newestChange(id);
    await admin.ok("POST", "/annotations", draw(id, { class: "car" }));
    expect(await undo(deletion)).toEqual({ restored: FRAMES, kept: 0 });
    expect((await all(id)).filter((one) => one.class === "car")).toHaveLength(FRAMES + 1);
  });

  it("keeps what an older undo would put back into it", async () => {
    const id = await labeled();
    const [car, other] = (await all(id)).filter((one) => one.class === "car") as [
      Annotation,
      Annotation,
    ];
    await admin.ok("PATCH", `/annotations/${car.annotation_id}`, { class: "person" });
    const edit = await newestChange(id);
    await admin.ok("DELETE", `/annotations/${other.annotation_id}`);
    const removal = await newestChange(id);
    await admin.ok("DELETE", `/jobs/${id}/classes/car`);
    expect(await undo(edit)).toEqual({ restored: 0, kept: 1 });
    expect(await undo(removal)).toEqual({ restored: 0, kept: 1 });
    expect(await counts(id)).toEqual([["person", 0, FRAMES + 1]]);
  });

  it("leaves the others' places in exports without a gap", async () => {
    const id = await labeled();
    await admin.ok("DELETE", `/jobs/${id}/classes/person`);
    expect(await counts(id)).toEqual([["car", 0, FRAMES]]);
  });
});

describe("classes of a job", () => {
  it("are renamed, and the rename is undone", async () => {
    const id = await labeled();
    expect(await merge(id, "car", "vehicle")).toMatchObject({ changed: FRAMES });
    const rename = await newestChange(id);
    expect(rename).toMatchObject({ kind: "rename-class", undone_at: null });
    await undo(rename);
    expect((await counts(id)).map(([name]) => name)).toEqual(["person", "car"]);
  });

  it("are merged together, renamed and unmerged, each undone in any order", async () => {
    const id = await labeled();
    await merge(id, "car", "person");
    const merged = await newestChange(id);
    await merge(id, "person", "thing");
    expect(await undo(merged)).toEqual({ restored: FRAMES, kept: 0 });
    expect(await counts(id)).toEqual([
      ["thing", 0, FRAMES],
      ["car", 1, FRAMES],
    ]);
  });

  it("stay as they are while the job runs, so that late results find them", async () => {
    const id = await begun();
    const asked = { job_id: id, from: "car", into: "vehicle" };
    const early = [409, "state_conflict"];
    expect(await admin.refused("POST", "/annotations/merge-classes", asked)).toEqual(early);
    expect(await admin.refused("DELETE", `/jobs/${id}/classes/car`)).toEqual(early);
    await node.work();
    expect(await counts(id)).toHaveLength(2);
  });

  it("are not made by a request that is refused", async () => {
    const id = await labeled();
    const absent = draw(id, { frame_id: frameId(videoId, FRAMES) });
    expect(await admin.refused("POST", "/annotations", absent)).toEqual([404, "not_found"]);
    const [one] = (await all(id)) as [Annotation];
    const path = `/annotations/${one.annotation_id}`;
    const late = { class: "dog", revision: one.revision + 7 };
    expect(await admin.refused("PATCH", path, late)).toEqual([409, "revision_conflict"]);
    expect((await counts(id)).map(([name]) => name)).toEqual(["person", "car"]);
  });

  it("are made once by people who name them at once", async () => {
    const id = await labeled();
    const names = ["a", "b", "c", "a", "b", "c"];
    await Promise.all(
      names.map((name) => admin.ok("POST", "/annotations", draw(id, { class: name }))),
    );
    const made = (await counts(id)).slice(2);
    expect(new Set(made.map(([name]) => name))).toEqual(new Set(["a", "b", "c"]));
    expect(made.map(([, , count]) => count)).toEqual([2, 2, 2]);
  });

  it("survive edits of all sorts at once, without an error", async () => {
    const id = await labeled();
    const [one] = (await all(id)) as [Annotation];
    const review = (accepted: boolean) =>
      admin.send("POST", `/jobs/${id}/annotations/review`, { accepted });
    const answers = await Promise.all([
      ...[review(true), review(false), review(true)],
      admin.send("POST", "/annotations/merge-classes", { job_id: id, from: "car", into: "person" }),
      ...[1, 2, 3].map(() => admin.send("POST", "/annotations", draw(id, { class: "car" }))),
      admin.send("PATCH", `/annotations/${one.annotation_id}`, { class: "car" }),
      admin.send("DELETE", `/jobs/${id}/classes/car`),
    ]);
    expect(answers.map(({ status }) => status).filter((status) => status >= 500)).toEqual([]);
  });
});

describe("a copy of a job", () => {
  it("is as done as the job is", async () => {
    const id = await labeled();
    const { job_id: copy } = await admin.ok<{ job_id: string }>("POST", `/jobs/${id}/duplicate`);
    const status = JobProgress.parse(await admin.ok("GET", `/status/${copy}`));
    expect(status).toMatchObject({ status: "completed", progress: 1, frames_done: FRAMES });
    const overview = Overview.parse(await admin.ok("GET", `/jobs/${copy}/overview`));
    expect(overview.labeled_percentage).toBe(100);
  });
});

describe("statistics", () => {
  it("count a confidence in the bin that begins with it", async () => {
    const id = await labeled();
    const histogram = async () => {
      const stats = Stats.parse(await admin.ok("GET", `/jobs/${id}/stats`));
      return stats.confidence_histogram.filter(({ count }) => count > 0).map(({ from }) => from);
    };
    expect(await histogram()).toEqual([0.7]);
    await world.visionDatabase.execute(sql`
      UPDATE annotation SET confidence = 1 WHERE job_id = ${id}::uuid`);
    expect(await histogram()).toEqual([0.95]);
  });

  it("count what has no confidence in a bin of its own", async () => {
    const id = await labeled();
    await world.visionDatabase.execute(sql`
      UPDATE annotation SET confidence = NULL WHERE id IN (
        SELECT id FROM annotation WHERE job_id = ${id}::uuid ORDER BY id LIMIT 2)`);
    const stats = Stats.parse(await admin.ok("GET", `/jobs/${id}/stats`));
    const { confidence_histogram: histogram } = stats;
    expect(histogram.at(-1)).toEqual({ from: null, to: null, count: 2 });
    expect(histogram.at(-2)).toEqual({ from: 0.95, to: 1, count: 0 });
    const sum = histogram.reduce((total, { count }) => total + count, 0);
    expect(sum).toBe(stats.annotation_count);
    const own = stats.per_class.map((one) => one.confidence_histogram.at(-1)?.count ?? 0);
    expect(own.reduce((total, count) => total + count, 0)).toBe(2);
  });
});

describe("what does not fit", () => {
  it("is cut to the frame when a box is moved, and refused when nothing is left", async () => {
    const id = await labeled();
    const [one] = (await all(id)) as [Annotation];
    const path = `/annotations/${one.annotation_id}`;
    const moved = await admin.ok("PATCH", path, { bbox: [-50, 300, 100, 9e300] });
    expect(moved).toMatchObject({ bbox: [0, 300, 100, 360] });
    for (const bbox of [
      ...[
        [700, 10, 800, 20],
        [-9, 1, 0, 5],
        [1e-60, 1, 1e-59, 5],
        [100, 1, 100.0000001, 5],
      ],
      ...[
        [1, 2, 3],
        [1, 2, 3, "4"],
        [5, 1, 1, 5],
      ],
    ]) {
      expect([bbox, ...(await admin.refused("PATCH", path, { bbox }))]).toEqual([bbox, ...invalid]);
    }
    expect(await admin.refused("PATCH", path, { accepted: true, revision: 1e12 })).toEqual(invalid);
  });

  it.each([
    { bbox: [100, 1, 100.0000001, 5] },
    { polygon: [1, 1, 5, 1, 5] },
    { polygon: [1, 1, 5, 1, 5, 5, 7] },
    { class: "\ud800" },
    { class: "a\0b" },
    { class: "" },
  ])("is refused as %j of a drawn one", async (more) => {
    const id = await labeled();
    expect(await admin.refused("POST", "/annotations", draw(id, more))).toEqual(invalid);
  });

  it("is refused as a text that no database holds", async () => {
    const id = await labeled();
    const label = { project_id: projectId, video_ids: [videoId], prompts: ["person"] };
    expect(await admin.refused("PATCH", `/jobs/${id}`, { description: "a\0b" })).toEqual(invalid);
    expect(await admin.refused("PATCH", `/jobs/${id}`, { name: "\udc00" })).toEqual(invalid);
    const described = { ...label, description: "a\0b" };
    expect(await admin.refused("POST", "/label", described)).toEqual(invalid);
    expect(await admin.send("PATCH", `/jobs/${id}`, { threshold: 1e-60 })).toMatchObject({
      status: 200,
    });
  });

  it("is not a null, which is what is not given", async () => {
    const id = await labeled();
    const [first] = await all(id);
    const drawn = { job_id: id, frame_id: frameId(videoId, 0), class: "person" };
    const box = { ...drawn, bbox: [10, 10, 60, 60], polygon: null, track_id: null };
    expect(await admin.send("POST", "/annotations", box)).toMatchObject({ status: 201 });
    const edit = { bbox: null, class: null, revision: null, accepted: true };
    const path = `/annotations/${first?.annotation_id}`;
    const edited = await admin.ok<Annotation>("PATCH", path, edit);
    expect(edited).toMatchObject({ bbox: first?.bbox, class: first?.class, accepted: true });
    const nameless = { name: null, description: null };
    const { name } = await admin.ok<{ name: string }>("GET", `/jobs/${id}`);
    expect(await admin.ok("PATCH", `/jobs/${id}`, nameless)).toMatchObject({ name });
    const project = await admin.ok<object>("PATCH", `/projects/${projectId}`, nameless);
    expect(project).toMatchObject({ project_id: projectId });
  });

  it("is refused as a text that is longer than any name", async () => {
    const id = await labeled();
    const long = "n".repeat(201);
    for (const path of [`/jobs/${id}/annotations?class_name=${long}`, `/models?name=${long}`]) {
      expect(await admin.refused("GET", path)).toEqual(invalid);
    }
  });

  it("is refused as a filter that a bulk edit does not know", async () => {
    const id = await labeled();
    const body = { accepted: false, filter: { class: "car" } };
    expect(await admin.refused("POST", `/jobs/${id}/annotations/review`, body)).toEqual(invalid);
    expect((await all(id)).filter(({ accepted }) => accepted === false)).toEqual([]);
  });

  it("is refused as a point or an example that lies outside its frame", async () => {
    const frame_id = frameId(videoId, 0);
    const points = { frame_id, points: [{ x: 641, y: 5, label: 1 }] };
    expect(await admin.refused("POST", "/label/segment-points", points)).toEqual(invalid);
    const exemplars = [{ frame_id, bbox: [700, 1, 720, 20] }];
    const body = { project_id: projectId, video_ids: [videoId], exemplars };
    expect(await admin.refused("POST", "/label/exemplar", body)).toEqual(invalid);
  });
});
