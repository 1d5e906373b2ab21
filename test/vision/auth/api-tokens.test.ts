// Personal API tokens. Goal: a token does what the lower of its role and its owner's may, in its
// workspaces alone, until it ends; and it never becomes the account.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { stillWelcome } from "../../../edge/vision/auth/guests.ts";
import { KEPT_FOR_LOGIN } from "../../../edge/vision/auth/sessions.ts";
import type { Parts } from "../../../edge/vision/base/parts.ts";
import { systemClock } from "../../../shared/time.ts";
import { ROLES, type Role, User } from "../../../shared/wire/vision.ts";
import type { AuditPage } from "../../support/audit.ts";
import { forgetRows } from "../../support/retention.ts";
import {
  ask,
  newMember,
  newTenant,
  PASSWORD,
  type Person,
  register,
  type Tenant,
} from "../../support/vision.ts";
import { createWorld, type World } from "../../support/world.ts";

let world: World;
let url: string;
let operator: Person;
let tenant: Tenant;
let owner: Person;

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  url = world.urls.vision;
  operator = await register(url);
  tenant = await newTenant(url, operator, "admin");
  owner = tenant.member;
});

interface TokenReply {
  token_id: string;
  token: string;
  expires_at: string;
  last_used_at: string | null;
}

async function makeToken(person: Person, wish: object = {}): Promise<TokenReply> {
  const body = { name: "a script", role: "admin", ...wish };
  const reply = await person.ask("POST", "/auth/tokens", body);
  expect([reply.status, reply.body.token]).toEqual([201, expect.stringMatching(/^vt_[\w-]{43}$/)]);
  // What the assertion above let through.
  return reply.body as unknown as TokenReply;
}

const by = (token: string, method: string, path: string, body?: unknown) =>
  ask(url, method, path, { body, headers: { Authorization: `Bearer ${token}` } });
const statusBy = async (token: string, path = "/projects") => (await by(token, "GET", path)).status;

const listed = async (person: Person) => {
  const { body } = await person.ask("GET", "/auth/tokens");
  // A list of JSON, which `Reply` takes for an object.
  return body as unknown as (TokenReply & { prefix: string })[];
};

/** Has the isolate read what the database says of an account's tokens anew. */
async function forget(person: Person): Promise<void> {
  const { token_id } = await makeToken(person);
  expect((await person.ask("DELETE", `/auth/tokens/${token_id}`)).status).toBe(204);
}

describe("POST /auth/tokens", () => {
  it("shows the token once, and stores only its hash", async () => {
    const made = await makeToken(owner, { role: "viewer" });
    const days = (Date.parse(made.expires_at) - systemClock()) / 86_400_000;
    expect(days).toBeGreaterThan(89);
    expect(days).toBeLessThanOrEqual(90);
    const { token, ...shown } = made;
    const [first] = await listed(owner);
    expect(first).toEqual(shown);
    expect(token.startsWith(first?.prefix ?? "none")).toBe(true);
    expect(first?.prefix).toHaveLength(9);
    const { rows } = await world.visionDatabase.execute<{ row: string; hash: string }>(sql`
      SELECT row_to_json(t)::text AS row, encode(sha256(${token}::bytea), 'hex') AS hash
        FROM api_token t WHERE id = ${made.token_id}::uuid`);
    expect(rows[0]?.row).not.toContain(token.slice(9));
    expect(rows[0]?.row).toContain(rows[0]?.hash);
  });

  it.each([
    [{ role: "operator" }],
    [{ expires_in_days: 0 }],
    [{ expires_in_days: 366 }],
    [{ expires_in_days: 1.5 }],
    [{ name: " " }],
    [{ role: undefined }],
  ])("refuses %j", async (wrong) => {
    const body = { name: "a script", role: "viewer", ...wrong };
    const reply = await owner.ask("POST", "/auth/tokens", body);
    expect([reply.status, reply.body.code]).toEqual([422, "invalid_request"]);
  });

  it("knows no workspace of others", async () => {
    const stranger = await register(url);
    const body = { name: "x", role: "viewer", workspace_id: tenant.workspaceId };
    const reply = await stranger.ask("POST", "/auth/tokens", body);
    expect([reply.status, reply.body.code]).toEqual([404, "not_found"]);
  });

  it("makes 50 of an account, also of two that come at once; expired ones do not count", async () => {
    const person = await register(url);
    const expires = (count: number, instant: string) => sql`
      INSERT INTO api_token (id, hash, account_id, name, prefix, role, expires_at)
      SELECT gen_random_uuid(), gen_random_uuid()::text::bytea, ${person.id}::uuid, 'x', 'vt_',
        'viewer', ${instant}::timestamptz FROM generate_series(1, ${count}::int)`;
    await world.visionDatabase.execute(expires(49, "2100-01-01"));
    await world.visionDatabase.execute(expires(49, "2020-01-01"));
    const body = { name: "x", role: "viewer" };
    const replies = await Promise.all(
      [1, 2, 3].map(() => person.ask("POST", "/auth/tokens", body)),
    );
    expect(replies.map(({ status }) => status).toSorted()).toEqual([201, 413, 413]);
    const refused = replies.find(({ status }) => status === 413)?.body;
    expect([refused?.code, refused?.tokens_max]).toEqual(["quota_exceeded", 50]);
    expect(await listed(person)).toHaveLength(50);
  });

  it("makes none for a session that ended, though its access token is still accepted", async () => {
    const person = await register(url);
    expect((await person.ask("GET", "/auth/me")).status).toBe(200);
    await world.visionDatabase.execute(sql`
      UPDATE refresh_token SET revoked_at = now() WHERE account_id = ${person.id}::uuid`);
    expect((await person.ask("GET", "/auth/me")).status).toBe(200);
    const reply = await person.ask("POST", "/auth/tokens", { name: "x", role: "viewer" });
    expect([reply.status, reply.body.code]).toEqual([401, "unauthorized"]);
  });
});

