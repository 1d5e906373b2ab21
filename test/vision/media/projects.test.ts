// Projects, videos and frames in workerd with the real Postgres and R2. Nodes' answers are written
// as a node would leave them: real nodes are tested elsewhere.

import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import fc from "fast-check";
import { beforeAll, describe, expect, it } from "vitest";
import { answerOnce } from "../../../edge/vision/auth/idempotency.ts";
import type { Parts } from "../../../edge/vision/base/parts.ts";
import { probeEnded } from "../../../edge/vision/media/videos/ended.ts";
import { enqueueMissingProbes, objectKeys } from "../../../edge/vision/media/videos/videos.ts";
import { attemptKey } from "../../../edge/vision/tasks/objects.ts";
import type { Task } from "../../../edge/vision/tasks/queue/queue.ts";
import { sampleFrames } from "../../../shared/detector/sampling.ts";
import { systemClock } from "../../../shared/time.ts";
import { FramePage, Project, Video } from "../../../shared/wire/vision.ts";
import { form, jpeg, mp4 } from "../../support/media.ts";
import { newMember, newTenant, type Person, register, type Tenant } from "../../support/vision.ts";
import { createWorld, type World } from "../../support/world.ts";

let world: World;
let admin: Person;
let tenant: Tenant;
let engineer: Person;
let viewer: Person;
let parts: Parts;

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  admin = await register(world.urls.vision);
  tenant = await newTenant(world.urls.vision, admin, "engineer");
  engineer = tenant.member;
  viewer = await newMember(world.urls.vision, admin, tenant.workspaceId, "viewer");
  const quiet = { info: () => {}, warning: () => {}, error: () => {} };
  const bell = { idFromName: () => "bell", get: () => ({ ring: async () => {} }) };
  parts = {
    database: world.visionDatabase,
    bucket: world.media,
    clock: systemClock,
    log: quiet,
    doorbell: bell,
    // What a probe ends with uses no other part.
  } as unknown as Parts;
});

const code = (reply: { status: number; body: Record<string, unknown> }) => [
  reply.status,
  reply.body.code,
];
const newProject = async (body: object = { name: "clips" }) =>
  Project.parse((await engineer.ask("POST", "/projects", body)).body);
const newVideo = async (projectId?: string) => {
  const project_id = projectId ?? (await newProject()).project_id;
  const body = form(["project_id", project_id], { content: mp4() });
  return Video.parse((await engineer.ask("POST", "/upload", body)).body);
};

/** Ticks of 1/30000 s: 29.97 frames a second, with a gap of half a second after the tenth. */
const PTS = Array.from({ length: 60 }, (_, index) => index * 1001 + (index > 9 ? 15_000 : 0));
const FOUND = {
  broken: null,
  content_type: "video/mp4",
  width: 640,
  height: 480,
  fps: 29.97,
  duration_seconds: 2.5,
  frame_count: PTS.length,
  time_base: [1, 30_000],
  probe: { codec: "h264" },
};
const PROBE = randomUUID();
/** Where a probe task writes its objects. */
const written = (video: Video) => {
  const keys = objectKeys(tenant.workspaceId, video.video_id);
  const attempt = { taskId: PROBE, fence: 1 };
  return { pts: attemptKey(keys.pts, attempt), thumbnail: attemptKey(keys.thumbnail, attempt) };
};
const probeTask = (video: Video, more: Partial<Task> = {}) =>
  ({
    taskId: PROBE,
    fence: 1,
    kind: "probe",
    workspaceId: tenant.workspaceId,
    subject: `video:${video.video_id}`,
    state: "finished",
    errors: [],
    result: FOUND,
    ...more,
  }) as Task;
const read = async (video: Video) =>
  Video.parse((await engineer.ask("GET", `/videos/${video.video_id}`)).body);

/** A video as it is after a node has probed it. */
async function probed(): Promise<Video> {
  const video = await newVideo();
  const keys = written(video);
  await world.media.put(keys.pts, Int32Array.from(PTS).buffer);
  await world.media.put(keys.thumbnail, jpeg());
  await probeEnded(parts, probeTask(video));
  return read(video);
}

