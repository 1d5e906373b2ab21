// Files into the object store, in workerd with the real Postgres and R2: what is taken, what is
// refused, what is left behind when it goes wrong, and how much memory it costs.

import { randomUUID } from "node:crypto";
import { request } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { API } from "../../../../edge/vision/base/api.ts";
import { isKeyUnder } from "../../../../edge/vision/media/uploads/link.ts";
import { videoType } from "../../../../edge/vision/media/uploads/media-types.ts";
import { imageHeader } from "../../../../shared/image-header.ts";
import { Video, VideoBatch } from "../../../../shared/wire/vision.ts";
import { avi, form, jpeg, mp4, png, streamedForm, text, webm } from "../../../support/media.ts";
import {
  clip,
  code,
  createUploadWorld,
  newProject,
  UPLOAD_MAX,
  type UploadWorld,
} from "../../../support/upload-world.ts";
import { newMember, newTenant } from "../../../support/vision.ts";

let { world, admin, tenant, engineer, projectId, stored } = {} as UploadWorld;

beforeAll(async () => {
  ({ world, admin, tenant, engineer, projectId, stored } = await createUploadWorld());
});

const ofProject = (): [string, string] => ["project_id", projectId];
const upload = (...parts: Parameters<typeof form>) =>
  engineer.ask("POST", "/upload", form(...parts));
/** Sends a body over a plain socket; resolves with the status, or with the socket's error. */
function send(
  path: string,
  headers: Record<string, string>,
  chunks: AsyncIterable<Uint8Array>,
): Promise<number> {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(world.urls.vision);
    const outgoing = request({
      hostname,
      port,
      path: API + path,
      method: "POST",
      headers: { Authorization: `Bearer ${engineer.tokens.access_token}`, ...headers },
    });
    outgoing.on("response", (response) => resolve(response.resume().statusCode ?? 0));
    outgoing.on("error", reject);
    // The answer may come, and the connection end, before all is sent.
    pipeline(Readable.from(chunks), outgoing).catch(() => {});
  });
}

