// Crops of annotations in workerd, with a scripted node. Goal: what a node cut while it labeled is
// read by few reads, what lacks is asked for once, and no pack of a stranger, of a lost attempt or
// of a deleted job is ever shown.

import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import { readCropAnswer } from "../../../../shared/crop-answer.ts";
import { CROP_PACK_BYTES_MAX, type Crop, writeCropPack } from "../../../../shared/crop-pack.ts";
import type { ClaimedTask } from "../../../../shared/tasks/node-protocol.ts";
import { type Bbox, TASK_KINDS, type TaskPayload } from "../../../../shared/tasks/tasks.ts";
import { type Annotation, AnnotationPage } from "../../../../shared/wire/labeling.ts";
import { frameId } from "../../../../shared/wire/vision.ts";
import {
  type Api,
  apiAs,
  colleague,
  labelAs,
  newProject,
  type Person,
  probeAs,
  SCRIPTED,
  type ScriptedNode,
  scriptedNode,
  uploadVideo,
} from "../../../support/scripted-node.ts";
import { newTenant, register as registerPerson } from "../../../support/vision.ts";
import { createWorld, type World } from "../../../support/world.ts";

const FRAMES = 40;
let world: World;
let founder: Awaited<ReturnType<typeof registerPerson>>;
let admin: Person;
let node: ScriptedNode;
let projectId: string;
let videoId: string;
let jobId: string;
/** What the node writes for packs; null: nothing. */
let packing: ((crops: Crop[]) => Uint8Array) | null;
/** `crops` tasks as the node got them. */
let asked: TaskPayload<"crops">[];

const boxOf = (frame: number, which: number): Bbox => [frame + 0.1, 10 * which, frame + 50, 90];
/** A JPEG, by its first bytes, that names its frame and box. */
const jpegOf = (frame: number, bbox: readonly number[]): Uint8Array =>
  Uint8Array.from([
    ...[0xff, 0xd8, 0xff],
    ...new TextEncoder().encode([frame, ...bbox.map(Math.fround)].join(" ")),
  ]);
const cropOf = (frame: number, bbox: Bbox): Crop => ({ frame, bbox, jpeg: jpegOf(frame, bbox) });

const labels = labelAs((frame) =>
  [0, 1].map((which) => ({
    class_name: "person",
    bbox: boxOf(frame, which),
    confidence: 0.9,
    polygon: null,
    duplicate_of: null,
  })),
);
async function label(task: ClaimedTask, by: ScriptedNode) {
  const { crops, frames } = TASK_KINDS.label.payload.parse(task.payload);
  const made = frames.flatMap((frame) => [0, 1].map((one) => cropOf(frame, boxOf(frame, one))));
  if (crops && packing) await by.write(task, { key: crops.key }, packing(made));
  return labels(task);
}
async function cut(task: ClaimedTask, by: ScriptedNode) {
  const payload = TASK_KINDS.crops.payload.parse(task.payload);
  asked.push(payload);
  for (const { boxes, pack } of payload.videos) {
    const made = boxes.map(({ frame_index, bbox }) => cropOf(frame_index, bbox));
    if (packing) await by.write(task, { key: pack.key }, packing(made));
  }
  return { packed: payload.videos.map(({ video_id }) => video_id), left_out: 0 };
}

beforeAll(async () => {
  world = await createWorld({ services: ["console", "vision"] });
  founder = await registerPerson(world.urls.vision);
  admin = { ...apiAs(world.urls.vision, founder.tokens.access_token), ...founder };
  node = await scriptedNode(world, admin, {
    probe: probeAs({ frames: FRAMES }),
    label,
    crops: cut,
  });
  projectId = (await newProject(admin)).project_id;
  videoId = (await uploadVideo(admin, projectId)).video_id;
  await node.work();
});
beforeEach(async () => {
  await world.visionDatabase.execute(sql`UPDATE node SET last_heartbeat_at = now()`);
  await world.visionDatabase.execute(sql`DELETE FROM job`);
  await world.visionDatabase.execute(sql`DELETE FROM task WHERE kind IN ('label', 'crops')`);
  packing = writeCropPack;
  asked = [];
  node.script.crops = cut;
  node.script.label = label;
});

