// The log of what administrators did, as they read it. Goal: nobody reads another workspace's; the
// pages are whole; nothing changes what is written but its age.

import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import type pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { API } from "../../../edge/vision/base/api.ts";
import { DAY, iso, systemClock } from "../../../shared/time.ts";
import { type AuditPage, rootOf } from "../../support/audit.ts";
import {
  newMember,
  newTenant,
  type Person,
  type Reply,
  register,
  type Tenant,
} from "../../support/vision.ts";
import { createWorld, type World } from "../../support/world.ts";

let world: World;
let operator: Person;
/** The default one. */
let workspaceId: string;
let root: pg.Client;
const database = () => world.visionDatabase;
// The type of a reply's body knows no shape.
const pageOf = ({ body }: Reply) => body as unknown as AuditPage;

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  operator = await register(world.urls.vision);
  const { body } = await operator.ask("GET", "/auth/me");
  const [own] = body.workspaces as [{ workspace_id: string }];
  workspaceId = own.workspace_id;
  root = await rootOf(world);
});
afterAll(() => root?.end());

describe("GET /admin/audit", () => {
  let first: Tenant;
  let second: Tenant;

  const listed = async (person: Person, query = "") => {
    const reply = await person.ask("GET", `/admin/audit${query}`);
    expect([query, reply.status]).toEqual([query, 200]);
    return pageOf(reply);
  };

  beforeAll(async () => {
    const url = world.urls.vision;
    first = await newTenant(url, operator, "admin");
    second = await newTenant(url, operator, "admin");
  });

  it("shows an admin what was done in their workspaces, and an operator all", async () => {
    const url = world.urls.vision;
    const member = await newMember(url, operator, second.workspaceId, "viewer");
    const own = await listed(first.member);
    expect(own.items.length).toBeGreaterThan(0);
    expect(new Set(own.items.map((entry) => entry.workspace_id))).toEqual(
      new Set([first.workspaceId]),
    );
    expect(JSON.stringify(own)).not.toContain(member.id);
    const foreign = `?workspace_id=${second.workspaceId}`;
    expect((await listed(first.member, foreign)).items).toEqual([]);
    const bySubject = `?subject=account:${member.id}`;
    expect((await listed(first.member, bySubject)).items).toEqual([]);
    expect((await listed(second.member, bySubject)).items.length).toBeGreaterThan(0);
    await operator.ask("POST", "/admin/nodes/codes");
    const all = await listed(operator, "?limit=500");
    const workspaces = new Set(all.items.map((entry) => entry.workspace_id));
    for (const one of [first.workspaceId, second.workspaceId, workspaceId, null]) {
      expect(workspaces).toContain(one);
    }
    expect((await member.ask("GET", "/admin/audit")).status).toBe(403);
    const nobody = await fetch(`${url}${API}/admin/audit`);
    expect(nobody.status).toBe(401);
  });

  it("tells what a member was from what an operator was", async () => {
    await first.member.ask("POST", "/admin/nodes/codes");
    const [entry] = (await listed(first.member, "?action=makeNodeCode")).items;
    expect(entry).toMatchObject({
      actor_id: first.member.id,
      actor_kind: "member",
      workspace_id: first.workspaceId,
    });
  });

  it("shows each workspace its own part of an operator's purge", async () => {
    for (const tenant of [first, second, second]) {
      await database().execute(sql`
        INSERT INTO task (id, kind, workspace_id, subject, payload)
        VALUES (${randomUUID()}::uuid, 'preview', ${tenant.workspaceId}::uuid, 'test', '{}')`);
    }
    const [last] = (await listed(operator, "?limit=1")).items;
    const purged = await operator.ask("POST", "/admin/queue/preview/purge");
    expect(purged.body.purged).toBe(3);
    const all = (await listed(operator)).items;
    const counts = all
      .filter(({ entry_id }) => entry_id > (last?.entry_id ?? 0))
      .map(({ workspace_id, after }) => [workspace_id, after?.count]);
    expect(counts.toSorted()).toEqual(
      [
        [first.workspaceId, 1],
        [second.workspaceId, 2],
      ].toSorted(),
    );
    const [own] = (await listed(first.member, "?action=purgeQueue")).items;
    expect(own?.after).toMatchObject({ count: 1 });
  });

  it("filters by actor, operation, subject and time", async () => {
    const byActor = await listed(operator, `?actor_id=${first.member.id}`);
    expect(byActor.items.map(({ actor_id }) => actor_id)).toEqual(
      byActor.items.map(() => first.member.id),
    );
    expect(byActor.items.length).toBeGreaterThan(0);
    const byAction = await listed(operator, "?action=makeWorkspace&limit=500");
    expect(new Set(byAction.items.map(({ action }) => action))).toEqual(new Set(["makeWorkspace"]));
    const at = byAction.items[0]?.at ?? "";
    const upTo = await listed(operator, `?action=makeWorkspace&to=${at}`);
    expect(upTo.items.map(({ entry_id }) => entry_id)).not.toContain(byAction.items[0]?.entry_id);
    const from = await listed(operator, `?action=makeWorkspace&from=${at}`);
    expect(from.items.map(({ entry_id }) => entry_id)).toContain(byAction.items[0]?.entry_id);
    const nothing = await listed(operator, "?to=1999-12-31");
    expect(nothing).toEqual({ items: [], next: null });
    const subject = await listed(operator, `?subject=workspace:${first.workspaceId}`);
    expect(subject.items.map(({ action }) => action)).toEqual(["makeWorkspace"]);
  });

  it("pages newest first, whatever is written meanwhile", async () => {
    const all = (await listed(operator, "?limit=500")).items.map(({ entry_id }) => entry_id);
    expect(all).toEqual(all.toSorted((one, other) => other - one));
    const paged: number[] = [];
    let query = "?limit=7";
    for (let pages = 0; pages < 100; pages++) {
      const { items, next } = await listed(operator, query);
      paged.push(...items.map(({ entry_id }) => entry_id));
      if (pages === 1) await operator.ask("POST", "/admin/nodes/codes");
      if (next === null) break;
      query = `?limit=7&cursor=${next}`;
    }
    expect(paged.slice(0, all.length)).toEqual(all.slice(0, paged.length));
    expect(paged.length).toBeGreaterThanOrEqual(all.length);
  });

  it.each([
    "?limit=0",
    "?limit=501",
    "?cursor=0",
    "?cursor=x",
    "?cursor=9223372036854775808",
    "?action=dropTables",
    "?actor_id=me",
    "?workspace_id=mine",
    "?subject=",
    `?subject=${"x".repeat(201)}`,
    "?subject=%00",
    "?from=yesterday",
    "?from=2026-02-30",
    "?from=2026-02-02&to=2026-02-01",
    "?from=2026-02-02&from=2026-02-03",
    "?order=asc",
  ])("refuses %s", async (query) => {
    const reply = await operator.ask("GET", `/admin/audit${query}`);
    expect([reply.status, reply.body.code]).toEqual([422, "invalid_request"]);
  });

  it.each(["?from=0000-01-01", "?to=9999-12-31T23:59:59.9999Z", "?subject=' OR 1=1 --"])(
    "takes %s for what it is",
    async (query) => {
      expect((await listed(operator, query.replaceAll(" ", "%20"))).items).toBeInstanceOf(Array);
    },
  );
});

