// Random sequences of edits, over HTTP. Goal: taken back one after another, newest first, they pass
// through every state that there was before; taken back in any other order, nothing fails, and no
// two classes of a job are one to people. A failure names its seed; SEED= runs it again.

import fc from "fast-check";
import { beforeAll, expect, it } from "vitest";
import type { Detection } from "../../../../shared/tasks/tasks.ts";
import {
  type Annotation,
  AnnotationPage,
  Change,
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

const RUNS = Number(process.env.RUNS ?? 12);
const seed = process.env.SEED ? { seed: Number(process.env.SEED) } : {};
const FRAMES = 6;
let admin: Person;
let node: ScriptedNode;
let template: string;
let videoId: string;

const detection = (class_name: string, x: number, confidence: number): Detection => ({
  class_name,
  confidence,
  bbox: [x, 10, x + 50, 60],
  polygon: [x, 10, x + 50, 10, x + 50, 60],
  duplicate_of: null,
});
/** A person on each frame but 2 and 3, a car on each. */
const found = labelAs((index) => [
  ...(index === 2 || index === 3 ? [] : [detection("person", 10, 0.5 + index / 20)]),
  detection("car", 200, 0.6),
]);

beforeAll(async () => {
  const world = await createWorld({ services: ["console", "vision"] });
  admin = await register(world);
  node = await scriptedNode(world, admin, { probe: probeAs({ frames: FRAMES }), label: found });
  const projectId = (await newProject(admin)).project_id;
  videoId = (await uploadVideo(admin, projectId)).video_id;
  await node.work();
  const body = { project_id: projectId, video_ids: [videoId], prompts: ["person", "car"] };
  template = (await admin.ok<{ job_id: string }>("POST", "/label", body)).job_id;
  await node.work();
  // Keyframes at both ends, so that tracks can be interpolated.
  for (const index of [0, FRAMES - 1]) {
    const filter = { frame_id: frameId(videoId, index) };
    const path = `/jobs/${template}/annotations/review`;
    await admin.ok("POST", path, { accepted: true, filter });
  }
});

const listed = async (id: string) =>
  AnnotationPage.parse(await admin.ok("GET", `/jobs/${id}/annotations?limit=1000&min_confidence=0`))
    .items;
/** All that people see of a job's annotations and classes, but for what every edit raises. */
async function stateOf(id: string) {
  const classes = JobClass.array().parse(await admin.ok("GET", `/jobs/${id}/classes?all=true`));
  const annotations = (await listed(id)).map(({ revision, updated_at, ...rest }) => rest);
  return { classes, annotations };
}

const className = fc.constantFrom("person", "car", "dog", "Dog", "hound");
const index = fc.nat(FRAMES - 1);
const track = fc.integer({ min: 1, max: 3 });
const some = fc.nat(40);
/** An edit by its kind and what it is about; annotations by their position in the listing. */
const Edit = fc.oneof(
  fc.record({
    kind: fc.constant("draw" as const),
    index,
    className,
    track: fc.option(track, { nil: undefined }),
  }),
  fc.record({ kind: fc.constant("move" as const), some, polygon: fc.boolean() }),
  fc.record({ kind: fc.constant("judge" as const), some, accepted: fc.boolean() }),
  fc.record({ kind: fc.constant("class" as const), some, className }),
  fc.record({ kind: fc.constant("delete" as const), some }),
  fc.record({ kind: fc.constant("review" as const), accepted: fc.boolean(), all: fc.boolean() }),
  fc.record({ kind: fc.constant("relabel" as const), from: className, className }),
  fc.record({ kind: fc.constant("delete-many" as const), index }),
  fc.record({ kind: fc.constant("merge" as const), from: className, className }),
  fc.record({ kind: fc.constant("delete-class" as const), className }),
  fc.record({ kind: fc.constant("split" as const), track, index }),
  // A part that was split off, mostly.
  fc.record({
    kind: fc.constant("merge-tracks" as const),
    track: fc.constantFrom(3, 4),
    into: fc.constantFrom(1, 2),
  }),
  fc.record({ kind: fc.constant("interpolate" as const), track }),
);
type Edit = typeof Edit extends fc.Arbitrary<infer Value> ? Value : never;

/** The request of an edit, to a job of these annotations. */
function requestOf(id: string, edit: Edit, items: readonly Annotation[]) {
  const job = `/jobs/${id}`;
  const position = "some" in edit ? edit.some % Math.max(items.length, 1) : 0;
  const one = `/annotations/${items[position]?.annotation_id ?? crypto.randomUUID()}`;
  const ofVideo = { video_id: videoId };
  switch (edit.kind) {
    case "draw": {
      const frame_id = frameId(videoId, edit.index);
      const box = [300, 10, 340 + edit.index, 60];
      const body = { job_id: id, frame_id, class: edit.className, bbox: box, track_id: edit.track };
      return ["POST", "/annotations", body] as const;
    }
    case "move": {
      const shape = edit.polygon ? { polygon: [5, 5, 90, 5, 5, 70] } : { bbox: [3, 4, 50, 60] };
      return ["PATCH", one, shape] as const;
    }
    case "judge":
      return ["PATCH", one, { accepted: edit.accepted }] as const;
    case "class":
      return ["PATCH", one, { class: edit.className }] as const;
    case "delete":
      return ["DELETE", one] as const;
    case "review": {
      const body = { accepted: edit.accepted, include_reviewed: edit.all };
      return ["POST", `${job}/annotations/review`, body] as const;
    }
    case "relabel": {
      const body = { class: edit.className, filter: { class_name: edit.from } };
      return ["POST", `${job}/annotations/relabel`, body] as const;
    }
    case "delete-many":
      return ["POST", `${job}/annotations/delete`, { filter: { from_index: edit.index } }] as const;
    case "merge": {
      const body = { job_id: id, from: edit.from, into: edit.className };
      return ["POST", "/annotations/merge-classes", body] as const;
    }
    case "delete-class":
      return ["DELETE", `${job}/classes/${edit.className}`] as const;
    case "split": {
      const body = { ...ofVideo, track_id: edit.track, index: edit.index };
      return ["POST", `${job}/tracks/split`, body] as const;
    }
    case "merge-tracks": {
      const body = { ...ofVideo, track_id: edit.track, into: edit.into };
      return ["POST", `${job}/tracks/merge`, body] as const;
    }
    case "interpolate":
      return ["POST", `${job}/tracks/interpolate`, { ...ofVideo, track_id: edit.track }] as const;
  }
}

const copyOf = async () =>
  (await admin.ok<{ job_id: string }>("POST", `/jobs/${template}/duplicate`)).job_id;
const changesOf = async (id: string) =>
  Change.array().parse(await admin.ok("GET", `/jobs/${id}/changes`));

/** Makes edits; returns what each one that changed something is called, and the state before it. */
async function edited(id: string, edits: readonly Edit[]) {
  const made: { change: string; kind: string; before: Awaited<ReturnType<typeof stateOf>> }[] = [];
  const known = new Set<string>();
  for (const edit of edits) {
    const before = await stateOf(id);
    const [method, path, body] = requestOf(id, edit, await listed(id));
    const answer = await admin.send(method, path, body);
    expect([edit, answer.status]).toEqual([edit, expect.toSatisfy((status) => status < 500)]);
    for (const { change_id: change, kind } of await changesOf(id)) {
      if (known.has(change)) continue;
      known.add(change);
      made.push({ change, kind, before });
    }
  }
  return made;
}

it("come back to every state that there was, newest first", async () => {
  const kinds = new Map<string, number>();
  const property = fc.asyncProperty(
    fc.array(Edit, { minLength: 4, maxLength: 12 }),
    async (edits) => {
      const id = await copyOf();
      const made = await edited(id, edits);
      for (const { change, kind, before } of made.toReversed()) {
        const undone = await admin.ok("POST", `/changes/${change}/undo`);
        expect([kind, undone]).toMatchObject([kind, { kept: 0 }]);
        expect([kind, await stateOf(id)]).toEqual([kind, before]);
        kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
      }
    },
  );
  await fc.assert(property, { ...seed, numRuns: RUNS });
  process.stdout.write(`undone: ${JSON.stringify(Object.fromEntries(kinds))}\n`);
}, 600_000);

it("come back in any order without a fault, and without two classes that are one", async () => {
  const property = fc.asyncProperty(
    fc.array(Edit, { minLength: 4, maxLength: 10 }),
    fc.infiniteStream(fc.double({ min: 0, max: 1, noNaN: true })),
    async (edits, dice) => {
      const id = await copyOf();
      const made = (await edited(id, edits))
        .map((one) => [dice.next().value, one] as const)
        .toSorted(([left], [right]) => left - right);
      for (const [, { change }] of made) await admin.ok("POST", `/changes/${change}/undo`);
      const { classes } = await stateOf(id);
      const names = classes.map((one) => one.class.toLowerCase());
      expect(new Set(names).size).toBe(names.length);
    },
  );
  await fc.assert(property, { ...seed, numRuns: RUNS });
}, 600_000);
