// Parts straight into the object store, in workerd with the real Postgres and R2 behind its S3
// address: breaks, repeats, refusals, and the workspace's quota.

import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { partBytesFor } from "../../../../edge/vision/media/uploads/uploads.ts";
import { Video } from "../../../../shared/wire/vision.ts";
import { form, mp4, text } from "../../../support/media.ts";
import {
  clip,
  code,
  createUploadWorld,
  QUOTA,
  UPLOAD_MAX,
  type UploadWorld,
} from "../../../support/upload-world.ts";
import { newMember, newTenant } from "../../../support/vision.ts";

let { world, admin, tenant, engineer, projectId, stored } = {} as UploadWorld;

beforeAll(async () => {
  ({ world, admin, tenant, engineer, projectId, stored } = await createUploadWorld());
});

describe("direct uploads", () => {
  const begin = (bytes: number, more: object = {}) =>
    engineer.ask("POST", "/uploads", {
      project_id: projectId,
      filename: "big.mp4",
      bytes,
      ...more,
    });
  interface UploadReply {
    upload_id: string;
    part_bytes: number;
    part_count: number;
    parts: { part_number: number; etag: string }[];
    urls: { part_number: number; url: string }[];
  }
  const begun = async (bytes: number) => {
    const reply = await begin(bytes);
    expect(reply.status).toBe(201);
    // The wire shape is what the calls below check.
    return reply.body as unknown as UploadReply;
  };
  const putPart = async (upload: UploadReply, content: Uint8Array<ArrayBuffer>, number: number) => {
    const url = upload.urls.find((one) => one.part_number === number)?.url ?? "";
    const from = (number - 1) * upload.part_bytes;
    const body = content.subarray(from, from + upload.part_bytes);
    const response = await fetch(url, { method: "PUT", body });
    expect(response.status).toBe(200);
    return { part_number: number, etag: response.headers.get("ETag") ?? "" };
  };
  const path = (upload: UploadReply, more = "") => `/uploads/${upload.upload_id}${more}`;
  const look = async (upload: UploadReply) =>
    // The wire shape is what the calls below check.
    (await engineer.ask("GET", path(upload))).body as unknown as UploadReply & { status: string };

  it("go on after a break with the parts that are missing, and end as one video", async () => {
    const content = mp4(20_000_000);
    content.fill(7, 100);
    const upload = await begun(content.length);
    expect([upload.part_count, upload.parts.length, upload.urls.length]).toEqual([3, 0, 3]);
    const first = await putPart(upload, content, 1);
    const told = await engineer.ask("POST", path(upload, "/parts"), { parts: [first] });
    expect(told.status).toBe(200);
    // The sender dies here, with what it knew; another begins by asking.
    const resumed = await look(upload);
    expect(resumed.parts.map((part) => part.part_number)).toEqual([1]);
    expect(resumed.urls.map((part) => part.part_number)).toEqual([2, 3]);
    const early = await engineer.ask("POST", path(upload, "/complete"), { parts: [] });
    expect(code(early)).toEqual([409, "state_conflict"]);
    expect(early.body.parts_missing).toEqual([2, 3]);
    const rest = [await putPart(resumed, content, 3), await putPart(resumed, content, 2)];
    const complete = () => engineer.ask("POST", path(upload, "/complete"), { parts: rest });
    const done = await complete();
    expect(done.status).toBe(201);
    const video = Video.parse(done.body);
    expect(video).toMatchObject({ bytes: content.length, status: "probing", filename: "big.mp4" });
    const again = await Promise.all([complete(), complete()]);
    expect(again.map(({ status, body }) => [status, body.video_id])).toEqual([
      [201, video.video_id],
      [201, video.video_id],
    ]);
    const key = `ws/${tenant.workspaceId}/videos/${video.video_id}/source`;
    const object = await world.media.get(key);
    expect(
      Buffer.compare(Buffer.from((await object?.arrayBuffer()) ?? new ArrayBuffer()), content),
    ).toBe(0);
    expect(await look(upload)).toMatchObject({ status: "completed", urls: [] });
    expect(code(await engineer.ask("DELETE", path(upload)))).toEqual([409, "state_conflict"]);
    const late = await engineer.ask("POST", path(upload, "/parts"), { parts: [first] });
    expect(code(late)).toEqual([409, "state_conflict"]);
  });

  it("end as one video when two complete at once, or one died after the store was done", async () => {
    for (const forget of [false, true]) {
      const content = mp4(3_000);
      const upload = await begun(content.length);
      const parts = [await putPart(upload, content, 1)];
      const complete = () => engineer.ask("POST", path(upload, "/complete"), { parts });
      const replies = await Promise.all([complete(), complete()]);
      const ended = replies.filter(({ status }) => status === 201);
      expect(ended.length).toBeGreaterThan(0);
      if (forget) {
        await world.visionDatabase.execute(sql`
          WITH u AS (UPDATE upload SET video_id = NULL WHERE id = ${upload.upload_id}::uuid)
          DELETE FROM video WHERE id = ${upload.upload_id}::uuid`);
      }
      const last = await complete();
      expect([last.status, last.body.video_id]).toEqual([201, upload.upload_id]);
    }
  });

  it("end one way when completed and dropped at once", async () => {
    for (let round = 0; round < 8; round += 1) {
      const content = mp4(3_000);
      const upload = await begun(content.length);
      const parts = [await putPart(upload, content, 1)];
      const [done, dropped] = await Promise.all([
        engineer.ask("POST", path(upload, "/complete"), { parts }),
        engineer.ask("DELETE", path(upload)),
      ]);
      const outcome = [done.status, dropped.status];
      expect([
        [201, 409],
        [409, 204],
      ]).toContainEqual(outcome);
      const key = `ws/${tenant.workspaceId}/videos/${upload.upload_id}/source`;
      const video = await engineer.ask("GET", `/videos/${upload.upload_id}`);
      const object = await world.media.get(key);
      expect([object !== null, video.status]).toEqual(
        done.status === 201 ? [true, 200] : [false, 404],
      );
    }
  });

  it("refuse parts that are not those that arrived", async () => {
    const content = mp4(3_000);
    const upload = await begun(content.length);
    await putPart(upload, content, 1);
    const wrong = [{ part_number: 1, etag: '"nonsense"' }];
    const complete = (parts: object[]) =>
      engineer.ask("POST", path(upload, "/complete"), { parts });
    expect(code(await complete(wrong))).toEqual([409, "state_conflict"]);
    const beyond = [{ part_number: 2, etag: "x" }];
    expect(code(await engineer.ask("POST", path(upload, "/parts"), { parts: beyond }))).toEqual([
      422,
      "invalid_request",
    ]);
    for (const part of [{ part_number: 0 }, { etag: "a\0b" }, { etag: "\ud800" }]) {
      const named = [{ part_number: 1, etag: "x", ...part }];
      expect(code(await complete(named))).toEqual([422, "invalid_request"]);
      const told = await engineer.ask("POST", path(upload, "/parts"), { parts: named });
      expect(code(told)).toEqual([422, "invalid_request"]);
    }
    expect((await complete([await putPart(upload, content, 1)])).status).toBe(201);
  });

  it.each([
    ["of another size", mp4(3_000), 3_001, 409, "state_conflict"],
    ["of no type that is taken", text(), 297, 415, "unsupported_media"],
  ])("drop a file %s", async (_, content, bytes, status, expected) => {
    const before = await stored();
    const upload = await begun(content.length);
    const parts = [await putPart(upload, content as Uint8Array<ArrayBuffer>, 1)];
    // No address takes another number of bytes; the object is looked at nevertheless.
    await world.visionDatabase.execute(
      sql`UPDATE upload SET bytes = ${bytes} WHERE id = ${upload.upload_id}::uuid`,
    );
    const complete = () => engineer.ask("POST", path(upload, "/complete"), { parts });
    expect(code(await complete())).toEqual([status, expected]);
    expect(code(await complete())).toEqual([409, "state_conflict"]);
    expect(await stored()).toEqual(before);
    expect((await look(upload)).status).toBe("aborted");
  });

  it("may be dropped, and leave nothing", async () => {
    const before = await stored();
    const upload = await begun(3_000);
    const part = await putPart(upload, mp4(3_000), 1);
    expect((await engineer.ask("DELETE", path(upload))).status).toBe(204);
    expect((await engineer.ask("DELETE", path(upload))).status).toBe(204);
    const complete = await engineer.ask("POST", path(upload, "/complete"), { parts: [part] });
    expect(code(complete)).toEqual([409, "state_conflict"]);
    const url = upload.urls[0]?.url ?? "";
    expect((await fetch(url, { method: "PUT", body: mp4(3_000) })).status).toBe(404);
    expect(await stored()).toEqual(before);
  });

  it("are refused when too large, without room, or for no engineer", async () => {
    const tooLarge = await begin(UPLOAD_MAX + 1);
    expect(code(tooLarge)).toEqual([413, "file_too_large"]);
    expect(tooLarge.body.bytes_max).toBe(UPLOAD_MAX);
    expect(code(await begin(0))).toEqual([422, "invalid_request"]);
    expect(code(await begin(1, { project_id: randomUUID() }))).toEqual([404, "not_found"]);
    const viewer = await newMember(world.urls.vision, admin, tenant.workspaceId, "viewer");
    const body = { project_id: projectId, filename: "x", bytes: 1 };
    expect(code(await viewer.ask("POST", "/uploads", body))).toEqual([403, "forbidden"]);
    const upload = await begun(1_000);
    for (const [method, more] of [
      ["GET", ""],
      ["DELETE", ""],
      ["POST", "/complete"],
    ] as const) {
      const reply = await viewer.ask(
        method,
        path(upload, more),
        method === "POST" ? {} : undefined,
      );
      expect(code(reply)).toEqual([403, "forbidden"]);
    }
  });

  it("are begun once under an Idempotency-Key, and no address of theirs is kept", async () => {
    const headers = { "Idempotency-Key": randomUUID() };
    const body = { project_id: projectId, filename: "a.mp4", bytes: 3_000 };
    const first = await engineer.ask("POST", "/uploads", body, headers);
    const again = await engineer.ask("POST", "/uploads", body, headers);
    expect([first.status, again.status]).toEqual([201, 201]);
    expect(again.body.upload_id).toBe(first.body.upload_id);
    // The wire shape is what the calls below check.
    await putPart(again.body as unknown as UploadReply, mp4(3_000), 1);
    const { rows } = await world.visionDatabase.execute(sql`SELECT body::text AS kept
      FROM idempotent_answer WHERE key = ${headers["Idempotency-Key"]}`);
    expect(JSON.stringify(rows)).toContain(first.body.upload_id);
    expect(JSON.stringify(rows)).not.toMatch(/signature/i);
  });

  it("have parts so large that few enough do", () => {
    const MiB = 1024 ** 2;
    expect(partBytesFor(1)).toBe(8 * MiB);
    for (const bytes of [20 * 1024 ** 3, 1024 ** 4, 5 * 1024 ** 4]) {
      const part = partBytesFor(bytes);
      expect(Math.ceil(bytes / part)).toBeLessThanOrEqual(10_000);
      expect(part % MiB).toBe(0);
    }
  });
});

