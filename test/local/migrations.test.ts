// Migrations beside a service that works. Goal: whoever uses a table meanwhile is not held up, and
// a migration whose table is in use is applied once it is free.

import { sql } from "drizzle-orm";
import pg from "pg";
import { afterEach, expect, inject, it } from "vitest";
import { migrateDatabase } from "../../edge/local/migrations.ts";
import { superuser } from "../../edge/local/postgres.ts";
import { frameId } from "../../shared/wire/vision.ts";
import { copyDatabases } from "../support/postgres.ts";
import { laterRelease, migrateBeside } from "../support/releases.ts";
import {
  labelAs,
  newProject,
  probeAs,
  register,
  scriptedNode,
  uploadVideo,
} from "../support/scripted-node.ts";
import { createWorld } from "../support/world.ts";

const ADDED = 'ALTER TABLE "series" ADD COLUMN "later" int;';
const INDEXED = `
  CREATE INDEX CONCURRENTLY IF NOT EXISTS "series_later" ON "series" ("later");`;

const open: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of open.splice(0).reverse()) await end();
});

async function connect(connection: pg.ClientConfig): Promise<pg.Client> {
  const client = new pg.Client(connection);
  await client.connect();
  open.push(() => client.end());
  return client;
}

/** The markets migrations, and further ones by their names. */
function later(migrations: Readonly<Record<string, string>>): string {
  const { folder, remove } = laterRelease("markets", migrations);
  open.push(remove);
  return folder;
}

/** A migrated database of its own; how its owner connects. */
async function ownDatabase(): Promise<pg.ClientConfig> {
  const postgres = inject("postgres");
  const name = `markets_${crypto.randomUUID().slice(0, 8)}`;
  await copyDatabases(postgres, { markets: name, vision: `${name}_v`, graph: `${name}_g` });
  return superuser(postgres.port, postgres.credentials.superuser, name);
}

it("waits for a table that is in use without holding up those who ask for it after", async () => {
  const connection = await ownDatabase();
  const holder = await connect(connection);
  await holder.query("BEGIN; LOCK TABLE series IN ACCESS SHARE MODE");
  const migrated = migrateDatabase("markets", connection, later({ "9999_later": ADDED }));
  const watcher = await connect(connection);
  const waiting = async () => {
    const { rows } = await watcher.query(`
      SELECT count(*)::int AS n FROM pg_locks JOIN pg_class ON pg_class.oid = relation
       WHERE relname = 'series' AND NOT granted AND mode = 'AccessExclusiveLock'`);
    return rows[0].n;
  };
  await expect.poll(waiting, { interval: 20 }).toBe(1);
  // It stands behind the migration, which steps back.
  const reader = await connect({ ...connection, statement_timeout: 30_000 });
  expect((await reader.query("SELECT count(*)::int AS n FROM series")).rows).toEqual([{ n: 0 }]);
  await holder.query("COMMIT");
  await migrated;
  const { rows } = await reader.query("SELECT later FROM series");
  expect(rows).toEqual([]);
});

it("keeps migrations before one that fails, and goes on with that one", async () => {
  const connection = await ownDatabase();
  const broken = later({ "9998_later": ADDED, "9999_broken": "ALTER TABLE nothing ADD x int;" });
  await expect(migrateDatabase("markets", connection, broken)).rejects.toThrow("nothing");
  const client = await connect(connection);
  await client.query("SELECT later FROM series");
  const mended = later({ "9998_later": ADDED, "9999_broken": INDEXED });
  await migrateDatabase("markets", connection, mended);
  const { rows } = await client.query("SELECT FROM pg_indexes WHERE indexname = 'series_later'");
  expect(rows).toHaveLength(1);
});

it("refuses a database that no migration of today's leads on, and leaves it as it is", async () => {
  const connection = await ownDatabase();
  const client = await connect(connection);
  await client.query("UPDATE drizzle.__drizzle_migrations SET created_at = 1");
  await expect(migrateDatabase("markets", connection)).rejects.toThrow("npm start -- --reset");
  const { rows } = await client.query("SELECT created_at FROM drizzle.__drizzle_migrations");
  expect(new Set(rows.map(({ created_at }) => created_at))).toEqual(new Set(["1"]));
});