describe("projects", () => {
  it("are made in the first workspace where the caller may, or in the named one", async () => {
    const project = await newProject({ name: " Crossing ", description: "two cameras" });
    expect(project).toMatchObject({
      workspace_id: tenant.workspaceId,
      name: "Crossing",
      description: "two cameras",
      video_count: 0,
    });
    const named = await newProject({ name: "named", workspace_id: tenant.workspaceId });
    const listed = Project.array().parse((await viewer.ask("GET", "/projects")).body);
    expect(listed.map(({ project_id }) => project_id).slice(0, 2)).toEqual([
      named.project_id,
      project.project_id,
    ]);
    const one = await viewer.ask("GET", `/projects/${project.project_id}`);
    expect([one.status, one.body]).toEqual([200, project]);
  });

  it("are not made twice under one Idempotency-Key", async () => {
    const headers = { "Idempotency-Key": "make it once" };
    const make = (name: string) => engineer.ask("POST", "/projects", { name }, headers);
    const key = { "Idempotency-Key": randomUUID() };
    expect(code(await make("x"))).toEqual([422, "invalid_request"]);
    const replies = await Promise.all(
      [1, 2, 3].map(() => engineer.ask("POST", "/projects", { name: "once" }, key)),
    );
    expect(new Set(replies.map(({ body }) => body.project_id)).size).toBe(1);
    const other = await engineer.ask("POST", "/projects", { name: "twice" }, key);
    expect(code(other)).toEqual([409, "idempotency_conflict"]);
  });

  it("try again after a failure, and after a first request that died", async () => {
    const key = randomUUID();
    const ask = () =>
      engineer.ask("POST", "/projects", { name: "dead" }, { "Idempotency-Key": key });
    expect((await ask()).status).toBe(201);
    await world.visionDatabase.execute(sql`UPDATE idempotent_answer
      SET status = 0, created_at = now() - interval '2 minutes' WHERE key = ${key}`);
    const again = await Promise.all([ask(), ask()]);
    expect(again.map(({ status }) => status)).toEqual([201, 201]);
    expect(again[0]?.body).toEqual(again[1]?.body);
  });

  it("are made once more at most when a first request was only slow, and then failed", async () => {
    const key = randomUUID();
    const once = { workspaceId: tenant.workspaceId, route: "test", key, body: {} };
    let fail = () => {};
    const failing = new Promise<never>((_, reject) => {
      fail = () => reject(new Error("slow, then failed"));
    });
    let finish = () => {};
    const finished = new Promise<void>((done) => {
      finish = done;
    });
    const kept = sql`SELECT status FROM idempotent_answer WHERE key = ${key}`;
    const first = answerOnce(parts, once, () => failing).catch(() => "failed");
    await expect.poll(async () => (await world.visionDatabase.execute(kept)).rows.length).toBe(1);
    await world.visionDatabase.execute(sql`UPDATE idempotent_answer
      SET created_at = now() - interval '2 minutes' WHERE key = ${key}`);
    let begun = false;
    const second = answerOnce(parts, once, async () => {
      begun = true;
      await finished;
      return { status: 201, body: "second" };
    });
    await expect.poll(() => begun).toBe(true);
    fail();
    expect(await first).toBe("failed");
    // The second one's place is still its own.
    expect((await world.visionDatabase.execute(kept)).rows).toEqual([{ status: 0 }]);
    finish();
    const third = answerOnce(parts, once, async () => ({ status: 201, body: "third" }));
    expect([(await second).body, (await third).body]).toEqual(["second", "second"]);
  });

  it("are edited and deleted by engineers, deleted only when empty", async () => {
    const { project_id } = await newProject();
    const path = `/projects/${project_id}`;
    expect(code(await viewer.ask("PATCH", path, { name: "mine" }))).toEqual([403, "forbidden"]);
    expect(code(await viewer.ask("DELETE", path))).toEqual([403, "forbidden"]);
    expect(code(await viewer.ask("POST", "/projects", { name: "x" }))).toEqual([403, "forbidden"]);
    const edited = await engineer.ask("PATCH", path, { description: "new" });
    expect(edited.body).toMatchObject({ name: "clips", description: "new" });
    expect(code(await engineer.ask("PATCH", path, { name: " " }))).toEqual([
      422,
      "invalid_request",
    ]);
    expect(code(await engineer.ask("PATCH", path, "{"))).toEqual([400, "bad_body"]);
    const video = await newVideo(project_id);
    const begun = await engineer.ask("POST", "/uploads", { project_id, filename: "x", bytes: 9 });
    expect(code(await engineer.ask("DELETE", path))).toEqual([409, "state_conflict"]);
    expect((await engineer.ask("DELETE", `/videos/${video.video_id}`)).status).toBe(204);
    expect(code(await engineer.ask("DELETE", path))).toEqual([409, "state_conflict"]);
    expect((await engineer.ask("DELETE", `/uploads/${begun.body.upload_id}`)).status).toBe(204);
    expect((await engineer.ask("DELETE", path)).status).toBe(204);
    expect(code(await engineer.ask("GET", path))).toEqual([404, "not_found"]);
    expect(code(await engineer.ask("DELETE", path))).toEqual([404, "not_found"]);
  });

  it("list their videos, oldest first, and count them", async () => {
    const { project_id } = await newProject();
    const videos = [await newVideo(project_id), await newVideo(project_id)];
    const listed = await viewer.ask("GET", `/projects/${project_id}/videos`);
    expect(Video.array().parse(listed.body)).toEqual(videos);
    const one = Project.parse((await viewer.ask("GET", `/projects/${project_id}`)).body);
    expect(one.video_count).toBe(2);
  });

  it("answer 422 for what is no id", async () => {
    for (const path of ["/projects/x", "/projects/x/videos", "/videos/x", "/uploads/x"]) {
      expect(code(await engineer.ask("GET", path))).toEqual([422, "invalid_request"]);
    }
  });
});

