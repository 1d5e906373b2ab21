// Deletion of accounts. Goal: nothing of the person is left but an id that leads to nobody, all
// that let them in ends at once, and no workspace is ever without an admin.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { stillWelcome } from "../../../edge/vision/auth/guests.ts";
import { User } from "../../../shared/wire/vision.ts";
import type { AuditPage } from "../../support/audit.ts";
import { beginTransaction } from "../../support/transactions.ts";
import {
  ask,
  askToRegister,
  freshAddress,
  newMember,
  newTenant,
  PASSWORD,
  type Person,
  type Reply,
  register,
} from "../../support/vision.ts";
import { createWorld, type World } from "../../support/world.ts";

let world: World;
let url: string;
let operator: Person;
/** The default one. */
let home: string;

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  url = world.urls.vision;
  operator = await register(url);
  home = (await workspacesOf(operator))[0]?.workspace_id ?? "";
});

const database = () => world.visionDatabase;
const somebody = () => `${crypto.randomUUID()}@example.com`;
const post = (path: string, body: unknown, address = freshAddress()) =>
  ask(url, "POST", path, { body, headers: { "CF-Connecting-IP": address } });
const answer = ({ status, body }: Reply) => (status < 300 ? status : [status, body.code]);
const leave = (person: Person, password = PASSWORD) =>
  person.ask("POST", "/auth/me/delete", { password });
const remove = (person: Person, by = operator) => by.ask("DELETE", `/admin/users/${person.id}`);
const workspacesOf = async (person: Person) =>
  User.parse((await person.ask("GET", "/auth/me")).body).workspaces;
const setRole = (by: Person, whom: Person, workspaceId: string, role: string | null) =>
  by.ask("PATCH", `/admin/users/${whom.id}`, { workspace_id: workspaceId, role });
const accountsOf = async (...people: Person[]) => {
  const ids = JSON.stringify(people.map(({ id }) => id));
  const { rows } = await database().execute<{ id: string }>(sql`
    SELECT id::text FROM account WHERE id::text IN (SELECT jsonb_array_elements_text(${ids}::jsonb))`);
  return rows.map(({ id }) => id);
};

/** A workspace that has these two as its only admins. */
async function workspaceOfTwo(): Promise<{ workspaceId: string; first: Person; second: Person }> {
  const { workspaceId, member: first } = await newTenant(url, operator, "admin");
  const second = await newMember(url, operator, workspaceId, "admin");
  expect((await setRole(first, operator, workspaceId, null)).status).toBe(200);
  await operator.renew();
  return { workspaceId, first, second };
}

const adminsOf = async (workspaceId: string) => {
  const { rows } = await database().execute<{ id: string }>(sql`
    SELECT account_id::text AS id FROM membership
     WHERE workspace_id = ${workspaceId}::uuid AND role = 'admin'`);
  return rows.map(({ id }) => id);
};

/** Tables in which a text stands anywhere. */
async function tablesWith(text: string): Promise<string[]> {
  const { rows } = await database().execute<{ name: string }>(sql`
    SELECT table_name AS name FROM information_schema.tables
     WHERE table_schema = 'public' AND table_type = 'BASE TABLE' ORDER BY 1`);
  expect(rows.length).toBeGreaterThan(40);
  const found: string[] = [];
  for (const { name } of rows) {
    const hits = await database().execute(sql`
      SELECT FROM ${sql.identifier(name)} t WHERE position(${text} IN t::text) > 0 LIMIT 1`);
    if (hits.rows.length > 0) found.push(name);
  }
  return found;
}

