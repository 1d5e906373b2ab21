// Uploads while something else fails or happens: no object is left without its video, and no video
// without its object.

import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { beforeAll, expect, it } from "vitest";
import { VideoBatch } from "../../../../shared/wire/vision.ts";
import { form, mp4 } from "../../../support/media.ts";
import { alterTables, beginTransaction } from "../../../support/transactions.ts";
import {
  clip,
  code,
  createUploadWorld,
  newProject,
  QUOTA,
  UPLOAD_MAX,
  type UploadWorld,
} from "../../../support/upload-world.ts";
import { newTenant } from "../../../support/vision.ts";

let { world, admin, tenant, engineer, projectId, stored } = {} as UploadWorld;

beforeAll(async () => {
  ({ world, admin, tenant, engineer, projectId, stored } = await createUploadWorld());
  await alterTables(
    world.visionDatabase,
    `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql
      AS $$ BEGIN RAISE EXCEPTION 'refused by the test'; END $$`,
  );
});

/** Has every such statement fail until the returned function is called. */
async function refuse(when: string, table: string): Promise<() => Promise<void>> {
  const name = `refuse_${table}`;
  const trigger = `CREATE TRIGGER ${name} BEFORE ${when} ON ${table} FOR EACH ROW`;
  await alterTables(world.visionDatabase, `${trigger} EXECUTE FUNCTION refuse()`);
  return () => alterTables(world.visionDatabase, `DROP TRIGGER ${name} ON ${table}`);
}

const age = (table: string, id: string, column: string) =>
  world.visionDatabase.execute(sql`UPDATE ${sql.raw(table)}
    SET ${sql.raw(column)} = now() - interval '2 minutes' WHERE id = ${id}::uuid`);

it("leaves nothing of a batch whose project was deleted while it came", async () => {
  const before = await stored();
  const gone = await newProject(engineer);
  const deleting = await beginTransaction(world.visionDatabase);
  // Seen by nobody until it is committed, which is after the project was found.
  await deleting.query(`DELETE FROM project WHERE id = '${gone}'`);
  const files = [clip(), clip({ content: mp4(9_000_000) }), clip()];
  const reply = engineer.ask("POST", "/upload/batch", form(["project_id", gone], ...files));
  await deleting.awaited();
  await deleting.commit();
  expect(code(await reply)).toEqual([404, "not_found"]);
  expect(await stored()).toEqual(before);
});

it("keeps a video whose probe cannot be asked for yet, and asks later", async () => {
  const allow = await refuse("INSERT", "task");
  const reply = await engineer.ask("POST", "/upload", form(["project_id", projectId], clip()));
  await allow();
  expect(reply.status).toBe(201);
  const id = String(reply.body.video_id);
  const keys = (await stored()).filter(({ key }) => key.includes(id));
  expect(keys).toHaveLength(1);
  await age("video", id, "created_at");
  await world.tick(Date.now());
  const { rows } = await world.visionDatabase.execute(sql`SELECT subject FROM task
    WHERE idempotency_key = ${`probe:${id}`}`);
  expect(rows).toEqual([{ subject: `video:${id}` }]);
});

it("counts what came before in the same batch against the quota", async () => {
  const { rows } = await world.visionDatabase.execute<{ id: string }>(sql`
    INSERT INTO upload (id, workspace_id, project_id, filename, storage_key, multipart_id, bytes,
      part_bytes, expires_at)
    SELECT ${randomUUID()}::uuid, ${tenant.workspaceId}::uuid, ${projectId}::uuid, 'x', 'x', 'x',
      ${QUOTA}::bigint - 2000 - coalesce(sum(bytes), 0), 1, now() + interval '1 day' FROM video
    RETURNING id::text`);
  const files = [1, 2, 3].map((n) => clip({ filename: `${n}.mp4`, content: mp4(1_000) }));
  const body = form(["project_id", projectId], ...files);
  const reply = await engineer.ask("POST", "/upload/batch", body);
  const { videos, failed } = VideoBatch.parse(reply.body);
  expect([videos.length, failed.map((one) => one.code)]).toEqual([2, ["quota_exceeded"]]);
  await world.visionDatabase.execute(sql`DELETE FROM upload WHERE id = ${rows[0]?.id}::uuid`);
});

