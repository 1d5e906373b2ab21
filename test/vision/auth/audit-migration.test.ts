// Entries of the audit log that an older release wrote. Goal: the migration tells them in the words
// of this one, gives each to its workspace, and loses none.

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
  const old: [string | null, string, string, object][] = [
    [actor ?? "", "set_role", `account:${actor}`, { workspace_id: workspace, role: "admin" }],
    [actor ?? "", "create_workspace", `workspace:${workspace}`, { name: "own" }],
    [actor ?? "", "node.code", "nodes", { workspace_id: null, expires_at: "2026-01-01" }],
    [null, "node.register", `node:${node}`, { name: "n" }],
    [actor ?? "", "node.revoke", `node:${gone}`, {}],
    [actor ?? "", "task.revoke", `task:${task}`, { status: "revoked", kind: "label" }],
    [actor ?? "", "job.mark-failed", `job:${gone}`, { from: "running" }],
  ];
  for (const entry of old) {
    const values = [...entry.slice(0, 3), JSON.stringify(entry[3])];
    await database.query(
      "INSERT INTO audit_entry (actor_id, action, subject, detail) VALUES ($1, $2, $3, $4)",
      values,
    );
  }
  await migrate(files.slice(own));
  const { rows } = await database.query(
    `SELECT actor_kind, action, workspace_id, before, after FROM audit_entry ORDER BY id`,
  );
  const told = rows.map((row) => Object.values(row));
  const created = { workspace_id: null, expires_at: "2026-01-01" };
  expect(told).toEqual([
    ["member", "setRole", workspace, null, { role: "admin" }],
    ["member", "makeWorkspace", workspace, null, { name: "own" }],
    ["member", "makeNodeCode", null, null, created],
    ["service", "registerNode", workspace, null, { name: "n" }],
    ["member", "revokeNode", null, null, {}],
    ["member", "revokeTask", workspace, null, { status: "revoked", kind: "label" }],
    ["member", "failJob", null, { status: "running" }, { status: "failed" }],
  ]);
});
