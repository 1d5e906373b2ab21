// Batches of edits. Goal: whatever comes twice, late or at once, each edit is applied once or is
// answered in conflict, gone or refused, and undoing all of it restores the start. A failure names
// its seed; SEED= runs it again.

import { sql } from "drizzle-orm";
import fc from "fast-check";
import { beforeAll, describe, expect, it } from "vitest";
import { KEPT_EDITS } from "../../../../edge/vision/labeling/review/batch-rows.ts";
import { systemClock } from "../../../../shared/time.ts";
import { type EditResult, EditsAnswer } from "../../../../shared/wire/edits.ts";
import {
  type Annotation,
  AnnotationPage,
  Change,
  Job,
  JobClass,
} from "../../../../shared/wire/labeling.ts";
import { frameId } from "../../../../shared/wire/vision.ts";
import { forgetRows } from "../../../support/retention.ts";
import {
  colleague,
  labelAs,
  newProject,
  type Person,
  probeAs,
  register,
  scriptedNode,
  uploadVideo,
} from "../../../support/scripted-node.ts";
import { createWorld, DAY, type World } from "../../../support/world.ts";

const RUNS = Number(process.env.RUNS ?? 8);
const seed = process.env.SEED ? { seed: Number(process.env.SEED) } : {};
const FRAMES = 6;
let world: World;
let admin: Person;
let projectId: string;
let template: string;
let videoId: string;

beforeAll(async () => {
  world = await createWorld({ services: ["console", "vision"] });
  admin = await register(world);
  const label = labelAs(() =>
    [10, 200].map((x, index) => ({
      class_name: index === 0 ? "person" : "car",
      confidence: 0.6,
      bbox: [x, 10, x + 50, 60] as [number, number, number, number],
      polygon: [x, 10, x + 50, 10, x + 50, 60],
      duplicate_of: null,
    })),
  );
  const node = await scriptedNode(world, admin, { probe: probeAs({ frames: FRAMES }), label });
  projectId = (await newProject(admin)).project_id;
  videoId = (await uploadVideo(admin, projectId)).video_id;
  await node.work();
  const body = { project_id: projectId, video_ids: [videoId], prompts: ["person", "car"] };
  template = (await admin.ok<{ job_id: string }>("POST", "/label", body)).job_id;
  await node.work();
});

const uuid = () => crypto.randomUUID();
const copyOf = async () =>
  (await admin.ok<{ job_id: string }>("POST", `/jobs/${template}/duplicate`)).job_id;
const listed = async (id: string) =>
  AnnotationPage.parse(await admin.ok("GET", `/jobs/${id}/annotations?limit=1000&min_confidence=0`))
    .items;
const changesOf = async (id: string) =>
  Change.array().parse(await admin.ok("GET", `/jobs/${id}/changes`));
const classesOf = async (id: string) =>
  JobClass.array().parse(await admin.ok("GET", `/jobs/${id}/classes?all=true`));

interface SentEdit {
  edit_id: string;
  op: string;
  annotation_id: string;
  revision?: number;
  fields?: Record<string, unknown>;
}
const create = (annotation_id: string, fields: object = {}): SentEdit => ({
  edit_id: uuid(),
  op: "create",
  annotation_id,
  fields: { frame_id: frameId(videoId, 0), class: "person", bbox: [1, 2, 30, 40], ...fields },
});
const set = (
  annotation_id: string,
  revision: number,
  fields: Record<string, unknown>,
): SentEdit => ({
  edit_id: uuid(),
  op: "set",
  annotation_id,
  revision,
  fields,
});
const remove = (annotation_id: string, revision: number): SentEdit => ({
  edit_id: uuid(),
  op: "delete",
  annotation_id,
  revision,
});

const batch = async (id: string, edits: readonly SentEdit[], person: Person = admin) =>
  EditsAnswer.parse(await person.ok("POST", `/jobs/${id}/edits`, { edits }));