/** A labeled job over the clip's frames. */
async function labeled(): Promise<Annotation[]> {
  const body = { project_id: projectId, video_ids: [videoId], prompts: ["person"] };
  jobId = (await admin.ok<{ job_id: string }>("POST", "/label", body)).job_id;
  await node.work();
  return annotations();
}
/** A job in which people draw one box on each of these frames of videos. */
async function drawn(...frames: [video: string, frame: number][]): Promise<Annotation[]> {
  const video_ids = [...new Set(frames.map(([video]) => video))];
  const body = { project_id: projectId, video_ids };
  jobId = (await admin.ok<{ job_id: string }>("POST", "/jobs", body)).job_id;
  for (const [video, frame] of frames) {
    const one = { job_id: jobId, frame_id: frameId(video, frame), class: "person" };
    await admin.ok("POST", "/annotations", { ...one, bbox: boxOf(frame, 0) });
  }
  return annotations();
}
const annotations = async () =>
  AnnotationPage.parse(await admin.ok("GET", `/jobs/${jobId}/annotations?limit=1000`)).items;
const idsOf = (all: readonly Annotation[]) => all.map(({ annotation_id }) => annotation_id);
const ask = (ids: readonly string[], api: Api = admin, job = jobId) =>
  api.send("POST", `/jobs/${job}/crops`, { annotation_ids: ids });
const crops = async (ids: readonly string[]) => {
  const response = await ask(ids);
  expect(response.status).toBe(200);
  return readCropAnswer(new Uint8Array(await response.arrayBuffer()));
};
const frameOf = ({ frame_id }: Annotation) => Number(frame_id.split(".")[1]);
const expected = (all: readonly Annotation[]) => all.map((one) => jpegOf(frameOf(one), one.bbox));
const packs = async () => {
  const { rows } = await world.visionDatabase.execute<{ key: string; entries: number }>(
    sql`SELECT key, entries FROM crop_pack WHERE job_id = ${jobId}::uuid ORDER BY frames`,
  );
  return rows;
};
const stored = async () =>
  (await world.media.list({ prefix: "ws/" })).objects
    .map(({ key }) => key)
    .filter((key) => key.includes(`/job/${jobId}/crops/`));