describe("a probe's end", () => {
  it("makes the video ready, once", async () => {
    const video = await probed();
    expect(video).toMatchObject({
      status: "ready",
      width: 640,
      height: 480,
      fps: 29.97,
      frame_count: 60,
      thumbnail_url: `/api/v1/videos/${video.video_id}/thumbnail.jpg`,
    });
    const { broken: _, ...late } = FOUND;
    await probeEnded(parts, probeTask(video, { result: { ...late, broken: null, width: 9 } }));
    await probeEnded(parts, probeTask(video, { state: "failed", result: null }));
    expect(await read(video)).toEqual(video);
  });

  it.each([
    ["a broken file", { result: { broken: "moov atom not found" } }, "moov atom not found"],
    ["nonsense", { result: { width: "wide" } }, "the GPU node's answer is malformed"],
    ["a cancelled task", { state: "cancelled", result: null }, "probing was cancelled"],
    [
      "a failed task",
      { state: "failed", result: null, errors: [{ detail: "one" }, { detail: "ffmpeg died" }] },
      "ffmpeg died",
    ],
  ])("makes it failed with the reason: %s", async (_, more, failure) => {
    const video = await newVideo();
    await probeEnded(parts, probeTask(video, more as Partial<Task>));
    await probeEnded(parts, probeTask(video));
    expect(await read(video)).toMatchObject({ status: "failed", failure });
    for (const path of ["frames", "frames/0.jpg", "thumbnail.jpg"]) {
      const reply = await engineer.ask("GET", `/videos/${video.video_id}/${path}`);
      expect(code(reply)).toEqual([409, "state_conflict"]);
      expect(reply.body.detail).toContain(failure);
    }
  });

  it("leaves nothing of a video that was deleted before it", async () => {
    const video = await newVideo();
    const keys = objectKeys(tenant.workspaceId, video.video_id);
    expect((await engineer.ask("DELETE", `/videos/${video.video_id}`)).status).toBe(204);
    const { rows } = await world.visionDatabase.execute(sql`SELECT state FROM task
      WHERE idempotency_key = ${`probe:${video.video_id}`}`);
    expect(rows).toEqual([{ state: "cancelled" }]);
    // A node that was at it wrote these.
    for (const key of Object.values(written(video))) await world.media.put(key, "written");
    await probeEnded(parts, probeTask(video));
    expect((await world.media.list({ prefix: keys.folder })).objects).toEqual([]);
  });

  it("comes also where the maker of the video died before it asked for one", async () => {
    const video = await newVideo();
    const count = async () => {
      const { rows } = await world.visionDatabase.execute(sql`SELECT count(*)::int AS n FROM task
        WHERE idempotency_key = ${`probe:${video.video_id}`}`);
      return rows[0]?.n;
    };
    await world.visionDatabase.execute(sql`WITH t AS (
        DELETE FROM task WHERE idempotency_key = ${`probe:${video.video_id}`})
      UPDATE video SET created_at = now() - interval '5 minutes'
       WHERE id = ${video.video_id}::uuid`);
    expect(await enqueueMissingProbes(parts)).toBe(1);
    expect(await enqueueMissingProbes(parts)).toBe(0);
    expect(await count()).toBe(1);
  });
});