const sent = async (id: string, ...edits: SentEdit[]) => (await batch(id, edits)).results;
const statuses = (results: readonly EditResult[]) => results.map(({ status }) => status);
const one = async (id: string) => admin.ok<Annotation>("GET", `/annotations/${id}`);

describe("a batch of edits", () => {
  it("is applied in order, as one change that is undone as one", async () => {
    const id = await copyOf();
    const start = await listed(id);
    const [first, second, third] = start as [Annotation, Annotation, Annotation];
    const drawn = uuid();
    const edits = [
      set(first.annotation_id, 1, { accepted: true }),
      set(first.annotation_id, 2, { class: "dog", polygon: null }),
      create(drawn, { class: "hound", track_id: 77 }),
      set(drawn, 1, { bbox: [5, 6, 70, 80], track_id: null }),
      remove(second.annotation_id, 1),
      set(third.annotation_id, 1, { polygon: [5, 5, 90, 5, 5, 70], accepted: false }),
    ];
    const before = Job.parse(await admin.ok("GET", `/jobs/${id}`)).edits_seq;
    const answer = await batch(id, edits);
    const [change] = await changesOf(id);
    const change_id = change?.change_id;
    expect(answer.results).toEqual(
      [2, 3, 1, 2, 1, 2].map((revision, index) => ({
        edit_id: edits[index]?.edit_id,
        status: "applied",
        revision,
        change_id,
      })),
    );
    expect(answer.after_seq).toBe(before);
    expect(answer.edits_seq).toBe(Job.parse(await admin.ok("GET", `/jobs/${id}`)).edits_seq);
    expect(change).toMatchObject({ kind: "edit", annotations: 4, actor_id: admin.id });
    expect(change?.summary).toMatchObject({ edits: 6 });
    expect(await one(first.annotation_id)).toMatchObject({
      accepted: true,
      class: "dog",
      polygon: null,
      revision: 3,
      bbox: first.bbox,
      keyframe: false,
      source: "model",
    });
    expect(await one(drawn)).toMatchObject({
      class: "hound",
      bbox: [5, 6, 70, 80],
      accepted: true,
      track_id: null,
      revision: 2,
      keyframe: true,
      source: "person",
      confidence: null,
    });
    expect(await one(third.annotation_id)).toMatchObject({
      bbox: [5, 5, 90, 70],
      polygon: [5, 5, 90, 5, 5, 70],
      keyframe: true,
      accepted: false,
    });
    expect((await listed(id)).map((row) => row.annotation_id)).not.toContain(second.annotation_id);

    const undone = await admin.ok("POST", `/changes/${change_id}/undo`);
    expect(undone).toEqual({ restored: 4, kept: 0 });
    const plain = (rows: readonly Annotation[]) =>
      rows.map(({ revision, updated_at, ...rest }) => rest);
    expect(plain(await listed(id))).toEqual(plain(start));
    // Both classes that the batch added went with it.
    expect((await classesOf(id)).map((row) => row.class)).toEqual(["person", "car"]);
  });

  it("is answered as then when it comes again, also at once, and is applied once", async () => {
    const id = await copyOf();
    const [first] = (await listed(id)) as [Annotation];
    const drawn = uuid();
    const edits = [create(drawn), set(drawn, 1, { class: "car" }), remove(first.annotation_id, 1)];
    const answers = await Promise.all([1, 2, 3, 4].map(() => batch(id, edits)));
    for (const { results } of answers) expect(results).toEqual(answers[0]?.results);
    expect(statuses(answers[0]?.results ?? [])).toEqual(["applied", "applied", "applied"]);
    expect(await changesOf(id)).toHaveLength(1);
    expect(await one(drawn)).toMatchObject({ revision: 2, class: "car" });
    // Late, after others edited; and within one request.
    await sent(id, set(drawn, 2, { accepted: null }));
    expect(await sent(id, ...edits)).toEqual(answers[0]?.results);
    const twice = set(drawn, 3, { accepted: true });
    const [left, right] = await sent(id, twice, twice);
    expect([left, left?.status]).toEqual([right, "applied"]);
    expect(await one(drawn)).toMatchObject({ revision: 4 });
  });

  it("tells of each edit that does not fit, and applies the others", async () => {
    const id = await copyOf();
    const [first, second] = (await listed(id)) as [Annotation, Annotation];
    const taken = uuid();
    await sent(id, create(taken, { track_id: 5 }));
    const own = first.annotation_id;
    const cases: [SentEdit, object][] = [
      [set(own, 7, { accepted: true }), { status: "conflict", current: { annotation_id: own } }],
      [create(taken), { status: "conflict", current: { annotation_id: taken, revision: 1 } }],
      [set(uuid(), 1, { accepted: true }), { status: "gone" }],
      [remove(uuid(), 1), { status: "gone" }],
      [create(uuid(), { bbox: [700, 1, 800, 9] }), { code: "invalid_request" }],
      [create(uuid(), { bbox: [9, 9, 9, 20] }), { code: "invalid_request" }],
      [create(uuid(), { bbox: undefined }), { code: "invalid_request" }],
      [create(uuid(), { class: "PERSON" }), { code: "class_exists" }],
      [create(uuid(), { class: " " }), { code: "invalid_request" }],
      [create(uuid(), { class: "a\u0000b" }), { code: "invalid_request" }],
      [create(uuid(), { class: "x".repeat(300) }), { code: "invalid_request" }],
      [create(uuid(), { frame_id: frameId(videoId, FRAMES) }), { code: "not_found" }],
      [create(uuid(), { frame_id: frameId(uuid(), 0) }), { code: "not_found" }],
      [create(uuid(), { frame_id: "none" }), { code: "invalid_request" }],
      [create(uuid(), { track_id: 5 }), { code: "state_conflict" }],
      [
        create(uuid(), { track_id: 5, class: "car", frame_id: frameId(videoId, 1) }),
        { code: "state_conflict" },
      ],
      [create(uuid(), { track_id: 0.5 }), { code: "invalid_request" }],
      [set(own, 1, {}), { code: "invalid_request" }],
      [set(own, 1, { polygon: [1, 1, 2, 2, 3] }), { code: "invalid_request" }],
      [set(own, 1, { polygon: [1, 1, 5, 5, 9, 9] }), { code: "invalid_request" }],
      [set(own, 1, { bbox: [1, 1, 1e30, 1e30] }), { status: "applied", revision: 2 }],
      [set(second.annotation_id, 1, { track_id: 5 }), { code: "state_conflict" }],
      [create(uuid(), { track_id: 5, frame_id: frameId(videoId, 1) }), { status: "applied" }],
    ];
    const results = await sent(id, ...cases.map(([edit]) => edit));
    expect(results).toMatchObject(
      cases.map(([{ edit_id }, answer]) => ({
        edit_id,
        status: "refused",
        ...answer,
      })),
    );
    expect((await classesOf(id)).map((row) => row.class)).toEqual(["person", "car"]);
    // What was refused or late is no edit that was applied: set right, it comes again.
    const [late] = cases[0] as [SentEdit, object];
    expect(await sent(id, { ...late, revision: 2 })).toMatchObject([{ status: "applied" }]);
  });

  it("does not draw on the id of another job's annotation, or edit it", async () => {
    const id = await copyOf();
    const [other] = (await listed(template)) as [Annotation];
    const results = await sent(id, create(other.annotation_id), remove(other.annotation_id, 1));
    expect(results).toMatchObject([
      { status: "refused", code: "state_conflict" },
      { status: "gone" },
    ]);
    expect(await one(other.annotation_id)).toEqual(other);
  });

  it("draws again what it deleted, as another change", async () => {
    const id = await copyOf();
    const [first] = (await listed(id)) as [Annotation];
    const { annotation_id: own } = first;
    const brief = uuid();
    const results = await sent(
      id,
      ...[create(brief), remove(brief, 1), create(brief, { class: "car" })],
      ...[remove(own, 1), create(own), set(own, 1, { accepted: false })],
    );
    expect(statuses(results)).toEqual(Array(6).fill("applied"));
    expect(await changesOf(id)).toHaveLength(2);
    expect(await one(own)).toMatchObject({ revision: 2, accepted: false, bbox: [1, 2, 30, 40] });
    expect(await one(brief)).toMatchObject({ class: "car", revision: 1 });
    for (const { change_id } of await changesOf(id)) {
      expect(await admin.ok("POST", `/changes/${change_id}/undo`)).toMatchObject({ kept: 0 });
    }
    expect(await listed(id)).toHaveLength((await listed(template)).length);
  });

  it("is refused whole where it is malformed", async () => {
    const edit = create(uuid());
    for (const edits of [
      ...[[], Array.from({ length: 501 }, () => create(uuid()))],
      ...[[edit, { ...edit, annotation_id: uuid() }], [{ ...edit, op: "move" }]],
      ...[[{ ...edit, more: 1 }], [{ ...edit, edit_id: "1" }], [set(uuid(), -1, {})]],
      ...[
        [{ ...remove(uuid(), 1), revision: undefined }],
        [create(uuid(), { color: "red" })],
        [create(uuid(), { bbox: [1, 1, 1e300, 9] })],
      ],
    ]) {
      const refused = await admin.refused("POST", `/jobs/${template}/edits`, { edits });
      expect([refused, edits.length]).toEqual([[422, "invalid_request"], edits.length]);
    }
  });

  it("is for annotators of the job's workspace", async () => {
    const body = { edits: [create(uuid())] };
    const viewer = await colleague(world, admin, "viewer");
    const path = `/jobs/${template}/edits`;
    expect(await viewer.refused("POST", path, body)).toEqual([403, "forbidden"]);
    expect(await admin.refused("POST", `/jobs/${uuid()}/edits`, body)).toEqual([404, "not_found"]);
    const annotator = await colleague(world, admin, "annotator");
    const [done] = (await batch(await copyOf(), [create(uuid())], annotator)).results;
    expect(done?.status).toBe("applied");
  });

  it("takes 500 edits", async () => {
    const id = await copyOf();
    const ids = Array.from({ length: 500 }, uuid);
    const frame = (index: number) => ({ frame_id: frameId(videoId, index % FRAMES) });
    const made = await sent(id, ...ids.map((own, index) => create(own, frame(index))));
    expect(new Set(statuses(made))).toEqual(new Set(["applied"]));
    const accepts = ids.map((own) => set(own, 1, { accepted: null }));
    const begun = performance.now();
    expect(new Set(statuses(await sent(id, ...accepts)))).toEqual(new Set(["applied"]));
    process.stdout.write(`500 edits: ${Math.round(performance.now() - begun)} ms\n`);
    expect(await listed(id)).toHaveLength(500 + (await listed(template)).length);
  });

  it("is known for 90 days", async () => {
    const id = await copyOf();
    const edit = create(uuid());
    await sent(id, edit);
    const { visionDatabase: database } = world;
    const later = (days: number) => ({ database, clock: () => systemClock() + days * DAY });
    await forgetRows(later(89), KEPT_EDITS);
    expect(statuses(await sent(id, edit))).toEqual(["applied"]);
    await forgetRows(later(91), KEPT_EDITS);
    expect(statuses(await sent(id, edit))).toEqual(["conflict"]);
  });
});