describe("a labeled job", () => {
  it("has the crops that were cut while it was labeled, in the order of the ids", async () => {
    const all = await labeled();
    expect(await packs()).toMatchObject([{ entries: 64 }, { entries: 16 }]);
    const some = [all[70], all[3], all[71], all[3], all[0]].filter((one) => one !== undefined);
    expect(await crops(idsOf(some))).toEqual({ crops: expected(some), missing: 0 });
    const strange = [crypto.randomUUID(), ...idsOf(all.slice(0, 1)), crypto.randomUUID()];
    const answer = await crops(strange.map((id) => id.toUpperCase()));
    expect(answer.crops).toEqual([undefined, ...expected(all.slice(0, 1)), undefined]);
    expect(asked).toEqual([]);
    // One object a pack: what attempts wrote is gone.
    expect(await stored()).toEqual((await packs()).map(({ key }) => key).toSorted());
    const response = await ask(idsOf(all.slice(0, 64)));
    expect(response.headers.get("Cache-Control")).toMatch(/private/);
    expect(response.headers.get("Content-Type")).toBe("application/octet-stream");
  });

  it("reads ranges of packs that are large", async () => {
    const padded = (made: Crop[]) =>
      writeCropPack(made.map((crop) => ({ ...crop, jpeg: padding(crop.jpeg) })));
    const padding = (jpeg: Uint8Array) => Uint8Array.from([...jpeg, ...new Uint8Array(40_000)]);
    packing = padded;
    const all = await labeled();
    const some = [0, 1, 40, 62, 63].flatMap((at) => all[at] ?? []);
    const answer = await crops(idsOf(some));
    expect(answer.crops.map((one) => one?.length)).toEqual(
      expected(some).map(({ length }) => length + 40_000),
    );
    expect(answer.crops.map((one) => one?.subarray(0, 12))).toEqual(
      expected(some).map((one) => one.subarray(0, 12)),
    );
  });

  it("gives a box that a person moved its crop after a task, and then no other", async () => {
    const all = await labeled();
    const [first] = all;
    const path = `/annotations/${first?.annotation_id}`;
    await admin.ok("PATCH", path, { bbox: [5, 6, 70, 80.3] });
    const ids = idsOf(all.slice(0, 3));
    const before = await crops(ids);
    expect(before).toEqual({ crops: [null, ...expected(all.slice(1, 3))], missing: 1 });
    // Asked again, it is on its way; nothing else of the job lacks a crop.
    expect((await crops(ids)).missing).toBe(1);
    await node.work();
    expect(asked).toMatchObject([
      { videos: [{ boxes: [{ frame_index: 0, bbox: [5, 6, 70, expect.closeTo(80.3, 4)] }] }] },
    ]);
    expect(await crops(ids)).toEqual({
      crops: [jpegOf(0, [5, 6, 70, 80.3]), ...expected(all.slice(1, 3))],
      missing: 0,
    });
    expect(await node.work()).toEqual([]);
    // Back where it was: the first pack still has it.
    await admin.ok("PATCH", path, { bbox: boxOf(0, 0) });
    expect((await crops(ids)).missing).toBe(0);
  });

  it("is labeled all the same by a node that writes no pack, or one that is none", async () => {
    const others: (typeof packing)[] = [
      null,
      () => new TextEncoder().encode("no pack at all"),
      () => writeCropPack([]),
      () => writeCropPack([cropOf(9_999, boxOf(1, 0))]),
      () => writeCropPack([{ ...cropOf(0, boxOf(0, 0)), jpeg: new TextEncoder().encode("<svg>") }]),
      (made) => Uint8Array.from([...writeCropPack(made), 0]),
      () => new Uint8Array(CROP_PACK_BYTES_MAX + 1),
    ];
    for (const other of others) {
      packing = other;
      const all = await labeled();
      expect(all).toHaveLength(2 * FRAMES);
      expect(await packs()).toEqual([]);
      packing = writeCropPack;
      const ids = idsOf(all.slice(0, 2));
      expect(await crops(ids)).toEqual({ crops: [null, null], missing: 2 });
      await node.work();
      expect((await crops(ids)).crops).toEqual(expected(all.slice(0, 2)));
    }
  });

  it("shows nothing of an attempt that was lost, also when it reports late", async () => {
    const body = { project_id: projectId, video_ids: [videoId], prompts: ["person"] };
    jobId = (await admin.ok<{ job_id: string }>("POST", "/label", body)).job_id;
    const lost = (await node.claim(["label"])) as ClaimedTask;
    packing = () => writeCropPack([{ ...cropOf(0, boxOf(0, 0)), jpeg: JPEG_OF_LOST }]);
    const late = await label(lost, node);
    await world.visionDatabase.execute(sql`
      UPDATE task SET lease_until = now() - interval '1 hour' WHERE state = 'running'`);
    await world.tick(Date.now());
    await world.visionDatabase.execute(
      sql`UPDATE task SET available_at = now() - interval '1 second'`,
    );
    packing = writeCropPack;
    await node.work();
    const response = await node.finish(lost, { outcome: "finished", result: late });
    expect(response.status).toBe(409);
    const all = await annotations();
    expect((await crops(idsOf(all.slice(0, 4)))).crops).toEqual(expected(all.slice(0, 4)));
    expect(await packs()).toHaveLength(2);
  });

  it("keeps the pack of a stopped task, and asks for no crop while its task runs", async () => {
    const body = { project_id: projectId, video_ids: [videoId], prompts: ["person"] };
    jobId = (await admin.ok<{ job_id: string }>("POST", "/label", body)).job_id;
    const task = (await node.claim(["label"])) as ClaimedTask;
    const whole = await label(task, node);
    const result = { ...whole, frames: whole.frames.slice(0, 3) };
    const told = { fence: task.fence, done: 3, total: 32, partial: result };
    await node.api.ok("POST", `/node/tasks/${task.task_id}/progress`, told);
    const all = await annotations();
    // Its pack is on its way with the end of the task.
    expect(await crops(idsOf(all))).toEqual({ crops: all.map(() => null), missing: all.length });
    expect(await node.claim(["crops"])).toBeNull();
    await admin.send("POST", `/jobs/${jobId}/stop`);
    await node.finish(task, { outcome: "cancelled", result });
    expect(await crops(idsOf(all))).toEqual({ crops: expected(all), missing: 0 });
  });
});

