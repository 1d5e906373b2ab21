// Who may make an account where registration is not open to everybody. Goal: nobody becomes admin
// by coming first, and an invitation lets in the one whom it is for, once.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { beginTransaction } from "../../support/transactions.ts";
import { askToRegister, type Person, register } from "../../support/vision.ts";
import { createWorld, type World } from "../../support/world.ts";

const BOOTSTRAP = "a bootstrap token of the tests";
const somebody = () => `${crypto.randomUUID()}@example.com`;
const worldOf = (vision: Record<string, string>) =>
  createWorld({ services: ["vision"], environment: { vision } });

let world: World;
let url: string;
let admin: Person;
let workspace: string;

/** The status of an attempt to register, with the code of a refusal. */
async function attempt(invitation?: string, email = somebody(), at = url) {
  const { status, body } = await askToRegister(at, email, { invitation });
  return status === 201 ? status : [status, body.code];
}
const REFUSED = [403, "not_invited"];

async function rolesOf(person: Person): Promise<Record<string, string>> {
  const { body } = await person.ask("GET", "/auth/me");
  const workspaces = body.workspaces as { workspace_id: string; name: string; role: string }[];
  return Object.fromEntries(workspaces.map(({ name, role }) => [name, role]));
}

interface InvitationReply {
  invitation_id: string;
  code: string;
}
async function invite(wish: object = {}, by = admin): Promise<InvitationReply> {
  const { status, body } = await by.ask("POST", "/admin/invitations", {
    workspace_id: workspace,
    ...wish,
  });
  expect([status, body.code]).toEqual([201, expect.stringMatching(/^vni_[\w-]{22}$/)]);
  // What the assertion above let through.
  return body as unknown as InvitationReply;
}

beforeAll(async () => {
  world = await worldOf({
    REGISTRATION: "invited",
    BOOTSTRAP_TOKEN: BOOTSTRAP,
    TEAM_WORKSPACE: "north",
    DEFAULT_WORKSPACE_PROJECTS: "false",
  });
  url = world.urls.vision;
});