describe("an API token", () => {
  const lower = (one: Role, other: Role) =>
    ROLES[Math.min(ROLES.indexOf(one), ROLES.indexOf(other))] as Role;
  const may = (role: Role, needed: Role) => ROLES.indexOf(role) >= ROLES.indexOf(needed);

  it.each(ROLES)("has the lower of its own role and its owner's, who is %s", async (held) => {
    const { workspaceId } = tenant;
    const person = await newMember(url, operator, workspaceId, held);
    for (const ceiling of ROLES) {
      const { token } = await makeToken(person, { role: ceiling });
      const role = lower(held, ceiling);
      const me = User.parse((await by(token, "GET", "/auth/me")).body);
      expect(me.workspaces).toMatchObject([{ workspace_id: workspaceId, role }]);
      expect(await statusBy(token)).toBe(200);
      const statuses = [
        (await by(token, "POST", "/projects", { name: "x", workspace_id: workspaceId })).status,
        await statusBy(token, "/admin/users"),
      ];
      expect([ceiling, ...statuses]).toEqual([
        ceiling,
        may(role, "engineer") ? 201 : 403,
        may(role, "admin") ? 200 : 403,
      ]);
    }
  });

  it("is no operator's beyond the workspace it is for, nor below the role admin", async () => {
    const { body } = await operator.ask("GET", "/auth/me");
    const [home] = User.parse(body).workspaces;
    const kinds = [
      [{ role: "admin" }, 200],
      [{ role: "admin", workspace_id: home?.workspace_id }, 200],
      [{ role: "admin", workspace_id: tenant.workspaceId }, 403],
      [{ role: "engineer" }, 403],
    ] as const;
    await operator.renew();
    for (const [wish, status] of kinds) {
      const { token } = await makeToken(operator, wish);
      expect([wish, await statusBy(token, "/admin/incidents")]).toEqual([wish, status]);
    }
  });

  it("for one workspace sees nothing of the others, and makes none", async () => {
    const other = await owner.ask("POST", "/admin/workspaces", { name: "other" });
    const otherId = String(other.body.workspace_id);
    const projects = await Promise.all(
      [tenant.workspaceId, otherId].map((workspace_id) =>
        owner.ask("POST", "/projects", { name: "p", workspace_id }),
      ),
    );
    const [own, others] = projects.map(({ body }) => String(body.project_id));
    const { token } = await makeToken(owner, { workspace_id: tenant.workspaceId });
    expect(await statusBy(token, `/projects/${own}`)).toBe(200);
    expect(await statusBy(token, `/projects/${others}`)).toBe(404);
    const text = async (path: string) => JSON.stringify((await by(token, "GET", path)).body);
    for (const path of ["/projects", "/auth/me", "/admin/workspaces", "/admin/audit"]) {
      expect([path, (await text(path)).includes(otherId)]).toEqual([path, false]);
    }
    const there = { name: "p", workspace_id: otherId };
    expect((await by(token, "POST", "/projects", there)).status).toBe(404);
    const made = await by(token, "POST", "/admin/workspaces", { name: "third" });
    expect([made.status, made.body.code]).toEqual([403, "forbidden"]);
    const { token: wide } = await makeToken(owner);
    expect(await statusBy(wide, `/projects/${others}`)).toBe(200);
  });

  it("manages no account", async () => {
    const { token, token_id } = await makeToken(operator);
    const calls = [
      ["POST", "/auth/tokens", { name: "x", role: "viewer" }],
      ["GET", "/auth/tokens"],
      ["DELETE", `/auth/tokens/${token_id}`],
      ["POST", "/auth/password", { current_password: PASSWORD, new_password: `${PASSWORD}!` }],
      ["POST", "/auth/logout"],
      ["POST", "/auth/me/delete", { password: PASSWORD }],
      ["POST", "/auth/invitation", { invitation: "x" }],
      // What these give outlives the token.
      ["PATCH", `/admin/users/${operator.id}`, { role: "admin" }],
      ["POST", "/admin/workspaces", { name: "x" }],
      ["POST", "/admin/invitations", { role: "admin" }],
    ] as const;
    for (const [method, path, body] of calls) {
      const reply = await by(token, method, path, body);
      expect([path, reply.status, reply.body.code]).toEqual([path, 403, "forbidden"]);
      expect(reply.body.detail).toMatch(/API token cannot manage accounts/);
    }
    expect(await statusBy(token)).toBe(200);
  });

  it("ends when it expires, also where it was just accepted", async () => {
    const { token, token_id } = await makeToken(owner);
    await world.visionDatabase.execute(sql`
      UPDATE api_token SET expires_at = now() + interval '2 seconds'
       WHERE id = ${token_id}::uuid`);
    expect(await statusBy(token)).toBe(200);
    await expect.poll(() => statusBy(token), { timeout: 10_000 }).toBe(401);
    expect((await listed(owner)).map((one) => one.token_id)).not.toContain(token_id);
  });

  it("ends when its owner revokes it, and nobody else does", async () => {
    const { token, token_id } = await makeToken(owner);
    expect(await statusBy(token)).toBe(200);
    const revoke = (person: Person) => person.ask("DELETE", `/auth/tokens/${token_id}`);
    expect((await revoke(operator)).status).toBe(404);
    expect(await statusBy(token)).toBe(200);
    expect((await revoke(owner)).status).toBe(204);
    expect(await statusBy(token)).toBe(401);
    expect((await revoke(owner)).status).toBe(404);
    expect((await owner.ask("DELETE", "/auth/tokens/none")).status).toBe(422);
  });

  it("outlives a logout and a change of the password, and loses what its owner loses", async () => {
    const person = await newMember(url, operator, tenant.workspaceId, "engineer");
    const { token } = await makeToken(person);
    const make = () => by(token, "POST", "/projects", { name: "x" });
    expect((await make()).status).toBe(201);
    const change = { current_password: PASSWORD, new_password: "a new long password" };
    expect((await person.ask("POST", "/auth/password", change)).status).toBe(200);
    expect((await make()).status).toBe(201);
    const role = { workspace_id: tenant.workspaceId, role: "annotator" };
    expect((await operator.ask("PATCH", `/admin/users/${person.id}`, role)).status).toBe(200);
    expect((await make()).status).toBe(403);
  });

  it("notes its use at most once an hour", async () => {
    const person = await register(url);
    const { token, token_id, last_used_at } = await makeToken(person);
    expect(last_used_at).toBeNull();
    const used = async (instant?: string) => {
      if (instant) {
        await world.visionDatabase.execute(sql`
          UPDATE api_token SET last_used_at = now() - ${instant}::interval
           WHERE id = ${token_id}::uuid`);
      }
      await forget(person);
      expect(await statusBy(token)).toBe(200);
      const [found] = (await listed(person)).filter((one) => one.token_id === token_id);
      return (systemClock() - Date.parse(found?.last_used_at ?? "")) / 60_000;
    };
    expect(await used()).toBeLessThan(5);
    expect(await used("30 minutes")).toBeGreaterThan(29);
    expect(await used("61 minutes")).toBeLessThan(5);
  });

  it("holds a socket open until it ends, in its workspace", async () => {
    const { token_id } = await makeToken(owner, { workspace_id: tenant.workspaceId });
    const guest = { accountId: owner.id, session: token_id, workspaceId: tenant.workspaceId };
    const me = User.parse((await owner.ask("GET", "/auth/me")).body).workspaces;
    const elsewhere = me.find(({ workspace_id }) => workspace_id !== tenant.workspaceId);
    const others = [
      { ...guest, workspaceId: elsewhere?.workspace_id ?? "" },
      { ...guest, accountId: operator.id },
    ];
    const welcome = () => stillWelcome(world.visionDatabase, [guest, ...others]);
    expect(await welcome()).toEqual([guest]);
    await owner.ask("DELETE", `/auth/tokens/${token_id}`);
    expect(await welcome()).toEqual([]);
  });
});

