// Imports with images while something fails or is in doubt: a process that dies, a store that is
// full, a node that is away, uploads that are not what they should be, people of other workspaces.

import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { zipSync } from "fflate";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { ArchiveImport, type Job } from "../../../../shared/wire/labeling.ts";
import {
  annotationsOf,
  archiveForm,
  createImageImportWorld,
  type Files,
  type ImageImportWorld,
  importOf,
  jpegOf,
  stillsOf,
  zipOf,
} from "../../../support/image-import-world.ts";
import { apiAs, colleague, newProject } from "../../../support/scripted-node.ts";
import { alterTables } from "../../../support/transactions.ts";
import { newTenant } from "../../../support/vision.ts";

const QUOTA = 50_000_000;
const COUNT = 52;
const LINE = "0 0.25 0.375 0.25 0.25";

let { world, owner, admin, node } = {} as ImageImportWorld;
/** Images, a cat on each: more than one slice of an import; and a few of them. */
const files: Files = { "classes.txt": "cat" };
const few: Files = { "classes.txt": "cat" };
const FEW = 3;
let stop: (() => Promise<void>) | null = null;

beforeAll(async () => {
  ({ world, owner, admin, node } = await createImageImportWorld({
    WORKSPACE_BYTES_MAX: String(QUOTA),
  }));
  for (let index = 0; index < COUNT; index += 1) {
    const name = String(index).padStart(3, "0");
    files[`images/${name}.jpg`] = await jpegOf(index * 4);
    files[`labels/${name}.txt`] = LINE;
    if (index < FEW) Object.assign(few, files);
  }
  await alterTables(
    world.visionDatabase,
    `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql
      AS $$ BEGIN RAISE EXCEPTION 'refused by the test'; END $$`,
  );
});

afterEach(async () => {
  await stop?.();
  stop = null;
});

/** Has inserts of some rows of a table fail until the returned function is called. */
async function refuse(table: string, when = "true"): Promise<() => Promise<void>> {
  const trigger = `CREATE TRIGGER refuse_${table} BEFORE INSERT ON ${table} FOR EACH ROW`;
  await alterTables(world.visionDatabase, `${trigger} WHEN (${when}) EXECUTE FUNCTION refuse()`);
  return () => alterTables(world.visionDatabase, `DROP TRIGGER refuse_${table} ON ${table}`);
}

/** As if the process that has the import had died some minutes ago; then a minute passes. */
async function afterDeath(id: string, atOnce = 1) {
  await world.visionDatabase.execute(
    sql`UPDATE dataset_import SET leased_until = now() - interval '1 s' WHERE id = ${id}::uuid`,
  );
  await Promise.all(Array.from({ length: atOnce }, () => world.tick(Date.now())));
}

const send = (projectId: string, archive: Files | string, fields = {}) =>
  admin.send("POST", "/import/archive", archiveForm(projectId, archive, fields));

/** The import of a 202. */
async function begun(projectId: string, archive: Files | string = files) {
  const response = await send(projectId, archive);
  const text = await response.text();
  expect([response.status, text]).toEqual([202, text]);
  return ArchiveImport.parse(JSON.parse(text));
}

async function ended(id: string): Promise<ArchiveImport> {
  await expect
    .poll(
      async () => {
        await world.tick(Date.now());
        return (await importOf(admin, id)).status;
      },
      { timeout: 40_000, interval: 1_000 },
    )
    .not.toBe("running");
  return importOf(admin, id);
}

/** What an import comes to, however long it takes. */
async function finished(projectId: string, archive: Files | string): Promise<ArchiveImport> {
  const response = await send(projectId, archive);
  const text = await response.text();
  expect([response.status < 300, text]).toEqual([true, text]);
  const found = JSON.parse(text) as { job?: Job; import_id?: string };
  return ended(found.job?.job_id ?? found.import_id ?? "");
}

const jobsOf = (projectId: string) => admin.ok<Job[]>("GET", `/jobs?project_id=${projectId}`);
const archives = async () => (await world.media.list({ prefix: "imports/" })).objects.length;
/** Sources in the store that no video has. */
async function orphans(): Promise<string[]> {
  const { rows } = await world.visionDatabase.execute<{ key: string }>(
    sql`SELECT storage_key AS key FROM video`,
  );
  const known = new Set(rows.map(({ key }) => key));
  const { objects } = await world.media.list();
  return objects.map(({ key }) => key).filter((key) => /\/source$/.test(key) && !known.has(key));
}

