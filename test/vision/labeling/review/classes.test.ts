// Names of classes: one class to people is one class of the job, by every way that a class comes to
// be; and a class that an edit added goes with the edit.

import { beforeAll, describe, expect, it } from "vitest";
import {
  type Annotation,
  AnnotationPage,
  Change,
  type Job,
  JobClass,
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
import { createWorld } from "../../../support/world.ts";

const exists = [409, "class_exists"];
const invalid = [422, "invalid_request"];
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
  const world = await createWorld({ services: ["console", "vision"] });
  admin = await register(world);
  node = await scriptedNode(world, admin, { probe: probeAs({ frames: 2 }), label: found });
  projectId = (await newProject(admin)).project_id;
  videoId = (await uploadVideo(admin, projectId)).video_id;
  await node.work();
});

const label = (prompts: string[]) => ({ project_id: projectId, video_ids: [videoId], prompts });
async function labeled(): Promise<string> {
  const body = label(["person", "car"]);
  const { job_id: id } = await admin.ok<{ job_id: string }>("POST", "/label", body);
  await node.work();
  return id;
}
const names = async (id: string) =>
  JobClass.array()
    .parse(await admin.ok("GET", `/jobs/${id}/classes?all=true`))
    .map((one) => one.class);
const all = async (id: string) =>
  AnnotationPage.parse(await admin.ok("GET", `/jobs/${id}/annotations`)).items;
const drawn = (id: string, className: string) => ({
  job_id: id,
  frame_id: frameId(videoId, 0),
  class: className,
  bbox: [1, 1, 9, 9],
});
const draw = (id: string, className: string) =>
  admin.ok<Annotation>("POST", "/annotations", drawn(id, className));
const newestChange = async (id: string) =>
  Change.array().parse(await admin.ok("GET", `/jobs/${id}/changes`))[0] as Change;
const undo = (change: Pick<Change, "change_id">) =>
  admin.ok("POST", `/changes/${change.change_id}/undo`);
const undoNewest = async (id: string) => undo(await newestChange(id));

describe("a class that differs from another in nothing but case or composition", () => {
  it("is refused by the name of the other, however it would come to be", async () => {
    const id = await labeled();
    await draw(id, "\u00e9t\u00e9");
    const [one] = (await all(id)) as [Annotation];
    const requests = (name: string): [string, string, object][] => [
      ["POST", "/annotations", drawn(id, name)],
      ["PATCH", `/annotations/${one.annotation_id}`, { class: name }],
      ["POST", `/jobs/${id}/annotations/relabel`, { class: name, filter: {} }],
      ["POST", "/annotations/merge-classes", { job_id: id, from: "car", into: name }],
      ["POST", `/jobs/${id}/add-class`, { class: name, prompt: "dog" }],
    ];
    for (const [method, path, body] of [...requests("PERSON"), ...requests("E\u0301T\u00c9")]) {
      const answer = await admin.send(method, path, body);
      const existing = JSON.stringify(body).includes("PERSON") ? "person" : "\u00e9t\u00e9";
      expect([path, body, answer.status, await answer.json()]).toMatchObject([
        path,
        body,
        409,
        { code: "class_exists", class: existing, detail: `the job has a class "${existing}"` },
      ]);
    }
    expect(await names(id)).toEqual(["person", "car", "\u00e9t\u00e9"]);
  });

  it("is refused in one request for a new job, and in an import", async () => {
    expect(await admin.refused("POST", "/label", label(["person", "Person"]))).toEqual(invalid);
    const categories = [
      { id: 1, name: "dog" },
      { id: 2, name: "Dog" },
    ];
    const images = [{ id: 1, file_name: "clip_000000.jpg" }];
    const coco = { images, categories, annotations: [] };
    const answer = await admin.send("POST", "/import", { project_id: projectId, coco });
    expect([answer.status, await answer.json()]).toMatchObject([
      422,
      { detail: '"dog" and "Dog" are one class; give one of them' },
    ]);
    const yolo = { names: ["a", "A"], labels: { clip_000000: "0 0.5 0.5 0.1 0.1" } };
    const import_ = { project_id: projectId, yolo };
    expect(await admin.refused("POST", "/import", import_)).toEqual(invalid);
    const trimmed = { ...yolo, names: ["a ", " e\u0301"] };
    const body = { project_id: projectId, yolo: trimmed };
    const { job } = await admin.ok<{ job: Job }>("POST", "/import", body);
    expect(await names(job.job_id)).toEqual(["a", "\u00e9"]);
  });

  it("is the class itself where its case is what is changed, or blanks are around it", async () => {
    const id = await labeled();
    const rename = { job_id: id, from: "person", into: "Person" };
    await admin.ok("POST", "/annotations/merge-classes", rename);
    expect(await names(id)).toEqual(["Person", "car"]);
    await undoNewest(id);
    expect((await draw(id, "  person\n")).class).toBe("person");
    expect(await names(id)).toEqual(["person", "car"]);
  });

  it("takes back what an undone deletion brings, and keeps its name from an undone renaming", async () => {
    const id = await labeled();
    await admin.ok("DELETE", `/jobs/${id}/classes/car`);
    const deletion = await newestChange(id);
    await draw(id, "Car");
    expect(await undo(deletion)).toEqual({ restored: 2, kept: 0 });
    expect(await names(id)).toEqual(["person", "Car"]);
    const rename = { job_id: id, from: "Car", into: "vehicle" };
    await admin.ok("POST", "/annotations/merge-classes", rename);
    const renaming = await newestChange(id);
    await draw(id, "car");
    await undo(renaming);
    expect(await names(id)).toEqual(["person", "vehicle", "car"]);
  });

  it("is made once of many names at once", async () => {
    const id = await labeled();
    const answers = await Promise.all(
      ["dog", "Dog", "DOG", "dog"].map((name) =>
        admin.send("POST", "/annotations", drawn(id, name)),
      ),
    );
    expect(answers.filter(({ status }) => ![201, 409].includes(status))).toEqual([]);
    expect(await names(id)).toHaveLength(3);
  });
});