describe("an installation of invited people", () => {
  it("has no admin until somebody comes with the bootstrap token, who is the only one", async () => {
    expect(await attempt()).toEqual(REFUSED);
    expect(await attempt("another token")).toEqual(REFUSED);
    expect(await attempt("")).toEqual([422, "invalid_request"]);
    admin = await register(url, somebody(), BOOTSTRAP);
    const roles = Object.entries(await rolesOf(admin));
    expect(roles.map(([, role]) => role)).toEqual(["admin", "admin"]);
    expect(await attempt(BOOTSTRAP)).toEqual(REFUSED);
    const made = await admin.ask("POST", "/admin/workspaces", { name: "team" });
    workspace = String(made.body.workspace_id);
    await admin.renew();
  });

  it("has a workspace for the team's projects from then on, of which that admin is one", async () => {
    const { body } = await admin.ask("GET", "/auth/me");
    const north = (body.workspaces as { workspace_id: string; name: string }[]).find(
      ({ name }) => name === "north",
    );
    const wish = { name: "p", workspace_id: north?.workspace_id };
    expect((await admin.ask("POST", "/projects", wish)).status).toBe(201);
    const log = await admin.ask("GET", "/admin/audit?action=makeWorkspace");
    expect(JSON.stringify(log.body)).toContain(`workspace:${north?.workspace_id}`);
  });

  it("lets somebody in by an invitation, once, who has its role in its workspace", async () => {
    const { code } = await invite({ role: "engineer" });
    const engineer = await register(url, somebody(), code);
    const roles = await rolesOf(engineer);
    expect(roles.team).toBe("engineer");
    expect(Object.values(roles).toSorted()).toEqual(["engineer", "viewer"]);
    expect(await attempt(code)).toEqual(REFUSED);
  });

  it("lets one of two in who come at once by one invitation", async () => {
    const { code } = await invite();
    const outcomes = await Promise.all([attempt(code), attempt(code), attempt(code)]);
    expect(outcomes.filter((outcome) => outcome === 201)).toHaveLength(1);
    expect(outcomes.filter((outcome) => outcome !== 201)).toEqual([REFUSED, REFUSED]);
  });

  it("refuses an invitation that is another's, revoked or expired", async () => {
    const email = somebody();
    const own = await invite({ email: ` ${email.toUpperCase()}` });
    expect(await attempt(own.code)).toEqual(REFUSED);
    const revoked = await invite();
    const end = () => admin.ask("DELETE", `/admin/invitations/${revoked.invitation_id}`);
    expect([(await end()).status, (await end()).status]).toEqual([204, 204]);
    expect(await attempt(revoked.code)).toEqual(REFUSED);
    const expired = await invite({ days: 1 });
    await world.visionDatabase.execute(sql`
      UPDATE invitation SET expires_at = now() WHERE id = ${expired.invitation_id}::uuid`);
    expect(await attempt(expired.code)).toEqual(REFUSED);
    expect(await attempt(own.code, email)).toBe(201);
    const used = await admin.ask("DELETE", `/admin/invitations/${own.invitation_id}`);
    expect([used.status, used.body.code]).toEqual([409, "state_conflict"]);
    const { body } = await admin.ask("GET", "/admin/invitations");
    // A list of JSON, which `Reply` takes for an object.
    const listed = body as unknown as { invitation_id: string; status: string }[];
    const statuses = new Map(listed.map((one) => [one.invitation_id, one.status]));
    const seen = [own, revoked, expired].map((one) => statuses.get(one.invitation_id));
    expect(seen).toEqual(["used", "revoked", "expired"]);
    expect(JSON.stringify(body)).not.toContain("vni_");
  });

  it("refuses those of who is no admin any more: nobody comes back by their own", async () => {
    const other = await register(url, somebody(), (await invite({ role: "admin" })).code);
    const wish = { workspace_id: workspace, role: "admin" };
    const { body } = await other.ask("POST", "/admin/invitations", wish);
    const removed = { workspace_id: workspace, role: null };
    expect((await admin.ask("PATCH", `/admin/users/${other.id}`, removed)).status).toBe(200);
    await other.renew();
    const code = String(body.code);
    const back = await other.ask("POST", "/auth/invitation", { invitation: code });
    expect([back.status, back.body.code]).toEqual(REFUSED);
    expect(await attempt(code)).toEqual(REFUSED);
    const listed = (await admin.ask("GET", "/admin/invitations")).body as unknown;
    expect(listed).toContainEqual(
      expect.objectContaining({ invitation_id: body.invitation_id, status: "revoked" }),
    );
  });

  it("says of an invitation that is used while it is revoked that it was used", async () => {
    const { invitation_id } = await invite();
    const using = await beginTransaction(world.visionDatabase);
    await using.query(`UPDATE invitation SET used_at = now() WHERE id = '${invitation_id}'`);
    const ending = admin.ask("DELETE", `/admin/invitations/${invitation_id}`);
    await using.awaited();
    await using.commit();
    const end = await ending;
    expect([end.status, end.body.code]).toEqual([409, "state_conflict"]);
  });

  it("keeps an invitation for whose email is taken: they join by it", async () => {
    const member = await register(url, somebody(), (await invite({ role: "engineer" })).code);
    const { code } = await invite({ role: "admin" });
    expect(await attempt(code, member.email)).toEqual([409, "email_taken"]);
    const join = (invitation: string) => member.ask("POST", "/auth/invitation", { invitation });
    expect((await join(code)).status).toBe(200);
    expect((await rolesOf(member)).team).toBe("admin");
    // No role is lowered.
    expect((await join((await invite({ role: "viewer" })).code)).status).toBe(200);
    expect((await rolesOf(member)).team).toBe("admin");
    const again = await join(code);
    expect([again.status, again.body.code]).toEqual(REFUSED);
  });

  it("shows and takes invitations of one's own workspaces alone", async () => {
    const other = await register(url, somebody(), (await invite({ role: "engineer" })).code);
    expect((await other.ask("POST", "/admin/invitations", {})).status).toBe(403);
    expect((await other.ask("GET", "/admin/invitations")).status).toBe(403);
    const { body } = await admin.ask("POST", "/admin/workspaces", { name: "elsewhere" });
    await admin.renew();
    const elsewhere = { workspace_id: body.workspace_id, role: "admin" };
    const stranger = await register(url, somebody(), (await invite(elsewhere)).code);
    const { invitation_id } = await invite();
    expect((await stranger.ask("GET", "/admin/invitations")).body).toHaveLength(1);
    const end = await stranger.ask("DELETE", `/admin/invitations/${invitation_id}`);
    expect([end.status, end.body.code]).toEqual([404, "not_found"]);
    const foreign = await stranger.ask("POST", "/admin/invitations", { workspace_id: workspace });
    expect([foreign.status, foreign.body.code]).toEqual([404, "not_found"]);
  });

  it("takes projects in a team's workspace, not in the default one", async () => {
    const make = (more: object) => admin.ask("POST", "/projects", { name: "p", ...more });
    const me = await admin.ask("GET", "/auth/me");
    const [first] = me.body.workspaces as { workspace_id: string }[];
    const refused = await make({ workspace_id: first?.workspace_id });
    expect([refused.status, refused.body.code]).toEqual([409, "state_conflict"]);
    expect((await make({ workspace_id: workspace })).status).toBe(201);
  });

  it("writes down who invited and who came, and no code", async () => {
    const { rows } = await world.visionDatabase.execute<{ action: string }>(sql`
      SELECT action, subject, after::text FROM audit_entry WHERE action LIKE '%Invitation'`);
    expect(new Set(rows.map(({ action }) => action))).toEqual(
      new Set(["acceptInvitation", "makeInvitation", "revokeInvitation"]),
    );
    expect(JSON.stringify(rows)).not.toContain("vni_");
  });
});

it("an open installation with a bootstrap token makes nobody admin for coming first", async () => {
  const open = await worldOf({ BOOTSTRAP_TOKEN: BOOTSTRAP });
  const first = await register(open.urls.vision);
  expect(Object.values(await rolesOf(first))).toEqual(["viewer"]);
  expect(await attempt("vni_unknown", somebody(), open.urls.vision)).toEqual(REFUSED);
  const boss = await register(open.urls.vision, somebody(), BOOTSTRAP);
  expect(Object.values(await rolesOf(boss))).toEqual(["admin"]);
});

it("a closed installation takes the bootstrap token alone", async () => {
  const closed = await worldOf({ REGISTRATION: "closed", BOOTSTRAP_TOKEN: BOOTSTRAP });
  const at = closed.urls.vision;
  expect(await attempt(undefined, somebody(), at)).toEqual(REFUSED);
  const boss = await register(at, somebody(), BOOTSTRAP);
  const { body } = await boss.ask("POST", "/admin/invitations", {});
  expect(await attempt(String(body.code), somebody(), at)).toEqual(REFUSED);
});