describe("what was written", () => {
  const entry = (at: string) =>
    database().execute(sql`
      INSERT INTO audit_entry (at, actor_kind, action, subject)
      VALUES (${at}::timestamptz, 'service', 'setRole', ${`test:${at}`})`);
  const kept = async () => {
    const { rows } = await database().execute<{ count: number }>(
      sql`SELECT count(*)::int AS count FROM audit_entry WHERE subject LIKE 'test:%'`,
    );
    return rows[0]?.count;
  };

  it("is not changed, deleted or emptied, by no role", async () => {
    await entry(iso(systemClock() - DAY));
    for (const statement of [
      "UPDATE audit_entry SET subject = 'x'",
      "DELETE FROM audit_entry",
      "TRUNCATE audit_entry",
    ]) {
      await expect(root.query(statement)).rejects.toMatchObject({ code: "23001" });
    }
    expect(await kept()).toBe(1);
  });

  it("goes by the minute's duty once it is older than it is kept", async () => {
    const now = systemClock();
    await entry(iso(now - 729 * DAY));
    await entry(iso(now - 731 * DAY));
    await entry(iso(now - 3_000 * DAY));
    await world.tick(now);
    expect(await kept()).toBe(2);
  });

  it("has no route that changes it", async () => {
    const page = await operator.ask("GET", "/admin/audit?limit=1");
    const [entry] = pageOf(page).items;
    for (const method of ["POST", "PUT", "PATCH", "DELETE"]) {
      expect((await operator.ask(method, "/admin/audit", {})).status).toBe(405);
      const one = await operator.ask(method, `/admin/audit/${entry?.entry_id}`, {});
      expect(one.status).toBe(404);
    }
  });
});