describe("POST /upload", () => {
  it("stores the file under a key of ours, makes its video and has it probed", async () => {
    const content = mp4(9_000_000);
    const reply = await upload(ofProject(), clip({ content, filename: "../../Früh um 8.mp4" }));
    expect(reply.status).toBe(201);
    const video = Video.parse(reply.body);
    expect(video).toMatchObject({
      project_id: projectId,
      filename: "Früh um 8.mp4",
      source: "upload",
      status: "probing",
      bytes: content.length,
      content_type: "video/mp4",
      frame_count: null,
    });
    const key = `ws/${tenant.workspaceId}/videos/${video.video_id}/source`;
    const object = await world.media.get(key);
    expect(
      Buffer.compare(Buffer.from((await object?.arrayBuffer()) ?? new ArrayBuffer()), content),
    ).toBe(0);
    const { rows } = await world.visionDatabase.execute(sql`SELECT kind, subject, payload FROM task
      WHERE idempotency_key = ${`probe:${video.video_id}`}`);
    expect(rows).toMatchObject([
      {
        kind: "probe",
        subject: `video:${video.video_id}`,
        payload: { still: false, video: { key, bytes: content.length, url: "" } },
      },
    ]);
  });

  it("takes the project after the file, in another workspace too", async () => {
    expect((await upload(clip(), ofProject())).status).toBe(201);
    const second = await newTenant(world.urls.vision, admin, "engineer");
    const given = { workspace_id: second.workspaceId, role: "engineer" };
    await admin.ask("PATCH", `/admin/users/${engineer.id}`, given);
    await engineer.renew();
    const projects = await Promise.all(
      [tenant, second].map(({ workspaceId }) =>
        newProject(engineer, { workspace_id: workspaceId }),
      ),
    );
    for (const [place, workspace] of [tenant, second].entries()) {
      const content = mp4(9_000_000);
      const reply = await upload(clip({ content }), ["project_id", projects[place] ?? ""]);
      expect(reply.status).toBe(201);
      const folder = `/videos/${reply.body.video_id}/`;
      const keys = (await stored()).filter(({ key }) => key.includes(folder));
      expect(keys).toEqual([
        { key: `ws/${workspace.workspaceId}${folder}source`, size: content.length },
      ]);
    }
    await admin.ask("PATCH", `/admin/users/${engineer.id}`, { ...given, role: null });
    await engineer.renew();
  });

  it.each([
    ["mov", mp4(100, "qt  "), "video/quicktime"],
    ["avi", avi(), "video/x-msvideo"],
    ["webm", webm(), "video/webm"],
  ])("knows %s by its first bytes", async (_, content, type) => {
    const reply = await upload(ofProject(), clip({ content, filename: "file.txt" }));
    expect([reply.status, reply.body.content_type]).toEqual([201, type]);
  });

  it.each<[string, () => Parameters<typeof form>, number, string]>([
    [
      "a text called .mp4",
      () => [ofProject(), clip({ content: text() })],
      415,
      "unsupported_media",
    ],
    ["a still image", () => [ofProject(), clip({ content: png() })], 415, "unsupported_media"],
    [
      "an AVIF image",
      () => [ofProject(), clip({ content: mp4(99, "avif") })],
      415,
      "unsupported_media",
    ],
    [
      "a large text",
      () => [ofProject(), clip({ content: new Uint8Array(2e7) })],
      415,
      "unsupported_media",
    ],
    [
      "an empty file",
      () => [ofProject(), clip({ content: new Uint8Array() })],
      422,
      "invalid_request",
    ],
    ["no file", () => [ofProject()], 422, "invalid_request"],
    [
      "a file in another field",
      () => [ofProject(), clip({ field: "video" })],
      422,
      "invalid_request",
    ],
    ["two files", () => [ofProject(), clip(), clip()], 422, "invalid_request"],
    ["no project", () => [clip()], 422, "invalid_request"],
    ["a project that is no id", () => [["project_id", "x"], clip()], 422, "invalid_request"],
    ["a project that is not there", () => [["project_id", randomUUID()], clip()], 404, "not_found"],
    ["the same, after the file", () => [clip(), ["project_id", randomUUID()]], 404, "not_found"],
  ])("refuses %s and leaves no object", async (_, parts, status, expected) => {
    const before = await stored();
    expect(code(await upload(...parts()))).toEqual([status, expected]);
    expect(await stored()).toEqual(before);
  });

  it("answers 400 for a body that is no form, or ends before its last boundary", async () => {
    const before = await stored();
    expect(code(await engineer.ask("POST", "/upload", { project_id: projectId }))).toEqual([
      400,
      "bad_body",
    ]);
    const { chunks, headers } = streamedForm(projectId, 20_000_000, { announced: false });
    async function* cut() {
      let sent = 0;
      for await (const chunk of chunks()) {
        sent += chunk.length;
        if (sent > 15_000_000) return;
        yield chunk;
      }
    }
    expect(await send("/upload", headers, cut())).toBe(400);
    expect(await stored()).toEqual(before);
  });

  it("answers 413 before the body is sent when its length says so, and else as it passes", async () => {
    const before = await stored();
    const announced = streamedForm(projectId, UPLOAD_MAX + 2_000_000);
    expect(await send("/upload", announced.headers, announced.chunks())).toBe(413);
    const silent = streamedForm(projectId, UPLOAD_MAX + 1, { announced: false });
    expect(await send("/upload", silent.headers, silent.chunks())).toBe(413);
    expect(await stored()).toEqual(before);
    const largest = streamedForm(projectId, UPLOAD_MAX, { announced: false });
    expect(await send("/upload", largest.headers, largest.chunks())).toBe(201);
  });

  it("leaves no object of an upload whose sender went away", async () => {
    const before = await stored();
    const logged = () => world.logs.filter((line) => line.includes('"path":"/api/v1/upload"'));
    const former = logged().length;
    const uploads = () =>
      world.visionDatabase.execute(sql`SELECT count(*)::int AS videos FROM video`);
    const videos = (await uploads()).rows;
    const { chunks, headers } = streamedForm(projectId, 30_000_000);
    const { hostname, port } = new URL(world.urls.vision);
    const outgoing = request({
      hostname,
      port,
      path: `${API}/upload`,
      method: "POST",
      headers: { Authorization: `Bearer ${engineer.tokens.access_token}`, ...headers },
    });
    outgoing.on("error", () => {});
    let sent = 0;
    for await (const chunk of chunks()) {
      sent += chunk.length;
      if (sent > 20_000_000) break;
      if (!outgoing.write(chunk)) await new Promise((done) => outgoing.once("drain", done));
    }
    outgoing.destroy();
    await expect.poll(() => logged().length).toBeGreaterThan(former);
    expect(logged()[former]).toContain('"status":400');
    expect(await stored()).toEqual(before);
    expect((await uploads()).rows).toEqual(videos);
  });

  it("is for engineers", async () => {
    const viewer = await newMember(world.urls.vision, admin, tenant.workspaceId, "annotator");
    const body = () => form(ofProject(), clip());
    expect(code(await viewer.ask("POST", "/upload", body()))).toEqual([403, "forbidden"]);
    expect(code(await viewer.ask("POST", "/upload/batch", body()))).toEqual([403, "forbidden"]);
  });
});