it("takes at the address of a part no other number of bytes than was announced", async () => {
  const before = await stored();
  const body = { project_id: projectId, filename: "a.mp4", bytes: 1_000 };
  const begun = await engineer.ask("POST", "/uploads", body);
  const [{ url }] = begun.body.urls as [{ url: string }];
  const put = async (content: Uint8Array<ArrayBuffer>) =>
    (await fetch(url, { method: "PUT", body: content })).status;
  expect([await put(mp4(1_001)), await put(mp4(999)), await put(new Uint8Array())]).toEqual([
    403, 403, 403,
  ]);
  expect(await put(mp4(1_000))).toBe(200);
  expect((await engineer.ask("DELETE", `/uploads/${begun.body.upload_id}`)).status).toBe(204);
  expect(await stored()).toEqual(before);
});

it("the minute cron does its other duties when one of them fails", async () => {
  const body = { project_id: projectId, filename: "a.mp4", bytes: 1_000 };
  const { upload_id } = (await engineer.ask("POST", "/uploads", body)).body;
  await age("upload", String(upload_id), "expires_at");
  const status = async () => (await engineer.ask("GET", `/uploads/${upload_id}`)).body.status;
  await world.visionDatabase.execute(sql`INSERT INTO throttle (key, attempts, window_ends_at)
    VALUES ('old', 1, now() - interval '1 minute')`);
  const lost = form(["project_id", projectId], clip());
  const allow = [await refuse("INSERT", "task"), await refuse("UPDATE", "upload")];
  const video = await engineer.ask("POST", "/upload", lost);
  await age("video", String(video.body.video_id), "created_at");
  // The probe cannot be asked for, nor the upload be given up; what is old goes still.
  await world.tick(Date.now()).catch(() => {});
  const old = sql`SELECT key FROM throttle WHERE key = 'old'`;
  expect((await world.visionDatabase.execute(old)).rows).toEqual([]);
  expect(world.logs.filter((line) => line.includes('"duty":"probes"'))).toHaveLength(1);
  expect(await status()).toBe("open");
  for (const end of allow) await end();
  await world.tick(Date.now());
  expect(await status()).toBe("aborted");
});

it("holds the quota when many come at once", async () => {
  const full = await newTenant(world.urls.vision, admin, "engineer");
  const project_id = await newProject(full.member);
  const used = async () => {
    const { rows } = await world.visionDatabase.execute<{ bytes: number }>(sql`
      SELECT coalesce(sum(bytes), 0)::float8 AS bytes FROM (
        SELECT bytes, workspace_id FROM upload WHERE aborted_at IS NULL AND video_id IS NULL
        UNION ALL SELECT bytes, workspace_id FROM video) held
       WHERE workspace_id = ${full.workspaceId}::uuid`);
    return rows[0]?.bytes ?? 0;
  };
  const begun = await Promise.all(
    Array.from({ length: 15 }, () => {
      const body = { project_id, filename: "a.mp4", bytes: UPLOAD_MAX };
      return full.member.ask("POST", "/uploads", body);
    }),
  );
  const refused = begun.filter(({ status }) => status !== 201);
  expect(refused.map(code)).toEqual(Array(5).fill([413, "quota_exceeded"]));
  expect(await used()).toBe(QUOTA);
  const [first] = begun.filter(({ status }) => status === 201);
  await full.member.ask("DELETE", `/uploads/${first?.body.upload_id}`);
  const sent = await Promise.all(
    Array.from({ length: 6 }, () => {
      const content = mp4(UPLOAD_MAX / 4);
      return full.member.ask("POST", "/upload", form(["project_id", project_id], { content }));
    }),
  );
  expect(sent.map(({ status }) => status).toSorted()).toEqual([201, 201, 201, 201, 413, 413]);
  expect(await used()).toBe(QUOTA);
});
