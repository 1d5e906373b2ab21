// Images of frames by width, and of many frames at once. Goal: an image of a width is made once and
// is of that width, a contact sheet is one task, and whoever asks meanwhile waits for that task.

import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { ClaimedTask } from "../../../shared/tasks/node-protocol.ts";
import { TASK_KINDS, type TaskPayload } from "../../../shared/tasks/tasks.ts";
import {
  apiAs,
  colleague,
  newProject,
  type Person,
  probeAs,
  type ScriptedNode,
  scriptedNode,
  uploadVideo,
} from "../../support/scripted-node.ts";
import { newTenant, register as registerPerson } from "../../support/vision.ts";
import { createWorld, type World } from "../../support/world.ts";

const FRAMES = 200;
let world: World;
let founder: Awaited<ReturnType<typeof registerPerson>>;
let admin: Person;
let viewer: Person;
let node: ScriptedNode;
let projectId: string;
let videoId: string;
let made: TaskPayload<"frames">[];
/** Pixels that the node makes wide images of, whatever is asked for. */
let stubborn: number | null;

/** A JPEG's head with its size, as far as anybody reads it; the last byte names its frame. */
const jpeg = (width: number, frame: number) =>
  Uint8Array.from([
    ...[0xff, 0xd8, 0xff, 0xc0, 0, 17, 8, 0, 90, width >> 8, width & 255, 3],
    ...[...new Uint8Array(20), frame],
  ]);
async function frames(task: ClaimedTask, by: ScriptedNode) {
  const payload = TASK_KINDS.frames.payload.parse(task.payload);
  made.push(payload);
  for (const [at, frame] of payload.frames.entries()) {
    const bytes = jpeg(stubborn ?? payload.width ?? 1_280, frame);
    await by.write(task, { key: payload.images[at]?.key ?? "" }, bytes);
  }
  return {};
}

beforeAll(async () => {
  world = await createWorld({ services: ["console", "vision"] });
  founder = await registerPerson(world.urls.vision);
  admin = { ...apiAs(world.urls.vision, founder.tokens.access_token), ...founder };
  viewer = await colleague(world, admin, "viewer");
  const probe = probeAs({ frames: FRAMES, width: 1_280, height: 720 });
  node = await scriptedNode(world, admin, { probe, frames });
  projectId = (await newProject(admin)).project_id;
});
beforeEach(async () => {
  await world.visionDatabase.execute(sql`UPDATE node SET last_heartbeat_at = now()`);
  videoId = (await uploadVideo(admin, projectId)).video_id;
  await node.work();
  made = [];
  stubborn = null;
});

const get = async (path: string) => {
  const response = await viewer.send("GET", `/videos/${videoId}/${path}`);
  return [response.status, new Uint8Array(await response.arrayBuffer())] as const;
};
const prepare = (body: object) => viewer.ok("POST", `/videos/${videoId}/frames/prepare`, body);
const refused = (body: object) => viewer.refused("POST", `/videos/${videoId}/frames/prepare`, body);
/** Answers of requests while the node works. */
async function working<Answer>(ask: () => Promise<Answer>): Promise<Answer> {
  const stop = node.start();
  try {
    return await ask();
  } finally {
    await stop();
  }
}