describe("an import with images", () => {
  it("waits for a node without a job, and is completed once its images are decoded", async () => {
    const { project_id: projectId } = await newProject(admin);
    const { import_id: id, images, status } = await begun(projectId, few);
    expect([status, images]).toEqual([
      "running",
      { total: FEW, stored: 0, existing: 0, failed: 0, pending: FEW },
    ]);
    expect(await jobsOf(projectId)).toEqual([]);
    // A client that gave up waiting and sends it again does not have it done twice.
    const again = await send(projectId, few);
    expect([again.status, await again.json()]).toMatchObject([
      409,
      { code: "state_conflict", import_id: id },
    ]);
    await world.tick(Date.now());
    expect((await importOf(admin, id)).status).toBe("running");
    stop = node.start();
    const done = await ended(id);
    expect(done).toMatchObject({
      status: "completed",
      images: { total: FEW, stored: FEW, pending: 0 },
      result: { job: { job_id: id }, stored_annotations: FEW },
    });
    expect(await annotationsOf(admin, projectId, id)).toHaveLength(FEW);
    expect(await archives()).toBe(0);
  });

  it("goes on after its process died among the images, and stores none twice", async () => {
    const { project_id: projectId } = await newProject(admin);
    stop = node.start();
    const allow = await refuse("video", "NEW.filename = 'images/051.jpg'");
    const { import_id: id } = await begun(projectId);
    expect((await stillsOf(admin, projectId)).size).toBe(50);
    expect(await jobsOf(projectId)).toEqual([]);
    await allow();
    // Two processes at once believe that it is theirs.
    await afterDeath(id, 2);
    const done = await ended(id);
    expect(done.images).toEqual({
      total: COUNT,
      stored: COUNT,
      existing: 0,
      failed: 0,
      pending: 0,
    });
    const { rows } = await world.visionDatabase.execute(sql`
      SELECT count(*)::int AS count FROM video WHERE project_id = ${projectId}::uuid`);
    expect(rows).toEqual([{ count: COUNT }]);
    expect((await jobsOf(projectId)).map(({ job_id }) => job_id)).toEqual([id]);
    expect(await annotationsOf(admin, projectId, id)).toHaveLength(COUNT);
    expect([await archives(), await orphans()]).toEqual([0, []]);
  });

  it("shows no job before all of it is stored, and makes one whoever finishes it", async () => {
    const { project_id: projectId } = await newProject(admin);
    stop = node.start();
    const allow = await refuse("annotation");
    const { import_id: id } = await begun(projectId, few);
    expect([await jobsOf(projectId), (await importOf(admin, id)).result]).toEqual([[], null]);
    await allow();
    await afterDeath(id, 2);
    expect((await ended(id)).result?.stored_annotations).toBe(FEW);
    expect(await jobsOf(projectId)).toHaveLength(1);
    await admin.ok("DELETE", `/jobs/${id}`);
    expect(await importOf(admin, id)).toMatchObject({ status: "completed", result: null });
  });

  it("fails after it was broken off again and again", async () => {
    const { project_id: projectId } = await newProject(admin);
    const allow = await refuse("video", "NEW.filename = 'images/000.jpg'");
    const { import_id: id } = await begun(projectId, few);
    await world.visionDatabase.execute(
      sql`UPDATE dataset_import SET attempts = 15 WHERE id = ${id}::uuid`,
    );
    await afterDeath(id);
    await allow();
    const done = await importOf(admin, id);
    expect([done.status, done.failure]).toEqual(["failed", expect.stringMatching(/15 times/)]);
    expect([await archives(), await orphans()]).toEqual([0, []]);
    stop = node.start();
    const again = await finished(projectId, few);
    expect([again.status, again.import_id === id]).toEqual(["completed", false]);
  });

  it("that finds the store full is refused, and one that fills it fails and goes on", async () => {
    const { project_id: projectId } = await newProject(admin);
    const { workspace_id: workspaceId } = await admin.ok<{ workspace_id: string }>(
      "GET",
      `/projects/${projectId}`,
    );
    const filler = randomUUID();
    const fill = () =>
      world.visionDatabase.execute(sql`
        INSERT INTO video (id, workspace_id, project_id, filename, storage_key, source, bytes,
          content_type) VALUES (${filler}::uuid, ${workspaceId}::uuid, ${projectId}::uuid, 'filler',
          'none', 'link', ${QUOTA}::bigint, 'video/mp4')`);
    const empty = () =>
      world.visionDatabase.execute(sql`DELETE FROM video WHERE id = ${filler}::uuid`);
    await fill();
    const refused = await send(projectId, files);
    expect([refused.status, await refused.json()]).toMatchObject([413, { code: "quota_exceeded" }]);
    expect((await stillsOf(admin, projectId)).size).toBe(1);
    await empty();
    const allow = await refuse("video", "NEW.filename = 'images/051.jpg'");
    const { import_id: id } = await begun(projectId);
    await fill();
    await allow();
    await afterDeath(id);
    const failed = await importOf(admin, id);
    expect(failed).toMatchObject({ status: "failed", images: { total: COUNT }, result: null });
    expect(failed.failure).toMatch(/full/);
    expect([await archives(), await orphans()]).toEqual([0, []]);
    expect((await stillsOf(admin, projectId)).size).toBe(51);
    await empty();
    stop = node.start();
    expect((await finished(projectId, files)).images).toEqual({
      total: COUNT,
      stored: COUNT - 50,
      existing: 50,
      failed: 0,
      pending: 0,
    });
  });
});