describe("POST /upload/batch", () => {
  const batch = (...parts: Parameters<typeof form>) =>
    engineer.ask("POST", "/upload/batch", form(...parts));

  it("keeps the good files and lists the bad ones", async () => {
    const before = await stored();
    const reply = await batch(
      clip({ field: "files", filename: "one.mp4" }),
      clip({ field: "files", filename: "two.mp4", content: text() }),
      clip({ field: "files", filename: "three.mp4", content: new Uint8Array(12_000_000) }),
      ofProject(),
      clip({ field: "files", filename: "four.mp4", content: mp4(9_000_000) }),
      clip({ field: "files", filename: "five.mp4", content: new Uint8Array() }),
      clip({ field: "files", filename: "six.mp4", content: mp4(UPLOAD_MAX + 1) }),
    );
    expect(reply.status).toBe(201);
    const { videos, failed } = VideoBatch.parse(reply.body);
    expect(videos.map(({ filename }) => filename)).toEqual(["one.mp4", "four.mp4"]);
    expect(failed.map(({ filename, code }) => [filename, code])).toEqual([
      ["two.mp4", "unsupported_media"],
      ["three.mp4", "unsupported_media"],
      ["five.mp4", "invalid_request"],
      ["six.mp4", "file_too_large"],
    ]);
    expect((await stored()).length).toBe(before.length + 2);
  });

  it("answers 422 when there is nothing to take, and names each file's trouble", async () => {
    const before = await stored();
    const reply = await batch(ofProject(), clip({ field: "files", content: text() }));
    expect(code(reply)).toEqual([422, "invalid_request"]);
    expect(reply.body.failed).toMatchObject([{ code: "unsupported_media" }]);
    expect(code(await batch(ofProject()))).toEqual([422, "invalid_request"]);
    expect(code(await batch(clip({ field: "files" })))).toEqual([422, "invalid_request"]);
    const strange = batch(clip({ field: "files" }), ["project_id", randomUUID()]);
    expect(code(await strange)).toEqual([404, "not_found"]);
    expect(await stored()).toEqual(before);
  });
});

describe("POST /upload/images", () => {
  it("makes a video of each image, by its header, never by its name", async () => {
    const reply = await engineer.ask(
      "POST",
      "/upload/images",
      form(
        ofProject(),
        { field: "files", filename: "a.txt", content: png() },
        { field: "files", filename: "b.jpg", content: jpeg(320, 200, 60_000) },
        { field: "files", filename: "clip.jpg", content: mp4() },
        { field: "files", filename: "bomb.png", content: png(60_000, 60_000) },
        { field: "files", filename: "none.png", content: png(0, 5) },
      ),
    );
    expect(reply.status).toBe(201);
    const { videos, failed } = VideoBatch.parse(reply.body);
    expect(videos.map(({ source, content_type }) => [source, content_type])).toEqual([
      ["image", "image/png"],
      ["image", "image/jpeg"],
    ]);
    expect(failed.map(({ filename, code }) => [filename, code])).toEqual([
      ["clip.jpg", "unsupported_media"],
      ["bomb.png", "file_too_large"],
      ["none.png", "unsupported_media"],
    ]);
    const { rows } = await world.visionDatabase.execute(sql`SELECT payload->>'still' AS still
      FROM task WHERE idempotency_key = ${`probe:${videos[0]?.video_id}`}`);
    expect(rows).toEqual([{ still: "true" }]);
  });
});