describe("a deleted account", () => {
  it("leaves neither email nor name anywhere, and what it made under its id", async () => {
    const { workspaceId, member } = await newTenant(url, operator, "engineer");
    const made = await member.ask("POST", "/projects", { name: "stays" });
    const project = `/projects/${made.body.project_id}`;
    const invited = { workspace_id: workspaceId, email: member.email };
    await operator.ask("POST", "/admin/invitations", invited);
    const used = await operator.ask("POST", "/admin/invitations", invited);
    await member.ask("POST", "/auth/invitation", { invitation: used.body.code });
    await member.ask("POST", "/auth/tokens", { name: `of ${member.email}`, role: "engineer" });
    await post("/auth/login", { email: member.email, password: "a wrong password" });
    await operator.ask("POST", `/admin/users/${member.id}/password-reset`);
    const name = member.email.split("@")[0] ?? "";
    expect(await tablesWith(name)).toEqual(["account", "api_token", "invitation", "throttle"]);
    expect(answer(await leave(member))).toBe(204);
    expect(await tablesWith(name)).toEqual([]);
    for (const table of ["membership", "refresh_token", "api_token", "password_reset"]) {
      const { rows } = await database().execute(sql`
        SELECT FROM ${sql.identifier(table)} WHERE account_id = ${member.id}::uuid`);
      expect([table, rows]).toEqual([table, []]);
    }
    expect((await operator.ask("GET", project)).status).toBe(200);
    const { rows } = await database().execute(sql`
      SELECT created_by::text FROM project WHERE id = ${String(made.body.project_id)}::uuid`);
    expect(rows).toEqual([{ created_by: member.id }]);
  });

  it("is let in by nothing that it had", async () => {
    const { workspaceId, member } = await newTenant(url, operator, "engineer");
    const made = await member.ask("POST", "/auth/tokens", { name: "x", role: "viewer" });
    const reset = await operator.ask("POST", `/admin/users/${member.id}/password-reset`);
    const headers = { Authorization: `Bearer ${made.body.token}` };
    const asProgram = async () => (await ask(url, "GET", "/auth/me", { headers })).status;
    const { rows } = await database().execute<{ family: string }>(sql`
      SELECT family::text FROM refresh_token WHERE account_id = ${member.id}::uuid`);
    const sessions = [rows[0]?.family ?? "", String(made.body.token_id)];
    const guests = sessions.map((session) => ({ accountId: member.id, session, workspaceId }));
    expect(await stillWelcome(database(), guests)).toEqual(guests);
    expect(await asProgram()).toBe(200);
    expect(answer(await leave(member))).toBe(204);
    expect(await asProgram()).toBe(401);
    expect((await member.ask("GET", "/auth/me")).status).toBe(401);
    const { refresh_token } = member.tokens;
    expect((await post("/auth/refresh", { refresh_token })).status).toBe(401);
    const { email } = member;
    expect((await post("/auth/login", { email, password: PASSWORD })).status).toBe(401);
    const again = { code: reset.body.code, password: "a new long password" };
    expect((await post("/auth/password-reset", again)).status).toBe(401);
    expect(await stillWelcome(database(), guests)).toEqual([]);
  });

  it("lets in no node by a code that it made and that nobody used", async () => {
    const person = await register(url);
    const [home] = await workspacesOf(operator);
    await setRole(operator, person, home?.workspace_id ?? "", "admin");
    await person.renew();
    const { body } = await person.ask("POST", "/admin/nodes/codes", {});
    expect(answer(await remove(person))).toBe(204);
    const { rows } = await database().execute(sql`
      SELECT FROM node_code WHERE created_by = ${person.id}::uuid`);
    expect([typeof body.code, rows]).toEqual(["string", []]);
  });

  it("has its email register anew, as another account without its rights", async () => {
    const { workspaceId, member } = await newTenant(url, operator, "engineer");
    const wish = { workspace_id: workspaceId, email: member.email, role: "admin" };
    const { body } = await operator.ask("POST", "/admin/invitations", wish);
    expect(answer(await leave(member))).toBe(204);
    const successor = await register(url, member.email);
    expect(successor.id).not.toBe(member.id);
    expect(await workspacesOf(successor)).toMatchObject([{ workspace_id: home, role: "viewer" }]);
    const join = await successor.ask("POST", "/auth/invitation", { invitation: body.code });
    expect(answer(join)).toEqual([403, "not_invited"]);
    expect((await member.ask("GET", "/auth/me")).status).toBe(401);
  });

  it("proves nothing to the account that has its email since", async () => {
    const former = await register(url, somebody());
    expect(answer(await leave(former))).toBe(204);
    const { email } = await register(url, former.email);
    const address = freshAddress();
    const device = former.tokens.access_token;
    const guess = (more: object) =>
      post("/auth/login", { email, password: "a wrong password", ...more }, address);
    for (let attempt = 0; attempt < 5; attempt += 1) expect((await guess({})).status).toBe(401);
    // A token of the account itself would be counted for its session.
    expect((await guess({ device })).status).toBe(429);
  });

  it("is a deleted user where names are shown, and its open invitations end", async () => {
    const { workspaceId, member } = await newTenant(url, operator, "admin");
    const wish = { workspace_id: workspaceId, role: "viewer" };
    const { body } = await member.ask("POST", "/admin/invitations", wish);
    expect(answer(await leave(member))).toBe(204);
    expect(answer(await askToRegister(url, somebody(), { invitation: String(body.code) }))).toEqual(
      [403, "not_invited"],
    );
    const list = (await operator.ask("GET", "/admin/invitations")).body as unknown;
    expect(list).toContainEqual(
      expect.objectContaining({
        invitation_id: body.invitation_id,
        invited_by: "deleted user",
        status: "revoked",
      }),
    );
    const log = await operator.ask("GET", `/admin/audit?actor_id=${member.id}`);
    // The type of a reply's body knows no shape.
    const { items } = log.body as unknown as AuditPage;
    expect(items.map(({ action, actor_name }) => [action, actor_name])).toEqual([
      ["deleteAccount", "deleted user"],
      ["makeInvitation", "deleted user"],
    ]);
    expect(items[0]).toMatchObject({
      subject: `account:${member.id}`,
      workspace_id: workspaceId,
      before: { role: "admin" },
      after: null,
    });
  });

  it("still counts as the maker of its workspaces, whose storage is limited by that", async () => {
    const { first, second } = await workspaceOfTwo();
    const { body } = await first.ask("POST", "/admin/workspaces", { name: "kept" });
    const id = String(body.workspace_id);
    expect(answer(await setRole(first, second, id, "admin"))).toBe(200);
    expect(answer(await leave(first))).toBe(204);
    const { rows } = await database().execute(sql`
      SELECT made_by::text FROM workspace WHERE id = ${id}::uuid`);
    expect(rows).toEqual([{ made_by: first.id }]);
  });
});