describe("videos", () => {
  it("are deleted with their objects, but for those that a job uses", async () => {
    const video = await probed();
    const path = `/videos/${video.video_id}`;
    expect(code(await viewer.ask("DELETE", path))).toEqual([403, "forbidden"]);
    const jobId = randomUUID();
    await world.visionDatabase.execute(sql`
      WITH j AS (INSERT INTO job (id, workspace_id, project_id, name, kind, threshold)
        VALUES (${jobId}::uuid, ${tenant.workspaceId}::uuid, ${video.project_id}::uuid, 'j', 'text',
          0.5))
      INSERT INTO job_video (job_id, video_id, position, frames)
      VALUES (${jobId}::uuid, ${video.video_id}::uuid, 0, '{0}')`);
    expect(code(await engineer.ask("DELETE", path))).toEqual([409, "state_conflict"]);
    await world.visionDatabase.execute(sql`DELETE FROM job WHERE id = ${jobId}::uuid`);
    const folder = objectKeys(tenant.workspaceId, video.video_id).folder;
    expect((await world.media.list({ prefix: folder })).objects).toHaveLength(3);
    expect((await engineer.ask("DELETE", path)).status).toBe(204);
    expect((await world.media.list({ prefix: folder })).objects).toEqual([]);
    expect(code(await engineer.ask("GET", path))).toEqual([404, "not_found"]);
  });

  it("leave the file to another row that links to it", async () => {
    const video = await newVideo();
    const { source: storage_key } = objectKeys(tenant.workspaceId, video.video_id);
    // The routes link no file of an upload.
    await world.visionDatabase.execute(sql`
      INSERT INTO video (id, workspace_id, project_id, filename, storage_key, source, bytes,
        content_type)
      SELECT gen_random_uuid(), workspace_id, project_id, 'again.mp4', storage_key, 'link', bytes,
        content_type FROM video WHERE id = ${video.video_id}::uuid`);
    expect((await engineer.ask("DELETE", `/videos/${video.video_id}`)).status).toBe(204);
    expect(await world.media.get(storage_key)).not.toBeNull();
  });
});

