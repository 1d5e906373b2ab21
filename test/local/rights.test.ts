// What the services' roles may do in their databases. Goal: a service, or who has its password,
// owns no table and cannot change what must not change.

import pg from "pg";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import type { DatabaseUrls } from "../../edge/local/databases.ts";
import { superuser } from "../../edge/local/postgres.ts";
import { createDatabases, createWorld } from "../support/world.ts";

let urls: DatabaseUrls;
const clients: pg.Client[] = [];
beforeAll(async () => {
  urls = await createDatabases();
});
afterAll(() => Promise.all(clients.map((client) => client.end())));

/** A connection of a service's role, straight to Postgres. */
async function as(role: keyof DatabaseUrls): Promise<pg.Client> {
  const url = new URL(urls[role]);
  url.port = String(inject("postgres").port);
  const client = new pg.Client({ connectionString: url.href });
  await client.connect();
  clients.push(client);
  return client;
}
const denied = { code: "42501" };

describe("a role of a service", () => {
  it.each([
    "marketsReader",
    "marketsWriter",
    "visionWriter",
    "graphReader",
    "graphWriter",
  ] as const)("%s owns nothing, and no table can be made or changed by it", async (role) => {
    const client = await as(role);
    const { rows } = await client.query(`
      SELECT relname FROM pg_class WHERE pg_has_role(relowner, 'MEMBER')
      UNION ALL SELECT datname FROM pg_database WHERE pg_has_role(datdba, 'MEMBER')`);
    expect(rows).toEqual([]);
    await expect(client.query("CREATE TABLE mine (value int)")).rejects.toMatchObject(denied);
  });

  it.each([
    ["marketsWriter", "UPDATE vintage SET as_of = now()"],
    ["marketsWriter", "UPDATE vintage SET reconstructed = false"],
    ["marketsWriter", "ALTER TABLE vintage DISABLE TRIGGER keep_vintage"],
    ["marketsWriter", "DELETE FROM series"],
    ["marketsReader", "INSERT INTO bucket_identity (id) VALUES (gen_random_uuid())"],
    ["visionWriter", "UPDATE audit_entry SET subject = 'x'"],
    ["visionWriter", "DELETE FROM audit_entry"],
    ["visionWriter", "TRUNCATE audit_entry"],
    ["visionWriter", "INSERT INTO database_backup (made_at) VALUES (now())"],
    ["visionWriter", "UPDATE database_backup SET made_at = now()"],
    ["visionWriter", "DELETE FROM database_backup"],
    ["visionWriter", "ALTER TABLE audit_entry DISABLE TRIGGER keep_audit_entry"],
  ] as const)("%s may not: %s", async (role, statement) => {
    const client = await as(role);
    await expect(client.query(statement)).rejects.toMatchObject(denied);
  });
});

describe("a read API whose role may write", () => {
  it("refuses data, and its health says why, until the role may not", async () => {
    const world = await createWorld({
      services: ["markets"],
      databases: { ...urls, marketsReader: urls.marketsWriter },
    });
    const ask = async (path: string) => {
      const response = await fetch(`${world.urls.markets}${path}`);
      return { status: response.status, body: (await response.json()) as object };
    };
    expect(await ask("/libraries")).toMatchObject({
      status: 503,
      body: { code: "store_unavailable", detail: expect.stringContaining("may only SELECT") },
    });
    expect(await ask("/healthz")).toMatchObject({
      status: 200,
      body: { status: "degraded", detail: expect.stringContaining("may only SELECT") },
    });
    expect(world.logs.join("\n")).toMatch(/"level":"error".*may only SELECT/);
    const { port, credentials } = inject("postgres");
    const owner = new pg.Client(
      superuser(port, credentials.superuser, new URL(urls.marketsWriter).pathname.slice(1)),
    );
    await owner.connect();
    await owner.query(`
      REVOKE INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public FROM markets_writer;
      REVOKE UPDATE (inline) ON vintage FROM markets_writer`);
    await owner.end();
    expect(await ask("/libraries")).toEqual({ status: 200, body: [] });
    expect(await ask("/healthz")).toMatchObject({ status: 200, body: { status: "ok" } });
  });
});