describe("POST /auth/me/delete", () => {
  it("needs the password, and slows guesses at it", async () => {
    const person = await register(url);
    const refused = await leave(person, "not the password");
    expect(answer(refused)).toEqual([401, "bad_credentials"]);
    for (let attempt = 0; attempt < 4; attempt += 1) await leave(person, "not the password");
    expect(answer(await leave(person))).toEqual([429, "too_many_attempts"]);
    expect(await accountsOf(person)).toEqual([person.id]);
    expect(answer(await person.ask("POST", "/auth/me/delete"))).toEqual([422, "invalid_request"]);
  });

  it("deletes nothing where the password was changed since it was read", async () => {
    const person = await register(url);
    const other = await beginTransaction(database());
    await other.query(`UPDATE account SET password_hash = 'another' WHERE id = '${person.id}'`);
    const leaving = leave(person);
    await other.awaited();
    await other.commit();
    expect(answer(await leaving)).toEqual([409, "state_conflict"]);
    expect(await accountsOf(person)).toEqual([person.id]);
  });

  it("is refused to the last admin of workspaces, which it names", async () => {
    const { workspaceId, first, second } = await workspaceOfTwo();
    expect(answer(await setRole(first, second, workspaceId, "engineer"))).toBe(200);
    const own = await first.ask("POST", "/admin/workspaces", { name: "alone" });
    const refused = await leave(first);
    expect(answer(refused)).toEqual([409, "state_conflict"]);
    expect(refused.body.detail).toMatch(/last admin of "alone", "workspace [0-9a-f-]+"/);
    const ids = (refused.body.workspaces as { workspace_id: string }[]).map(
      ({ workspace_id }) => workspace_id,
    );
    expect(ids.toSorted()).toEqual([workspaceId, String(own.body.workspace_id)].toSorted());
    expect(answer(await remove(first))).toEqual([409, "state_conflict"]);
    expect((await first.ask("GET", "/auth/me")).status).toBe(200);
    expect(answer(await leave(operator))).toEqual([409, "state_conflict"]);
  });

  it("of two last admins at once deletes one, whoever asks", async () => {
    for (const both of [
      (people: Person[]) => people.map((person) => leave(person)),
      (people: Person[]) => people.map((person) => remove(person)),
    ]) {
      const { workspaceId, first, second } = await workspaceOfTwo();
      // Both wait at the rows that say who is admin.
      const other = await beginTransaction(database());
      await other.query(`SELECT FROM membership WHERE workspace_id = '${workspaceId}' FOR UPDATE`);
      const leaving = Promise.all(both([first, second]));
      await other.awaited(2);
      await other.commit();
      const answers = (await leaving).map(answer);
      expect(answers).toContainEqual(204);
      expect(answers).toContainEqual([409, "state_conflict"]);
      const left = await accountsOf(first, second);
      expect(left).toHaveLength(1);
      expect(await adminsOf(workspaceId)).toEqual(left);
    }
  });

  it("and a demotion of the other admin at once leave one", async () => {
    const { workspaceId, first, second } = await workspaceOfTwo();
    const other = await beginTransaction(database());
    await other.query(`SELECT FROM membership WHERE workspace_id = '${workspaceId}' FOR UPDATE`);
    const both = Promise.all([leave(first), setRole(first, second, workspaceId, "viewer")]);
    await other.awaited(2);
    await other.commit();
    const answers = (await both).map(({ status }) => status);
    expect(answers.toSorted()).toEqual(answers.includes(204) ? [204, 409] : [200, 409]);
    expect(await adminsOf(workspaceId)).toHaveLength(1);
  });

  it("ends a session whose next token is being made", async () => {
    const person = await register(url);
    const other = await beginTransaction(database());
    await other.query(`SELECT FROM refresh_token WHERE account_id = '${person.id}' FOR UPDATE`);
    const { refresh_token } = person.tokens;
    const rotation = post("/auth/refresh", { refresh_token, rotate: true });
    await other.awaited();
    const leaving = leave(person);
    await other.awaited(2);
    await other.commit();
    expect(answer(await leaving)).toBe(204);
    const next = String((await rotation).body.refresh_token);
    expect((await post("/auth/refresh", { refresh_token: next })).status).toBe(401);
  });
});