describe("frames", () => {
  it("carry the times that were decoded, page by page", async () => {
    const { video_id } = await probed();
    const page = async (query: string) => {
      const reply = await viewer.ask("GET", `/videos/${video_id}/frames${query}`);
      expect(reply.status).toBe(200);
      return FramePage.parse(reply.body);
    };
    const middle = await page("?offset=9&limit=2");
    expect(middle).toMatchObject({ total: 60, offset: 9, limit: 2 });
    expect(middle.items).toEqual(
      [9, 10].map((index) => ({
        frame_id: `${video_id}.${index}`,
        video_id,
        index,
        pts_seconds: (PTS[index] as number) / 30_000,
        image_url: `/api/v1/videos/${video_id}/frames/${index}.jpg`,
      })),
    );
    expect((await page("")).items).toHaveLength(60);
    expect((await page("?offset=59&limit=5")).items).toHaveLength(1);
    expect((await page("?offset=60")).items).toEqual([]);
    const bad = await viewer.ask("GET", `/videos/${video_id}/frames?limit=0`);
    expect(code(bad)).toEqual([422, "invalid_request"]);
  });

  it("wait for the probe", async () => {
    const { video_id } = await newVideo();
    for (const path of ["frames", "frames/0.jpg", "thumbnail.jpg"]) {
      const reply = await viewer.ask("GET", `/videos/${video_id}/${path}`);
      expect(code(reply)).toEqual([409, "state_conflict"]);
    }
  });

  it("are images that never change, for their readers' own caches", async () => {
    const { video_id } = await probed();
    const keys = objectKeys(tenant.workspaceId, video_id);
    await world.media.put(keys.frame(7), jpeg());
    for (const path of ["frames/7.jpg", "thumbnail.jpg"]) {
      const reply = await viewer.ask("GET", `/videos/${video_id}/${path}`);
      expect(reply.status).toBe(200);
      expect(reply.headers.get("Content-Type")).toBe("image/jpeg");
      expect(reply.headers.get("Cache-Control")).toBe("private, max-age=31536000, immutable");
      const headers = { "If-None-Match": reply.headers.get("ETag") ?? "" };
      const again = await viewer.ask("GET", `/videos/${video_id}/${path}`, undefined, headers);
      expect(again.status).toBe(304);
    }
  });

  it("answer 404 beyond the last, 422 for no number, and 503 while no node is there", async () => {
    const { video_id } = await probed();
    const get = (image: string) => viewer.ask("GET", `/videos/${video_id}/frames/${image}`);
    expect(code(await get("60.jpg"))).toEqual([404, "not_found"]);
    expect(code(await get("x.jpg"))).toEqual([422, "invalid_request"]);
    expect(code(await get("1.png"))).toEqual([422, "invalid_request"]);
    expect(code(await get("59.jpg"))).toEqual([503, "no_node"]);
  });
});

describe("sampling frames", () => {
  const ticks = Int32Array.from(PTS);

  it("takes the first frame at or after each step, by true times", () => {
    expect(sampleFrames(ticks, [1, 30_000], null)).toHaveLength(60);
    const twice = sampleFrames(ticks, [1, 30_000], 2);
    // 0, then the first at 0.5 s, which lies after the gap, then the first at 1 s and so on.
    expect(twice.map((index) => (PTS[index] as number) / 30_000)).toEqual(
      [0, 10, 15, 30, 45].map((index) => (PTS[index] as number) / 30_000),
    );
    expect(sampleFrames(ticks, [1, 30_000], 1_000)).toHaveLength(60);
    expect(sampleFrames(ticks, [1, 30_000], 0.1)).toEqual([0]);
    expect(sampleFrames(new Int32Array(), [1, 30_000], 1)).toEqual([]);
  });

  it("holds for any times and rate", () => {
    const times = fc.array(fc.integer({ min: 1, max: 90_000 }), { minLength: 1, maxLength: 200 });
    const rate = fc.double({ min: 0.05, max: 120, noNaN: true });
    fc.assert(
      fc.property(times, rate, (gaps, fps) => {
        let at = 0;
        const pts = Int32Array.from(gaps, (gap, index) => (at += index === 0 ? 0 : gap));
        const seconds = (index: number) => (pts[index] as number) / 90_000;
        const taken = sampleFrames(pts, [1, 90_000], fps);
        const step = (index: number) => Math.floor((seconds(index) + 1e-6) * fps);
        expect(taken[0]).toBe(0);
        for (const [place, index] of taken.entries()) {
          if (place === 0) continue;
          const before = taken[place - 1] as number;
          // A new step is reached, and no frame since the last one taken had reached it.
          expect(step(index)).toBeGreaterThan(step(before));
          expect(step(index - 1)).toBe(step(before));
        }
        expect(step(taken.at(-1) as number)).toBe(step(pts.length - 1));
      }),
    );
  });
});