describe("the workspace's quota", () => {
  it("is counted over videos and begun uploads, and refuses what has no room", async () => {
    const full = await newTenant(world.urls.vision, admin, "engineer");
    const made = await full.member.ask("POST", "/projects", { name: "full" });
    const project_id = String(made.body.project_id);
    await world.visionDatabase.execute(sql`
      INSERT INTO upload (id, workspace_id, project_id, filename, storage_key, multipart_id, bytes,
        part_bytes, expires_at)
      VALUES (${randomUUID()}::uuid, ${full.workspaceId}::uuid, ${project_id}::uuid, 'x', 'x', 'x',
        ${QUOTA - 500}::bigint, 1, now() + interval '1 day')`);
    const before = await stored();
    const one = form(["project_id", project_id], clip({ content: mp4(1_000) }));
    const refused = await full.member.ask("POST", "/upload", one);
    expect(code(refused)).toEqual([413, "quota_exceeded"]);
    expect(refused.body).toMatchObject({ bytes_max: QUOTA, bytes_wanted: 1_000 });
    const direct = { project_id, filename: "x", bytes: 501 };
    expect(code(await full.member.ask("POST", "/uploads", direct))).toEqual([
      413,
      "quota_exceeded",
    ]);
    expect(await stored()).toEqual(before);
    const small = form(["project_id", project_id], clip({ content: mp4(400) }));
    expect((await full.member.ask("POST", "/upload", small)).status).toBe(201);
  });
});
