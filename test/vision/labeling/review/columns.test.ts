// A job's annotations as columns of bytes, in workerd: the same as the list's, whole and by
// differences, whatever people do to them in between.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { applyDifference } from "../../../../shared/columns/column-difference.ts";
import {
  COLUMNS_MEDIA_TYPE,
  confidenceCode,
  FLAGS,
  idText,
  SOURCES,
  STATES,
} from "../../../../shared/columns/column-layout.ts";
import { type ColumnTable, readColumns } from "../../../../shared/columns/column-reader.ts";
import type { Detection } from "../../../../shared/tasks/tasks.ts";
import { type Annotation, AnnotationPage } from "../../../../shared/wire/labeling.ts";
import { frameId } from "../../../../shared/wire/vision.ts";
import {
  apiAs,
  colleague,
  labelAs,
  newProject,
  type Person,
  probeAs,
  type ScriptedNode,
  scriptedNode,
  uploadVideo,
} from "../../../support/scripted-node.ts";
import { newTenant, register } from "../../../support/vision.ts";
import { createWorld, type World } from "../../../support/world.ts";

const FRAMES = 6;
let world: World;
let founder: Awaited<ReturnType<typeof register>>;
let admin: Person;
let viewer: Person;
let node: ScriptedNode;
let projectId: string;
let videos: string[];

const detection = (class_name: string, x: number, confidence: number): Detection => ({
  class_name,
  confidence,
  bbox: [x, 20, x + 64, 20 + 36],
  polygon: class_name === "car" ? [x, 20, x + 64, 20, x + 64, 56] : null,
  duplicate_of: null,
});
/** A person and a car on one place, and another person below the threshold. */
const found = labelAs((frame) => [
  detection("person", 10 + frame, 0.9 - frame / 50),
  { ...detection("car", 10 + frame, 0.6), duplicate_of: 0 },
  detection("person", 300, 0.2),
]);

beforeAll(async () => {
  world = await createWorld({ services: ["console", "vision"] });
  founder = await register(world.urls.vision);
  const { id, email, tokens } = founder;
  admin = { ...apiAs(world.urls.vision, tokens.access_token), id, email };
  viewer = await colleague(world, admin, "viewer");
  node = await scriptedNode(world, admin, { probe: probeAs({ frames: FRAMES }), label: found });
  projectId = (await newProject(admin)).project_id;
  const first = (await uploadVideo(admin, projectId)).video_id;
  videos = [first, (await uploadVideo(admin, projectId)).video_id];
  await node.work();
});

async function labeled(): Promise<string> {
  const body = { project_id: projectId, video_ids: videos, prompts: ["person", "car"] };
  const { job_id: id } = await admin.ok<{ job_id: string }>("POST", "/label", body);
  await node.work();
  return id;
}

async function columnsOf(id: string, query = ""): Promise<ColumnTable> {
  const response = await viewer.send("GET", `/jobs/${id}/annotations.columns${query}`);
  expect([response.status, response.headers.get("Content-Type")]).toEqual([
    200,
    COLUMNS_MEDIA_TYPE,
  ]);
  expect(response.headers.get("Cache-Control")).toBe("private, no-cache");
  return readColumns(response.body as ReadableStream<Uint8Array>);
}

/** All that the list has of a job's annotations, with those that are duplicates. */
async function listOf(id: string): Promise<{ items: Annotation[]; duplicates: Set<string> }> {
  const page = async (query: string) =>
    AnnotationPage.parse(await viewer.ok("GET", `/jobs/${id}/annotations?limit=1000&${query}`));
  const { items } = await page("min_confidence=0");
  const repeated = (await page("min_confidence=0&duplicates=true")).items;
  return { items, duplicates: new Set(repeated.map(({ annotation_id: one }) => one)) };
}

/** What a table says of its annotations, as the list has it where both have it. */
function contentOf({ header, rows, columns }: ColumnTable) {
  const classes = new Map(header.classes.map(({ number, name }) => [number, name]));
  return Array.from({ length: rows }, (_, row) => ({
    annotation_id: idText(columns.id, row),
    frame_id: frameId(
      header.videos[columns.video[row] ?? 0]?.video_id ?? "",
      columns.frame[row] ?? 0,
    ),
    class: classes.get(columns.class[row] ?? -1),
    bbox: [...columns.box.subarray(4 * row, 4 * row + 4)],
    state: STATES[columns.state[row] ?? 0],
    source: SOURCES[columns.source[row] ?? 0],
    flags: columns.flags[row],
    confidence: columns.confidence[row],
    revision: columns.revision[row],
    track_id: columns.track[row],
  }));
}

const reviewed = (accepted: boolean | null) =>
  accepted === null ? "pending" : accepted ? "accepted" : "rejected";