describe("the undoing of an edit that added a class", () => {
  it.each([
    ["a drawing", (id: string) => draw(id, "dog")],
    [
      "a relabeling",
      async (id: string) => {
        const [one] = await all(id);
        await admin.ok("PATCH", `/annotations/${one?.annotation_id}`, { class: "dog" });
      },
    ],
    [
      "a relabeling of many",
      (id: string) =>
        admin.ok("POST", `/jobs/${id}/annotations/relabel`, { class: "dog", filter: {} }),
    ],
  ])("takes the class of %s back, which comes anew after that", async (_, edit) => {
    const id = await labeled();
    await edit(id);
    expect((await newestChange(id)).summary).toMatchObject({ added: { name: "dog" } });
    expect(await names(id)).toEqual(["person", "car", "dog"]);
    await undoNewest(id);
    expect(await names(id)).toEqual(["person", "car"]);
    await edit(id);
    await undoNewest(id);
    expect(await names(id)).toEqual(["person", "car"]);
  });

  it("takes it back too when what was drawn was edited, and the edit undone", async () => {
    const id = await labeled();
    const { annotation_id: one } = await draw(id, "dog");
    const drawing = await newestChange(id);
    await admin.ok("PATCH", `/annotations/${one}`, { bbox: [2, 2, 8, 8] });
    const moving = await newestChange(id);
    expect(await undo(moving)).toEqual({ restored: 1, kept: 0 });
    expect(await undo(drawing)).toEqual({ restored: 1, kept: 0 });
    expect(await names(id)).toEqual(["person", "car"]);
  });

  it("leaves the class where something else is of it, or may be again", async () => {
    const id = await labeled();
    await draw(id, "dog");
    const first = await newestChange(id);
    const { annotation_id: second } = await draw(id, "dog");
    await undo(first);
    expect(await names(id)).toEqual(["person", "car", "dog"]);
    const other = await labeled();
    await draw(other, "dog");
    const drawing = await newestChange(other);
    const { annotation_id: gone } = await draw(other, "dog");
    await admin.ok("DELETE", `/annotations/${gone}`);
    const deletion = await newestChange(other);
    await undo(drawing);
    expect(await undo(deletion)).toEqual({ restored: 1, kept: 0 });
    expect((await all(other)).filter((one) => one.class === "dog")).toHaveLength(1);
    expect(second).not.toBe(gone);
  });

  it("leaves the class that somebody renamed since", async () => {
    const id = await labeled();
    await draw(id, "dog");
    const drawing = await newestChange(id);
    const rename = { job_id: id, from: "dog", into: "hound" };
    await admin.ok("POST", "/annotations/merge-classes", rename);
    await undo(drawing);
    expect(await names(id)).toEqual(["person", "car", "hound"]);
    expect(await admin.refused("POST", "/annotations", drawn(id, "Hound"))).toEqual(exists);
  });
});