describe("POST /link-videos", () => {
  const link = (objects: object[], headers = {}) =>
    engineer.ask("POST", "/link-videos", { project_id: projectId, objects }, headers);
  const put = async (key: string, content: Uint8Array) => {
    await world.media.put(key, content);
    return key;
  };

  it("registers objects where they are", async () => {
    const storage_key = await put(`ws/${tenant.workspaceId}/imports/day 1/a.mp4`, mp4(5_000));
    const reply = await link([{ storage_key, filename: "a.mp4" }]);
    expect(reply.status).toBe(201);
    const { videos } = VideoBatch.parse(reply.body);
    expect(videos).toMatchObject([
      { source: "link", bytes: 5_000, content_type: "video/mp4", filename: "a.mp4" },
    ]);
    const path = `/videos/${videos[0]?.video_id}`;
    expect((await engineer.ask("DELETE", path)).status).toBe(204);
    expect(await world.media.get(storage_key)).not.toBeNull();
  });

  it("refuses keys that are another's, no object, or a trick", async () => {
    const foreign = await put("ws/other/secret.mp4", mp4());
    const own = `ws/${tenant.workspaceId}`;
    const keys = [
      ...[foreign, `${own}/../other/secret.mp4`, `${own}/./x`, `${own}//x`, `/${own}/x.mp4`],
      ...[`${own}/`, `${own}`, "", `https://evil.example/${own}/x.mp4`, `s3://bucket/${own}/x`],
      ...[`${own}/nothing.mp4`, `${own}/a\\..\\b`, `${own}/a\0b`, `${own}/${"a".repeat(1100)}`],
      `${own}%2f..%2fother/secret.mp4`,
    ];
    for (const storage_key of keys) {
      const reply = await link([{ storage_key, filename: "x" }]);
      expect([storage_key, ...code(reply)]).toEqual([storage_key, 422, "storage_key_refused"]);
    }
    const prefix = `ws/${tenant.workspaceId}/`;
    expect(isKeyUnder(prefix, `${prefix}a/b..c.mp4`)).toBe(true);
  });

  it("keeps the good and lists the bad, once for each Idempotency-Key", async () => {
    const own = `ws/${tenant.workspaceId}/imports`;
    const objects = [
      { storage_key: await put(`${own}/b.mp4`, mp4()), filename: "b.mp4" },
      { storage_key: await put(`${own}/c.mp4`, text()), filename: "c.mp4" },
      { storage_key: await put(`${own}/d.mp4`, new Uint8Array()), filename: "d.mp4" },
    ];
    const headers = { "Idempotency-Key": randomUUID() };
    const [first, ...again] = await Promise.all(
      Array.from({ length: 4 }, () => link(objects, headers)),
    );
    expect(first?.status).toBe(201);
    for (const reply of again) expect(reply.body).toEqual(first?.body);
    expect(VideoBatch.parse(first?.body).failed.map((one) => one.code)).toEqual([
      "unsupported_media",
      "unsupported_media",
    ]);
    const { rows } = await world.visionDatabase.execute(sql`SELECT count(*)::int AS n FROM video
      WHERE storage_key = ${objects[0]?.storage_key}`);
    expect(rows).toEqual([{ n: 1 }]);
    expect(code(await link(objects.slice(1), headers))).toEqual([409, "idempotency_conflict"]);
    expect(code(await link(objects.slice(1)))).toEqual([415, "unsupported_media"]);
    const bad = { "Idempotency-Key": "k".repeat(201) };
    expect(code(await link(objects, bad))).toEqual([422, "invalid_request"]);
    expect(code(await link([]))).toEqual([422, "invalid_request"]);
  });

  it("links once under a key, whatever the names of what it does not take", async () => {
    const storage_key = await put(`ws/${tenant.workspaceId}/imports/once.mp4`, mp4());
    const long = `${"n".repeat(254)}\u{1f600}`;
    const objects = [
      { storage_key, filename: long },
      ...["a\0b", "a\ud800", long].map((filename) => ({ storage_key: "x", filename })),
    ];
    const headers = { "Idempotency-Key": randomUUID() };
    const [first, second] = [await link(objects, headers), await link(objects, headers)];
    expect([first.status, second.status]).toEqual([201, 201]);
    expect(second.body).toEqual(first.body);
    const { videos, failed } = VideoBatch.parse(first.body);
    expect(videos).toHaveLength(1);
    const cut = `${"n".repeat(254)}\ufffd`;
    expect(failed.map(({ filename }) => filename)).toEqual(["ab", "a\ufffd", cut]);
    const endless = [{ storage_key, filename: "n".repeat(1_001) }];
    expect(code(await link(endless))).toEqual([422, "invalid_request"]);
  });

  it("is for engineers of the project's workspace", async () => {
    const viewer = await newMember(world.urls.vision, admin, tenant.workspaceId, "viewer");
    const objects = [{ storage_key: "x", filename: "x" }];
    const reply = await viewer.ask("POST", "/link-videos", { project_id: projectId, objects });
    expect(code(reply)).toEqual([403, "forbidden"]);
  });
});

describe("types by first bytes", () => {
  it("know containers, and fall for no short or strange file", () => {
    expect(videoType(mp4())).toBe("video/mp4");
    expect(videoType(webm())).toBe("video/webm");
    expect(videoType(mp4(100, "heic"))).toBeNull();
    expect(videoType(new Uint8Array(3))).toBeNull();
    expect(videoType(text())).toBeNull();
    expect(imageHeader(jpeg(11, 22, 40_000))).toEqual({
      type: "image/jpeg",
      width: 11,
      height: 22,
    });
    expect(imageHeader(jpeg(11, 22).subarray(0, 500))).toBeNull();
    const webp = (chunk: string, from: number, ...bytes: number[]) => {
      const file = new Uint8Array(64);
      file.set(new TextEncoder().encode(`RIFF____WEBP${chunk}`));
      file.set(bytes, from);
      return imageHeader(file);
    };
    const size = { type: "image/webp", width: 3, height: 258 };
    expect(webp("VP8 ", 26, 3, 0, 2, 1)).toEqual(size);
    expect(webp("VP8X", 24, 2, 0, 0, 1, 1, 0)).toEqual(size);
    expect(webp("VP8L", 21, 2, 0x40, 0x40, 0)).toEqual(size);
    expect(webp("WHAT", 24)).toBeNull();
  });
});
