// Accounts in workerd with the real Postgres: who gets in, how sessions end, who may do what.

import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { SignJWT } from "jose";
import { beforeAll, describe, expect, it } from "vitest";
import { API } from "../../../edge/vision/base/api.ts";
import { ErrorBody } from "../../../shared/errors.ts";
import { TokenPair, User } from "../../../shared/wire/vision.ts";
import { commonRouteTests } from "../../support/common-routes.ts";
import {
  ask,
  freshAddress,
  newMember,
  newTenant,
  PASSWORD,
  type Person,
  register,
} from "../../support/vision.ts";
import { createWorld, type World } from "../../support/world.ts";

let world: World;
let empty: World;
let url: string;
let admin: Person;

beforeAll(async () => {
  [world, empty] = await Promise.all([
    createWorld({ services: ["vision"] }),
    createWorld({ services: ["vision"] }),
  ]);
  url = world.urls.vision;
  admin = await register(url, "admin@example.com");
});

const from = (address = freshAddress()) => ({ "CF-Connecting-IP": address });
const post = (path: string, body: unknown, headers: Record<string, string> = from()) =>
  ask(url, "POST", path, { body, headers });
const login = (email: string, password: string, headers = from()) =>
  post("/auth/login", { email, password }, headers);
const me = (token: string) =>
  ask(url, "GET", "/auth/me", { headers: { Authorization: `Bearer ${token}` } });
const newcomer = (more: Record<string, unknown> = {}) => ({
  email: `${randomUUID()}@example.com`,
  password: PASSWORD,
  display_name: "Newcomer",
  ...more,
});

describe("the vision API", () => {
  commonRouteTests("openapi.vision.json", {
    url: () => url,
    open: ["/healthz"],
    openOthers: [
      ...["auth/register", "auth/login", "auth/refresh", "node/register", "progress"],
      ...["devices/enrol", "auth/password-reset", "auth/session"],
    ].map((path) => `${API}/${path}`),
    wrong: { Authorization: "Bearer wrong" },
  });
});

describe("POST /auth/register", () => {
  it("makes a viewer of the default workspace, and the very first account its admin", async () => {
    const first = User.parse((await me(admin.tokens.access_token)).body);
    expect(first.workspaces).toMatchObject([{ name: "Default", role: "admin" }]);
    const reply = await post("/auth/register", newcomer({ email: "  Ada@Example.COM " }));
    expect(reply.status).toBe(201);
    const user = User.parse((await me(TokenPair.parse(reply.body).access_token)).body);
    expect(user).toMatchObject({ email: "ada@example.com", display_name: "Newcomer" });
    expect(user.workspaces).toMatchObject([{ name: "Default", role: "viewer" }]);
  });

  it("makes one admin of many first accounts that come at once", async () => {
    const made = await Promise.all(Array.from({ length: 6 }, () => register(empty.urls.vision)));
    const users = await Promise.all(made.map((one) => one.ask("GET", "/auth/me")));
    const roles = users.map(({ body }) => User.parse(body).workspaces[0]?.role);
    expect(roles.toSorted()).toEqual(["admin", ...Array(5).fill("viewer")]);
  });

  it("answers 409 for a taken email, however it is spelt", async () => {
    const taken = newcomer({ email: "ADMIN@example.com" });
    expect(await post("/auth/register", taken)).toMatchObject({
      status: 409,
      body: { code: "email_taken" },
    });
  });

  it.each([
    ["a short password", { password: "1234567" }],
    ["a common password", { password: "Sunshine" }],
    ["one character repeated", { password: "zzzzzzzzzzzz" }],
    ["the email as password", { email: "someone@example.com", password: "someone@example.com" }],
    ["a password beyond all measure", { password: "é1".repeat(200) }],
    ["no email address", { email: "nobody" }],
    ["a NUL in the name", { display_name: "a\0b" }],
    ["an empty name", { display_name: "  " }],
  ])("refuses %s with 422", async (_, more) => {
    const reply = await post("/auth/register", newcomer(more));
    expect([reply.status, reply.body.code]).toEqual([422, "invalid_request"]);
  });

  it("takes long passwords of any characters, to the last of them", async () => {
    const password = `${"ü🔒 ".repeat(30)}a`;
    const person = newcomer({ password });
    expect((await post("/auth/register", person)).status).toBe(201);
    expect((await login(person.email, password)).status).toBe(200);
    expect((await login(person.email, password.slice(0, -1))).status).toBe(401);
  });

  it("answers 400 for a body that is no JSON", async () => {
    const reply = await post("/auth/register", "{", { "Content-Type": "application/json" });
    expect([reply.status, reply.body.code]).toEqual([400, "bad_body"]);
  });

  it("is throttled by address", async () => {
    const headers = from();
    const statuses: number[] = [];
    for (let attempt = 0; attempt < 21; attempt += 1) {
      // Taken: that costs a statement only after the hash, and makes no account.
      const reply = await post("/auth/register", newcomer({ password: "1234567" }), headers);
      statuses.push(reply.status);
    }
    // What the policy refuses is no attempt.
    expect(new Set(statuses)).toEqual(new Set([422]));
    await world.visionDatabase.execute(sql`INSERT INTO throttle (key, attempts, window_ends_at)
      VALUES (${`register ${headers["CF-Connecting-IP"]}`}, 20, now() + interval '30 seconds')`);
    const refused = await post("/auth/register", newcomer(), headers);
    expect([refused.status, refused.body.code]).toEqual([429, "too_many_attempts"]);
  });
});