interface Upload {
  upload_id: string;
  status: string;
  kind: string;
  urls: { url: string }[];
}

describe("an uploaded archive", () => {
  async function uploaded(projectId: string, content: Uint8Array): Promise<Upload> {
    const upload = await admin.ok<Upload>("POST", "/uploads", {
      project_id: projectId,
      filename: "dataset.zip",
      bytes: content.length,
      kind: "archive",
    });
    const body = new Uint8Array(content);
    const put = await fetch(upload.urls[0]?.url ?? "", { method: "PUT", body });
    const part = { part_number: 1, etag: put.headers.get("ETag") };
    await admin.ok("POST", `/uploads/${upload.upload_id}/parts`, { parts: [part] });
    return upload;
  }
  const complete = ({ upload_id }: Upload) =>
    admin.send("POST", `/uploads/${upload_id}/complete`, { parts: [] });
  const refusal = async (response: Promise<Response>) => {
    const answer = await response;
    return [answer.status, ((await answer.json()) as { code: string }).code];
  };

  it("is imported once, however often it is asked for", async () => {
    const { project_id: projectId } = await newProject(admin);
    const upload = await uploaded(projectId, zipOf(few));
    const early = send(projectId, upload.upload_id);
    expect(await refusal(early)).toEqual([409, "state_conflict"]);
    for (const response of [await complete(upload), await complete(upload)]) {
      expect([response.status, await response.json()]).toMatchObject([
        202,
        { status: "completed", kind: "archive", video_id: null },
      ]);
    }
    stop = node.start();
    const answers = await Promise.all([
      send(projectId, upload.upload_id),
      send(projectId, upload.upload_id),
    ]);
    for (const { status } of answers) expect([201, 202]).toContain(status);
    await ended(upload.upload_id);
    const last = await send(projectId, upload.upload_id);
    expect([last.status, await last.json()]).toMatchObject([
      201,
      { job: { job_id: upload.upload_id }, stored_annotations: FEW },
    ]);
    expect((await stillsOf(admin, projectId)).size).toBe(FEW);
    expect(await jobsOf(projectId)).toHaveLength(1);
    expect(await admin.refused("GET", `/uploads/${upload.upload_id}`)).toEqual([404, "not_found"]);
    const labels = send(projectId, upload.upload_id, { images: "false" });
    expect(await refusal(labels)).toEqual([409, "state_conflict"]);
    expect(await orphans()).toEqual([]);
  });

  it("may be imported for its labels alone, and stays for another import", async () => {
    const { project_id: projectId } = await newProject(admin);
    stop = node.start();
    await finished(projectId, few);
    const upload = await uploaded(projectId, zipOf(few));
    await complete(upload);
    for (let times = 0; times < 2; times += 1) {
      const labels = await send(projectId, upload.upload_id, { images: "false" });
      expect([labels.status, await labels.json()]).toMatchObject([
        201,
        { stored_annotations: FEW },
      ]);
    }
    expect((await finished(projectId, upload.upload_id)).status).toBe("completed");
    expect((await stillsOf(admin, projectId)).size).toBe(FEW);
  });

  it("is refused where it is no zip, or none of the project's", async () => {
    const { project_id: projectId } = await newProject(admin);
    const { project_id: elsewhere } = await newProject(admin);
    const text = await uploaded(projectId, new TextEncoder().encode("words and words"));
    expect(await refusal(complete(text))).toEqual([415, "unsupported_media"]);
    const upload = await uploaded(projectId, zipOf(few));
    await complete(upload);
    expect(await refusal(send(elsewhere, upload.upload_id))).toEqual([422, "invalid_request"]);
    const video = await admin.ok<Upload>("POST", "/uploads", {
      project_id: projectId,
      filename: "a.mp4",
      bytes: 9,
    });
    expect(video.kind).toBe("video");
    expect(await refusal(send(projectId, video.upload_id))).toEqual([422, "invalid_request"]);
    expect(await refusal(send(projectId, randomUUID()))).toEqual([404, "not_found"]);
    await admin.ok("DELETE", `/uploads/${upload.upload_id}`);
    expect(await refusal(send(projectId, upload.upload_id))).toEqual([409, "state_conflict"]);
    expect(await orphans()).toEqual([]);
  });

  it("and an import are for engineers, and every member reads how far it is", async () => {
    const { project_id: projectId } = await newProject(admin);
    const upload = await uploaded(projectId, zipOf(few));
    await complete(upload);
    for (const role of ["viewer", "annotator"] as const) {
      const person = await colleague(world, admin, role);
      for (const archive of [few, upload.upload_id]) {
        const body = archiveForm(projectId, archive);
        expect([role, ...(await person.refused("POST", "/import/archive", body))]).toEqual([
          role,
          403,
          "forbidden",
        ]);
      }
    }
    stop = node.start();
    await finished(projectId, upload.upload_id);
    const viewer = await colleague(world, admin, "viewer");
    expect((await importOf(viewer, upload.upload_id)).status).toBe("completed");
  });
});