describe("the audit log", () => {
  const entriesOf = async (person: Person, action: string) => {
    const { body } = await person.ask("GET", `/admin/audit?action=${action}&limit=500`);
    // The type of a reply's body knows no shape.
    return (body as unknown as AuditPage).items;
  };

  it("tells admins of tokens that may change their workspace, without the token's name", async () => {
    const home = await newTenant(url, operator, "admin");
    const person = await newMember(url, operator, home.workspaceId, "engineer");
    const viewing = await makeToken(person, { role: "viewer" });
    const changing = await makeToken(person, { name: "secret@example.com" });
    await person.ask("DELETE", `/auth/tokens/${changing.token_id}`);
    const made = await entriesOf(home.member, "makeApiToken");
    const fields = { token_id: changing.token_id, role: "engineer" };
    expect(made).toMatchObject([
      {
        actor_id: person.id,
        actor_kind: "member",
        token_id: null,
        subject: `account:${person.id}`,
        workspace_id: home.workspaceId,
        before: null,
        after: { ...fields, expires_at: changing.expires_at },
      },
    ]);
    const revoked = await entriesOf(home.member, "revokeApiToken");
    expect(revoked).toMatchObject([{ actor_id: person.id, before: fields, after: null }]);
    const text = JSON.stringify([made, revoked]);
    for (const hidden of ["secret@", viewing.token_id, changing.token]) {
      expect(text).not.toContain(hidden);
    }
  });

  it("names the person whose token acted, and the token", async () => {
    const { token, token_id } = await makeToken(owner);
    const wish = { workspace_id: tenant.workspaceId, role: "viewer" };
    const made = await owner.ask("POST", "/admin/invitations", wish);
    const path = `/admin/invitations/${made.body.invitation_id}`;
    expect((await by(token, "DELETE", path)).status).toBe(204);
    const [entry] = await entriesOf(owner, "revokeInvitation");
    expect(entry).toMatchObject({ actor_id: owner.id, token_id, actor_kind: "member" });
  });
});

it("forgets tokens a day after they expired", async () => {
  const person = await register(url);
  const kept = await makeToken(person);
  const gone = await makeToken(person);
  for (const [{ token_id }, age] of [[kept, "12 hours"] as const, [gone, "2 days"] as const]) {
    await world.visionDatabase.execute(sql`
      UPDATE api_token SET expires_at = now() - ${age}::interval WHERE id = ${token_id}::uuid`);
  }
  // The duty uses no other part.
  const parts = { database: world.visionDatabase, clock: systemClock } as unknown as Parts;
  await forgetRows(parts, ...KEPT_FOR_LOGIN);
  const { rows } = await world.visionDatabase.execute(sql`
    SELECT id::text AS id FROM api_token WHERE account_id = ${person.id}::uuid`);
  expect(rows).toEqual([{ id: kept.token_id }]);
});