describe("POST /auth/login", () => {
  it("answers tokens that open /auth/me", async () => {
    const reply = await login(admin.email, PASSWORD);
    expect(reply.status).toBe(200);
    expect((await me(TokenPair.parse(reply.body).access_token)).body).toMatchObject({
      id: admin.id,
      email: admin.email,
    });
  });

  it("answers an unknown email and a wrong password alike, in word and in time", async () => {
    const timed = async (email: string) => {
      const started = performance.now();
      const reply = await login(email, "not the password");
      expect([reply.status, reply.body.code]).toEqual([401, "bad_credentials"]);
      return { ms: performance.now() - started, detail: reply.body.detail };
    };
    const times = { known: [] as number[], unknown: [] as number[] };
    const details = new Set<unknown>();
    for (let round = 0; round < 5; round += 1) {
      const known = await timed(admin.email);
      const unknown = await timed("nobody@example.com");
      times.known.push(known.ms);
      times.unknown.push(unknown.ms);
      details.add(known.detail).add(unknown.detail);
    }
    expect(details.size).toBe(1);
    // A hash takes long; leaving it out would be many times faster. The machine may be busy.
    const fastest = (list: number[]) => Math.min(...list);
    expect(fastest(times.unknown)).toBeGreaterThan(fastest(times.known) / 3);
    expect(fastest(times.known)).toBeGreaterThan(fastest(times.unknown) / 3);
  });

  it("slows guessing from one address, and never the owner at another", async () => {
    const { email } = await register(url);
    const headers = from();
    for (let attempt = 0; attempt < 5; attempt += 1) {
      expect((await login(email, `guess ${attempt}`, headers)).status).toBe(401);
    }
    const refused = await login(email, PASSWORD, headers);
    expect([refused.status, refused.body.code]).toEqual([429, "too_many_attempts"]);
    const wait = Number(refused.headers.get("Retry-After"));
    expect(wait).toBeGreaterThan(0);
    expect(wait).toBeLessThanOrEqual(60);
    expect(refused.body.retry_after_seconds).toBe(wait);
    expect((await login(email, PASSWORD)).status).toBe(200);
    expect((await login(email, PASSWORD)).status).toBe(200);
  });

  it("lets the next minute begin anew", async () => {
    const { email } = await register(url);
    const headers = from();
    const keys = `login ${headers["CF-Connecting-IP"]}%`;
    for (let attempt = 0; attempt < 6; attempt += 1) await login(email, "wrong", headers);
    expect((await login(email, PASSWORD, headers)).status).toBe(429);
    await world.visionDatabase.execute(
      sql`UPDATE throttle SET window_ends_at = now() - interval '1 second' WHERE key LIKE ${keys}`,
    );
    expect((await login(email, PASSWORD, headers)).status).toBe(200);
  });

  it("counts guesses at many emails against the address", async () => {
    const headers = from();
    await world.visionDatabase.execute(sql`INSERT INTO throttle (key, attempts, window_ends_at)
      VALUES (${`login ${headers["CF-Connecting-IP"]}`}, 20, now() + interval '30 seconds')`);
    expect((await login("any@example.com", PASSWORD, headers)).status).toBe(429);
  });

  it("does not count the right password as a guess", async () => {
    const { email } = await register(url);
    const headers = from();
    for (let attempt = 0; attempt < 7; attempt += 1) {
      expect((await login(email, PASSWORD, headers)).status).toBe(200);
    }
  });

  it("replaces a hash of weaker parameters", async () => {
    const { email, id } = await register(url);
    const { scryptSync } = await import("node:crypto");
    const salt = Buffer.from("0123456789abcdef");
    const weak = scryptSync(PASSWORD, salt, 32, { N: 1024, r: 8, p: 1 });
    const old = ["scrypt", 1024, 8, 1, salt.toString("base64url"), weak.toString("base64url")];
    await world.visionDatabase.execute(
      sql`UPDATE account SET password_hash = ${old.join("$")} WHERE id = ${id}::uuid`,
    );
    expect((await login(email, PASSWORD)).status).toBe(200);
    const { rows } = await world.visionDatabase.execute(
      sql`SELECT password_hash FROM account WHERE id = ${id}::uuid`,
    );
    expect(rows[0]?.password_hash).toMatch(/^scrypt\$32768\$8\$3\$/);
    expect((await login(email, PASSWORD)).status).toBe(200);
  });
});