it("a form with a field or a file of another name is told the one that was meant", async () => {
  const { project_id: projectId } = await newProject(admin);
  const detailOf = async (sent: Promise<Response>) => {
    const response = await sent;
    const { detail } = (await response.json()) as { detail: string };
    return [response.status, detail];
  };
  const field = send(projectId, files, { image: "true" });
  expect(await detailOf(field)).toEqual([422, "image: unknown field; did you mean images?"]);
  const form = new FormData();
  form.append("project_id", projectId);
  form.append("files", new Blob([new Uint8Array(4)]), "labels.zip");
  const file = admin.send("POST", "/import/archive", form);
  expect(await detailOf(file)).toEqual([422, "files: unknown field; did you mean file?"]);
});

it("an archive that was made to harm stores nothing", async () => {
  const { project_id: projectId } = await newProject(admin);
  const jpeg = files["images/000.jpg"] as Uint8Array;
  const label = { "classes.txt": new TextEncoder().encode("cat") };
  const refusals: [Uint8Array, RegExp][] = [
    [zipSync({ ...label, "a.jpg": [jpeg, { os: 3, attrs: 0o120777 << 16 }] }), /a link/],
    [zipSync({ ...label, "a.png": [new Uint8Array(9_000_000), { level: 9 }] }), /200 times/],
    [zipSync({ ...label, "../a.jpg": jpeg }), /not taken/],
  ];
  for (const [zip, detail] of refusals) {
    const body = archiveForm(projectId, zip);
    const response = await admin.send("POST", "/import/archive", body);
    expect([response.status, await response.json()]).toMatchObject([
      422,
      { code: "invalid_request", detail: expect.stringMatching(detail) },
    ]);
  }
  expect([await archives(), (await stillsOf(admin, projectId)).size]).toEqual([0, 0]);
});

it("an import of another tenant is 404, as is an archive of theirs", async () => {
  const { project_id: projectId } = await newProject(admin);
  const { member } = await newTenant(world.urls.vision, owner, "engineer");
  const stranger = apiAs(world.urls.vision, member.tokens.access_token);
  stop = node.start();
  const { import_id: id } = await finished(projectId, few);
  expect(await stranger.refused("GET", `/imports/${id}`)).toEqual([404, "not_found"]);
  expect(await admin.refused("GET", `/imports/${randomUUID()}`)).toEqual([404, "not_found"]);
  const theirs = archiveForm(projectId, few);
  expect(await stranger.refused("POST", "/import/archive", theirs)).toEqual([404, "not_found"]);
});
