// The migration that begins to count annotations, on a database that has some. Goal: it counts what
// its triggers would have counted, had they been there from the beginning.

import pg from "pg";
import { afterAll, beforeAll, expect, inject, it } from "vitest";
import { migrateDatabase } from "../../edge/local/migrations.ts";
import { superuser } from "../../edge/local/postgres.ts";
import { earlierRelease } from "../support/releases.ts";

const BEFORE = "0024_workspace_makers";
const name = `counted_${crypto.randomUUID().slice(0, 8)}`;
const TABLES = ["annotation_count", "area_count", "frame_count"];
let client: pg.Client;

beforeAll(async () => {
  const { port, credentials } = inject("postgres");
  const owner = new pg.Client(superuser(port, credentials.superuser));
  await owner.connect();
  await owner.query(`CREATE DATABASE ${name}`).finally(() => owner.end());
  const connection = superuser(port, credentials.superuser, name);
  const { folder, remove } = earlierRelease("vision", BEFORE);
  await migrateDatabase("vision", connection, folder).finally(remove);
  client = new pg.Client(connection);
  await client.connect();
  // Two jobs of other thresholds; every fourth annotation repeats the one before it.
  await client.query(`
    INSERT INTO workspace (id, name) VALUES ('00000000-0000-0000-0000-000000000001', 'w');
    INSERT INTO project (id, workspace_id, name)
    SELECT '00000000-0000-0000-0000-000000000002', id, 'p' FROM workspace WHERE name = 'w';
    INSERT INTO video (id, workspace_id, project_id, filename, storage_key, source, state, bytes,
      content_type, width, height, frame_count, time_base, pts_key)
    SELECT '00000000-0000-0000-0000-000000000003', workspace_id, id, 'v.mp4', 'ws/x', 'upload',
      'ready', 1, 'video/mp4', 100, 100, 50, '{1, 30}', 'pts' FROM project;
    INSERT INTO job (id, workspace_id, project_id, name, kind, state, threshold)
    SELECT ('00000000-0000-0000-0000-00000000001' || n)::uuid, workspace_id, id, 'j', 'manual',
      'completed', (0.3 + n / 4.0)::real FROM project, generate_series(0, 1) n;
    INSERT INTO job_class (job_id, number, name)
    SELECT id, n, 'class ' || n FROM job, generate_series(0, 2) n;
    INSERT INTO annotation (id, workspace_id, job_id, video_id, frame_index, class_number, x1, y1,
      x2, y2, confidence, review, source, duplicate_of)
    SELECT md5(j.id::text || n)::uuid, j.workspace_id, j.id, v.id, n / 10, n % 3, 0, 0, 1 + n % 70,
      10, CASE WHEN n % 7 > 0 THEN n % 100 / 100.0 END,
      (ARRAY['pending', 'pending', 'accepted', 'rejected'])[1 + n * 5 % 4],
      (ARRAY['model', 'person'])[1 + n % 2],
      CASE WHEN n % 4 = 3 THEN md5(j.id::text || (n - 1))::uuid END
      FROM job j, video v, generate_series(0, 399) n`);
  await migrateDatabase("vision", connection);
});
afterAll(() => client.end());

const countsOf = async () => {
  const all: Record<string, unknown[]> = {};
  for (const table of TABLES) {
    const { rows } = await client.query(`
      SELECT to_jsonb(t) AS row FROM ${table} t
       WHERE to_jsonb(t)->>'annotations' IS DISTINCT FROM '0'
         AND to_jsonb(t)->>'stored' IS DISTINCT FROM '0' ORDER BY to_jsonb(t)::text`);
    all[table] = rows.map(({ row }) => row);
  }
  return all;
};

it("counts what the triggers count", async () => {
  const counted = await countsOf();
  for (const table of TABLES) expect(counted[table]?.length).toBeGreaterThan(20);
  const repeats = await client.query(
    "SELECT id, repeats_to FROM annotation WHERE repeats_to IS NOT NULL ORDER BY id",
  );
  expect(repeats.rows.length).toBeGreaterThan(50);
  await client.query(`
    CREATE TABLE kept AS SELECT * FROM annotation;
    DELETE FROM annotation`);
  for (const rows of Object.values(await countsOf())) expect(rows).toEqual([]);
  await client.query(`
    UPDATE kept SET repeats_to = NULL;
    INSERT INTO annotation SELECT * FROM kept`);
  expect(await countsOf()).toEqual(counted);
  const again = await client.query(
    "SELECT id, repeats_to FROM annotation WHERE repeats_to IS NOT NULL ORDER BY id",
  );
  expect(again.rows).toEqual(repeats.rows);
});