describe("access tokens", () => {
  const signed = (
    header: object,
    claims: object,
    secret = "a secret of the tests, of 32 characters",
  ) =>
    new SignJWT({ email: admin.email, sv: 1, sid: randomUUID(), ...claims })
      .setProtectedHeader({ alg: "HS256", typ: "at+jwt", ...header })
      .setSubject(admin.id)
      .setIssuer("vantage-vision")
      .setAudience("vantage-vision-api")
      .setJti(randomUUID())
      .setIssuedAt()
      .setExpirationTime("1h")
      .sign(new TextEncoder().encode(secret));

  it("are refused unsigned, signed otherwise, or changed", async () => {
    const [header, claims, signature] = admin.tokens.access_token.split(".");
    const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
    const read = JSON.parse(Buffer.from(claims ?? "", "base64url").toString());
    const forged = [
      `${part({ alg: "none", typ: "at+jwt" })}.${claims}.`,
      `${header}.${part({ ...read, sub: randomUUID() })}.${signature}`,
      `${header}.${part({ ...read, exp: read.exp + 1 })}.${signature}`,
      await signed({}, {}),
      await signed({ typ: "JWT" }, {}),
      "",
      "a.b.c",
    ];
    for (const token of forged) expect([token, (await me(token)).status]).toEqual([token, 401]);
    expect(read).toMatchObject({ sub: admin.id, email: admin.email, sv: 1 });
    expect(read.exp - read.iat).toBe(24 * 3600);
    expect((await me(admin.tokens.access_token)).status).toBe(200);
  });
});

describe("ending sessions", () => {
  it("logs out of one session at once, and the others stay", async () => {
    const person = await register(url);
    const other = TokenPair.parse((await login(person.email, PASSWORD)).body);
    expect((await person.ask("POST", "/auth/logout")).status).toBe(204);
    expect((await me(person.tokens.access_token)).status).toBe(401);
    const { refresh_token } = person.tokens;
    expect((await post("/auth/refresh", { refresh_token })).status).toBe(401);
    expect((await me(other.access_token)).status).toBe(200);
  });

  it("logs out everywhere", async () => {
    const person = await register(url);
    const other = TokenPair.parse((await login(person.email, PASSWORD)).body);
    expect((await person.ask("POST", "/auth/logout", { everywhere: true })).status).toBe(204);
    for (const token of [person.tokens, other]) {
      expect((await me(token.access_token)).status).toBe(401);
      const { refresh_token } = token;
      expect((await post("/auth/refresh", { refresh_token })).status).toBe(401);
    }
    expect((await person.ask("POST", "/auth/logout", { everywhere: 3 })).status).toBe(401);
  });

  it("changes the password only for who knows it, and ends every session", async () => {
    const person = await register(url);
    const change = (current_password: string, new_password: string) =>
      person.ask("POST", "/auth/password", { current_password, new_password });
    expect((await change("not it, I guess", "a new long password")).status).toBe(401);
    expect((await change(PASSWORD, "princess")).status).toBe(422);
    expect((await change(PASSWORD, person.email)).status).toBe(422);
    const changed = await change(PASSWORD, "a new long password");
    expect(changed.status).toBe(200);
    expect((await me(person.tokens.access_token)).status).toBe(401);
    expect((await me(TokenPair.parse(changed.body).access_token)).status).toBe(200);
    expect((await login(person.email, PASSWORD)).status).toBe(401);
    expect((await login(person.email, "a new long password")).status).toBe(200);
  });

  it("throttles guesses at the current password", async () => {
    const person = await register(url);
    const change = () =>
      person.ask("POST", "/auth/password", {
        current_password: "not it",
        new_password: "a new long password",
      });
    for (let attempt = 0; attempt < 5; attempt += 1) expect((await change()).status).toBe(401);
    const refused = await change();
    expect([refused.status, refused.body.code]).toEqual([429, "too_many_attempts"]);
  });
});