describe("DELETE /admin/users/{user_id}", () => {
  it("is for operators with an access token, for others' accounts", async () => {
    const { workspaceId, member: admin } = await newTenant(url, operator, "admin");
    const member = await newMember(url, operator, workspaceId, "viewer");
    expect(answer(await remove(member, admin))).toEqual([403, "forbidden"]);
    const made = await operator.ask("POST", "/auth/tokens", { name: "x", role: "admin" });
    const headers = { Authorization: `Bearer ${made.body.token}` };
    const byProgram = await ask(url, "DELETE", `/admin/users/${member.id}`, { headers });
    expect(answer(byProgram)).toEqual([403, "forbidden"]);
    expect(answer(await remove(operator))).toEqual([409, "state_conflict"]);
    expect(answer(await remove(member))).toBe(204);
    expect(answer(await remove(member))).toEqual([404, "not_found"]);
    expect((await member.ask("GET", "/auth/me")).status).toBe(401);
    const query = `?action=deleteUser&subject=account:${member.id}`;
    const log = await admin.ask("GET", `/admin/audit${query}`);
    // The type of a reply's body knows no shape.
    const { items } = log.body as unknown as AuditPage;
    expect(items).toMatchObject([{ actor_id: operator.id, before: { role: "viewer" } }]);
    expect(JSON.stringify(items)).not.toContain(member.email);
  });

  it("deletes another operator, and who is in no workspace", async () => {
    const other = await register(url);
    await setRole(operator, other, home, "admin");
    const outsider = await register(url);
    await setRole(operator, outsider, home, null);
    expect(answer(await remove(other))).toBe(204);
    expect(answer(await remove(outsider))).toBe(204);
    const { body } = await operator.ask("GET", `/admin/audit?subject=account:${outsider.id}`);
    // The type of a reply's body knows no shape.
    const [newest] = (body as unknown as AuditPage).items;
    expect(newest).toMatchObject({ action: "deleteUser", workspace_id: null });
  });
});

it("of an account leaves a request that is under way for it without effect", async () => {
  const person = await newMember(
    url,
    operator,
    (await newTenant(url, operator, "admin")).workspaceId,
    "admin",
  );
  const { body } = await operator.ask("POST", "/admin/invitations", { workspace_id: home });
  const gone = await beginTransaction(database());
  await gone.query(`DELETE FROM account WHERE id = '${person.id}'`);
  const underWay = Promise.all([
    setRole(operator, person, home, "engineer"),
    person.ask("POST", "/auth/invitation", { invitation: body.code }),
    person.ask("POST", "/admin/workspaces", { name: "nobody's" }),
    person.ask("POST", "/auth/tokens", { name: "x", role: "viewer" }),
    operator.ask("POST", `/admin/users/${person.id}/password-reset`),
  ]);
  await gone.awaited(5);
  await gone.commit();
  expect((await underWay).map(answer)).toEqual([
    [404, "not_found"],
    [401, "unauthorized"],
    [401, "unauthorized"],
    [401, "unauthorized"],
    [404, "not_found"],
  ]);
});