const listed = ({ items, duplicates }: Awaited<ReturnType<typeof listOf>>) =>
  items.map((one) => ({
    annotation_id: one.annotation_id,
    frame_id: one.frame_id,
    class: one.class,
    bbox: one.bbox.map(Math.fround),
    state: reviewed(one.accepted),
    source: one.source,
    flags:
      (duplicates.has(one.annotation_id) ? FLAGS.duplicate : 0) +
      (one.keyframe ? FLAGS.keyframe : 0) +
      (one.polygon ? FLAGS.polygon : 0),
    confidence: confidenceCode(one.confidence),
    revision: one.revision,
    track_id: one.track_id ?? 0,
  }));

/** Expects the columns of a job to be its list, and returns them. */
async function expectList(id: string): Promise<ColumnTable> {
  const table = await columnsOf(id);
  expect(contentOf(table)).toEqual(listed(await listOf(id)));
  return table;
}

/** A table, brought up to date by a difference, which has to make it the job's. */
async function caughtUp(id: string, table: ColumnTable): Promise<ColumnTable> {
  const difference = await columnsOf(id, `?after_seq=${table.header.edits_seq}`);
  const newer = applyDifference(table, difference);
  const now = await expectList(id);
  expect(newer && contentOf(newer)).toEqual(contentOf(now));
  expect(newer?.header.edits_seq).toBe(now.header.edits_seq);
  return now;
}

