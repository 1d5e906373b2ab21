// Entries of the audit log that an older release wrote, before the migration or, while its Workers
// still run, after it. Goal: they are told in the words of this one, each has its workspace, and
// none is lost.

import { randomUUID } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import { afterAll, beforeAll, expect, inject, it } from "vitest";
import { superuser } from "../../../edge/local/postgres.ts";

const FOLDER = join(import.meta.dirname, "../../../db/vision/migrations");
const name = `audit_${randomUUID().slice(0, 8)}`;
let server: pg.Client;
let database: pg.Client;

beforeAll(async () => {
  const { port, credentials } = inject("postgres");
  const connection = superuser(port, credentials.superuser);
  server = new pg.Client(connection);
  await server.connect();
  await server.query(`CREATE DATABASE ${name}`);
  database = new pg.Client({ ...connection, database: name });
  await database.connect();
});
afterAll(async () => {
  await database?.end();
  await server?.query(`DROP DATABASE IF EXISTS ${name}`);
  await server?.end();
});

const files = readdirSync(FOLDER)
  .filter((file) => file.endsWith(".sql"))
  .toSorted();
/** The migration that this is about, whatever its number. */
const own = files.findIndex((file) => file.endsWith("_audit.sql"));

async function migrate(some: readonly string[]) {
  for (const file of some) {
    const text = readFileSync(join(FOLDER, file), "utf8");
    for (const statement of text.split("--> statement-breakpoint")) await database.query(statement);
  }
}

const OLDER = "INSERT INTO audit_entry (actor_id, action, subject, detail) VALUES ($1, $2, $3, $4)";
type OlderEntry = [actor: string | null, action: string, subject: string, detail: object];

async function insertOlder(entries: readonly OlderEntry[]) {
  for (const [actor, action, subject, detail] of entries) {
    await database.query(OLDER, [actor, action, subject, JSON.stringify(detail)]);
  }
}

it("older entries keep what they said, in the words of the newer, each in its workspace", async () => {
  await migrate(files.slice(0, own));
  const [actor, workspace, node, task] = [0, 1, 2, 3].map(() => randomUUID());
  await database.query("INSERT INTO workspace (id, name) VALUES ($1, 'own')", [workspace]);
  await database.query(
    `INSERT INTO node (id, workspace_id, name, token_hash, capabilities)
     VALUES ($1, $2, 'n', 'x', '{}')`,
    [node, workspace],
  );
  await database.query(
    `INSERT INTO task (id, kind, workspace_id, subject, payload) VALUES ($1, 'label', $2, 's', '{}')`,
    [task, workspace],
  );
  const gone = randomUUID();
  const old: OlderEntry[] = [
    [actor ?? "", "set_role", `account:${actor}`, { workspace_id: workspace, role: "admin" }],
    [actor ?? "", "create_workspace", `workspace:${workspace}`, { name: "own" }],
    [actor ?? "", "node.code", "nodes", { workspace_id: null, expires_at: "2026-01-01" }],
    [null, "node.register", `node:${node}`, { name: "n" }],
    [actor ?? "", "node.revoke", `node:${gone}`, {}],
    [actor ?? "", "task.revoke", `task:${task}`, { status: "revoked", kind: "label" }],
    [actor ?? "", "job.mark-failed", `job:${gone}`, { from: "running" }],
  ];
  await insertOlder(old);
  await migrate(files.slice(own));
  // A Worker of the older release does all of it again before the newer one takes its place.
  await insertOlder(old);
  const { rows } = await database.query(
    "SELECT actor_kind, action, workspace_id, before, after FROM audit_entry ORDER BY id",
  );
  const told = rows.map((row) => Object.values(row));
  const created = { workspace_id: null, expires_at: "2026-01-01" };
  const expected = [
    ["member", "setRole", workspace, null, { role: "admin" }],
    ["member", "makeWorkspace", workspace, null, { name: "own" }],
    ["member", "makeNodeCode", null, null, created],
    ["service", "registerNode", workspace, null, { name: "n" }],
    ["member", "revokeNode", null, null, {}],
    ["member", "revokeTask", workspace, null, { status: "revoked", kind: "label" }],
    ["member", "failJob", null, { status: "running" }, { status: "failed" }],
  ];
  expect(told).toEqual([...expected, ...expected]);
  const left = await database.query("SELECT FROM audit_entry WHERE detail IS NOT NULL");
  expect(left.rows).toEqual([]);
});