it("makes an index anew that a process began and did not end", async () => {
  const connection = await ownDatabase();
  const client = await connect(connection);
  await migrateDatabase("markets", connection, later({ "9998_later": ADDED }));
  // Two rows of one value: a unique index of them is left behind, and is none.
  await client.query("CREATE TABLE twice AS SELECT 1 AS later FROM generate_series(1, 2)");
  const unique = "CREATE UNIQUE INDEX CONCURRENTLY series_later ON twice (later)";
  await expect(client.query(unique)).rejects.toThrow("could not create");
  await migrateDatabase(
    "markets",
    connection,
    later({ "9998_later": ADDED, "9999_index": INDEXED }),
  );
  const { rows } = await client.query(`
    SELECT indrelid::regclass::text AS of, indisvalid AS valid FROM pg_index
     WHERE indexrelid = 'series_later'::regclass`);
  expect(rows).toEqual([{ of: "series", valid: true }]);
});

it("lets one after another migrate, of which each finds what is applied", async () => {
  const connection = await ownDatabase();
  const folder = later({ "9998_later": ADDED, "9999_index": INDEXED });
  const all = [1, 2, 3].map(() => migrateDatabase("markets", connection, folder));
  await Promise.all(all);
  const client = await connect(connection);
  const { rows } = await client.query(`
    SELECT created_at, count(*)::int AS times FROM drizzle.__drizzle_migrations
     GROUP BY created_at HAVING count(*) > 1`);
  expect(rows).toEqual([]);
});

it("fails no request of people who read and edit 20,000 annotations meanwhile", async () => {
  const ANNOTATIONS = 20_000;
  const world = await createWorld({ services: ["console", "vision"] });
  const admin = await register(world);
  const script = { probe: probeAs({ frames: 10 }), label: labelAs(() => []) };
  const node = await scriptedNode(world, admin, script);
  const projectId = (await newProject(admin)).project_id;
  const { video_id: video } = await uploadVideo(admin, projectId);
  await node.work();
  const body = { project_id: projectId, video_ids: [video], prompts: ["car"] };
  const { job_id: job } = await admin.ok<{ job_id: string }>("POST", "/label", body);
  await node.work();
  await world.visionDatabase.execute(sql`
    INSERT INTO annotation (id, workspace_id, job_id, video_id, frame_index, class_number, x1, y1,
      x2, y2, confidence, source)
    SELECT gen_random_uuid(), workspace_id, id, ${video}::uuid, n % 10, 0, 0, 0, 10, 10, 0.9, 'model'
      FROM job, generate_series(1, ${ANNOTATIONS}::int) n WHERE id = ${job}::uuid`);
  const { rows } = await world.visionDatabase.execute<{ name: string }>(
    sql`SELECT current_database() AS name`,
  );
  const { port, credentials } = inject("postgres");
  const owner = superuser(port, credentials.superuser, rows[0]?.name ?? "");
  const at = (turn: number) => ({ frame_id: frameId(video, turn % 10) });
  const drawn = { job_id: job, class: "car", bbox: [1, 1, 20, 20] };
  const outcome = await migrateBeside(owner, [
    () => admin.send("GET", `/jobs/${job}/annotations?limit=20&sort=confidence`),
    () => admin.send("GET", `/jobs/${job}/stats`),
    (turn) => admin.send("POST", "/annotations", { ...drawn, ...at(turn) }),
    (turn) =>
      admin.send("POST", `/jobs/${job}/annotations/review`, {
        accepted: turn % 2 === 0,
        include_reviewed: true,
        filter: at(turn),
      }),
  ]);
  expect(outcome.failed).toEqual([]);
  expect(outcome.requests).toBeGreaterThan(10);
});