describe("an image of a width", () => {
  it("is made once, beside the frame's own", async () => {
    const paths = ["frames/7.jpg?width=160", "frames/7.jpg", "frames/7.jpg?width=640"];
    const first = await working(() => Promise.all(paths.map(get)));
    expect(first).toEqual([160, 1_280, 640].map((width) => [200, jpeg(width, 7)]));
    expect(await Promise.all(paths.map(get))).toEqual(first);
    expect(made).toHaveLength(3);
    const stored = await world.media.list({ prefix: "ws/" });
    const keys = stored.objects.map(({ key }) => key).filter((key) => key.includes(videoId));
    expect(keys.filter((key) => key.endsWith("/7.jpg"))).toHaveLength(3);
  });

  it("is of the frame that stands for the video, of a thumbnail", async () => {
    expect(await working(() => get("thumbnail.jpg?width=320"))).toEqual([200, jpeg(320, 20)]);
    expect((await get("thumbnail.jpg"))[0]).toBe(200);
    expect(made).toMatchObject([{ frames: [20], width: 320 }]);
  });

  it("is never larger than the frame", async () => {
    await world.visionDatabase.execute(
      sql`UPDATE video SET width = 300 WHERE id = ${videoId}::uuid`,
    );
    await working(() => get("frames/3.jpg?width=640"));
    expect(made.map(({ width }) => width)).toEqual([undefined]);
    await working(() => get("frames/3.jpg?width=320"));
    expect(made).toHaveLength(1);
  });

  it("is refused of a node that makes another", async () => {
    stubborn = 1_280;
    const answers = await working(async () => [
      (await get("frames/5.jpg?width=160"))[0],
      (await get("thumbnail.jpg?width=160"))[0],
    ]);
    expect(answers).toEqual([502, 502]);
    stubborn = null;
    expect(await working(() => get("frames/5.jpg?width=160"))).toEqual([200, jpeg(160, 5)]);
  });

  it.each(["161", "0", "x", "1280"])("is none of %s pixels", async (width) => {
    expect((await get(`frames/1.jpg?width=${width}`))[0]).toBe(422);
    expect((await get(`thumbnail.jpg?width=${width}`))[0]).toBe(422);
  });
});

describe("a contact sheet", () => {
  const sheet = { to: FRAMES, step: 9, width: 160 };
  const indexes = Array.from({ length: 23 }, (_, at) => at * 9);

  it("is one task, for which the requests of its images wait", async () => {
    const answers = await Promise.all([prepare(sheet), prepare(sheet), prepare(sheet)]);
    expect(answers).toEqual(answers.map(() => ({ frames: 23, ready: 0, coming: 23 })));
    const asked = Promise.all(indexes.map((frame) => get(`frames/${frame}.jpg?width=160`)));
    expect(await working(() => asked)).toEqual(
      indexes.map((frame) => [200, jpeg(160, frame)] as const),
    );
    expect(made.map((task) => task.frames)).toEqual([indexes]);
    expect(await prepare(sheet)).toEqual({ frames: 23, ready: 23, coming: 0 });
    expect(await node.work()).toEqual([]);
  });

  it("is made of what lacks, and again where its task failed", async () => {
    node.script.frames = () => ({
      outcome: "failed",
      code: "x",
      detail: "torn",
      retryable: false,
    });
    await prepare({ from: 10, to: 14 });
    await node.work();
    node.script.frames = frames;
    await working(() => get("frames/11.jpg"));
    made = [];
    expect(await prepare({ from: 10, to: 14 })).toEqual({ frames: 4, ready: 1, coming: 3 });
    await node.work();
    expect(made.map((task) => task.frames)).toEqual([[10, 12, 13]]);
  });

  it.each([
    [{ to: 65 }, 422],
    [{ to: 0 }, 422],
    [{ from: 5, to: 5 }, 422],
    [{ to: FRAMES + 1, step: 9 }, 422],
    [{ to: 5, width: 200 }, 422],
    [{ to: 5, step: 0 }, 422],
    [{}, 422],
  ])("is refused for %j", async (body, status) => {
    expect(await refused(body)).toEqual([status, "invalid_request"]);
  });

  it("is not made while no node is there, nor before the probe, nor for strangers", async () => {
    const { member } = await newTenant(world.urls.vision, founder, "admin");
    const stranger = apiAs(world.urls.vision, member.tokens.access_token);
    const path = `/videos/${videoId}/frames/prepare`;
    expect(await stranger.refused("POST", path, sheet)).toEqual([404, "not_found"]);
    await world.visionDatabase.execute(
      sql`UPDATE node SET last_heartbeat_at = now() - interval '1 hour'`,
    );
    expect(await prepare(sheet)).toEqual({ frames: 23, ready: 0, coming: 0 });
    expect(await node.work()).toEqual([]);
    expect((await get("thumbnail.jpg?width=160"))[0]).toBe(503);
    videoId = (await uploadVideo(admin, projectId)).video_id;
    expect(await refused(sheet)).toEqual([409, "state_conflict"]);
    await node.work();
  });
});