const JPEG_OF_LOST = Uint8Array.from([0xff, 0xd8, 0xff, 1, 2, 3]);

describe("what lacks crops", () => {
  it("is cut by one task with what comes next, over frames and images in order", async () => {
    const image = (await uploadVideo(admin, projectId, "image.mp4")).video_id;
    await node.work();
    const all = await drawn([videoId, 30], [videoId, 2], [videoId, 7], [image, 0]);
    const [first] = all.filter((one) => frameOf(one) === 7);
    const answer = await crops([first?.annotation_id ?? ""]);
    expect(answer).toEqual({ crops: [null], missing: 1 });
    await node.work();
    const boxes = asked.map(({ videos }) =>
      videos.map(({ video_id, boxes }) => [video_id, boxes.map(({ frame_index }) => frame_index)]),
    );
    expect(boxes).toEqual([
      [
        [videoId, [7, 30]],
        [image, [0]],
      ],
    ]);
    // The one before it is the only one that lacks now.
    const rest = await crops(idsOf(all));
    expect(rest.missing).toBe(1);
    expect(rest.crops.filter((one) => one === null)).toHaveLength(1);
    await node.work();
    expect((await crops(idsOf(all))).crops).toEqual(expected(all));
    expect(asked).toHaveLength(2);
  });

  it("is asked for once by many at the same time, in a task of 500 boxes at most", async () => {
    const all = await drawn([videoId, 0]);
    await world.visionDatabase.execute(sql`
      INSERT INTO annotation (id, workspace_id, job_id, video_id, frame_index, class_number,
        x1, y1, x2, y2, source)
      SELECT gen_random_uuid(), workspace_id, job_id, video_id, n / 20, class_number,
        n % 20, 0, n % 20 + 9, 9, 'person' FROM annotation, generate_series(1, 599) n`);
    const answers = await Promise.all(Array.from({ length: 6 }, () => crops(idsOf(all))));
    expect(answers).toEqual(answers.map(() => ({ crops: [null], missing: 1 })));
    await node.work();
    expect(asked.map(({ videos }) => videos.map(({ boxes }) => boxes.length))).toEqual([[500]]);
    const rest = await annotations();
    const last = rest.slice(-64);
    expect((await crops(idsOf(last))).missing).toBe(64);
    await node.work();
    expect(asked[1]?.videos[0]?.boxes.length).toBeLessThan(200);
    expect((await crops(idsOf(last))).missing).toBe(0);
  });

  it("is not asked for again for minutes where a node failed at it", async () => {
    const all = await drawn([videoId, 0], [videoId, 1]);
    node.script.crops = () => ({ packed: [], left_out: 2 });
    expect((await crops(idsOf(all))).missing).toBe(2);
    await node.work();
    expect(await crops(idsOf(all))).toEqual({ crops: [null, null], missing: 0 });
    expect(await node.work()).toEqual([]);
    await world.visionDatabase.execute(
      sql`UPDATE task SET ended_at = now() - interval '6 minutes' WHERE kind = 'crops'`,
    );
    node.script.crops = cut;
    expect((await crops(idsOf(all))).missing).toBe(2);
    await node.work();
    expect((await crops(idsOf(all))).crops).toEqual(expected(all));
  });

  it("is refused of a node that says it wrote a pack that is not there, or not of its videos", async () => {
    const all = await drawn([videoId, 0]);
    await crops(idsOf(all));
    const refused: [() => Promise<unknown>, string[]][] = [
      [async () => undefined, [videoId]],
      [async () => undefined, [crypto.randomUUID()]],
      [async () => (packing = () => writeCropPack([cropOf(3, boxOf(3, 0))])), [videoId]],
    ];
    for (const [prepare, packed] of refused) {
      await prepare();
      await world.visionDatabase.execute(
        sql`UPDATE task SET available_at = now() - interval '1 second'`,
      );
      const task = (await node.claim(["crops"])) as ClaimedTask;
      const { videos } = TASK_KINDS.crops.payload.parse(task.payload);
      const made = packing?.([]) ?? new Uint8Array();
      if (made.length > 20) await node.write(task, { key: videos[0]?.pack.key ?? "" }, made);
      const response = await node.finish(task, {
        outcome: "finished",
        result: { packed, left_out: 0 },
      });
      expect(await response.json()).toMatchObject({ problem: expect.any(String) });
      expect(await packs()).toEqual([]);
    }
    expect((await crops(idsOf(all))).missing).toBe(0);
  });

  it("is answered without a node, and without one that knows how", async () => {
    const all = await drawn([videoId, 0]);
    await world.visionDatabase.execute(
      sql`UPDATE node SET last_heartbeat_at = now() - interval '1 hour'`,
    );
    expect(await crops(idsOf(all))).toEqual({ crops: [null], missing: 0 });
    const kinds = SCRIPTED.kinds.filter((kind) => kind !== "crops");
    await scriptedNode(world, admin, {}, { ...SCRIPTED, kinds });
    expect(await crops(idsOf(all))).toEqual({ crops: [null], missing: 0 });
    expect(
      (await world.visionDatabase.execute(sql`SELECT FROM task WHERE kind = 'crops'`)).rows,
    ).toHaveLength(0);
  });
});