const some = fc.nat(6);
/** An edit by what it is about; annotations by position, revisions as their client believes. */
const Step = fc.oneof(
  fc.record({ op: fc.constant("create" as const), some, class: fc.constantFrom("car", "dog") }),
  fc.record({ op: fc.constant("judge" as const), some, accepted: fc.boolean() }),
  fc.record({ op: fc.constant("move" as const), some, x: fc.integer({ min: 1, max: 90 }) }),
  fc.record({ op: fc.constant("class" as const), some, class: fc.constantFrom("dog", "Dog") }),
  fc.record({ op: fc.constant("delete" as const), some }),
);
const Client = fc.array(fc.array(Step, { minLength: 1, maxLength: 5 }), {
  minLength: 1,
  maxLength: 4,
});
/** What becomes of a batch on its way: sent, sent twice at once, again at the end, or lost. */
const Way = fc.constantFrom("once", "twice", "late", "lost");

it("is applied once or told why not, in any interleaving of two clients", async () => {
  const property = fc.asyncProperty(
    fc.tuple(Client, Client),
    fc.infiniteStream(Way),
    async (clients, ways) => {
      const id = await copyOf();
      const start = await listed(id);
      const ids = [...start.slice(0, 5).map((row) => row.annotation_id), uuid(), uuid()];
      const applied = new Map<string, EditResult>();
      const take = (results: readonly EditResult[]) => {
        for (const result of results) {
          if (result.status !== "applied") continue;
          // Whenever an edit is answered as applied, it is the same answer.
          expect(applied.get(result.edit_id) ?? result).toEqual(result);
          applied.set(result.edit_id, result);
        }
      };
      const late: SentEdit[][] = [];
      const play = async (batches: (typeof clients)[0]) => {
        /** What the client believes of revisions. */
        const known = new Map(ids.map((own) => [own, 1]));
        for (const steps of batches) {
          const edits = steps.map((step) => {
            const own = ids[step.some] ?? "";
            const seen = known.get(own) ?? 1;
            if (step.op === "create") return create(own, { class: step.class });
            if (step.op === "delete") return remove(own, seen);
            known.set(own, seen + 1);
            if (step.op === "judge") return set(own, seen, { accepted: step.accepted });
            if (step.op === "class") return set(own, seen, { class: step.class });
            return set(own, seen, { bbox: [step.x, 1, step.x + 20, 30] });
          });
          const way = ways.next().value;
          if (way === "late") late.push(edits);
          if (way === "lost") {
            const stop = AbortSignal.timeout(1);
            // Whether the service had it by then nobody knows.
            await fetch(`${world.urls.vision}/api/v1/jobs/${id}/edits`, {
              method: "POST",
              headers: {
                Authorization: `Bearer ${admin.token}`,
                "Content-Type": "application/json",
              },
              body: JSON.stringify({ edits }),
              signal: stop,
            }).catch(() => null);
            late.push(edits);
            continue;
          }
          const answers = await Promise.all(
            (way === "twice" ? [1, 2] : [1]).map(() => sent(id, ...edits)),
          );
          for (const results of answers) {
            take(results);
            for (const [index, result] of results.entries()) {
              const own = edits[index]?.annotation_id ?? "";
              if (result.status === "applied") known.set(own, result.revision);
              if (result.status === "conflict") known.set(own, result.current.revision);
            }
          }
        }
      };
      await Promise.all(clients.map(play));
      for (const edits of late.toReversed()) take(await sent(id, ...edits));

      // What the log says was done is what was answered: each edit once, in one change.
      const changes = await changesOf(id);
      const done = changes.reduce((sum, { summary }) => sum + Number(summary.edits), 0);
      expect(done).toBe(applied.size);
      const named = [...applied.values()].map(
        (result) => "change_id" in result && result.change_id,
      );
      expect(new Set(named)).toEqual(new Set(changes.map(({ change_id }) => change_id)));
      const { rows } = await world.visionDatabase.execute<{ count: number }>(sql`
        SELECT count(*)::int AS count FROM applied_edit WHERE job_id = ${id}::uuid`);
      expect(rows[0]?.count).toBe(applied.size);

      for (const { change_id } of changes) {
        expect(await admin.ok("POST", `/changes/${change_id}/undo`)).toMatchObject({ kept: 0 });
      }
      const plain = (all: readonly Annotation[]) =>
        all.map(({ revision, updated_at, ...rest }) => rest);
      expect(plain(await listed(id))).toEqual(plain(start));
      expect((await classesOf(id)).map((row) => row.class)).toEqual(["person", "car"]);
    },
  );
  await fc.assert(property, { ...seed, numRuns: RUNS });
}, 600_000);