describe("admin", () => {
  it("lists members of one's own workspaces only, with only those roles", async () => {
    const { workspaceId, member } = await newTenant(url, admin, "admin");
    const stranger = await newTenant(url, admin, "admin");
    const { body } = await member.ask("GET", "/admin/users");
    const users = User.array().parse(body);
    expect(users.map(({ email }) => email).toSorted()).toEqual(
      [admin.email, member.email].toSorted(),
    );
    for (const { workspaces } of users) {
      expect(workspaces.map(({ workspace_id }) => workspace_id)).toEqual([workspaceId]);
    }
    const set = await member.ask("PATCH", `/admin/users/${stranger.member.id}`, { role: "viewer" });
    expect([set.status, set.body.code]).toEqual([404, "not_found"]);
    const foreign = { role: "admin", workspace_id: stranger.workspaceId };
    const reached = await member.ask("PATCH", `/admin/users/${member.id}`, foreign);
    expect([reached.status, reached.body.code]).toEqual([404, "not_found"]);
    const page = await admin.ask("GET", "/admin/users?limit=1&offset=1");
    expect(User.array().parse(page.body)).toHaveLength(1);
    expect((await admin.ask("GET", "/admin/users?limit=0")).status).toBe(422);
  });

  it("sets roles, which ends the user's access tokens and is written down", async () => {
    const { workspaceId, member } = await newTenant(url, admin, "viewer");
    const path = `/admin/users/${member.id}`;
    const raised = await admin.ask("PATCH", path, { workspace_id: workspaceId, role: "engineer" });
    expect(raised.status).toBe(200);
    expect(User.parse(raised.body).workspaces).toMatchObject([{ role: "engineer" }]);
    expect((await member.ask("GET", "/auth/me")).status).toBe(401);
    await member.renew();
    expect((await member.ask("GET", "/auth/me")).body.workspaces).toMatchObject([
      { workspace_id: workspaceId, role: "engineer" },
    ]);
    const { rows } = await world.visionDatabase.execute(sql`
      SELECT actor_id::text, workspace_id::text, before, after
      FROM audit_entry WHERE action = 'setRole' AND subject = ${`account:${member.id}`}
      ORDER BY id DESC LIMIT 1`);
    expect(rows).toEqual([
      {
        actor_id: admin.id,
        workspace_id: workspaceId,
        before: { role: "viewer" },
        after: { role: "engineer" },
      },
    ]);
  });

  it("needs a workspace to be named where there are several, and a role there is", async () => {
    const path = `/admin/users/${admin.id}`;
    expect((await admin.ask("PATCH", path, { role: "viewer" })).status).toBe(422);
    expect((await admin.ask("PATCH", path, { role: "owner" })).status).toBe(422);
    expect((await admin.ask("PATCH", "/admin/users/me", { role: "viewer" })).status).toBe(422);
  });

  it("keeps the last admin, also when two demote each other at once", async () => {
    const { workspaceId, member } = await newTenant(url, admin, "admin");
    const demote = (by: Person, whom: Person, role: string | null = "viewer") =>
      by.ask("PATCH", `/admin/users/${whom.id}`, { workspace_id: workspaceId, role });
    const replies = await Promise.all([demote(admin, member), demote(member, admin)]);
    const codes = replies.map(({ status }) => status).toSorted();
    expect([200, codes]).toEqual([200, codes[1] === 409 ? [200, 409] : [200, 401]]);
    const { rows } = await world.visionDatabase.execute<{ account_id: string }>(sql`
      SELECT account_id::text FROM membership
       WHERE workspace_id = ${workspaceId}::uuid AND role = 'admin'`);
    expect(rows).toHaveLength(1);
    const last = rows[0]?.account_id === admin.id ? admin : member;
    await last.renew();
    for (const role of ["viewer", null]) {
      const refused = await demote(last, last, role);
      expect([refused.status, refused.body.code]).toEqual([409, "state_conflict"]);
    }
    await admin.renew();
  });

  it("makes workspaces, and lists those one is admin of", async () => {
    const { workspaceId, member } = await newTenant(url, admin, "admin");
    const { body } = await member.ask("GET", "/admin/workspaces");
    expect(body).toMatchObject([{ workspace_id: workspaceId, members: 2, bytes_stored: 0 }]);
    expect((await member.ask("POST", "/admin/workspaces", { name: " " })).status).toBe(422);
  });

  it.each([
    ["GET", "/admin/users"],
    ["PATCH", `/admin/users/${randomUUID()}`],
    ["GET", "/admin/workspaces"],
    ["POST", "/admin/workspaces"],
  ])("is no place for others: %s %s", async (method, path) => {
    const { workspaceId, member } = await newTenant(url, admin, "engineer");
    const outsiders = [member, await newMember(url, admin, workspaceId, "annotator")];
    for (const person of outsiders) {
      const reply = await person.ask(method, path, method === "GET" ? undefined : {});
      expect([reply.status, ErrorBody.parse(reply.body).code]).toEqual([403, "forbidden"]);
    }
  });
});