describe("packs", () => {
  it("go with their job, also those that come later", async () => {
    const all = await labeled();
    const [first] = all;
    await admin.ok("PATCH", `/annotations/${first?.annotation_id}`, { bbox: [1, 2, 30, 40] });
    await crops(idsOf(all.slice(0, 1)));
    const task = (await node.claim(["crops"])) as ClaimedTask;
    const result = await cut(task, node);
    expect((await stored()).length).toBe(3);
    expect((await admin.send("DELETE", `/jobs/${jobId}`)).status).toBe(204);
    expect(await stored()).toEqual([]);
    expect(await packs()).toEqual([]);
    const { videos } = TASK_KINDS.crops.payload.parse(task.payload);
    const { rows } = await world.visionDatabase.execute<{ id: string }>(
      sql`SELECT workspace_id AS id FROM video WHERE id = ${videoId}::uuid`,
    );
    const late = `ws/${rows[0]?.id}/job/${jobId}/crops/${videos[0]?.video_id}/late.crops`;
    await world.media.put(late, "late");
    await node.finish(task, { outcome: "finished", result });
    expect(await stored()).toEqual([]);
  });

  it("that are lost are made again", async () => {
    const all = await labeled();
    for (const { key } of await packs()) await world.media.delete(key);
    expect((await crops(idsOf(all.slice(0, 2)))).missing).toBe(2);
    await node.work();
    expect((await crops(idsOf(all.slice(0, 2)))).crops).toEqual(expected(all.slice(0, 2)));
  });

  it("are for viewers of the workspace, and 404 for all others", async () => {
    const all = await labeled();
    const ids = idsOf(all.slice(0, 1));
    const viewer = await colleague(world, admin, "viewer");
    expect((await ask(ids, viewer)).status).toBe(200);
    const { member } = await newTenant(world.urls.vision, founder, "admin");
    const stranger = apiAs(world.urls.vision, member.tokens.access_token);
    expect((await ask(ids, stranger)).status).toBe(404);
    // An annotation of another job is none of this one.
    const other = jobId;
    await drawn([videoId, 1]);
    expect((await crops(ids)).crops).toEqual([undefined]);
    expect((await ask(ids, admin, other)).status).toBe(200);
  });

  it.each([
    ["no id", { annotation_ids: [] }],
    ["65 ids", { annotation_ids: Array.from({ length: 65 }, () => crypto.randomUUID()) }],
    ["what is no id", { annotation_ids: ["x"] }],
    ["another field", { ids: [] }],
  ])("refuse %s", async (_, body) => {
    await drawn([videoId, 1]);
    const path = `/jobs/${jobId}/crops`;
    expect(await admin.refused("POST", path, body)).toEqual([422, "invalid_request"]);
  });
});