describe("a job's columns", () => {
  it("hold what the list does, also below the threshold", async () => {
    const id = await labeled();
    const [one, other] = (await listOf(id)).items as [Annotation, Annotation];
    const draw = { job_id: id, frame_id: frameId(videos[1] ?? "", 3), class: "dog" };
    await admin.ok("POST", "/annotations", { ...draw, bbox: [1.25, 2, 3, 4.5], track_id: 9 });
    await admin.ok("PATCH", `/annotations/${one.annotation_id}`, { accepted: true });
    await admin.ok("PATCH", `/annotations/${other.annotation_id}`, { accepted: false });
    const table = await expectList(id);
    expect(table.header).toMatchObject({ version: 1, job_id: id, after_seq: null, threshold: 0.5 });
    expect(table.header.rows).toBe(37);
    expect(table.header.classes.map(({ name }) => name)).toEqual(["person", "car", "dog"]);
    expect(table.header.videos.map((video) => video.video_id)).toEqual(videos.toSorted());
    expect(table.header.videos[0]).toMatchObject({ width: 640, height: 360, frame_count: FRAMES });
    const { edits_seq } = await admin.ok<{ edits_seq: number }>("GET", `/jobs/${id}`);
    expect(table.header.edits_seq).toBe(edits_seq);
  });

  it("are none where the job has none", async () => {
    const body = { project_id: projectId, name: "empty", video_ids: videos };
    const { job_id: id } = await admin.ok<{ job_id: string }>("POST", "/jobs", body);
    const table = await columnsOf(id);
    expect([table.rows, table.header.edits_seq, table.header.videos.length]).toEqual([0, 0, 2]);
    expect((await columnsOf(id, "?after_seq=0")).rows).toBe(0);
    await admin.ok("POST", "/annotations", {
      job_id: id,
      frame_id: frameId(videos[0] ?? "", 0),
      class: "dog",
      bbox: [1, 2, 3, 4],
    });
    await caughtUp(id, table);
  });

  it("are brought up to date by differences after every kind of edit", async () => {
    const id = await labeled();
    const { items, duplicates } = await listOf(id);
    let table = await expectList(id);
    const ids = (from: number, to: number) =>
      items.slice(from, to).map(({ annotation_id }) => ({ annotation_id }));
    const edit = async (method: string, path: string, body?: unknown) => {
      const answer = await admin.ok<{ change_id: string }>(method, path, body);
      table = await caughtUp(id, table);
      return answer;
    };
    const path = `/annotations/${items[0]?.annotation_id}`;
    await edit("PATCH", path, { bbox: [3, 4, 50, 60], class: "cyclist" });
    const deleted = await edit("DELETE", path);
    await edit("POST", `/changes/${deleted.change_id}/undo`);
    const all = `/jobs/${id}/annotations`;
    const gone = await edit("POST", `${all}/delete`, { filter: { annotations: ids(3, 9) } });
    await edit("POST", `${all}/review`, { accepted: true, filter: { annotations: ids(9, 12) } });
    await edit("POST", `/changes/${gone.change_id}/undo`);
    await edit("POST", `${all}/relabel`, { class: "dog", filter: { annotations: ids(0, 20) } });
    await edit("POST", "/annotations/merge-classes", { job_id: id, from: "person", into: "dog" });
    // The better box goes: what repeated it stands for the object from then on.
    const repeated = items.find(({ annotation_id: one }) => duplicates.has(one));
    const better = repeated?.duplicate_of;
    await edit("PATCH", `/annotations/${better}`, { accepted: false });
    await edit("PATCH", `/annotations/${better}`, { accepted: null });
    await edit("DELETE", `/annotations/${better}`);
    // Nothing new is an empty difference.
    const none = await columnsOf(id, `?after_seq=${table.header.edits_seq}`);
    expect([none.rows, none.deleted.length]).toEqual([0, 0]);
  });

  it("are read anew once the threshold changed, which decides what is a duplicate", async () => {
    const id = await labeled();
    const before = await columnsOf(id);
    await admin.ok("PATCH", `/jobs/${id}`, { threshold: 0.85 });
    const difference = await columnsOf(id, `?after_seq=${before.header.edits_seq}`);
    expect(applyDifference(before, difference)).toBe(null);
    const after = await expectList(id);
    const duplicates = ({ columns }: ColumnTable) => columns.flags.filter((one) => one & 1).length;
    expect([duplicates(before), duplicates(after)]).toEqual([12, 6]);
  });

  it("are not sent again to readers that have them", async () => {
    const id = await labeled();
    const path = `/jobs/${id}/annotations.columns`;
    const tagOf = async (query = "") =>
      (await viewer.send("GET", path + query)).headers.get("ETag") ?? "";
    const asked = async (tag: string) =>
      (await viewer.send("GET", path, undefined, { "If-None-Match": tag })).status;
    const tag = await tagOf();
    expect(tag).toMatch(/^W\/"[0-9a-f]{32}"$/);
    expect([await tagOf(), await asked(tag), await asked('W/"other"')]).toEqual([tag, 304, 200]);
    const { edits_seq: seq } = (await columnsOf(id)).header;
    expect(await tagOf(`?after_seq=${seq}`)).not.toBe(tag);
    const all = `/jobs/${id}/annotations`;
    for (const change of [
      () => admin.ok("PATCH", `/jobs/${id}`, { threshold: 0.3 }),
      () =>
        admin.ok("POST", "/annotations/merge-classes", { job_id: id, from: "car", into: "van" }),
      () => admin.ok("POST", `${all}/review`, { accepted: true }),
      () => admin.ok("POST", `${all}/delete`, { filter: { class_name: "van" } }),
    ]) {
      const before = await tagOf();
      await change();
      expect(await asked(before)).toBe(200);
    }
  });

  it("are for members alone, and end at the job's own number", async () => {
    const id = await labeled();
    const path = `/jobs/${id}/annotations.columns`;
    const { member } = await newTenant(world.urls.vision, founder, "admin");
    const stranger = apiAs(world.urls.vision, member.tokens.access_token);
    expect(await stranger.refused("GET", path)).toEqual([404, "not_found"]);
    expect(await viewer.refused("GET", `/jobs/${crypto.randomUUID()}/annotations.columns`)).toEqual(
      [404, "not_found"],
    );
    const { edits_seq: seq } = (await columnsOf(id)).header;
    for (const after of [seq + 1, -1, "x", 2 ** 53]) {
      const refused = await viewer.refused("GET", `${path}?after_seq=${after}`);
      expect([after, refused]).toEqual([after, [422, "invalid_request"]]);
    }
    expect((await viewer.send("GET", `${path}?after_seq=${seq}`)).status).toBe(200);
  });

  it("come in blocks, each row once, of more rows than a block holds", async () => {
    const id = await labeled();
    const count = 20_000;
    await world.visionDatabase.execute(sql`
      INSERT INTO annotation (id, workspace_id, job_id, video_id, frame_index, class_number, x1, y1,
        x2, y2, confidence, source)
      SELECT gen_random_uuid(), j.workspace_id, j.id,
        (${JSON.stringify(videos)}::jsonb->>(n % 2))::uuid, n % ${FRAMES}::int, 0, 1, 2, 3, 4,
        n / ${count}::real, 'model'
        FROM job j, generate_series(0, ${count - 1}::int) n WHERE j.id = ${id}::uuid`);
    const response = await viewer.send("GET", `/jobs/${id}/annotations.columns`);
    const bytes = new Uint8Array(await response.arrayBuffer());
    const table = await readColumns(bytes);
    expect([table.rows, table.header.rows]).toEqual([count + 36, count + 36]);
    const ids = contentOf(table).map(({ annotation_id }) => annotation_id);
    expect(new Set(ids).size).toBe(count + 36);
    const order = contentOf(table).map(
      ({ frame_id, annotation_id }) => `${frame_id}${annotation_id}`,
    );
    expect(order).toEqual(order.toSorted());
    expect(bytes.length / table.rows).toBeLessThan(54);
    // The same by differences, whose blocks come in the order of edits.
    const difference = await columnsOf(id, "?after_seq=0");
    expect(difference.rows).toBe(count + 36);
    const empty = {
      ...table,
      rows: 0,
      columns: (await columnsOf(id, `?after_seq=${table.header.edits_seq}`)).columns,
    };
    const filled = applyDifference(empty, difference);
    expect(filled && contentOf(filled)).toEqual(contentOf(table));
    await admin.ok("POST", `/jobs/${id}/annotations/delete`, { filter: { min_confidence: 0 } });
    const gone = await columnsOf(id, `?after_seq=${table.header.edits_seq}`);
    expect([gone.rows, gone.deleted.length / 16]).toEqual([0, count + 36]);
    expect(applyDifference(table, gone)?.rows).toBe(0);
  });
});
