// Live edits of a job: what its listeners are told of every way to change annotations, and of each
// other.

import { beforeAll, describe, expect, it } from "vitest";
import { WebSocket } from "ws";
import { EditEvent, PresenceEvent } from "../../../../shared/wire/edits.ts";
import { type Annotation, AnnotationPage, Change, Job } from "../../../../shared/wire/labeling.ts";
import { ProgressEvent, type Ticket } from "../../../../shared/wire/progress.ts";
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
import { createWorld, type World } from "../../../support/world.ts";

let world: World;
let admin: Person;
let node: ScriptedNode;
let template: string;
let videoId: string;
let projectId: string;

beforeAll(async () => {
  world = await createWorld({ services: ["console", "vision"] });
  admin = await register(world);
  const label = labelAs(() => [
    {
      class_name: "person",
      confidence: 0.6,
      bbox: [10, 10, 60, 60],
      polygon: null,
      duplicate_of: null,
    },
  ]);
  node = await scriptedNode(world, admin, { probe: probeAs({ frames: 4 }), label });
  projectId = (await newProject(admin)).project_id;
  videoId = (await uploadVideo(admin, projectId)).video_id;
  await node.work();
  template = await newJob();
  await node.work();
});

const newJob = async () => {
  const body = { project_id: projectId, video_ids: [videoId], prompts: ["person"] };
  return (await admin.ok<{ job_id: string }>("POST", "/label", body)).job_id;
};
const copyOf = async () =>
  (await admin.ok<{ job_id: string }>("POST", `/jobs/${template}/duplicate`)).job_id;
const listed = async (id: string) =>
  AnnotationPage.parse(await admin.ok("GET", `/jobs/${id}/annotations?limit=1000`)).items;
const seqOf = async (id: string) => Job.parse(await admin.ok("GET", `/jobs/${id}`)).edits_seq;

/** A socket at a job's topic, with what it was told. */
async function listen(person: Person, path: string, after?: number) {
  const { url } = await person.ok<typeof Ticket._output>("POST", path);
  const address = after === undefined ? url : `${url}&after=${after}`;
  const socket = new WebSocket(new URL(address, world.urls.vision));
  const events: ProgressEvent[] = [];
  let wake = () => {};
  socket.on("message", (data) => {
    events.push(ProgressEvent.parse(JSON.parse(String(data))));
    wake();
  });
  await new Promise((opened, failed) => socket.on("open", opened).on("error", failed));
  /** The next of a type that was not taken yet. */
  const next = async (type: ProgressEvent["type"]) => {
    for (;;) {
      const index = events.findIndex((event) => event.type === type);
      const [event] = index < 0 ? [] : events.splice(index, 1);
      if (event) return event;
      await new Promise<void>((done) => {
        wake = done;
      });
    }
  };
  const edit = async () => EditEvent.parse((await next("edit")).data);
  const presence = async () => PresenceEvent.parse((await next("presence")).data);
  const say = (frame_id: unknown) => socket.send(JSON.stringify({ presence: { frame_id } }));
  return { socket, events, next, edit, presence, say };
}
const ticketPath = (id: string) => `/jobs/${id}/edits/ticket`;

