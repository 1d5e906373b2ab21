// Passwords that are reset by an operator's code. Goal: the code's account alone gets a new
// password, once, and nobody else comes by it: no admin of one workspace, program or guesser.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { KEPT_FOR_LOGIN } from "../../../edge/vision/auth/sessions.ts";
import type { Parts } from "../../../edge/vision/base/parts.ts";
import { systemClock } from "../../../shared/time.ts";
import type { AuditPage } from "../../support/audit.ts";
import { forgetRows } from "../../support/retention.ts";
import { beginTransaction } from "../../support/transactions.ts";
import {
  ask,
  freshAddress,
  newMember,
  newTenant,
  PASSWORD,
  type Person,
  register,
  type Tenant,
} from "../../support/vision.ts";
import { createWorld, type World } from "../../support/world.ts";

const NEW_PASSWORD = "a new long password";

let world: World;
let url: string;
let operator: Person;
let tenant: Tenant;

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  url = world.urls.vision;
  operator = await register(url);
  tenant = await newTenant(url, operator, "admin");
});

const post = (path: string, body: unknown, address = freshAddress()) =>
  ask(url, "POST", path, { body, headers: { "CF-Connecting-IP": address } });
const login = async ({ email }: Person, password: string) =>
  (await post("/auth/login", { email, password })).status;
const use = async (code: string, password = NEW_PASSWORD, address?: string) => {
  const { status, body } = await post("/auth/password-reset", { code, password }, address);
  return status === 204 ? status : [status, body.code];
};
const REFUSED = [401, "bad_credentials"];

const askForCode = (person: Person, by = operator) =>
  by.ask("POST", `/admin/users/${person.id}/password-reset`);
async function codeOf(person: Person, by = operator): Promise<string> {
  const { status, body } = await askForCode(person, by);
  expect([status, body.code]).toEqual([201, expect.stringMatching(/^vpr_[\w-]{22}$/)]);
  return String(body.code);
}

/** A second operator. */
async function newOperator(): Promise<Person> {
  const person = await register(url);
  const { body } = await operator.ask("GET", "/auth/me");
  const [home] = body.workspaces as [{ workspace_id: string }];
  const role = { workspace_id: home.workspace_id, role: "admin" };
  expect((await operator.ask("PATCH", `/admin/users/${person.id}`, role)).status).toBe(200);
  await person.renew();
  return person;
}

const entriesOf = async (person: Person, action: string, subject: Person) => {
  const query = `?action=${action}&subject=account:${subject.id}`;
  // The type of a reply's body knows no shape.
  const { items } = (await person.ask("GET", `/admin/audit${query}`)).body as unknown as AuditPage;
  return items;
};

describe("the code of a password reset", () => {
  it("sets the password, once, and ends all sessions and API tokens", async () => {
    const person = await register(url);
    const made = await person.ask("POST", "/auth/tokens", { name: "x", role: "viewer" });
    const program = { Authorization: `Bearer ${made.body.token}` };
    const asProgram = async () => (await ask(url, "GET", "/auth/me", { headers: program })).status;
    expect(await asProgram()).toBe(200);
    const code = await codeOf(person);
    expect(await use(code)).toBe(204);
    expect(await asProgram()).toBe(401);
    expect((await person.ask("GET", "/auth/me")).status).toBe(401);
    const { refresh_token } = person.tokens;
    expect((await post("/auth/refresh", { refresh_token })).status).toBe(401);
    expect([await login(person, PASSWORD), await login(person, NEW_PASSWORD)]).toEqual([401, 200]);
    expect(await use(code, "another long password")).toEqual(REFUSED);
    expect(await login(person, NEW_PASSWORD)).toBe(200);
  });

  it("works for one of several who use it at once", async () => {
    const code = await codeOf(await register(url));
    const outcomes = await Promise.all([use(code), use(code), use(code)]);
    expect(outcomes.filter((outcome) => outcome === 204)).toHaveLength(1);
    expect(outcomes.filter((outcome) => outcome !== 204)).toEqual([REFUSED, REFUSED]);
  });

  it("is refused alike when it is unknown, replaced or expired", async () => {
    const person = await register(url);
    const [older, newer] = [await codeOf(person), await codeOf(person)];
    expect(await use("vpr_none")).toEqual(REFUSED);
    expect(await use(older)).toEqual(REFUSED);
    await world.visionDatabase.execute(sql`
      UPDATE password_reset SET expires_at = now() WHERE account_id = ${person.id}::uuid`);
    expect(await use(newer)).toEqual(REFUSED);
    expect(await login(person, PASSWORD)).toBe(200);
    const details = await Promise.all(
      ["vpr_none", older, newer].map(
        async (code) =>
          (await post("/auth/password-reset", { code, password: NEW_PASSWORD })).body.detail,
      ),
    );
    expect(new Set(details).size).toBe(1);
  });

  it("stays when the password is refused", async () => {
    const person = await register(url);
    const code = await codeOf(person);
    for (const password of ["short", "password1234", person.email]) {
      expect(await use(code, password)).toEqual([422, "invalid_request"]);
    }
    expect(await use(code)).toBe(204);
  });

  it("ends with a change of the password", async () => {
    const person = await register(url);
    const code = await codeOf(person);
    const change = { current_password: PASSWORD, new_password: "another long password" };
    expect((await person.ask("POST", "/auth/password", change)).status).toBe(200);
    expect(await use(code)).toEqual(REFUSED);
  });

  it("ends a session and an API token that are made while it is used", async () => {
    const person = await register(url);
    const code = await codeOf(person);
    const other = await beginTransaction(world.visionDatabase);
    await other.query(`SELECT FROM account WHERE id = '${person.id}' FOR NO KEY UPDATE`);
    // Both wait behind the reset for the account.
    const used = use(code);
    await other.awaited();
    const late = Promise.all([
      post("/auth/login", { email: person.email, password: PASSWORD }),
      person.ask("POST", "/auth/tokens", { name: "x", role: "viewer" }),
    ]);
    await other.awaited(3);
    await other.commit();
    expect(await used).toBe(204);
    // Whichever of them came first, nothing of theirs is left.
    const [session, made] = await late;
    const refresh_token = String(session.body.refresh_token);
    expect((await post("/auth/refresh", { refresh_token })).status).toBe(401);
    const headers = { Authorization: `Bearer ${made.body.token}` };
    expect((await ask(url, "GET", "/auth/me", { headers })).status).toBe(401);
  });

  it("is stored as its hash, for a day", async () => {
    const person = await register(url);
    const { body } = await askForCode(person);
    const hours = (Date.parse(String(body.expires_at)) - systemClock()) / 3_600_000;
    expect(hours).toBeGreaterThan(23.9);
    expect(hours).toBeLessThanOrEqual(24);
    const { rows } = await world.visionDatabase.execute<{ row: string; hash: string }>(sql`
      SELECT row_to_json(r)::text AS row, encode(sha256(${String(body.code)}::bytea), 'hex') AS hash
        FROM password_reset r WHERE account_id = ${person.id}::uuid`);
    expect(rows[0]?.row).toContain(rows[0]?.hash);
    expect(rows[0]?.row).not.toContain(String(body.code).slice(4));
    await world.visionDatabase.execute(sql`
      UPDATE password_reset SET expires_at = now() - interval '2 days'
       WHERE account_id = ${person.id}::uuid`);
    // The duty uses no other part.
    const parts = { database: world.visionDatabase, clock: systemClock } as unknown as Parts;
    await forgetRows(parts, ...KEPT_FOR_LOGIN);
    const left = await world.visionDatabase.execute(sql`
      SELECT FROM password_reset WHERE account_id = ${person.id}::uuid`);
    expect(left.rows).toEqual([]);
  });

  it("slows guesses from one address", async () => {
    const address = freshAddress();
    await world.visionDatabase.execute(sql`INSERT INTO throttle (key, attempts, window_ends_at)
      VALUES (${`reset ${address}`}, 19, now() + interval '30 seconds')`);
    expect(await use("vpr_guess", NEW_PASSWORD, address)).toEqual(REFUSED);
    expect(await use("vpr_guess", NEW_PASSWORD, address)).toEqual([429, "too_many_attempts"]);
  });
});

describe("who makes a code", () => {
  it("is an operator, and no admin of a workspace alone", async () => {
    const member = await newMember(url, operator, tenant.workspaceId, "viewer");
    for (const person of [tenant.member, member]) {
      const reply = await askForCode(member, person);
      expect([reply.status, reply.body.code]).toEqual([403, "forbidden"]);
    }
    const nobody = await operator.ask("POST", `/admin/users/${crypto.randomUUID()}/password-reset`);
    expect([nobody.status, nobody.body.code]).toEqual([404, "not_found"]);
  });

  it("is no program with an API token", async () => {
    const made = await operator.ask("POST", "/auth/tokens", { name: "x", role: "admin" });
    const path = `/admin/users/${tenant.member.id}/password-reset`;
    const headers = { Authorization: `Bearer ${made.body.token}` };
    const reply = await ask(url, "POST", path, { headers });
    expect([reply.status, reply.body.code]).toEqual([403, "forbidden"]);
    expect(reply.body.detail).toMatch(/API token cannot manage accounts/);
  });

  it("may reset another operator, but not their own account", async () => {
    const other = await newOperator();
    const own = await askForCode(other, other);
    expect([own.status, own.body.code]).toEqual([409, "state_conflict"]);
    const code = await codeOf(other);
    expect(await use(code)).toBe(204);
    expect(await login(other, NEW_PASSWORD)).toBe(200);
  });

  it("is an operator still when it is used", async () => {
    const other = await newOperator();
    const person = await register(url);
    const code = await codeOf(person, other);
    const { body } = await operator.ask("GET", "/auth/me");
    const [home] = body.workspaces as [{ workspace_id: string }];
    const role = { workspace_id: home.workspace_id, role: "viewer" };
    expect((await operator.ask("PATCH", `/admin/users/${other.id}`, role)).status).toBe(200);
    expect(await use(code)).toEqual(REFUSED);
    expect(await login(person, PASSWORD)).toBe(200);
  });
});

it("is written down in each workspace of the account, without the code", async () => {
  const person = await newMember(url, operator, tenant.workspaceId, "engineer");
  await person.ask("POST", "/auth/tokens", { name: "x", role: "viewer" });
  const code = await codeOf(person);
  expect(await use(code)).toBe(204);
  const made = await entriesOf(tenant.member, "makePasswordReset", person);
  expect(made).toMatchObject([
    {
      actor_id: operator.id,
      actor_kind: "operator",
      workspace_id: tenant.workspaceId,
      before: null,
      after: { expires_at: expect.any(String) },
    },
  ]);
  const used = await entriesOf(tenant.member, "resetPassword", person);
  expect(used).toMatchObject([
    {
      actor_id: person.id,
      actor_kind: "member",
      workspace_id: tenant.workspaceId,
      after: { sessions_ended: true, api_tokens_revoked: 1 },
    },
  ]);
  const text = JSON.stringify([made, used]);
  for (const hidden of [code, person.email, NEW_PASSWORD]) expect(text).not.toContain(hidden);
});