describe("listeners of a job's edits", () => {
  it("are told of a batch with its annotations, and can follow without a gap", async () => {
    const id = await copyOf();
    const [first, second] = (await listed(id)) as [Annotation, Annotation];
    const listener = await listen(admin, ticketPath(id));
    expect(await listener.next("snapshot")).toMatchObject({ seq: 0, data: {} });
    const known = await seqOf(id);
    const named = (annotation: Annotation) => ({
      edit_id: crypto.randomUUID(),
      annotation_id: annotation.annotation_id,
      revision: 1,
    });
    const edits = [
      { ...named(first), op: "set", fields: { accepted: true } },
      { ...named(second), op: "delete" },
    ];
    await admin.ok("POST", `/jobs/${id}/edits`, { edits });
    const event = await listener.edit();
    expect(event).toEqual({
      after_seq: known,
      edits_seq: await seqOf(id),
      actor_id: admin.id,
      rows: [await admin.ok("GET", `/annotations/${first.annotation_id}`)],
      deleted: [second.annotation_id],
    });
    // Again it changes nothing, and nobody hears of it.
    await admin.ok("POST", `/jobs/${id}/edits`, { edits });
    await admin.ok("DELETE", `/annotations/${first.annotation_id}`);
    expect(await listener.edit()).toMatchObject({ after_seq: event.edits_seq });
    // Whoever was away gets what was missed; whoever is new, no edits of before.
    const back = await listen(admin, ticketPath(id), 1);
    expect(await back.edit()).toMatchObject({ after_seq: event.edits_seq });
    const fresh = await listen(admin, ticketPath(id));
    expect(await fresh.next("snapshot")).toMatchObject({ seq: 2, data: {} });
    for (const { socket } of [listener, back, fresh]) socket.close();
  });

  it("are told of edits of more than 200 annotations without these", async () => {
    const id = await copyOf();
    const listener = await listen(admin, ticketPath(id));
    const fields = { frame_id: frameId(videoId, 0), class: "car", bbox: [1, 1, 9, 9] };
    const edits = Array.from({ length: 201 }, () => ({
      edit_id: crypto.randomUUID(),
      annotation_id: crypto.randomUUID(),
      op: "create",
      fields,
    }));
    await admin.ok("POST", `/jobs/${id}/edits`, { edits });
    expect(Object.keys(await listener.edit()).toSorted()).toEqual([
      ...["actor_id", "after_seq", "edits_seq"],
    ]);
    listener.socket.close();
  });

  it("are told of every other way to change annotations", async () => {
    const id = await copyOf();
    const listener = await listen(admin, ticketPath(id));
    const [first, second] = (await listed(id)) as [Annotation, Annotation];
    const bulk = (path: string, body: object) => () =>
      admin.ok("POST", `/jobs/${id}/${path}`, body);
    const frame_id = frameId(videoId, 1);
    const drawn = { job_id: id, frame_id, class: "car", bbox: [1, 1, 9, 9], track_id: 9 };
    const named = { job_id: id, from: "car", into: "van" };
    const track = { video_id: videoId, track_id: 9 };
    const other = { ...drawn, frame_id: frameId(videoId, 3) };
    let known = await seqOf(id);
    for (const act of [
      () => admin.ok("POST", "/annotations", drawn),
      () => admin.ok("PATCH", `/annotations/${first.annotation_id}`, { accepted: true }),
      () => admin.ok("DELETE", `/annotations/${second.annotation_id}`),
      bulk("annotations/review", { accepted: true }),
      bulk("annotations/relabel", { class: "dog", filter: { frame_id } }),
      bulk("annotations/delete", { filter: { frame_id } }),
      async () => {
        const [change] = Change.array().parse(await admin.ok("GET", `/jobs/${id}/changes`));
        await admin.ok("POST", `/changes/${change?.change_id}/undo`);
      },
      () => admin.ok("POST", "/annotations", { ...drawn, track_id: 10 }),
      () => admin.ok("POST", "/annotations/merge-classes", named),
      () => admin.ok("POST", "/annotations", { ...other, class: "dog" }),
      bulk("tracks/interpolate", track),
      bulk("tracks/split", { ...track, index: 2 }),
      bulk("tracks/merge", { ...track, track_id: 11, into: 9 }),
      () => admin.ok("POST", "/annotations/merge-classes", { ...named, from: "dog" }),
      () => admin.ok("DELETE", `/jobs/${id}/classes/van`),
    ]) {
      await act();
      const event = await listener.edit();
      expect([act.toString(), event.actor_id]).toEqual([act.toString(), admin.id]);
      expect([act.toString(), event.after_seq]).toEqual([act.toString(), known]);
      known = event.edits_seq;
      expect(known).toBe(await seqOf(id));
    }
    listener.socket.close();
  });

  it("are told of what a node reports, before the job's end and after it", async () => {
    const id = await newJob();
    const listener = await listen(admin, ticketPath(id));
    await node.work();
    const { after_seq, edits_seq, actor_id } = await listener.edit();
    expect([after_seq, actor_id]).toEqual([0, null]);
    expect(edits_seq).toBeGreaterThan(0);
    expect((await admin.ok<Job>("GET", `/jobs/${id}`)).status).toBe("completed");
    const [first] = (await listed(id)) as [Annotation];
    await admin.ok("PATCH", `/annotations/${first.annotation_id}`, { accepted: true });
    for (;;) if ((await listener.edit()).actor_id === admin.id) break;
    listener.socket.close();
  });
});

describe("listeners of one job", () => {
  it("see where the others are, and that one left", async () => {
    const id = await copyOf();
    const viewer = await colleague(world, admin, "viewer");
    const [left, right] = [
      await listen(admin, ticketPath(id)),
      await listen(viewer, ticketPath(id)),
    ];
    const at = frameId(videoId, 2);
    right.say(at);
    const seen = await left.presence();
    expect(seen).toMatchObject({ actor_id: viewer.id, frame_id: at });
    expect(seen.left).toBe(false);
    // A newcomer sees who is there; of many words at once, few are heard, and the last.
    const newcomer = await listen(admin, ticketPath(id));
    expect(await newcomer.presence()).toEqual(seen);
    for (let index = 0; index < 100; index++) right.say(frameId(videoId, index));
    const heard: (string | null)[] = [];
    while (heard.at(-1) !== frameId(videoId, 99)) heard.push((await left.presence()).frame_id);
    expect(heard.length).toBeLessThan(20);
    right.say(null);
    expect(await left.presence()).toMatchObject({ frame_id: null, left: false });
    right.socket.close();
    const gone = { ...seen, frame_id: null, left: true };
    expect(await left.presence()).toEqual(gone);
    const late = await listen(admin, ticketPath(id));
    await late.next("snapshot");
    left.say(at);
    expect(await late.presence()).toMatchObject({ actor_id: admin.id, left: false });
    // Nobody hears of itself, and nothing of it was numbered.
    expect(left.events.filter(({ type }) => type === "presence")).toEqual([]);
    expect(await (await listen(admin, ticketPath(id))).next("snapshot")).toMatchObject({ seq: 0 });
    for (const { socket } of [left, newcomer, late]) socket.close();
  });

  it("are not heard where they say something else, or at a topic of progress", async () => {
    const id = await newJob();
    for (const path of [ticketPath(id), `/jobs/${id}/ticket`]) {
      const [left, right] = [await listen(admin, path), await listen(admin, path)];
      for (const text of [
        ...["{", "null", '{"presence":{}}', '{"presence":{"frame_id":1}}'],
        ...[`{"presence":{"frame_id":"${"x".repeat(101)}"}}`, `{"presence":${" ".repeat(400)}`],
        '{"presence":{"frame_id":null,"more":1}}',
      ]) {
        right.socket.send(text);
      }
      if (!path.includes("edits")) right.say("x");
      right.socket.close();
      await new Promise((done) => right.socket.on("close", done));
      await new Promise((done) => setTimeout(done, 500));
      expect(left.events.filter(({ type }) => type === "presence")).toEqual([]);
      left.socket.close();
    }
    await node.work();
  });

  it("are of the job's workspace", async () => {
    const path = ticketPath(crypto.randomUUID());
    expect(await admin.refused("POST", path)).toEqual([404, "not_found"]);
  });
});
